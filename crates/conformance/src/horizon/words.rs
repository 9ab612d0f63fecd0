//! Shorthands for the steps of the cases.

use std::sync::Arc;

use annals_core::filters::{FilterDefinition, Filters};
use annals_core::handlers::Reason;
use annals_core::horizon::{
    Consent, Horizon, HorizonError, LOCAL_PRODUCER, OfferRequest, Offered, Offering, SubscriptionDefinition,
    SubscriptionStatus,
};
use annals_core::processing::PartitionBy;
use annals_core::{
    DEFAULT_SCOPE, DEFAULT_TENANT, EventLog, LogQuery, NewCommit, NewEvent, Reached, RecordedEvent, limits,
};

use crate::handlers::opened::Opened;
use crate::receiving::SCOPE;
use crate::sample::event;
use crate::{OTHER_TENANT, Subject};

/// The public stream of most cases. Its partitions are the aggregates.
pub(super) const STREAM: &str = "offers";
/// The partition of aggregate `a`.
pub(super) const A: &str = "order/a";

/// A store with a producer and a consumer on it.
pub(super) struct Bridge {
    pub it: Opened,
    /// The consents of the producer.
    pub producer: Arc<dyn Horizon>,
    /// The public streams that the producer offers.
    pub offering: Arc<dyn Offering>,
    pub produced: Arc<dyn EventLog>,
    pub filters: Arc<dyn Filters>,
    /// The subscriptions of the consumer.
    pub consumer: Arc<dyn Horizon>,
    pub received: Arc<dyn EventLog>,
}

impl Bridge {
    /// Opens a producer with a public stream of the type `placed`, partitioned by aggregate, and a consumer without consent.
    pub async fn of(subject: &dyn Subject) -> Self {
        Self::over(Opened::of(subject).await).await
    }

    /// Does the same on an open store.
    pub async fn over(it: Opened) -> Self {
        let bridge = Self::on(it);
        let definition = FilterDefinition::new(STREAM).types(["placed"]).partitioned(PartitionBy::Aggregate).public();
        assert!(bridge.filters.put(definition).await.expect("defined"));
        bridge
    }

    pub fn on(it: Opened) -> Self {
        let host = &it.host;
        Self {
            producer: host.horizon(OTHER_TENANT).expect("declared"),
            offering: host.offering(OTHER_TENANT).expect("declared"),
            produced: it.store.log(OTHER_TENANT, DEFAULT_SCOPE).expect("declared"),
            filters: host.filters(OTHER_TENANT).expect("declared"),
            consumer: host.horizon(DEFAULT_TENANT).expect("declared"),
            received: it.store.log(DEFAULT_TENANT, SCOPE).expect("the subject declares the scope"),
            it,
        }
    }

    /// Continues on the same store with a new host that runs the existing definitions, as after a restart.
    pub async fn restarted(self) -> Self {
        let it = Opened::on(Arc::clone(&self.it.store), self.it.clock.clone());
        self.it.host.drain().await;
        let restarted = Self::on(it);
        restarted.it.host.start_defined();
        restarted
    }

    /// Commits a public event of a type to each of these aggregates of the producer, in order. Its data is `{"n": n}`.
    pub async fn produce(&self, event_type: &str, ids: &[&str]) {
        for (n, id) in ids.iter().enumerate() {
            let event = NewEvent { public: true, ..event(event_type, n as u64) };
            self.produce_event(id, event).await;
        }
    }

    pub async fn produce_event(&self, id: &str, event: NewEvent) {
        let commit = NewCommit::new("order", id).event(event).wait_until(Reached::Logged);
        self.produced.commit(commit).await.expect("committed");
    }

    /// Gives consent to partition `a`.
    pub async fn consent(&self) {
        assert!(self.producer.put_consent(consent("c")).await.expect("given"));
    }

    pub async fn revoke(&self, id: &str) {
        self.producer.revoke_consent(id, reason()).await.expect("revoked");
    }

    /// Subscribes to partition `a`.
    pub async fn subscribe(&self) {
        self.define(subscription("s")).await;
    }

    pub async fn define(&self, definition: SubscriptionDefinition) {
        assert!(self.consumer.put_subscription(definition).await.expect("defined"), "it is new");
    }

    /// Opens a producer and a consumer with a consent and a subscription.
    pub async fn connected(subject: &dyn Subject) -> Self {
        let bridge = Self::of(subject).await;
        bridge.consent().await;
        bridge.subscribe().await;
        bridge
    }

    /// Waits until the scope has `count` events, and returns them. Time passes meanwhile.
    pub async fn has_received(&self, count: usize) -> Vec<RecordedEvent> {
        loop {
            let query = LogQuery { limit: limits::PAGE_MAX, ..LogQuery::default() };
            let events = self.received.read(query).await.expect("reads").events;
            if events.len() >= count {
                assert_eq!(events.len(), count, "{events:?}");
                return events;
            }
            self.pass().await;
        }
    }

    /// Returns the sequence numbers that the received events have in the producer's log.
    pub async fn numbers(&self, count: usize) -> Vec<u64> {
        let events = self.has_received(count).await;
        events.iter().map(|event| event.commit.received.as_ref().expect("received").sequence_number).collect()
    }

    pub async fn status(&self) -> SubscriptionStatus {
        self.consumer.subscription("s").await.expect("defined")
    }

    /// Waits until the status of the subscription satisfies `is`. Time passes meanwhile.
    pub async fn until(&self, is: impl Fn(&SubscriptionStatus) -> bool) -> SubscriptionStatus {
        loop {
            let status = self.status().await;
            if is(&status) {
                return status;
            }
            self.pass().await;
        }
    }

    /// Lets a little time pass.
    pub async fn pass(&self) {
        self.it.advance(10);
        tokio::task::yield_now().await;
    }

    pub async fn offer(&self, request: OfferRequest) -> Result<Offered, HorizonError> {
        self.offering.offer(request).await
    }

    /// Waits until the public stream has `count` entries.
    pub async fn has_entries(&self, count: u64) {
        let streams = self.it.store.streams(OTHER_TENANT, DEFAULT_SCOPE).expect("declared");
        while streams.stream(STREAM).await.expect("reads").head < count {
            self.pass().await;
        }
    }
}

/// Returns a consent to partition `a` for the consumer of these cases.
pub(super) fn consent(id: &'static str) -> Consent {
    Consent::new(id, STREAM).of_partition(A)
}

/// Returns a subscription to partition `a`.
pub(super) fn subscription(name: &'static str) -> SubscriptionDefinition {
    SubscriptionDefinition::new(name, LOCAL_PRODUCER, STREAM, SCOPE).from_tenant(OTHER_TENANT).of_partition(A)
}

/// Returns a request for everything in partition `a`.
pub(super) fn request() -> OfferRequest {
    OfferRequest {
        microservice: "default".into(),
        tenant: DEFAULT_TENANT.into(),
        stream: STREAM.into(),
        partition: A.into(),
        from: 0,
        credits: 1_000,
        wait_ms: 0,
        incarnation: None,
    }
}

pub(super) fn reason() -> Reason {
    Reason { reason: "a test".to_owned(), by: Some("eva".to_owned()) }
}
