//! Expiry of records.
//!
//! The server deletes expired records by itself, without notice. That suffices for a collection without a feed. In a collection with a
//! feed, each record that expires has a marker, written in the transaction that writes the record. A marker without its record is a
//! deletion that is not noted yet. It is noted by the next sweep or before the record's next insert, whichever comes first, and the marker
//! is deleted with it. So each deletion is noted once, in order. Records older than the feed get their markers when it is turned on
//! (start.rs).
//!
//! The database is queried when the earliest marker known to this process is due, and once a minute, because other processes write markers
//! too and may have ended since. So a tenant whose records do not expire costs next to nothing.
//!
//! ```text
//! annals-record-expiries: {_id: {c: collection, id}, at date}      index at_1
//! ```

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use annals_core::bson::raw::RawDocument;
use annals_core::bson::{Bson, DateTime, RawDocumentBuf, doc};
use annals_core::order::{Direction, TypeOrder, document_keys, invert};
use annals_core::{Collection, Index, Matcher, RecordError, StoreError};
use annals_system::sleep;

use super::MongoRecords;
use super::write::Work;
use crate::layout::fields::{inner, text};
use crate::refused::reading;

/// The collection of the markers.
pub(super) const EXPIRIES: &str = "annals-record-expiries";

/// How often this process checks whether a marker is due.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// After this many checks the database is queried in any case.
const LOOKS_MAX: u32 = 30;
const DELETED_AT_ONCE: i64 = 500;

/// Returns when a document expires, in milliseconds; `None` if it does not.
pub(super) fn of_document(declared: &Collection, document: &RawDocument) -> Option<i64> {
    declared.indexes.iter().filter_map(|index| of_index(index, document)).min()
}

fn of_index(index: &Index, document: &RawDocument) -> Option<i64> {
    let seconds = index.expires_after_seconds()?;
    let (path, direction) = index.fields().into_iter().next()?;
    if index.partial().is_some_and(|partial| !Matcher::new(partial).matches(document)) {
        return None;
    }
    let (keys, _) = document_keys(document, &[(path, direction)]).ok()?;
    let dates = keys.into_iter().filter_map(|mut key| {
        if direction == Direction::Descending {
            invert(&mut key);
        }
        date(&key)
    });
    Some(dates.min()?.saturating_add(i64::from(seconds) * 1_000))
}

/// Decodes a key that is a date.
fn date(key: &[u8]) -> Option<i64> {
    let (kind, rest) = key.split_first()?;
    let bytes: [u8; 8] = rest.try_into().ok()?;
    (*kind == TypeOrder::DateTime as u8).then(|| (u64::from_be_bytes(bytes) ^ (1 << 63)).cast_signed())
}

/// When the earliest marker known to this process is due: milliseconds of the store's clock, `i64::MAX` for never.
pub(super) struct Due(AtomicI64);

impl Default for Due {
    /// Due at once, because earlier markers are not known yet.
    fn default() -> Self {
        Self(AtomicI64::new(i64::MIN))
    }
}

impl Due {
    /// Records that a marker is due at this time.
    pub(super) fn at(&self, millis: i64) {
        self.0.fetch_min(millis, Ordering::SeqCst);
    }

    /// Returns whether a marker is due, and resets the time: the caller now reads the existing markers, and later ones are recorded after
    /// they are written.
    fn take(&self, now: i64) -> bool {
        self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |due| (due <= now).then_some(i64::MAX)).is_ok()
    }
}

/// Sweeps as long as the records are open.
pub(super) async fn run(records: std::sync::Weak<MongoRecords>) {
    let mut looks = 0;
    loop {
        {
            let Some(records) = records.upgrade().filter(|records| !records.writer.is_closed()) else { return };
            looks += 1;
            if records.writer.due().take(records.clock.now().as_millis()) || looks >= LOOKS_MAX {
                looks = 0;
                match sweep(&records).await {
                    Ok(()) => {}
                    Err(RecordError::Store(StoreError::Closed)) => return,
                    Err(error) => {
                        records.writer.due().at(i64::MIN);
                        tracing::warn!(%error, "what has expired could not be deleted; it is tried again");
                    }
                }
            }
        }
        sleep(LOOK_EVERY).await;
    }
}

/// Deletes and notes the records that have expired, and determines when the next one is due.
async fn sweep(records: &MongoRecords) -> Result<(), RecordError> {
    loop {
        let now = DateTime::from_millis(records.clock.now().as_millis());
        let asked = |error: mongodb::error::Error| RecordError::from(reading(&error));
        let markers = records.database.collection::<RawDocumentBuf>(EXPIRIES);
        let due = markers.find(doc! { "at": { "$lte": now } }).sort(doc! { "at": 1 }).limit(DELETED_AT_ONCE);
        let mut due = due.await.map_err(asked)?;
        let mut expired = Vec::new();
        while due.advance().await.map_err(asked)? {
            let Some(key) = inner(due.current(), "_id") else { continue };
            let id = key.get("id").ok().flatten().and_then(|id| Bson::try_from(id).ok());
            if let (Some(name), Some(id)) = (text(key, "c"), id) {
                records.catalog.declared(name).await?;
                expired.push((name.to_owned(), id));
            }
        }
        let more = expired.len() as i64 == DELETED_AT_ONCE;
        if !expired.is_empty() {
            records.writer.write(Work::Expired(expired)).await?;
        }
        if !more {
            let next = markers.find_one(doc! {}).sort(doc! { "at": 1 }).projection(doc! { "at": 1 });
            let next = next.await.map_err(asked)?;
            let at = next.and_then(|next| next.get_datetime("at").ok().map(|at| at.timestamp_millis()));
            at.into_iter().for_each(|at| records.writer.due().at(at));
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use annals_core::bson::{doc, rawdoc};

    use super::*;

    #[test]
    fn the_database_is_asked_when_something_is_due_and_not_before() {
        let due = Due::default();
        assert!(due.take(5), "what was before is not known");
        assert!(!due.take(i64::MAX - 1), "nothing is there");
        due.at(700);
        due.at(900);
        assert!(!due.take(699));
        assert!(due.take(700) && !due.take(900), "what is there is looked at by whoever takes it");
    }

    #[test]
    fn the_lowest_date_of_all_expiring_indexes_counts() {
        let declared = Collection::new("c")
            .index(Index::ordered([("at", Direction::Descending)]).expires_after_seconds(60))
            .index(Index::on("until").expires_after_seconds(0));
        let at = |millis| DateTime::from_millis(millis);
        assert_eq!(of_document(&declared, &rawdoc! { "at": at(-5) }), Some(59_995));
        assert_eq!(
            of_document(&declared, &rawdoc! { "at": [at(9_000), "x", at(5_000)], "until": at(80_000) }),
            Some(65_000)
        );
        assert_eq!(of_document(&declared, &rawdoc! { "at": "2001", "until": 5 }), None);
        let partial = Index::on("at").expires_after_seconds(0).partial(annals_core::Condition::eq("on", true));
        let declared = Collection::new("c").index(partial);
        let of = |on: bool| RawDocumentBuf::try_from(&doc! { "at": at(7), "on": on }).expect("a document");
        assert_eq!((of_document(&declared, &of(true)), of_document(&declared, &of(false))), (Some(7), None));
    }
}
