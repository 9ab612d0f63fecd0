//! The definition of a handler.

use serde::{Deserialize, Serialize};

use crate::dead_letters::{LetterOrder, LetterSettings};
use crate::groups::{GUARD_SECONDS, Guard, GuardSettings};
use crate::processing::{FAILING_MAX, PartitionBy, ProcessingRetry, Settings};
use crate::{ByteString, Code, Condition, DEFAULT_SCOPE, Filter, Invalid, SequenceNumber, Timestamp, valid_name};

/// The body of `PUT /v1/handlers/{name}`, with the name.
///
/// ```json
/// {"types": ["order_placed"], "partition_by": "aggregate", "concurrency": 8, "start": "beginning",
///  "retry": {"first_ms": 1000, "factor": 2, "max_ms": 60000, "attempts": 10, "then": "park"}}
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct HandlerDefinition {
    /// Its name, with the same rules as that of an event type.
    pub name: ByteString,
    /// The scope of the log or stream that it handles.
    pub scope: ByteString,
    /// The log or stream that it handles.
    pub source: HandlerSource,
    /// Selects events of its source: those whose [document](crate::event_document) matches. Without it, all are handled.
    pub condition: Option<Condition>,
    /// The rule by which events are partitioned.
    pub partition_by: PartitionBy,
    /// The maximum number of partitions in flight, 1–256.
    pub concurrency: u32,
    /// Where it begins. Fixed by its first definition.
    pub start: Start,
    /// Where it ends: before the first of its events at or after this time.
    pub stop_at: Option<Timestamp>,
    /// The maximum number of events of one partition that are delivered together, 1–1,000.
    pub batch: u32,
    /// When failed events are delivered again.
    pub retry: ProcessingRetry,
    /// What happens after an event becomes a dead letter. Without it, later events of its key are delivered, and there is no breaker.
    pub dead_letters: Option<LetterSettings>,
    /// The rule by which events are equivalent, so that only one of them is delivered.
    pub guard: Option<GuardSettings>,
}

/// The source of a handler's events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HandlerSource {
    /// The events of the log that have one of these types; an empty list means every type.
    Log {
        /// The types.
        types: Vec<ByteString>,
    },
    /// The events of a stream, at the stream's positions.
    Stream(ByteString),
}

/// Where a handler begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// At the first event of its source.
    #[default]
    Beginning,
    /// At the first event after its definition.
    Latest,
    /// At the event with this sequence number, or the first one after it.
    SequenceNumber(SequenceNumber),
    /// At the first event at or after this time, which may be in the future.
    Time(Timestamp),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stream: Option<ByteString>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    types: Option<Vec<ByteString>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    condition: Option<Condition>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    partition_by: Option<String>,
    #[serde(default = "one")]
    concurrency: u32,
    #[serde(default)]
    start: Start,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stop_at: Option<Timestamp>,
    #[serde(default = "one")]
    batch: u32,
    #[serde(default)]
    retry: ProcessingRetry,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dead_letters: Option<LetterSettings>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    guard: Option<Guard>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    guard_seconds: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scope: Option<ByteString>,
}

fn one() -> u32 {
    1
}

/// The maximum number of partitions in flight.
const CONCURRENCY_MAX: u32 = 256;
/// The maximum number of events of a partition that are delivered together.
const BATCH_MAX: u32 = 1_000;
/// The maximum number of types of a handler.
const TYPES_MAX: usize = 1_000;

impl HandlerDefinition {
    /// Returns a handler of all events of the log, one at a time, from the beginning.
    pub fn new(name: impl Into<ByteString>) -> Self {
        Self {
            name: name.into(),
            scope: ByteString::from_static(DEFAULT_SCOPE),
            source: HandlerSource::Log { types: Vec::new() },
            condition: None,
            partition_by: PartitionBy::None,
            concurrency: 1,
            start: Start::Beginning,
            stop_at: None,
            batch: 1,
            retry: ProcessingRetry::default(),
            dead_letters: None,
            guard: None,
        }
    }

    /// Handles only events of these types.
    #[must_use]
    pub fn types<T: Into<ByteString>>(self, types: impl IntoIterator<Item = T>) -> Self {
        Self { source: HandlerSource::Log { types: types.into_iter().map(Into::into).collect() }, ..self }
    }

    /// Handles the events of this stream.
    #[must_use]
    pub fn stream(self, stream: impl Into<ByteString>) -> Self {
        Self { source: HandlerSource::Stream(stream.into()), ..self }
    }

    /// Handles the log or the stream of this scope, such as a scope that receives events from other microservices.
    #[must_use]
    pub fn of_scope(self, scope: impl Into<ByteString>) -> Self {
        Self { scope: scope.into(), ..self }
    }

    /// Handles only events whose document matches this condition.
    #[must_use]
    pub fn matching(self, condition: Condition) -> Self {
        Self { condition: Some(condition), ..self }
    }

    /// Partitions events by this rule, with at most this many partitions in flight.
    #[must_use]
    pub fn partitioned(self, by: PartitionBy, concurrency: u32) -> Self {
        Self { partition_by: by, concurrency, ..self }
    }

    /// Reads the definition of the handler of this name from JSON.
    ///
    /// # Errors
    /// `not_json`, `invalid_body`, or as [`validate`](Self::validate).
    pub fn read(name: &str, json: &[u8]) -> Result<Self, Invalid> {
        let body: Body = crate::wire::parse_json(json)?;
        let source = match (body.stream, body.types) {
            (Some(_), Some(_)) => {
                let message =
                    "cannot be combined with types, because a stream is already filtered; give one or the other";
                return Err(Invalid::new(Code::InvalidHandler, "stream", message));
            }
            (Some(stream), None) => HandlerSource::Stream(stream),
            (None, types) => HandlerSource::Log { types: types.unwrap_or_default() },
        };
        let definition = Self {
            name: name.into(),
            scope: body.scope.unwrap_or_else(|| ByteString::from_static(DEFAULT_SCOPE)),
            source,
            condition: body.condition.filter(|condition| *condition != Condition::All),
            partition_by: body.partition_by.map_or(Ok(PartitionBy::None), |text| PartitionBy::parse(&text))?,
            concurrency: body.concurrency,
            start: body.start,
            stop_at: body.stop_at,
            batch: body.batch,
            retry: body.retry,
            dead_letters: body.dead_letters,
            guard: GuardSettings::read(body.guard, body.guard_seconds)?,
        };
        definition.validate()?;
        Ok(definition)
    }

    /// Writes the definition as JSON, without its name.
    pub fn write(&self) -> String {
        let (stream, types) = match &self.source {
            HandlerSource::Log { types } => (None, (!types.is_empty()).then(|| types.clone())),
            HandlerSource::Stream(stream) => (Some(stream.clone()), None),
        };
        let body = Body {
            stream,
            types,
            condition: self.condition.clone(),
            partition_by: Some(self.partition_by.text()),
            concurrency: self.concurrency,
            start: self.start,
            stop_at: self.stop_at,
            batch: self.batch,
            retry: self.retry,
            dead_letters: self.dead_letters,
            guard: self.guard.as_ref().map(|guard| guard.by.clone()),
            guard_seconds: self.guard.as_ref().map(|guard| guard.seconds).filter(|seconds| *seconds != GUARD_SECONDS),
            scope: (*self.scope != *DEFAULT_SCOPE).then(|| self.scope.clone()),
        };
        // Strings and finite numbers always serialize to JSON.
        serde_json::to_string(&body).unwrap_or_default()
    }

    /// Checks names and limits.
    ///
    /// # Errors
    /// `invalid_name`, `invalid_handler` or `invalid_condition`, with the path.
    pub fn validate(&self) -> Result<(), Invalid> {
        let invalid = |path: &str, message: String| Err(Invalid::new(Code::InvalidHandler, path, message));
        valid_name("name", &self.name)?;
        valid_name("scope", &self.scope)?;
        match &self.source {
            HandlerSource::Log { types } if types.len() > TYPES_MAX => {
                return invalid("types", format!("have {} entries; at most {TYPES_MAX} are allowed", types.len()));
            }
            HandlerSource::Log { types } => {
                types.iter().enumerate().try_for_each(|(n, name)| valid_name(&format!("types[{n}]"), name))?;
            }
            HandlerSource::Stream(stream) => valid_name("stream", stream)?,
        }
        if let Some(condition) = &self.condition {
            condition.validate()?;
            condition.judgeable()?;
        }
        if let (Start::Time(start), Some(stop)) = (self.start, self.stop_at)
            && stop <= start
        {
            return invalid(
                "stop_at",
                format!("{stop} is not after the start, {start}, so no event lies between them; choose a later time"),
            );
        }
        if !(1..=CONCURRENCY_MAX).contains(&self.concurrency) {
            return invalid("concurrency", format!("{} is not between 1 and {CONCURRENCY_MAX}", self.concurrency));
        }
        if self.concurrency > 1 && !self.partition_by.is_partitioned() {
            let message =
                "above 1 needs partitions, because the events of one partition are handled in order; set partition_by";
            return invalid("concurrency", message.to_owned());
        }
        if !(1..=BATCH_MAX).contains(&self.batch) {
            return invalid("batch", format!("{} is not between 1 and {BATCH_MAX}", self.batch));
        }
        if self.keeps_order() && !self.partition_by.is_partitioned() {
            let message = "needs partitions: without them, a failing event blocks all later events; set partition_by";
            return invalid("dead_letters.order", message.to_owned());
        }
        if let Some(guard) = &self.guard {
            guard.validate()?;
            if self.batch > 1 {
                return invalid(
                    "guard",
                    "needs a batch of 1, because duplicates are detected event by event".to_owned(),
                );
            }
        }
        self.retry.validate()
    }

    /// Returns whether later events of a key wait until the open dead letter of that key is closed.
    pub fn keeps_order(&self) -> bool {
        self.dead_letters.is_some_and(|it| it.order == LetterOrder::Wait)
    }

    /// Returns how its events are handed out.
    pub fn settings(&self) -> Settings {
        Settings {
            partitioned: self.partition_by.is_partitioned(),
            concurrency: self.concurrency as usize,
            batch: self.batch as usize,
            retry: self.retry,
            failing_max: FAILING_MAX,
            keeps_order: self.keeps_order(),
            breaker: self.dead_letters.map_or(0, |it| it.breaker),
        }
    }

    /// Returns a filter that covers its events in the log, so that reads can use the log's indexes; none if its source is a stream. The
    /// filter includes types that the condition requires.
    pub fn filter(&self) -> Option<Filter> {
        let HandlerSource::Log { types } = &self.source else { return None };
        let asked = || {
            let texts = self.condition.as_ref()?.texts_of("type")?;
            // A text that is not a valid name is the type of no event.
            let names = texts.iter().filter(|text| valid_name("type", text).is_ok());
            Some(names.map(|name| ByteString::from(name.as_str())).collect())
        };
        let types = if types.is_empty() { asked().unwrap_or_default() } else { types.clone() };
        Some(Filter { types, ..Filter::default() })
    }

    /// Serializes the condition, so that equal numbers of different types compare as equal.
    fn condition_text(&self) -> Option<String> {
        let condition = self.condition.as_ref()?;
        // A valid condition can always be serialized.
        Some(serde_json::to_string(condition).unwrap_or_default())
    }

    /// Returns the first setting that `other` changes although it is fixed by the first definition.
    pub fn fixed_difference(&self, other: &Self) -> Option<&'static str> {
        [
            ("scope", self.scope != other.scope),
            ("source", self.source != other.source),
            ("condition", self.condition_text() != other.condition_text()),
            ("partition_by", self.partition_by != other.partition_by),
            ("start", self.start != other.start),
        ]
        .into_iter()
        .find_map(|(name, differs)| differs.then_some(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(json: &str) -> (Code, String) {
        let refused = HandlerDefinition::read("billing", json.as_bytes()).expect_err(json);
        (refused.code, refused.path)
    }

    #[test]
    fn a_definition_is_read_as_it_is_written() {
        for json in [
            "{}",
            r#"{"types":["a","b"],"partition_by":"aggregate","concurrency":8,"start":"latest"}"#,
            r#"{"stream":"stream-1","partition_by":"data.customer.id","start":{"sequence_number":7},"batch":5}"#,
            r#"{"retry":{"first_ms":5,"attempts":3,"then":"park"}}"#,
            r#"{"condition":{"field":"data.total","operator":"GT","value":5},"start":{"time":"2026-03-01T12:00:00.000Z"}}"#,
            r#"{"stop_at":"2026-03-01T12:00:00.000Z"}"#,
            r#"{"types":["a"],"scope":"inbox"}"#,
            r#"{"partition_by":"aggregate","dead_letters":{"order":"wait","breaker":3}}"#,
        ] {
            let read = HandlerDefinition::read("billing", json.as_bytes()).expect(json);
            assert_eq!(HandlerDefinition::read("billing", read.write().as_bytes()), Ok(read), "{json}");
        }
    }

    #[test]
    fn a_definition_that_cannot_work_is_refused_with_its_path() {
        for (json, path) in [
            (r#"{"stream":"s","types":["a"]}"#, "stream"),
            (r#"{"partition_by":"tenant"}"#, "partition_by"),
            (r#"{"partition_by":"data."}"#, "partition_by"),
            (r#"{"concurrency":2}"#, "concurrency"),
            (r#"{"concurrency":0}"#, "concurrency"),
            (r#"{"batch":1001}"#, "batch"),
            (r#"{"retry":{"factor":0}}"#, "retry.factor"),
            (r#"{"dead_letters":{"order":"wait"}}"#, "dead_letters.order"),
        ] {
            assert_eq!(refused(json), (Code::InvalidHandler, path.to_owned()), "{json}");
        }
        assert_eq!(refused(r#"{"types":["a b"]}"#), (Code::InvalidName, "types[0]".to_owned()));
        assert_eq!(refused(r#"{"conditions":{}}"#).0, Code::InvalidBody);
        let late = r#"{"start":{"time":"2026-03-01T12:00:00Z"},"stop_at":"2026-03-01T12:00:00Z"}"#;
        assert_eq!(refused(late), (Code::InvalidHandler, "stop_at".to_owned()));
        for condition in [r#"{"operator":"MATCH","value":"word"}"#, r#"{"field":"time","operator":"TODAY"}"#] {
            let json = format!(r#"{{"condition":{condition}}}"#);
            assert_eq!(refused(&json), (Code::InvalidCondition, "condition".to_owned()), "{json}");
        }
    }

    #[test]
    fn the_types_that_a_condition_asks_for_are_found_by_the_log_s_index() {
        let read =
            |json: &str| HandlerDefinition::read("h", json.as_bytes()).expect(json).filter().expect("of the log");
        let one = read(r#"{"condition":{"field":"type","operator":"IN","value":["placed","no name"]}}"#);
        assert_eq!(one.types, ["placed"]);
        let both = read(r#"{"types":["paid"],"condition":{"field":"type","operator":"EQ","value":"placed"}}"#);
        assert_eq!(both.types, ["paid"], "the condition decides about each of them");
        assert!(read(r#"{"condition":{"field":"data.a","operator":"EQ","value":"placed"}}"#).is_all());
    }
}
