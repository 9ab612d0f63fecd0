//! The stored form of a replay, in the layout of Integr8sCode's `replay_sessions`.

use bson::{Bson, DateTime, Document, doc};
use serde::{Deserialize, Serialize};

use super::{OnError, ReplayBody, ReplayState, ReplayTarget};
use crate::{Code, Index, Invalid, OrderedIndex, RecordType, Timestamp};

/// The collection of replays.
pub const REPLAY_SESSIONS: &str = "replay_sessions";

/// A replay.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReplaySession {
    /// Its id.
    #[serde(rename = "_id")]
    pub id: String,
    /// Its id again, as the layout requires.
    pub session_id: String,
    /// Its settings in Integr8sCode's form, for software that knows it.
    pub config: Document,
    /// Its state.
    pub status: ReplayState,
    /// The number of events to send; 0 until they are counted.
    pub total_events: i64,
    /// The number of events sent.
    pub replayed_events: i64,
    /// The number of events that could not be sent.
    pub failed_events: i64,
    /// The number of events that the target does not accept.
    pub skipped_events: i64,
    /// When it was created.
    pub created_at: DateTime,
    /// When it was started.
    pub started_at: Option<DateTime>,
    /// When it ended.
    pub completed_at: Option<DateTime>,
    /// The time of the event that was sent last.
    pub last_event_at: Option<DateTime>,
    /// The first hundred failures.
    pub errors: Vec<SessionErrorRecord>,
    /// The id that accompanies every event it sends.
    pub replay_id: String,
    /// Who created it.
    pub created_by: Option<String>,
    /// Always null.
    pub target_service: Option<String>,
    /// Always false.
    pub dry_run: bool,
    /// Always empty.
    pub triggered_executions: Vec<String>,
    /// Why it failed, or what it waits for.
    pub error: Option<String>,
    /// The state that Annals needs to continue.
    pub annals: ReplayProgress,
}

/// The state that is needed to continue a replay.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ReplayProgress {
    /// The body that created it, as JSON.
    pub body: String,
    /// The head of the log when it was started: later events are not sent.
    pub until: i64,
    /// Whether its events have been counted.
    pub is_counted: bool,
    /// The time of the event that was read last; null if it has none.
    pub after_time: Option<Bson>,
    /// The `_id` of that event; null before the first.
    pub after_id: Option<Bson>,
    /// The length of the file, in bytes.
    pub file_bytes: i64,
    /// How long it had been running before it was last resumed, in milliseconds.
    pub ran_ms: i64,
    /// When it was last started or resumed.
    pub running_since: Option<DateTime>,
}

/// A failure of a replay.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionErrorRecord {
    /// The time of the failure.
    pub timestamp: DateTime,
    /// The failure, for people.
    pub error: String,
    /// The kind of the failure, if it affects the whole session.
    pub error_type: Option<String>,
    /// The event that could not be sent.
    pub event_id: Option<String>,
}

impl RecordType for ReplaySession {
    const COLLECTION: &'static str = REPLAY_SESSIONS;
    // The process that sends the events follows the changes that others make to the replay.
    const FEED: bool = true;

    fn indexes() -> Vec<Index> {
        let unique = OrderedIndex { unique: true, ..Index::on("session_id") };
        let others = ["created_at", "status", "replay_id"].map(|path| Index::on(path).into());
        std::iter::once(unique.into()).chain(others).collect()
    }
}

impl ReplaySession {
    /// Creates a replay that has not been started.
    pub fn new(id: String, replay_id: String, body: &ReplayBody, now: Timestamp) -> Self {
        Self {
            session_id: id.clone(),
            id,
            config: config_of(body),
            status: ReplayState::Created,
            total_events: 0,
            replayed_events: 0,
            failed_events: 0,
            skipped_events: 0,
            created_at: date(now),
            started_at: None,
            completed_at: None,
            last_event_at: None,
            errors: Vec::new(),
            replay_id,
            created_by: body.by.clone(),
            target_service: None,
            dry_run: false,
            triggered_executions: Vec::new(),
            error: None,
            // Strings and finite numbers always serialize.
            annals: ReplayProgress {
                body: serde_json::to_string(body).unwrap_or_default(),
                ..ReplayProgress::default()
            },
        }
    }

    /// Returns the body that created it.
    ///
    /// # Errors
    /// `invalid_replay` if other software replaced it by something that is not a body.
    pub fn body(&self) -> Result<ReplayBody, Invalid> {
        serde_json::from_str(&self.annals.body).map_err(|error| {
            let path = format!("{REPLAY_SESSIONS}/{}", self.id);
            Invalid::new(Code::InvalidReplay, path, format!("is stored with invalid settings: {error}"))
        })
    }
}

pub(super) fn date(time: Timestamp) -> DateTime {
    DateTime::from_millis(time.as_millis())
}

fn config_of(body: &ReplayBody) -> Document {
    let target = match &body.target {
        ReplayTarget::Test {} => "test",
        ReplayTarget::File { .. } => "file",
        ReplayTarget::Topic { .. } => "kafka",
        ReplayTarget::Handler { .. } | ReplayTarget::Webhook { .. } => "callback",
    };
    let replay_type = serde_json::to_value(body.replay_type).unwrap_or_default();
    let mut config = doc! {
        "replay_type": replay_type.as_str().unwrap_or_default(),
        "target": target,
        "filter": bson::serialize_to_document(&body.filter).unwrap_or_default(),
        "speed_multiplier": body.speed.unwrap_or(100.0),
        "preserve_timestamps": body.preserve_timestamps,
        "batch_size": i64::from(body.batch_size),
        "skip_errors": body.on_error == OnError::Skip,
        "retry_failed": body.retry_attempts > 0,
        "retry_attempts": i64::from(body.retry_attempts),
        "enable_progress_tracking": true,
    };
    if let Some(max) = body.max_events {
        config.insert("max_events", i64::try_from(max).unwrap_or(i64::MAX));
    }
    match &body.target {
        ReplayTarget::File { name } => _ = config.insert("target_file_path", name),
        ReplayTarget::Webhook { url } => _ = config.insert("target_url", url),
        ReplayTarget::Topic { topics, .. } => {
            let topics: Document = topics.iter().map(|(of, topic)| (of.clone(), Bson::from(&**topic))).collect();
            config.insert("target_topics", topics);
        }
        _ => {}
    }
    config
}
