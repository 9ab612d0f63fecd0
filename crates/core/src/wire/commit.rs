//! `POST /v1/commits`: the body and the answer.

use std::time::Duration;

use bytestring::ByteString;
use serde::de::{DeserializeOwned, Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

use super::plain;
use crate::json::{strict::Strict, wide_integer, without_signed_zeros};
use crate::{
    Aggregate, AppendCondition, Code, CommitOutcome, Data, EventPattern, ExpectedVersion, Invalid, KeyChanges,
    Metadata, NewCommit, NewEvent, Reached, Release, Reserve, Timestamp, Wait,
};

/// The body of `POST /v1/commits`, and a line of an import file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with the fields of a commit")]
pub struct CommitBody {
    /// The aggregate of the events.
    pub aggregate: Aggregate,
    /// The version the aggregate must have: a number, `"any"`, `"empty"` or `"exists"`.
    #[serde(default, with = "expected_version", skip_serializing_if = "is_any")]
    pub expected_version: ExpectedVersion,
    /// Identifies the request, so that a repeat is recognised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<ByteString>,
    /// The command that led to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_id: Option<ByteString>,
    /// The events.
    pub events: Vec<EventBody>,
    /// Free-form strings for tools.
    #[serde(default, with = "header", skip_serializing_if = "Vec::is_empty")]
    pub header: Vec<(ByteString, ByteString)>,
    /// The tenantId of the aggregate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<ByteString>,
    /// The owner of the aggregate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner_id: Option<ByteString>,
    /// The space of the aggregate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub space_id: Option<ByteString>,
    /// Identifies the operation that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<ByteString>,
    /// Its direct cause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub causation_id: Option<ByteString>,
    /// The events that the log must not hold yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub append_condition: Option<AppendConditionBody>,
    /// Prepare keys that it reserves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reserve: Vec<Reserve>,
    /// Prepare keys that it releases.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub release: Vec<Release>,
    /// What the response waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<WaitBody>,
}

/// An append condition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with fail_if and after")]
pub struct AppendConditionBody {
    /// The patterns.
    pub fail_if: Vec<EventPattern>,
    /// The sequence number of the last event that does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
}

/// An event of a [`CommitBody`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with the fields of an event")]
pub struct EventBody {
    /// Its type.
    #[serde(rename = "type")]
    pub event_type: ByteString,
    /// Its data, an object.
    pub data: Data,
    /// Its id.
    #[serde(default, with = "uuid_text", skip_serializing_if = "Option::is_none")]
    pub id: Option<Uuid>,
    /// The generation of its type.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub generation: u32,
    /// Its tags.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<ByteString>,
    /// Whether partners may see it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub public: bool,
    /// Metadata for tools and operators, an object of strings and numbers.
    #[serde(default, deserialize_with = "crate::metadata::optional", skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Metadata>,
    /// When it happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Timestamp>,
}

/// What a response waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with the fields of a wait")]
pub struct WaitBody {
    /// `committed`, `logged`, or a named stage such as `snapshot` or `handled:billing`. On a store that assigns sequence numbers when it
    /// stores a commit, `committed` and `logged` are the same.
    #[serde(rename = "for")]
    pub wait_for: String,
    /// The timeout in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// The answer to `POST /v1/commits`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitAnswer {
    /// The commit's id.
    pub commit_id: Uuid,
    /// The aggregate's version after it.
    pub version: u64,
    /// Its events.
    pub events: Vec<CommittedEvent>,
    /// Whether this request was committed before.
    pub duplicate: bool,
    /// The stage that it reached: `committed`, `logged`, or the named stage that it waited for.
    pub reached: String,
}

/// An event of a [`CommitAnswer`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommittedEvent {
    /// Its id.
    pub id: Uuid,
    /// Its position in the log, once the commit is logged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence_number: Option<u64>,
}

impl From<CommitOutcome> for CommitAnswer {
    fn from(outcome: CommitOutcome) -> Self {
        let (reached, first) = (outcome.reached(), outcome.first_sequence_number);
        let number = |place| first.map(|first| first + place);
        let events = (0..).zip(outcome.event_ids);
        Self {
            commit_id: outcome.commit_id,
            version: outcome.version,
            events: events.map(|(place, id)| CommittedEvent { id, sequence_number: number(place) }).collect(),
            duplicate: outcome.duplicate,
            reached: reached.as_str().to_owned(),
        }
    }
}

/// Parses a commit from JSON. The rules of [`NewCommit::validate`] are not checked here.
///
/// # Errors
/// `not_json`, `invalid_body`, `invalid_data`, `invalid_metadata`, `invalid_integer`, `invalid_time`, `invalid_version`, `invalid_wait`.
pub fn parse_commit(json: &[u8]) -> Result<NewCommit, Invalid> {
    if let Some(commit) = plain::commit(json) {
        return Ok(commit);
    }
    let body: CommitBody = parse_json(json)?;
    body.commit("")
}

impl WaitBody {
    /// Returns the wait that a body describes. `path` is the path of the body's parent.
    pub(super) fn wait(wait: Option<&Self>, path: &str) -> Result<Wait, Invalid> {
        let Some(wait) = wait else { return Ok(Wait::default()) };
        let until = stage(&wait.wait_for, &format!("{path}wait.for"))?;
        Ok(Wait { until, at_most: wait.timeout_ms.map(Duration::from_millis) })
    }

    /// Returns the body of a wait, or `None` for the default one.
    pub(super) fn of(wait: &Wait) -> Option<Self> {
        let timeout_ms = wait.at_most.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        (*wait != Wait::default()).then(|| Self { wait_for: wait.until.as_str().to_owned(), timeout_ms })
    }
}

/// Returns the stage with this name.
pub(in crate::wire) fn stage(name: &str, path: &str) -> Result<Reached, Invalid> {
    Reached::from_name(name).map_err(|invalid| Invalid { path: path.to_owned(), ..invalid })
}

/// Parses `reached` of an answer; returns the named stage, if it is one. A newer server may have further forms.
pub fn reached_stage(reached: &str) -> Option<ByteString> {
    let known = [Reached::Committed, Reached::Logged].iter().any(|known| known.as_str() == reached);
    (!known).then(|| reached.into())
}

/// Parses any body of the API from JSON. Every refusal has the path of the value.
///
/// # Errors
/// As [`parse_commit`].
pub fn parse_json<T: DeserializeOwned>(json: &[u8]) -> Result<T, Invalid> {
    let json = &*without_signed_zeros(json);
    let error = match parse_strictly::<T>(json) {
        Ok(value) => match wide_integer(json) {
            None => return Ok(value),
            Some(wide) => return Err(too_wide(wide)),
        },
        Err(error) => error,
    };
    if !error.is_data() {
        // An integer of more than 308 digits is valid JSON, although serde_json rejects it.
        return Err(match wide_integer(json).filter(|_| error.to_string().starts_with(OUT_OF_RANGE)) {
            Some(wide) => too_wide(wide),
            None => Invalid::new(Code::NotJson, "", format!("not JSON: {error}")),
        });
    }
    // Report invalid content only if the whole text is JSON.
    if let Err(syntax) = serde_json::from_slice::<serde::de::IgnoredAny>(json) {
        return Err(Invalid::new(Code::NotJson, "", format!("not JSON: {syntax}")));
    }
    if let Some(wide) = wide_integer(json) {
        return Err(too_wide(wide));
    }
    let located = serde_path_to_error::deserialize::<_, T>(Strict(&mut serde_json::Deserializer::from_slice(json)));
    let (path, message) = match located {
        Err(error) => (error.path().to_string(), error.into_inner().to_string()),
        Ok(_) => (String::new(), error.to_string()),
    };
    let path = if path == "." { String::new() } else { path };
    Err(Invalid::new(code_of(&path), path, message))
}

fn parse_strictly<T: DeserializeOwned>(json: &[u8]) -> Result<T, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let value = T::deserialize(Strict(&mut deserializer))?;
    deserializer.end()?;
    Ok(value)
}

/// The beginning of serde_json's error message for a number that exceeds the range of a double.
const OUT_OF_RANGE: &str = "number out of range";

fn too_wide((path, token): (String, String)) -> Invalid {
    Invalid::new(Code::InvalidInteger, path, format!("{token} does not fit in a signed 64-bit integer"))
}

fn code_of(path: &str) -> Code {
    // Errors in the parts of a transaction have the codes of those parts.
    let part = ["commits[", "expect["].into_iter().find_map(|list| path.strip_prefix(list));
    let path = part.and_then(|rest| rest.split_once("].")).map_or(path, |(_, field)| field);
    let event_field = path.strip_prefix("events[").and_then(|rest| rest.split_once("].")).map(|(_, field)| field);
    match (path, event_field) {
        (_, Some(field)) if field == "data" || field.starts_with("data.") || field.starts_with("data[") => {
            Code::InvalidData
        }
        (_, Some(field)) if field == "metadata" || field.starts_with("metadata.") => Code::InvalidMetadata,
        (_, Some("time")) => Code::InvalidTime,
        (_, Some("id")) => Code::InvalidId,
        ("expected_version", _) => Code::InvalidVersion,
        (path, _) if path.starts_with("reserve") || path.starts_with("release") => Code::InvalidKeys,
        (path, _) if path.starts_with("append_condition") => Code::InvalidAppendCondition,
        (path, _) if path == "header" || path.starts_with("header.") => Code::InvalidHeader,
        _ => Code::InvalidBody,
    }
}

impl CommitBody {
    /// Returns the commit that a body describes, at this path of the request. The rules of [`NewCommit::validate`] are not checked here.
    ///
    /// # Errors
    /// `invalid_wait`.
    pub(super) fn commit(self, path: &str) -> Result<NewCommit, Invalid> {
        let body = self;
        let wait = WaitBody::wait(body.wait.as_ref(), path)?;
        let event = |event: EventBody| NewEvent {
            event_type: event.event_type,
            generation: event.generation,
            data: event.data,
            id: event.id,
            tags: event.tags,
            public: event.public,
            metadata: event.metadata,
            time: event.time,
        };
        Ok(NewCommit {
            aggregate: body.aggregate,
            expected_version: body.expected_version,
            request_id: body.request_id,
            command_id: body.command_id,
            events: body.events.into_iter().map(event).collect(),
            header: body.header,
            tenant_id: body.tenant_id,
            owner_id: body.owner_id,
            space_id: body.space_id,
            correlation_id: body.correlation_id,
            causation_id: body.causation_id,
            append_condition: body
                .append_condition
                .map(|AppendConditionBody { fail_if, after }| AppendCondition { fail_if, after }),
            keys: KeyChanges { release: body.release, reserve: body.reserve },
            wait,
        })
    }
}

impl From<NewCommit> for CommitBody {
    fn from(commit: NewCommit) -> Self {
        let event = |event: NewEvent| EventBody {
            event_type: event.event_type,
            generation: event.generation,
            data: event.data,
            id: event.id,
            tags: event.tags,
            public: event.public,
            metadata: event.metadata,
            time: event.time,
        };
        Self {
            aggregate: commit.aggregate,
            expected_version: commit.expected_version,
            request_id: commit.request_id,
            command_id: commit.command_id,
            events: commit.events.into_iter().map(event).collect(),
            header: commit.header,
            tenant_id: commit.tenant_id,
            owner_id: commit.owner_id,
            space_id: commit.space_id,
            correlation_id: commit.correlation_id,
            causation_id: commit.causation_id,
            append_condition: commit
                .append_condition
                .map(|AppendCondition { fail_if, after }| AppendConditionBody { fail_if, after }),
            reserve: commit.keys.reserve,
            release: commit.keys.release,
            wait: WaitBody::of(&commit.wait),
        }
    }
}

fn one() -> u32 {
    1
}

fn is_one(generation: &u32) -> bool {
    *generation == 1
}

fn is_any(expected: &ExpectedVersion) -> bool {
    *expected == ExpectedVersion::Any
}

pub(super) mod expected_version {
    use super::*;

    pub fn serialize<S: Serializer>(expected: &ExpectedVersion, serializer: S) -> Result<S::Ok, S::Error> {
        match expected {
            ExpectedVersion::Exact(version) => serializer.serialize_u64(*version),
            word => serializer.collect_str(word),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ExpectedVersion, D::Error> {
        struct Words;
        impl Visitor<'_> for Words {
            type Value = ExpectedVersion;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a whole number from 0, \"any\", \"empty\" or \"exists\"")
            }

            fn visit_u64<E>(self, version: u64) -> Result<ExpectedVersion, E> {
                Ok(ExpectedVersion::Exact(version))
            }

            fn visit_str<E: serde::de::Error>(self, word: &str) -> Result<ExpectedVersion, E> {
                match word {
                    "any" => Ok(ExpectedVersion::Any),
                    "empty" => Ok(ExpectedVersion::Empty),
                    "exists" => Ok(ExpectedVersion::Exists),
                    _ => Err(E::invalid_value(serde::de::Unexpected::Str(word), &self)),
                }
            }
        }
        deserializer.deserialize_any(Words)
    }
}

pub(super) mod header {
    use super::*;

    pub fn serialize<S: Serializer>(header: &[(ByteString, ByteString)], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(header.iter().map(|(key, value)| (key, value)))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(ByteString, ByteString)>, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Vec<(ByteString, ByteString)>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object whose values are strings")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(pairs)
            }
        }
        deserializer.deserialize_map(Pairs)
    }
}

mod uuid_text {
    use super::*;

    pub fn serialize<S: Serializer>(id: &Option<Uuid>, serializer: S) -> Result<S::Ok, S::Error> {
        id.serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Uuid>, D::Error> {
        let Some(text) = Option::<std::borrow::Cow<'de, str>>::deserialize(deserializer)? else { return Ok(None) };
        let id = Uuid::try_parse(&text).map_err(|_| {
            D::Error::custom(format_args!("{text:?} is not a UUID such as 0190e5a4-8f3e-7c21-9d30-3f6f0d1f7b11"))
        })?;
        Ok(Some(id))
    }
}

#[cfg(test)]
mod tests;
