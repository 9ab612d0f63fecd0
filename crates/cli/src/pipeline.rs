//! Many commits under way at once, answered in the order they came in; those of one aggregate one after the other.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use annals::{Aggregate, CommitError, CommitOutcome, EventLog, NewCommit, StoreError};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinHandle;

use crate::failure::Failure;

/// Most commits under way at once.
pub const COMMITS_MAX: usize = 256;
/// Most bytes of input under way at once; a larger line goes alone.
const BYTES_MAX: usize = 64 * 1024 * 1024;
/// How often a commit is tried that a busy store turns away.
const TRIES: u32 = 60;

/// What a refusal means for the later commits of the same aggregate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterRefusal {
    /// They are tried.
    GoOn,
    /// They are not, so that an aggregate never gets a later commit without an earlier one.
    HoldBack,
}

/// What became of a line.
pub enum Outcome {
    /// It is in the log.
    Committed(Aggregate, CommitOutcome),
    /// It is not, and will not be.
    Refused(Failure),
    /// The store could not say; nothing further makes sense before it can.
    Unanswered(Failure),
    /// It was not tried, because an earlier one of its aggregate is not in the log.
    HeldBack,
}

struct Entry {
    sequence: u64,
    aggregate: Option<Aggregate>,
    task: JoinHandle<Outcome>,
}

/// The commits under way.
pub struct Pipeline<T> {
    log: Arc<dyn EventLog>,
    after: AfterRefusal,
    bytes: Arc<Semaphore>,
    entries: VecDeque<(T, Entry)>,
    /// The last commit under way of each aggregate, and where it says whether it is in the log.
    last: HashMap<Aggregate, (u64, oneshot::Receiver<bool>)>,
    submitted: u64,
}

impl<T> Pipeline<T> {
    pub fn new(log: Arc<dyn EventLog>, after: AfterRefusal) -> Self {
        let bytes = Arc::new(Semaphore::new(BYTES_MAX));
        Self { log, after, bytes, entries: VecDeque::new(), last: HashMap::new(), submitted: 0 }
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn has_room(&self) -> bool {
        self.entries.len() < COMMITS_MAX
    }

    /// Puts a commit under way that took `bytes` of input.
    pub async fn submit(&mut self, tag: T, commit: NewCommit, bytes: usize) {
        // The permit is given back by the task, and every task ends by itself.
        let permit = Arc::clone(&self.bytes).acquire_many_owned(bytes.clamp(1, BYTES_MAX) as u32).await;
        let sequence = self.submitted;
        self.submitted += 1;
        let aggregate = commit.aggregate.clone();
        let (done, successor) = oneshot::channel();
        let before = self.last.insert(aggregate.clone(), (sequence, successor)).map(|(_, receiver)| receiver);
        let (log, after) = (Arc::clone(&self.log), self.after);
        let task = tokio::spawn(async move {
            let stored = match before {
                Some(before) => before.await.unwrap_or(false),
                None => true,
            };
            let outcome = if stored || after == AfterRefusal::GoOn {
                commit_patiently(&*log, commit).await
            } else {
                Outcome::HeldBack
            };
            drop(permit);
            let _ = done.send(matches!(outcome, Outcome::Committed(..)));
            outcome
        });
        self.entries.push_back((tag, Entry { sequence, aggregate: Some(aggregate), task }));
    }

    /// Takes the place in the order for a line that cannot even be tried.
    pub fn refuse(&mut self, tag: T, failure: Failure) {
        let sequence = self.submitted;
        self.submitted += 1;
        let task = tokio::spawn(std::future::ready(Outcome::Refused(failure)));
        self.entries.push_back((tag, Entry { sequence, aggregate: None, task }));
    }

    /// The outcome of the first line that is not answered yet. Cancelling loses nothing. Not to be called when it is empty.
    pub async fn next(&mut self) -> Option<(T, Outcome)> {
        let (_, entry) = self.entries.front_mut()?;
        let outcome = match (&mut entry.task).await {
            Ok(outcome) => outcome,
            Err(error) => Outcome::Unanswered(Failure::internal(format!("a commit's task ended early: {error}"))),
        };
        let (tag, entry) = self.entries.pop_front()?;
        if let Some(aggregate) = entry.aggregate
            && self.last.get(&aggregate).is_some_and(|(sequence, _)| *sequence == entry.sequence)
        {
            self.last.remove(&aggregate);
        }
        Some((tag, outcome))
    }
}

/// Commits, and tries again in a moment when the store has too much to do.
async fn commit_patiently(log: &dyn EventLog, commit: NewCommit) -> Outcome {
    let mut pause = Duration::from_millis(10);
    for _ in 1..TRIES {
        match log.commit(commit.clone()).await {
            Err(CommitError::Store(StoreError::Overloaded)) => {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_secs(1));
            }
            answered => return judge(commit, answered),
        }
    }
    let answered = log.commit(commit.clone()).await;
    judge(commit, answered)
}

fn judge(commit: NewCommit, answered: Result<CommitOutcome, CommitError>) -> Outcome {
    match answered {
        Ok(outcome) => Outcome::Committed(commit.aggregate, outcome),
        Err(CommitError::Store(error)) => Outcome::Unanswered(CommitError::Store(error).into()),
        Err(error) => Outcome::Refused(error.into()),
    }
}
