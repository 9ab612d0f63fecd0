//! The stored state of a processor: its progress and its failing partitions.

use bytestring::ByteString;
use serde::{Deserialize, Serialize};

use crate::{SequenceNumber, Timestamp};

/// The progress of a processor in its source.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Progress {
    /// Every event below it is settled, or belongs to a failing partition.
    pub position: u64,
    /// Positions at or above `position` whose events are settled, as half-open ranges, ascending and not adjacent.
    pub ahead: Vec<(u64, u64)>,
}

impl Progress {
    /// Returns the progress of a processor that starts at `position`.
    pub fn at(position: u64) -> Self {
        Self { position, ahead: Vec::new() }
    }

    /// Returns whether the event at this position is settled.
    pub fn is_settled(&self, position: u64) -> bool {
        position < self.position || self.ahead.iter().any(|(from, to)| (*from..*to).contains(&position))
    }

    /// Records that the event at this position is settled.
    pub(super) fn settle(&mut self, position: u64) {
        if self.is_settled(position) {
            return;
        }
        let at = self.ahead.partition_point(|(from, _)| *from < position);
        let joins_before = at > 0 && self.ahead[at - 1].1 == position;
        let joins_after = self.ahead.get(at).is_some_and(|(from, _)| *from == position + 1);
        match (joins_before, joins_after) {
            (true, true) => {
                self.ahead[at - 1].1 = self.ahead[at].1;
                self.ahead.remove(at);
            }
            (true, false) => self.ahead[at - 1].1 = position + 1,
            (false, true) => self.ahead[at].0 = position,
            (false, false) => self.ahead.insert(at, (position, position + 1)),
        }
    }

    /// Moves the position up to `to`, and drops ranges below it.
    pub(super) fn advance(&mut self, to: u64) {
        if to <= self.position {
            return;
        }
        self.position = to;
        self.ahead.retain(|(_, end)| *end > to);
        if let Some(first) = self.ahead.first_mut() {
            first.0 = first.0.max(to);
        }
    }
}

/// A partition whose next event failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failing {
    /// Its name.
    pub partition: ByteString,
    /// The source position of its next event. While it catches up, the next event is at this position or after it.
    pub position: u64,
    /// The sequence number of the event that failed last.
    pub sequence_number: SequenceNumber,
    /// How often the event at `position` has failed in a row; 0 while the partition catches up.
    pub attempts: u32,
    /// The reason of the last failure.
    pub reason: String,
    /// When it failed last.
    pub last_failed: Timestamp,
    /// When it is next attempted; `None` if it waits for an operator.
    pub retry_at: Option<Timestamp>,
    /// When its next event became the one at `position`.
    pub since: Timestamp,
    /// The time of the event that failed last.
    pub event_time: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settled_positions_are_kept_as_ranges_that_join() {
        let mut progress = Progress::at(10);
        for position in [12, 15, 14, 9, 13, 12] {
            progress.settle(position);
        }
        assert_eq!(progress, Progress { position: 10, ahead: vec![(12, 16)] });
        progress.settle(20);
        progress.settle(10);
        assert_eq!(progress.ahead, [(10, 11), (12, 16), (20, 21)]);
        assert!(progress.is_settled(3) && progress.is_settled(14) && !progress.is_settled(11));
        progress.advance(14);
        assert_eq!(progress, Progress { position: 14, ahead: vec![(14, 16), (20, 21)] });
        progress.advance(5);
        assert_eq!(progress.position, 14, "a position never moves back");
    }
}
