//! The definition with which a type is registered.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{SchemaWork, UpcastStep};
use crate::names::uuid_of;
use crate::{ByteString, Code, DEFAULT_CATEGORY, Invalid, Uuid, valid_name};

/// The maximum size of a schema, in bytes of JSON.
const SCHEMA_BYTES_MAX: usize = 256 * 1024;

/// A generation of an event type: the body of `PUT /v1/types/{name}`, with the name.
///
/// ```json
/// {"generation": 1, "category": "execution", "policy": "enforce",
///  "schema": {"type": "object", "required": ["total"], "properties": {"total": {"type": "number"}}}}
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct TypeDefinition {
    /// Its name, which is the type of its events.
    pub name: ByteString,
    /// The generation of the data that the schema describes, from 1.
    pub generation: u32,
    /// The category that determines the settings of its topic; `default` unless set.
    pub category: ByteString,
    /// The policy for events that do not match.
    pub policy: SchemaPolicy,
    /// What the schema must be compatible with.
    pub compatibility: Compatibility,
    /// The steps that convert data of the previous generation to this one, for consumers. With an upcaster, the schema is not compared.
    pub upcaster: Vec<UpcastStep>,
    /// A JSON Schema of the data, draft 2020-12 unless it names another. It must not refer to other documents.
    pub schema: Value,
    /// The UUID of the type, for layouts that require one; derived from the name unless set.
    pub id: Option<Uuid>,
}

/// The policy for events that do not match the schema of their type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SchemaPolicy {
    /// They are refused.
    #[default]
    Enforce,
    /// They are committed, counted, and reported in the server's log.
    Warn,
    /// They are not checked.
    Off,
}

/// The events that a new generation must accept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Compatibility {
    /// Every event that the previous generation accepts, so that a reader of the new generation can read both.
    #[default]
    Backward,
    /// Anything; readers use an upcaster.
    None,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    #[serde(default = "one")]
    generation: u32,
    #[serde(default = "default_category")]
    category: ByteString,
    #[serde(default)]
    policy: SchemaPolicy,
    #[serde(default)]
    compatibility: Compatibility,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    upcaster: Vec<UpcastStep>,
    schema: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    id: Option<Uuid>,
}

/// A body that names its type, as in an import file.
#[derive(Deserialize)]
struct Named {
    name: ByteString,
    #[serde(flatten)]
    rest: serde_json::Map<String, Value>,
}

fn one() -> u32 {
    1
}

fn default_category() -> ByteString {
    ByteString::from_static(DEFAULT_CATEGORY)
}

impl TypeDefinition {
    /// Creates the first generation of a type with this schema, in the default category.
    pub fn new(name: impl Into<ByteString>, schema: Value) -> Self {
        Self {
            name: name.into(),
            generation: 1,
            category: default_category(),
            policy: SchemaPolicy::Enforce,
            compatibility: Compatibility::Backward,
            upcaster: Vec::new(),
            schema,
            id: None,
        }
    }

    /// Sets the category.
    #[must_use]
    pub fn category(self, category: impl Into<ByteString>) -> Self {
        Self { category: category.into(), ..self }
    }

    /// Sets the steps that convert data of the previous generation.
    #[must_use]
    pub fn upcaster(self, steps: impl IntoIterator<Item = UpcastStep>) -> Self {
        Self { upcaster: steps.into_iter().collect(), ..self }
    }

    /// Sets the number of the generation.
    #[must_use]
    pub fn generation(self, generation: u32) -> Self {
        Self { generation, ..self }
    }

    /// Parses the definition of a type of this name from JSON.
    ///
    /// # Errors
    /// `not_json`, `invalid_body`, or as [`validate`](Self::validate).
    pub fn read(name: &str, json: &[u8]) -> Result<Self, Invalid> {
        let Body { generation, category, policy, compatibility, upcaster, schema, id } = crate::wire::parse_json(json)?;
        let name = name.into();
        let definition = Self { name, generation, category, policy, compatibility, upcaster, schema, id };
        definition.validate()?;
        Ok(definition)
    }

    /// Parses the definitions in a file: an object with `name` beside the fields of a body, or an array of such objects.
    ///
    /// # Errors
    /// As [`read`](Self::read), with the index in the array.
    pub fn read_all(json: &[u8]) -> Result<Vec<Self>, Invalid> {
        let items = match crate::wire::parse_json::<Value>(json)? {
            Value::Array(items) => items,
            one => vec![one],
        };
        let read = |(at, item): (usize, Value)| {
            let inside = |invalid: Invalid| invalid.inside(&format!("[{at}]"));
            let wrong = |error: serde_json::Error| inside(Invalid::new(Code::InvalidBody, "name", error.to_string()));
            let Named { name, rest } = serde_json::from_value(item).map_err(wrong)?;
            let body = serde_json::to_vec(&rest).map_err(wrong)?;
            Self::read(&name, &body).map_err(inside)
        };
        items.into_iter().enumerate().map(read).collect()
    }

    /// Writes the definition as JSON, without its name.
    pub fn write(&self) -> String {
        let body = Body {
            generation: self.generation,
            category: self.category.clone(),
            policy: self.policy,
            compatibility: self.compatibility,
            upcaster: self.upcaster.clone(),
            schema: self.schema.clone(),
            id: self.id,
        };
        // Strings and numbers always serialise to JSON.
        serde_json::to_string(&body).unwrap_or_default()
    }

    /// Returns the UUID of the type.
    pub fn uuid(&self) -> Uuid {
        self.id.unwrap_or_else(|| uuid_of("event", &self.name))
    }

    /// Checks names and limits, that the schema does not refer to other documents, and that checking events against it takes bounded work.
    /// Whether it is a valid JSON Schema is checked by the registry.
    ///
    /// # Errors
    /// `invalid_name` or `invalid_type`, with the path.
    pub fn validate(&self) -> Result<(), Invalid> {
        let invalid = |path: &str, message: String| Err(Invalid::new(Code::InvalidType, path, message));
        valid_name("name", &self.name)?;
        valid_name("category", &self.category)?;
        if self.generation == 0 {
            return invalid("generation", "is 0; generations count from 1".to_owned());
        }
        if !matches!(self.schema, Value::Object(_) | Value::Bool(_)) {
            return invalid("schema", "is neither an object nor true or false".to_owned());
        }
        let bytes = self.schema.to_string().len();
        if bytes > SCHEMA_BYTES_MAX {
            return invalid("schema", format!("is {bytes} bytes long; at most {SCHEMA_BYTES_MAX} are allowed"));
        }
        UpcastStep::validate_all(&self.upcaster)?;
        if self.generation == 1 && !self.upcaster.is_empty() {
            return invalid("upcaster", "is of the first generation; there is none before it".to_owned());
        }
        if let Some((path, target)) = outside(&self.schema, "schema") {
            let message = format!("{target:?} is outside the schema; schemas are never fetched, so define it in $defs");
            return invalid(&path, message);
        }
        SchemaWork::of(&self.schema).map(drop).or_else(|message| invalid("schema", message))
    }
}

/// Returns the first reference that leads out of the schema, with its path.
fn outside(schema: &Value, path: &str) -> Option<(String, String)> {
    match schema {
        Value::Object(fields) => fields.iter().find_map(|(name, value)| {
            let path = format!("{path}.{name}");
            match value.as_str() {
                Some(target) if name == "$ref" || name == "$dynamicRef" => {
                    (!target.starts_with('#')).then(|| (path, target.to_owned()))
                }
                _ => outside(value, &path),
            }
        }),
        Value::Array(items) => items.iter().enumerate().find_map(|(at, item)| outside(item, &format!("{path}[{at}]"))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_definition_is_read_as_it_is_written() {
        for body in [
            json!({"schema": {"type": "object"}}),
            json!({"schema": true, "generation": 3, "category": "pod", "policy": "warn", "compatibility": "none"}),
            json!({"schema": {}, "generation": 2, "upcaster": [{"remove": "a"}, {"rename": {"from": "b", "to": "c.d"}}]}),
            json!({"schema": {}, "id": "5b0c9f60-3f0e-4a52-9d3c-61c28f9e7a14"}),
        ] {
            let read = TypeDefinition::read("paid", body.to_string().as_bytes()).expect("valid");
            assert_eq!(TypeDefinition::read("paid", read.write().as_bytes()), Ok(read), "{body}");
        }
        let file = json!([{"name": "a", "schema": {}}, {"name": "b", "schema": {}, "generation": 2}]);
        let all = TypeDefinition::read_all(file.to_string().as_bytes()).expect("two");
        assert_eq!(all.iter().map(|it| (&*it.name, it.generation)).collect::<Vec<_>>(), [("a", 1), ("b", 2)]);
        assert_eq!(all[0].uuid(), uuid_of("event", "a"));
    }

    #[test]
    fn a_schema_that_leads_elsewhere_is_refused_with_its_path() {
        let refused = |body: Value| {
            let refused = TypeDefinition::read("paid", body.to_string().as_bytes()).expect_err("refused");
            (refused.code, refused.path)
        };
        let remote = json!({"schema": {"properties": {"a": {"$ref": "http://127.0.0.1/x.json"}}}});
        assert_eq!(refused(remote), (Code::InvalidType, "schema.properties.a.$ref".to_owned()));
        let file = json!({"schema": {"anyOf": [{"$ref": "file:///etc/passwd"}]}});
        assert_eq!(refused(file), (Code::InvalidType, "schema.anyOf[0].$ref".to_owned()));
        assert_eq!(refused(json!({"schema": 7})).1, "schema");
        assert_eq!(refused(json!({"schema": {}, "generation": 0})).1, "generation");
        assert_eq!(refused(json!({"schema": {}, "category": "a b"})), (Code::InvalidName, "category".to_owned()));
    }
}
