//! Group commit of changes: changes that arrive while a transaction is in flight go into the next one together.
//!
//! A process has one transaction in flight, so its own never conflict with each other. Transactions of several processes run concurrently;
//! if they change the same records, or collections with the same feed, the server decides, and the later one is retried.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use annals_core::bson::Bson;
use annals_core::{ChangeNumber, RecordChange, RecordError, StoreError, limits};
use tokio::sync::{oneshot, watch};

use super::batch::{self, Answer, Place};
use super::expiry::Due;
use super::feed::{self, Feeds};
use super::fence::Fence;
use crate::patience::{Patience, given_up};

/// Maximum number of jobs in one transaction.
const JOBS_MAX: usize = 500;
/// Approximate number of notes that are removed together.
const TRIMMED_AT_ONCE: u64 = 10_000;

/// The content of a job.
pub(super) enum Work {
    /// Changes that are applied all or none.
    Changes(Vec<RecordChange>),
    /// Records that may have expired.
    Expired(Vec<(String, Bson)>),
    /// Records that may lack their markers.
    Mark(Vec<(String, Bson)>),
}

struct Job {
    work: Work,
    answer: oneshot::Sender<Answer>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Job>,
    running: bool,
    closed: bool,
}

/// The writer of one tenant's records.
pub(super) struct Writer {
    inner: Arc<Inner>,
    waiting_max: usize,
    patience: Patience,
}

struct Inner {
    place: Place,
    queue: Mutex<Queue>,
    /// Whether nothing is in flight.
    idle: watch::Sender<bool>,
    announced: watch::Sender<Announced>,
    /// For each feed, its newest number divided by ten thousand when notes were last removed.
    trimmed: Mutex<HashMap<String, u64>>,
    kept: u64,
}

/// What this process has written.
#[derive(Default)]
pub(super) struct Announced {
    /// The number of transactions.
    pub(super) transactions: u64,
    /// The newest change number of each feed.
    pub(super) feeds: Feeds,
    /// Whether the process has stopped writing.
    pub(super) closed: bool,
}

impl Announced {
    /// Returns whether a collection's feed is known to have passed a number.
    pub(super) fn is_past(&self, collection: &str, after: ChangeNumber) -> bool {
        self.feeds.get(collection).is_some_and(|last| *last > after)
    }
}

impl Writer {
    pub(super) fn new(place: Place, waiting_max: usize, kept: u64) -> Self {
        let (idle, announced) = (watch::Sender::new(true), watch::Sender::new(Announced::default()));
        let inner = Inner { place, queue: Mutex::default(), idle, announced, trimmed: Mutex::default(), kept };
        Self { inner: Arc::new(inner), waiting_max, patience: Patience::default() }
    }

    pub(super) fn announced(&self) -> watch::Receiver<Announced> {
        self.inner.announced.subscribe()
    }

    /// Returns the fence between writers and declarations.
    pub(super) fn fence(&self) -> &Fence {
        &self.inner.place.fence
    }

    /// Returns when to look for expired records.
    pub(super) fn due(&self) -> &Due {
        &self.inner.place.due
    }

    pub(super) fn is_closed(&self) -> bool {
        self.inner.queue().closed
    }

    /// Runs the job in the next transaction. If the caller goes away, the job is still run.
    pub(super) async fn write(&self, work: Work) -> Answer {
        let (answer, answered) = oneshot::channel();
        let begins = {
            let mut queue = self.inner.queue();
            if queue.closed {
                return Err(StoreError::Closed.into());
            }
            if queue.waiting.len() >= self.waiting_max {
                return Err(StoreError::Overloaded.into());
            }
            queue.waiting.push_back(Job { work, answer });
            let begins = !queue.running;
            if begins {
                queue.running = true;
                self.inner.idle.send_replace(false);
            }
            begins
        };
        if begins {
            // Outside the lock, because a runtime that shuts down drops the task at once, and the task then takes the lock.
            tokio::spawn(run(Running { inner: self.inner.clone(), ended: false }));
        }
        let ended = || RecordError::Store(StoreError::Unreachable("the writer's task has ended".to_owned()));
        let answer = self.patience.during(answered).await.ok_or_else(given_up)?;
        answer.unwrap_or_else(|_| Err(ended()))
    }

    /// Accepts no more jobs, waits until all are answered, and wakes callers that wait for changes.
    pub(super) async fn close(&self) {
        self.inner.queue().closed = true;
        let _ = self.inner.idle.subscribe().wait_for(|idle| *idle).await;
        self.inner.end();
        self.inner.place.fence.leave().await;
    }

    /// Accepts no more jobs, and answers all callers without waiting for MongoDB any longer.
    pub(super) fn give_up(&self) {
        {
            let mut queue = self.inner.queue();
            queue.closed = true;
            queue.waiting.clear();
        }
        self.patience.end();
        self.inner.end();
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.inner.queue().closed = true;
        self.inner.end();
    }
}

impl Inner {
    fn queue(&self) -> std::sync::MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes all waiters and tells them that no more writes will come.
    fn end(&self) {
        self.announced.send_modify(|announced| announced.closed = true);
    }

    fn announce(&self, feeds: &Feeds) {
        self.announced.send_modify(|announced| {
            announced.transactions += 1;
            for (collection, last) in feeds {
                let known = announced.feeds.entry(collection.clone()).or_default();
                *known = (*known).max(*last);
            }
        });
    }
}

/// The task that writes. It may also end with its runtime, and the store may be used from a later one.
struct Running {
    inner: Arc<Inner>,
    /// Whether it has ended regularly, so that another may already be running.
    ended: bool,
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let mut queue = self.inner.queue();
        queue.running = false;
        queue.waiting.clear();
        self.inner.idle.send_replace(true);
    }
}

async fn run(mut running: Running) {
    let inner = running.inner.clone();
    loop {
        let jobs = {
            let mut queue = inner.queue();
            let jobs = take(&mut queue.waiting);
            if jobs.is_empty() {
                // Still under the lock: the next caller finds that no task is running.
                queue.running = false;
                inner.idle.send_replace(true);
                running.ended = true;
                return;
            }
            jobs
        };
        let (works, answers): (Vec<_>, Vec<_>) = jobs.into_iter().map(|job| (job.work, job.answer)).unzip();
        let outcome = batch::run(&inner.place, &works).await;
        // Before the answers: a caller that then waits for its own change need not check again.
        inner.announce(&outcome.feeds);
        for (answer, outcome) in answers.into_iter().zip(outcome.answers) {
            // If the caller is gone, its job is done nonetheless.
            let _ = answer.send(outcome);
        }
        for (collection, last) in outcome.feeds {
            trim(&inner, collection, last).await;
        }
    }
}

/// Takes the jobs for one transaction: at least one.
fn take(waiting: &mut VecDeque<Job>) -> Vec<Job> {
    let (mut count, mut changes, mut bytes) = (0, 0, 0);
    for job in waiting.iter().take(JOBS_MAX) {
        changes += job.work.len();
        bytes += job.work.bytes();
        if count > 0 && (changes > limits::RECORD_CHANGES_MAX || bytes > limits::RECORD_CHANGES_BYTES_MAX) {
            break;
        }
        count += 1;
    }
    waiting.drain(..count).collect()
}

impl Work {
    /// Adds the collections that it concerns.
    pub(super) fn add_collections<'w>(&'w self, names: &mut BTreeSet<&'w str>) {
        match self {
            Self::Changes(changes) => names.extend(changes.iter().map(RecordChange::collection)),
            Self::Expired(records) | Self::Mark(records) => names.extend(records.iter().map(|(name, _)| &**name)),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Changes(changes) => changes.len(),
            Self::Expired(records) | Self::Mark(records) => records.len(),
        }
    }

    fn bytes(&self) -> usize {
        let Self::Changes(changes) = self else { return 0 };
        changes.iter().map(RecordChange::bytes).sum()
    }
}

/// Removes old notes each time the numbers of a feed pass another ten thousand.
async fn trim(inner: &Inner, collection: String, last: ChangeNumber) {
    let part = last / TRIMMED_AT_ONCE;
    {
        let mut trimmed = inner.trimmed.lock().unwrap_or_else(PoisonError::into_inner);
        if last < inner.kept || trimmed.get(&collection) == Some(&part) {
            return;
        }
        trimmed.insert(collection.clone(), part);
    }
    if let Err(error) = feed::trim(&inner.place.database, &collection, last, inner.kept).await {
        tracing::warn!(error = crate::refused::message_of(&error), "notes of old changes stay for now");
    }
}
