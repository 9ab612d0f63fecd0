//! Selects the events to hand out, and applies the outcomes. See [`processing`](super).

mod acts;
mod letters;
mod replay;
mod settle;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::time::Duration;

use bytestring::ByteString;

use super::{Failing, ProcessingRetry, Progress};
use crate::{SequenceNumber, Timestamp};

pub use acts::ActError;
pub use letters::{LetterFailure, LetterOutcome, Offered};
pub use replay::Replay;
pub use settle::{Outcome, SettleError, Settled, shortened};

/// The most events that are read but neither settled nor part of a failing partition.
const WINDOW_MAX: usize = 1_000;
/// The most failing partitions of a processor. At this number it hands out no new events, because any of them could add another one.
pub const FAILING_MAX: usize = 10_000;

/// The settings of a processor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// Whether events have different partitions. If not, a failing event blocks all later ones.
    pub partitioned: bool,
    /// The most partitions in flight.
    pub concurrency: usize,
    /// The most events of one partition that are handed out together.
    pub batch: usize,
    /// When a failed event is retried.
    pub retry: ProcessingRetry,
    /// The most failing partitions: [`FAILING_MAX`] for processors that users define.
    pub failing_max: usize,
    /// Whether events of a partition are parked without an attempt while an earlier one is a dead letter.
    pub keeps_order: bool,
    /// The number of events parked in a row after which no further event is parked until one succeeds. 0 means no limit.
    pub breaker: u32,
}

/// The attributes of a source's event that the machine needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// Its position in the source.
    pub position: u64,
    /// Its sequence number in the log.
    pub sequence_number: SequenceNumber,
    /// Its partition.
    pub partition: ByteString,
    /// When it happened.
    pub time: Timestamp,
}

/// An event that was handed out. It is in flight until its token is settled or its lease ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// Identifies this delivery.
    pub token: u64,
    /// The event.
    pub event: Fetched,
    /// The number of this attempt, from 1.
    pub attempt: u32,
    /// The reason of the previous failure.
    pub last_reason: Option<String>,
    /// The replay that hands it out again, if the event had been passed when the replay began.
    pub replay: Option<ByteString>,
}

/// A failing partition that is due. The task looks up its first event at or after `from` and before `to`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The partition.
    pub partition: ByteString,
    /// The position to search from.
    pub from: u64,
    /// The position up to which the source has been read.
    pub to: u64,
}

/// An event that was taken out of its partition without being handled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parked {
    /// The event.
    pub event: Fetched,
    /// The number of attempts.
    pub attempts: u32,
    /// The reason of the last failure.
    pub reason: String,
    /// When it was parked.
    pub at: Timestamp,
    /// The reason of the operator who parked or skipped it; `None` if the policy parked it.
    pub act: Option<String>,
}

/// The changes to store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changes {
    /// The progress of the processor.
    pub progress: Progress,
    /// Failing partitions: `Some` if one began to fail or changed, `None` if it has caught up.
    pub failing: Vec<(ByteString, Option<Failing>)>,
    /// Events that were parked.
    pub parked: Vec<Parked>,
}

#[derive(Debug, Clone)]
struct Flight {
    /// The unsettled events. Their tokens are consecutive and end with `last`.
    events: VecDeque<Fetched>,
    /// The token of its last event.
    last: u64,
    until: Timestamp,
    worker: String,
    /// The dead letter as it was offered, if it is one.
    letter: Option<Offered>,
}

impl Flight {
    /// Returns the token of the first unsettled event.
    fn first(&self) -> u64 {
        (self.last + 1).saturating_sub(self.events.len() as u64)
    }
}

#[derive(Debug, Clone)]
struct FailingNow {
    state: Failing,
    /// Its next event, once it was looked up.
    next: Option<Fetched>,
    /// Whether the source may have events of this partition after `state.position` that were read and dropped. If it has none, the
    /// partition has caught up as soon as its event is settled.
    has_dropped: bool,
    /// Whether `state` was among the changes to store, so that its record has to be deleted once the partition has caught up.
    is_stored: bool,
}

/// Events of one partition that will be handed out together.
struct Batch {
    events: VecDeque<Fetched>,
    attempt: u32,
    last_reason: Option<String>,
    letter: Option<Offered>,
}

/// The state of one processor. See [`processing`](super) for its invariants.
#[derive(Debug, Clone)]
pub struct Machine {
    settings: Settings,
    progress: Progress,
    read_to: u64,
    /// Events that can be handed out, by partition.
    waiting: HashMap<ByteString, VecDeque<Fetched>>,
    /// Partitions in `waiting` that are neither in flight nor failing, by the position of their first event.
    ready: BTreeMap<u64, ByteString>,
    /// Positions of events that were read but not settled, and hold back the processor's position: waiting or in flight.
    open: BTreeSet<u64>,
    in_flight: HashMap<ByteString, Flight>,
    /// The partitions in flight, by the last token of each.
    tokens: BTreeMap<u64, ByteString>,
    next_token: u64,
    failing: HashMap<ByteString, FailingNow>,
    /// Failing partitions that are not in flight, by the time of their next attempt.
    due: BTreeSet<(Timestamp, ByteString)>,
    changed: HashSet<ByteString>,
    parked: Vec<Parked>,
    replay: Option<Replay>,
    letters: letters::Letters,
}

impl Machine {
    /// Resumes from the stored state. Tokens start at `first_token`.
    pub fn resume(
        settings: Settings,
        progress: Progress,
        failing: impl IntoIterator<Item = Failing>,
        first_token: u64,
    ) -> Self {
        let mut machine = Self {
            settings,
            read_to: progress.position,
            progress,
            waiting: HashMap::new(),
            ready: BTreeMap::new(),
            open: BTreeSet::new(),
            in_flight: HashMap::new(),
            tokens: BTreeMap::new(),
            next_token: first_token,
            failing: HashMap::new(),
            due: BTreeSet::new(),
            changed: HashSet::new(),
            parked: Vec::new(),
            replay: None,
            letters: letters::Letters::default(),
        };
        for state in failing {
            machine.due.extend(state.retry_at.map(|at| (at, state.partition.clone())));
            let resumed = FailingNow { next: None, has_dropped: true, is_stored: true, state };
            machine.failing.insert(resumed.state.partition.clone(), resumed);
        }
        machine
    }

    /// Applies other settings from now on.
    pub fn set(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// Returns the progress of the processor.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Returns the position up to which the source has been read.
    pub fn read_to(&self) -> u64 {
        self.read_to
    }

    /// Returns how many events may be read now.
    pub fn room(&self) -> usize {
        WINDOW_MAX.saturating_sub(self.open.len())
    }

    /// Returns the number of events in flight, by worker.
    pub fn workers(&self) -> HashMap<&str, usize> {
        let mut workers = HashMap::new();
        for flight in self.in_flight.values() {
            *workers.entry(&*flight.worker).or_default() += flight.events.len();
        }
        workers
    }

    /// Returns the positions of events that may still be handed out or are in flight.
    pub fn needed(&self) -> HashSet<u64> {
        let next = self.failing.values().filter_map(|failing| Some(failing.next.as_ref()?.position));
        self.open.iter().copied().chain(next).chain(self.letters.positions(&self.in_flight)).collect()
    }

    /// Returns a lower bound of the number of [`needed`](Self::needed) positions.
    pub fn needed_count(&self) -> usize {
        self.open.len() + self.in_flight.len() + self.letters.len()
    }

    /// Returns whether the delivery with this token is in flight.
    pub fn is_in_flight(&self, token: u64) -> bool {
        self.flight_of(token).is_some()
    }

    /// Returns the flight of a token, with its partition; `None` if the token is not in flight.
    fn flight_of(&self, token: u64) -> Option<(&ByteString, &Flight)> {
        let (_, partition) = self.tokens.range(token..).next()?;
        let flight = self.in_flight.get(partition)?;
        (flight.first() <= token).then_some((partition, flight))
    }

    /// Returns whether the delivery with this token is in flight and is a dead letter.
    pub fn is_letter(&self, token: u64) -> bool {
        self.flight_of(token).is_some_and(|(_, flight)| flight.letter.is_some())
    }

    /// Returns whether nothing is in flight.
    pub fn is_idle(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// Returns the failing partition with this name.
    pub fn failing(&self, partition: &str) -> Option<&Failing> {
        self.failing.get(partition).map(|failing| &failing.state)
    }

    /// Returns all failing partitions, in no particular order.
    pub fn all_failing(&self) -> impl Iterator<Item = &Failing> {
        self.failing.values().map(|failing| &failing.state)
    }

    /// Returns whether the event at `position` is settled and the partition is not failing at or before it.
    pub fn has_handled(&self, partition: &str, position: u64) -> bool {
        let passed = self.read_to > position && self.progress.is_settled(position);
        passed && self.failing.get(partition).is_none_or(|failing| failing.state.position > position)
    }

    /// Returns the time of the next retry that is not due yet.
    pub fn next_retry(&self, now: Timestamp) -> Option<Timestamp> {
        self.due.iter().map(|(at, _)| *at).find(|at| *at > now)
    }

    /// Returns when the next lease ends.
    pub fn next_lease_end(&self) -> Option<Timestamp> {
        self.in_flight.values().map(|flight| flight.until).min()
    }

    /// Adds events that were read: all events of the source from [`read_to`](Self::read_to) up to, but not including, `next`, in order.
    pub fn read(&mut self, events: impl IntoIterator<Item = Fetched>, next: u64) {
        for event in events {
            debug_assert!(event.position >= self.read_to && event.position < next);
            if self.progress.is_settled(event.position) {
                continue;
            }
            if self.settings.partitioned
                && let Some(failing) = self.failing.get_mut(&event.partition)
            {
                failing.has_dropped = true;
                continue;
            }
            self.open.insert(event.position);
            let partition = event.partition.clone();
            // Without partitions a failing event holds back the position, so a restart reads it again: it is the next attempt.
            if let Some(failing) = self.failing.get_mut(&partition).filter(|failing| failing.next.is_none()) {
                failing.state.position = event.position;
                failing.next = Some(event);
                continue;
            }
            let queue = self.waiting.entry(partition.clone()).or_default();
            queue.push_back(event);
            if queue.len() == 1 {
                self.make_ready(&partition);
            }
        }
        self.read_to = self.read_to.max(next);
        self.advance();
    }

    /// Returns failing partitions whose next event must be looked up, at most `limit`.
    pub fn wanted(&self, now: Timestamp, limit: usize) -> Vec<Wanted> {
        let lanes = self.settings.concurrency.saturating_sub(self.in_flight.len()).min(limit);
        if !self.settings.partitioned {
            return Vec::new();
        }
        let due = self.due.iter().take_while(|(at, _)| *at <= now).filter_map(|(_, name)| self.failing.get(name));
        // After a restart, the source may not yet have been read up to a failed event.
        let known = |state: &Failing| state.attempts == 0 || state.position < self.read_to;
        let wanted =
            due.filter(|failing| failing.next.is_none() && known(&failing.state)).map(|failing| &failing.state);
        let of =
            |state: &Failing| Wanted { partition: state.partition.clone(), from: state.position, to: self.read_to };
        wanted.take(lanes).map(of).collect()
    }

    /// Sets the next event of a failing partition. `None` means that there is no event below `scanned_to`. If the source has been read no
    /// further than that, the partition has caught up and stops failing. Returns whether it has.
    pub fn fetched(&mut self, partition: &str, next: Option<Fetched>, scanned_to: u64) -> bool {
        let Some(failing) = self.failing.get_mut(partition) else { return true };
        self.changed.insert(failing.state.partition.clone());
        match next {
            Some(event) if self.progress.is_settled(event.position) && event.position >= self.progress.position => {
                failing.state.position = event.position + 1;
            }
            Some(event) => {
                failing.state.position = event.position;
                failing.next = Some(event);
            }
            None if scanned_to.max(failing.state.position) >= self.read_to => self.end_failing(partition),
            None => failing.state.position = scanned_to.max(failing.state.position),
        }
        !self.failing.contains_key(partition)
    }

    /// Hands out at most `max` events, which stay in flight until `until`.
    pub fn take(&mut self, max: usize, now: Timestamp, until: Timestamp, worker: &str) -> Vec<Taken> {
        let mut taken = Vec::new();
        while taken.len() < max && self.in_flight.len() < self.settings.concurrency {
            let Some(batch) = self.next_batch(max - taken.len(), now) else { break };
            let Batch { events, attempt, last_reason, letter } = batch;
            let Some(partition) = events.front().map(|event| event.partition.clone()) else { break };
            taken.reserve(events.len());
            let first = self.next_token;
            self.next_token += events.len() as u64;
            let last = self.next_token - 1;
            for (token, event) in (first..).zip(&events) {
                // Only the first event of a batch can have been attempted before.
                let (attempt, last_reason) = if token == first { (attempt, last_reason.clone()) } else { (1, None) };
                let replay = self.replay_of(event).cloned();
                taken.push(Taken { token, event: event.clone(), attempt, last_reason, replay });
            }
            self.tokens.insert(last, partition.clone());
            self.in_flight.insert(partition, Flight { events, last, until, worker: worker.to_owned(), letter });
        }
        taken
    }

    /// Returns the next events of one partition to hand out: due retries first, then dead letters and new events in turn.
    fn next_batch(&mut self, max: usize, now: Timestamp) -> Option<Batch> {
        // While the breaker is open, one attempt at a time probes whether it can be closed.
        let broken = self.is_broken();
        if broken && !self.in_flight.is_empty() {
            return None;
        }
        let mut due = self.due.iter().take_while(|(at, _)| *at <= now);
        let can = |name: &ByteString| !self.is_held(name) && !self.in_flight.contains_key(name);
        let found = due
            .find(|(_, name)| can(name) && self.failing.get(name).is_some_and(|failing| failing.next.is_some()))
            .cloned();
        if let Some(key) = found {
            self.due.remove(&key);
            let failing = self.failing.get(&key.1)?;
            let last_reason = (failing.state.attempts > 0).then(|| failing.state.reason.clone());
            let (events, attempt) = (failing.next.iter().cloned().collect(), failing.state.attempts + 1);
            return Some(Batch { events, attempt, last_reason, letter: None });
        }
        if let Some(letter) = self.next_letter() {
            return Some(letter);
        }
        if self.is_full() || (broken && !self.failing.is_empty()) {
            return None;
        }
        let (_, partition) = self.ready.pop_first()?;
        let count = self.batch_of(&partition).min(max).max(1);
        let queue = self.waiting.get_mut(&partition)?;
        let events = queue.drain(..count).collect();
        if queue.is_empty() {
            self.waiting.remove(&partition);
        }
        Some(Batch { events, attempt: 1, last_reason: None, letter: None })
    }

    /// Returns whether the limit of failing partitions is reached, or would be if all events in flight failed. Then only failing
    /// partitions are attempted.
    pub fn is_full(&self) -> bool {
        let (most, failing) = (self.settings.failing_max, self.failing.len());
        let near = self.settings.partitioned && failing + self.in_flight.len() >= most;
        near && failing + self.in_flight.keys().filter(|name| !self.failing.contains_key(*name)).count() >= most
    }

    /// Returns whether nothing new is handed out until an operator decides.
    pub fn is_blocked(&self) -> bool {
        let is_stuck = |failing: &FailingNow| failing.state.retry_at.is_none();
        match self.settings.partitioned {
            true => self.failing.len() >= self.settings.failing_max,
            false => self
                .failing
                .values()
                .any(|failing| is_stuck(failing) && !self.in_flight.contains_key(&failing.state.partition)),
        }
    }

    /// Returns the number of failing partitions, and how many of them wait for an operator.
    pub fn failing_counts(&self) -> (usize, usize) {
        let failing = self.failing.len();
        // The others have a due time or are being attempted.
        let attempted = self.in_flight.keys().filter(|name| self.failing.contains_key(*name)).count();
        (failing, failing.saturating_sub(self.due.len() + attempted))
    }

    /// Returns the changes since the last call, for one batch of records.
    pub fn changes(&mut self) -> Changes {
        let changed = std::mem::take(&mut self.changed);
        let failing = changed.into_iter().map(|name| {
            let state = self.failing.get_mut(&name).map(|failing| {
                failing.is_stored = true;
                failing.state.clone()
            });
            (name, state)
        });
        Changes {
            failing: failing.collect(),
            progress: self.progress.clone(),
            parked: std::mem::take(&mut self.parked),
        }
    }

    /// Returns whether failing partitions or parked events have changed since the last call of [`changes`](Self::changes).
    pub fn has_changes(&self) -> bool {
        !self.changed.is_empty() || !self.parked.is_empty()
    }

    fn make_ready(&mut self, partition: &ByteString) {
        if self.in_flight.contains_key(partition) || self.failing.contains_key(partition) {
            return;
        }
        if let Some(first) = self.waiting.get(partition).and_then(|queue| queue.front()) {
            if self.is_held(partition) {
                self.letters.follows(first.position, partition.clone());
                return;
            }
            self.ready.insert(first.position, partition.clone());
        }
    }

    fn advance(&mut self) {
        self.progress.advance(self.open.first().copied().unwrap_or(self.read_to));
    }

    fn settle_position(&mut self, position: u64) {
        self.open.remove(&position);
        self.progress.settle(position);
        self.advance();
    }

    /// Ends the failing state of a partition, so that its waiting events can be handed out.
    fn end_failing(&mut self, partition: &str) {
        let Some((name, failing)) = self.failing.remove_entry(partition) else { return };
        debug_assert!(failing.state.partition == name);
        if let Some(at) = failing.state.retry_at {
            self.due.remove(&(at, name.clone()));
        }
        if failing.is_stored {
            self.changed.insert(name.clone());
        } else {
            self.changed.remove(&name);
        }
        self.make_ready(&name);
    }
}

/// Returns the time that is this many milliseconds from now.
fn after(now: Timestamp, millis: u64) -> Timestamp {
    now.plus(Duration::from_millis(millis))
}
