//! Typed stores: commits are checked against the registry of event types, on the caller's task, before they are queued.
//!
//! ```text
//!  commit ─▶ typed log ─▶ known types of the tenant ─┬─ no types ─────────────▶ the store's log
//!                                                    ├─ data matches ─────────▶
//!                                                    └─ refused with the path of the value
//! ```

mod log;
mod registry;
mod store;
mod validator;

use annals_core::types::TypeDefinition;
use schemars::JsonSchema;

pub use store::TypedStore;

/// Returns the first generation of a type with data of type `T`, in the default category. The schema is derived from the Rust type.
///
/// ```
/// use annals_runtime::types::type_of;
/// use schemars::JsonSchema;
///
/// /// An order was placed.
/// #[derive(JsonSchema)]
/// struct OrderPlaced {
///     total: f64,
///     note: Option<String>,
/// }
///
/// let definition = type_of::<OrderPlaced>("order_placed").category("order");
/// assert_eq!(definition.schema["required"], serde_json::json!(["total"]));
/// ```
pub fn type_of<T: JsonSchema>(name: &str) -> TypeDefinition {
    TypeDefinition::new(name, schemars::schema_for!(T).to_value())
}
