//! Which event is handed out next, and what becomes of it. See [`processing`](super).

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

/// Most events that are read and neither settled nor part of a failing partition.
const WINDOW_MAX: usize = 1_000;
/// Most failing partitions of a processor. With as many it hands out no new events, because any could be of another one.
pub const FAILING_MAX: usize = 10_000;

/// How a processor hands events out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// Whether events have different partitions. Without, a failing event holds up all that follow it.
    pub partitioned: bool,
    /// How many partitions are in flight at most.
    pub concurrency: usize,
    /// How many events of one partition are handed out together at most.
    pub batch: usize,
    /// When a failed event is attempted again.
    pub retry: ProcessingRetry,
    /// Most failing partitions; [`FAILING_MAX`] for those that people define.
    pub failing_max: usize,
    /// Whether events of a partition are parked unattempted while an earlier one of it is a dead letter.
    pub keeps_order: bool,
    /// After this many events in a row were parked without a success in between, none is parked until one succeeds. 0 is without end.
    pub breaker: u32,
}

/// An event of the source, as far as the machine needs to know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// Its position in the source.
    pub position: u64,
    /// Its number in the log.
    pub sequence_number: SequenceNumber,
    /// Its partition.
    pub partition: ByteString,
    /// When it happened.
    pub time: Timestamp,
}

/// An event that is handed out. It counts as in flight until its token is settled or its lease ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// Names this delivery.
    pub token: u64,
    /// The event.
    pub event: Fetched,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// What the attempt before said.
    pub last_reason: Option<String>,
    /// The replay that hands it out again, if it had been passed when that began.
    pub replay: Option<ByteString>,
}

/// A failing partition that is due: the task is to look up its first event from `from` to before `to`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The partition.
    pub partition: ByteString,
    /// Where to look from.
    pub from: u64,
    /// Where its events have not been read yet.
    pub to: u64,
}

/// An event that was taken out of its partition without having been handled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parked {
    /// The event.
    pub event: Fetched,
    /// How often it was attempted.
    pub attempts: u32,
    /// What the last attempt said.
    pub reason: String,
    /// When it was parked.
    pub at: Timestamp,
    /// Why an operator parked or skipped it; none when the policy did.
    pub act: Option<String>,
}

/// What is to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changes {
    /// How far the processor is.
    pub progress: Progress,
    /// Partitions that began to fail or changed (some), or that have caught up (none).
    pub failing: Vec<(ByteString, Option<Failing>)>,
    /// Events that were parked.
    pub parked: Vec<Parked>,
}

#[derive(Debug, Clone)]
struct Flight {
    /// Those that are not settled yet. Their tokens follow each other, up to `last`.
    events: VecDeque<Fetched>,
    /// The token of its last event.
    last: u64,
    until: Timestamp,
    worker: String,
    /// What it was offered as, if it is a dead letter.
    letter: Option<Offered>,
}

impl Flight {
    /// The token of its first event that is not settled.
    fn first(&self) -> u64 {
        (self.last + 1).saturating_sub(self.events.len() as u64)
    }
}

#[derive(Debug, Clone)]
struct FailingNow {
    state: Failing,
    /// Its next event, once looked up.
    next: Option<Fetched>,
}

/// Events of one partition that are to be handed out.
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
    /// Partitions of `waiting` that are neither in flight nor failing, by the position of their first event.
    ready: BTreeMap<u64, ByteString>,
    /// Positions of events that were read, are not settled and hold up the position: waiting or in flight.
    open: BTreeSet<u64>,
    in_flight: HashMap<ByteString, Flight>,
    /// The partitions in flight, by their last tokens.
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
    /// Resumes from what is stored. Tokens count from `first_token`.
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
            machine.failing.insert(state.partition.clone(), FailingNow { state, next: None });
        }
        machine
    }

    /// Follows other settings from now on.
    pub fn set(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// How far the processor is.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Where the source is read next.
    pub fn read_to(&self) -> u64 {
        self.read_to
    }

    /// How many events may be read now.
    pub fn room(&self) -> usize {
        WINDOW_MAX.saturating_sub(self.open.len())
    }

    /// How many events are in flight, by worker.
    pub fn workers(&self) -> HashMap<&str, usize> {
        let mut workers = HashMap::new();
        for flight in self.in_flight.values() {
            *workers.entry(&*flight.worker).or_default() += flight.events.len();
        }
        workers
    }

    /// The positions of events that may still be handed out or are in flight.
    pub fn needed(&self) -> HashSet<u64> {
        let next = self.failing.values().filter_map(|failing| Some(failing.next.as_ref()?.position));
        self.open.iter().copied().chain(next).chain(self.letters.positions(&self.in_flight)).collect()
    }

    /// How many [`needed`](Self::needed) are at least.
    pub fn needed_count(&self) -> usize {
        self.open.len() + self.in_flight.len() + self.letters.len()
    }

    /// Whether the delivery of this token is in flight.
    pub fn is_in_flight(&self, token: u64) -> bool {
        self.flight_of(token).is_some()
    }

    /// The flight that a token is in, with its partition; none when the token is not in flight.
    fn flight_of(&self, token: u64) -> Option<(&ByteString, &Flight)> {
        let (_, partition) = self.tokens.range(token..).next()?;
        let flight = self.in_flight.get(partition)?;
        (flight.first() <= token).then_some((partition, flight))
    }

    /// Whether the delivery of this token is in flight and is a dead letter that was offered.
    pub fn is_letter(&self, token: u64) -> bool {
        self.flight_of(token).is_some_and(|(_, flight)| flight.letter.is_some())
    }

    /// Whether nothing is in flight.
    pub fn is_idle(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// The failing partition of this name.
    pub fn failing(&self, partition: &str) -> Option<&Failing> {
        self.failing.get(partition).map(|failing| &failing.state)
    }

    /// All failing partitions, in no order.
    pub fn all_failing(&self) -> impl Iterator<Item = &Failing> {
        self.failing.values().map(|failing| &failing.state)
    }

    /// Whether every event of this partition below `position` is handled.
    pub fn has_handled(&self, partition: &str, position: u64) -> bool {
        let passed = self.read_to > position && self.progress.is_settled(position);
        passed && self.failing.get(partition).is_none_or(|failing| failing.state.position > position)
    }

    /// When the next retry is due that is not due yet.
    pub fn next_retry(&self, now: Timestamp) -> Option<Timestamp> {
        self.due.iter().map(|(at, _)| *at).find(|at| *at > now)
    }

    /// When the next lease ends.
    pub fn next_lease_end(&self) -> Option<Timestamp> {
        self.in_flight.values().map(|flight| flight.until).min()
    }

    /// Takes in what was read: events in order of position, all from [`read_to`](Self::read_to) to before `next` that the source has.
    pub fn read(&mut self, events: impl IntoIterator<Item = Fetched>, next: u64) {
        for event in events {
            debug_assert!(event.position >= self.read_to && event.position < next);
            let of_failing = self.settings.partitioned && self.failing.contains_key(&event.partition);
            if self.progress.is_settled(event.position) || of_failing {
                continue;
            }
            self.open.insert(event.position);
            let partition = event.partition.clone();
            // Without partitions a failing event holds up the position, so a restart reads it again: it is the next attempt.
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

    /// Failing partitions whose next event is needed, at most `limit`.
    pub fn wanted(&self, now: Timestamp, limit: usize) -> Vec<Wanted> {
        let lanes = self.settings.concurrency.saturating_sub(self.in_flight.len()).min(limit);
        if !self.settings.partitioned {
            return Vec::new();
        }
        let due = self.due.iter().take_while(|(at, _)| *at <= now).filter_map(|(_, name)| self.failing.get(name));
        // After a restart the source may not have been read up to a failed event yet.
        let known = |state: &Failing| state.attempts == 0 || state.position < self.read_to;
        let wanted =
            due.filter(|failing| failing.next.is_none() && known(&failing.state)).map(|failing| &failing.state);
        let of =
            |state: &Failing| Wanted { partition: state.partition.clone(), from: state.position, to: self.read_to };
        wanted.take(lanes).map(of).collect()
    }

    /// Takes in the next event of a failing partition. None is no event below `scanned_to`; once that is where the source was read
    /// to, the partition has caught up and is not failing any more. Returns whether it has.
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
                // Only the first event of a batch was attempted before.
                let (attempt, last_reason) = if token == first { (attempt, last_reason.clone()) } else { (1, None) };
                let replay = self.replay_of(event).cloned();
                taken.push(Taken { token, event: event.clone(), attempt, last_reason, replay });
            }
            self.tokens.insert(last, partition.clone());
            self.in_flight.insert(partition, Flight { events, last, until, worker: worker.to_owned(), letter });
        }
        taken
    }

    /// The events of one partition that are to be handed out next: retries that are due first, then dead letters and new ones by turns.
    fn next_batch(&mut self, max: usize, now: Timestamp) -> Option<Batch> {
        // Behind an open breaker one attempt at a time probes whether it may be closed.
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

    /// Whether as many partitions are failing, or may be once the events in flight have failed, as can be. Then only they are attempted.
    pub fn is_full(&self) -> bool {
        let (most, failing) = (self.settings.failing_max, self.failing.len());
        let near = self.settings.partitioned && failing + self.in_flight.len() >= most;
        near && failing + self.in_flight.keys().filter(|name| !self.failing.contains_key(*name)).count() >= most
    }

    /// Whether nothing new is handed out until an operator decides.
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

    /// How many partitions are failing, and how many of them wait for an operator.
    pub fn failing_counts(&self) -> (usize, usize) {
        let failing = self.failing.len();
        // Those that are due some time, and those that are being attempted.
        let attempted = self.in_flight.keys().filter(|name| self.failing.contains_key(*name)).count();
        (failing, failing.saturating_sub(self.due.len() + attempted))
    }

    /// What changed since this was called last, for one batch of records.
    pub fn changes(&mut self) -> Changes {
        let changed = std::mem::take(&mut self.changed);
        let failing = changed.into_iter().map(|name| {
            let state = self.failing.get(&name).map(|failing| failing.state.clone());
            (name, state)
        });
        Changes {
            progress: self.progress.clone(),
            failing: failing.collect(),
            parked: std::mem::take(&mut self.parked),
        }
    }

    /// Whether failing partitions or parked events changed since [`changes`](Self::changes) was called last.
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

    /// The partition is not failing any more; what waits of it can be handed out.
    fn end_failing(&mut self, partition: &str) {
        if let Some((name, failing)) = self.failing.remove_entry(partition) {
            self.due.retain(|(_, due)| *due != name);
            debug_assert!(failing.state.partition == name);
            self.changed.insert(name.clone());
            self.make_ready(&name);
        }
    }
}

/// A delay as a time from now.
fn after(now: Timestamp, millis: u64) -> Timestamp {
    now.plus(Duration::from_millis(millis))
}
