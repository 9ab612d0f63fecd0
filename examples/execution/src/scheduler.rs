//! The scheduler, which hands out slots of the work queue to waiting executions.
//!
//! It holds the leases of running executions, because a slot belongs to an execution and not to a process: any scheduler renews any
//! lease. The queue can be rebuilt from the sagas, so nothing is lost when a Redis is emptied.

use std::sync::Arc;
use std::time::Duration;

use annals::queue::{
    ItemRef, ItemState, ItemsBody, ItemsQuery, NewItem, QueueError, QueuePriority, Queues, RenewBody, TakeBody,
};
use annals::sagas::{SagaError, SagaQuery, SagaState, Sagas};
use annals::{ByteString, Clock, EventLog, Filter, Follower, Timestamp, limits};
use serde_json::json;
use tokio::sync::{Notify, watch};

use crate::events::{self, QUEUED, SLOT_GRANTED};
use crate::execution::Execution;
use crate::lines::Lines;
use crate::saga::{QUEUE, SAGA};
use crate::step::StepError;

/// How often the scheduler checks the queue without being woken.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The states of sagas that need a slot.
const WAITING: [SagaState; 2] = [SagaState::Created, SagaState::Running];

pub(crate) struct Scheduler {
    pub(crate) log: Arc<dyn EventLog>,
    pub(crate) queues: Arc<dyn Queues>,
    pub(crate) sagas: Arc<dyn Sagas>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) wake: Arc<Notify>,
    /// The duration of leases.
    pub(crate) lease: Duration,
    pub(crate) name: String,
    pub(crate) lines: Lines,
}

/// Why a turn ended early.
#[derive(Debug, thiserror::Error)]
enum TurnError {
    #[error(transparent)]
    Queue(#[from] QueueError),
    #[error(transparent)]
    Saga(#[from] SagaError),
    #[error(transparent)]
    Step(#[from] StepError),
}

/// The outcome for an item that was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Grant {
    /// The slot is granted in the log, where its saga awaits it.
    Given,
    /// Its saga has not yet recorded that it waits. The event that records it wakes the scheduler.
    Early,
    /// Its execution is over.
    Over,
}

/// The state that the scheduler keeps between turns.
#[derive(Default)]
struct Seen {
    renewed: Option<Timestamp>,
    /// Whether the queue held fewer items than there are sagas.
    short: bool,
    told: Option<String>,
}

impl Scheduler {
    /// Runs until `stopping` is set.
    pub(crate) async fn run(self, mut stopping: watch::Receiver<bool>) {
        let mut seen = Seen::default();
        let queued = Filter { types: vec![ByteString::from_static(QUEUED)], ..Filter::default() };
        let from = self.log.head().await.unwrap_or_default();
        let mut queued = Follower::new(Arc::clone(&self.log), from, queued);
        loop {
            let turned = tokio::select! {
                turned = self.turn(&mut seen) => turned,
                () = stopped(&mut stopping) => return,
            };
            self.tell(&mut seen, turned.err().map(|error| error.to_string())).await;
            tokio::select! {
                () = self.wake.notified() => {}
                page = queued.next_page() => if page.is_err() {
                    self.clock.sleep(LOOK_EVERY).await;
                },
                () = self.clock.sleep(LOOK_EVERY) => {}
                () = stopped(&mut stopping) => return,
            }
        }
    }

    /// Prints once that no slot is handed out, and why.
    async fn tell(&self, seen: &mut Seen, failed: Option<String>) {
        if let Some(error) = failed.as_ref().filter(|error| seen.told.as_ref() != Some(error)) {
            self.lines.print(format!("! executions cannot be scheduled; retrying: {error}")).await;
        }
        seen.told = failed;
    }

    async fn turn(&self, seen: &mut Seen) -> Result<(), TurnError> {
        let now = self.clock.now();
        if seen.renewed.is_none_or(|renewed| now.since(renewed) >= self.lease / 3) {
            self.renew().await?;
            seen.renewed = Some(now);
        }
        self.hand_out().await?;
        self.complete(seen).await
    }

    /// Renews the leases of running executions, frees the slots of finished ones, and grants those that were taken before a crash.
    async fn renew(&self) -> Result<(), TurnError> {
        let mut query = ItemsQuery { state: Some(ItemState::Active), user: None, after: None, limit: limits::PAGE_MAX };
        loop {
            let page = self.queues.items(QUEUE, query.clone()).await?;
            let mut runs = Vec::new();
            for item in &page.items {
                if self.grant(&item.id).await? != Grant::Over {
                    runs.push(ItemRef::current(item.id.clone()));
                }
            }
            if !runs.is_empty() {
                let lease = u64::try_from(self.lease.as_millis()).unwrap_or(u64::MAX);
                self.queues.renew(QUEUE, RenewBody::of(runs, lease)).await?;
            }
            query.after = page.cursor;
            if query.after.is_none() {
                return Ok(());
            }
        }
    }

    /// Takes items as long as there are slots.
    async fn hand_out(&self) -> Result<(), TurnError> {
        const AT_ONCE: usize = 100;
        let mut early = Vec::new();
        let handed_out = async {
            loop {
                let lease_ms = u64::try_from(self.lease.as_millis()).ok();
                let take = TakeBody { max: AT_ONCE, lease_ms, worker: self.name.as_str().into() };
                let taken = self.queues.take(QUEUE, take).await?;
                if taken.items.is_empty() {
                    return Ok(());
                }
                for item in taken.items {
                    match self.grant(&item.id).await {
                        Ok(Grant::Early) => early.push(item.reference()),
                        Ok(_) => {}
                        Err(error) => {
                            early.push(item.reference());
                            return Err(error);
                        }
                    }
                }
            }
        };
        let handed_out = handed_out.await;
        if !early.is_empty() {
            self.queues.release(QUEUE, ItemsBody::of(early)).await?;
        }
        handed_out
    }

    /// Grants a slot to an execution by a commit that its saga awaits. A repetition adds nothing. Frees the slot of an execution that is
    /// over.
    async fn grant(&self, id: &str) -> Result<Grant, TurnError> {
        let found = Execution::read(&*self.log, id).await.map_err(StepError::from)?;
        let Some(execution) = found.filter(|execution| !execution.status().is_over()) else {
            self.queues.done(QUEUE, ItemsBody::of([ItemRef::current(id)])).await?;
            return Ok(Grant::Over);
        };
        if execution.has(SLOT_GRANTED) {
            return Ok(Grant::Given);
        }
        if !execution.has(QUEUED) {
            return Ok(Grant::Early);
        }
        let requested = execution.requested().ok();
        let request = |pick: fn(events::Requested) -> String| requested.clone().map(pick).unwrap_or_default();
        let data = json!({
            "execution_id": id, "cpu_request": request(|it| it.cpu_request), "memory_request": request(|it| it.memory_request),
        });
        let event = events::event(SLOT_GRANTED, &data).map_err(QueueError::Unavailable)?;
        let commit = events::next_commit(execution.request(), vec![event], "slot");
        self.log.commit(commit).await.map_err(StepError::from)?;
        Ok(Grant::Given)
    }

    /// Enqueues again what the queue has lost. A queue that holds fewer items than there are sagas, twice in a row, has lost items.
    async fn complete(&self, seen: &mut Seen) -> Result<(), TurnError> {
        let counts = self.queues.get(QUEUE).await?.counts;
        let held = counts.active + counts.pending.highest_first().iter().sum::<u64>();
        let short = self.sagas.definition(SAGA).await?.active > held;
        if short && std::mem::replace(&mut seen.short, short) {
            seen.short = false;
            for state in WAITING {
                self.enqueue_all(state).await?;
            }
            self.wake.notify_one();
        }
        seen.short = short;
        Ok(())
    }

    async fn enqueue_all(&self, state: SagaState) -> Result<(), TurnError> {
        let query = SagaQuery {
            name: Some(SAGA.to_owned()),
            state: Some(state),
            limit: limits::PAGE_MAX,
            ..SagaQuery::default()
        };
        let mut cursor = None;
        loop {
            let page = self.sagas.list(SagaQuery { cursor, ..query.clone() }).await?;
            for saga in &page.items {
                let found = Execution::read(&*self.log, &saga.execution_id).await.map_err(StepError::from)?;
                let Some(execution) = found.filter(|execution| !execution.status().is_over()) else { continue };
                let Ok(requested) = execution.requested() else { continue };
                // An execution that was never enqueued is about to be, by its saga.
                if !execution.has(QUEUED) {
                    continue;
                }
                // An execution that has a slot gets it back before any other.
                let has_slot = execution.has(SLOT_GRANTED);
                let priority = if has_slot { QueuePriority::Critical } else { requested.priority() };
                let item = NewItem::new(saga.execution_id.as_str()).priority(priority).user(execution.user());
                self.queues.enqueue(QUEUE, item.payload(json!({ "saga_id": &*saga.id }))).await?;
            }
            cursor = page.cursor;
            if cursor.is_none() {
                return Ok(());
            }
        }
    }
}

/// Waits until a signal is given. A signal whose sender is gone counts as given.
pub(crate) async fn stopped(stopping: &mut watch::Receiver<bool>) {
    let _ = stopping.wait_for(|stopping| *stopping).await;
}
