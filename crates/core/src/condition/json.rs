//! Conditions as JSON: `{"field", "operator", "value", "children", "options"}`, the spelling of Wow's queries.

use bson::Bson;
use serde::de::Error as _;
use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::{Condition, Test};

/// The operators, as they are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(super) enum Operator {
    #[default]
    All,
    And,
    Or,
    Nor,
    Eq,
    Ne,
    Gt,
    Gte,
    Lt,
    Lte,
    In,
    NotIn,
    Between,
    Exists,
}

/// A condition as it is written. What is empty is left out.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with the fields of a condition")]
pub(super) struct Written {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) field: String,
    #[serde(default)]
    pub(super) operator: Operator,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    pub(super) value: Option<Operand>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) children: Vec<Condition>,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    options: Map<String, Value>,
}

/// A value, as Extended JSON. The order of a document's fields is kept: it matters to comparison.
pub(super) struct Operand(pub(super) Bson);

/// A value that is given is there, also when it is null.
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

impl Written {
    pub(super) fn of(condition: &Condition) -> Self {
        let (operator, children) = match condition {
            Condition::All => (Operator::All, &[][..]),
            Condition::And(children) => (Operator::And, &children[..]),
            Condition::Or(children) => (Operator::Or, &children[..]),
            Condition::Nor(children) => (Operator::Nor, &children[..]),
            Condition::Field { path, test } => {
                let (operator, value) = written_test(test);
                let (field, value) = (path.clone(), Some(value));
                return Self { field, operator, value, children: Vec::new(), options: Map::new() };
            }
        };
        let children = children.to_vec();
        Self { field: String::new(), operator, value: None, children, options: Map::new() }
    }

    pub(super) fn read(self) -> Result<Condition, String> {
        let operator = self.operator;
        if !self.options.is_empty() {
            return Err(format!("operator {operator} takes no options"));
        }
        let children = self.children;
        match operator {
            Operator::All if children.is_empty() => return Ok(Condition::All),
            Operator::And | Operator::Or | Operator::Nor if children.is_empty() => {
                return Err(format!("operator {operator} needs children"));
            }
            Operator::And => return Ok(Condition::And(children)),
            Operator::Or => return Ok(Condition::Or(children)),
            Operator::Nor => return Ok(Condition::Nor(children)),
            _ if !children.is_empty() => return Err(format!("operator {operator} takes no children")),
            _ => {}
        }
        let value = match self.value {
            Some(Operand(value)) => value,
            None if operator == Operator::Exists => Bson::Boolean(true),
            None => return Err(format!("operator {operator} needs a value")),
        };
        Ok(Condition::Field { path: self.field, test: read_test(operator, value)? })
    }
}

fn written_test(test: &Test) -> (Operator, Operand) {
    let value = |value: &Bson| Operand(value.clone());
    let list = |values: &[Bson]| Operand(Bson::Array(values.to_vec()));
    match test {
        Test::Eq(operand) => (Operator::Eq, value(operand)),
        Test::Ne(operand) => (Operator::Ne, value(operand)),
        Test::Gt(operand) => (Operator::Gt, value(operand)),
        Test::Gte(operand) => (Operator::Gte, value(operand)),
        Test::Lt(operand) => (Operator::Lt, value(operand)),
        Test::Lte(operand) => (Operator::Lte, value(operand)),
        Test::In(operands) => (Operator::In, list(operands)),
        Test::NotIn(operands) => (Operator::NotIn, list(operands)),
        Test::Between(low, high) => (Operator::Between, list(&[low.clone(), high.clone()])),
        Test::Exists(there) => (Operator::Exists, Operand(Bson::Boolean(*there))),
    }
}

fn read_test(operator: Operator, value: Bson) -> Result<Test, String> {
    let list = |value: Bson| match value {
        Bson::Array(values) => Ok(values),
        other => Err(format!("operator {operator} needs a list of values, not {other}")),
    };
    Ok(match operator {
        Operator::Eq => Test::Eq(value),
        Operator::Ne => Test::Ne(value),
        Operator::Gt => Test::Gt(value),
        Operator::Gte => Test::Gte(value),
        Operator::Lt => Test::Lt(value),
        Operator::Lte => Test::Lte(value),
        Operator::In => Test::In(list(value)?),
        Operator::NotIn => Test::NotIn(list(value)?),
        Operator::Between => match <[Bson; 2]>::try_from(list(value)?) {
            Ok([low, high]) => Test::Between(low, high),
            Err(_) => return Err("operator BETWEEN needs a list of two values".to_owned()),
        },
        Operator::Exists => match value {
            Bson::Boolean(there) => Test::Exists(there),
            other => return Err(format!("operator EXISTS needs true or false, not {other}")),
        },
        Operator::All | Operator::And | Operator::Or | Operator::Nor => {
            return Err(format!("operator {operator} takes no value"));
        }
    })
}

impl std::fmt::Display for Operator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        Serialize::serialize(self, f)
    }
}
