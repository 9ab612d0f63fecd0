//! The cases, by subject.

pub mod acting;
pub mod ending;
pub mod processes;
pub mod receiving;

use std::sync::Arc;

use annals_core::dead_letters::{
    DeadLetters, LetterOrder, LetterPolicy, LetterQuery, LetterSettings, LetterStatus, LetterView, Strategy,
};
use annals_core::groups::{GroupDefinition, Groups};
use annals_core::handlers::{Delivery, PullBody, Reason, SettleBody, Settlement};
use annals_core::processing::{ProcessingRetry, Then};
use annals_core::{DEFAULT_TENANT, Filter, LogQuery};

use crate::Subject;
use crate::handlers::opened::Opened;

/// A store, a host on it, and the groups and dead letters of the default tenant.
pub(crate) struct Lettered {
    pub it: Opened,
    pub groups: Arc<dyn Groups>,
    pub letters: Arc<dyn DeadLetters>,
}

/// Parks a message at its first failure.
pub(crate) fn at_once() -> ProcessingRetry {
    ProcessingRetry { attempts: Some(1), then: Then::Park, jitter: 0.0, ..ProcessingRetry::default() }
}

/// Returns a policy of two retries, 10 s apart.
pub(crate) fn ten_seconds() -> LetterPolicy {
    LetterPolicy { strategy: Strategy::FixedInterval, ..LetterPolicy::exponential(2, 10_000, 10_000, 1.0) }
}

pub(crate) fn because(reason: &str) -> Reason {
    Reason { reason: reason.to_owned(), by: Some("ann".to_owned()) }
}

impl Lettered {
    pub async fn of(subject: &dyn Subject) -> Self {
        let it = Self::on(Opened::of(subject).await);
        it.letters.put_policy("placed".into(), ten_seconds(), because("a test")).await.expect("stored");
        it
    }

    fn on(it: Opened) -> Self {
        let groups = it.host.groups(DEFAULT_TENANT).expect("declared");
        let letters = it.host.dead_letters(DEFAULT_TENANT).expect("declared");
        Self { it, groups, letters }
    }

    pub async fn restarted(self) -> Self {
        Self::on(self.it.restarted().await)
    }

    /// Defines a group of the topic `placed` that parks at the first failure.
    pub async fn define(&self, name: &str, order: LetterOrder) {
        self.define_with(name, LetterSettings { order, breaker: 0 }).await;
    }

    pub async fn define_with(&self, name: &str, dead_letters: LetterSettings) {
        let definition = GroupDefinition { retry: at_once(), dead_letters, ..GroupDefinition::new(name, ["placed"]) };
        self.groups.put(definition).await.expect("defined");
    }

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

    /// Processes `count` messages. Returns their sequence numbers in order of delivery.
    pub async fn process(&self, name: &str, count: usize) -> Vec<u64> {
        self.process_all(name, count).await.into_iter().map(|(number, _)| number).collect()
    }

    /// Does the same with versions, which do not depend on commits about letters meanwhile.
    pub async fn process_versions(&self, name: &str, count: usize) -> Vec<u64> {
        self.process_all(name, count).await.into_iter().map(|(_, version)| version).collect()
    }

    async fn process_all(&self, name: &str, count: usize) -> Vec<(u64, u64)> {
        let mut processed = Vec::new();
        while processed.len() < count {
            for delivery in self.pull_now(name).await {
                self.done(name, &delivery).await;
                processed.push((delivery.event.sequence_number, delivery.event.commit.version));
            }
            crate::between_looks().await;
        }
        processed
    }

    /// Returns the letters, in the order of their events.
    pub async fn all(&self) -> Vec<LetterView> {
        let query = LetterQuery { limit: Some(1_000), ..LetterQuery::default() };
        let mut letters = self.letters.list(query).await.expect("listed").items;
        letters.sort_by_key(|letter| (letter.group.clone(), letter.position));
        letters
    }

    /// Waits until there are `count` letters of a status.
    pub async fn until_count(&self, status: LetterStatus, count: usize) -> Vec<LetterView> {
        loop {
            let letters = self.all().await;
            if letters.iter().filter(|letter| letter.status == status).count() >= count {
                return letters;
            }
            // A pull lets the owner of the group continue.
            crate::between_looks().await;
        }
    }

    /// Returns the types of the events about letters, in log order, once there are `count`.
    pub async fn announced(&self, count: usize) -> Vec<String> {
        let types = ["dlq_message_received", "dlq_message_retried", "dlq_message_discarded", "dlq_threshold_crossed"];
        let filter = Filter { types: types.map(Into::into).to_vec(), ..Filter::default() };
        loop {
            let query = LogQuery { from: Some(0), limit: 1_000, backwards: false, filter: filter.clone() };
            let events = self.it.log.read(query).await.expect("read").events;
            if events.len() >= count {
                return events.iter().map(|event| event.event_type.to_string()).collect();
            }
            crate::between_looks().await;
        }
    }
}

/// Returns status and number of retries.
pub(crate) fn states(letters: &[LetterView]) -> Vec<(LetterStatus, u64)> {
    letters.iter().map(|letter| (letter.status, letter.retry_count)).collect()
}
