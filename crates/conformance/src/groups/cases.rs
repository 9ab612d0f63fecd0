//! The cases, by subject.

pub mod consuming;
pub mod defining;
pub mod guarding;
pub mod publishing;

use std::sync::Arc;

use annals_core::groups::{GroupDefinition, GroupStatus, Groups};
use annals_core::handlers::{Delivery, PullBody, SettleBody, Settlement};
use annals_core::relay::RelayTopics;
use annals_core::{Broker, DEFAULT_TENANT, TopicSettings};
use annals_runtime::RelayOptions;

use crate::Subject;
use crate::handlers::opened::{Opened, seconds};

/// A broker that holds copies, with the settings of its topics.
type Copies = (Arc<dyn Broker>, TopicSettings);

/// A store, a host on it, and the groups of the default tenant. The host publishes to the broker of the subject, if it has one.
pub(crate) struct Grouped {
    pub it: Opened,
    pub groups: Arc<dyn Groups>,
    copies: Option<Copies>,
}

impl Grouped {
    pub async fn of(subject: &dyn Subject) -> Self {
        Self::on(Opened::of(subject).await, subject.broker())
    }

    fn on(it: Opened, copies: Option<Copies>) -> Self {
        if let Some((broker, settings)) = copies.clone() {
            let options = RelayOptions { topics: RelayTopics::all(settings), ..RelayOptions::default() };
            it.host.relay(DEFAULT_TENANT, broker, options).expect("declared");
        }
        let groups = it.host.groups(DEFAULT_TENANT).expect("declared");
        Self { it, groups, copies }
    }

    pub async fn restarted(self) -> Self {
        let Self { it, copies, .. } = self;
        Self::on(it.restarted().await, copies)
    }

    /// Defines a group with delays of 1, 2, 4 … s.
    pub async fn define(&self, name: &str, topics: &[&'static str]) {
        let definition = GroupDefinition { retry: seconds(), ..GroupDefinition::new(name, topics.iter().copied()) };
        assert!(self.groups.put(definition).await.expect("defined"), "it is new");
    }

    /// Pulls all messages that are available now.
    pub async fn pull_now(&self, name: &str) -> Vec<Delivery> {
        let pull = PullBody { max: 100, worker: "w".to_owned(), ..PullBody::default() };
        self.groups.pull(name, pull).await.expect("pulled")
    }

    /// Pulls until `count` messages have arrived, and settles none.
    pub async fn pull_count(&self, name: &str, count: usize) -> Vec<Delivery> {
        let mut deliveries = Vec::new();
        while deliveries.len() < count {
            deliveries.extend(self.pull_now(name).await);
            crate::between_looks().await;
        }
        deliveries
    }

    pub async fn settle(&self, name: &str, settlement: Settlement) {
        let settled = self.groups.settle(name, SettleBody { results: vec![settlement] }).await.expect("settled");
        assert!(settled[0].settled, "{settled:?}");
    }

    pub async fn done(&self, name: &str, delivery: &Delivery) {
        self.settle(name, Settlement::done(delivery.token.clone())).await;
    }

    pub async fn fail(&self, name: &str, delivery: &Delivery) {
        self.settle(name, Settlement::failed(delivery.token.clone(), "down")).await;
    }

    /// Processes messages until the group has no lag. Returns the sequence numbers in order of delivery.
    pub async fn process_all(&self, name: &str) -> Vec<u64> {
        let mut processed = Vec::new();
        loop {
            for delivery in self.pull_now(name).await {
                self.done(name, &delivery).await;
                processed.push(delivery.event.sequence_number);
            }
            if self.status(name).await.processor.lag == 0 {
                return processed;
            }
            crate::between_looks().await;
        }
    }

    pub async fn status(&self, name: &str) -> GroupStatus {
        self.groups.get(name).await.expect("defined")
    }

    /// Returns the lag by topic.
    pub async fn lags(&self, name: &str) -> Vec<(String, u64)> {
        self.status(name).await.topics.into_iter().map(|it| (it.topic.to_string(), it.lag)).collect()
    }
}
