//! The definition of a filter.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::names::{is_private_stream, is_public_stream};
use crate::processing::PartitionBy;
use crate::{ByteString, Code, Condition, DEFAULT_SCOPE, Filter, Invalid, valid_name};

/// The maximum number of types of a filter.
const TYPES_MAX: usize = 1_000;

/// Identifies a filter: the stream that it fills, and its scope.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FilterName {
    /// The scope.
    pub scope: ByteString,
    /// The stream.
    pub stream: ByteString,
}

impl FilterName {
    /// Names the filter of a stream of the default scope.
    pub fn new(stream: impl Into<ByteString>) -> Self {
        Self { scope: ByteString::from_static(DEFAULT_SCOPE), stream: stream.into() }
    }

    /// Names the filter of a stream of a scope.
    pub fn of_scope(scope: impl Into<ByteString>, stream: impl Into<ByteString>) -> Self {
        Self { scope: scope.into(), stream: stream.into() }
    }

    /// Returns the text that identifies the filter in its tenant: the stream in the default scope, otherwise `scope/stream`.
    pub fn key(&self) -> String {
        if *self.scope == *DEFAULT_SCOPE { self.stream.to_string() } else { format!("{}/{}", self.scope, self.stream) }
    }

    /// Reads a [key](Self::key).
    pub fn of_key(key: &str) -> Self {
        match key.split_once('/') {
            Some((scope, stream)) => Self::of_scope(scope, stream),
            None => Self::new(key),
        }
    }
}

impl fmt::Display for FilterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key())
    }
}

/// The body of `PUT /v1/filters/{stream}`, with the stream.
///
/// ```json
/// {"types": ["order_placed"], "condition": {"field": "data.total", "operator": "GT", "value": 100}, "partition_by": "aggregate"}
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct FilterDefinition {
    /// The stream that it fills, and its scope.
    pub name: FilterName,
    /// The stream whose events it evaluates; none for the log of the scope.
    pub source: Option<ByteString>,
    /// The types of the events that it includes; empty means every type.
    pub types: Vec<ByteString>,
    /// Selects among those events: it includes the ones whose [document](crate::event_document) matches.
    pub condition: Option<Condition>,
    /// The rule for the partition of an entry. Without it, a remote filter or one in Rust determines the partition of each event.
    pub partition_by: Option<PartitionBy>,
    /// Whether partners may see the stream. Events that are not public are then excluded.
    pub public: bool,
    /// What evaluates the events that pass `types` and `condition`.
    pub kind: FilterKind,
}

/// What evaluates events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FilterKind {
    /// Only the definition: every event that passes it is included.
    #[default]
    Declared,
    /// A client, which pulls events and settles each one with a verdict.
    Remote,
    /// A function in the program that runs the task host.
    Function,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    source: Option<ByteString>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    types: Option<Vec<ByteString>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    condition: Option<Condition>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    partition_by: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    public: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    remote: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    function: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scope: Option<ByteString>,
}

impl FilterDefinition {
    /// Defines a filter that includes every event of the default scope's log.
    pub fn new(stream: impl Into<ByteString>) -> Self {
        Self {
            name: FilterName::new(stream),
            source: None,
            types: Vec::new(),
            condition: None,
            partition_by: None,
            public: false,
            kind: FilterKind::Declared,
        }
    }

    /// Includes only events of these types.
    #[must_use]
    pub fn types<T: Into<ByteString>>(self, types: impl IntoIterator<Item = T>) -> Self {
        Self { types: types.into_iter().map(Into::into).collect(), ..self }
    }

    /// Includes only events whose document matches this condition.
    #[must_use]
    pub fn matching(self, condition: Condition) -> Self {
        Self { condition: Some(condition), ..self }
    }

    /// Evaluates the events of this stream instead of the log's.
    #[must_use]
    pub fn from_stream(self, source: impl Into<ByteString>) -> Self {
        Self { source: Some(source.into()), ..self }
    }

    /// Partitions the stream.
    #[must_use]
    pub fn partitioned(self, by: PartitionBy) -> Self {
        Self { partition_by: Some(by), ..self }
    }

    /// Makes the stream public.
    #[must_use]
    pub fn public(self) -> Self {
        Self { public: true, ..self }
    }

    /// Lets a client evaluate the events.
    #[must_use]
    pub fn remote(self) -> Self {
        Self { kind: FilterKind::Remote, ..self }
    }

    /// Reads the definition of this stream's filter from JSON. `scope` applies if the body names none.
    ///
    /// # Errors
    /// `not_json`, `invalid_body`, or as [`validate`](Self::validate).
    pub fn read(stream: &str, scope: &str, json: &[u8]) -> Result<Self, Invalid> {
        let body: Body = crate::wire::parse_json(json)?;
        let kind = match (body.remote, body.function) {
            (true, true) => {
                let message = "cannot be combined with remote; a filter has one or the other";
                return Err(Invalid::new(Code::InvalidFilter, "function", message));
            }
            (true, false) => FilterKind::Remote,
            (false, true) => FilterKind::Function,
            (false, false) => FilterKind::Declared,
        };
        let definition = Self {
            name: FilterName::of_scope(body.scope.unwrap_or_else(|| scope.into()), stream),
            source: body.source,
            types: body.types.unwrap_or_default(),
            condition: body.condition.filter(|condition| *condition != Condition::All),
            partition_by: body.partition_by.map(|text| partition_by(&text)).transpose()?,
            public: body.public,
            kind,
        };
        definition.validate()?;
        Ok(definition)
    }

    /// Writes the definition as JSON, without its stream. Equivalent definitions are written identically.
    pub fn write(&self) -> String {
        let mut types = self.types.clone();
        types.sort_unstable();
        types.dedup();
        let body = Body {
            source: self.source.clone(),
            types: (!types.is_empty()).then_some(types),
            condition: self.condition.clone(),
            partition_by: self.stated_partition().map(PartitionBy::text),
            public: self.public,
            remote: self.kind == FilterKind::Remote,
            function: self.kind == FilterKind::Function,
            scope: (*self.name.scope != *DEFAULT_SCOPE).then(|| self.name.scope.clone()),
        };
        // Strings and finite numbers always serialize to JSON.
        serde_json::to_string(&body).unwrap_or_default()
    }

    /// Returns the rule for partitions, if the definition states one. A declared filter without partitions states none.
    fn stated_partition(&self) -> Option<&PartitionBy> {
        let by = self.partition_by.as_ref()?;
        (self.kind != FilterKind::Declared || by.is_partitioned()).then_some(by)
    }

    /// Returns whether entries of the stream have partitions.
    pub fn is_partitioned(&self) -> bool {
        match (&self.partition_by, self.kind) {
            (Some(by), _) => by.is_partitioned(),
            (None, kind) => kind != FilterKind::Declared,
        }
    }

    /// Checks names, limits and combinations.
    ///
    /// # Errors
    /// `invalid_name`, `invalid_filter` or `invalid_condition`, with the path.
    pub fn validate(&self) -> Result<(), Invalid> {
        let invalid = |path: &str, message: String| Err(Invalid::new(Code::InvalidFilter, path, message));
        let FilterName { scope, stream } = &self.name;
        valid_name("stream", stream)?;
        valid_name("scope", scope)?;
        if uuid::Uuid::try_parse(stream).is_ok_and(|id| id.is_nil()) {
            return invalid("stream", "is the nil UUID, which is the event log; choose another stream".to_owned());
        }
        if self.types.len() > TYPES_MAX {
            return invalid("types", format!("has {} types; at most {TYPES_MAX} are allowed", self.types.len()));
        }
        self.types.iter().enumerate().try_for_each(|(n, name)| valid_name(&format!("types[{n}]"), name))?;
        if let Some(source) = &self.source {
            valid_name("source", source)?;
            if source == stream {
                return invalid(
                    "source",
                    format!("{source:?} is the stream that the filter itself fills; name another source"),
                );
            }
        }
        if let Some(condition) = &self.condition {
            condition.validate()?;
            condition.judgeable()?;
        }
        if self.public && *self.name.scope != *DEFAULT_SCOPE {
            return invalid(
                "public",
                "only the default scope has public streams; leave scope or public out".to_owned(),
            );
        }
        if self.public && is_private_stream(stream) {
            return invalid("public", format!("the name {stream:?} is that of a private stream; use public-stream-…"));
        }
        if !self.public && is_public_stream(stream) {
            return invalid("public", format!("the name {stream:?} is that of a public stream; set public to true"));
        }
        Ok(())
    }

    /// Returns a filter that covers the events that can pass `types` and `condition`, so that reads can use the log's indexes.
    pub fn filter(&self) -> Filter {
        super::pushdown::filter_of(&self.types, self.condition.as_ref())
    }

    /// Returns the first of the settings `partitioned`, `public`, `kind` and `source` that differs in `other`. A stream with entries cannot
    /// change them.
    pub fn difference_in_kind(&self, other: &Self) -> Option<&'static str> {
        [
            ("partitioned", self.is_partitioned() != other.is_partitioned()),
            ("public", self.public != other.public),
            ("kind", self.kind != other.kind),
            ("source", self.source != other.source),
        ]
        .into_iter()
        .find_map(|(name, differs)| differs.then_some(name))
    }

    /// Returns whether `other` differs only in its types.
    pub fn differs_in_types_only(&self, other: &Self) -> bool {
        let alike = Self { types: other.types.clone(), ..self.clone() };
        alike.write() == other.write()
    }
}

fn partition_by(text: &str) -> Result<PartitionBy, Invalid> {
    PartitionBy::parse(text).map_err(|invalid| Invalid { code: Code::InvalidFilter, ..invalid })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<FilterDefinition, Invalid> {
        FilterDefinition::read("orders", DEFAULT_SCOPE, json.as_bytes())
    }

    #[test]
    fn a_definition_is_read_as_it_is_written() {
        for json in [
            "{}",
            r#"{"types":["a","b"],"partition_by":"aggregate"}"#,
            r#"{"source":"stream-1","condition":{"field":"data.total","operator":"GT","value":5},"public":true}"#,
            r#"{"remote":true}"#,
            r#"{"remote":true,"partition_by":"none"}"#,
            r#"{"function":true,"partition_by":"data.customer.id","scope":"inbox"}"#,
        ] {
            let definition = read(json).expect(json);
            assert_eq!(read(&definition.write()), Ok(definition), "{json}");
        }
    }

    #[test]
    fn definitions_that_mean_the_same_are_written_alike() {
        for (one, other) in [
            (r#"{"types":["a","b"]}"#, r#"{"types":["b","a","a"]}"#),
            ("{}", r#"{"partition_by":"none","types":[],"public":false}"#),
        ] {
            assert_eq!(read(one).expect(one).write(), read(other).expect(other).write());
        }
    }

    #[test]
    fn a_definition_that_cannot_work_is_refused_with_its_path() {
        for (json, code, path) in [
            (r#"{"types":["a b"]}"#, Code::InvalidName, "types[0]"),
            (r#"{"source":"orders"}"#, Code::InvalidFilter, "source"),
            (r#"{"partition_by":"tenant"}"#, Code::InvalidFilter, "partition_by"),
            (r#"{"remote":true,"function":true}"#, Code::InvalidFilter, "function"),
            (r#"{"public":true,"scope":"inbox"}"#, Code::InvalidFilter, "public"),
            (r#"{"stream":"x"}"#, Code::InvalidBody, "stream"),
            (r#"{"condition":{"field":"time","operator":"TODAY"}}"#, Code::InvalidCondition, "condition"),
        ] {
            let refused = read(json).expect_err(json);
            assert_eq!((refused.code, &*refused.path), (code, path), "{json}");
        }
        let of = |stream: &str, json: &str| FilterDefinition::read(stream, DEFAULT_SCOPE, json.as_bytes());
        assert_eq!(of("public-stream-1", "{}").expect_err("a public name").path, "public");
        assert_eq!(of("stream-1", r#"{"public":true}"#).expect_err("a private name").path, "public");
        assert_eq!(of("00000000-0000-0000-0000-000000000000", "{}").expect_err("the log").path, "stream");
    }

    #[test]
    fn a_change_of_what_the_stream_is_is_named() {
        let base = read(r#"{"types":["a"]}"#).expect("valid");
        for (json, named) in [
            (r#"{"types":["a"],"partition_by":"aggregate"}"#, Some("partitioned")),
            (r#"{"types":["a"],"public":true}"#, Some("public")),
            (r#"{"types":["a"],"remote":true,"partition_by":"none"}"#, Some("kind")),
            (r#"{"types":["a"],"source":"other"}"#, Some("source")),
            (r#"{"types":["b"]}"#, None),
        ] {
            assert_eq!(base.difference_in_kind(&read(json).expect(json)), named, "{json}");
        }
        assert!(base.differs_in_types_only(&read(r#"{"types":["b"]}"#).expect("valid")));
    }

    #[test]
    fn a_key_names_a_filter_in_its_scope() {
        for name in [FilterName::new("orders"), FilterName::of_scope("inbox", "orders")] {
            assert_eq!(FilterName::of_key(&name.key()), name);
        }
    }
}
