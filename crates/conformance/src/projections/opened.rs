//! A store with a host on it that runs projections, and shorthands for the steps of the cases.

use std::sync::Arc;

use annals_core::bson::{Bson, Document};
use annals_core::projections::{ProjectionDefinition, ProjectionStatus, Projections, PutProjection};
use annals_core::{Condition, DEFAULT_TENANT, Data, NewCommit, NewEvent, Reached, RecordQuery, SequenceNumber, Store};
use serde_json::Value;

use crate::handlers::opened::{Opened, restored};
use crate::{ManualClock, Subject};

/// A store, a host on it, and the projections of the default tenant. Time stands still until a case advances it.
pub struct Projected {
    pub it: Opened,
    pub projections: Arc<dyn Projections>,
}

/// The definition of most cases: `placed` and `paid` are counted and summed.
pub const ORDERS: &str = r#"{
    "on": {
        "placed": {"set": {"customer": "$data.customer", "state": "placed"}, "increment": {"total": "$data.total", "events": 1}},
        "paid": {"set": {"state": "paid"}, "increment": {"events": 1}},
        "cancelled": {"delete": true}
    }
}"#;

impl Projected {
    pub async fn of(subject: &dyn Subject) -> Self {
        Self::on(subject.open().await, subject.clock())
    }

    /// Starts another host on a store, as another process would.
    pub fn on(store: Arc<dyn Store>, clock: Arc<ManualClock>) -> Self {
        let it = Opened::on(store, clock);
        it.host.start_defined();
        let projections = it.host.projections(DEFAULT_TENANT).expect("declared");
        Self { it, projections }
    }

    /// Continues on the same store with a new host, as after a restart.
    pub async fn restarted(self) -> Self {
        let Opened { store, host, clock, .. } = self.it;
        host.drain().await;
        Self::on(store, clock)
    }

    /// Continues with a new host, as after a restore to a sequence number. See [`restored`].
    pub async fn restored_to(self, number: SequenceNumber) -> Self {
        let Opened { store, host, clock, .. } = self.it;
        host.drain().await;
        Self::on(restored(store, number), clock)
    }

    pub async fn put(&self, name: &str, definition: &str) -> PutProjection {
        let definition = ProjectionDefinition::read(name, definition.as_bytes()).expect("a definition");
        self.projections.put(definition).await.expect("defined")
    }

    /// Commits one event to `order/ID`.
    pub async fn commit(&self, id: &str, event_type: &str, data: Value) {
        let event = NewEvent::new(event_type, Data::from_value(&data).expect("a document"));
        let commit = NewCommit::new("order", id).event(event).wait_until(Reached::Logged);
        self.it.log.commit(commit).await.expect("committed");
    }

    pub async fn status(&self, name: &str) -> ProjectionStatus {
        self.projections.get(name).await.expect("defined")
    }

    /// Waits until the status satisfies `wanted`.
    pub async fn until(&self, name: &str, wanted: impl Fn(&ProjectionStatus) -> bool) -> ProjectionStatus {
        loop {
            let status = self.status(name).await;
            if wanted(&status) {
                return status;
            }
            crate::between_looks().await;
        }
    }

    /// Waits until everything in the log is folded, and no build is in progress.
    pub async fn settled(&self, name: &str) -> ProjectionStatus {
        self.until(name, |status| status.lag == 0 && status.building.is_none()).await
    }

    /// Returns all records, by key.
    pub async fn records(&self, name: &str) -> Vec<Document> {
        self.matching(name, Condition::All).await
    }

    pub async fn matching(&self, name: &str, condition: Condition) -> Vec<Document> {
        let mut query = RecordQuery::new("").matching(condition).limit(2);
        let mut records = Vec::new();
        loop {
            let page = self.projections.find(name, query.clone()).await.expect("found");
            records.extend(page.records.iter().map(|it| Document::try_from(&*it.document).expect("a document")));
            let Some(cursor) = page.next else { return records };
            query = query.after(cursor);
        }
    }

    pub async fn record(&self, name: &str, key: impl Into<Bson>) -> Option<Document> {
        let found = self.projections.record(name, &key.into()).await.expect("read");
        found.map(|found| Document::try_from(&*found.document).expect("a document"))
    }
}
