//! A compiled schema.

use annals_core::Data;
use annals_core::types::SchemaWork;
use jsonschema::error::ValidationErrorKind;
use serde_json::Value;

/// A compiled schema of event data. It never reads files or uses the network.
pub(super) struct Validator {
    compiled: jsonschema::Validator,
    schema: Value,
    work: SchemaWork,
}

impl Validator {
    /// Compiles a schema.
    pub fn of(schema: &Value) -> Result<Self, String> {
        let work = SchemaWork::of(schema)?;
        let compiled =
            jsonschema::validator_for(schema).map_err(|error| format!("is not a valid JSON Schema: {error}"))?;
        Ok(Self { compiled, schema: schema.clone(), work })
    }

    /// Returns the path of the first value that does not match, for example `data.items[2].price`, and what is wrong with it.
    pub fn check(&self, data: &Data) -> Option<(String, String)> {
        let value = serde_json::to_value(data).unwrap_or(Value::Null);
        if !self.work.allows(&self.schema, &value) {
            let why =
                "is nested too deeply for a schema with recursive alternatives; nest it less, or change the schema";
            return Some(("data".to_owned(), why.to_owned()));
        }
        let error = self.compiled.validate(&value).err()?;
        let mut path = path_of(error.instance_path().as_str());
        // If a field is missing or not allowed, the refusal names that field.
        let field = match error.kind() {
            ValidationErrorKind::Required { property } => property.as_str(),
            ValidationErrorKind::AdditionalProperties { unexpected } => unexpected.first().map(String::as_str),
            _ => None,
        };
        if let Some(field) = field {
            path.push('.');
            path.push_str(field);
        }
        Some((path, error.to_string()))
    }
}

/// Converts a JSON pointer to a path: `/items/2/price` becomes `data.items[2].price`.
fn path_of(pointer: &str) -> String {
    let mut path = "data".to_owned();
    for name in pointer.split('/').skip(1) {
        let name = name.replace("~1", "/").replace("~0", "~");
        match name.parse::<usize>() {
            Ok(at) => path.push_str(&format!("[{at}]")),
            Err(_) => path.push_str(&format!(".{name}")),
        }
    }
    path
}
