//! Stored records of acts of operators.

use bson::DateTime;
use serde::{Deserialize, Serialize};

use super::{ActEntry, Reason};
use crate::order::Direction;
use crate::processing::Replay;
use crate::{Index, RecordType, Timestamp};

/// The collection of acts.
pub const ACTS: &str = "annals-acts";
/// The collection of replays that have not finished.
pub const REPLAYS: &str = "annals-replays";

/// An act of an operator, written in the same batch as its effect.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ActRecord {
    /// The time, the turn of the processor and a random number, so that ids ascend.
    #[serde(rename = "_id")]
    pub id: String,
    /// The processor.
    pub processor: String,
    /// The name of the act.
    pub act: String,
    /// The failing partition; null if the act concerns none.
    pub partition: Option<String>,
    /// The position of the event that was skipped or parked.
    pub position: Option<i64>,
    /// The position at which a move or a replay began.
    pub from: Option<i64>,
    /// The position at which it ended.
    pub to: Option<i64>,
    /// The reason.
    pub reason: String,
    /// The operator; null if the request named none.
    pub by: Option<String>,
    /// The time of the act.
    pub at: DateTime,
}

/// The state that a replay needs until it finishes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReplayRecord {
    /// The id of its act.
    #[serde(rename = "_id")]
    pub id: String,
    /// The processor.
    pub processor: String,
    /// The position of the handler when the replay began.
    pub to: i64,
    /// The partitions that were failing then, each with the position of its next event: those events had not been handled.
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
    /// Returns the record of an act that concerns a handler as a whole.
    pub fn new(processor: &str, act: &str, reason: Reason, (at, turn, random): (Timestamp, u64, u128)) -> Self {
        let random = random as u32;
        Self {
            // Acts within one millisecond sort in the order of the processor's writes.
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

    /// Sets the positions at which the act began and ended.
    #[must_use]
    pub fn between(self, from: u64, to: u64) -> Self {
        Self { from: Some(from.cast_signed()), to: Some(to.cast_signed()), ..self }
    }

    /// Converts it to an entry of a list of acts.
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
    /// Converts a replay to its record.
    pub fn of(processor: &str, replay: &Replay) -> Self {
        let failing = replay.unhandled.iter().map(|(name, position)| (name.to_string(), position.cast_signed()));
        Self {
            id: replay.id.to_string(),
            processor: processor.to_owned(),
            to: replay.to.cast_signed(),
            failing: failing.collect(),
        }
    }

    /// Converts the record to a replay.
    pub fn read(self) -> Replay {
        let unhandled = self.failing.into_iter().map(|(name, position)| (name.into(), position.cast_unsigned()));
        Replay { id: self.id.into(), to: self.to.cast_unsigned(), unhandled: unhandled.collect() }
    }
}
