//! The stored form of sagas: definitions with their versions, and one record for each saga.

use bson::{DateTime, Document};
use serde::{Deserialize, Serialize};

use super::SagaDefinition;
use crate::order::Direction;
use crate::{Code, Index, Invalid, RecordType, Timestamp, names};

/// The collection of definitions.
pub const SAGA_DEFINITIONS: &str = "annals-saga-definitions";
/// The collection of sagas, as Integr8sCode calls it.
pub const SAGAS: &str = "sagas";
/// The collection of operators' requests that the owners of sagas have not processed yet.
pub const SAGA_REQUESTS: &str = "annals-saga-requests";

/// A definition with its versions. Sagas keep the version with which they began.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SagaDefinitionRecord {
    /// Its name.
    #[serde(rename = "_id")]
    pub name: String,
    /// The versions, the newest last.
    pub versions: Vec<SagaVersion>,
    /// When it was first defined.
    pub defined: DateTime,
}

/// A version of a definition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SagaVersion {
    /// Its number.
    pub version: i64,
    /// The body of the definition, as JSON.
    pub definition: String,
    /// When it was defined.
    pub since: DateTime,
}

/// Tells the owner of a definition that an operator requested an act on a saga.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SagaRequestRecord {
    /// The saga.
    #[serde(rename = "_id")]
    pub saga_id: String,
    /// Its definition.
    pub saga_name: String,
    /// When it was requested.
    pub at: DateTime,
}

/// The state of a saga.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SagaState {
    /// It has not begun a step yet.
    Created,
    /// Its steps are running.
    Running,
    /// Its compensations are running.
    Compensating,
    /// Every step completed.
    Completed,
    /// A step failed, and its steps were compensated.
    Failed,
    /// A step or the saga exceeded its time limit, and its steps were compensated.
    Timeout,
    /// It was cancelled, and its steps were compensated.
    Cancelled,
}

impl SagaState {
    /// Every state.
    pub const ALL: [Self; 7] = [
        Self::Created,
        Self::Running,
        Self::Compensating,
        Self::Completed,
        Self::Failed,
        Self::Timeout,
        Self::Cancelled,
    ];

    /// Returns its name in the API and in records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Running => "running",
            Self::Compensating => "compensating",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
        }
    }

    /// Returns the state with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }

    /// Returns whether the saga has ended.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Timeout | Self::Cancelled)
    }
}

/// A saga. The fields other than `annals` are those of Integr8sCode's collection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SagaRecord {
    /// The same as `saga_id`.
    #[serde(rename = "_id")]
    pub id: String,
    /// Its id, derived from its name and correlation.
    pub saga_id: String,
    /// The name of its definition.
    pub saga_name: String,
    /// The correlation that its events share.
    pub execution_id: String,
    /// Its state.
    pub state: SagaState,
    /// The step or compensation that is running.
    pub current_step: Option<String>,
    /// The completed steps, in order.
    pub completed_steps: Vec<String>,
    /// The completed compensations, in order.
    pub compensated_steps: Vec<String>,
    /// The context.
    pub context_data: Document,
    /// The cause of the failure.
    pub error_message: Option<String>,
    /// When it began.
    pub created_at: DateTime,
    /// When it last changed.
    pub updated_at: DateTime,
    /// When it ended.
    pub completed_at: Option<DateTime>,
    /// The number of retries of steps and compensations.
    pub retry_count: i64,
    /// Changes with each write; a write expects the revision that was read.
    pub revision_id: bson::Uuid,
    /// The fields that only Annals uses.
    pub annals: SagaInner,
}

/// What a saga is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SagaPhase {
    /// The step or compensation is running.
    Acting,
    /// Its commands are being committed.
    Sending,
    /// The step awaits an event or its time limit.
    Awaiting,
    /// The step or compensation failed and will be retried.
    Pausing,
    /// The compensation has failed too often and waits for an operator.
    Parked,
    /// The saga has ended.
    Ended,
}

/// The fields of a saga that only Annals uses.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SagaInner {
    /// The version of its definition.
    pub version: i64,
    /// Counts its writes.
    pub turn: i64,
    /// What it is doing.
    pub phase: SagaPhase,
    /// The index of the step.
    pub step: i64,
    /// The number of the attempt of the step or compensation, from 1.
    pub attempt: i64,
    /// The number of commands of this step that have been committed.
    pub sent: i64,
    /// When it is next due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<DateTime>,
    /// When the step or compensation is retried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume_at: Option<DateTime>,
    /// When the step exceeds its time limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_at: Option<DateTime>,
    /// When the saga exceeds its time limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_at: Option<DateTime>,
    /// Since when it is parked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parked: Option<DateTime>,
    /// Commands and events of the saga that are decided but not known to be committed, in order.
    pub outbox: Vec<OutboxEntry>,
    /// Events that arrived before the step that awaits them.
    pub arrived: Vec<Document>,
    /// The ids of the last events that it took.
    pub taken: Vec<String>,
    /// The indexes of the steps that are still to be compensated, the next one last.
    pub undo: Vec<i64>,
    /// Whether compensations are running.
    pub undoing: bool,
    /// How it ends, and why; `None` while it succeeds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ending: Option<SagaEnding>,
    /// The act that an operator requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<SagaAsked>,
    /// The attempts, newest last.
    pub timeline: Vec<TimelineEntry>,
    /// The id of the event that started it.
    pub initial_event: String,
    /// Its duration in milliseconds, once it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<i64>,
}

/// An event to be committed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OutboxEntry {
    /// The request id, which makes a repeat add nothing.
    pub request: String,
    /// The name of the aggregate.
    pub aggregate: String,
    /// The id of the aggregate.
    pub aggregate_id: String,
    /// The type of the event.
    #[serde(rename = "type")]
    pub event_type: String,
    /// Its data.
    pub data: Document,
    /// Its tags.
    pub tags: Vec<String>,
    /// Whether it is the command of a step; otherwise it is an event of the saga itself.
    pub command: bool,
}

/// The ending of a saga that does not complete.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SagaEnding {
    /// The state at the end.
    pub state: SagaState,
    /// The step at which it stopped advancing.
    pub step: Option<String>,
    /// The reason.
    pub reason: String,
    /// Who cancelled it.
    pub by: Option<String>,
}

/// An act that an operator requested of a saga.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SagaAsked {
    /// `cancel` or `retry`.
    pub act: String,
    /// The reason.
    pub reason: String,
    /// The operator.
    pub by: Option<String>,
}

/// One attempt of a step or compensation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TimelineEntry {
    /// The step or compensation.
    pub name: String,
    /// `action` or `compensation`.
    pub kind: String,
    /// `running`, `awaiting`, `completed`, `failed`, `timeout` or `parked`.
    pub state: String,
    /// The number of the attempt, from 1.
    pub attempt: i64,
    /// When it began.
    pub at: DateTime,
    /// When it ended.
    pub ended: Option<DateTime>,
    /// Why it failed.
    pub reason: Option<String>,
}

impl RecordType for SagaDefinitionRecord {
    const COLLECTION: &'static str = SAGA_DEFINITIONS;
    // Other processes that run sagas follow changes of definitions.
    const FEED: bool = true;
}

impl RecordType for SagaRequestRecord {
    const COLLECTION: &'static str = SAGA_REQUESTS;
    const FEED: bool = true;
}

impl RecordType for SagaRecord {
    const COLLECTION: &'static str = SAGAS;

    fn indexes() -> Vec<Index> {
        use Direction::Ascending;
        let named = |name: &str, fields: &[&str]| {
            let fields = fields.iter().map(|field| (*field, Ascending));
            crate::OrderedIndex { name: name.to_owned(), ..Index::ordered(fields) }
        };
        let unique = |index: crate::OrderedIndex| crate::OrderedIndex { unique: true, ..index };
        vec![
            unique(named("saga_id_1", &["saga_id"])).into(),
            named("saga_name_1", &["saga_name"]).into(),
            named("execution_id_1", &["execution_id"]).into(),
            named("created_at_1", &["created_at"]).into(),
            named("idx_saga_state", &["state"]).into(),
            named("idx_saga_state_created", &["state", "created_at"]).into(),
            unique(named("idx_saga_execution_name_unique", &["execution_id", "saga_name"])).into(),
            // Due sagas are found without scanning those that wait.
            named("annals_due", &["saga_name", "annals.due"]).into(),
            named("annals_parked", &["saga_name", "annals.parked"]).into(),
            named("annals_name_state", &["saga_name", "state"]).into(),
        ]
    }
}

/// Returns the id of the saga with this name and correlation.
pub fn saga_id(name: &str, execution_id: &str) -> String {
    names::uuid_of("saga", &format!("{name}/{execution_id}")).to_string()
}

pub(super) fn date(time: Timestamp) -> DateTime {
    DateTime::from_millis(time.as_millis())
}

pub(super) fn time(date: DateTime) -> Timestamp {
    Timestamp::from_millis(date.timestamp_millis())
}

impl SagaDefinitionRecord {
    /// Creates a definition without versions.
    pub fn new(name: &str, at: Timestamp) -> Self {
        Self { name: name.to_owned(), versions: Vec::new(), defined: date(at) }
    }

    /// Adds a version.
    pub fn add(&mut self, version: u32, definition: &SagaDefinition, at: Timestamp) {
        let version = SagaVersion { version: version.into(), definition: definition.write(), since: date(at) };
        self.versions.push(version);
    }

    /// Returns the name of its processor.
    pub fn processor(&self) -> String {
        format!("saga/{}", self.name)
    }
}

impl SagaVersion {
    /// Parses the definition.
    ///
    /// # Errors
    /// `invalid_saga` if other software changed it into something that is not a definition.
    pub fn read(&self, name: &str) -> Result<SagaDefinition, Invalid> {
        let version = u32::try_from(self.version).unwrap_or(1);
        let read = SagaDefinition::read_any(name, self.definition.as_bytes());
        read.map(|definition| definition.with_version(version)).map_err(|error| {
            let path = format!("{SAGA_DEFINITIONS}/{name}");
            Invalid::new(Code::InvalidSaga, path, format!("is stored with an invalid definition: {error}"))
        })
    }
}

impl SagaRecord {
    /// Returns when the saga is next due; a time in the past if it has work to do now.
    pub fn due(&self) -> Option<Timestamp> {
        self.annals.due.map(time)
    }

    /// Returns when the next time limit or pause ends.
    pub fn timer(&self) -> Option<Timestamp> {
        let inner = &self.annals;
        // While commands are being committed, wait for their outcome first.
        let forward = !inner.undoing && !matches!(inner.phase, SagaPhase::Ended | SagaPhase::Sending);
        let limits = [inner.limit_at, inner.ends_at].into_iter().flatten().filter(|_| forward);
        let pause = inner.resume_at.filter(|_| inner.phase == SagaPhase::Pausing);
        limits.chain(pause).map(time).min()
    }

    /// Returns whether it has work that waits for neither an event nor a time.
    pub fn has_work(&self) -> bool {
        !self.annals.outbox.is_empty() || self.annals.phase == SagaPhase::Acting || self.annals.asked.is_some()
    }

    /// Marks the record as changed, with a new revision.
    pub(super) fn turned(&mut self, now: Timestamp) {
        self.annals.turn += 1;
        self.updated_at = date(now);
        let revision = names::uuid_of("saga-revision", &format!("{}/{}", self.saga_id, self.annals.turn));
        self.revision_id = bson::Uuid::from_bytes(revision.into_bytes());
        self.annals.due = match self.has_work() {
            // Due whatever the clock says after a crash.
            true => Some(DateTime::from_millis(0)),
            false => self.timer().map(date),
        };
    }

    /// Requests an act from the owner. The caller writes the record, expecting the revision that it read.
    pub fn ask(&mut self, asked: SagaAsked, now: Timestamp) {
        self.annals.asked = Some(asked);
        self.turned(now);
    }
}
