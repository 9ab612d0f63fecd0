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
    /// Which events.
    pub filter: ReplayFilter,
    /// Where they would be sent.
    #[serde(default = "nowhere")]
    pub target: ReplayTarget,
    /// Most events of the replay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_events: Option<u64>,
}

fn nowhere() -> ReplayTarget {
    ReplayTarget::Test {}
}

impl PreviewBody {
    /// Returns the replay that it previews.
    pub fn replay(&self) -> ReplayBody {
        ReplayBody { max_events: self.max_events, ..ReplayBody::new(self.filter.clone(), self.target.clone()) }
    }
}

/// What a replay would send.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReplayPreview {
    /// How many events.
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
    /// The id that goes with every event it sends.
    pub replay_id: String,
    /// What it is doing.
    pub status: ReplayState,
    /// How many events it sends; 0 until they are counted.
    pub total: u64,
    /// How many it has sent.
    pub replayed: u64,
    /// How many could not be sent.
    pub failed: u64,
    /// How many the target does not take.
    pub skipped: u64,
    /// How many of 100 events it is done with.
    pub progress: f64,
    /// When it will have sent all, at the pace that it had so far; absent while nothing is known.
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
    /// When the event happened that was sent last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_event_at: Option<Timestamp>,
    /// The first hundred failures.
    pub errors: Vec<SessionError>,
    /// Why it failed, or for what it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Its settings, as they were put.
    pub config: Value,
}

/// A failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionError {
    /// When.
    pub timestamp: Timestamp,
    /// What happened.
    pub error: String,
    /// What kind of failure, when it is one of the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_type: Option<String>,
    /// The event that could not be sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_id: Option<String>,
}

/// A page of replays.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReplayPage {
    /// The replays, the newest first.
    pub items: Vec<ReplayStatus>,
    /// Where the next page begins; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<ByteString>,
}

fn time(date: DateTime) -> Timestamp {
    Timestamp::from_millis(date.timestamp_millis()).nearest_writable()
}

impl ReplaySession {
    /// Returns the state, as the API shows it.
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
