//! A tap that counts calls of records.

use std::collections::BTreeMap;
use std::sync::Mutex;

use annals_core::{GroupPage, GroupQuery, RecordChange, RecordError, RecordPage, RecordQuery, Records, Revision};
use async_trait::async_trait;

use crate::tap::TapRecords;

/// Counts writes, and queries of several records, by collection.
#[derive(Default)]
pub(super) struct Calls {
    writes: Mutex<BTreeMap<String, usize>>,
    queries: Mutex<BTreeMap<String, usize>>,
}

impl Calls {
    /// Returns how many records of a collection writes have tried to change.
    pub fn writes(&self, collection: &str) -> usize {
        self.writes.lock().expect("sound").get(collection).copied().unwrap_or(0)
    }

    /// Returns how often a collection was queried.
    pub fn queries(&self, collection: &str) -> usize {
        self.queries.lock().expect("sound").get(collection).copied().unwrap_or(0)
    }

    fn note_query(&self, collection: &str) {
        *self.queries.lock().expect("sound").entry(collection.to_owned()).or_default() += 1;
    }
}

#[async_trait]
impl TapRecords for Calls {
    async fn write(&self, records: &dyn Records, changes: Vec<RecordChange>) -> Result<Vec<Revision>, RecordError> {
        for change in &changes {
            *self.writes.lock().expect("sound").entry(change.collection().to_owned()).or_default() += 1;
        }
        records.write(changes).await
    }

    async fn find(&self, records: &dyn Records, query: RecordQuery) -> Result<RecordPage, RecordError> {
        self.note_query(&query.collection);
        records.find(query).await
    }

    async fn group(&self, records: &dyn Records, query: GroupQuery) -> Result<GroupPage, RecordError> {
        self.note_query(&query.collection);
        records.group(query).await
    }
}
