//! The cases, by subject.

pub mod committing;
pub mod consuming;
pub mod processes;
pub mod registering;

use std::sync::Arc;

use annals_core::types::{EventTypes, TypeDefinition};
use annals_core::{CommitError, CommitOutcome, DEFAULT_SCOPE, DEFAULT_TENANT, Data, NewCommit, NewEvent, Store};
use annals_runtime::types::TypedStore;
use serde_json::{Value, json};

use crate::{ManualClock, Subject};

/// A store whose commits are checked, and the registry of the default tenant.
pub(crate) struct Typed {
    pub store: Arc<dyn Store>,
    pub types: Arc<dyn EventTypes>,
}

/// Returns the schema of most cases: a total from 0, and optionally a note.
pub(crate) fn order() -> Value {
    json!({
        "type": "object",
        "required": ["total"],
        "properties": {"total": {"type": "number", "minimum": 0}, "note": {"type": "string"}},
    })
}

impl Typed {
    pub async fn of(subject: &dyn Subject) -> Self {
        Self::on(subject.open().await, subject.clock())
    }

    pub fn on(store: Arc<dyn Store>, clock: Arc<ManualClock>) -> Self {
        let store: Arc<dyn Store> = Arc::new(TypedStore::new(store, clock));
        let types = store.event_types(DEFAULT_TENANT).expect("declared");
        Self { store, types }
    }

    /// Registers a first generation with the schema of orders.
    pub async fn register(&self, name: &str) {
        self.types.put(TypeDefinition::new(name, order())).await.expect("registered");
    }

    pub async fn commit(&self, event_type: &str, data: Value) -> Result<CommitOutcome, CommitError> {
        self.commit_generation(event_type, 1, data).await
    }

    pub async fn commit_generation(
        &self,
        event_type: &str,
        generation: u32,
        data: Value,
    ) -> Result<CommitOutcome, CommitError> {
        let log = self.store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("always there");
        let event = NewEvent { generation, ..NewEvent::new(event_type, Data::from_value(&data).expect("a document")) };
        log.commit(NewCommit::new("order", "o-1").event(event)).await
    }
}
