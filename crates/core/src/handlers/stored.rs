//! Stored records of handlers: one type per collection, whose serde names are the stored field names.

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

/// The definition of a handler.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DefinitionRecord {
    /// Its name.
    #[serde(rename = "_id")]
    pub name: String,
    /// The body of its definition, as JSON.
    pub definition: String,
    /// The position in its source at which it begins.
    pub start: i64,
    /// Set if the start is in the future: events from `start` on are passed over until one has this time or a later one.
    #[serde(rename = "startsAt", default, skip_serializing_if = "Option::is_none")]
    pub starts_at: Option<DateTime>,
    /// The store that `start` refers to.
    pub store: String,
    /// The store's incarnation when it was defined.
    pub incarnation: i64,
    /// When it was first defined.
    pub defined: DateTime,
}

/// The progress of a processor. Only its owner writes it: each write expects the owner's `epoch` and the `turn` of the owner's last write.
/// A process that lost its lease therefore writes nothing, and the turn tells whether a write of unknown outcome was
/// stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProcessorRecord {
    /// The processor's name.
    #[serde(rename = "_id")]
    pub name: String,
    /// The ownership that wrote it; each new one is greater.
    pub epoch: i64,
    /// The number of the owner's writes.
    pub turn: i64,
    /// INVARIANT: every event below it is settled, or belongs to a failing partition.
    pub position: i64,
    /// Positions above it whose events are settled, as pairs [from, to).
    pub ahead: Vec<(i64, i64)>,
    /// Whether an operator paused it.
    pub paused: bool,
    /// The number of its failing partitions.
    #[serde(default)]
    pub failing: i64,
    /// The number of failing partitions that wait for an operator.
    #[serde(default)]
    pub blocked: i64,
    /// Whether it delivers no new event until an operator decides.
    #[serde(rename = "isBlocked", default)]
    pub is_blocked: bool,
    /// Whether it has reached its `stop_at`.
    #[serde(default)]
    pub ended: bool,
    /// The number of events that its guard has passed as duplicates.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub duplicates: i64,
    /// Events are passed over until one has this time or a later one.
    #[serde(rename = "startsAt", default, skip_serializing_if = "Option::is_none")]
    pub starts_at: Option<DateTime>,
    /// The replay that has not finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<ReplayMark>,
    /// Failing partitions at this position or after it must be deleted before anything else happens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forgets: Option<i64>,
    /// When the position last moved.
    #[serde(rename = "lastProgress")]
    pub last_progress: Option<DateTime>,
    /// When an event was last processed successfully. The position also moves past events that fail.
    #[serde(rename = "lastSuccess", default, skip_serializing_if = "Option::is_none")]
    pub last_success: Option<DateTime>,
    /// The reason of the last failure.
    #[serde(rename = "lastReason")]
    pub last_reason: Option<String>,
    /// The store that the positions refer to.
    pub store: String,
    /// The store's incarnation when it was written.
    pub incarnation: i64,
}

/// The part of a replay that is kept in its processor's record; [`ReplayRecord`](super::ReplayRecord) holds the rest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayMark {
    /// The id of its act.
    pub id: String,
    /// The position at which it began.
    pub from: i64,
    /// The processor's position at that time.
    pub to: i64,
}

/// A failing partition of a processor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FailingRecord {
    /// The processor and the partition.
    #[serde(rename = "_id")]
    pub id: PartitionId,
    /// The source position of its next event.
    pub position: i64,
    /// The sequence number of the event that failed.
    #[serde(rename = "sequenceNumber")]
    pub sequence_number: i64,
    /// The number of failures of that event in a row.
    pub attempts: i64,
    /// The reason of the last failure.
    pub reason: String,
    /// When it last failed.
    #[serde(rename = "lastFailed")]
    pub last_failed: DateTime,
    /// When it is retried; null if an operator must decide.
    #[serde(rename = "retryAt")]
    pub retry_at: Option<DateTime>,
    /// When its next event became the one at `position`.
    pub since: DateTime,
    /// The time of the event that failed.
    #[serde(rename = "eventTime")]
    pub event_time: DateTime,
}

/// Identifies a partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionId {
    /// The processor.
    pub processor: String,
    /// The partition.
    pub partition: String,
}

/// An event that was taken out of its partition without being handled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ParkedRecord {
    /// The processor and the position.
    #[serde(rename = "_id")]
    pub id: ParkedId,
    /// The partition.
    pub partition: String,
    /// The event's sequence number.
    #[serde(rename = "sequenceNumber")]
    pub sequence_number: i64,
    /// The number of its attempts.
    pub attempts: i64,
    /// The reason of the last failure.
    pub reason: String,
    /// When it was parked.
    pub parked: DateTime,
    /// The operator's reason for parking or skipping it; null if the retry policy parked it.
    pub act: Option<String>,
}

/// Identifies a parked event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParkedId {
    /// The processor.
    pub processor: String,
    /// The event's position in its source.
    pub position: i64,
}

impl RecordType for DefinitionRecord {
    const COLLECTION: &'static str = HANDLERS;
    // The process that owns a handler follows changes that other processes make to its definition.
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

/// Returns the condition for this processor's records in [`FAILING_PARTITIONS`] or [`PARKED_EVENTS`].
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
    /// Returns the record of a definition that begins at this position of its source.
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

    /// Reads the definition.
    ///
    /// # Errors
    /// `invalid_handler` if other software changed it into something that is not a definition.
    pub fn read(&self) -> Result<HandlerDefinition, Invalid> {
        HandlerDefinition::read(&self.name, self.definition.as_bytes()).map_err(|error| {
            let path = format!("{HANDLERS}/{}", self.name);
            Invalid::new(Code::InvalidHandler, path, format!("is stored with an invalid definition: {error}"))
        })
    }
}

impl ProcessorRecord {
    /// Returns the first record of a processor, at the start of its definition.
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
            // A start from before a restore is then taken back like a position from before it.
            store: defined.store.clone(),
            incarnation: defined.incarnation,
        }
    }

    /// Returns the first record of a processor of the log that has had no owner yet, at the first event.
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

    /// Returns the time before which events are passed over.
    pub fn starts_at(&self) -> Option<Timestamp> {
        self.starts_at.map(time)
    }

    /// Returns the progress of the processor.
    pub fn progress(&self) -> Progress {
        let number = i64::cast_unsigned;
        let ahead = self.ahead.iter().map(|(from, to)| (number(*from), number(*to)));
        Progress { position: number(self.position), ahead: ahead.collect() }
    }

    /// Sets the progress of the processor.
    pub fn set(&mut self, progress: &Progress) {
        let number = u64::cast_signed;
        self.position = number(progress.position);
        self.ahead = progress.ahead.iter().map(|(from, to)| (number(*from), number(*to))).collect();
    }

    /// Returns when the position last moved.
    pub fn last_progress(&self) -> Option<Timestamp> {
        self.last_progress.map(time)
    }

    /// Returns when an event was last processed successfully.
    pub fn last_success(&self) -> Option<Timestamp> {
        self.last_success.map(time)
    }

    /// Sets when an event was last processed successfully.
    pub fn succeeded(&mut self, at: Option<Timestamp>) {
        self.last_success = at.map(date);
    }

    /// Sets when the position last moved.
    pub fn moved(&mut self, at: Timestamp) {
        self.last_progress = Some(date(at));
    }

    /// Returns the condition of a write: that no other process owns the processor, and that no write followed the owner's last one.
    pub fn unchanged(&self) -> Condition {
        Condition::and([Condition::eq("epoch", self.epoch), Condition::eq("turn", self.turn)])
    }
}

impl FailingRecord {
    /// Converts a failing partition to its record.
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

    /// Returns the `_id` of the record of a partition.
    pub fn id_of(processor: &str, partition: &str) -> Bson {
        Bson::Document(doc! { "processor": processor, "partition": partition })
    }

    /// Converts the record to a failing partition.
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
    /// Converts a parked event to its record.
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
