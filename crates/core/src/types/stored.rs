//! The stored form of event types.

use bson::DateTime;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{GenerationStatus, SchemaPolicy, TypeDefinition, TypeStatus, UnknownTypes, UpcastStep};
use crate::{Code, Invalid, RecordType, Timestamp, Uuid};

/// The collection of event types.
pub const EVENT_TYPES: &str = "annals-types";
/// The collection of settings that apply to all types.
pub const TYPE_SETTINGS: &str = "annals-type-settings";

/// A type with its generations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TypeRecord {
    /// Its name.
    #[serde(rename = "_id")]
    pub name: String,
    /// Its UUID.
    pub uuid: String,
    /// Its category.
    pub category: String,
    /// What happens to events that do not match.
    pub policy: SchemaPolicy,
    /// Its generations, in ascending order; at least one.
    pub generations: Vec<GenerationRecord>,
}

/// A generation of a type.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GenerationRecord {
    /// Its number.
    pub generation: i64,
    /// Its schema, as JSON.
    pub schema: String,
    /// When it was registered.
    pub registered: DateTime,
    /// The steps that convert data of the previous generation to this one, as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upcaster: Option<String>,
}

/// The settings that apply to all types of a tenant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TypeSettingsRecord {
    /// Always `types`.
    #[serde(rename = "_id")]
    pub id: String,
    /// What happens to events whose type is not registered.
    pub unknown: UnknownTypes,
}

impl RecordType for TypeRecord {
    const COLLECTION: &'static str = EVENT_TYPES;
    // Other processes that share the store follow registrations.
    const FEED: bool = true;
}

impl RecordType for TypeSettingsRecord {
    const COLLECTION: &'static str = TYPE_SETTINGS;
    const FEED: bool = true;
}

impl TypeSettingsRecord {
    /// The id of the only record.
    pub const ID: &'static str = "types";
}

impl TypeRecord {
    /// Creates the record of a newly registered type.
    pub fn new(definition: &TypeDefinition, at: Timestamp) -> Self {
        Self {
            name: definition.name.to_string(),
            uuid: definition.uuid().to_string(),
            category: definition.category.to_string(),
            policy: definition.policy,
            generations: vec![GenerationRecord::of(definition, at)],
        }
    }

    /// Returns the type as the API shows it.
    ///
    /// # Errors
    /// `invalid_type` if other software changed it into something that is not a type.
    pub fn read(&self) -> Result<TypeStatus, Invalid> {
        let wrong = |message: String| {
            Invalid::new(
                Code::InvalidType,
                format!("{EVENT_TYPES}/{}", self.name),
                format!("is not a valid type: {message}"),
            )
        };
        let generation = |it: &GenerationRecord| {
            Ok(GenerationStatus {
                generation: u32::try_from(it.generation).map_err(|error| wrong(error.to_string()))?,
                schema: serde_json::from_str(&it.schema).map_err(|error| wrong(error.to_string()))?,
                registered: Timestamp::from_millis(it.registered.timestamp_millis()),
                upcaster: it.upcaster(),
            })
        };
        let generations: Vec<_> = self.generations.iter().map(generation).collect::<Result<_, Invalid>>()?;
        let newest = generations.last().ok_or_else(|| wrong("it has no generation".to_owned()))?;
        Ok(TypeStatus {
            name: self.name.as_str().into(),
            id: Uuid::try_parse(&self.uuid).map_err(|error| wrong(error.to_string()))?,
            generation: newest.generation,
            category: self.category.as_str().into(),
            policy: self.policy,
            schema: newest.schema.clone(),
            generations,
        })
    }
}

impl GenerationRecord {
    /// Creates the record of a generation.
    pub fn of(definition: &TypeDefinition, at: Timestamp) -> Self {
        Self {
            generation: definition.generation.into(),
            schema: definition.schema.to_string(),
            registered: DateTime::from_millis(at.as_millis()),
            upcaster: Self::written(&definition.upcaster),
        }
    }

    /// Returns the stored form of an upcaster.
    pub fn written(steps: &[UpcastStep]) -> Option<String> {
        // Strings and JSON values always serialise to JSON.
        (!steps.is_empty()).then(|| serde_json::to_string(steps).unwrap_or_default())
    }

    /// Returns its upcaster; empty if it has none, or if other software stored an invalid one.
    pub fn upcaster(&self) -> Vec<UpcastStep> {
        self.upcaster.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }

    /// Returns its schema; `null` if other software stored an invalid one.
    pub fn schema(&self) -> Value {
        serde_json::from_str(&self.schema).unwrap_or_default()
    }
}
