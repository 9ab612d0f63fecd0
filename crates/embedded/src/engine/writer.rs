//! The engine's writer: the one thread that changes the map. While one batch is being made durable the next one gathers in the queue.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use annals_core::StoreError;

use super::change::Change;
use super::journal::{Begun, Journal};
use super::snapshot::{Below, Snapshot};
use super::{Batches, Shared, moves, open};
use crate::options::SeededBug;

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
                None => self.guarded_turn(jobs, &mut answers).inspect_err(|error| self.refuse(error.clone())),
            };
            answers.into_iter().for_each(|answer: Answer| answer(outcome.clone()));
        }
    }

    /// A write that panics is a defect; it must not leave everybody who waits behind it without an answer.
    fn guarded_turn(&self, jobs: Vec<Job>, answers: &mut Vec<Answer>) -> Result<(), StoreError> {
        let turn = std::panic::AssertUnwindSafe(|| self.turn(jobs, answers));
        let defect = |_| Err(StoreError::Failed(format!("{}: a write panicked", self.dir)));
        std::panic::catch_unwind(turn).unwrap_or_else(defect)
    }

    /// One batch: every write is run, and all of them are made durable together.
    fn turn(&self, jobs: Vec<Job>, answers: &mut Vec<Answer>) -> Result<(), StoreError> {
        let mut journal = self.journal();
        let failed = |what: std::io::Error| StoreError::Failed(format!("{}: {what}", self.dir));
        if jobs.is_empty() {
            return if self.moves.idle() { self.move_recent(&mut journal).map_err(failed) } else { Ok(()) };
        }
        let mut change = Change::new(self.state(), self.options.has(SeededBug::KeepRefusedWrites));
        answers.extend(jobs.into_iter().map(|job| job(&mut change)));
        let (written, recent) = change.finish();
        if written.is_empty() {
            // All that anyone saw had been durable before.
            return Ok(());
        }
        self.make().map_err(failed)?;
        journal.begin(self.syncs_journal(), |begun| self.name(begun)).map_err(failed)?;
        journal.append(&written, !self.options.has(SeededBug::AnswerWritesBeforeSync)).map_err(failed)?;
        self.disk.check_lock().map_err(failed)?;
        self.publish(|state| Snapshot { recent, below: state.below.clone() });
        self.batches.send_modify(|batches: &mut Batches| batches.durable += 1);
        // What is answered now is durable; who comes next is told.
        self.move_enough(&mut journal).unwrap_or_else(|error| self.refuse(failed(error)));
        Ok(())
    }

    /// Makes the map where nothing was ever written, and one that an older version made one of this version's.
    fn make(&self) -> std::io::Result<()> {
        if std::mem::replace(&mut *self.made.lock().unwrap_or_else(PoisonError::into_inner), true) {
            return Ok(());
        }
        let mut database = self.database();
        match &*database {
            Some(database) => open::upgrade(database)?,
            None => {
                *database = Some(open::new(&self.disk, &self.dir)?);
                (self.known.note)()?;
            }
        }
        let Some(database) = &*database else { return Ok(()) };
        let below = Below::take(database).map_err(|error| std::io::Error::other(error.to_string()))?;
        self.publish(|state| state.moved(below));
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
    fn move_enough(&self, journal: &mut Journal) -> std::io::Result<()> {
        let (bytes, enough) = (self.state().recent.bytes(), self.options.journal_bytes_max);
        if bytes < enough {
            return Ok(());
        }
        if bytes >= enough.saturating_mul(BEHIND_MAX) {
            self.moves.until_idle(|| self.refusal().is_some());
        }
        if self.moves.idle() { self.move_recent(journal) } else { Ok(()) }
    }

    /// Begins to move what is recent into the map; nothing is being moved.
    fn move_recent(&self, journal: &mut Journal) -> std::io::Result<()> {
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
