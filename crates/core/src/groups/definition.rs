//! The definition of a group.

use serde::{Deserialize, Serialize};

use super::{GUARD_SECONDS, Guard, GuardSettings};
use crate::dead_letters::{LetterOrder, LetterSettings};
use crate::handlers::{HandlerDefinition, HandlerSource, Start};
use crate::processing::{PartitionBy, ProcessingRetry};
use crate::{ByteString, Code, GroupStart, Invalid};

/// The number of keys in flight if the definition gives none.
const IN_FLIGHT: u32 = 16;

/// The body of `PUT /v1/groups/{group}`, with the name.
///
/// ```json
/// {"topics": ["execution_completed", "execution_failed"], "start": "earliest", "in_flight": 16,
///  "retry": {"first_ms": 1000, "factor": 2, "max_ms": 60000, "attempts": 10, "then": "park"}}
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct GroupDefinition {
    /// Its name, with the same rules as that of an event type.
    pub name: ByteString,
    /// The event types of its topics, at least one.
    pub topics: Vec<ByteString>,
    /// Where it begins. Fixed by its first definition.
    pub start: GroupStart,
    /// The maximum number of keys in flight, 1–256.
    pub in_flight: u32,
    /// When failed messages are delivered again.
    pub retry: ProcessingRetry,
    /// What happens after a message becomes a dead letter.
    pub dead_letters: LetterSettings,
    /// The rule by which messages are equivalent, so that only one of them is delivered.
    pub guard: Option<GuardSettings>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    topics: Vec<ByteString>,
    #[serde(default)]
    start: GroupStart,
    #[serde(default = "in_flight")]
    in_flight: u32,
    #[serde(default)]
    retry: ProcessingRetry,
    #[serde(default)]
    dead_letters: LetterSettings,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    guard: Option<Guard>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    guard_seconds: Option<u64>,
}

fn in_flight() -> u32 {
    IN_FLIGHT
}

impl GroupDefinition {
    /// Returns a group of these topics that begins at the earliest message.
    pub fn new<T: Into<ByteString>>(name: impl Into<ByteString>, topics: impl IntoIterator<Item = T>) -> Self {
        Self {
            name: name.into(),
            topics: topics.into_iter().map(Into::into).collect(),
            start: GroupStart::Earliest,
            in_flight: IN_FLIGHT,
            retry: ProcessingRetry::default(),
            dead_letters: LetterSettings::default(),
            guard: None,
        }
    }

    /// Reads the definition of the group of this name from JSON.
    ///
    /// # Errors
    /// `not_json`, `invalid_body`, or as [`validate`](Self::validate).
    pub fn read(name: &str, json: &[u8]) -> Result<Self, Invalid> {
        let Body { topics, start, in_flight, retry, dead_letters, guard, guard_seconds } =
            crate::wire::parse_json(json)?;
        let guard = GuardSettings::read(guard, guard_seconds).map_err(as_group)?;
        let definition = Self { name: name.into(), topics, start, in_flight, retry, dead_letters, guard };
        definition.validate()?;
        Ok(definition)
    }

    /// Writes the definition as JSON, without its name.
    pub fn write(&self) -> String {
        let Self { name: _, topics, start, in_flight, retry, dead_letters, guard } = self.clone();
        let guard_seconds = guard.as_ref().map(|guard| guard.seconds).filter(|seconds| *seconds != GUARD_SECONDS);
        let guard = guard.map(|guard| guard.by);
        let body = Body { topics, start, in_flight, retry, dead_letters, guard, guard_seconds };
        // Strings and finite numbers always serialize to JSON.
        serde_json::to_string(&body).unwrap_or_default()
    }

    /// Checks names and limits.
    ///
    /// # Errors
    /// `invalid_name` or `invalid_group`, with the path.
    pub fn validate(&self) -> Result<(), Invalid> {
        let invalid = |path: &str, message: &str| Err(Invalid::new(Code::InvalidGroup, path, message));
        if self.topics.is_empty() {
            return invalid("topics", "is empty; name at least one event type");
        }
        let mut sorted = self.topics.clone();
        sorted.sort();
        sorted.dedup();
        if sorted.len() != self.topics.len() {
            return invalid("topics", "names a topic twice");
        }
        self.handler().validate().map_err(as_group)
    }

    /// Returns the equivalent handler, for a broker whose topics are views of the log.
    pub fn handler(&self) -> HandlerDefinition {
        let mut topics = self.topics.clone();
        // The order of the topics does not matter: it is the same group.
        topics.sort();
        HandlerDefinition {
            start: match self.start {
                GroupStart::Earliest => Start::Beginning,
                GroupStart::Latest => Start::Latest,
            },
            retry: self.retry,
            dead_letters: Some(self.dead_letters),
            guard: self.guard.clone(),
            ..HandlerDefinition::new(self.name.clone())
                .types(topics)
                .partitioned(PartitionBy::Aggregate, self.in_flight)
        }
    }

    /// Converts the definition of a handler to that of its group.
    pub fn of_handler(handler: &HandlerDefinition) -> Self {
        let topics = match &handler.source {
            HandlerSource::Log { types } => types.clone(),
            HandlerSource::Stream(_) => Vec::new(),
        };
        Self {
            name: handler.name.clone(),
            topics,
            start: if handler.start == Start::Latest { GroupStart::Latest } else { GroupStart::Earliest },
            in_flight: handler.concurrency,
            retry: handler.retry,
            // A group that was defined before dead letters existed keeps its behaviour.
            dead_letters: handler.dead_letters.unwrap_or(LetterSettings { order: LetterOrder::Pass, breaker: 0 }),
            guard: handler.guard.clone(),
        }
    }
}

/// Translates an error about a handler's definition to the terms of groups.
fn as_group(refused: Invalid) -> Invalid {
    let code = if refused.code == Code::InvalidHandler { Code::InvalidGroup } else { refused.code };
    Invalid { code, path: renamed(refused.path), ..refused }
}

/// Translates the path of a setting to the terms of groups.
fn renamed(path: String) -> String {
    match path.as_str() {
        "concurrency" => "in_flight".to_owned(),
        other if other.starts_with("types") => other.replacen("types", "topics", 1),
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_is_read_as_it_is_written_and_is_a_processor_of_its_topics() {
        for json in [
            r#"{"topics":["a","b"]}"#,
            r#"{"topics":["a"],"start":"latest","in_flight":1,"retry":{"first_ms":5,"attempts":3,"then":"park"}}"#,
            r#"{"topics":["a"],"dead_letters":{"order":"pass","breaker":0}}"#,
            r#"{"topics":["a"],"guard":"content"}"#,
            r#"{"topics":["a"],"guard":{"field":"data.x"},"guard_seconds":7}"#,
        ] {
            let read = GroupDefinition::read("billing", json.as_bytes()).expect(json);
            assert_eq!(GroupDefinition::read("billing", read.write().as_bytes()), Ok(read.clone()), "{json}");
            assert_eq!(GroupDefinition::of_handler(&read.handler()), read, "{json}");
        }
    }

    #[test]
    fn a_definition_that_cannot_work_is_refused_with_the_path_as_groups_call_it() {
        for (json, code, path) in [
            (r#"{"topics":[]}"#, Code::InvalidGroup, "topics"),
            (r#"{"topics":["a","a"]}"#, Code::InvalidGroup, "topics"),
            (r#"{"topics":["a b"]}"#, Code::InvalidName, "topics[0]"),
            (r#"{"topics":["a"],"in_flight":257}"#, Code::InvalidGroup, "in_flight"),
            (r#"{"topics":["a"],"retry":{"factor":0}}"#, Code::InvalidGroup, "retry.factor"),
            (r#"{"topics":["a"],"guard":{"field":""}}"#, Code::InvalidGroup, "guard.field"),
            (r#"{"topics":["a"],"guard":"magic"}"#, Code::InvalidBody, "guard"),
            (r#"{"topics":["a"],"guard_seconds":7}"#, Code::InvalidGroup, "guard_seconds"),
        ] {
            let refused = GroupDefinition::read("billing", json.as_bytes()).expect_err(json);
            assert_eq!((refused.code, &*refused.path), (code, path), "{json}");
        }
    }
}
