//! The shapes of event types.

use utoipa::ToSchema;

/// A generation of an event type.
#[derive(ToSchema)]
pub(crate) struct EventTypeDefinition {
    /// Which generation of the data the schema describes; 1 when absent.
    generation: Option<u32>,
    /// What gives its topic its numbers; `default` when absent.
    category: Option<String>,
    /// What happens to events that do not match: `enforce`, the default, `warn` or `off`.
    policy: Option<String>,
    /// What the schema is compared with: `backward`, the default, or `none`.
    compatibility: Option<String>,
    /// A JSON Schema of the data, which refers to nothing outside of itself.
    schema: serde_json::Value,
    /// The UUID of the type, where a layout requires one; it follows from the name when absent.
    id: Option<String>,
}

/// An event type as it is registered.
#[derive(ToSchema)]
pub(crate) struct EventTypeStatus {
    name: String,
    id: String,
    /// Its newest generation.
    generation: u32,
    category: String,
    policy: String,
    /// The schema of the newest generation.
    schema: serde_json::Value,
    /// Every generation, in ascending order.
    generations: Vec<EventTypeGeneration>,
}

/// A generation as it is registered.
#[derive(ToSchema)]
struct EventTypeGeneration {
    generation: u32,
    schema: serde_json::Value,
    registered: String,
}

/// A page of event types.
#[derive(ToSchema)]
pub(crate) struct EventTypePage {
    items: Vec<EventTypeStatus>,
    cursor: Option<String>,
    /// What happens to events whose type is not registered: `accept` or `refuse`.
    unknown: String,
}

/// What holds for all types.
#[derive(ToSchema)]
pub(crate) struct EventTypeSettings {
    /// What happens to events whose type is not registered: `accept` or `refuse`.
    unknown: String,
}
