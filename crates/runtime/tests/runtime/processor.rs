//! What a processor promises, on the real store in memory.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use annals_core::{
    Aggregate, AggregateCommits, AggregateIdsQuery, AggregateQuery, CommitError, CommitOutcome, DEFAULT_SCOPE,
    DEFAULT_TENANT, Data, EventLog, Filter, KnownAggregate, LogPage, LogQuery, NewCommit, NewEvent, NewTransaction,
    ReadError, RecordedEvent, Store, StoreError, TransactionError,
};
use annals_embedded::{EmbeddedStore, Options, disk::MemoryDisk};
use annals_runtime::{Handler, HandlerError, Processor, RetryPolicy, Running, State, Status};
use async_trait::async_trait;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

fn open() -> (EmbeddedStore, Arc<dyn EventLog>) {
    let store = EmbeddedStore::open(Arc::new(MemoryDisk::default()), Options::default()).expect("opens in memory");
    let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("always there");
    (store, log)
}

async fn commit(log: &Arc<dyn EventLog>, event_type: &str, events: usize) {
    let mut commit = NewCommit::new("order", "o-1");
    commit.events = vec![NewEvent::new(event_type, Data::empty()); events];
    log.commit(commit).await.expect("is taken");
}

/// Says what it was handed, after failing as often as `failures` says.
struct Telling {
    told: mpsc::UnboundedSender<(u64, Instant)>,
    failures: Mutex<VecDeque<HandlerError>>,
}

#[async_trait]
impl Handler for Telling {
    async fn handle(&self, event: &RecordedEvent) -> Result<(), HandlerError> {
        let _ = self.told.send((event.sequence_number, Instant::now()));
        match self.failures.lock().expect("not poisoned").pop_front() {
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }
}

type Told = mpsc::UnboundedReceiver<(u64, Instant)>;

fn telling(failures: impl Into<VecDeque<HandlerError>>) -> (Telling, Told) {
    let (told, receiver) = mpsc::unbounded_channel();
    (Telling { told, failures: Mutex::new(failures.into()) }, receiver)
}

async fn told(told: &mut Told, count: usize) -> Vec<u64> {
    let mut numbers = Vec::new();
    for _ in 0..count {
        numbers.push(told.recv().await.expect("the handler lives").0);
    }
    numbers
}

async fn until(running: &Running, condition: impl FnMut(&Status) -> bool) -> Status {
    running.watch().wait_for(condition).await.expect("the task lives").clone()
}

const POLICY: RetryPolicy = RetryPolicy { first: Duration::from_secs(1), max: Duration::from_secs(3) };

#[tokio::test]
async fn events_are_handled_in_order_first_those_that_are_there_then_those_that_come() {
    let (_store, log) = open();
    commit(&log, "placed", 3).await;
    let (handler, mut handled) = telling([]);
    let running = Processor::new(log.clone(), 0).start(handler);
    assert_eq!(told(&mut handled, 3).await, [0, 1, 2]);
    commit(&log, "paid", 2).await;
    assert_eq!(told(&mut handled, 2).await, [3, 4]);
    let status = until(&running, |status| status.position == 5).await;
    assert_eq!((status.head, status.attempts, status.state, status.last_error), (5, 0, State::Running, None));
}

#[tokio::test]
async fn more_than_a_page_is_handled_without_gap_or_repeat() {
    let (_store, log) = open();
    commit(&log, "placed", 2_500).await;
    let (handler, mut handled) = telling([]);
    let _running = Processor::new(log, 0).start(handler);
    assert_eq!(told(&mut handled, 2_500).await, (0..2_500).collect::<Vec<_>>());
}

#[tokio::test]
async fn only_what_passes_the_filter_is_handled() {
    let (_store, log) = open();
    for event_type in ["placed", "paid", "placed"] {
        commit(&log, event_type, 1).await;
    }
    let (handler, mut handled) = telling([]);
    let filter = Filter { types: vec!["paid".into()], ..Filter::default() };
    let running = Processor::new(log.clone(), 0).filter(filter).start(handler);
    assert_eq!(told(&mut handled, 1).await, [1]);
    commit(&log, "paid", 1).await;
    assert_eq!(told(&mut handled, 1).await, [3]);
    assert_eq!(until(&running, |status| status.position == 4).await.head, 4);
}

#[tokio::test(start_paused = true)]
async fn a_failing_event_is_tried_again_later_and_later_and_never_skipped() {
    let (_store, log) = open();
    commit(&log, "placed", 2).await;
    let failures: Vec<_> = (1..=4).map(|n| HandlerError::Retry(format!("failure {n}"))).collect();
    let (handler, mut handled) = telling(failures);
    let running = Processor::new(log, 0).retry(POLICY).start(handler);
    let mut tries = Vec::new();
    for _ in 0..6 {
        tries.push(handled.recv().await.expect("the handler lives"));
    }
    assert_eq!(tries.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [0, 0, 0, 0, 0, 1]);
    let delays: Vec<_> = tries.windows(2).map(|pair| (pair[1].1 - pair[0].1).as_secs_f64().round() as u64).collect();
    assert_eq!(delays, [1, 2, 3, 3, 0]);
    let status = until(&running, |status| status.position == 2).await;
    assert_eq!((status.attempts, status.state), (0, State::Running));
    assert_eq!(status.last_error.as_deref(), Some("failure 4"), "a passing fault stays visible");
}

#[tokio::test]
async fn the_status_tells_of_a_stuck_event_and_stopping_does_not_wait_for_its_retry() {
    let (_store, log) = open();
    commit(&log, "placed", 5).await;
    let (handler, _handled) = telling([HandlerError::Retry("no room".into())]);
    let hour = Duration::from_secs(3600);
    let running = Processor::new(log, 3).retry(RetryPolicy { first: hour, max: hour }).start(handler);
    let stuck = until(&running, |status| status.state == State::Retrying).await;
    assert_eq!((stuck.position, stuck.head, stuck.attempts), (3, 5, 1));
    assert_eq!(stuck.last_error.as_deref(), Some("no room"));
    let stopped = running.stop().await;
    assert_eq!((stopped.state, stopped.position), (State::Stopped, 3), "the failed event is still to come");
}

/// Waits in the middle of an event until it is let go.
struct Slow {
    begun: Arc<Notify>,
    let_go: Arc<Notify>,
    finished: Arc<AtomicU32>,
}

#[async_trait]
impl Handler for Slow {
    async fn handle(&self, _: &RecordedEvent) -> Result<(), HandlerError> {
        self.begun.notify_one();
        self.let_go.notified().await;
        self.finished.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

#[tokio::test]
async fn stopping_lets_the_event_under_way_finish_and_hands_over_no_further_one() {
    let (_store, log) = open();
    commit(&log, "placed", 3).await;
    let (begun, let_go, finished) = (Arc::new(Notify::new()), Arc::new(Notify::new()), Arc::default());
    let slow = Slow { begun: begun.clone(), let_go: let_go.clone(), finished: Arc::clone(&finished) };
    let running = Processor::new(log, 0).start(slow);
    begun.notified().await;
    let stopping = tokio::spawn(running.stop());
    let_go.notify_one();
    let status = stopping.await.expect("does not panic");
    assert_eq!((status.state, status.position), (State::Stopped, 1));
    assert_eq!(finished.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn starting_again_from_the_last_position_goes_on_where_it_ended() {
    let (_store, log) = open();
    commit(&log, "placed", 2).await;
    let (handler, mut handled) = telling([]);
    let running = Processor::new(log.clone(), 0).start(handler);
    assert_eq!(told(&mut handled, 2).await, [0, 1]);
    until(&running, |status| status.position == 2).await;
    let status = running.stop().await;
    commit(&log, "placed", 2).await;
    let (handler, mut handled) = telling([]);
    let _running = Processor::new(log, status.position).start(handler);
    assert_eq!(told(&mut handled, 2).await, [2, 3]);
}

#[tokio::test]
async fn a_handler_that_cannot_go_on_ends_the_processor_before_its_event() {
    let (_store, log) = open();
    commit(&log, "placed", 3).await;
    let (handler, mut handled) = telling([HandlerError::Stop("the target is gone".into())]);
    let mut running = Processor::new(log, 1).start(handler);
    let status = running.ended().await;
    assert_eq!((status.state, status.position), (State::Stopped, 1));
    assert_eq!(status.last_error.as_deref(), Some("the target is gone"));
    assert_eq!(told(&mut handled, 1).await, [1]);
    assert!(handled.recv().await.is_none(), "nothing after it was handed over");
}

#[tokio::test]
async fn a_store_that_closes_ends_the_processor() {
    let (store, log) = open();
    commit(&log, "placed", 1).await;
    let (handler, mut handled) = telling([]);
    let mut running = Processor::new(log, 0).start(handler);
    assert_eq!(told(&mut handled, 1).await, [0]);
    store.close().await;
    let status = running.ended().await;
    assert_eq!((status.state, status.position), (State::Stopped, 1));
    assert_eq!(status.last_error, Some(StoreError::Closed.to_string()));
}

#[tokio::test]
async fn a_filter_that_the_log_refuses_ends_the_processor_with_the_reason() {
    let (_store, log) = open();
    let filter = Filter { types: vec!["no such name!".into()], ..Filter::default() };
    let (handler, _handled) = telling([]);
    let status = Processor::new(log, 0).filter(filter).start(handler).ended().await;
    assert!(status.last_error.is_some_and(|error| error.contains("no such name!")));
}

struct Panicking;

#[async_trait]
impl Handler for Panicking {
    async fn handle(&self, _: &RecordedEvent) -> Result<(), HandlerError> {
        panic!("a defect of this handler");
    }
}

#[tokio::test]
async fn a_handler_that_panics_ends_the_processor_and_those_who_watch_it_learn_so() {
    let (_store, log) = open();
    commit(&log, "placed", 1).await;
    let status = Processor::new(log, 0).start(Panicking).ended().await;
    assert_eq!((status.state, status.position), (State::Stopped, 0));
    assert_eq!(status.last_error.as_deref(), Some("the handler panicked"));
}

#[tokio::test(start_paused = true)]
async fn a_read_that_fails_is_tried_again_and_nothing_is_lost() {
    let (_store, log) = open();
    commit(&log, "placed", 3).await;
    let failing = Arc::new(FailingReads { log, left: AtomicU32::new(3) });
    let (handler, mut handled) = telling([]);
    let running = Processor::new(failing, 0).retry(POLICY).start(handler);
    let begun = Instant::now();
    assert_eq!(told(&mut handled, 3).await, [0, 1, 2]);
    assert_eq!(begun.elapsed().as_secs(), 1 + 2 + 3);
    let status = until(&running, |status| status.position == 3).await;
    assert_eq!(status.last_error, Some(StoreError::Io("cable pulled".into()).to_string()));
}

/// The real log, whose first reads fail.
struct FailingReads {
    log: Arc<dyn EventLog>,
    left: AtomicU32,
}

#[async_trait]
impl EventLog for FailingReads {
    async fn commit(&self, commit: NewCommit) -> Result<CommitOutcome, CommitError> {
        self.log.commit(commit).await
    }

    async fn transact(&self, transaction: NewTransaction) -> Result<Vec<CommitOutcome>, TransactionError> {
        self.log.transact(transaction).await
    }

    async fn read_aggregate(&self, query: AggregateQuery) -> Result<AggregateCommits, ReadError> {
        self.log.read_aggregate(query).await
    }

    async fn request_exists(&self, aggregate: &Aggregate, request_id: &str) -> Result<bool, ReadError> {
        self.log.request_exists(aggregate, request_id).await
    }

    async fn aggregate_ids(&self, query: AggregateIdsQuery) -> Result<Vec<KnownAggregate>, ReadError> {
        self.log.aggregate_ids(query).await
    }

    async fn read(&self, query: LogQuery) -> Result<LogPage, ReadError> {
        let failing = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        match failing {
            Ok(_) => Err(StoreError::Io("cable pulled".into()).into()),
            Err(_) => self.log.read(query).await,
        }
    }

    async fn head(&self) -> Result<u64, ReadError> {
        self.log.head().await
    }

    async fn wait_past(&self, head: u64) -> Result<u64, ReadError> {
        self.log.wait_past(head).await
    }
}
