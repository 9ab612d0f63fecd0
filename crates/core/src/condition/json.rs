//! JSON form of conditions: `{"field", "operator", "value", "children", "options"}`, the spelling of Wow's queries.

use bson::Bson;
use serde::de::Error as _;
use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Condition;
use super::operator::Operator;

/// The serialized form of a condition. Empty fields are left out.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with the fields of a condition")]
pub(super) struct Written {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) field: String,
    #[serde(default, deserialize_with = "named")]
    pub(super) operator: Option<Operator>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    pub(super) value: Option<Operand>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) children: Vec<Condition>,
    #[serde(default, skip_serializing_if = "WrittenOptions::is_empty")]
    pub(super) options: WrittenOptions,
}

/// The serialized form of a condition's options.
#[derive(Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", expecting = "an object with the options of a condition")]
pub(super) struct WrittenOptions {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) ignore_case: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) zone_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) date_pattern: Option<String>,
}

impl WrittenOptions {
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A value, as Extended JSON. The order of a document's fields is kept, because comparisons depend on it.
pub(super) struct Operand(pub(super) Bson);

/// Reads an operator that is present, which must be a name and not null.
fn named<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Operator>, D::Error> {
    Operator::deserialize(deserializer).map(Some)
}

/// Reads a value that is present, which may be null.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Operand>, D::Error> {
    Bson::deserialize(deserializer).map(|value| Some(Operand(value)))
}

impl Serialize for Operand {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize_value(&self.0, serializer)
    }
}

/// A value inside another.
struct Inner<'a>(&'a Bson);

impl Serialize for Inner<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize_value(self.0, serializer)
    }
}

fn serialize_value<S: Serializer>(value: &Bson, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        Bson::Document(document) => {
            let mut map = serializer.serialize_map(Some(document.len()))?;
            document.iter().try_for_each(|(name, value)| map.serialize_entry(name, &Inner(value)))?;
            map.end()
        }
        Bson::Array(values) => {
            let mut list = serializer.serialize_seq(Some(values.len()))?;
            values.iter().try_for_each(|value| list.serialize_element(&Inner(value)))?;
            list.end()
        }
        other => other.clone().into_relaxed_extjson().serialize(serializer),
    }
}

impl Serialize for Condition {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Written::of(self).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Condition {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Written::deserialize(deserializer)?.read().map_err(D::Error::custom)
    }
}
