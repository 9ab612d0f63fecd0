//! Choice of the next item of a queue: a pure function of the pending items and the time.

use super::lane::Lane;
use super::{Item, QueueDefinition};
use crate::Timestamp;

/// The number of hand-outs in a row that may pass over the priority of the oldest item once that has waited long enough.
pub const PASSED_MAX: u64 = 3;

/// The distance by which one hand-out advances a user's tag in a priority.
pub const TAG_UNIT: u64 = 1_000_000;

/// The next item to hand out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Choice {
    /// Its priority, by index.
    pub lane: usize,
    /// Its sequence number in the queue.
    pub seq: u64,
    /// The item with the lowest tag. After a change of priority it may be another item of the same user.
    pub lowest: u64,
    /// The number of hand-outs in a row, including this one, that passed over the oldest item's priority.
    pub passed: u64,
}

/// Returns the next item to hand out; `None` if nothing is pending. `item` finds an item by its sequence number.
pub(super) fn next<'i>(
    queue: &QueueDefinition,
    lanes: &[Lane; 5],
    item: impl Fn(u64) -> Option<&'i Item>,
    passed: u64,
    now: Timestamp,
) -> Option<Choice> {
    let highest = lanes.iter().position(|lane| !lane.is_empty())?;
    let aged = aged(queue, lanes, &item, now);
    let lane = match aged {
        Some(aged) if passed >= PASSED_MAX => aged,
        _ => highest,
    };
    let passed = match aged {
        Some(aged) if aged != lane => passed + 1,
        _ => 0,
    };
    let (seq, lowest) = lanes[lane].first(queue.fair, |seq| item(seq).map(|item| &item.user))?;
    Some(Choice { lane, seq, lowest, passed })
}

/// Returns the priority of the oldest pending item, if that item has waited long enough.
fn aged<'i>(
    queue: &QueueDefinition,
    lanes: &[Lane; 5],
    item: &impl Fn(u64) -> Option<&'i Item>,
    now: Timestamp,
) -> Option<usize> {
    if queue.ageing_ms == 0 {
        return None;
    }
    let oldest = lanes.iter().enumerate().filter_map(|(at, lane)| Some((lane.oldest()?, at))).min();
    let (seq, lane) = oldest?;
    let waited = now.since(item(seq)?.enqueued_at).as_millis();
    (waited >= u128::from(queue.ageing_ms)).then_some(lane)
}
