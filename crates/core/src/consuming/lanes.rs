//! Lanes: the messages of one key of one partition, of which one at a time is in flight.

use std::collections::VecDeque;

use bytestring::ByteString;

use super::{Consuming, FOLLOWS, Passing, key_in};
use crate::{Timestamp, TopicPartition};

/// A key in one of the member's partitions.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct LaneKey {
    pub part: u64,
    pub key: ByteString,
}

/// A message in its lane.
pub(super) struct Item<M> {
    pub offset: u64,
    pub bytes: usize,
    pub message: M,
}

/// The state of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LaneState {
    /// Its first message may be handed out.
    Ready,
    /// Its first message is handed out.
    InFlight,
    /// Its first message failed, and is retried at this time.
    Waits(Timestamp),
    /// Its first message is becoming a dead letter.
    Passing,
}

/// The messages of a key, in order.
pub(super) struct Lane<M> {
    pub queue: VecDeque<Item<M>>,
    pub state: LaneState,
    /// The number of attempts of the first message.
    pub attempts: u32,
    pub last_reason: Option<String>,
}

impl<M> Lane<M> {
    pub fn of(item: Item<M>) -> Self {
        Self { queue: VecDeque::from([item]), state: LaneState::Ready, attempts: 0, last_reason: None }
    }
}

impl<M: Clone> Consuming<M> {
    pub(super) fn follows(&self, at: &TopicPartition, key: &str) -> bool {
        if !self.settings.keeps_order || (self.held.is_empty() && self.leaving.is_empty()) {
            return false;
        }
        let key = key_in(at, key);
        self.held.contains(&key) || self.leaving.contains_key(&key)
    }

    /// Hands a message over to become a dead letter.
    pub(super) fn pass(&mut self, lane_key: &LaneKey, item: Item<M>, attempts: u32, reason: String, never: bool) {
        let Some(part) = self.by_id.get_mut(&lane_key.part) else { return };
        part.busy += 1;
        let (at, key) = (part.at.clone(), key_in(&part.at, &lane_key.key));
        if !never {
            *self.leaving.entry(key.clone()).or_default() += 1;
        }
        let Item { offset, bytes, message } = item;
        self.passing.push(Passing { at, offset, key, attempts, reason, never, bytes, message });
    }

    /// Hands the first message of a lane over to become a dead letter; the following ones wait until that is stored.
    pub(super) fn pass_first(&mut self, lane_key: &LaneKey, attempts: u32, reason: String, never: bool) {
        let Some(lane) = self.lanes.get_mut(lane_key) else { return };
        lane.state = LaneState::Passing;
        if let Some(first) = lane.queue.pop_front() {
            self.pass(lane_key, first, attempts, reason, never);
        }
    }

    /// Removes a passed message from the buffer.
    pub(super) fn left(&mut self, passing: &Passing<M>) {
        self.buffered = (self.buffered.0.saturating_sub(1), self.buffered.1.saturating_sub(passing.bytes));
        if let Some(count) = self.leaving.get_mut(&passing.key).filter(|_| !passing.never) {
            *count -= 1;
            if *count == 0 {
                self.leaving.remove(&passing.key);
            }
        }
    }

    /// Ends the first message of a lane, so that it is the next one's turn.
    pub(super) fn end_first(&mut self, lane_key: &LaneKey) {
        let Some(lane) = self.lanes.get_mut(lane_key) else { return };
        let Some(first) = lane.queue.pop_front() else { return };
        self.buffered = (self.buffered.0.saturating_sub(1), self.buffered.1.saturating_sub(first.bytes));
        if let Some(part) = self.by_id.get_mut(&lane_key.part) {
            part.open.remove(&first.offset);
        }
        self.next_turn(lane_key);
    }

    /// Continues a lane that was waiting for the dead letter of its first message to be stored.
    pub(super) fn after_passing(&mut self, lane_key: &LaneKey) {
        if self.lanes.get(lane_key).is_some_and(|lane| lane.state == LaneState::Passing) {
            self.next_turn(lane_key);
        }
    }

    fn next_turn(&mut self, lane_key: &LaneKey) {
        let at = self.by_id.get(&lane_key.part).filter(|part| !part.closing).map(|part| part.at.clone());
        let Some(lane) = self.lanes.get_mut(lane_key) else { return };
        (lane.attempts, lane.last_reason, lane.state) = (0, None, LaneState::Ready);
        let Some(at) = at.filter(|_| !lane.queue.is_empty()) else { return self.drop_lane(lane_key) };
        if !self.follows(&at, &lane_key.key) {
            return self.ready.push_back(lane_key.clone());
        }
        let Some(lane) = self.lanes.remove(lane_key) else { return };
        for item in lane.queue {
            self.pass(lane_key, item, 0, FOLLOWS.to_owned(), false);
        }
    }

    /// Drops the lanes of a partition; with `but_busy`, keeps those whose first message is in flight or being passed.
    pub(super) fn drop_lanes(&mut self, part: u64, but_busy: bool) {
        self.ready.retain(|key| key.part != part);
        self.due.retain(|(_, key)| key.part != part);
        let is_busy = |state: LaneState| matches!(state, LaneState::InFlight | LaneState::Passing);
        let keys: Vec<_> = self.lanes.iter().filter(|(key, _)| key.part == part).collect();
        let (kept, dropped): (Vec<_>, Vec<_>) = keys.into_iter().partition(|(_, lane)| but_busy && is_busy(lane.state));
        let kept: Vec<LaneKey> = kept.into_iter().map(|(key, _)| key.clone()).collect();
        let dropped: Vec<LaneKey> = dropped.into_iter().map(|(key, _)| key.clone()).collect();
        for key in &dropped {
            self.drop_lane(key);
        }
        for key in &kept {
            let Some(lane) = self.lanes.get_mut(key) else { continue };
            // A message that is being passed has already left its lane.
            let first = usize::from(lane.state == LaneState::InFlight).min(lane.queue.len());
            let behind = lane.queue.split_off(first);
            self.forget(&behind);
        }
    }

    pub(super) fn drop_lane(&mut self, lane_key: &LaneKey) {
        if let Some(lane) = self.lanes.remove(lane_key) {
            self.forget(&lane.queue);
        }
    }

    /// Removes messages from the buffer. They stay open, so that another member gets them.
    fn forget(&mut self, items: &VecDeque<Item<M>>) {
        let bytes: usize = items.iter().map(|item| item.bytes).sum();
        self.buffered = (self.buffered.0.saturating_sub(items.len()), self.buffered.1.saturating_sub(bytes));
    }
}
