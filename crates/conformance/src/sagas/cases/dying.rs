//! Every place at which a process that runs a saga can die, on a store that it shares with the process that takes over.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use annals_core::sagas::{SAGA_AGGREGATE, SAGAS, SagaPhase, SagaRecord, SagaState, Sagas, saga_id};
use annals_core::{
    AggregateFilter, CommitError, CommitOutcome, DEFAULT_SCOPE, DEFAULT_TENANT, Data, EventLog, Filter, LogQuery,
    NewCommit, NewEvent, RecordChange, RecordError, Records, Revision, Store, StoreError, TypedRecords, limits,
};
use annals_runtime::{Host, HostOptions, HostSagas};
use async_trait::async_trait;
use serde_json::json;

use crate::sagas::order::{Called, ORDER, program};
use crate::tap::{Tap, TapRecords, TappedStore};
use crate::{ManualClock, Subject};

/// How long after a death the leases of the process have ended, in milliseconds.
const LEASES_END_MS: i64 = 5_000;

/// A process that dies at one of its writes: the store accepts neither that write nor any later one.
struct Mortal {
    /// Counts its commits and the batches that change a saga, which follow from the saga alone. Writes that maintain its leases do not
    /// count, because they depend on the time.
    writes: AtomicUsize,
    /// The index of the write at which it dies, from 0.
    dies_at: usize,
}

impl Mortal {
    fn is_dead(&self) -> bool {
        self.writes.load(Ordering::SeqCst) > self.dies_at
    }

    /// Refuses a write of a dead process, and of a process that dies at this write.
    fn check(&self, counts: bool) -> Result<(), StoreError> {
        if counts {
            self.writes.fetch_add(1, Ordering::SeqCst);
        }
        if self.is_dead() { Err(StoreError::Closed) } else { Ok(()) }
    }
}

#[async_trait]
impl Tap for Mortal {
    async fn commit(&self, log: &dyn EventLog, commit: NewCommit) -> Result<CommitOutcome, CommitError> {
        self.check(true)?;
        log.commit(commit).await
    }
}

#[async_trait]
impl TapRecords for Mortal {
    async fn write(&self, records: &dyn Records, changes: Vec<RecordChange>) -> Result<Vec<Revision>, RecordError> {
        self.check(changes.iter().any(|change| change.collection() == SAGAS))?;
        records.write(changes).await
    }
}

/// A process that runs sagas of orders.
struct Life {
    log: Arc<dyn EventLog>,
    stored: TypedRecords<SagaRecord>,
    host: Host,
    sagas: Arc<HostSagas>,
    mortal: Arc<Mortal>,
    clock: Arc<ManualClock>,
    called: Called,
}

/// The result of a saga, without its id: what was committed for it, its steps, and how it ended.
#[derive(Debug, PartialEq)]
struct End {
    committed: Vec<(String, String)>,
    steps: Vec<String>,
    state: SagaState,
    cause: Option<String>,
    retries: u64,
}

fn is_over(saga: &SagaRecord) -> bool {
    saga.state.is_over() && saga.annals.outbox.is_empty()
}

/// Returns a request id or a key without the id of the saga.
fn of_saga(text: &str, order: &str) -> String {
    let id = saga_id(ORDER, order);
    text.replace(&*id, "ID")
}

impl Life {
    fn begin(store: &Arc<dyn Store>, clock: Arc<ManualClock>, dies_at: usize) -> Self {
        let mortal = Arc::new(Mortal { writes: AtomicUsize::new(0), dies_at });
        let tapped = TappedStore::new(Arc::clone(store)).with_log(&mortal).with_records(&mortal);
        let store: Arc<dyn Store> = Arc::new(tapped);
        let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("always there");
        let stored = TypedRecords::declared(store.records(DEFAULT_TENANT).expect("always there"));
        let host = Host::start(store, HostOptions { clock: clock.clone(), ..HostOptions::default() });
        let sagas = host.sagas(DEFAULT_TENANT).expect("declared");
        Self { log, stored, host, sagas, mortal, clock, called: Called::default() }
    }

    /// Runs the rest of the story of an order, whose saga awaits this answer. Returns `None` if the process died.
    async fn resume(&self, order: &str, answer: &str) -> Option<()> {
        self.sagas.register(program(&self.called)).await.ok()?;
        self.until_owned().await?;
        self.commit(order, "placed").await?;
        self.until(order, |saga| is_over(saga) || saga.annals.phase == SagaPhase::Awaiting).await?;
        self.commit(order, answer).await?;
        self.until(order, is_over).await
    }

    /// Waits until the sagas have an owner. Time passes fast: there is no lease yet that could be lost, and the lease of a dead process
    /// is taken only after this one has watched it for most of its duration.
    async fn until_owned(&self) -> Option<()> {
        while self.sagas.definition(ORDER).await.ok()?.owner.is_none() {
            if self.mortal.is_dead() {
                return None;
            }
            self.clock.advance_millis(100);
            crate::between_looks().await;
        }
        Some(())
    }

    async fn commit(&self, order: &str, event_type: &str) -> Option<()> {
        let data = Data::from_value(&json!({ "n": 1 })).expect("a document");
        let commit = NewCommit::new("order", order).event(NewEvent::new(event_type, data));
        self.log.commit(commit.request_id(format!("{order}/{event_type}"))).await.ok().map(drop)
    }

    async fn saga(&self, order: &str) -> Option<SagaRecord> {
        let found = self.stored.get(saga_id(ORDER, order)).await.expect("read");
        found.map(|found| found.value)
    }

    async fn until(&self, order: &str, wanted: impl Fn(&SagaRecord) -> bool) -> Option<()> {
        loop {
            if self.saga(order).await.is_some_and(|saga| wanted(&saga)) {
                return Some(());
            }
            if self.mortal.is_dead() {
                return None;
            }
            // Time passes so slowly that a living process keeps its leases.
            self.clock.advance_millis(1);
            crate::between_looks().await;
        }
    }

    fn called(&self, order: &str) -> BTreeSet<String> {
        let called = self.called.lock().expect("no function panics");
        called.iter().map(|key| of_saga(key, order)).collect()
    }

    async fn end(&self, order: &str) -> End {
        let aggregate =
            AggregateFilter { name: SAGA_AGGREGATE.into(), id: Some(saga_id(ORDER, order).as_str().into()) };
        let filter = Filter { aggregate: Some(aggregate), ..Filter::default() };
        let query = LogQuery { limit: limits::PAGE_MAX, filter, ..LogQuery::default() };
        // The last commit may get its sequence number a moment after the saga is over.
        let page = loop {
            let page = self.log.read(query.clone()).await.expect("read");
            let last = page.events.last().map(|event| &*event.event_type);
            if last.is_some_and(|last| ["saga_completed", "saga_failed"].contains(&last)) {
                break page;
            }
            crate::between_looks().await;
        };
        let committed = page.events.iter().map(|event| {
            let request = event.commit.request_id.as_deref().unwrap_or_default();
            (event.event_type.to_string(), of_saga(request, order))
        });
        let saga = self.saga(order).await.expect("there").status();
        let steps = saga.steps.iter().map(|step| format!("{} {} {}", step.name, step.state, step.attempt));
        End {
            committed: committed.collect(),
            steps: saga.completed_steps.iter().chain(&saga.compensated_steps).cloned().chain(steps).collect(),
            state: saga.state,
            cause: saga.cause,
            retries: saga.retry_count,
        }
    }
}

/// Lets a process die at each write of the saga of an order that gets this answer, and another process take over.
async fn wherever_it_dies(subject: &dyn Subject, answer: &str, state: SagaState, writes_min: usize) {
    let one = subject.open().await;
    let other = subject.open_beside(&one).await;
    let life = Life::begin(&other, subject.clock(), usize::MAX);
    life.resume("undisturbed", answer).await.expect("nothing fails");
    let (undisturbed, functions) = (life.end("undisturbed").await, life.called("undisturbed"));
    assert_eq!(undisturbed.state, state, "{undisturbed:?}");
    life.host.drain().await;
    let mut write = 0;
    loop {
        let order = format!("o-{write}");
        let life = Life::begin(&one, subject.clock(), write);
        if life.resume(&order, answer).await.is_some() {
            life.host.drain().await;
            // Every write of the run has been a place to die at.
            break;
        }
        let what = format!("died at write {write}");
        assert!(life.mortal.is_dead(), "a write was refused to a living process: {write}");
        let before = life.called(&order);
        drop(life);
        subject.clock().advance_millis(LEASES_END_MS);
        let successor = Life::begin(&other, subject.clock(), usize::MAX);
        successor.resume(&order, answer).await.expect(&what);
        assert_eq!(successor.end(&order).await, undisturbed, "{what}");
        let after = successor.called(&order);
        assert!(before.union(&after).eq(&functions), "{what}: {before:?}, then {after:?}");
        successor.host.drain().await;
        write += 1;
    }
    assert!(write >= writes_min, "the process died {write} times");
}

/// The process dies between any two steps, and where resources are released at the end.
pub async fn wherever_a_process_dies_another_one_completes_the_saga_with_the_same_commands(subject: &dyn Subject) {
    wherever_it_dies(subject, "paid", SagaState::Completed, 15).await;
}

/// The process dies between any two steps, and inside each compensation.
pub async fn wherever_a_process_dies_another_one_compensates_the_saga_with_the_same_commands(subject: &dyn Subject) {
    wherever_it_dies(subject, "declined", SagaState::Failed, 20).await;
}
