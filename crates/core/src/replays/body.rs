//! What a replay is made of.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::browse::ReplayFilter;
use crate::{ByteString, Code, Invalid, valid_name};

/// The body of `POST /v1/replays`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplayBody {
    /// What kind of question led to it. It changes nothing.
    #[serde(default)]
    pub replay_type: ReplayType,
    /// Which events.
    pub filter: ReplayFilter,
    /// Where they are sent.
    pub target: ReplayTarget,
    /// In what order.
    #[serde(default)]
    pub order: ReplayOrder,
    /// How many times as fast as the events happened, 0.1 to 100. As fast as possible when absent or 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed: Option<f64>,
    /// Most events that are sent before the position is stored, 1 to 1,000.
    #[serde(default = "hundred")]
    pub batch_size: u32,
    /// Most events of the replay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_events: Option<u64>,
    /// Most events in a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// What happens after an event that could not be sent.
    #[serde(default)]
    pub on_error: OnError,
    /// How often an event is sent again that could not be sent, 0 to 10: after 1 s, 2 s, 4 s, 8 s and then every 10 s.
    #[serde(default)]
    pub retry_attempts: u32,
    /// What happens while the target of a webhook is down: it does not answer, or with 408, 429 or 5xx. When absent `wait`, but `fail`
    /// where `retry_attempts` or `on_error: stop` says how often to attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outage: Option<OnOutage>,
    /// Whether events are sent with the times at which they happened, instead of those at which they are sent. What is stored of them stays
    /// as it is.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub preserve_timestamps: bool,
    /// Why, for the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Who, for the record.
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

/// What kind of question led to a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplayType {
    /// The events of an execution.
    Execution,
    /// Those of a time.
    TimeRange,
    /// Those of some types.
    EventType,
    /// Any others.
    #[default]
    Query,
    /// Those that were lost elsewhere.
    Recovery,
}

/// Where a replay sends events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum ReplayTarget {
    /// Nowhere: events are counted.
    Test {},
    /// To a handler, whose workers pull them beside its other events.
    Handler {
        /// Its name.
        name: ByteString,
    },
    /// To the groups that read a topic.
    Topic {
        /// The topic; that of its type for each event when absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<ByteString>,
        /// The topics of single types, which come before `name`.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        topics: BTreeMap<String, ByteString>,
    },
    /// To a URL, one POST of JSON for each. Addresses are checked as those of partners are.
    Webhook {
        /// Where it is posted to.
        url: String,
    },
    /// To a file of the server's folder for exports, one line of JSON for each.
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

    /// Returns what it names, if it names something.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Test {} | Self::Webhook { .. } => None,
            Self::Handler { name } => Some(name),
            Self::Topic { name, .. } => name.as_deref(),
            Self::File { name } => Some(name),
        }
    }

    /// Returns the topic that an event of a type is sent to.
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
    /// By the time at which events happened, and in the order of the log where it is the same.
    #[default]
    Timestamp,
    /// In the order of the log.
    SequenceNumber,
}

/// What happens after an event that could not be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnError {
    /// The replay continues with the next one.
    #[default]
    Skip,
    /// The replay fails.
    Stop,
}

/// What happens while a target is down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnOutage {
    /// The replay waits with the event until the target answers, for as long as that takes: it attempts it after 1 s, 2 s, 4 s and so on,
    /// at last once a minute.
    Wait,
    /// The event is one that could not be sent.
    Fail,
}

/// The range of speeds.
const SPEEDS: std::ops::RangeInclusive<f64> = 0.1..=100.0;
const BATCH_MAX: u32 = 1_000;
const RETRIES_MAX: u32 = 10;
/// Longest name of a file, in bytes.
const FILE_NAME_BYTES_MAX: usize = 128;
/// Longest URL, in bytes.
const URL_BYTES_MAX: usize = 2_048;
/// Longest reason, in bytes.
const REASON_BYTES_MAX: usize = 4 * 1024;

impl ReplayBody {
    /// A replay of these events to a target, as fast as possible.
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

    /// Whether the replay waits while its target is down.
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
            return invalid("filter", "selects nothing in particular; name ids, types, a time or a user".to_owned());
        }
        self.filter.validate("filter.").map_err(|error| Invalid { code: Code::InvalidReplay, ..error })?;
        if let Some(speed) = self.speed
            && !SPEEDS.contains(&speed)
        {
            return invalid(
                "speed",
                format!("{speed} is not between 0.1 and 100; leave it out for as fast as possible"),
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
            return invalid("rate", format!("{rate} is not a number of events in a second, 0.001 or more"));
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
                let message = "is not the name of a file: A-Z a-z 0-9 _ . - and no dot at the beginning".to_owned();
                Err(Invalid::new(Code::InvalidReplay, "target.name", message))
            }
        }
    }
}
