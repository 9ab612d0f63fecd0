//! Prepare keys.

use utoipa::ToSchema;

/// The new state of a prepare key.
#[derive(ToSchema)]
pub(crate) struct KeyChange {
    value: serde_json::Value,
    #[schema(format = DateTime)]
    ttl_at: Option<String>,
    #[schema(nullable = false)]
    expected: Option<KeyState>,
    /// The value that the key, or the old key, must have.
    old_value: Option<serde_json::Value>,
    /// The key whose value moves to this one.
    #[schema(nullable = false)]
    old_key: Option<String>,
}

#[derive(ToSchema)]
#[serde(rename_all = "lowercase")]
enum KeyState {
    Free,
    Held,
}

/// The value that a key must have to be rolled back; any when absent.
#[derive(ToSchema)]
pub(crate) struct KeyRollback {
    value: Option<serde_json::Value>,
}

/// A prepare key that is held.
#[derive(ToSchema)]
pub(crate) struct FoundKey {
    name: String,
    key: String,
    value: serde_json::Value,
    #[schema(format = DateTime, nullable = false)]
    ttl_at: Option<String>,
    expired: bool,
}

/// Whether the key was changed.
#[derive(ToSchema)]
pub(crate) struct KeyChanged {
    changed: bool,
}
