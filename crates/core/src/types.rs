//! The registry of event types: their names, their schemas, and what happens to events that do not match.

mod compatibility;
mod definition;
mod error;
mod extent;
mod stored;
mod upcast;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{ByteString, RecordedEvent, Timestamp, Uuid};

pub use compatibility::{Break, first_break};
pub use definition::{Compatibility, SchemaPolicy, TypeDefinition};
pub use error::TypeError;
pub use extent::SchemaWork;
pub use stored::{EVENT_TYPES, GenerationRecord, TYPE_SETTINGS, TypeRecord, TypeSettingsRecord};
pub use upcast::UpcastStep;

pub(crate) use error::NoTypes;

/// The registry of event types of one tenant.
///
/// - **Checked at commit.** Events of a registered type are checked against the schema of their generation before the commit is queued,
///   according to the type's policy. With the policy `enforce`, an event that does not match is refused with `schema_violation` and the
///   path of the value, and nothing of its commit or transaction is stored.
/// - **A generation never changes.** A different schema is a new generation. It must accept every event that the previous generation
///   accepts, unless the definition opts out of compatibility.
/// - **Cheap.** For a tenant without registered types, the registry only costs a check whether there are any.
/// - **Current.** An acknowledged registration applies to every later commit through this store. Other processes that share the store
///   follow within a second.
#[async_trait]
pub trait EventTypes: Send + Sync + 'static {
    /// Registers a type or a new generation of it, or changes its category and policy.
    ///
    /// # Errors
    /// [`TypeError::Incompatible`] names what breaks; otherwise see [`TypeError`].
    async fn put(&self, definition: TypeDefinition) -> Result<PutType, TypeError>;

    /// Lists types by name: those after `after`, at most `limit`.
    ///
    /// # Errors
    /// See [`TypeError`].
    async fn list(&self, after: Option<&str>, limit: usize) -> Result<TypePage, TypeError>;

    /// Returns a type with all its generations.
    ///
    /// # Errors
    /// See [`TypeError`].
    async fn get(&self, name: &str) -> Result<TypeStatus, TypeError>;

    /// Returns the policy for events whose type is not registered.
    ///
    /// # Errors
    /// See [`TypeError`].
    async fn unknown(&self) -> Result<UnknownTypes, TypeError>;

    /// Sets the policy for events whose type is not registered.
    ///
    /// # Errors
    /// See [`TypeError`].
    async fn set_unknown(&self, unknown: UnknownTypes) -> Result<(), TypeError>;

    /// Returns an event in the form in which consumers of topics receive it: upcast to the newest generation of its type, and checked
    /// against the schema. Returns `None` if the event is delivered as it was recorded.
    ///
    /// # Errors
    /// `schema_violation` or `type_not_registered` for an event that no consumer may receive; otherwise see [`TypeError`].
    async fn consume(&self, _: &RecordedEvent) -> Result<Option<RecordedEvent>, TypeError> {
        Ok(None)
    }
}

/// The outcome of a registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutType {
    /// The type was not registered before.
    Created,
    /// Its generations, category or policy have changed.
    Changed,
    /// The same registration already exists.
    Unchanged,
}

/// The policy for events whose type is not registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnknownTypes {
    /// They are committed.
    #[default]
    Accept,
    /// They are refused with `type_not_registered`.
    Refuse,
    /// They are committed but withheld from consumers of topics: they become dead letters, which stay until an operator retries them.
    Quarantine,
}

/// A registered event type.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TypeStatus {
    /// Its name.
    pub name: ByteString,
    /// Its UUID, for layouts that require one.
    pub id: Uuid,
    /// Its newest generation.
    pub generation: u32,
    /// The category that determines the settings of its topic and the policy of its dead letters.
    pub category: ByteString,
    /// The policy for events that do not match.
    pub policy: SchemaPolicy,
    /// The schema of the newest generation.
    pub schema: serde_json::Value,
    /// Every generation, in ascending order.
    pub generations: Vec<GenerationStatus>,
}

/// A generation of a type.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GenerationStatus {
    /// Its number.
    pub generation: u32,
    /// Its schema.
    pub schema: serde_json::Value,
    /// When it was registered.
    pub registered: Timestamp,
    /// The steps that convert data of the previous generation to this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub upcaster: Vec<UpcastStep>,
}

/// A page of types.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TypePage {
    /// The types, by name.
    pub items: Vec<TypeStatus>,
    /// Where the next page begins; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<ByteString>,
}

/// The body of `PUT /v1/types`: the policy for events whose type is not registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TypeSettings {
    /// The policy.
    pub unknown: UnknownTypes,
}
