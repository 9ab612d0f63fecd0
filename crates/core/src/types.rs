//! The registry of event types: what each type is called, how its data looks, and what happens to events that look otherwise.

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
///   as the policy of their type says. One that does not match is refused with `schema_violation` and the path of the value; nothing of its
///   commit or transaction is stored then.
/// - **A generation never changes.** A schema that differs is another generation, and it must accept every event that the generation before
///   it accepts, unless the definition says that compatibility does not matter.
/// - **Cheap.** A tenant without registered types pays nothing for the registry but looking whether there are some.
/// - **Current.** A registration that was answered holds for every later commit through this store. Other processes that share the store
///   follow within a second.
#[async_trait]
pub trait EventTypes: Send + Sync + 'static {
    /// Registers a type or a generation of it, or changes its category and policy.
    ///
    /// # Errors
    /// [`TypeError::Incompatible`] names what breaks; else see [`TypeError`].
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

    /// Returns what happens to events whose type is not registered.
    ///
    /// # Errors
    /// See [`TypeError`].
    async fn unknown(&self) -> Result<UnknownTypes, TypeError>;

    /// Decides what happens to events whose type is not registered.
    ///
    /// # Errors
    /// See [`TypeError`].
    async fn set_unknown(&self, unknown: UnknownTypes) -> Result<(), TypeError>;

    /// Returns an event as consumers of topics get it: brought to the newest generation by the upcasters of its type, and checked against
    /// the schema. None is an event that is delivered as it was recorded.
    ///
    /// # Errors
    /// `schema_violation` or `type_not_registered` for an event that no consumer is to get; else see [`TypeError`].
    async fn consume(&self, _: &RecordedEvent) -> Result<Option<RecordedEvent>, TypeError> {
        Ok(None)
    }
}

/// What a registration did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutType {
    /// The type was not registered before.
    Created,
    /// It has another generation, category or policy now.
    Changed,
    /// It was registered like this already.
    Unchanged,
}

/// What happens to events whose type is not registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnknownTypes {
    /// They are committed.
    #[default]
    Accept,
    /// They are refused with `type_not_registered`.
    Refuse,
    /// They are committed, and no consumer of topics gets them: they become dead letters, which wait until a person retries them.
    Quarantine,
}

/// An event type as it is registered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TypeStatus {
    /// Its name.
    pub name: ByteString,
    /// Its UUID, where a layout requires one.
    pub id: Uuid,
    /// Its newest generation.
    pub generation: u32,
    /// What gives its topic its numbers, and its dead letters their policy.
    pub category: ByteString,
    /// What happens to events that do not match.
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
    /// What turns data of the generation before into data of this one.
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

/// The body of `PUT /v1/types`: what happens to events whose type is not registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TypeSettings {
    /// What happens to them.
    pub unknown: UnknownTypes,
}
