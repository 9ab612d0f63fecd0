//! Records in front of others.

use std::sync::Arc;

use annals_core::bson::Bson;
use annals_core::{
    ChangeNumber, ChangesError, Collection, Condition, Explained, GroupPage, GroupQuery, Record, RecordChange,
    RecordError, RecordPage, RecordQuery, RecordedChange, Records, Revision,
};
use async_trait::async_trait;

/// Intercepts the calls between a caller and records.
#[async_trait]
pub trait TapRecords: Send + Sync + 'static {
    /// Forwards a batch.
    ///
    /// # Errors
    /// Those of the records, or of the tap.
    async fn write(&self, records: &dyn Records, changes: Vec<RecordChange>) -> Result<Vec<Revision>, RecordError>;

    /// Forwards a read of one record.
    ///
    /// # Errors
    /// Those of the records, or of the tap.
    async fn get(&self, records: &dyn Records, collection: &str, id: &Bson) -> Result<Option<Record>, RecordError> {
        records.get(collection, id).await
    }

    /// Forwards a query.
    ///
    /// # Errors
    /// Those of the records, or of the tap.
    async fn find(&self, records: &dyn Records, query: RecordQuery) -> Result<RecordPage, RecordError> {
        records.find(query).await
    }

    /// Forwards a query of groups.
    ///
    /// # Errors
    /// Those of the records, or of the tap.
    async fn group(&self, records: &dyn Records, query: GroupQuery) -> Result<GroupPage, RecordError> {
        records.group(query).await
    }
}

/// Records behind a tap. Calls that the tap does not intercept are forwarded.
pub struct TappedRecords<T> {
    inner: Arc<dyn Records>,
    tap: Arc<T>,
}

impl<T: TapRecords> TappedRecords<T> {
    /// Puts `tap` in front of `records`.
    pub fn new(records: Arc<dyn Records>, tap: Arc<T>) -> Arc<Self> {
        Arc::new(Self { inner: records, tap })
    }
}

#[async_trait]
impl<T: TapRecords> Records for TappedRecords<T> {
    async fn declare(&self, collection: Collection) -> Result<(), RecordError> {
        self.inner.declare(collection).await
    }

    async fn collections(&self) -> Result<Vec<Collection>, RecordError> {
        self.inner.collections().await
    }

    async fn write(&self, changes: Vec<RecordChange>) -> Result<Vec<Revision>, RecordError> {
        self.tap.write(&*self.inner, changes).await
    }

    async fn get(&self, collection: &str, id: &Bson) -> Result<Option<Record>, RecordError> {
        self.tap.get(&*self.inner, collection, id).await
    }

    async fn find(&self, query: RecordQuery) -> Result<RecordPage, RecordError> {
        self.tap.find(&*self.inner, query).await
    }

    async fn explain(&self, query: RecordQuery) -> Result<Explained, RecordError> {
        self.inner.explain(query).await
    }

    async fn count(&self, collection: &str, condition: &Condition) -> Result<u64, RecordError> {
        self.inner.count(collection, condition).await
    }

    async fn count_up_to(&self, collection: &str, condition: &Condition, at_most: u64) -> Result<u64, RecordError> {
        self.inner.count_up_to(collection, condition, at_most).await
    }

    async fn group(&self, query: GroupQuery) -> Result<GroupPage, RecordError> {
        self.tap.group(&*self.inner, query).await
    }

    async fn changes(
        &self,
        collection: &str,
        after: ChangeNumber,
        limit: usize,
    ) -> Result<Vec<RecordedChange>, ChangesError> {
        self.inner.changes(collection, after, limit).await
    }

    async fn last_change(&self, collection: &str) -> Result<ChangeNumber, ChangesError> {
        self.inner.last_change(collection).await
    }

    async fn wait_past_change(&self, collection: &str, after: ChangeNumber) -> Result<ChangeNumber, ChangesError> {
        self.inner.wait_past_change(collection, after).await
    }
}
