//! The definition of a projection.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::expression::Expression;
use super::rule::{Rule, read_key, read_on};
use crate::browse::BROWSE_VIEW;
use crate::handlers::HandlerDefinition;
use crate::wire::records::{Encoding, read_collection};
use crate::{ByteString, Code, Condition, Index, Invalid, valid_name};

/// The body of `PUT /v1/projections/{name}`, with the name.
///
/// ```json
/// {"key": "$aggregate.id",
///  "on": {"order_placed": {"set": {"customer": "$data.customer", "state": "placed"}, "increment": {"total": "$data.total"}},
///         "order_cancelled": {"delete": true}}}
/// ```
#[derive(Debug, Clone)]
pub struct ProjectionDefinition {
    /// Its name, which follows the rules of event type names.
    pub name: ByteString,
    body: Body,
    read: Arc<Read>,
}

/// The parsed content of the body.
#[derive(Debug, Default)]
struct Read {
    key: Option<Expression>,
    on: Vec<(String, Vec<Rule>)>,
    indexes: Vec<Index>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    types: Option<Vec<ByteString>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    condition: Option<Condition>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    on: Option<Map<String, Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    indexes: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reducer: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retention_days: Option<u32>,
    #[serde(default = "one")]
    version: u32,
}

fn one() -> u32 {
    1
}

/// The longest name, in bytes. The name is part of the names of collections.
const NAME_BYTES_MAX: usize = 64;
/// The most event types.
const TYPES_MAX: usize = 1_000;
/// The reducer of a definition whose reducer is a function of a program.
const PROGRAM: &str = "program";
/// The reducer that creates the documents of the browse view.
const BROWSE: &str = "browse";
/// The event type that stands for all types without rules of their own.
const ANY: &str = "*";

impl PartialEq for ProjectionDefinition {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.write() == other.write()
    }
}

impl ProjectionDefinition {
    /// Defines a projection whose reducer is a Rust function: it gets all events, in order, with the record of the event's aggregate id. A
    /// changed function needs a greater version, so that its records are rebuilt from the first event.
    pub fn program(name: impl Into<ByteString>, version: u32) -> Self {
        let body = Body { reducer: Some(PROGRAM.to_owned()), version, ..Body::default() };
        Self { name: name.into(), body, read: Arc::default() }
    }

    /// Defines the projection that fills the browse view. It has one record for each event, which expires after this many days.
    pub fn browse(retention_days: Option<u32>) -> Self {
        let body = Body { reducer: Some(BROWSE.to_owned()), retention_days, version: 1, ..Body::default() };
        Self { name: BROWSE_VIEW.into(), body, read: Arc::default() }
    }

    /// Restricts it to events of these types.
    #[must_use]
    pub fn types<T: Into<ByteString>>(mut self, types: impl IntoIterator<Item = T>) -> Self {
        self.body.types = Some(types.into_iter().map(Into::into).collect());
        self
    }

    /// Restricts it to events whose [document](crate::event_document) matches this condition.
    #[must_use]
    pub fn matching(mut self, condition: Condition) -> Self {
        self.body.condition = Some(condition);
        self
    }

    /// Determines the key of an event's record: a path such as `$data.customer`, a constant, or a document of both.
    ///
    /// # Errors
    /// `invalid_projection` at `key`.
    pub fn key(mut self, key: impl Into<Value>) -> Result<Self, Invalid> {
        let key = key.into();
        let read = read_key("key", &key)?;
        self.body.key = Some(key);
        let Self { name, body, read: known } = self;
        let read = Read { key: Some(read), on: known.on.clone(), indexes: known.indexes.clone() };
        Ok(Self { name, body, read: Arc::new(read) })
    }

    /// Parses a declarative definition with this name from JSON.
    ///
    /// # Errors
    /// `not_json`, `invalid_body`, `invalid_name`, `invalid_condition` or `invalid_projection`, with the path.
    pub fn read(name: &str, json: &[u8]) -> Result<Self, Invalid> {
        let definition = Self::read_stored(name, json)?;
        if definition.body.reducer.is_some() {
            let message = "is a function, which only the program that has it can register; give rules in `on`";
            return Err(Invalid::new(Code::InvalidProjection, "reducer", message));
        }
        Ok(definition)
    }

    /// Parses a definition in its stored form.
    pub(super) fn read_stored(name: &str, json: &[u8]) -> Result<Self, Invalid> {
        let body: Body = crate::wire::parse_json(json)?;
        let read = Read {
            key: body.key.as_ref().map(|key| read_key("key", key)).transpose()?,
            on: body.on.as_ref().map(read_on).transpose()?.unwrap_or_default(),
            indexes: body.indexes.as_ref().map(read_indexes).transpose()?.unwrap_or_default(),
        };
        let definition = Self { name: name.into(), body, read: Arc::new(read) };
        definition.validate()?;
        Ok(definition)
    }

    /// Writes the definition as JSON, without its name.
    pub fn write(&self) -> String {
        // Strings and finite numbers always serialize.
        serde_json::to_string(&self.body).unwrap_or_default()
    }

    /// Returns the definition as a value, as the API shows it.
    pub fn shown(&self) -> Value {
        serde_json::to_value(&self.body).unwrap_or_default()
    }

    /// Checks names and limits.
    ///
    /// # Errors
    /// `invalid_name`, `invalid_condition` or `invalid_projection`, with the path.
    pub fn validate(&self) -> Result<(), Invalid> {
        let invalid = |path: &str, message: String| Err(Invalid::new(Code::InvalidProjection, path, message));
        valid_name("name", &self.name)?;
        if self.name.len() > NAME_BYTES_MAX {
            return invalid("name", format!("has {} bytes; at most {NAME_BYTES_MAX} are allowed", self.name.len()));
        }
        if self.is_browse() != (*self.name == *BROWSE_VIEW) {
            return invalid("name", format!("{BROWSE_VIEW:?} is the browse view, which PUT /v1/events/view defines"));
        }
        if self.body.retention_days.is_some() && !self.is_browse() {
            return invalid("retention_days", "is a setting of the browse view only".to_owned());
        }
        match (self.body.reducer.is_some(), &self.body.on) {
            (true, Some(_)) => return invalid("on", "stands beside a reducer; give one of both".to_owned()),
            (true, None) if !self.is_program() && !self.is_browse() => {
                return invalid("reducer", format!("is not {PROGRAM:?}"));
            }
            (false, None) => return invalid("on", "is missing; give each event type its rule".to_owned()),
            (false, Some(on)) if on.is_empty() => return invalid("on", "has no event type".to_owned()),
            _ => {}
        }
        if self.body.on.is_some() && self.body.types.is_some() {
            return invalid("types", "are those of `on`; leave them out".to_owned());
        }
        if self.body.version == 0 {
            return invalid("version", "is 0; the first version is 1".to_owned());
        }
        let types = self.body.types.iter().flatten().map(|name| &**name);
        let types: Vec<&str> = types.chain(self.read.on.iter().map(|(name, _)| name.as_str())).collect();
        if types.len() > TYPES_MAX {
            return invalid("types", format!("are {}; at most {TYPES_MAX} are allowed", types.len()));
        }
        for name in types.iter().filter(|name| **name != ANY || self.is_program()) {
            valid_name(&format!("on.{name}"), name)?;
        }
        match &self.body.condition {
            Some(condition) => condition.validate().and_then(|()| condition.judgeable()),
            None => Ok(()),
        }
    }

    /// Returns whether its reducer is a function of a program.
    pub fn is_program(&self) -> bool {
        self.body.reducer.as_deref() == Some(PROGRAM)
    }

    /// Returns whether it fills the browse view. Its records are documents of single events, which no later event changes.
    pub fn is_browse(&self) -> bool {
        self.body.reducer.as_deref() == Some(BROWSE)
    }

    /// Returns for how many days the browse view keeps an event.
    pub fn retention_days(&self) -> Option<u32> {
        self.body.retention_days
    }

    /// Returns the version that its author gave it.
    pub fn version(&self) -> u32 {
        self.body.version
    }

    /// Returns the indexes of its records.
    pub fn indexes(&self) -> &[Index] {
        &self.read.indexes
    }

    /// Returns the events that it follows, in the form of a handler's definition.
    pub fn source(&self) -> HandlerDefinition {
        let types: Vec<ByteString> = match &self.body.types {
            Some(types) => types.clone(),
            None if self.read.on.iter().any(|(name, _)| name == ANY) => Vec::new(),
            None => self.read.on.iter().map(|(name, _)| name.as_str().into()).collect(),
        };
        let source = HandlerDefinition::new(self.name.clone()).types(types);
        HandlerDefinition { condition: self.body.condition.clone(), ..source }
    }

    /// Returns the rules of an event type.
    pub(super) fn rules(&self, event_type: &str) -> &[Rule] {
        let of = |wanted: &str| self.read.on.iter().find(|(name, _)| name == wanted).map(|(_, rules)| rules.as_slice());
        of(event_type).or_else(|| of(ANY)).unwrap_or_default()
    }

    pub(super) fn key_of(&self) -> Option<&Expression> {
        self.read.key.as_ref()
    }
}

/// Parses indexes in the form of the API of records.
fn read_indexes(indexes: &Value) -> Result<Vec<Index>, Invalid> {
    let at = |error: Invalid| Invalid { code: Code::InvalidProjection, ..error };
    let body = serde_json::json!({ "indexes": indexes }).to_string();
    let collection = read_collection("indexes", body.as_bytes(), Encoding::Json).map_err(at)?;
    collection.validate().map_err(at)?;
    let refused = |index: &&Index| index.is_unique() || index.expires_after_seconds().is_some();
    match collection.indexes.iter().find(refused) {
        None => Ok(collection.indexes),
        Some(index) => {
            let message =
                format!("{:?} is unique or expires; the records of a projection follow from events only", index.name());
            Err(Invalid::new(Code::InvalidProjection, "indexes", message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(json: &str) -> (Code, String) {
        let refused = ProjectionDefinition::read("orders", json.as_bytes()).expect_err(json);
        (refused.code, refused.path)
    }

    #[test]
    fn a_definition_is_read_as_it_is_written() {
        for json in [
            r#"{"on":{"placed":{"set":{"state":"placed"}}}}"#,
            r#"{"key":"$data.customer","on":{"*":[{"increment":{"n":1}},{"key":"all","increment":{"n":1}}]},"version":3}"#,
            r#"{"key":{"c":"$data.c","k":7},"on":{"a":{"push":{"l":{"x":"$data.x"}},"remove":{"m":{"x":"$data.x"}},"unset":["z.y"]}}}"#,
            r#"{"condition":{"field":"data.total","operator":"GT","value":5},"on":{"a":{"delete":true}}}"#,
            r#"{"on":{"a":{"set":{"at":{"$literal":"$x"},"d":{"$date":"2026-01-01T00:00:00Z"}}}},"indexes":[{"fields":[{"field":"state"}]}]}"#,
        ] {
            let read = ProjectionDefinition::read("orders", json.as_bytes()).expect(json);
            assert_eq!(ProjectionDefinition::read("orders", read.write().as_bytes()), Ok(read), "{json}");
        }
    }

    #[test]
    fn a_definition_that_cannot_work_is_refused_with_its_path() {
        for (json, path) in [
            (r"{}", "on"),
            (r#"{"on":{}}"#, "on"),
            (r#"{"on":{"a":{"add":{"x":1}}}}"#, "on.a.add"),
            (r#"{"on":{"a":7}}"#, "on.a"),
            (r#"{"on":{"a":[]}}"#, "on.a"),
            (r#"{"on":{"a":{"set":{"x":"$datum.x"}}}}"#, "on.a.set.x"),
            (r#"{"on":{"a":{"set":{"x":{"$add":[1]}}}}}"#, "on.a.set.x"),
            (r#"{"on":{"a":{"set":{"_id":1}}}}"#, "on.a.set._id"),
            (r#"{"on":{"a":{"increment":{"x":"one"}}}}"#, "on.a.increment.x"),
            (r#"{"on":{"a":[{"set":{"x":1}},{"set":{"x.y":1},"push":{"x":1}}]}}"#, "on.a[1]"),
            (r#"{"on":{"a":{"set":{"x":1},"delete":true}}}"#, "on.a"),
            (r#"{"on":{"a":{"unset":["a..b"]}}}"#, "on.a.unset[0]"),
            (r#"{"key":["$data.a"],"on":{"a":{}}}"#, "key"),
            (r#"{"on":{"a":{}},"version":0}"#, "version"),
            (r#"{"on":{"a":{}},"types":["a"]}"#, "types"),
            (r#"{"reducer":"program"}"#, "reducer"),
            (r#"{"on":{"a":{}},"indexes":[{"fields":[{"field":"x"}],"unique":true}]}"#, "indexes"),
        ] {
            assert_eq!(refused(json), (Code::InvalidProjection, path.to_owned()), "{json}");
        }
        assert_eq!(refused(r#"{"on":{"a b":{}}}"#), (Code::InvalidName, "on.a b".to_owned()));
        assert_eq!(refused(r#"{"on":{"a":{}},"rules":1}"#).0, Code::InvalidBody);
        let unknown = ProjectionDefinition::read("o", br#"{"on":{"a":{"add":{"x":1}}}}"#).expect_err("unknown");
        assert!(unknown.to_string().contains("unknown operation"), "{unknown}");
    }
}
