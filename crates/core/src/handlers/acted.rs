//! What is stored of acts of operators.

use bson::DateTime;
use serde::{Deserialize, Serialize};

use super::{ActEntry, Reason};
use crate::order::Direction;
use crate::processing::Replay;
use crate::{Index, RecordType, Timestamp};

/// The collection of acts.
pub const ACTS: &str = "annals-acts";
/// The collection of replays that are not over.
pub const REPLAYS: &str = "annals-replays";

/// What an operator did, written in the batch that did it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ActRecord {
    /// Time, turn of the processor and a random number, so that ids ascend.
    #[serde(rename = "_id")]
    pub id: String,
    /// The processor.
    pub processor: String,
    /// What was done.
    pub act: String,
    /// The failing partition; null when it is about none.
    pub partition: Option<String>,
    /// The position of the event that was skipped or parked.
    pub position: Option<i64>,
    /// Where a move or a replay began.
    pub from: Option<i64>,
    /// Where it led.
    pub to: Option<i64>,
    /// Why.
    pub reason: String,
    /// Who; null when nobody said.
    pub by: Option<String>,
    /// When.
    pub at: DateTime,
}

/// What a replay needs to know until it is over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReplayRecord {
    /// The id of its act.
    #[serde(rename = "_id")]
    pub id: String,
    /// The processor.
    pub processor: String,
    /// Where the handler was when it began.
    pub to: i64,
    /// Partitions that were failing then, each with the position of its next event: those events had not been handled.
    pub failing: Vec<(String, i64)>,
}

impl RecordType for ActRecord {
    const COLLECTION: &'static str = ACTS;

    fn indexes() -> Vec<Index> {
        vec![Index::ordered([("processor", Direction::Ascending), ("_id", Direction::Descending)]).into()]
    }
}

impl RecordType for ReplayRecord {
    const COLLECTION: &'static str = REPLAYS;
}

impl ActRecord {
    /// The record of an act that is about a handler as a whole.
    pub fn new(processor: &str, act: &str, reason: Reason, (at, turn, random): (Timestamp, u64, u128)) -> Self {
        let random = random as u32;
        Self {
            // Acts of one millisecond stand in the order of the processor's writes.
            id: format!("{:015}-{turn:012}-{random:08x}", at.as_millis().max(0)),
            processor: processor.to_owned(),
            act: act.to_owned(),
            partition: None,
            position: None,
            from: None,
            to: None,
            reason: reason.reason,
            by: reason.by,
            at: DateTime::from_millis(at.as_millis()),
        }
    }

    /// From one position to another.
    #[must_use]
    pub fn between(self, from: u64, to: u64) -> Self {
        Self { from: Some(from.cast_signed()), to: Some(to.cast_signed()), ..self }
    }

    /// As it is listed.
    pub fn entry(self) -> ActEntry {
        let number = |number: Option<i64>| number.map(i64::cast_unsigned);
        ActEntry {
            id: self.id.into(),
            act: self.act,
            partition: self.partition.map(Into::into),
            position: number(self.position),
            from: number(self.from),
            to: number(self.to),
            reason: self.reason,
            by: self.by,
            at: Timestamp::from_millis(self.at.timestamp_millis()),
        }
    }
}

impl ReplayRecord {
    /// The record of a replay.
    pub fn of(processor: &str, replay: &Replay) -> Self {
        let failing = replay.unhandled.iter().map(|(name, position)| (name.to_string(), position.cast_signed()));
        Self {
            id: replay.id.to_string(),
            processor: processor.to_owned(),
            to: replay.to.cast_signed(),
            failing: failing.collect(),
        }
    }

    /// The replay.
    pub fn read(self) -> Replay {
        let unhandled = self.failing.into_iter().map(|(name, position)| (name.into(), position.cast_unsigned()));
        Replay { id: self.id.into(), to: self.to.cast_unsigned(), unhandled: unhandled.collect() }
    }
}
