//! Processing of a group member's messages: a state machine without I/O, for brokers whose groups have [members](crate::Broker::join).
//!
//! ```text
//!  message ─▶ lane of its key ─▶ taken ─▶ settled ─┬─ done ────────────────────────▶ offset may be committed
//!             (one in flight,     ▲                ├─ failed: waits ─┐
//!              later ones queue)  └────────────────┴─────────────────┘
//!                                                  └─ exhausted: passed ─▶ dead letter stored ─▶ offset may be committed
//! ```
//!
//! INVARIANTS
//! - The messages of one key in a partition are handed out one at a time, in the order of their offsets.
//! - The position of a partition is the lowest offset that is neither done nor passed. Nothing beyond it is committed, so a member that
//!   dies loses nothing.
//! - A message is passed only once its dead letter is stored. If the order of keys is kept, later messages of its key become dead letters
//!   too.
//!
//! A failing key never stops the others: if the buffer is full of messages that wait for failing keys, the first of these keys is passed.
//! While the breaker is open because of an outage, no key is passed, and only one attempt at a time is made as a probe.

mod lanes;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::time::Duration;

use bytestring::ByteString;

use crate::processing::ProcessingRetry;
use crate::{PartitionOffset, Timestamp, TopicPartition};
use lanes::{Item, Lane, LaneKey, LaneState};

/// The minimum delay between attempts while the breaker is open.
const BROKEN_MIN: Duration = Duration::from_secs(1);

/// The settings of a member.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ConsumingSettings {
    /// The maximum number of keys in flight.
    pub in_flight: usize,
    /// The maximum number of buffered messages.
    pub buffered: usize,
    /// The number of buffered bytes from which on no more messages are requested.
    pub buffered_bytes: usize,
    /// When a failed message is retried.
    pub retry: ProcessingRetry,
    /// Whether later messages of a key follow its dead letter.
    pub keeps_order: bool,
    /// After this many messages in a row were passed without a success in between, no more are until one succeeds. 0 means no limit.
    pub breaker: u32,
}

/// A message of one of the member's partitions.
#[derive(Debug, Clone, PartialEq)]
pub struct Incoming<M> {
    /// Its partition.
    pub at: TopicPartition,
    /// Its offset.
    pub offset: u64,
    /// Its key; messages of one key keep their order.
    pub key: ByteString,
    /// Its size in bytes.
    pub bytes: usize,
    /// The message itself.
    pub message: M,
}

/// An attempt to process a message.
#[derive(Debug, Clone, PartialEq)]
pub struct Attempt<M> {
    /// The token that identifies this attempt.
    pub token: u64,
    /// The number of this attempt of the message, from 1.
    pub number: u32,
    /// The reason why the previous attempt failed.
    pub last_reason: Option<String>,
    /// The message itself.
    pub message: M,
}

/// The outcome of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// The message was processed.
    Done,
    /// The attempt failed.
    Failed {
        /// The reason.
        reason: String,
        /// The delay that the consumer requested, in milliseconds; `None` means the retry policy's.
        retry_after_ms: Option<u64>,
        /// Whether no further attempt can succeed.
        never: bool,
    },
}

/// A message that the member passes without having processed it. Once its dead letter is stored, call [`passed`](Consuming::passed).
#[derive(Debug, Clone, PartialEq)]
pub struct Passing<M> {
    /// Its partition.
    pub at: TopicPartition,
    /// Its offset.
    pub offset: u64,
    /// Its key, prefixed with its topic: unique in the group.
    pub key: ByteString,
    /// The number of attempts; 0 for a message that follows another letter of its key.
    pub attempts: u32,
    /// The reason why the last attempt failed.
    pub reason: String,
    /// Whether no retry can succeed. A person then decides about the letter, and the key continues.
    pub never: bool,
    /// Its size in bytes.
    pub bytes: usize,
    /// The message itself.
    pub message: M,
}

struct Part {
    at: TopicPartition,
    /// The offsets that are neither done nor passed.
    open: BTreeSet<u64>,
    /// The offset after the last message delivered.
    next: u64,
    committed: u64,
    /// The number of messages in flight and of messages that are being passed.
    busy: usize,
    /// Whether the partition will move to another member, so that no more of its messages are handed out.
    closing: bool,
}

/// The state of a member. See the [module](self) for its invariants.
pub struct Consuming<M> {
    settings: ConsumingSettings,
    parts: HashMap<TopicPartition, u64>,
    by_id: BTreeMap<u64, Part>,
    next_part: u64,
    lanes: HashMap<LaneKey, Lane<M>>,
    ready: VecDeque<LaneKey>,
    due: BTreeSet<(Timestamp, LaneKey)>,
    flights: HashMap<u64, LaneKey>,
    next_token: u64,
    buffered: (usize, usize),
    passed_in_a_row: u32,
    /// Keys with an open dead letter, prefixed with their topics.
    held: HashSet<ByteString>,
    passing: Vec<Passing<M>>,
    /// For each key, the number of messages that are about to become dead letters that hold it.
    leaving: HashMap<ByteString, usize>,
}

impl<M: Clone> Consuming<M> {
    /// Creates a member without partitions.
    pub fn new(settings: ConsumingSettings) -> Self {
        Self {
            settings,
            parts: HashMap::new(),
            by_id: BTreeMap::new(),
            next_part: 0,
            lanes: HashMap::new(),
            ready: VecDeque::new(),
            due: BTreeSet::new(),
            flights: HashMap::new(),
            next_token: 0,
            buffered: (0, 0),
            passed_in_a_row: 0,
            held: HashSet::new(),
            passing: Vec::new(),
            leaving: HashMap::new(),
        }
    }

    /// Assigns a partition to the member. Its next message has this offset or a later one.
    pub fn assigned(&mut self, at: TopicPartition, offset: u64) {
        self.removed(&at);
        let id = self.next_part;
        self.next_part += 1;
        self.parts.insert(at.clone(), id);
        let part = Part { at, open: BTreeSet::new(), next: offset, committed: offset, busy: 0, closing: false };
        self.by_id.insert(id, part);
    }

    /// Prepares a partition for moving to another member. Attempts in flight continue; no more messages are handed out.
    pub fn closing(&mut self, at: &TopicPartition) {
        let Some(id) = self.parts.get(at).copied() else { return };
        if let Some(part) = self.by_id.get_mut(&id) {
            part.closing = true;
        }
        self.drop_lanes(id, true);
    }

    /// Returns whether nothing of a partition is in flight or about to be passed. A partition that is not assigned to the member is idle.
    pub fn is_idle(&self, at: &TopicPartition) -> bool {
        self.part(at).is_none_or(|part| part.busy == 0)
    }

    /// Removes a partition from the member. Attempts in flight may still end, but their outcomes are not committed.
    pub fn removed(&mut self, at: &TopicPartition) {
        let Some(id) = self.parts.remove(at) else { return };
        self.by_id.remove(&id);
        self.drop_lanes(id, false);
        let (dropped, kept) = std::mem::take(&mut self.passing).into_iter().partition(|passing| passing.at == *at);
        self.passing = kept;
        let dropped: Vec<Passing<M>> = dropped;
        dropped.iter().for_each(|passing| self.left(passing));
    }

    /// Returns the number of messages for which the member has room.
    pub fn room(&self) -> usize {
        let (count, bytes) = self.buffered;
        if bytes >= self.settings.buffered_bytes { 0 } else { self.settings.buffered.saturating_sub(count) }
    }

    /// Returns the number of messages that are neither done nor passed.
    pub fn buffered(&self) -> usize {
        self.buffered.0
    }

    /// Returns the number of attempts in flight.
    pub fn in_flight(&self) -> usize {
        self.flights.len()
    }

    /// Adds a delivered message. One of a partition that is not assigned to the member is ignored.
    pub fn push(&mut self, incoming: Incoming<M>) {
        let Incoming { at, offset, key, bytes, message } = incoming;
        let Some(id) = self.deliver(&at, offset, bytes) else { return };
        let lane_key = LaneKey { part: id, key };
        let item = Item { offset, bytes, message };
        if let Some(lane) = self.lanes.get_mut(&lane_key) {
            lane.queue.push_back(item);
        } else if self.follows(&at, &lane_key.key) {
            self.pass(&lane_key, item, 0, FOLLOWS.to_owned(), false);
        } else {
            self.lanes.insert(lane_key.clone(), Lane::of(item));
            self.ready.push_back(lane_key);
        }
    }

    /// Adds a delivered message that cannot be processed because it is unreadable. It does not hold up its key.
    pub fn push_unreadable(&mut self, incoming: Incoming<M>, reason: String) {
        let Incoming { at, offset, key, bytes, message } = incoming;
        let Some(id) = self.deliver(&at, offset, bytes) else { return };
        self.pass(&LaneKey { part: id, key }, Item { offset, bytes, message }, 1, reason, true);
    }

    fn deliver(&mut self, at: &TopicPartition, offset: u64, bytes: usize) -> Option<u64> {
        let id = *self.parts.get(at)?;
        let part = self.by_id.get_mut(&id).filter(|part| !part.closing)?;
        part.open.insert(offset);
        part.next = offset + 1;
        self.buffered = (self.buffered.0 + 1, self.buffered.1 + bytes);
        Some(id)
    }

    /// Takes the next message to process, unless the maximum number of keys is in flight.
    pub fn take(&mut self, now: Timestamp) -> Option<Attempt<M>> {
        let broken = self.is_broken();
        if self.flights.len() >= self.settings.in_flight || (broken && !self.flights.is_empty()) {
            return None;
        }
        let first_due = self.due.first().filter(|(at, _)| *at <= now).cloned();
        let lane_key = match first_due {
            Some(due) => {
                self.due.remove(&due);
                due.1
            }
            None if broken && !self.due.is_empty() => return None,
            None => self.ready.pop_front()?,
        };
        let lane = self.lanes.get_mut(&lane_key)?;
        lane.state = LaneState::InFlight;
        let first = lane.queue.front()?;
        let token = self.next_token;
        self.next_token += 1;
        let attempt = Attempt {
            token,
            number: lane.attempts + 1,
            last_reason: lane.last_reason.clone(),
            message: first.message.clone(),
        };
        if let Some(part) = self.by_id.get_mut(&lane_key.part) {
            part.busy += 1;
        }
        self.flights.insert(token, lane_key);
        Some(attempt)
    }

    /// Returns when the next failed message is due.
    pub fn due_at(&self) -> Option<Timestamp> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Ends an attempt. `random` determines the jitter of a retry.
    pub fn settle(&mut self, token: u64, ending: Ending, now: Timestamp, random: u64) {
        let Some(lane_key) = self.flights.remove(&token) else { return };
        // Its partition was lost in the meantime.
        let Some(part) = self.by_id.get_mut(&lane_key.part) else { return };
        part.busy = part.busy.saturating_sub(1);
        let Ending::Failed { reason, retry_after_ms, never } = ending else {
            self.passed_in_a_row = 0;
            return self.end_first(&lane_key);
        };
        if part.closing {
            return self.drop_lane(&lane_key);
        }
        let broken = self.is_broken();
        let Some(lane) = self.lanes.get_mut(&lane_key) else { return };
        lane.attempts += 1;
        let attempts = lane.attempts;
        if never || (self.settings.retry.is_exhausted(attempts) && !broken) {
            self.passed_in_a_row += u32::from(!never);
            return self.pass_first(&lane_key, attempts, reason, never);
        }
        let policy = Duration::from_millis(self.settings.retry.delay_ms(attempts, random));
        let delay = retry_after_ms.map_or(policy, Duration::from_millis);
        let at = now.plus(if broken { delay.max(BROKEN_MIN) } else { delay });
        lane.last_reason = Some(reason);
        lane.state = LaneState::Waits(at);
        self.due.insert((at, lane_key));
    }

    /// Passes the failing key whose next attempt is due first, if the buffer is full and nothing in it can be attempted.
    pub fn make_room(&mut self) {
        let stuck = self.room() == 0 && self.flights.is_empty() && self.ready.is_empty() && self.passing.is_empty();
        if !stuck || self.is_broken() {
            return;
        }
        let Some((_, lane_key)) = self.due.pop_first() else { return };
        let Some(lane) = self.lanes.get_mut(&lane_key) else { return };
        let (attempts, reason) = (lane.attempts, lane.last_reason.take().unwrap_or_default());
        self.passed_in_a_row += 1;
        self.pass_first(&lane_key, attempts, reason, false);
    }

    /// Takes messages that must become dead letters, at most `most`.
    pub fn take_passing(&mut self, most: usize) -> Vec<Passing<M>> {
        let count = self.passing.len().min(most);
        self.passing.drain(..count).collect()
    }

    /// Returns whether any message must become a dead letter.
    pub fn has_passing(&self) -> bool {
        !self.passing.is_empty()
    }

    /// Records that the dead letter of a message is stored.
    pub fn passed(&mut self, passing: &Passing<M>) {
        self.left(passing);
        let Some(id) = self.parts.get(&passing.at).copied() else { return };
        if let Some(part) = self.by_id.get_mut(&id) {
            part.busy = part.busy.saturating_sub(1);
            part.open.remove(&passing.offset);
        }
        if self.settings.keeps_order && !passing.never {
            self.held.insert(passing.key.clone());
        }
        let key = passing.key.get(passing.at.topic.len() + 1..).unwrap_or_default();
        self.after_passing(&LaneKey { part: id, key: key.into() });
    }

    /// Records that a key has no open dead letter any more.
    pub fn let_go(&mut self, key: &str) {
        self.held.remove(key);
    }

    /// Records that exactly these keys have open dead letters.
    pub fn hold_only(&mut self, keys: HashSet<ByteString>) {
        self.held = keys;
    }

    /// Returns whether any key has an open dead letter.
    pub fn holds_any(&self) -> bool {
        !self.held.is_empty()
    }

    /// Returns whether the breaker is open: so many messages were passed in a row that a dependency of the consumer is probably down.
    pub fn is_broken(&self) -> bool {
        self.settings.breaker > 0 && self.passed_in_a_row >= self.settings.breaker
    }

    /// Records that a dead letter was processed, which closes the breaker.
    pub fn succeeded(&mut self) {
        self.passed_in_a_row = 0;
    }

    /// Returns the partitions whose position differs from the committed offset.
    pub fn uncommitted(&self) -> Vec<PartitionOffset> {
        let moved = self.by_id.values().filter(|part| part.position() != part.committed);
        moved.map(|part| PartitionOffset { at: part.at.clone(), offset: part.position() }).collect()
    }

    /// Records that these offsets are committed.
    pub fn committed(&mut self, offsets: &[PartitionOffset]) {
        for PartitionOffset { at, offset } in offsets {
            if let Some(part) = self.parts.get(at).and_then(|id| self.by_id.get_mut(id)) {
                part.committed = *offset;
            }
        }
    }

    /// Returns the number of the member's partitions.
    pub fn partitions(&self) -> usize {
        self.by_id.len()
    }

    fn part(&self, at: &TopicPartition) -> Option<&Part> {
        self.by_id.get(self.parts.get(at)?)
    }
}

/// The reason of a dead letter whose message was never attempted.
const FOLLOWS: &str = "an earlier event of its key is a dead letter";

impl Part {
    /// Returns the offset below which everything is done or passed.
    fn position(&self) -> u64 {
        self.open.first().copied().unwrap_or(self.next)
    }
}

/// Returns a key prefixed with its topic, as dead letters store it.
fn key_in(at: &TopicPartition, key: &str) -> ByteString {
    format!("{}/{key}", at.topic).into()
}
