//! Sends many requests at once and returns their outcomes in input order. Requests of one aggregate are sent one after the other.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use annals::{
    Aggregate, Clock, CommitError, CommitOutcome, EventLog, NewCommit, NewTransaction, StoreError, SystemClock,
};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinHandle;

use crate::failure::Failure;

/// Most requests in flight at once.
pub const COMMITS_MAX: usize = 256;
/// Most bytes of input in flight at once. A larger line is sent alone.
const BYTES_MAX: usize = 64 * 1024 * 1024;
/// The number of attempts for a request while the store is overloaded.
const TRIES: u32 = 60;

/// A request to the log: a commit or a transaction.
pub trait Request: Clone + Send + Sync + 'static {
    /// The outcome of a stored request.
    type Stored: Send + 'static;

    /// Returns the aggregates whose later requests wait for this one.
    fn aggregates(&self) -> Vec<Aggregate>;

    /// Returns whether the request is checked against the whole log. If so, all earlier requests must be stored and no later one may be.
    fn is_of_whole_log(&self) -> bool;

    /// Sends the request to the log.
    fn send(self, log: &dyn EventLog) -> impl Future<Output = Result<Self::Stored, Refusal>> + Send;
}

/// Why a request is not stored.
pub struct Refusal {
    failure: Failure,
    /// The error of the store, if the store could not answer.
    store: Option<StoreError>,
}

impl Request for NewCommit {
    type Stored = (Aggregate, CommitOutcome);

    fn aggregates(&self) -> Vec<Aggregate> {
        vec![self.aggregate.clone()]
    }

    fn is_of_whole_log(&self) -> bool {
        self.append_condition.is_some() || !self.keys.is_empty()
    }

    async fn send(self, log: &dyn EventLog) -> Result<Self::Stored, Refusal> {
        let aggregate = self.aggregate.clone();
        match log.commit(self).await {
            Ok(outcome) => Ok((aggregate, outcome)),
            Err(error) => Err(Refusal { store: store_error(&error), failure: error.into() }),
        }
    }
}

impl Request for NewTransaction {
    type Stored = Vec<(Aggregate, CommitOutcome)>;

    fn aggregates(&self) -> Vec<Aggregate> {
        let commits = self.commits.iter().map(|commit| &commit.aggregate);
        commits.chain(self.expect.iter().map(|expectation| &expectation.aggregate)).cloned().collect()
    }

    fn is_of_whole_log(&self) -> bool {
        self.commits.iter().any(Request::is_of_whole_log)
    }

    async fn send(self, log: &dyn EventLog) -> Result<Self::Stored, Refusal> {
        let aggregates: Vec<_> = self.commits.iter().map(|commit| commit.aggregate.clone()).collect();
        match log.transact(self).await {
            Ok(outcomes) => Ok(aggregates.into_iter().zip(outcomes).collect()),
            Err(refusal) => Err(Refusal { store: store_error(&refusal.error), failure: refusal.into() }),
        }
    }
}

fn store_error(error: &CommitError) -> Option<StoreError> {
    match error {
        CommitError::Store(error) => Some(error.clone()),
        _ => None,
    }
}

/// The effect of a refusal on later requests of the same aggregate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterRefusal {
    /// They are sent.
    GoOn,
    /// They are held back, so that an aggregate never gets a later commit without an earlier one.
    HoldBack,
}

/// The outcome of a line.
pub enum Outcome<S> {
    /// It is in the log.
    Committed(S),
    /// It is not in the log, and will not be.
    Refused(Failure),
    /// The store could not answer. Nothing further makes sense before it can.
    Unanswered(Failure),
    /// It was not attempted, because an earlier one of its aggregate is not in the log.
    HeldBack,
}

struct Entry<S> {
    sequence: u64,
    aggregates: Vec<Aggregate>,
    task: JoinHandle<Outcome<S>>,
}

/// The requests in flight.
pub struct Pipeline<T, R: Request = NewCommit> {
    log: Arc<dyn EventLog>,
    after: AfterRefusal,
    bytes: Arc<Semaphore>,
    entries: VecDeque<(T, Entry<R::Stored>)>,
    /// The last request in flight of each aggregate, and the channel on which it reports whether it is in the log.
    last: HashMap<Aggregate, (u64, oneshot::Receiver<bool>)>,
    submitted: u64,
}

impl<T, R: Request> Pipeline<T, R> {
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

    /// Submits a request that took `bytes` of input.
    pub async fn submit(&mut self, tag: T, request: R, bytes: usize) {
        // Every request in flight holds some of the permits, so one that acquires all of them runs alone.
        let bytes = if request.is_of_whole_log() { BYTES_MAX } else { bytes.clamp(1, BYTES_MAX) };
        // The task returns the permit, and every task ends on its own.
        let permit = Arc::clone(&self.bytes).acquire_many_owned(bytes as u32).await;
        let sequence = self.submitted;
        self.submitted += 1;
        let mut aggregates = request.aggregates();
        // The log refuses a transaction that names an aggregate twice. Without this, it would wait for itself before that.
        aggregates.sort_unstable();
        aggregates.dedup();
        let (mut before, mut successors) = (Vec::new(), Vec::new());
        for aggregate in &aggregates {
            let (done, successor) = oneshot::channel();
            before.extend(self.last.insert(aggregate.clone(), (sequence, successor)).map(|(_, receiver)| receiver));
            successors.push(done);
        }
        let (log, after) = (Arc::clone(&self.log), self.after);
        let task = tokio::spawn(async move {
            let mut stored = true;
            for before in before {
                stored &= before.await.unwrap_or(false);
            }
            let outcome = if stored || after == AfterRefusal::GoOn {
                send_patiently(&*log, request).await
            } else {
                Outcome::HeldBack
            };
            drop(permit);
            for done in successors {
                let _ = done.send(matches!(outcome, Outcome::Committed(_)));
            }
            outcome
        });
        self.entries.push_back((tag, Entry { sequence, aggregates, task }));
    }

    /// Takes the place in the order of a line that cannot be attempted.
    pub fn refuse(&mut self, tag: T, failure: Failure) {
        let sequence = self.submitted;
        self.submitted += 1;
        let task = tokio::spawn(std::future::ready(Outcome::Refused(failure)));
        self.entries.push_back((tag, Entry { sequence, aggregates: Vec::new(), task }));
    }

    /// Returns the outcome of the first line in order. Cancelling it loses nothing. It must not be called when the pipeline is empty.
    pub async fn next(&mut self) -> Option<(T, Outcome<R::Stored>)> {
        let (_, entry) = self.entries.front_mut()?;
        let outcome = match (&mut entry.task).await {
            Ok(outcome) => outcome,
            Err(error) => Outcome::Unanswered(Failure::internal(format!("the task of a request panicked: {error}"))),
        };
        let (tag, entry) = self.entries.pop_front()?;
        for aggregate in entry.aggregates {
            if self.last.get(&aggregate).is_some_and(|(sequence, _)| *sequence == entry.sequence) {
                self.last.remove(&aggregate);
            }
        }
        Some((tag, outcome))
    }
}

/// Sends a request, and retries it after a pause while the store is overloaded.
async fn send_patiently<R: Request>(log: &dyn EventLog, request: R) -> Outcome<R::Stored> {
    let mut pause = Duration::from_millis(10);
    for _ in 1..TRIES {
        match request.clone().send(log).await {
            Err(Refusal { store: Some(StoreError::Overloaded), .. }) => {
                SystemClock.sleep(pause).await;
                pause = (pause * 2).min(Duration::from_secs(1));
            }
            answered => return judge(answered),
        }
    }
    judge(request.send(log).await)
}

fn judge<S>(answered: Result<S, Refusal>) -> Outcome<S> {
    match answered {
        Ok(stored) => Outcome::Committed(stored),
        Err(Refusal { failure, store: Some(_) }) => Outcome::Unanswered(failure),
        Err(Refusal { failure, store: None }) => Outcome::Refused(failure),
    }
}
