//! The settings of a replay.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::browse::ReplayFilter;
use crate::limits::REASON_BYTES_MAX;
use crate::{ByteString, Code, Invalid, valid_name};

/// The body of `POST /v1/replays`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplayBody {
    /// The purpose of the replay, for information only.
    #[serde(default)]
    pub replay_type: ReplayType,
    /// Selects the events.
    pub filter: ReplayFilter,
    /// Where they are sent.
    pub target: ReplayTarget,
    /// The order in which they are sent.
    #[serde(default)]
    pub order: ReplayOrder,
    /// The speed relative to the times of the events, 0.1 to 100. As fast as possible if absent or 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed: Option<f64>,
    /// The most events that are sent before the position is stored, 1 to 1,000.
    #[serde(default = "hundred")]
    pub batch_size: u32,
    /// The most events to send.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_events: Option<u64>,
    /// The most events to send per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// What happens after an event that could not be sent.
    #[serde(default)]
    pub on_error: OnError,
    /// How often an event that could not be sent is retried, 0 to 10: after 1 s, 2 s, 4 s, 8 s and then every 10 s.
    #[serde(default)]
    pub retry_attempts: u32,
    /// What happens while the target of a webhook is down: it does not respond, or responds with 408, 429 or 5xx. The default is `wait`,
    /// but `fail` if `retry_attempts` or `on_error: stop` limits the attempts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outage: Option<OnOutage>,
    /// Whether events are sent with their original times instead of the time of sending. Stored events do not change.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub preserve_timestamps: bool,
    /// The reason, for the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The operator, for the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

fn hundred() -> u32 {
    100
}

fn yes() -> bool {
    true
}

fn is_yes(value: &bool) -> bool {
    *value
}

/// The purpose of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplayType {
    /// The events of an execution.
    Execution,
    /// The events of a period.
    TimeRange,
    /// The events of some types.
    EventType,
    /// Any other events.
    #[default]
    Query,
    /// Events that were lost elsewhere.
    Recovery,
}

/// The target of a replay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum ReplayTarget {
    /// Nowhere: events are only counted.
    Test {},
    /// A handler, whose workers pull them alongside its other events.
    Handler {
        /// Its name.
        name: ByteString,
    },
    /// The groups that read a topic.
    Topic {
        /// The topic; if absent, each event goes to the topic of its type.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<ByteString>,
        /// The topics for specific types, which take precedence over `name`.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        topics: BTreeMap<String, ByteString>,
    },
    /// A URL, with one JSON POST for each event. The address is checked as that of a partner is.
    Webhook {
        /// The URL.
        url: String,
    },
    /// A file in the server's folder for exports, with one line of JSON for each event.
    File {
        /// The name of the file.
        name: String,
    },
}

impl ReplayTarget {
    /// Returns its kind in the API.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Test {} => "test",
            Self::Handler { .. } => "handler",
            Self::Topic { .. } => "topic",
            Self::Webhook { .. } => "webhook",
            Self::File { .. } => "file",
        }
    }

    /// Returns the name of the handler, topic or file, if there is one.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Test {} | Self::Webhook { .. } => None,
            Self::Handler { name } => Some(name),
            Self::Topic { name, .. } => name.as_deref(),
            Self::File { name } => Some(name),
        }
    }

    /// Returns the topic to which an event of a type is sent.
    pub fn topic_of<'a>(&'a self, event_type: &'a str) -> &'a str {
        match self {
            Self::Topic { name, topics } => topics.get(event_type).or(name.as_ref()).map_or(event_type, |topic| topic),
            _ => event_type,
        }
    }
}

/// The order of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplayOrder {
    /// By the times of the events; events with the same time are in the order of the log.
    #[default]
    Timestamp,
    /// In the order of the log.
    SequenceNumber,
}

/// What happens after an event that could not be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnError {
    /// The replay continues with the next event.
    #[default]
    Skip,
    /// The replay fails.
    Stop,
}

/// What happens while the target is down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnOutage {
    /// The replay waits with the event until the target responds, without a limit. It retries after 1 s, 2 s, 4 s and so on, and finally
    /// once a minute.
    Wait,
    /// The event counts as one that could not be sent.
    Fail,
}

/// The range of speeds.
const SPEEDS: std::ops::RangeInclusive<f64> = 0.1..=100.0;
const BATCH_MAX: u32 = 1_000;
const RETRIES_MAX: u32 = 10;
/// The longest name of a file, in bytes.
const FILE_NAME_BYTES_MAX: usize = 128;
/// The longest URL, in bytes.
const URL_BYTES_MAX: usize = 2_048;

impl ReplayBody {
    /// Creates a replay of these events to a target, as fast as possible.
    pub fn new(filter: ReplayFilter, target: ReplayTarget) -> Self {
        Self {
            replay_type: ReplayType::Query,
            filter,
            target,
            order: ReplayOrder::Timestamp,
            speed: None,
            batch_size: hundred(),
            max_events: None,
            rate: None,
            on_error: OnError::Skip,
            retry_attempts: 0,
            outage: None,
            preserve_timestamps: true,
            reason: None,
            by: None,
        }
    }

    /// Returns the speed, if it is bounded.
    pub fn pace(&self) -> Option<f64> {
        self.speed.filter(|speed| *speed < *SPEEDS.end())
    }

    /// Returns whether the replay waits while its target is down.
    pub fn waits_for_target(&self) -> bool {
        match self.outage {
            Some(outage) => outage == OnOutage::Wait,
            None => self.retry_attempts == 0 && self.on_error == OnError::Skip,
        }
    }

    /// Checks the filter, the target and the numbers.
    ///
    /// # Errors
    /// `invalid_replay` or `invalid_name`, with the path.
    pub fn validate(&self) -> Result<(), Invalid> {
        let invalid = |path: &str, message: String| Err(Invalid::new(Code::InvalidReplay, path, message));
        if self.filter.is_empty() {
            return invalid("filter", "is not selective; name ids, types, a time or a user".to_owned());
        }
        self.filter.validate("filter.").map_err(|error| Invalid { code: Code::InvalidReplay, ..error })?;
        if let Some(speed) = self.speed
            && !SPEEDS.contains(&speed)
        {
            return invalid(
                "speed",
                format!("{speed} is not between 0.1 and 100; leave it out to send as fast as possible"),
            );
        }
        if !(1..=BATCH_MAX).contains(&self.batch_size) {
            return invalid("batch_size", format!("{} is not between 1 and {BATCH_MAX}", self.batch_size));
        }
        if self.max_events == Some(0) {
            return invalid("max_events", "is 0; leave it out to send all".to_owned());
        }
        if let Some(rate) = self.rate
            && !(rate.is_finite() && rate >= 0.001)
        {
            return invalid("rate", format!("{rate} is not a rate of at least 0.001 events per second"));
        }
        if self.retry_attempts > RETRIES_MAX {
            return invalid("retry_attempts", format!("{} is not between 0 and {RETRIES_MAX}", self.retry_attempts));
        }
        if self.reason.as_ref().is_some_and(|reason| reason.len() > REASON_BYTES_MAX) {
            return invalid("reason", format!("is longer than {REASON_BYTES_MAX} bytes"));
        }
        self.valid_target()
    }

    fn valid_target(&self) -> Result<(), Invalid> {
        match &self.target {
            ReplayTarget::Test {} => Ok(()),
            ReplayTarget::Webhook { url } if url.len() <= URL_BYTES_MAX => Ok(()),
            ReplayTarget::Webhook { .. } => {
                let message = format!("is longer than {URL_BYTES_MAX} bytes");
                Err(Invalid::new(Code::InvalidReplay, "target.url", message))
            }
            ReplayTarget::Handler { name } => valid_name("target.name", name),
            ReplayTarget::Topic { name, topics } => {
                let mut names = name.iter().chain(topics.values());
                names.try_for_each(|name| valid_name("target.name", name))
            }
            ReplayTarget::File { name } => {
                let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
                let is_name = (1..=FILE_NAME_BYTES_MAX).contains(&name.len())
                    && name.bytes().all(is_fine)
                    && !name.starts_with('.');
                if is_name {
                    return Ok(());
                }
                let message = "is not a file name; use A-Z a-z 0-9 _ . - and do not begin with a dot".to_owned();
                Err(Invalid::new(Code::InvalidReplay, "target.name", message))
            }
        }
    }
}
