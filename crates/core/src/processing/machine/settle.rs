//! Outcomes of events that were handed out.

use std::collections::VecDeque;

use bytestring::ByteString;

use super::{Failing, FailingNow, Fetched, Flight, Machine, Parked, Taken, after};
use crate::Timestamp;
use crate::limits::REASON_BYTES_MAX;
use crate::processing::retry::DELAY_MAX_MS;
use crate::processing::{Progress, Then};

/// The shortest delay while the breaker is open.
const BROKEN_MIN_MS: u64 = 1_000;

/// The outcome of handling an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It was handled.
    Done,
    /// It failed, and the processor's policy determines when it is retried.
    Failed {
        /// What went wrong.
        reason: String,
    },
    /// It failed, and is retried after this many milliseconds.
    RetryAfter {
        /// What went wrong.
        reason: String,
        /// The delay.
        millis: u64,
    },
    /// It failed, and no further attempt can succeed: it is treated as if its attempts were exhausted.
    Never {
        /// What went wrong.
        reason: String,
    },
}

/// Why a token was not settled. Nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettleError {
    /// The token is not in flight: its lease ended, an earlier event of its batch failed, or it was already settled.
    LeaseLost,
    /// An earlier event of its batch is not settled yet.
    OutOfOrder,
}

/// A settled token, with what is needed to undo it.
#[derive(Debug, Clone)]
pub struct Settled {
    /// The event.
    pub event: Fetched,
    undo: Undo,
}

#[derive(Debug, Clone)]
struct Undo {
    progress: Progress,
    /// The flight, if this was its last event. The rest of a longer flight stays where it is: a batch with effects is settled event by
    /// event, and copying the remainder each time would take quadratic time.
    alone: Option<Flight>,
    is_letter: bool,
    failing: Option<FailingNow>,
    open: bool,
    /// The earlier value of `in_a_row`, which determines whether the breaker is open.
    in_a_row: u32,
}

impl Machine {
    /// Settles a token. `random` determines the jitter of a retry.
    ///
    /// # Errors
    /// See [`SettleError`].
    pub fn settle(
        &mut self,
        token: u64,
        outcome: Outcome,
        now: Timestamp,
        random: u64,
    ) -> Result<Settled, SettleError> {
        let (partition, flight) = self.flight_of(token).ok_or(SettleError::LeaseLost)?;
        if flight.first() != token {
            return Err(SettleError::OutOfOrder);
        }
        let event = flight.events.front().cloned().ok_or(SettleError::LeaseLost)?;
        let undo = Undo {
            progress: self.progress.clone(),
            alone: (flight.events.len() == 1).then(|| flight.clone()),
            is_letter: flight.letter.is_some(),
            failing: self.failing.get(partition).cloned(),
            open: self.open.contains(&event.position),
            in_a_row: self.letters.in_a_row,
        };
        if undo.is_letter {
            self.settle_letter(&event, outcome, now);
            return Ok(Settled { event, undo });
        }
        match outcome {
            Outcome::Done => self.done(&event, now),
            failed => self.failed(&event, failed, now, random),
        }
        Ok(Settled { event, undo })
    }

    /// Undoes [`Outcome::Done`] of a token: the event is in flight again under the same token. Nothing else may have been settled, read or
    /// fetched since.
    pub fn undo(&mut self, settled: Settled) {
        let Settled { event, undo } = settled;
        self.undo_letter(&event);
        let partition = event.partition.clone();
        self.progress = undo.progress;
        self.letters.in_a_row = undo.in_a_row;
        if undo.open {
            self.open.insert(event.position);
        }
        if let Some(first) = self.waiting.get(&partition).and_then(VecDeque::front) {
            self.ready.remove(&first.position);
        }
        if !undo.is_letter {
            if let Some(at) = self.failing.get(&partition).and_then(|failing| failing.state.retry_at) {
                self.due.remove(&(at, partition.clone()));
            }
            if let Some(failing) = undo.failing {
                // It may never have been stored, and is no longer among the changes if it had caught up.
                self.changed.insert(partition.clone());
                self.failing.insert(partition.clone(), failing);
            }
        }
        match undo.alone {
            Some(flight) => {
                self.tokens.insert(flight.last, partition.clone());
                self.in_flight.insert(partition, flight);
            }
            None => {
                if let Some(flight) = self.in_flight.get_mut(&partition) {
                    flight.events.push_front(event);
                }
            }
        }
    }

    /// Settles deliveries as done in one step: the longest run of these tokens, from the first one, that are the next of one batch in
    /// flight. Returns how many were settled. The caller settles any other token individually, which reports what is wrong with it. So are
    /// a dead letter and an event of a failing partition.
    pub fn settle_run(&mut self, tokens: impl IntoIterator<Item = u64>, now: Timestamp) -> usize {
        let mut tokens = tokens.into_iter();
        let Some(first) = tokens.next() else { return 0 };
        let Some((partition, flight)) = self.flight_of(first) else { return 0 };
        if flight.first() != first || flight.letter.is_some() || self.failing.contains_key(partition) {
            return 0;
        }
        let partition = partition.clone();
        let following = (first + 1..=flight.last).zip(tokens).take_while(|(next, token)| next == token);
        let count = 1 + following.count();
        let Some(flight) = self.in_flight.get_mut(&partition) else { return 0 };
        let run: Vec<Fetched> = flight.events.drain(..count).collect();
        if flight.events.is_empty() {
            self.tokens.remove(&flight.last);
            self.in_flight.remove(&partition);
        }
        self.letters.succeeded();
        for event in &run {
            self.letters.processed(event, now);
            self.open.remove(&event.position);
        }
        // Advance first: events that the position passes need no range in `ahead`.
        self.advance();
        for event in &run {
            self.progress.settle(event.position);
        }
        self.make_ready(&partition);
        count
    }

    fn done(&mut self, event: &Fetched, now: Timestamp) {
        self.letters.succeeded();
        self.letters.processed(event, now);
        let partition = &event.partition;
        self.landed(partition);
        self.settle_position(event.position);
        if self.failing.contains_key(partition) {
            self.continue_after(event, now);
        } else if !self.in_flight.contains_key(partition) {
            self.make_ready(partition);
        }
    }

    /// Moves a failing partition on to the event that follows this one.
    pub(super) fn continue_after(&mut self, event: &Fetched, now: Timestamp) {
        if !self.settings.partitioned {
            return self.end_failing(&event.partition);
        }
        let Some(failing) = self.failing.get_mut(&event.partition) else { return };
        failing.next = None;
        failing.state.position = event.position + 1;
        if !failing.has_dropped {
            return self.end_failing(&event.partition);
        }
        failing.state.attempts = 0;
        failing.state.since = now;
        self.schedule(&event.partition, Some(now));
    }

    /// Removes the first event of a flight.
    pub(super) fn landed(&mut self, partition: &ByteString) {
        if let Some(flight) = self.in_flight.get_mut(partition) {
            flight.events.pop_front();
            if flight.events.is_empty() {
                self.tokens.remove(&flight.last);
                self.in_flight.remove(partition);
            }
        }
    }

    fn failed(&mut self, event: &Fetched, outcome: Outcome, now: Timestamp, random: u64) {
        let (reason, chosen) = match outcome {
            Outcome::Failed { reason } => (reason, None),
            Outcome::RetryAfter { reason, millis } => (reason, Some(Some(millis))),
            Outcome::Never { reason } => (reason, Some(None)),
            Outcome::Done => return self.done(event, now),
        };
        let reason = shortened(reason);
        let attempts = match self.failing.get(&event.partition) {
            Some(known) => known.state.attempts.saturating_add(1),
            None => 1,
        };
        let dropped = self.ground(event);
        let policy = self.settings.retry;
        let given_up = matches!(chosen, Some(None));
        let delay = match chosen {
            _ if policy.is_exhausted(attempts) => None,
            Some(delay) => delay.map(|millis| millis.min(DELAY_MAX_MS)),
            None => Some(policy.delay_ms(attempts, random)),
        };
        self.note(event, attempts, &reason, now, dropped);
        match (delay, policy.then) {
            (Some(millis), _) => self.schedule(&event.partition, Some(after(now, millis))),
            (None, Then::Block) => self.schedule(&event.partition, None),
            // The worker rejects this message in particular, so it is parked even if the breaker is open.
            (None, Then::Park) if given_up => self.park(event, attempts, reason, now, None),
            (None, Then::Park) if self.is_broken() => {
                let millis = policy.delay_ms(attempts, random).max(BROKEN_MIN_MS);
                self.schedule(&event.partition, Some(after(now, millis)));
            }
            (None, Then::Park) => {
                self.letters.failed();
                self.park(event, attempts, reason, now, None);
            }
        }
    }

    /// Takes a partition whose first event failed out of flight. With partitions, its waiting events are dropped from the window, because
    /// the partition now has its own position. Without, they are put back, because the whole processor waits. Returns whether any were
    /// dropped.
    fn ground(&mut self, event: &Fetched) -> bool {
        let Some(flight) = self.in_flight.remove(&event.partition) else { return false };
        self.tokens.remove(&flight.last);
        let rest: Vec<_> = flight.events.into_iter().skip(1).collect();
        if !self.settings.partitioned {
            let queue = self.waiting.entry(event.partition.clone()).or_default();
            rest.into_iter().rev().for_each(|event| queue.push_front(event));
            if queue.is_empty() {
                self.waiting.remove(&event.partition);
            }
            return false;
        }
        let waiting = self.waiting.remove(&event.partition).unwrap_or_default();
        for skipped in rest.iter().chain(&waiting).chain([event]) {
            self.open.remove(&skipped.position);
        }
        self.advance();
        !rest.is_empty() || !waiting.is_empty()
    }

    /// Records that the partition is failing at this event. `dropped` says whether events after it were dropped just now.
    fn note(&mut self, event: &Fetched, attempts: u32, reason: &str, now: Timestamp, dropped: bool) {
        let known = self.failing.get(&event.partition);
        let has_dropped = dropped || known.is_some_and(|failing| failing.has_dropped);
        // If it ended just now, the record that is to be deleted is still there.
        let is_stored = known.map_or(self.changed.contains(&event.partition), |failing| failing.is_stored);
        let same = known.map(|failing| &failing.state).filter(|state| state.position == event.position);
        let since = same.map_or(now, |state| state.since);
        let state = Failing {
            since,
            event_time: event.time,
            partition: event.partition.clone(),
            position: event.position,
            sequence_number: event.sequence_number,
            attempts,
            reason: reason.to_owned(),
            last_failed: now,
            retry_at: None,
        };
        // With partitions, the next event is looked up when it is due, so that failing partitions hold no events in memory.
        let next = (!self.settings.partitioned).then(|| event.clone());
        self.failing.insert(event.partition.clone(), FailingNow { state, next, has_dropped, is_stored });
        self.changed.insert(event.partition.clone());
    }

    /// Parks the event at which its partition is failing.
    pub(super) fn park(&mut self, event: &Fetched, attempts: u32, reason: String, now: Timestamp, act: Option<String>) {
        // An event that an operator parks or skips does not hold its partition.
        if act.is_none() && self.settings.keeps_order && self.settings.partitioned {
            self.hold(event.partition.clone());
        }
        self.parked.push(Parked { event: event.clone(), attempts, reason, at: now, act });
        self.settle_position(event.position);
        self.continue_after(event, now);
    }

    /// Sets when a failing partition is next attempted.
    pub(super) fn schedule(&mut self, partition: &ByteString, retry_at: Option<Timestamp>) {
        let Some(failing) = self.failing.get_mut(partition) else { return };
        if let Some(before) = failing.state.retry_at {
            self.due.remove(&(before, partition.clone()));
        }
        failing.state.retry_at = retry_at;
        self.due.extend(retry_at.map(|at| (at, partition.clone())));
        self.changed.insert(partition.clone());
    }

    /// Takes back events that did not reach a worker: they are handed out again as if they had not been taken.
    pub fn release(&mut self, taken: &[Taken], now: Timestamp) {
        for Taken { token, event, .. } in taken {
            // The lease may have ended in the meantime, and another worker may have the partition.
            if self.flight_of(*token).is_none_or(|(partition, _)| *partition != event.partition) {
                continue;
            }
            let Some(flight) = self.in_flight.remove(&event.partition) else { continue };
            self.tokens.remove(&flight.last);
            if let Some(letter) = flight.letter {
                self.offer(letter);
                self.make_ready(&event.partition);
                continue;
            }
            for event in flight.events.into_iter().rev() {
                if !self.failing.contains_key(&event.partition) {
                    self.waiting.entry(event.partition.clone()).or_default().push_front(event);
                }
            }
            if self.failing.contains_key(&event.partition) {
                self.schedule(&event.partition, Some(now));
            }
            self.make_ready(&event.partition);
        }
    }

    /// Ends every lease that has run out: its first event counts as failed. Returns how many leases ended.
    pub fn expire(&mut self, now: Timestamp, random: u64) -> usize {
        let ended: Vec<_> = self.in_flight.iter().filter(|(_, flight)| flight.until <= now).collect();
        let ended: Vec<(u64, String)> =
            ended.into_iter().map(|(_, flight)| (flight.first(), flight.worker.clone())).collect();
        for (token, worker) in &ended {
            let reason = format!("worker {worker:?} did not settle the event before its lease ended");
            // The token was just found at the front of its flight, so settling it cannot fail.
            let _ = self.settle(*token, Outcome::Failed { reason }, now, random);
        }
        ended.len()
    }
}

/// Truncates a reason to the stored length of 4 KiB.
pub fn shortened(mut reason: String) -> String {
    if reason.len() > REASON_BYTES_MAX {
        let end = (0..=REASON_BYTES_MAX).rev().find(|at| reason.is_char_boundary(*at)).unwrap_or(0);
        reason.truncate(end);
        reason.push('…');
    }
    reason
}
