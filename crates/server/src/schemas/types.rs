//! The shapes of event types.

use utoipa::ToSchema;

/// A generation of an event type.
#[derive(ToSchema)]
pub(crate) struct EventTypeDefinition {
    /// The generation of the data that the schema describes; 1 when absent.
    generation: Option<u32>,
    /// The category, which determines the partitions and retention of its topic; `default` when absent.
    category: Option<String>,
    /// What happens to events that do not match: `enforce`, the default, `warn` or `off`.
    policy: Option<String>,
    /// The compatibility check of the schema: `backward`, the default, or `none`.
    compatibility: Option<String>,
    /// The upcaster from the previous generation to this one, for consumers of topics; with it the schema is not checked for compatibility.
    upcaster: Option<Vec<UpcastStep>>,
    /// A JSON Schema of the data, which refers to nothing outside of itself.
    schema: serde_json::Value,
    /// The UUID of the type, where a layout requires one; it follows from the name when absent.
    id: Option<String>,
}

/// A step of an upcaster: one of its fields.
#[derive(ToSchema)]
struct UpcastStep {
    /// Moves a value to another path.
    rename: Option<UpcastRename>,
    /// Sets the value at a path.
    set: Option<UpcastSet>,
    /// Removes the value at this path.
    remove: Option<String>,
}

#[derive(ToSchema)]
struct UpcastRename {
    from: String,
    to: String,
}

#[derive(ToSchema)]
struct UpcastSet {
    path: String,
    value: serde_json::Value,
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
    upcaster: Option<Vec<UpcastStep>>,
}

/// A page of event types.
#[derive(ToSchema)]
pub(crate) struct EventTypePage {
    items: Vec<EventTypeStatus>,
    cursor: Option<String>,
    /// What happens to events whose type is not registered: `accept`, `refuse` or `quarantine`.
    unknown: String,
}

/// The settings for all types.
#[derive(ToSchema)]
pub(crate) struct EventTypeSettings {
    /// What happens to events whose type is not registered: `accept`, `refuse` or `quarantine`.
    unknown: String,
}
