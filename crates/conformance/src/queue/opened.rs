//! A store with a host on it, and shorthands for the steps of the cases.

use std::sync::Arc;

use annals_core::queue::{Enqueued, ItemsBody, NewItem, QueueDefinition, QueuePriority, Queues, TakeBody, Taken};
use annals_core::{Clock, DEFAULT_TENANT, Store};
use annals_runtime::{Host, HostOptions};

use super::Holding;
use crate::{ManualClock, Subject};

/// A store, a host on it, and the queues of the default tenant. Time stands still until a case advances it.
pub(crate) struct Opened {
    pub store: Arc<dyn Store>,
    pub host: Host,
    pub queues: Arc<dyn Queues>,
    pub clock: Arc<ManualClock>,
}

impl Opened {
    pub async fn of(subject: &dyn Subject, holding: &dyn Holding) -> Self {
        Self::on(subject.open().await, subject.clock(), holding)
    }

    /// Starts another host on a store, as another process would.
    pub fn on(store: Arc<dyn Store>, clock: Arc<ManualClock>, holding: &dyn Holding) -> Self {
        let queues = holding.backend(&clock);
        let options = HostOptions { clock: clock.clone(), queues, ..HostOptions::default() };
        let host = Host::start(Arc::clone(&store), options);
        let queues = host.queues(DEFAULT_TENANT).expect("declared");
        Self { store, host, queues, clock }
    }

    /// Opens the same store as another process would.
    pub async fn beside(&self, subject: &dyn Subject, holding: &dyn Holding) -> Self {
        Self::on(subject.open_beside(&self.store).await, self.clock.clone(), holding)
    }

    /// Defines a queue named `q`.
    pub async fn define(&self, definition: QueueDefinition) {
        assert!(self.queues.put(definition).await.expect("defined"), "it is new");
    }

    pub async fn add(&self, id: &str, priority: QueuePriority, user: &str) -> Enqueued {
        let item = NewItem::new(id).priority(priority).user(user).payload(serde_json::json!({ "of": id }));
        self.queues.enqueue("q", item).await.expect("enqueued")
    }

    pub async fn add_all(&self, ids: &[&str]) {
        self.add_all_of("", ids).await;
    }

    pub async fn add_all_of(&self, user: &str, ids: &[&str]) {
        for id in ids {
            self.add(id, QueuePriority::Normal, user).await;
        }
    }

    pub async fn take(&self, max: usize) -> Taken {
        let take = TakeBody { worker: "w".into(), ..TakeBody::up_to(max) };
        self.queues.take("q", take).await.expect("taken")
    }

    /// Takes the next items, which stay active. Returns their ids.
    pub async fn taken(&self, max: usize) -> Vec<String> {
        self.take(max).await.items.iter().map(|item| item.id.to_string()).collect()
    }

    /// Settles all of these as done.
    pub async fn done(&self, taken: &Taken) {
        let items = ItemsBody::of(taken.items.iter().map(annals_core::queue::TakenItem::reference));
        let results = self.queues.done("q", items).await.expect("settled");
        assert!(results.iter().all(|result| result.accepted && result.changed), "{results:?}");
    }

    pub async fn active(&self) -> u64 {
        self.queues.get("q").await.expect("defined").counts.active
    }

    pub fn now(&self) -> annals_core::Timestamp {
        self.clock.now()
    }
}

/// Returns a queue named `q`, with leases of 30 s.
pub(crate) fn q() -> QueueDefinition {
    QueueDefinition::new("q")
}
