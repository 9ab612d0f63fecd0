//! The cases, and shorthands for their steps.

pub mod claiming;
pub mod failing;
pub mod operating;
pub mod processes;
pub mod sending;

use std::sync::Arc;

use annals_core::RecordedEvent;
use annals_core::handlers::{Delivery, HandlerDefinition};
use annals_core::processing::PartitionBy;
use annals_core::replays::{ReplayAct, ReplayBody, ReplayState, ReplayStatus, ReplayTarget};
use annals_runtime::{Effects, HandleFailure, Handler};
use async_trait::async_trait;
use tokio::sync::Notify;

use crate::browse::opened::{Browsed, of_type};

/// A handler in Rust whose attempts say that they have begun, and never end.
struct Stuck(Arc<Notify>);

#[async_trait]
impl Handler for Stuck {
    async fn handle(&self, _: &[RecordedEvent], _: &mut Effects) -> Result<(), HandleFailure> {
        self.0.notify_one();
        std::future::pending().await
    }
}

/// A replay of events of the type `placed` to the handler `again`.
pub fn to_handler() -> ReplayBody {
    ReplayBody::new(of_type("placed"), ReplayTarget::Handler { name: "again".into() })
}

/// Returns a replay of events of the type `placed` to nowhere.
pub fn to_nowhere() -> ReplayBody {
    ReplayBody::new(of_type("placed"), ReplayTarget::Test {})
}

impl Browsed {
    /// Defines the handler `again`, which has processed everything in the log.
    pub async fn handler(&self, by: PartitionBy) {
        let concurrency = if by.is_partitioned() { 8 } else { 1 };
        let definition = HandlerDefinition::new("again").partitioned(by, concurrency);
        let definition = HandlerDefinition { start: annals_core::handlers::Start::Latest, ..definition };
        self.it.define(definition).await;
    }

    pub async fn create(&self, body: ReplayBody) -> String {
        self.replays.create(body).await.expect("created").session_id
    }

    pub async fn act(&self, id: &str, act: ReplayAct) -> ReplayStatus {
        self.replays.act(id, act, "a test".into()).await.expect("allowed")
    }

    /// Creates and starts a replay.
    pub async fn begin(&self, body: ReplayBody) -> String {
        let id = self.create(body).await;
        assert_eq!(self.act(&id, ReplayAct::Start).await.status, ReplayState::Running);
        id
    }

    /// Waits until the status of a replay satisfies `wanted`.
    pub async fn until_replay(&self, id: &str, wanted: impl Fn(&ReplayStatus) -> bool) -> ReplayStatus {
        let mut status = self.replays.get(id).await.expect("known");
        while !wanted(&status) {
            // On a store that processes share, some changes are visible only at the next look.
            status = tokio::select! {
                status = self.replays.changed(id, Some(&status)) => status.expect("known"),
                () = crate::between_looks() => self.replays.get(id).await.expect("known"),
            };
        }
        status
    }

    /// Waits until a replay is over.
    pub async fn over(&self, id: &str) -> ReplayStatus {
        self.until_replay(id, |status| status.status.is_terminal()).await
    }

    /// Pulls and settles until `count` events have come.
    pub async fn handled(&self, count: usize) -> Vec<Delivery> {
        let mut all = Vec::new();
        while all.len() < count {
            for delivery in self.it.pull("again").await {
                self.it.done("again", &delivery).await;
                all.push(delivery);
            }
        }
        all
    }
}

/// Returns the field `n` of deliveries.
pub fn numbers(deliveries: &[Delivery]) -> Vec<i64> {
    deliveries.iter().map(|it| it.event.data.as_raw().get_i64("n").expect("a number")).collect()
}
