//! What is stored of handlers: one type a collection, whose serde names are the stored field names.

use bson::{Bson, DateTime, doc};
use serde::{Deserialize, Serialize};

use super::HandlerDefinition;
use crate::order::Direction;
use crate::processing::{Failing, Parked, Progress};
use crate::{ByteString, Code, Condition, Identity, Index, Invalid, RecordType, Timestamp};

/// The collection of definitions.
pub const HANDLERS: &str = "annals-handlers";
/// The collection of processors' progress.
pub const PROCESSORS: &str = "annals-processors";
/// The collection of failing partitions.
pub const FAILING_PARTITIONS: &str = "annals-failing-partitions";
/// The collection of parked events.
pub const PARKED_EVENTS: &str = "annals-parked-events";

/// A handler as it is defined.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DefinitionRecord {
    /// Its name.
    #[serde(rename = "_id")]
    pub name: String,
    /// The body of its definition, as JSON.
    pub definition: String,
    /// The position of its source where it begins.
    pub start: i64,
    /// Events from there on are passed over until one is of this time or later; for a start in the future.
    #[serde(rename = "startsAt", default, skip_serializing_if = "Option::is_none")]
    pub starts_at: Option<DateTime>,
    /// The store whose position that is.
    pub store: String,
    /// The store's incarnation when it was defined.
    pub incarnation: i64,
    /// When it was defined first.
    pub defined: DateTime,
}

/// How far a processor is. Its owner alone writes it: each write expects the owner's `epoch` and the `turn` that it wrote last, so a
/// process that lost its lease writes nothing, and a write whose outcome is unknown is told by the turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProcessorRecord {
    /// The processor's name.
    #[serde(rename = "_id")]
    pub name: String,
    /// Which ownership wrote it; each has a greater one.
    pub epoch: i64,
    /// Counts the owner's writes.
    pub turn: i64,
    /// Every event below it is settled, or belongs to a failing partition.
    pub position: i64,
    /// Positions above it whose events are settled: [from, to) pairs.
    pub ahead: Vec<(i64, i64)>,
    /// Whether an operator paused it.
    pub paused: bool,
    /// The number of its failing partitions.
    #[serde(default)]
    pub failing: i64,
    /// How many of them wait for an operator.
    #[serde(default)]
    pub blocked: i64,
    /// Whether it delivers nothing new until an operator decides.
    #[serde(rename = "isBlocked", default)]
    pub is_blocked: bool,
    /// Whether it has come to its `stop_at`.
    #[serde(default)]
    pub ended: bool,
    /// How many events its guard has passed as duplicates.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub duplicates: i64,
    /// Events are passed over until one is of this time or later.
    #[serde(rename = "startsAt", default, skip_serializing_if = "Option::is_none")]
    pub starts_at: Option<DateTime>,
    /// The replay that is not over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<ReplayMark>,
    /// Failing partitions at this position or after it are to be forgotten before anything else is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forgets: Option<i64>,
    /// When the position moved last.
    #[serde(rename = "lastProgress")]
    pub last_progress: Option<DateTime>,
    /// When an event was processed with success last. The position also moves past events that fail.
    #[serde(rename = "lastSuccess", default, skip_serializing_if = "Option::is_none")]
    pub last_success: Option<DateTime>,
    /// What the last failure said.
    #[serde(rename = "lastReason")]
    pub last_reason: Option<String>,
    /// The store whose positions these are.
    pub store: String,
    /// The store's incarnation when it was written.
    pub incarnation: i64,
}

/// A replay, as its processor's record names it; [`ReplayRecord`](super::ReplayRecord) holds the rest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayMark {
    /// The id of its act.
    pub id: String,
    /// Where it began.
    pub from: i64,
    /// Where the processor was then.
    pub to: i64,
}

/// A failing partition of a processor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FailingRecord {
    /// Processor and partition.
    #[serde(rename = "_id")]
    pub id: PartitionId,
    /// The source position of its next event.
    pub position: i64,
    /// The sequence number of the event that failed.
    #[serde(rename = "sequenceNumber")]
    pub sequence_number: i64,
    /// How often that event has failed in a row.
    pub attempts: i64,
    /// What the last failure said.
    pub reason: String,
    /// When it failed last.
    #[serde(rename = "lastFailed")]
    pub last_failed: DateTime,
    /// When it is attempted again; null when an operator must decide.
    #[serde(rename = "retryAt")]
    pub retry_at: Option<DateTime>,
    /// Since when its next event is at `position`.
    pub since: DateTime,
    /// The time of the event that failed.
    #[serde(rename = "eventTime")]
    pub event_time: DateTime,
}

/// What names a partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionId {
    /// The processor.
    pub processor: String,
    /// The partition.
    pub partition: String,
}

/// An event that was taken out of its partition without having been handled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ParkedRecord {
    /// Processor and position.
    #[serde(rename = "_id")]
    pub id: ParkedId,
    /// The partition.
    pub partition: String,
    /// The event's number in the log.
    #[serde(rename = "sequenceNumber")]
    pub sequence_number: i64,
    /// How often it was attempted.
    pub attempts: i64,
    /// What the last attempt said.
    pub reason: String,
    /// When it was parked.
    pub parked: DateTime,
    /// Why an operator parked or skipped it; null when the retry policy did.
    pub act: Option<String>,
}

/// What names a parked event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParkedId {
    /// The processor.
    pub processor: String,
    /// The event's position in its source.
    pub position: i64,
}

impl RecordType for DefinitionRecord {
    const COLLECTION: &'static str = HANDLERS;
    // Processes that own a handler follow what others do to its definition.
    const FEED: bool = true;
}

impl RecordType for ProcessorRecord {
    const COLLECTION: &'static str = PROCESSORS;
}

impl RecordType for FailingRecord {
    const COLLECTION: &'static str = FAILING_PARTITIONS;

    fn indexes() -> Vec<Index> {
        vec![Index::ordered([("_id.processor", Direction::Ascending), ("_id.partition", Direction::Ascending)]).into()]
    }
}

impl RecordType for ParkedRecord {
    const COLLECTION: &'static str = PARKED_EVENTS;

    fn indexes() -> Vec<Index> {
        vec![Index::ordered([("_id.processor", Direction::Ascending), ("_id.position", Direction::Ascending)]).into()]
    }
}

/// What is stored of this processor in [`FAILING_PARTITIONS`] or [`PARKED_EVENTS`].
pub fn partitions_of(processor: &str) -> Condition {
    Condition::eq("_id.processor", processor)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

fn date(time: Timestamp) -> DateTime {
    DateTime::from_millis(time.as_millis())
}

fn time(date: DateTime) -> Timestamp {
    Timestamp::from_millis(date.timestamp_millis())
}

impl DefinitionRecord {
    /// The record of a definition that begins at this position of its source.
    pub fn of(
        definition: &HandlerDefinition,
        (start, starts_at): (u64, Option<Timestamp>),
        identity: &Identity,
        defined: Timestamp,
    ) -> Self {
        Self {
            starts_at: starts_at.map(date),
            name: definition.name.to_string(),
            definition: definition.write(),
            start: start.cast_signed(),
            store: identity.store_id.to_string(),
            incarnation: identity.incarnation.into(),
            defined: date(defined),
        }
    }

    /// The definition.
    ///
    /// # Errors
    /// `invalid_handler` when other software changed it into something that is none.
    pub fn read(&self) -> Result<HandlerDefinition, Invalid> {
        HandlerDefinition::read(&self.name, self.definition.as_bytes()).map_err(|error| {
            let path = format!("{HANDLERS}/{}", self.name);
            Invalid::new(Code::InvalidHandler, path, format!("is stored with a definition that is none: {error}"))
        })
    }
}

impl ProcessorRecord {
    /// How a processor begins: at the start of its definition.
    pub fn first(name: &str, epoch: i64, defined: &DefinitionRecord) -> Self {
        Self {
            name: name.to_owned(),
            epoch,
            turn: 0,
            position: defined.start,
            ahead: Vec::new(),
            paused: false,
            failing: 0,
            blocked: 0,
            is_blocked: false,
            ended: false,
            duplicates: 0,
            starts_at: defined.starts_at,
            replay: None,
            forgets: None,
            last_progress: None,
            last_success: None,
            last_reason: None,
            // So that a start of before a restore is taken back like a position of before it.
            store: defined.store.clone(),
            incarnation: defined.incarnation,
        }
    }

    /// How a processor of the log begins that nobody has owned yet: at the first event.
    pub fn unowned(name: impl Into<String>, identity: &Identity) -> Self {
        Self {
            name: name.into(),
            epoch: 0,
            turn: 0,
            position: 0,
            ahead: Vec::new(),
            paused: false,
            failing: 0,
            blocked: 0,
            is_blocked: false,
            ended: false,
            duplicates: 0,
            starts_at: None,
            replay: None,
            forgets: None,
            last_progress: None,
            last_success: None,
            last_reason: None,
            store: identity.store_id.to_string(),
            incarnation: identity.incarnation.into(),
        }
    }

    /// Events are passed over until one is of this time or later.
    pub fn starts_at(&self) -> Option<Timestamp> {
        self.starts_at.map(time)
    }

    /// How far it is.
    pub fn progress(&self) -> Progress {
        let number = i64::cast_unsigned;
        let ahead = self.ahead.iter().map(|(from, to)| (number(*from), number(*to)));
        Progress { position: number(self.position), ahead: ahead.collect() }
    }

    /// Takes over how far the processor is.
    pub fn set(&mut self, progress: &Progress) {
        let number = u64::cast_signed;
        self.position = number(progress.position);
        self.ahead = progress.ahead.iter().map(|(from, to)| (number(*from), number(*to))).collect();
    }

    /// When the position moved last.
    pub fn last_progress(&self) -> Option<Timestamp> {
        self.last_progress.map(time)
    }

    /// When an event was processed with success last.
    pub fn last_success(&self) -> Option<Timestamp> {
        self.last_success.map(time)
    }

    /// Notes when an event was processed with success last.
    pub fn succeeded(&mut self, at: Option<Timestamp>) {
        self.last_success = at.map(date);
    }

    /// Notes that the position moved.
    pub fn moved(&mut self, at: Timestamp) {
        self.last_progress = Some(date(at));
    }

    /// The condition of a write: that nobody else owns the processor, and that the owner's last write is the last one.
    pub fn unchanged(&self) -> Condition {
        Condition::and([Condition::eq("epoch", self.epoch), Condition::eq("turn", self.turn)])
    }
}

impl FailingRecord {
    /// The record of a failing partition.
    pub fn of(processor: &str, failing: &Failing) -> Self {
        Self {
            id: PartitionId { processor: processor.to_owned(), partition: failing.partition.to_string() },
            position: failing.position.cast_signed(),
            sequence_number: failing.sequence_number.cast_signed(),
            attempts: failing.attempts.into(),
            reason: failing.reason.clone(),
            last_failed: date(failing.last_failed),
            retry_at: failing.retry_at.map(date),
            since: date(failing.since),
            event_time: date(failing.event_time),
        }
    }

    /// The `_id` of the record of a partition.
    pub fn id_of(processor: &str, partition: &str) -> Bson {
        Bson::Document(doc! { "processor": processor, "partition": partition })
    }

    /// The failing partition.
    pub fn read(self) -> Failing {
        Failing {
            partition: ByteString::from(self.id.partition),
            position: self.position.cast_unsigned(),
            sequence_number: self.sequence_number.cast_unsigned(),
            attempts: u32::try_from(self.attempts).unwrap_or(u32::MAX),
            reason: self.reason,
            last_failed: time(self.last_failed),
            retry_at: self.retry_at.map(time),
            since: time(self.since),
            event_time: time(self.event_time),
        }
    }
}

impl ParkedRecord {
    /// The record of a parked event.
    pub fn of(processor: &str, parked: &Parked) -> Self {
        Self {
            id: ParkedId { processor: processor.to_owned(), position: parked.event.position.cast_signed() },
            partition: parked.event.partition.to_string(),
            sequence_number: parked.event.sequence_number.cast_signed(),
            attempts: parked.attempts.into(),
            reason: parked.reason.clone(),
            parked: date(parked.at),
            act: parked.act.clone(),
        }
    }
}
