//! The engine's writer: the only thread that changes the map's content. While one batch is being made durable, the next one gathers in
//! the queue.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use annals_core::StoreError;

use super::change::Change;
use super::journal::{Begun, Fault, Journal};
use super::snapshot::{Below, Snapshot};
use super::{Batches, Shared, moves, open};
use crate::options::SeededBug;
use crate::refused::not_begun;

/// The most writes of one batch: more would not make a sync cheaper per write, and would let the first wait for the last.
const BATCH_MAX: usize = 1_024;
/// After this long without a write, recent writes are moved into the map however few they are, so that idle tenants hold no memory.
const IDLE: Duration = Duration::from_secs(5);
/// Writing waits for the mover once recent writes have reached this many times the size that is worth moving.
const BEHIND_MAX: usize = 4;

/// A write: it runs inside a batch and returns how to answer its caller.
pub(super) type Job = Box<dyn FnOnce(&mut Change) -> Answer + Send>;
/// Answers the caller once the batch is durable or has failed.
pub(super) type Answer = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

/// The queued writes.
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

    /// Waits for writes and returns the next batch. Returns an empty batch after an idle period, and `None` once the engine is closing
    /// and the queue is empty.
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
    /// Runs the writer thread.
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

    /// Runs a turn and catches panics. A write that panics is a defect, but the callers queued after it must still get answers.
    fn guarded_turn(&self, jobs: Vec<Job>, answers: &mut Vec<Answer>) -> Result<Result<(), StoreError>, Fault> {
        let turn = std::panic::AssertUnwindSafe(|| self.turn(jobs, answers));
        let defect = |_| Err(Fault::Within(std::io::Error::other("a write panicked")));
        std::panic::catch_unwind(turn).unwrap_or_else(defect)
    }

    /// Returns the error for callers. If it is unknown what was written, nothing more is written from now on.
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

    /// Processes one batch: runs every write, and makes all of them durable together. An inner error means that nothing was written.
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
            // Everything that these writes saw was already durable.
            return Ok(Ok(()));
        }
        if let Err(refused) = self.has_room() {
            return Ok(Err(refused));
        }
        self.make()?;
        self.generation.settle().map_err(Fault::Before)?;
        journal.begin(self.syncs_journal(), |begun| self.name(begun))?;
        if !self.options.has(SeededBug::NoteGenerationTooLate) {
            self.generation.settle().map_err(Fault::Before)?;
        }
        journal.append(&written, !self.options.has(SeededBug::AnswerWritesBeforeSync))?;
        self.disk.check_lock().map_err(Fault::Within)?;
        self.publish(|state| Snapshot { recent, below: state.below.clone() });
        self.batches.send_modify(|batches: &mut Batches| batches.durable += 1);
        // What is answered now is durable; only later writes see a failure.
        if let Err(fault) = self.move_enough(&mut journal) {
            match fault {
                // It is retried after the next batch.
                Fault::Before(error) => {
                    tracing::warn!(dir = self.dir, %error, "the journal is moved into the map later")
                }
                within @ Fault::Within(_) => drop(self.judged(within)),
            }
        }
        Ok(Ok(()))
    }

    /// Refuses writes for which there is no room: on the disk, or in memory while the disk has no room for the map.
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

    /// Creates the map if nothing was ever written, or upgrades a map of an older version.
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
            self.generation.settle().map_err(Fault::Before)?;
            made.unnoted = false;
        }
        let Some(database) = &*database else { return Ok(()) };
        let below = Below::take(database).map_err(|error| Fault::Within(std::io::Error::other(error.to_string())))?;
        self.publish(|state| state.moved(below));
        made.map = true;
        Ok(())
    }

    /// Records in the map which files its journal has. The first of them begins the map's next generation.
    fn name(&self, begun: Begun) -> std::io::Result<()> {
        let next = if begun.files == [true, true] { None } else { self.generation.next() };
        if self.options.has(SeededBug::NoteGenerationTooEarly) {
            self.generation.note_too_early()?;
        }
        let database = self.database();
        let Some(database) = &*database else {
            return Err(std::io::Error::other("there is no map to name the journal"));
        };
        moves::name(database, begun, self.marks.owner, next).map_err(open::io_error)?;
        self.generation.written(next);
        Ok(())
    }

    fn syncs_journal(&self) -> bool {
        !self.options.has(SeededBug::NameJournalBeforeItIsDurable)
    }

    /// Moves recent writes into the map once they are worth it, and waits if the mover lags too far.
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

    /// Starts moving recent writes into the map; nothing may be in the process of being moved.
    fn move_recent(&self, journal: &mut Journal) -> Result<(), Fault> {
        let recent = self.state().recent;
        if recent.is_empty() {
            return Ok(());
        }
        // Done now, because redb allows only one writer at a time.
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
