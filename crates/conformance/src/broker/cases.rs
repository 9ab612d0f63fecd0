//! The cases, by subject.

pub mod consuming;
pub mod members;
pub mod reading;
pub mod topics;
pub mod views;

use std::sync::Arc;

use annals_core::relay::RelayTopics;
use annals_core::types::{EventTypes, TypeDefinition};
use annals_core::{Broker, ByteString, DEFAULT_TENANT, Store, TopicSettings, Topics};
use annals_runtime::RelayOptions;
use annals_runtime::types::TypedStore;
use serde_json::json;

use crate::Subject;
use crate::handlers::opened::Opened;

/// A store with a registry, a host on it, and the topics and the broker of the default tenant.
pub(crate) struct Brokered {
    pub it: Opened,
    pub types: Arc<dyn EventTypes>,
    pub topics: Arc<dyn Topics>,
    pub broker: Arc<dyn Broker>,
    names: TopicSettings,
}

impl Brokered {
    pub async fn of(subject: &dyn Subject) -> Self {
        let store: Arc<dyn Store> = Arc::new(TypedStore::new(subject.open().await, subject.clock()));
        Self::on(Opened::on(store, subject.clock()), subject.broker())
    }

    pub fn on(it: Opened, copies: Option<(Arc<dyn Broker>, TopicSettings)>) -> Self {
        let names = copies.as_ref().map(|(_, names)| names.clone()).unwrap_or_default();
        if let Some((broker, settings)) = copies {
            let topics = RelayTopics { settings, ..RelayTopics::default() };
            let options = RelayOptions { topics, ..RelayOptions::default() };
            it.host.relay(DEFAULT_TENANT, broker, options).expect("declared");
        }
        let types = it.store.event_types(DEFAULT_TENANT).expect("declared");
        let topics = it.host.topics(DEFAULT_TENANT).expect("declared");
        let broker = it.host.broker(DEFAULT_TENANT).expect("declared");
        Self { it, types, topics, broker, names }
    }

    /// Returns the topic of an event type.
    pub fn topic(&self, event_type: &str) -> ByteString {
        self.names.topic_of(event_type)
    }

    /// Waits until every committed event is on its topic.
    pub async fn published(&self) {
        let head = self.it.log.head().await.expect("read");
        until("everything is published", async || self.it.host.relays().iter().all(|relay| relay.position >= head))
            .await;
    }

    /// Registers a type of a category that accepts any data.
    pub async fn register(&self, name: &str, category: &str) {
        let definition = TypeDefinition::new(name, json!({"type": "object"})).category(category);
        self.types.put(definition).await.expect("registered");
        self.topics.create_missing().await.expect("created");
    }
}

/// Waits until a condition holds.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let waited = tokio::time::timeout(std::time::Duration::from_secs(60), async {
        while !holds().await {
            // tidy: allow(pause) between two looks, so that a clock which a case moves on does not outrun leases
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("{what}: not in time"));
}
