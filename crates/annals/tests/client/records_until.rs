//! The same as [`Until`](crate::until::Until) for records: once its server was stopped, what cannot be reached is closed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use annals::bson::Bson;
use annals::{
    ChangeNumber, ChangesError, Collection, Condition, Explained, GroupPage, GroupQuery, Record, RecordChange,
    RecordError, RecordPage, RecordQuery, RecordedChange, Records, RecordsClient, Revision, StoreError,
};
use async_trait::async_trait;

pub struct RecordsUntil {
    pub client: RecordsClient,
    pub closed: Arc<AtomicBool>,
}

impl RecordsUntil {
    fn judge(&self, error: StoreError) -> StoreError {
        match error {
            StoreError::Unreachable(_) if self.closed.load(Ordering::SeqCst) => StoreError::Closed,
            other => other,
        }
    }

    fn told<T>(&self, result: Result<T, RecordError>) -> Result<T, RecordError> {
        result.map_err(|error| match error {
            RecordError::Store(error) => RecordError::Store(self.judge(error)),
            other => other,
        })
    }

    fn told_of_changes<T>(&self, result: Result<T, ChangesError>) -> Result<T, ChangesError> {
        result.map_err(|error| match error {
            ChangesError::Store(error) => ChangesError::Store(self.judge(error)),
            other => other,
        })
    }
}

#[async_trait]
impl Records for RecordsUntil {
    async fn declare(&self, collection: Collection) -> Result<(), RecordError> {
        self.told(self.client.declare(collection).await)
    }

    async fn collections(&self) -> Result<Vec<Collection>, RecordError> {
        self.told(self.client.collections().await)
    }

    async fn write(&self, changes: Vec<RecordChange>) -> Result<Vec<Revision>, RecordError> {
        self.told(self.client.write(changes).await)
    }

    async fn get(&self, collection: &str, id: &Bson) -> Result<Option<Record>, RecordError> {
        self.told(self.client.get(collection, id).await)
    }

    async fn find(&self, query: RecordQuery) -> Result<RecordPage, RecordError> {
        self.told(self.client.find(query).await)
    }

    async fn explain(&self, query: RecordQuery) -> Result<Explained, RecordError> {
        self.told(self.client.explain(query).await)
    }

    async fn count(&self, collection: &str, condition: &Condition) -> Result<u64, RecordError> {
        self.told(self.client.count(collection, condition).await)
    }

    async fn group(&self, query: GroupQuery) -> Result<GroupPage, RecordError> {
        self.told(self.client.group(query).await)
    }

    async fn changes(
        &self,
        collection: &str,
        after: ChangeNumber,
        limit: usize,
    ) -> Result<Vec<RecordedChange>, ChangesError> {
        self.told_of_changes(self.client.changes(collection, after, limit).await)
    }

    async fn last_change(&self, collection: &str) -> Result<ChangeNumber, ChangesError> {
        self.told_of_changes(self.client.last_change(collection).await)
    }

    async fn wait_past_change(&self, collection: &str, after: ChangeNumber) -> Result<ChangeNumber, ChangesError> {
        self.told_of_changes(self.client.wait_past_change(collection, after).await)
    }
}
