//! What is stored of sagas: definitions with their versions, and one record for each saga.

use bson::{DateTime, Document};
use serde::{Deserialize, Serialize};

use super::SagaDefinition;
use crate::order::Direction;
use crate::{Code, Index, Invalid, RecordType, Timestamp, names};

/// The collection of definitions.
pub const SAGA_DEFINITIONS: &str = "annals-saga-definitions";
/// The collection of sagas, as Integr8sCode calls it.
pub const SAGAS: &str = "sagas";
/// The collection of what operators asked of sagas and their owners have not seen yet.
pub const SAGA_REQUESTS: &str = "annals-saga-requests";

/// A definition with its versions. Sagas keep the version that they began with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SagaDefinitionRecord {
    /// Its name.
    #[serde(rename = "_id")]
    pub name: String,
    /// The versions, the newest last.
    pub versions: Vec<SagaVersion>,
    /// When it was defined first.
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

/// Tells the owner of a definition that an operator asked something of a saga.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SagaRequestRecord {
    /// The saga.
    #[serde(rename = "_id")]
    pub saga_id: String,
    /// Its definition.
    pub saga_name: String,
    /// When.
    pub at: DateTime,
}

/// The state of a saga.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SagaState {
    /// It has begun no step yet.
    Created,
    /// It carries out its steps.
    Running,
    /// It undoes its steps.
    Compensating,
    /// Every step is done.
    Completed,
    /// A step failed, and what was done is undone.
    Failed,
    /// A step or the saga took longer than it may, and what was done is undone.
    Timeout,
    /// It was cancelled, and what was done is undone.
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

    /// Returns the state of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }

    /// Whether nothing more happens to the saga.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Timeout | Self::Cancelled)
    }
}

/// A saga. The fields beside `annals` are those of Integr8sCode's collection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SagaRecord {
    /// The same as `saga_id`.
    #[serde(rename = "_id")]
    pub id: String,
    /// Its id, which follows from its name and correlation.
    pub saga_id: String,
    /// The name of its definition.
    pub saga_name: String,
    /// What its events have in common.
    pub execution_id: String,
    /// Its state.
    pub state: SagaState,
    /// The step or compensation that is being carried out.
    pub current_step: Option<String>,
    /// The steps that are done, in order.
    pub completed_steps: Vec<String>,
    /// The compensations that are done, in order.
    pub compensated_steps: Vec<String>,
    /// The context.
    pub context_data: Document,
    /// The cause of the failure.
    pub error_message: Option<String>,
    /// When it began.
    pub created_at: DateTime,
    /// When it changed last.
    pub updated_at: DateTime,
    /// When it ended.
    pub completed_at: Option<DateTime>,
    /// How often a step or compensation was attempted again.
    pub retry_count: i64,
    /// Changes with each write; a write expects the one that was read.
    pub revision_id: bson::Uuid,
    /// What Annals knows beside.
    pub annals: SagaInner,
}

/// What a saga is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SagaPhase {
    /// The step or compensation is being carried out.
    Acting,
    /// Its commands are being committed.
    Sending,
    /// The step awaits an event or its limit of time.
    Awaiting,
    /// The step or compensation failed, and is attempted again later.
    Pausing,
    /// The compensation has failed too often and waits for an operator.
    Parked,
    /// Nothing more happens.
    Ended,
}

/// The part of a saga that is Annals' own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SagaInner {
    /// The version of its definition.
    pub version: i64,
    /// Counts its writes.
    pub turn: i64,
    /// What it is at.
    pub phase: SagaPhase,
    /// The index of the step.
    pub step: i64,
    /// Which attempt of the step or compensation it is, from 1.
    pub attempt: i64,
    /// How many commands of this step have been committed.
    pub sent: i64,
    /// When something is to happen next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<DateTime>,
    /// When the step or compensation is attempted again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume_at: Option<DateTime>,
    /// When the step has taken as long as it may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_at: Option<DateTime>,
    /// When the saga has taken as long as it may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_at: Option<DateTime>,
    /// Since when it is parked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parked: Option<DateTime>,
    /// Commands and events of the saga that are decided and not known to be committed, in order.
    pub outbox: Vec<OutboxEntry>,
    /// Events that came before the step that awaits them.
    pub arrived: Vec<Document>,
    /// The ids of the events that it took last.
    pub taken: Vec<String>,
    /// The indexes of steps whose compensations are still to be carried out, the next one last.
    pub undo: Vec<i64>,
    /// Whether compensations are being carried out.
    pub undoing: bool,
    /// How it ends, and why; none while it succeeds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ending: Option<SagaEnding>,
    /// What an operator asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<SagaAsked>,
    /// What happened, the newest last.
    pub timeline: Vec<TimelineEntry>,
    /// The id of the event that started it.
    pub initial_event: String,
    /// How long it took, in milliseconds, once it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<i64>,
}

/// An event that is to be committed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OutboxEntry {
    /// The request id, so that a repetition adds nothing.
    pub request: String,
    /// The name of the aggregate.
    pub aggregate: String,
    /// The id of the aggregate.
    pub aggregate_id: String,
    /// The type of the event.
    #[serde(rename = "type")]
    pub event_type: String,
    /// Its content.
    pub data: Document,
    /// Its tags.
    pub tags: Vec<String>,
    /// Whether it is the command of a step; else it is an event of the saga itself.
    pub command: bool,
}

/// How a saga ends that does not complete.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SagaEnding {
    /// The state at the end.
    pub state: SagaState,
    /// The step at which it turned.
    pub step: Option<String>,
    /// Why.
    pub reason: String,
    /// Who cancelled it.
    pub by: Option<String>,
}

/// What an operator asked of a saga.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SagaAsked {
    /// `cancel` or `retry`.
    pub act: String,
    /// Why.
    pub reason: String,
    /// Who.
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
    /// Which attempt, from 1.
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
    // Processes that run sagas follow what others define.
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
            // What is due is found without looking at what waits.
            named("annals_due", &["saga_name", "annals.due"]).into(),
            named("annals_parked", &["saga_name", "annals.parked"]).into(),
            named("annals_name_state", &["saga_name", "state"]).into(),
        ]
    }
}

/// Returns the id of the saga of a name and correlation.
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
    /// A definition without versions.
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
    /// Returns the definition.
    ///
    /// # Errors
    /// `invalid_saga` when other software changed it into something that is none.
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
    /// When something is to happen next; a time that has passed where work is under way.
    pub fn due(&self) -> Option<Timestamp> {
        self.annals.due.map(time)
    }

    /// When the next limit of time or pause ends.
    pub fn timer(&self) -> Option<Timestamp> {
        let inner = &self.annals;
        // While commands are being committed, their outcome is awaited first.
        let forward = !inner.undoing && !matches!(inner.phase, SagaPhase::Ended | SagaPhase::Sending);
        let limits = [inner.limit_at, inner.ends_at].into_iter().flatten().filter(|_| forward);
        let pause = inner.resume_at.filter(|_| inner.phase == SagaPhase::Pausing);
        limits.chain(pause).map(time).min()
    }

    /// Whether it has work that does not wait for an event or a time.
    pub fn has_work(&self) -> bool {
        !self.annals.outbox.is_empty() || self.annals.phase == SagaPhase::Acting || self.annals.asked.is_some()
    }

    /// Notes that it was written: the revision changes.
    pub(super) fn turned(&mut self, now: Timestamp) {
        self.annals.turn += 1;
        self.updated_at = date(now);
        let revision = names::uuid_of("saga-revision", &format!("{}/{}", self.saga_id, self.annals.turn));
        self.revision_id = bson::Uuid::from_bytes(revision.into_bytes());
        self.annals.due = match self.has_work() {
            // Whatever the clock says after a crash.
            true => Some(DateTime::from_millis(0)),
            false => self.timer().map(date),
        };
    }

    /// Asks the owner for an act. The caller writes the record with the revision that it has read.
    pub fn ask(&mut self, asked: SagaAsked, now: Timestamp) {
        self.annals.asked = Some(asked);
        self.turned(now);
    }
}
