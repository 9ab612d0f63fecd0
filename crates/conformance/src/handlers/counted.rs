//! A count of what is asked of records.

use std::collections::BTreeMap;
use std::sync::Mutex;

use annals_core::{GroupPage, GroupQuery, RecordChange, RecordError, RecordPage, RecordQuery, Records, Revision};
use async_trait::async_trait;

use crate::tap::TapRecords;

/// Counts, by collection: writes, and queries of several records.
#[derive(Default)]
pub(super) struct Calls {
    writes: Mutex<BTreeMap<String, usize>>,
    queries: Mutex<BTreeMap<String, usize>>,
}

impl Calls {
    /// How many records of a collection were to be changed.
    pub fn writes(&self, collection: &str) -> usize {
        self.writes.lock().expect("sound").get(collection).copied().unwrap_or(0)
    }

    /// How often a collection was queried.
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
