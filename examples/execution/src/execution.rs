//! Reads an execution from the log.

use annals::server::Problem;
use annals::{Aggregate, Code, EventLog, ReadError, RecordedEvent};
use serde_json::{Value, json};

use crate::events::{self, AGGREGATE, REQUESTED, Requested, TERMINAL};
use crate::step::events_of;

/// An execution with its events.
#[derive(Debug)]
pub(crate) struct Execution {
    /// Its events, in order. The first is the request.
    pub(crate) events: Vec<RecordedEvent>,
}

/// The status of an execution. The names are those of Integr8sCode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    Queued,
    Scheduled,
    Running,
    Completed,
    Failed,
    Timeout,
    Cancelled,
}

impl Status {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Scheduled => "scheduled",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        let all = [
            Self::Queued,
            Self::Scheduled,
            Self::Running,
            Self::Completed,
            Self::Failed,
            Self::Timeout,
            Self::Cancelled,
        ];
        all.into_iter().find(|status| status.name() == name)
    }

    pub(crate) fn is_over(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Timeout | Self::Cancelled)
    }

    /// Returns the status after an event; `None` if the event changes nothing. Only the first terminal event counts.
    pub(crate) fn after(self, event_type: &str) -> Option<Self> {
        let next = match event_type {
            _ if self.is_over() => return None,
            events::SLOT_GRANTED => Self::Scheduled,
            events::STARTED => Self::Running,
            events::COMPLETED => Self::Completed,
            events::FAILED => Self::Failed,
            events::TIMEOUT => Self::Timeout,
            events::CANCELLED => Self::Cancelled,
            _ => return None,
        };
        Some(next)
    }
}

impl Execution {
    /// Reads an execution. Returns `None` if no request has this id.
    pub(crate) async fn read(log: &dyn EventLog, id: &str) -> Result<Option<Self>, ReadError> {
        let (events, _) = events_of(log, &Aggregate::new(AGGREGATE, id)).await?;
        let first = events.iter().position(|event| &*event.event_type == REQUESTED);
        Ok(first.map(|first| Self { events: events[first..].to_vec() }))
    }

    /// Reads an execution that a user may see.
    ///
    /// # Errors
    /// 404 if it does not exist, 403 if it belongs to another user.
    pub(crate) async fn of_caller(
        log: &dyn EventLog,
        id: &str,
        caller: &crate::users::Caller,
    ) -> Result<Self, Problem> {
        let found = match annals::valid_id("id", id) {
            Ok(()) => Self::read(log, id).await?,
            Err(_) => None,
        };
        let Some(found) = found else {
            let advice =
                "Correct the id: POST /executions returned it, and GET /executions lists the executions of a user.";
            return Err(Problem::new(Code::UnknownRecord, format!("there is no execution {id:?}")).advise(advice));
        };
        caller.may_see(found.user())?;
        Ok(found)
    }

    pub(crate) fn request(&self) -> &RecordedEvent {
        &self.events[0]
    }

    pub(crate) fn requested(&self) -> Result<Requested, String> {
        self.request().data.decode().map_err(|error| format!("the request cannot be read: {error}"))
    }

    pub(crate) fn user(&self) -> &str {
        events::user_of(self.request())
    }

    pub(crate) fn status(&self) -> Status {
        let next = |status: Status, event: &RecordedEvent| status.after(&event.event_type).unwrap_or(status);
        self.events.iter().fold(Status::Queued, next)
    }

    pub(crate) fn terminal(&self) -> Option<&RecordedEvent> {
        self.events.iter().find(|event| TERMINAL.contains(&&*event.event_type))
    }

    pub(crate) fn has(&self, event_type: &str) -> bool {
        self.last(event_type).is_some()
    }

    /// Returns its latest event of a type.
    pub(crate) fn last(&self, event_type: &str) -> Option<&RecordedEvent> {
        self.events.iter().rev().find(|event| &*event.event_type == event_type)
    }

    /// Returns the execution as the API shows it, without its output.
    pub(crate) fn shown(&self) -> Value {
        let requested = self.requested();
        let of_request = |pick: fn(&Requested) -> Value| requested.as_ref().map_or(Value::Null, pick);
        let terminal: Value = self.terminal().and_then(|event| event.data.decode().ok()).unwrap_or_default();
        let pod: Value = self.last(events::POD_CREATED).and_then(|event| event.data.decode().ok()).unwrap_or_default();
        json!({
            "execution_id": &*self.request().commit.aggregate.id,
            "user_id": self.user(),
            "status": self.status().name(),
            "language": of_request(|it| it.language.clone().into()),
            "language_version": of_request(|it| it.language_version.clone().into()),
            "priority": of_request(|it| it.priority().as_str().into()),
            "timeout_seconds": of_request(|it| it.timeout_seconds.into()),
            "memory_limit": of_request(|it| it.memory_limit.clone().into()),
            "exit_code": terminal["exit_code"],
            "error_type": terminal["error_type"],
            "reason": terminal["reason"],
            "pod_name": pod["pod_name"],
            "result_stored": self.has(events::RESULT_STORED),
            "created_at": self.request().time.to_string(),
            "ended_at": self.terminal().map(|event| event.time.to_string()),
        })
    }
}
