//! What a member of a group does with the messages of its partitions: a state machine without I/O, for brokers that groups
//! [join](crate::Broker::join).
//!
//! ```text
//!  message ─▶ lane of its key ─▶ taken ─▶ settled ─┬─ done ────────────────────────▶ offset may be committed
//!             (one in flight,     ▲                ├─ failed: waits ─┐
//!              later ones queue)  └────────────────┴─────────────────┘
//!                                                  └─ exhausted: passed ─▶ dead letter stored ─▶ offset may be committed
//! ```
//!
//! INVARIANTS
//! - The messages of a key of a partition are handed out one at a time, in the order of their offsets.
//! - The position of a partition is the lowest offset that is neither done nor passed. Nothing else is committed, so a member that dies
//!   loses nothing.
//! - A message is passed only once its dead letter is stored. Where the order of keys is kept, the later messages of its key follow it.
//!
//! A failing key never stops the others: when the buffer is full of messages that wait for failing keys, the first of these keys is passed.
//! While an outage lasts, which the breaker decides, none is passed, and one attempt at a time probes.

mod lanes;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::time::Duration;

use bytestring::ByteString;

use crate::processing::ProcessingRetry;
use crate::{PartitionOffset, Timestamp, TopicPartition};
use lanes::{Item, Lane, LaneKey, LaneState};

/// The shortest delay between attempts while the breaker is open.
const BROKEN_MIN: Duration = Duration::from_secs(1);

/// How a member hands messages out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ConsumingSettings {
    /// How many keys are in flight at most.
    pub in_flight: usize,
    /// How many messages are buffered at most.
    pub buffered: usize,
    /// How many bytes of messages are buffered before no more are asked for.
    pub buffered_bytes: usize,
    /// When a failed message is attempted again.
    pub retry: ProcessingRetry,
    /// Whether later messages of a key follow its dead letter.
    pub keeps_order: bool,
    /// After this many messages in a row were passed without a success in between, none is until one succeeds. 0 is without end.
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
    /// Its size, in bytes.
    pub bytes: usize,
    /// What is processed.
    pub message: M,
}

/// A message that is handed out.
#[derive(Debug, Clone, PartialEq)]
pub struct Attempt<M> {
    /// Names this attempt.
    pub token: u64,
    /// Which attempt of the message this is, from 1.
    pub number: u32,
    /// What the attempt before failed with.
    pub last_reason: Option<String>,
    /// What is processed.
    pub message: M,
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// The message is processed.
    Done,
    /// It failed.
    Failed {
        /// What went wrong.
        reason: String,
        /// The delay that was asked for, in milliseconds; the policy's without.
        retry_after_ms: Option<u64>,
        /// Whether no further attempt can succeed.
        never: bool,
    },
}

/// A message that the member passes without having processed it. It is to become a dead letter, and is then [`passed`](Consuming::passed).
#[derive(Debug, Clone, PartialEq)]
pub struct Passing<M> {
    /// Its partition.
    pub at: TopicPartition,
    /// Its offset.
    pub offset: u64,
    /// Its key, with its topic: unique in the group.
    pub key: ByteString,
    /// How often it was attempted; 0 for one that follows another letter of its key.
    pub attempts: u32,
    /// What the last attempt failed with.
    pub reason: String,
    /// Whether no retry can succeed, so that a person decides and the key goes on.
    pub never: bool,
    /// Its size, in bytes.
    pub bytes: usize,
    /// What was to be processed.
    pub message: M,
}

struct Part {
    at: TopicPartition,
    /// Offsets that are neither done nor passed.
    open: BTreeSet<u64>,
    /// The offset after the last message that was delivered.
    next: u64,
    committed: u64,
    /// Messages in flight, and messages that are being passed.
    busy: usize,
    /// It will move to another member, so nothing more of it is handed out.
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
    /// Keys with an open dead letter, with their topics.
    held: HashSet<ByteString>,
    passing: Vec<Passing<M>>,
    /// How many messages of a key are about to become dead letters that hold it.
    leaving: HashMap<ByteString, usize>,
}

impl<M: Clone> Consuming<M> {
    /// A member without partitions.
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

    /// A partition is the member's from now on; its next message has this offset or a later one.
    pub fn assigned(&mut self, at: TopicPartition, offset: u64) {
        self.removed(&at);
        let id = self.next_part;
        self.next_part += 1;
        self.parts.insert(at.clone(), id);
        let part = Part { at, open: BTreeSet::new(), next: offset, committed: offset, busy: 0, closing: false };
        self.by_id.insert(id, part);
    }

    /// A partition will move to another member. What is in flight goes on; nothing more is handed out.
    pub fn closing(&mut self, at: &TopicPartition) {
        let Some(id) = self.parts.get(at).copied() else { return };
        if let Some(part) = self.by_id.get_mut(&id) {
            part.closing = true;
        }
        self.drop_lanes(id, true);
    }

    /// Whether nothing of a partition is in flight or about to be passed. A partition that is not the member's is idle.
    pub fn is_idle(&self, at: &TopicPartition) -> bool {
        self.part(at).is_none_or(|part| part.busy == 0)
    }

    /// A partition is not the member's any more. Attempts in flight may end; what they did is not committed.
    pub fn removed(&mut self, at: &TopicPartition) {
        let Some(id) = self.parts.remove(at) else { return };
        self.by_id.remove(&id);
        self.drop_lanes(id, false);
        let (dropped, kept) = std::mem::take(&mut self.passing).into_iter().partition(|passing| passing.at == *at);
        self.passing = kept;
        let dropped: Vec<Passing<M>> = dropped;
        dropped.iter().for_each(|passing| self.left(passing));
    }

    /// How many messages the member has room for.
    pub fn room(&self) -> usize {
        let (count, bytes) = self.buffered;
        if bytes >= self.settings.buffered_bytes { 0 } else { self.settings.buffered.saturating_sub(count) }
    }

    /// How many messages are neither done nor passed.
    pub fn buffered(&self) -> usize {
        self.buffered.0
    }

    /// How many attempts are in flight.
    pub fn in_flight(&self) -> usize {
        self.flights.len()
    }

    /// A message was delivered. One of a partition that is not the member's is ignored.
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

    /// A message was delivered that cannot be processed at all, because it cannot be read. It holds up nothing.
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

    /// Takes the next message to process, unless as many keys are in flight as may be.
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

    /// When the next failed message is due.
    pub fn due_at(&self) -> Option<Timestamp> {
        self.due.first().map(|(at, _)| *at)
    }

    /// An attempt has ended. `random` decides the jitter of a retry.
    pub fn settle(&mut self, token: u64, ending: Ending, now: Timestamp, random: u64) {
        let Some(lane_key) = self.flights.remove(&token) else { return };
        // Its partition was lost meanwhile.
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

    /// Passes the failing key that waits for its next attempt first, if the buffer is full and nothing in it can be attempted.
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

    /// Takes messages that are to become dead letters, at most so many.
    pub fn take_passing(&mut self, most: usize) -> Vec<Passing<M>> {
        let count = self.passing.len().min(most);
        self.passing.drain(..count).collect()
    }

    /// Whether a message is to become a dead letter.
    pub fn has_passing(&self) -> bool {
        !self.passing.is_empty()
    }

    /// The dead letter of a message is stored.
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

    /// A key has no open dead letter any more.
    pub fn let_go(&mut self, key: &str) {
        self.held.remove(key);
    }

    /// These keys have open dead letters, and no others.
    pub fn hold_only(&mut self, keys: HashSet<ByteString>) {
        self.held = keys;
    }

    /// Whether any key has an open dead letter.
    pub fn holds_any(&self) -> bool {
        !self.held.is_empty()
    }

    /// Whether so many messages were passed in a row that what the consumer depends on is probably down.
    pub fn is_broken(&self) -> bool {
        self.settings.breaker > 0 && self.passed_in_a_row >= self.settings.breaker
    }

    /// A dead letter was processed, so what the consumer depends on is there.
    pub fn succeeded(&mut self) {
        self.passed_in_a_row = 0;
    }

    /// The partitions whose position is another than what was committed.
    pub fn uncommitted(&self) -> Vec<PartitionOffset> {
        let moved = self.by_id.values().filter(|part| part.position() != part.committed);
        moved.map(|part| PartitionOffset { at: part.at.clone(), offset: part.position() }).collect()
    }

    /// These offsets are committed.
    pub fn committed(&mut self, offsets: &[PartitionOffset]) {
        for PartitionOffset { at, offset } in offsets {
            if let Some(part) = self.parts.get(at).and_then(|id| self.by_id.get_mut(id)) {
                part.committed = *offset;
            }
        }
    }

    /// The member's partitions.
    pub fn partitions(&self) -> usize {
        self.by_id.len()
    }

    fn part(&self, at: &TopicPartition) -> Option<&Part> {
        self.by_id.get(self.parts.get(at)?)
    }
}

/// Why a message becomes a dead letter without having been attempted.
const FOLLOWS: &str = "an earlier event of its key is a dead letter";

impl Part {
    /// Everything below is done or passed.
    fn position(&self) -> u64 {
        self.open.first().copied().unwrap_or(self.next)
    }
}

/// A key with its topic, by which dead letters know it.
fn key_in(at: &TopicPartition, key: &str) -> ByteString {
    format!("{}/{key}", at.topic).into()
}
