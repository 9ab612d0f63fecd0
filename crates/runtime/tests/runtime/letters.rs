//! What dead letters cost: reads and writes of records, counted between the runtime and a store in memory.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use annals_conformance::ManualClock;
use annals_conformance::tap::{Tap, TapRecords, TappedStore};
use annals_core::bson::Bson;
use annals_core::dead_letters::{
    BulkAct, BulkBody, DEAD_LETTERS, DeadLetter, LETTER_AGGREGATE, LetterPolicy, LetterQuery, LetterSettings,
    LetterStatus,
};
use annals_core::handlers::{Delivery, HandlerDefinition, Handlers, PullBody, SettleBody, Settlement};
use annals_core::processing::PartitionBy;
use annals_core::{
    Code, CommitError, CommitOutcome, Condition, DEFAULT_SCOPE, DEFAULT_TENANT, Data, EventLog, GroupPage, GroupQuery,
    Invalid, NewCommit, NewEvent, Record, RecordChange, RecordError, RecordPage, RecordQuery, RecordedEvent, Records,
    Revision, Store, Timestamp,
};
use annals_embedded::{EmbeddedStore, Options, disk::MemoryDisk};
use annals_runtime::{Effects, HandleFailure, Handler, Host, HostOptions};
use async_trait::async_trait;

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A worker that fails every event, or handles every one.
struct Worker {
    fails: bool,
}

#[async_trait]
impl Handler for Worker {
    async fn handle(&self, _: &[RecordedEvent], _: &mut Effects) -> Result<(), HandleFailure> {
        if self.fails { Err(HandleFailure::new("the service is away")) } else { Ok(()) }
    }
}

/// Counts the calls about dead letters.
#[derive(Default)]
struct Calls {
    reads: AtomicUsize,
    writes: AtomicUsize,
    /// The number of letters that were read to group them by topic.
    by_topic: AtomicUsize,
}

impl Calls {
    fn note_read(&self, collection: &str) {
        self.reads.fetch_add(usize::from(collection == DEAD_LETTERS), Ordering::SeqCst);
    }
}

#[async_trait]
impl TapRecords for Calls {
    async fn write(&self, records: &dyn Records, changes: Vec<RecordChange>) -> Result<Vec<Revision>, RecordError> {
        let has_letters = changes.iter().any(|change| change.collection() == DEAD_LETTERS);
        self.writes.fetch_add(usize::from(has_letters), Ordering::SeqCst);
        records.write(changes).await
    }

    async fn get(&self, records: &dyn Records, collection: &str, id: &Bson) -> Result<Option<Record>, RecordError> {
        self.note_read(collection);
        records.get(collection, id).await
    }

    async fn find(&self, records: &dyn Records, query: RecordQuery) -> Result<RecordPage, RecordError> {
        self.note_read(&query.collection);
        records.find(query).await
    }

    async fn group(&self, records: &dyn Records, query: GroupQuery) -> Result<GroupPage, RecordError> {
        self.note_read(&query.collection);
        if query.collection == DEAD_LETTERS && query.by.as_deref() == Some("original_topic") {
            let read = records.count(DEAD_LETTERS, &query.condition).await?;
            self.by_topic.fetch_add(read as usize, Ordering::SeqCst);
        }
        records.group(query).await
    }
}

/// Refuses the announcements of all letters but one.
#[derive(Default)]
struct OnlyOf(Mutex<Option<String>>);

#[async_trait]
impl Tap for OnlyOf {
    async fn commit(&self, log: &dyn EventLog, commit: NewCommit) -> Result<CommitOutcome, CommitError> {
        let is_admitted = self.0.lock().expect("no panic").as_deref() == Some(&*commit.aggregate.id);
        if *commit.aggregate.name == *LETTER_AGGREGATE && !is_admitted {
            return Err(Invalid::new(Code::InvalidData, "data", "is refused by the test").into());
        }
        log.commit(commit).await
    }
}

/// Returns a store with this many events, each of a key of its own.
async fn store_of(events: usize) -> Arc<dyn Store> {
    store_with(Options::default(), events).await
}

async fn store_with(options: Options, events: usize) -> Arc<dyn Store> {
    let store = EmbeddedStore::open(Arc::new(MemoryDisk::default()), options).expect("opens in memory");
    let store: Arc<dyn Store> = Arc::new(store);
    let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("declared");
    for n in 0..events {
        let commit = NewCommit::new("order", format!("o-{n}")).event(NewEvent::new("placed", Data::empty()));
        log.commit(commit).await.expect("committed");
    }
    store
}

/// A handler in which an event becomes a letter at its first failure.
fn definition() -> HandlerDefinition {
    let json = r#"{"types": ["placed"], "retry": {"attempts": 1, "then": "park"}}"#;
    let definition = HandlerDefinition::read("letters", json.as_bytes()).expect("valid");
    let mut definition = definition.partitioned(PartitionBy::Aggregate, 64);
    definition.dead_letters = Some(LetterSettings { breaker: 0, ..LetterSettings::default() });
    definition
}

/// Starts a host with the handler.
async fn handled_by(store: &Arc<dyn Store>, fails: bool) -> Host {
    let host = Host::start(Arc::clone(store), HostOptions::default());
    host.handle(DEFAULT_TENANT, definition(), Worker { fails }).await.expect("it runs");
    host
}

async fn count(store: &Arc<dyn Store>, condition: Condition) -> usize {
    let records = store.records(DEFAULT_TENANT).expect("declared");
    match records.count(DEAD_LETTERS, &condition).await {
        Err(RecordError::UnknownCollection(_)) => 0,
        count => count.expect("counted") as usize,
    }
}

async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let looked = tokio::time::timeout(PATIENCE, async {
        while !is_so().await {
            tokio::task::yield_now().await;
        }
    });
    looked.await.unwrap_or_else(|_| panic!("{what} did not happen in time"));
}

async fn until_announced(store: &Arc<dyn Store>) {
    until("announcing the letters", async || count(store, Condition::is_true("announcing")).await == 0).await;
}

/// Makes every event a dead letter, and waits until all are announced.
async fn fail_all(store: &Arc<dyn Store>, events: usize) {
    let host = handled_by(store, true).await;
    until("failing", async || count(store, DeadLetter::open()).await == events).await;
    until_announced(store).await;
    host.drain().await;
}

async fn retry_all(store: &Arc<dyn Store>) {
    let host = Host::start(Arc::clone(store), HostOptions::default());
    let letters = host.dead_letters(DEFAULT_TENANT).expect("declared");
    let reason = "the service is back".to_owned();
    let body = BulkBody { condition: Some(Condition::All), ids: None, reason, by: None, dry_run: false };
    letters.bulk(BulkAct::Retry, body).await.expect("retried");
    host.drain().await;
}

/// They are read as pages of due letters, settled in batches of what the lanes have done, and announced in batches. Nothing is looked up
/// for each of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retried_letters_take_less_than_a_read_and_a_write_for_two() {
    const LETTERS: usize = 1_200;
    let store = store_of(LETTERS).await;
    fail_all(&store, LETTERS).await;
    retry_all(&store).await;
    let calls = Arc::new(Calls::default());
    let tapped: Arc<dyn Store> = Arc::new(TappedStore::new(Arc::clone(&store)).with_records(&calls));
    let host = handled_by(&tapped, false).await;
    until("processing the letters", async || count(&store, DeadLetter::open()).await == 0).await;
    until_announced(&store).await;
    host.drain().await;
    assert_eq!(count(&store, Condition::eq("status", LetterStatus::Retried.name())).await, LETTERS);
    let (reads, writes) = (calls.reads.load(Ordering::SeqCst), calls.writes.load(Ordering::SeqCst));
    assert!(reads < LETTERS / 2, "{reads} reads");
    assert!(writes < LETTERS / 2, "{writes} writes");
}

/// They are looked up together, and so are their keys.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_that_become_letters_take_less_than_a_read_for_two() {
    const LETTERS: usize = 1_200;
    let store = store_of(LETTERS).await;
    let calls = Arc::new(Calls::default());
    let tapped: Arc<dyn Store> = Arc::new(TappedStore::new(Arc::clone(&store)).with_records(&calls));
    let host = handled_by(&tapped, true).await;
    until("failing", async || count(&store, DeadLetter::open()).await == LETTERS).await;
    until_announced(&store).await;
    host.drain().await;
    let reads = calls.reads.load(Ordering::SeqCst);
    assert!(reads < LETTERS / 2, "{reads} reads");
}

async fn settle(handlers: &dyn Handlers, settlement: Settlement) {
    let settled = handlers.settle("letters", SettleBody { results: vec![settlement] }).await.expect("settled");
    assert!(settled[0].settled, "{settled:?}");
}

/// Pulls until an event comes.
async fn pulled(handlers: &dyn Handlers) -> Delivery {
    let pull = PullBody { max: 1, wait_ms: 1_000, worker: "w".to_owned(), ..PullBody::default() };
    let mut found = None;
    until("a delivery", async || {
        found = handlers.pull("letters", pull.clone()).await.expect("pulled").pop();
        found.is_some()
    })
    .await;
    found.expect("there is one")
}

/// The owner may have the letter as it was before. It was the only one of its key then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_follows_a_letter_while_it_is_attempted_is_delivered_after_it() {
    let store = store_of(1).await;
    let host = Host::start(Arc::clone(&store), HostOptions::default());
    let handlers = host.handlers(DEFAULT_TENANT).expect("declared");
    handlers.put(definition()).await.expect("defined");
    let first = pulled(&*handlers).await;
    settle(&*handlers, Settlement::failed(first.token, "the service is away")).await;
    until_announced(&store).await;
    let letters = host.dead_letters(DEFAULT_TENANT).expect("declared");
    let id = letters.list(LetterQuery::default()).await.expect("listed").items[0].id.clone();
    letters.retry(&id, "the service is back".into()).await.expect("retried");
    let again = pulled(&*handlers).await;
    assert_eq!((again.event.sequence_number, again.attempt), (0, 2));
    let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("declared");
    let commit = NewCommit::new("order", "o-0").event(NewEvent::new("placed", Data::empty()));
    log.commit(commit).await.expect("committed");
    settle(&*handlers, Settlement::done(again.token)).await;
    let next = pulled(&*handlers).await;
    assert_eq!((next.event.commit.version, next.attempt), (2, 1));
    settle(&*handlers, Settlement::done(next.token)).await;
    // Whether the second event became a letter depends on when it was read. It does not wait for ever either way.
    assert_eq!(count(&store, DeadLetter::open()).await, 0);
    host.drain().await;
}

/// Due letters were read for a later time before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_that_is_planned_after_the_clock_was_set_back_is_not_missed() {
    let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_772_366_400_000)));
    let store = store_with(Options { clock: clock.clone(), ..Options::default() }, 1).await;
    let host = Host::start(Arc::clone(&store), HostOptions { clock: clock.clone(), ..HostOptions::default() });
    let letters = host.dead_letters(DEFAULT_TENANT).expect("declared");
    letters.put_policy("placed".into(), LetterPolicy::immediate(5), "a test".into()).await.expect("stored");
    let handlers = host.handlers(DEFAULT_TENANT).expect("declared");
    handlers.put(definition()).await.expect("defined");
    for attempt in 1..=3 {
        let delivery = pulled(&*handlers).await;
        assert_eq!((delivery.event.sequence_number, delivery.attempt), (0, attempt));
        if attempt == 2 {
            clock.advance_millis(-3_600_000);
        }
        settle(&*handlers, Settlement::failed(delivery.token, "the service is away")).await;
    }
    host.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statistics_read_each_letter_once() {
    const LETTERS: usize = 40;
    let store = store_of(LETTERS).await;
    fail_all(&store, LETTERS).await;
    let calls = Arc::new(Calls::default());
    let tapped: Arc<dyn Store> = Arc::new(TappedStore::new(store).with_records(&calls));
    let host = Host::start(tapped, HostOptions::default());
    let letters = host.dead_letters(DEFAULT_TENANT).expect("declared");
    let counted = letters.statistics().await.expect("counted");
    assert_eq!((counted.open, counted.topics[0].total_messages), (LETTERS as u64, LETTERS as u64));
    assert_eq!(calls.by_topic.load(Ordering::SeqCst), LETTERS);
    host.drain().await;
}

/// However many of them there are before it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn letters_whose_announcements_are_refused_hold_up_no_other() {
    const LETTERS: usize = 450;
    let store = store_of(LETTERS).await;
    let only_of = Arc::new(OnlyOf::default());
    let tapped: Arc<dyn Store> = Arc::new(TappedStore::new(Arc::clone(&store)).with_log(&only_of));
    let host = handled_by(&tapped, true).await;
    until("failing", async || count(&store, DeadLetter::open()).await == LETTERS).await;
    let letters = host.dead_letters(DEFAULT_TENANT).expect("declared");
    let query = LetterQuery { limit: Some(LETTERS), ..LetterQuery::default() };
    let mut ids: Vec<String> =
        letters.list(query).await.expect("listed").items.iter().map(|letter| letter.id.to_string()).collect();
    ids.sort_unstable();
    let last = ids.last().expect("there are letters").clone();
    *only_of.0.lock().expect("no panic") = Some(last.clone());
    // A change of a letter begins a round of announcements.
    letters.retry(&ids[0], "a round of announcements".into()).await.expect("retried");
    let announced = Condition::and([Condition::id(last), Condition::is_false("announcing")]);
    until("announcing it", async || count(&store, announced.clone()).await == 1).await;
    assert_eq!(count(&store, Condition::is_true("announcing")).await, LETTERS - 1);
    host.drain().await;
}
