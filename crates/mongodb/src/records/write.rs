//! Group commit of changes: what comes while a transaction is under way goes into the next one together.
//!
//! Every transaction moves the tenant's counter, so two at once are in each other's way, and one has to begin anew. In a process they go
//! one after the other therefore; between processes the server decides.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use annals_core::bson::Bson;
use annals_core::{ChangeNumber, Collection, RecordChange, RecordError, StoreError, limits};
use tokio::sync::{oneshot, watch};

use super::batch::{self, Answer, Place};
use super::expiry::Due;
use super::feed;
use crate::patience::{Patience, given_up};

/// Most jobs of one transaction.
const JOBS_MAX: usize = 500;
/// Notes that are removed at once, about.
const TRIMMED_AT_ONCE: u64 = 10_000;

/// What is to be done.
pub(super) enum Work {
    /// Changes, all or none.
    Changes(Vec<RecordChange>),
    /// Records that may have expired.
    Expired(Vec<(String, Bson)>),
}

struct Job {
    work: Work,
    collections: HashMap<String, Arc<Collection>>,
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
    /// Whether nothing is under way.
    idle: watch::Sender<bool>,
    /// The newest number that this process knows of; none once closed.
    announced: watch::Sender<Option<ChangeNumber>>,
    /// The name of this process among the writers.
    name: String,
    kept: u64,
}

impl Writer {
    pub(super) fn new(place: Place, name: String, waiting_max: usize, kept: u64) -> Self {
        let (idle, announced) = (watch::Sender::new(true), watch::Sender::new(Some(0)));
        let inner = Inner { place, queue: Mutex::default(), idle, announced, name, kept };
        Self { inner: Arc::new(inner), waiting_max, patience: Patience::default() }
    }

    pub(super) fn announced(&self) -> watch::Receiver<Option<ChangeNumber>> {
        self.inner.announced.subscribe()
    }

    /// When it is to be looked for what has expired.
    pub(super) fn due(&self) -> &Due {
        &self.inner.place.due
    }

    pub(super) fn is_closed(&self) -> bool {
        self.inner.queue().closed
    }

    /// Does it with the next transaction. A caller that goes away has asked for it all the same.
    pub(super) async fn write(&self, work: Work, collections: HashMap<String, Arc<Collection>>) -> Answer {
        let (answer, answered) = oneshot::channel();
        {
            let mut queue = self.inner.queue();
            if queue.closed {
                return Err(StoreError::Closed.into());
            }
            if queue.waiting.len() >= self.waiting_max {
                return Err(StoreError::Overloaded.into());
            }
            queue.waiting.push_back(Job { work, collections, answer });
            if !queue.running {
                queue.running = true;
                self.inner.idle.send_replace(false);
                tokio::spawn(run(Running { inner: self.inner.clone(), ended: false }));
            }
        }
        let ended = || RecordError::Store(StoreError::Unreachable("the writer's task has ended".to_owned()));
        let answer = self.patience.during(answered).await.ok_or_else(given_up)?;
        answer.unwrap_or_else(|_| Err(ended()))
    }

    /// Takes no more, waits until everybody is answered, and wakes who waits for changes.
    pub(super) async fn close(&self) {
        self.inner.queue().closed = true;
        let _ = self.inner.idle.subscribe().wait_for(|idle| *idle).await;
        self.inner.announced.send_replace(None);
    }

    /// Takes no more, and answers everybody without waiting for MongoDB any longer.
    pub(super) fn give_up(&self) {
        {
            let mut queue = self.inner.queue();
            queue.closed = true;
            queue.waiting.clear();
        }
        self.patience.end();
        self.inner.announced.send_replace(None);
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.inner.queue().closed = true;
        self.inner.announced.send_replace(None);
    }
}

impl Inner {
    fn queue(&self) -> std::sync::MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn announce(&self, last: ChangeNumber) {
        self.announced.send_if_modified(|known| match known {
            Some(known) if *known < last => {
                *known = last;
                true
            }
            _ => false,
        });
    }
}

/// A task that writes. It ends with its runtime too; a store may be used from a later one.
struct Running {
    inner: Arc<Inner>,
    /// It has ended in order, and another may run already.
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
    let mut round = 0_u64;
    loop {
        let jobs = {
            let mut queue = inner.queue();
            let jobs = take(&mut queue.waiting);
            if jobs.is_empty() {
                // Still under the lock: whoever comes after finds that nobody runs.
                queue.running = false;
                inner.idle.send_replace(true);
                running.ended = true;
                return;
            }
            jobs
        };
        round += 1;
        let mut collections = HashMap::new();
        let (mut works, mut answers) = (Vec::new(), Vec::new());
        for job in jobs {
            collections.extend(job.collections);
            works.push(job.work);
            answers.push(job.answer);
        }
        let by = format!("{}-{round}", inner.name);
        let outcomes = batch::run(&inner.place, &collections, &works, &by).await;
        let last = outcomes.iter().filter_map(|outcome| outcome.as_ref().ok()?.iter().max().copied()).max();
        for (answer, outcome) in answers.into_iter().zip(outcomes) {
            // A caller that went away has its outcome all the same.
            let _ = answer.send(outcome);
        }
        match last {
            Some(last) => {
                inner.announce(last);
                trim(&inner, last).await;
            }
            None => inner.announced.send_modify(|_| ()),
        }
    }
}

/// Jobs for one transaction: at least one.
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
    fn len(&self) -> usize {
        match self {
            Self::Changes(changes) => changes.len(),
            Self::Expired(records) => records.len(),
        }
    }

    fn bytes(&self) -> usize {
        let Self::Changes(changes) = self else { return 0 };
        changes.iter().map(RecordChange::bytes).sum()
    }
}

/// Removes notes now and then: each time that the numbers pass another ten thousand.
async fn trim(inner: &Inner, last: ChangeNumber) {
    let known = inner.place.trimmed.load(std::sync::atomic::Ordering::Relaxed);
    if last < inner.kept || last / TRIMMED_AT_ONCE == known {
        return;
    }
    inner.place.trimmed.store(last / TRIMMED_AT_ONCE, std::sync::atomic::Ordering::Relaxed);
    if let Err(error) = feed::trim(&inner.place.database, last, inner.kept).await {
        tracing::warn!(error = crate::refused::message_of(&error), "notes of old changes stay for now");
    }
}
