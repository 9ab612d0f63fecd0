//! The state of replays, as the API shows it.

use std::time::Duration;

use bson::DateTime;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ReplayBody, ReplaySession, ReplayState, ReplayTarget};
use crate::browse::{EventSummary, ReplayFilter, percent};
use crate::{ByteString, Timestamp};

/// The body of `POST /v1/replays/preview`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PreviewBody {
    /// Selects the events.
    pub filter: ReplayFilter,
    /// Where they would be sent.
    #[serde(default = "nowhere")]
    pub target: ReplayTarget,
    /// The most events to send.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_events: Option<u64>,
}

fn nowhere() -> ReplayTarget {
    ReplayTarget::Test {}
}

impl PreviewBody {
    /// Returns the replay that is previewed.
    pub fn replay(&self) -> ReplayBody {
        ReplayBody { max_events: self.max_events, ..ReplayBody::new(self.filter.clone(), self.target.clone()) }
    }
}

/// The preview of a replay.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReplayPreview {
    /// The number of events.
    pub count: u64,
    /// The first hundred, by time.
    pub first: Vec<EventSummary>,
    /// Where they would be sent.
    pub target: ReplayTarget,
}

/// The state of a replay.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReplayStatus {
    /// Its id.
    pub session_id: String,
    /// The id that accompanies every event it sends.
    pub replay_id: String,
    /// Its state.
    pub status: ReplayState,
    /// The number of events to send; 0 until they are counted.
    pub total: u64,
    /// The number of events sent.
    pub replayed: u64,
    /// The number of events that could not be sent.
    pub failed: u64,
    /// The number of events that the target does not accept.
    pub skipped: u64,
    /// The percentage of events that are finished.
    pub progress: f64,
    /// When all events will have been sent, at the average pace so far; absent while unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eta: Option<Timestamp>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Timestamp>,
    /// The time of the event that was sent last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_event_at: Option<Timestamp>,
    /// The first hundred failures.
    pub errors: Vec<SessionError>,
    /// Why it failed, or what it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Its settings, as they were submitted.
    pub config: Value,
}

/// A failure of a replay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionError {
    /// The time of the failure.
    pub timestamp: Timestamp,
    /// The failure, for people.
    pub error: String,
    /// The kind of the failure, if it affects the whole session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_type: Option<String>,
    /// The event that could not be sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_id: Option<String>,
}

/// A page of replays.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReplayPage {
    /// The replays, newest first.
    pub items: Vec<ReplayStatus>,
    /// The cursor of the next page; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<ByteString>,
}

fn time(date: DateTime) -> Timestamp {
    Timestamp::from_millis(date.timestamp_millis()).nearest_writable()
}

impl ReplaySession {
    /// Returns the state as the API shows it.
    pub fn shown(&self, now: Timestamp) -> ReplayStatus {
        let errors = self.errors.iter().map(|error| SessionError {
            timestamp: time(error.timestamp),
            error: error.error.clone(),
            error_type: error.error_type.clone(),
            event_id: error.event_id.clone(),
        });
        ReplayStatus {
            session_id: self.session_id.clone(),
            replay_id: self.replay_id.clone(),
            status: self.status,
            total: self.total_events.cast_unsigned(),
            replayed: self.replayed_events.cast_unsigned(),
            failed: self.failed_events.cast_unsigned(),
            skipped: self.skipped_events.cast_unsigned(),
            progress: match self.status {
                ReplayState::Completed => 100.0,
                _ => percent(self.done(), self.total_events.cast_unsigned()),
            },
            eta: self.eta(now),
            created_at: time(self.created_at),
            started_at: self.started_at.map(time),
            completed_at: self.completed_at.map(time),
            last_event_at: self.last_event_at.map(time),
            errors: errors.collect(),
            error: self.error.clone(),
            config: serde_json::from_str(&self.annals.body).unwrap_or_default(),
        }
    }

    fn eta(&self, now: Timestamp) -> Option<Timestamp> {
        let (left, done) = (self.left()?, self.done());
        if self.status != ReplayState::Running || done == 0 {
            return None;
        }
        let each = self.ran_ms(now) as f64 / done as f64;
        Some(now.plus(Duration::try_from_secs_f64(each * left as f64 / 1_000.0).ok()?).nearest_writable())
    }
}
