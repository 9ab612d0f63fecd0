//! Extended JSON: represents the types that JSON lacks as objects with a key that begins with `$`.

use bson::{Bson, Document};
use serde::{Serialize, Serializer};

/// The keys that make an object a typed value.
const KEYS: &[&str] = &[
    "$binary",
    "$code",
    "$date",
    "$dbPointer",
    "$maxKey",
    "$minKey",
    "$numberDecimal",
    "$numberDouble",
    "$numberInt",
    "$numberLong",
    "$oid",
    "$regularExpression",
    "$symbol",
    "$timestamp",
    "$undefined",
    "$uuid",
];

/// Writes a value as Extended JSON that [`extended_value`] parses back to the same value: relaxed, except for int32, whose type JSON would
/// lose.
#[derive(Debug, Clone, Copy)]
pub struct ExactJson<'a>(pub &'a Bson);

impl Serialize for ExactJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Bson::Document(document) => {
                serializer.collect_map(document.iter().map(|(key, value)| (key, ExactJson(value))))
            }
            Bson::Array(values) => serializer.collect_seq(values.iter().map(ExactJson)),
            Bson::Int32(_) => self.0.clone().into_canonical_extjson().serialize(serializer),
            other => other.clone().into_relaxed_extjson().serialize(serializer),
        }
    }
}

/// Parses a value from Extended JSON, canonical or relaxed. An integer without a type is int64.
///
/// # Errors
/// A sentence that says what is wrong.
pub fn extended_value(text: &str) -> Result<Bson, String> {
    // Wrapped in an object, because the JSON parser reads objects; its rules then apply to the value.
    let text = format!("{{\"value\":{text}}}");
    let object: crate::data::Object = crate::wire::parse_json(text.as_bytes()).map_err(|error| error.message)?;
    let mut document = Document::try_from(&*object.0).map_err(|error| error.to_string())?;
    match document.remove("value") {
        Some(value) if document.is_empty() => extended(value),
        _ => Err("is not one value".to_owned()),
    }
}

/// Returns the BSON value that a JSON value represents in Extended JSON.
pub(crate) fn extended(value: Bson) -> Result<Bson, String> {
    match value {
        Bson::Document(document) if document.keys().any(|key| KEYS.contains(&key.as_str())) => {
            let json = Bson::Document(document).into_relaxed_extjson();
            let shown = json.to_string();
            Bson::try_from(json).map_err(|error| format!("{} is not a value of Extended JSON: {error}", cut(&shown)))
        }
        Bson::Document(document) => {
            let fields = document.into_iter().map(|(key, value)| Ok::<_, String>((key, extended(value)?)));
            Ok(Bson::Document(fields.collect::<Result<_, _>>()?))
        }
        Bson::Array(values) => Ok(Bson::Array(values.into_iter().map(extended).collect::<Result<_, _>>()?)),
        other => Ok(other),
    }
}

fn cut(text: &str) -> String {
    text.chars().take(100).collect()
}
