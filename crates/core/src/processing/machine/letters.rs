//! Dead letters: they are handed out again alongside new events, and later events of their partitions are parked after them.
//!
//! ```text
//!  records ── offer ──▶ offered ── take ──▶ in flight ── settle ──▶ outcome ──▶ the batch that stores it
//!
//!  partition with an open letter: held ── its later events ── follow ──▶ parked, unattempted
//! ```

use std::collections::{BTreeMap, HashMap, HashSet};

use bytestring::ByteString;

use super::{Batch, Fetched, Flight, Machine, Outcome, Parked, shortened};
use crate::Timestamp;

/// A dead letter that is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offered {
    /// Its event.
    pub event: Fetched,
    /// The number of attempts.
    pub attempts: u32,
    /// The reason of the last failure.
    pub reason: String,
}

/// The outcome of a dead letter that was handed out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LetterOutcome {
    /// Its event.
    pub event: Fetched,
    /// The time of the outcome.
    pub at: Timestamp,
    /// The failure; `None` if it succeeded.
    pub failure: Option<LetterFailure>,
}

/// Why a dead letter could not be processed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LetterFailure {
    /// The reason of the failure.
    pub reason: String,
    /// Whether it counts as a retry. It does not while the breaker is open.
    pub counts: bool,
    /// The delay that the worker requested, in milliseconds.
    pub retry_after_ms: Option<u64>,
    /// Whether the worker reports that no retry can succeed.
    pub never: bool,
}

/// The dead letters of a processor that its machine has loaded.
#[derive(Debug, Clone, Default)]
pub(super) struct Letters {
    offered: BTreeMap<u64, Offered>,
    outcomes: Vec<LetterOutcome>,
    /// Partitions with open letters, if order is kept.
    held: HashSet<ByteString>,
    /// Held partitions that have waiting events, by the position of the first one.
    following: BTreeMap<u64, ByteString>,
    /// The number of events in a row that became or stayed dead letters, except those that can never succeed.
    pub(super) in_a_row: u32,
    /// Whether the last hand-out was a letter, so that a new event is next.
    had_turn: bool,
    /// Events below this position were passed before, and may have open letters.
    passed: u64,
}

impl Letters {
    pub fn len(&self) -> usize {
        self.offered.len()
    }

    pub fn positions<'a>(&'a self, in_flight: &'a HashMap<ByteString, Flight>) -> impl Iterator<Item = u64> + 'a {
        let flying = in_flight.values().filter_map(|flight| Some(flight.letter.as_ref()?.event.position));
        self.offered.keys().copied().chain(flying)
    }

    pub fn follows(&mut self, position: u64, partition: ByteString) {
        self.following.insert(position, partition);
    }

    pub fn succeeded(&mut self) {
        self.in_a_row = 0;
    }

    /// Records that an event of the source was processed, which may have an open letter from an earlier pass.
    pub fn processed(&mut self, event: &Fetched, at: Timestamp) {
        if event.position < self.passed {
            self.offered.remove(&event.position);
            self.outcomes.push(LetterOutcome { event: event.clone(), at, failure: None });
        }
    }

    pub fn failed(&mut self) {
        self.in_a_row = self.in_a_row.saturating_add(1);
    }
}

impl Machine {
    /// Adds a dead letter that is due. It is handed out once nothing of its partition is in flight.
    pub fn offer(&mut self, letter: Offered) {
        if !self.has_letter(&letter.event.partition, letter.event.position) {
            self.letters.offered.insert(letter.event.position, letter);
        }
    }

    /// Sets the position below which events were passed before: if one is processed again, that ends its letter.
    pub fn passed_before(&mut self, position: u64) {
        self.letters.passed = position;
    }

    /// Forgets offered letters that are not in flight, because their records may have changed.
    pub fn forget_letters(&mut self) {
        self.letters.offered.clear();
    }

    /// Returns whether the letter of this partition at this position is offered, in flight, or settled but not stored yet.
    pub fn has_letter(&self, partition: &str, position: u64) -> bool {
        let letters = &self.letters;
        let is_it = |flight: &Flight| flight.letter.as_ref().is_some_and(|it| it.event.position == position);
        letters.offered.contains_key(&position)
            || self.in_flight.get(partition).is_some_and(is_it)
            || letters.outcomes.iter().any(|outcome| outcome.event.position == position)
    }

    /// Returns whether any letter is offered or in flight.
    pub fn has_letters(&self) -> bool {
        self.letters.positions(&self.in_flight).next().is_some()
    }

    /// Returns the number of letters that are offered and not in flight.
    pub fn offered_count(&self) -> usize {
        self.letters.len()
    }

    /// Returns the outcomes of letters since the last call.
    pub fn letter_outcomes(&mut self) -> Vec<LetterOutcome> {
        std::mem::take(&mut self.letters.outcomes)
    }

    /// Returns whether letters were settled since the last call of [`letter_outcomes`](Self::letter_outcomes).
    pub fn has_letter_outcomes(&self) -> bool {
        !self.letters.outcomes.is_empty()
    }

    /// Parks events of this partition without an attempt from now on, because an earlier one is a dead letter.
    pub fn hold(&mut self, partition: ByteString) {
        if let Some(first) = self.waiting.get(&partition).and_then(|queue| queue.front())
            && self.ready.remove(&first.position).is_some()
        {
            self.letters.following.insert(first.position, partition.clone());
        }
        self.letters.held.insert(partition);
    }

    /// Hands out events of this partition again, because none of its letters is open any more.
    pub fn let_go(&mut self, partition: &str) {
        if self.letters.held.remove(partition)
            && let Some((name, queue)) = self.waiting.get_key_value(partition)
        {
            let name = name.clone();
            if let Some(first) = queue.front() {
                self.letters.following.remove(&first.position);
            }
            self.make_ready(&name);
        }
    }

    /// Returns whether events of this partition are parked without an attempt.
    pub fn is_held(&self, partition: &str) -> bool {
        self.settings.keeps_order && self.letters.held.contains(partition)
    }

    /// Parks at most `limit` events of held partitions, in order. Returns how many were parked.
    pub fn follow(&mut self, limit: usize, now: Timestamp) -> usize {
        let mut followed = 0;
        while followed < limit {
            let Some((_, partition)) = self.letters.following.pop_first() else { break };
            let Some(event) = self.waiting.get_mut(&partition).and_then(|queue| queue.pop_front()) else { continue };
            if self.waiting.get(&partition).is_some_and(|queue| queue.is_empty()) {
                self.waiting.remove(&partition);
            }
            self.park_behind(&event, now);
            self.make_ready(&partition);
            followed += 1;
        }
        if self.letters.held.is_empty() {
            return followed;
        }
        let caught: Vec<_> = self.failing.iter().filter(|(name, it)| it.next.is_some() && self.is_held(name)).collect();
        let caught: Vec<Fetched> =
            caught.into_iter().filter_map(|(_, it)| it.next.clone()).take(limit - followed).collect();
        for event in &caught {
            self.park_behind(event, now);
            self.continue_after(event, now);
        }
        followed + caught.len()
    }

    fn park_behind(&mut self, event: &Fetched, at: Timestamp) {
        let reason = "an earlier event of its key is a dead letter".to_owned();
        self.parked.push(Parked { event: event.clone(), attempts: 0, reason, at, act: None });
        self.settle_position(event.position);
    }

    /// Returns whether the breaker is open: so many events failed in a row that their dependency is probably down. While it is open, no
    /// event is parked, and one attempt at a time probes whether the dependency is back.
    pub fn is_broken(&self) -> bool {
        self.settings.breaker > 0 && self.letters.in_a_row >= self.settings.breaker
    }

    /// Returns the next letter to hand out. Letters and new events alternate.
    pub(super) fn next_letter(&mut self) -> Option<Batch> {
        let has_new = !self.ready.is_empty() && !self.is_broken();
        if std::mem::take(&mut self.letters.had_turn) && has_new {
            return None;
        }
        let is_free = |letter: &Offered| !self.in_flight.contains_key(&letter.event.partition);
        let position =
            self.letters.offered.iter().find(|(_, letter)| is_free(letter)).map(|(position, _)| *position)?;
        let letter = self.letters.offered.remove(&position)?;
        self.letters.had_turn = true;
        if let Some(first) = self.waiting.get(&letter.event.partition).and_then(|queue| queue.front()) {
            self.ready.remove(&first.position);
        }
        Some(Batch {
            events: [letter.event.clone()].into(),
            attempt: letter.attempts.saturating_add(1),
            last_reason: (!letter.reason.is_empty()).then(|| letter.reason.clone()),
            letter: Some(letter),
        })
    }

    /// Settles a letter that was in flight.
    pub(super) fn settle_letter(&mut self, event: &Fetched, outcome: Outcome, at: Timestamp) {
        let counts = !self.is_broken();
        let failed = |reason: String, retry_after_ms, never| {
            Some(LetterFailure { reason: shortened(reason), counts: counts || never, retry_after_ms, never })
        };
        let failure = match outcome {
            Outcome::Done => None,
            Outcome::Failed { reason } => failed(reason, None, false),
            Outcome::RetryAfter { reason, millis } => failed(reason, Some(millis), false),
            Outcome::Never { reason } => failed(reason, None, true),
        };
        match &failure {
            None => self.letters.succeeded(),
            Some(failure) if failure.never => {}
            Some(_) => self.letters.failed(),
        }
        self.letters.outcomes.push(LetterOutcome { event: event.clone(), at, failure });
        self.landed(&event.partition);
        self.make_ready(&event.partition);
    }

    /// Undoes the outcome of an event's letter.
    pub(super) fn undo_letter(&mut self, event: &Fetched) {
        self.letters.outcomes.retain(|outcome| outcome.event.position != event.position);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ProcessingRetry, Settings, Taken};
    use super::*;
    use crate::processing::{Progress, Then};

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn event(position: u64, partition: &str) -> Fetched {
        Fetched { position, sequence_number: position, partition: partition.into(), time: at(0) }
    }

    fn offered(position: u64, partition: &str) -> Offered {
        Offered { event: event(position, partition), attempts: 1, reason: "down".to_owned() }
    }

    fn machine(keeps_order: bool, breaker: u32, partitions: &[&str]) -> Machine {
        let retry = ProcessingRetry { attempts: Some(1), then: Then::Park, jitter: 0.0, ..Default::default() };
        let failing_max = super::super::FAILING_MAX;
        let settings =
            Settings { partitioned: true, concurrency: 4, batch: 1, retry, failing_max, keeps_order, breaker };
        let mut machine = Machine::resume(settings, Progress::at(0), [], 0);
        let events = partitions.iter().enumerate().map(|(n, partition)| event(n as u64, partition));
        machine.read(events.collect::<Vec<_>>(), partitions.len() as u64);
        machine
    }

    fn take(machine: &mut Machine) -> Vec<Taken> {
        machine.take(10, at(0), at(1_000), "w")
    }

    fn positions(taken: &[Taken]) -> Vec<u64> {
        taken.iter().map(|taken| taken.event.position).collect()
    }

    fn settle(machine: &mut Machine, taken: &Taken, outcome: Outcome) {
        machine.settle(taken.token, outcome, at(0), 0).expect("in flight");
    }

    fn failed() -> Outcome {
        Outcome::Failed { reason: "down".to_owned() }
    }

    #[test]
    fn events_of_a_key_with_a_letter_are_parked_behind_it_and_go_on_once_it_is_over() {
        let mut machine = machine(true, 0, &["a", "a", "b", "a"]);
        let taken = take(&mut machine);
        assert_eq!(positions(&taken), [0, 2]);
        settle(&mut machine, &taken[0], failed());
        let wanted = machine.wanted(at(0), 10);
        assert_eq!(wanted.len(), 1, "the rest of the key is looked up");
        machine.fetched("a", Some(event(1, "a")), 4);
        assert!(take(&mut machine).is_empty());
        assert_eq!(machine.follow(10, at(0)), 1);
        machine.fetched("a", Some(event(3, "a")), 4);
        assert_eq!(machine.follow(10, at(0)), 1);
        let parked = machine.changes().parked;
        assert_eq!(
            parked.iter().map(|it| (it.event.position, it.attempts)).collect::<Vec<_>>(),
            [(0, 1), (1, 0), (3, 0)]
        );
        machine.fetched("a", None, 4);
        machine.read([event(4, "a"), event(5, "a")], 6);
        assert_eq!(machine.follow(1, at(0)), 1);
        machine.let_go("a");
        assert_eq!(positions(&take(&mut machine)), [5]);
    }

    #[test]
    fn a_letter_and_an_event_of_its_key_are_never_in_flight_together() {
        let mut machine = machine(false, 0, &["a", "b"]);
        assert!(!machine.has_letters());
        machine.offer(offered(100, "a"));
        assert!(machine.has_letters());
        let taken = take(&mut machine);
        assert!(machine.has_letters() && machine.offered_count() == 0);
        assert_eq!(positions(&taken), [100, 1]);
        assert_eq!((taken[0].attempt, taken[0].last_reason.as_deref()), (2, Some("down")));
        machine.offer(offered(100, "a"));
        settle(&mut machine, &taken[0], Outcome::Done);
        assert!(!machine.has_letters());
        assert_eq!(positions(&take(&mut machine)), [0]);
        let outcomes = machine.letter_outcomes();
        assert_eq!((outcomes.len(), outcomes[0].failure.is_none()), (1, true));
    }

    #[test]
    fn a_letter_that_was_handed_to_nobody_or_whose_settlement_is_undone_is_not_lost() {
        let mut machine = machine(false, 0, &["a"]);
        machine.offer(offered(100, "a"));
        let taken = take(&mut machine);
        assert_eq!(positions(&taken), [100]);
        machine.release(&taken, at(0));
        let again = take(&mut machine);
        assert_eq!(again.len(), 1);
        let first = if again[0].event.position == 0 {
            settle(&mut machine, &again[0], Outcome::Done);
            take(&mut machine)
        } else {
            again
        };
        let settled = machine.settle(first[0].token, Outcome::Done, at(0), 0).expect("in flight");
        machine.undo(settled);
        assert!(machine.letter_outcomes().is_empty());
        assert_eq!(machine.expire(at(2_000), 0), 1);
        let failure = machine.letter_outcomes().remove(0).failure.expect("it failed");
        assert!(failure.counts && failure.reason.contains("lease"), "{failure:?}");
    }

    #[test]
    fn an_event_that_was_passed_before_and_is_processed_ends_its_letter() {
        let mut machine = machine(false, 0, &["a", "b"]);
        machine.passed_before(1);
        machine.offer(offered(0, "a"));
        machine.forget_letters();
        let taken = take(&mut machine);
        assert_eq!(positions(&taken), [0, 1]);
        machine.offer(offered(0, "a"));
        let settled = machine.settle(taken[0].token, Outcome::Done, at(0), 0).expect("in flight");
        machine.undo(settled);
        assert!(machine.letter_outcomes().is_empty());
        machine.offer(offered(0, "a"));
        settle(&mut machine, &taken[0], Outcome::Done);
        settle(&mut machine, &taken[1], Outcome::Done);
        assert_eq!(machine.offered_count(), 0, "it is not delivered again");
        let outcomes = machine.letter_outcomes();
        let ended: Vec<_> = outcomes.iter().map(|it| (it.event.position, it.failure.is_none())).collect();
        assert_eq!(ended, [(0, true)], "the other one was not passed before");
    }

    #[test]
    fn behind_an_open_breaker_nothing_is_parked_and_one_attempt_at_a_time_probes() {
        let mut machine = machine(true, 2, &["a", "b", "c", "d", "e"]);
        let taken = take(&mut machine);
        assert_eq!(taken.len(), 4);
        for one in &taken {
            settle(&mut machine, one, failed());
        }
        assert!(machine.is_broken());
        assert_eq!(machine.changes().parked.len(), 2);
        assert!(take(&mut machine).is_empty(), "no new one while others are failing");
        let due: Vec<_> = machine.take(10, at(60_000), at(61_000), "w");
        assert!(due.is_empty(), "they are to be looked up first");
        for (position, partition) in [(2, "c"), (3, "d")] {
            machine.fetched(partition, Some(event(position, partition)), 5);
        }
        let probe = machine.take(10, at(60_000), at(61_000), "w");
        assert_eq!(probe.len(), 1);
        settle(&mut machine, &probe[0], Outcome::Done);
        assert!(!machine.is_broken());
        assert!(machine.changes().parked.is_empty());
    }

    /// As the success of an event whose effects the store refuses: the event then fails.
    #[test]
    fn events_whose_success_is_undone_before_they_fail_open_the_breaker() {
        let mut machine = machine(true, 2, &["a", "b", "c"]);
        let taken = take(&mut machine);
        assert_eq!(taken.len(), 3);
        for one in &taken[..2] {
            let settled = machine.settle(one.token, Outcome::Done, at(0), 0).expect("in flight");
            machine.undo(settled);
            settle(&mut machine, one, failed());
        }
        assert!(machine.is_broken());
        let settled = machine.settle(taken[2].token, Outcome::Done, at(0), 0).expect("in flight");
        assert!(!machine.is_broken(), "a success closes it");
        machine.undo(settled);
        assert!(machine.is_broken(), "there was no success");
    }
}
