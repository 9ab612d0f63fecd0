//! Lists the prepare keys of a name. No table of keys exists beside the log, and an index knows a key only by its hash, so each pass
//! reads the log's frames. A pass holds only the smallest keys, so its memory does not depend on how many keys exist.

use std::collections::BTreeMap;

use annals_core::{ByteString, KeyHolder, KeyPage, KeysQuery, ListedKey, StoreError, Timestamp};

use super::beside_commits::each;
use super::core::Core;
use crate::record::Record;

/// A pass looks for at least this many keys: the smallest ones may all have been released, and each further pass reads the whole log.
const CANDIDATES_MIN: usize = 256;

/// The smallest keys of a name after a given one, with their holders.
struct Smallest<'a> {
    query: &'a KeysQuery,
    after: Option<ByteString>,
    most: usize,
    keys: BTreeMap<ByteString, Option<KeyHolder>>,
}

/// Returns one page of keys that are held and have not expired at `now`.
pub(super) async fn list(core: &Core, query: &KeysQuery, now: Timestamp) -> Result<KeyPage, StoreError> {
    let view = core.view();
    let mut after = query.after.clone();
    let most = query.limit.max(CANDIDATES_MIN);
    let mut held = Vec::new();
    loop {
        let mut smallest = Smallest { query, after: after.clone(), most, keys: BTreeMap::new() };
        for segment in &view.segments {
            each(segment, |record| smallest.apply(record)).await?;
        }
        // Released keys were candidates too, so a full pass may have found few keys that are held.
        let full = smallest.keys.len() == most;
        after = smallest.keys.last_key_value().map(|(key, _)| key.clone());
        let live = |(key, holder): (ByteString, Option<KeyHolder>)| {
            holder.filter(|holder| holder.lives(now)).map(|holder| ListedKey { key, holder })
        };
        held.extend(smallest.keys.into_iter().filter_map(live));
        if !full || !held.is_empty() {
            return Ok(KeyPage::of(held, query.limit));
        }
    }
}

impl Smallest<'_> {
    fn apply(&mut self, record: &Record) {
        // Releases are applied first, so a reservation in the same commit prevails.
        for old in record.keys.release.iter().filter(|old| old.name == self.query.name) {
            self.note(&old.key, None);
        }
        for new in record.keys.reserve.iter().filter(|new| new.name == self.query.name) {
            self.note(&new.key, Some(new.clone().into()));
        }
    }

    /// INVARIANT: a key that is left out is greater than `most` others and remains so, because keys are only ever added.
    fn note(&mut self, key: &ByteString, holder: Option<KeyHolder>) {
        if self.after.as_ref().is_some_and(|after| key.as_bytes() <= after.as_bytes()) {
            return;
        }
        self.keys.insert(key.clone(), holder);
        if self.keys.len() > self.most {
            self.keys.pop_last();
        }
    }
}
