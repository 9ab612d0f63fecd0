//! Prepare keys: who holds a key is what the last commit in the log that names it says.
//!
//! There is no table of keys beside the log that could differ from it: a key is a term of the commits that change it, so it is
//! found as the versions of aggregates are, in memory or through a Bloom filter and a look at one frame. That makes its change atomic
//! with the events, under the same sync, and right after any crash.
//!
//! A change that comes without a commit (`prepare.rs`) is a frame without events, which stands in the log where it happened and takes no
//! sequence number.
//!
//! Who judges a change sees, in this order, what the changes before it in the same request made of the key, the batch, the segments
//! whose index was in memory when the caller looked (or that are newer), and what the caller found in the others.

use std::ops::RangeBounds;

use annals_core::{ByteString, KeyChange, KeyChanges, KeyHolder, KeyValue, Release, Reserve, StoreError, Timestamp};

use super::segment::View;
use crate::index::TermMap;
use crate::terms::{ExactTerm, TermKey, short};

/// What is known of a key: none where nothing is, nobody, or a holder.
pub(super) type Known = Option<Option<KeyHolder>>;

/// A change of a key, on its way to the log writer.
pub(super) struct Change {
    pub(super) name: ByteString,
    pub(super) key: ByteString,
    pub(super) term: ExactTerm,
    kind: Kind,
    /// The key was looked up in all segments below this number,
    pub(super) probed_below: u64,
    /// and this was found.
    pub(super) probed: Known,
}

enum Kind {
    Release(Option<KeyValue>),
    Reserve(KeyHolder),
    /// As a service of its own does it: at the very `ttl_at` not without the value.
    Rollback(Option<KeyValue>),
    /// The holder in the place of whoever has the value, or of any.
    Reprepare(Option<KeyValue>, KeyHolder),
}

/// Why a change is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyFault {
    Taken,
    NotHeld,
}

/// The changes of a commit, in the order in which they are judged and made.
pub(super) fn changes(terms: TermKey, keys: KeyChanges) -> Vec<Change> {
    let change = |name: ByteString, key: ByteString, kind| of(terms, name, key, kind);
    let release = keys.release.into_iter().map(|Release { name, key, value }| change(name, key, Kind::Release(value)));
    let reserve = keys.reserve.into_iter().map(|reserve| {
        let (name, key) = (reserve.name.clone(), reserve.key.clone());
        change(name, key, Kind::Reserve(reserve.into()))
    });
    release.chain(reserve).collect()
}

/// What a change by the service does, in the order in which it is judged and made: what is taken comes first, so that of a move both
/// of whose keys are not as they must be the new one is told.
pub(super) fn of_service(terms: TermKey, change: KeyChange) -> Vec<Change> {
    let reserve = |it: Reserve, kind: fn(KeyHolder) -> Kind| {
        let (name, key) = (it.name.clone(), it.key.clone());
        of(terms, name, key, kind(it.into()))
    };
    let rollback = |Release { name, key, value }| of(terms, name, key, Kind::Rollback(value));
    match change {
        KeyChange::Prepare(new) => vec![reserve(new, Kind::Reserve)],
        KeyChange::Rollback(old) => vec![rollback(old)],
        KeyChange::Reprepare { old, new } => {
            let (name, key) = (new.name.clone(), new.key.clone());
            vec![of(terms, name, key, Kind::Reprepare(old, new.into()))]
        }
        KeyChange::Move { old, new } => vec![reserve(new, Kind::Reserve), rollback(old)],
    }
}

fn of(terms: TermKey, name: ByteString, key: ByteString, kind: Kind) -> Change {
    let term = terms.key(&name, &key);
    Change { name, key, term, kind, probed_below: 0, probed: None }
}

impl Change {
    /// Who holds the key after this change, which was judged where it was made first.
    pub(super) fn made(&self) -> Option<KeyHolder> {
        match &self.kind {
            Kind::Reserve(new) | Kind::Reprepare(_, new) => Some(new.clone()),
            Kind::Release(_) | Kind::Rollback(_) => None,
        }
    }

    /// Who holds the key after this change of what `known` says, at `now`.
    pub(super) fn apply(&self, known: &Known, now: Timestamp) -> Result<Option<KeyHolder>, KeyFault> {
        let holder = known.as_ref().and_then(Option::as_ref);
        match (&self.kind, holder) {
            (Kind::Reserve(_), Some(holder)) if holder.lives(now) => Err(KeyFault::Taken),
            (Kind::Reserve(new), _) => Ok(Some(new.clone())),
            (Kind::Release(value), Some(holder)) if holder.gives_back(value.as_ref(), now) => Ok(None),
            (Kind::Rollback(value), Some(holder)) if holder.rolls_back(value.as_ref(), now) => Ok(None),
            (Kind::Reprepare(old, new), Some(holder)) if old.as_ref().is_none_or(|old| *old == holder.value) => {
                Ok(Some(new.clone()))
            }
            (Kind::Release(_) | Kind::Rollback(_) | Kind::Reprepare(..), _) => Err(KeyFault::NotHeld),
        }
    }
}

/// What the commits of a batch, or the changes before this one in a request, make of keys.
pub(super) type Changed = TermMap<ExactTerm, Option<KeyHolder>>;

/// What the segments of these numbers say of a key.
pub(super) fn look_up(
    view: &View,
    numbers: impl RangeBounds<u64>,
    name: &ByteString,
    key: &ByteString,
    term: ExactTerm,
) -> Result<Known, StoreError> {
    for segment in view.segments.iter().rev().filter(|segment| numbers.contains(&segment.at.number)) {
        // From the end, and not all at once: a key that changes all the time has as many postings as there are commits.
        let mut end = segment.index.commits();
        while end > 0 {
            let start = end.saturating_sub(segment.index.stride());
            for ordinal in segment.index.postings(short(term), start..end)?.into_iter().rev() {
                for record in segment.records(&[ordinal])? {
                    if let Some(change) = change_in(record.keys, name, key) {
                        return Ok(Some(change));
                    }
                }
            }
            end = start;
        }
    }
    Ok(None)
}

/// What a commit with these changes made of a key; none when it is not among them, as after a collision of terms.
fn change_in(keys: KeyChanges, name: &ByteString, key: &ByteString) -> Option<Option<KeyHolder>> {
    // Releases come first, so that a reservation of the same commit is what stands.
    if let Some(taken) = keys.reserve.into_iter().find(|it| it.name == *name && it.key == *key) {
        return Some(Some(taken.into()));
    }
    keys.release.iter().any(|it| it.name == *name && it.key == *key).then_some(None)
}
