//! The engine's writer: the one thread that changes the map. While one batch is being made durable the next one gathers in the queue.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use annals_core::StoreError;

use super::change::Change;
use super::journal::{Begun, Fault, Journal};
use super::snapshot::{Below, Snapshot};
use super::{Batches, Shared, moves, open};
use crate::options::SeededBug;
use crate::refused::not_begun;

/// Writes of one batch at most: more would not make a sync cheaper per write, and would let the first wait for the last.
const BATCH_MAX: usize = 1_024;
/// When nothing was written for so long, what is recent is moved into the map, however little it is: idle tenants hold no memory.
const IDLE: Duration = Duration::from_secs(5);
/// Writing waits for the map when so many times the recent writes that are worth moving have gathered.
const BEHIND_MAX: usize = 4;

/// A write: it runs inside a batch and leaves behind how to answer.
pub(super) type Job = Box<dyn FnOnce(&mut Change) -> Answer + Send>;
/// Answers the caller, once the batch is durable or has failed.
pub(super) type Answer = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

/// The writes that wait.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    waiting: std::collections::VecDeque<Job>,
    closed: bool,
}

impl Queue {
    /// Adds a write, unless the engine is closing.
    pub(super) fn push(&self, job: Job) -> Result<(), StoreError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.closed {
            return Err(StoreError::Closed);
        }
        state.waiting.push_back(job);
        self.wake.notify_one();
        Ok(())
    }

    /// The next batch, once something waits; an empty one when nothing did for a while, and none when the engine is closing and nothing
    /// waits any more.
    fn take(&self) -> Option<Vec<Job>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while state.waiting.is_empty() {
            if state.closed {
                return None;
            }
            let (woken, waited) = self.wake.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
            state = woken;
            if waited.timed_out() && state.waiting.is_empty() {
                return Some(Vec::new());
            }
        }
        let count = state.waiting.len().min(BATCH_MAX);
        Some(state.waiting.drain(..count).collect())
    }

    pub(super) fn close(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.wake.notify_one();
    }
}

impl Shared {
    /// The writer's life.
    pub(super) fn run(self: Arc<Self>) {
        while let Some(jobs) = self.queue.take() {
            let mut answers = Vec::with_capacity(jobs.len());
            let outcome = match self.refusal() {
                Some(refusal) => Err(refusal),
                None => self.guarded_turn(jobs, &mut answers).unwrap_or_else(|fault| Err(self.judged(fault))),
            };
            answers.into_iter().for_each(|answer: Answer| answer(outcome.clone()));
        }
    }

    /// A write that panics is a defect; it must not leave everybody who waits behind it without an answer.
    fn guarded_turn(&self, jobs: Vec<Job>, answers: &mut Vec<Answer>) -> Result<Result<(), StoreError>, Fault> {
        let turn = std::panic::AssertUnwindSafe(|| self.turn(jobs, answers));
        let defect = |_| Err(Fault::Within(std::io::Error::other("a write panicked")));
        std::panic::catch_unwind(turn).unwrap_or_else(defect)
    }

    /// What callers are told. Where it is unknown what was written, nothing is written from now on.
    fn judged(&self, fault: Fault) -> StoreError {
        match fault {
            Fault::Before(error) => not_begun(&self.dir, &error),
            Fault::Within(error) => {
                let failed = StoreError::Failed(format!("{}: {error}", self.dir));
                self.refuse(failed.clone());
                failed
            }
        }
    }

    /// One batch: every write is run, and all of them are made durable together. What is refused inside was not begun.
    fn turn(&self, jobs: Vec<Job>, answers: &mut Vec<Answer>) -> Result<Result<(), StoreError>, Fault> {
        let mut journal = self.journal();
        if jobs.is_empty() {
            if self.moves.idle() {
                self.move_recent(&mut journal)?;
            }
            return Ok(Ok(()));
        }
        let mut change = Change::new(self.state(), self.options.has(SeededBug::KeepRefusedWrites));
        answers.extend(jobs.into_iter().map(|job| job(&mut change)));
        let (written, recent) = change.finish();
        if written.is_empty() {
            // All that anyone saw had been durable before.
            return Ok(Ok(()));
        }
        if let Err(refused) = self.has_room() {
            return Ok(Err(refused));
        }
        self.make()?;
        journal.begin(self.syncs_journal(), |begun| self.name(begun))?;
        journal.append(&written, !self.options.has(SeededBug::AnswerWritesBeforeSync))?;
        self.disk.check_lock().map_err(Fault::Within)?;
        self.publish(|state| Snapshot { recent, below: state.below.clone() });
        self.batches.send_modify(|batches: &mut Batches| batches.durable += 1);
        // What is answered now is durable; who comes next is told.
        if let Err(fault) = self.move_enough(&mut journal) {
            match fault {
                // It is tried again behind the next batch.
                Fault::Before(error) => tracing::warn!(dir = self.dir, %error, "the journal is moved later"),
                within @ Fault::Within(_) => drop(self.judged(within)),
            }
        }
        Ok(Ok(()))
    }

    /// Refuses what there is no room for: on the disk, or in memory while the map has no room on the disk.
    fn has_room(&self) -> Result<(), StoreError> {
        let looked = self.floor.check(&*self.disk, self.options.clock.now());
        if let Err(lost @ StoreError::Failed(_)) = &looked {
            self.refuse(lost.clone());
        }
        looked?;
        match self.patience.waits_for_room() && self.recent_is_full() {
            true => {
                Err(StoreError::DiskFull(format!("{}: there is no room to move the journal into the map", self.dir)))
            }
            false => Ok(()),
        }
    }

    fn recent_is_full(&self) -> bool {
        self.state().recent.bytes() >= self.options.journal_bytes_max.saturating_mul(BEHIND_MAX)
    }

    /// Makes the map where nothing was ever written, and one that an older version made one of this version's.
    fn make(&self) -> Result<(), Fault> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if made.map {
            return Ok(());
        }
        let mut database = self.database();
        match &*database {
            Some(database) => open::upgrade(database).map_err(Fault::Within)?,
            None => {
                let new = open::new(&self.disk, &self.dir, &self.patience).map_err(Fault::Before)?;
                *database = Some(new);
                made.unnoted = true;
            }
        }
        if made.unnoted {
            (self.known.note)().map_err(Fault::Before)?;
            made.unnoted = false;
        }
        let Some(database) = &*database else { return Ok(()) };
        let below = Below::take(database).map_err(|error| Fault::Within(std::io::Error::other(error.to_string())))?;
        self.publish(|state| state.moved(below));
        made.map = true;
        Ok(())
    }

    /// Says in the map which files its journal has.
    fn name(&self, begun: Begun) -> std::io::Result<()> {
        match &*self.database() {
            Some(database) => moves::name(database, begun, self.known.owner).map_err(open::io_error),
            None => Err(std::io::Error::other("there is no map to name the journal")),
        }
    }

    fn syncs_journal(&self) -> bool {
        !self.options.has(SeededBug::NameJournalBeforeItIsDurable)
    }

    /// Moves what is recent into the map once it is worth it, and waits for the map when it is too slow.
    fn move_enough(&self, journal: &mut Journal) -> Result<(), Fault> {
        let (bytes, enough) = (self.state().recent.bytes(), self.options.journal_bytes_max);
        if bytes < enough {
            return Ok(());
        }
        if self.recent_is_full() {
            self.moves.until_idle(|| self.refusal().is_some() || self.patience.waits_for_room());
        }
        if self.moves.idle() { self.move_recent(journal) } else { Ok(()) }
    }

    /// Begins to move what is recent into the map; nothing is being moved.
    fn move_recent(&self, journal: &mut Journal) -> Result<(), Fault> {
        let recent = self.state().recent;
        if recent.is_empty() {
            return Ok(());
        }
        // Now, because the map can be written by one at a time.
        journal.begin_other(self.syncs_journal(), |begun| self.name(begun))?;
        self.publish(Snapshot::while_moving);
        self.moves.hand_over(recent, journal.sequence());
        journal.turn();
        if self.options.has(SeededBug::TurnJournalTooEarly) {
            journal.turn();
        }
        Ok(())
    }
}
