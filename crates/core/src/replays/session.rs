//! The state machine of a replay: how acts and sent events change the stored session. It does no I/O.
//!
//! ```text
//!  created ─ start ─▶ running ─┬─ all sent ───────▶ completed
//!     │                ▲   │   └─ error, on_error stop ─▶ failed
//!     │         resume │   │ pause
//!     │                └─ paused
//!     └───────── cancel ─── from each of the three ─▶ cancelled
//! ```

use bson::Bson;
use serde::{Deserialize, Serialize};

use super::stored::{SessionErrorRecord, date};
use super::{OnError, ReplayAct, ReplaySession};
use crate::Timestamp;

/// The state of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplayState {
    /// Other software previewed its events.
    Preview,
    /// Other software will start it.
    Scheduled,
    /// It has not been started.
    Created,
    /// It sends events.
    Running,
    /// It sends nothing until it is resumed.
    Paused,
    /// It has sent every event.
    Completed,
    /// It stopped after an event that could not be sent, or could not continue.
    Failed,
    /// An operator ended it.
    Cancelled,
}

impl ReplayState {
    /// Returns its name in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Preview => "preview",
            Self::Scheduled => "scheduled",
            Self::Created => "created",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Returns whether the replay has ended.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

/// The outcome of sending an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sent {
    /// The target accepted it.
    Done,
    /// The target does not accept such events.
    Skipped,
    /// It could not be sent, for this reason.
    Failed(String),
    /// It could not be sent, because the target is down.
    Unreachable(String),
}

/// The place of an event in the order of a replay.
#[derive(Debug, Clone, PartialEq)]
pub struct After {
    /// The event's time, if its document has one.
    pub time: Option<Bson>,
    /// The `_id` of its document.
    pub id: Bson,
    /// Its id.
    pub event_id: Option<String>,
}

/// The most failures that are listed.
const ERRORS_MAX: usize = 100;

impl ReplaySession {
    /// Applies an operator's act.
    ///
    /// # Errors
    /// The current state, if it does not permit the act.
    pub fn act(&mut self, act: ReplayAct, now: Timestamp) -> Result<(), ReplayState> {
        let next = match (act, self.status) {
            (ReplayAct::Start, ReplayState::Created) => {
                self.started_at = Some(date(now));
                ReplayState::Running
            }
            (ReplayAct::Pause, ReplayState::Running) => ReplayState::Paused,
            (ReplayAct::Resume, ReplayState::Paused) => ReplayState::Running,
            (ReplayAct::Cancel, ReplayState::Created | ReplayState::Running | ReplayState::Paused) => {
                ReplayState::Cancelled
            }
            (_, state) => return Err(state),
        };
        self.become_state(next, now);
        Ok(())
    }

    fn become_state(&mut self, next: ReplayState, now: Timestamp) {
        if self.status == ReplayState::Running {
            self.annals.ran_ms = self.ran_ms(now);
            self.annals.running_since = None;
        }
        if next == ReplayState::Running {
            self.annals.running_since = Some(date(now));
        }
        if next.is_terminal() {
            self.completed_at = Some(date(now));
        }
        self.status = next;
    }

    /// Returns how long it has been running, in milliseconds.
    pub fn ran_ms(&self, now: Timestamp) -> i64 {
        let since = self.annals.running_since.map(|since| Timestamp::from_millis(since.timestamp_millis()));
        let running = since.map_or(0, |since| now.since(since).as_millis());
        self.annals.ran_ms.saturating_add(i64::try_from(running).unwrap_or(i64::MAX))
    }

    /// Records the number of events to send.
    pub fn counted(&mut self, total: u64) {
        self.total_events = i64::try_from(total).unwrap_or(i64::MAX);
        self.annals.is_counted = true;
    }

    /// Records the outcome of the next event.
    pub fn sent(&mut self, after: After, sent: Sent, on_error: OnError, now: Timestamp) {
        match sent {
            Sent::Done => self.replayed_events += 1,
            Sent::Skipped => self.skipped_events += 1,
            Sent::Failed(reason) | Sent::Unreachable(reason) => {
                self.failed(after.event_id.clone(), reason, on_error, now)
            }
        }
        if let Some(Bson::DateTime(time)) = &after.time {
            self.last_event_at = Some(*time);
        }
        (self.annals.after_time, self.annals.after_id) = (after.time, Some(after.id));
    }

    /// Counts an event that could not be sent. A replay that stops on errors fails with it.
    pub fn failed(&mut self, event_id: Option<String>, reason: String, on_error: OnError, now: Timestamp) {
        self.failed_events += 1;
        if on_error == OnError::Stop && !self.status.is_terminal() {
            let event = event_id.as_deref().unwrap_or("without an id");
            self.error = Some(format!("event {event} could not be sent: {reason}"));
            self.become_state(ReplayState::Failed, now);
        }
        self.list(SessionErrorRecord { timestamp: date(now), error: reason, error_type: None, event_id });
    }

    /// Records that it waits for its target, and why. Returns whether this is new.
    pub fn waits(&mut self, reason: &str) -> bool {
        self.shows(format!("waits for its target: {reason}"))
    }

    /// Records that no running process can send it, and why one of them cannot. Returns whether this is new.
    pub fn is_left(&mut self, reason: &str) -> bool {
        self.shows(format!("waits for a process that can send it: {reason}"))
    }

    fn shows(&mut self, error: String) -> bool {
        let error = Some(error);
        let is_new = self.error != error;
        self.error = error;
        is_new
    }

    /// Records that the target has responded.
    pub fn answered(&mut self) {
        if !self.status.is_terminal() {
            self.error = None;
        }
    }

    /// Records that the target first accepted an event and failed later.
    ///
    /// INVARIANT: [`done`](Self::done) does not change, because the event was already sent and is not sent again. An event that fails in
    /// several groups counts once if its first failure is among those listed.
    pub fn taken_back(&mut self, event_id: Option<String>, reason: String, on_error: OnError, now: Timestamp) {
        let is_listed = event_id.is_some() && self.errors.iter().any(|error| error.event_id == event_id);
        let counts = !is_listed && self.replayed_events > 0;
        self.failed(event_id, reason, on_error, now);
        if counts {
            self.replayed_events -= 1;
        } else {
            self.failed_events -= 1;
        }
    }

    /// Ends a replay that cannot continue.
    pub fn broken(&mut self, kind: &str, reason: String, now: Timestamp) {
        self.error = Some(reason.clone());
        let kind = Some(kind.to_owned());
        self.list(SessionErrorRecord { timestamp: date(now), error: reason, error_type: kind, event_id: None });
        self.become_state(ReplayState::Failed, now);
    }

    /// Ends a replay that has sent every event.
    pub fn completed(&mut self, now: Timestamp) {
        self.become_state(ReplayState::Completed, now);
    }

    fn list(&mut self, error: SessionErrorRecord) {
        if self.errors.len() < ERRORS_MAX {
            self.errors.push(error);
        }
    }

    /// Returns the number of events that are finished: sent, failed or skipped.
    pub fn done(&self) -> u64 {
        (self.replayed_events + self.failed_events + self.skipped_events).cast_unsigned()
    }

    /// Returns the number of events left; `None` if they have not been counted yet.
    pub fn left(&self) -> Option<u64> {
        self.annals.is_counted.then(|| self.total_events.cast_unsigned().saturating_sub(self.done()))
    }
}
