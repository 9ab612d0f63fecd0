//! The engine's writer: the one thread that changes the map. While one batch is being made durable the next one gathers in the queue.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use annals_core::StoreError;

use super::change::Change;
use super::open::{self, MAP};
use super::snapshot::Snapshot;
use super::{Batches, Shared};
use crate::options::SeededBug;

/// Writes of one batch at most: more would not make a sync cheaper per write, and would let the first wait for the last.
const BATCH_MAX: usize = 1_024;

/// A write: it runs inside a batch and leaves behind how to answer.
pub(super) type Job = Box<dyn FnOnce(&mut Change<'_>) -> Answer + Send>;
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

    /// The next batch, once something waits; none when the engine is closing and nothing waits any more.
    fn take(&self) -> Option<Vec<Job>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while state.waiting.is_empty() {
            if state.closed {
                return None;
            }
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
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
        let failed = |what: String| StoreError::Failed(format!("{}: {what}", self.dir));
        let mut database = self.database();
        if database.is_none() {
            *database = Some(open::new(&self.disk, &self.dir).map_err(|error| failed(error.to_string()))?);
        }
        let Some(database) = &*database else { return Err(StoreError::Closed) };
        let mut write = database.begin_write().map_err(|error| failed(error.to_string()))?;
        // Two phases: pages first, then the byte that makes them current. So a state that opening finds is whole or damaged, and the
        // state before it is never taken in its place.
        write.set_two_phase_commit(true);
        if self.options.has(SeededBug::AnswerWritesBeforeSync) {
            write.set_durability(redb::Durability::None).map_err(|error| failed(error.to_string()))?;
        }
        let changed = {
            let map = write.open_table(MAP).map_err(|error| failed(error.to_string()))?;
            let mut change = Change::new(map, self.options.has(SeededBug::KeepRefusedWrites));
            answers.extend(jobs.into_iter().map(|job| job(&mut change)));
            change.finish().map_err(|error| failed(error.to_string()))?
        };
        if !changed {
            // All that anyone saw had been durable before.
            return write.abort().map_err(|error| failed(error.to_string()));
        }
        write.commit().map_err(|error| failed(error.to_string()))?;
        let snapshot = Snapshot::take(database).map_err(|error| failed(error.to_string()))?;
        *self.snapshot.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(snapshot);
        self.batches.send_modify(|batches: &mut Batches| batches.durable += 1);
        Ok(())
    }
}
