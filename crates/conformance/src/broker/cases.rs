//! The cases, by what they are about.

pub mod reading;
pub mod topics;

use std::sync::Arc;

use annals_core::types::{EventTypes, TypeDefinition};
use annals_core::{Broker, DEFAULT_TENANT, Store, Topics};
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
}

impl Brokered {
    pub async fn of(subject: &dyn Subject) -> Self {
        let store: Arc<dyn Store> = Arc::new(TypedStore::new(subject.open().await, subject.clock()));
        Self::on(Opened::on(store, subject.clock()))
    }

    pub fn on(it: Opened) -> Self {
        let types = it.store.event_types(DEFAULT_TENANT).expect("declared");
        let topics = it.host.topics(DEFAULT_TENANT).expect("declared");
        let broker = it.host.broker(DEFAULT_TENANT).expect("declared");
        Self { it, types, topics, broker }
    }

    /// Registers a type of a category, whose data may be anything.
    pub async fn register(&self, name: &str, category: &str) {
        let definition = TypeDefinition::new(name, json!({"type": "object"})).category(category);
        self.types.put(definition).await.expect("registered");
        self.topics.create_missing().await.expect("created");
    }
}
