//! Aggregates with snapshots: what is saved when, what is used, and what is done about one that cannot be.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use annals_core::{
    Aggregate, AggregateCommits, AggregateIdsQuery, AggregateQuery, AggregateType, CommitError, CommitOutcome,
    DEFAULT_SCOPE, DEFAULT_TENANT, Data, EventLog, KnownAggregate, LogPage, LogQuery, NewCommit, NewEvent,
    NewTransaction, ReadError, Snapshot, Snapshots, Store, TransactionError, Version,
};
use annals_embedded::{EmbeddedStore, Options, disk::MemoryDisk};
use annals_runtime::{Aggregates, IdRange, Regenerated, Request, SnapshotStrategy};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::counter::{Counter, CounterEvent, add};

/// A log that counts the commits that are read from it.
struct Counted {
    inner: Arc<dyn EventLog>,
    commits: AtomicU64,
}

impl Counted {
    /// How many commits were read since the last time.
    fn taken(&self) -> u64 {
        self.commits.swap(0, Ordering::SeqCst)
    }
}

#[async_trait]
impl EventLog for Counted {
    async fn commit(&self, commit: NewCommit) -> Result<CommitOutcome, CommitError> {
        self.inner.commit(commit).await
    }

    async fn transact(&self, transaction: NewTransaction) -> Result<Vec<CommitOutcome>, TransactionError> {
        self.inner.transact(transaction).await
    }

    async fn read_aggregate(&self, query: AggregateQuery) -> Result<AggregateCommits, ReadError> {
        let found = self.inner.read_aggregate(query).await?;
        self.commits.fetch_add(found.commits.len() as u64, Ordering::SeqCst);
        Ok(found)
    }

    async fn request_exists(&self, aggregate: &Aggregate, request_id: &str) -> Result<bool, ReadError> {
        self.inner.request_exists(aggregate, request_id).await
    }

    async fn aggregate_ids(&self, query: AggregateIdsQuery) -> Result<Vec<KnownAggregate>, ReadError> {
        self.inner.aggregate_ids(query).await
    }

    async fn read(&self, query: LogQuery) -> Result<LogPage, ReadError> {
        self.inner.read(query).await
    }

    async fn head(&self) -> Result<u64, ReadError> {
        self.inner.head().await
    }

    async fn wait_past(&self, head: u64) -> Result<u64, ReadError> {
        self.inner.wait_past(head).await
    }
}

struct Kept {
    _store: EmbeddedStore,
    log: Arc<Counted>,
    snapshots: Arc<dyn Snapshots>,
}

impl Kept {
    fn new() -> Self {
        let store = EmbeddedStore::open(Arc::new(MemoryDisk::default()), Options::default()).expect("opens in memory");
        let inner = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("always there");
        let log = Arc::new(Counted { inner, commits: AtomicU64::new(0) });
        let snapshots = store.snapshots(DEFAULT_TENANT).expect("always there");
        Self { _store: store, log, snapshots }
    }

    fn of<A: AggregateType>(&self, strategy: SnapshotStrategy) -> Aggregates<A> {
        Aggregates::new(self.log.clone() as Arc<dyn EventLog>).snapshots(self.snapshots.clone(), strategy)
    }

    fn counters(&self) -> Aggregates<Counter> {
        self.of(SnapshotStrategy::Every)
    }

    /// Commits as another program would, without a snapshot.
    async fn commit(&self, id: &str, n: i64) {
        let data = Data::from_value(&json!({ "by": n })).expect("an object");
        let commit = NewCommit::new("counter", id).event(NewEvent::new("increased", data));
        self.log.commit(commit).await.expect("taken");
    }

    async fn snapshot(&self, id: &str) -> Option<Snapshot> {
        self.snapshots.load(&Aggregate::new("counter", id)).await.expect("it is read")
    }

    async fn version(&self, id: &str) -> Version {
        self.snapshot(id).await.map_or(0, |snapshot| snapshot.info.version)
    }
}

#[tokio::test]
async fn a_snapshot_is_saved_with_every_commit_and_spares_reading_those_before_it() {
    let kept = Kept::new();
    let counters = kept.counters();
    for n in 1..=20 {
        let request = Request::new("c-1").owner("eva").operator("otto");
        let handled = counters.handle(request, add(n)).await.expect("taken");
        assert_eq!(kept.snapshot("c-1").await.expect("saved").loaded().as_ref(), Some(&handled.aggregate));
    }
    assert_eq!(kept.log.taken(), 0);
    let loaded = counters.load("c-1").await.expect("loads");
    assert_eq!((loaded.count, loaded.version(), kept.log.taken()), (210, 20, 0));
    kept.commit("c-1", 5).await;
    let ahead = counters.load("c-1").await.expect("loads");
    assert_eq!((ahead.count, ahead.version(), kept.log.taken()), (215, 21, 1));
    // The same as without snapshots; and what is asked for in the past is made of all commits.
    assert_eq!(Aggregates::<Counter>::new(kept.log.clone()).load("c-1").await.expect("loads"), ahead);
    kept.log.taken();
    assert_eq!(counters.load_at("c-1", 20).await.expect("loads"), loaded);
    assert_eq!(kept.log.taken(), 20);
}

#[tokio::test]
async fn strategies_say_when_a_snapshot_is_saved() {
    let kept = Kept::new();
    let counters = kept.of::<Counter>(SnapshotStrategy::EveryVersions(5));
    let mut versions = Vec::new();
    for _ in 0..12 {
        counters.handle("c-1", add(1)).await.expect("taken");
        versions.push(kept.version("c-1").await);
    }
    assert_eq!(versions, [0, 0, 0, 0, 5, 5, 5, 5, 5, 10, 10, 10]);
    let counters = kept.of::<Counter>(SnapshotStrategy::Never);
    kept.log.taken();
    counters.handle("c-1", add(1)).await.expect("taken");
    assert_eq!((kept.version("c-1").await, kept.log.taken()), (10, 2));
    counters.handle("c-2", add(1)).await.expect("taken");
    assert_eq!(kept.snapshot("c-2").await, None);
}

#[tokio::test]
async fn a_command_that_commits_nothing_saves_nothing() {
    let kept = Kept::new();
    let counters = kept.counters();
    counters.handle("c-1", add(0)).await.expect("nothing to do");
    counters.handle("c-1", add(99_999)).await.expect_err("refused");
    assert_eq!(kept.snapshot("c-1").await, None);
}

/// Counters as a later version of the program has them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Later {
    tally: i64,
}

impl AggregateType for Later {
    const NAME: &'static str = "counter";
    type Event = CounterEvent;

    fn evolve(&mut self, event: CounterEvent) {
        if let CounterEvent::Added { n } = event {
            self.tally += n;
        }
    }

    fn upcasters() -> annals_core::Upcasters {
        Counter::upcasters()
    }
}

/// With the fields of [`Later`], of which something else was made.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Twice {
    tally: i64,
}

impl AggregateType for Twice {
    const NAME: &'static str = "counter";
    const STATE_REVISION: u32 = 2;
    type Event = CounterEvent;

    fn evolve(&mut self, event: CounterEvent) {
        if let CounterEvent::Added { n } = event {
            self.tally += 2 * n;
        }
    }

    fn upcasters() -> annals_core::Upcasters {
        Counter::upcasters()
    }
}

#[tokio::test]
async fn a_snapshot_of_a_state_that_was_changed_since_is_made_anew() {
    let kept = Kept::new();
    for _ in 0..3 {
        kept.counters().handle("c-1", add(1)).await.expect("taken");
    }
    // Its fields are others.
    let later = kept.of::<Later>(SnapshotStrategy::Every);
    assert_eq!(later.load("c-1").await.expect("loads").tally, 3);
    assert_eq!(kept.log.taken(), 3, "made of all commits");
    assert_eq!(later.load("c-1").await.expect("loads").tally, 3);
    assert_eq!(kept.log.taken(), 0, "healed");
    // Its fields are the same, and mean something else.
    let twice = kept.of::<Twice>(SnapshotStrategy::Every);
    assert_eq!(twice.load("c-1").await.expect("loads").tally, 6);
    assert_eq!((twice.load("c-1").await.expect("loads").tally, kept.log.taken()), (6, 3));
    assert_eq!(kept.snapshot("c-1").await.expect("saved").state_revision, 2);
    assert_eq!(later.load("c-1").await.expect("loads").tally, 3, "the earlier program goes on, too");
}

#[tokio::test]
async fn a_snapshot_that_is_ahead_of_the_log_is_not_believed() {
    let kept = Kept::new();
    kept.commit("c-1", 1).await;
    let state = Data::from_value(&json!({ "count": 77, "odd": [] })).expect("an object");
    for version in [2, 9] {
        let ahead = Snapshot::new(Aggregate::new("counter", "c-1"), version, state.clone());
        assert_eq!(kept.snapshots.save(&ahead).await, Ok(true));
        assert_eq!(kept.counters().load("c-1").await.expect("loads").count, 1);
        assert_eq!(kept.version("c-1").await, 1, "healed");
    }
    let nothing = Snapshot::new(Aggregate::new("counter", "c-2"), 2, state);
    assert_eq!(kept.snapshots.save(&nothing).await, Ok(true));
    assert_eq!(kept.counters().load("c-2").await.expect("loads").version(), 0);
    assert_eq!(kept.snapshot("c-2").await, None);
}

#[tokio::test]
async fn an_aggregate_of_another_tenant_id_is_not_seen_through_its_snapshot() {
    let kept = Kept::new();
    kept.counters().handle(Request::new("c-1").tenant_id("a"), add(9_000)).await.expect("taken");
    let other = kept.counters().handle(Request::new("c-1").tenant_id("b"), add(9_000)).await.expect_err("taken by a");
    assert_eq!(other.code(), Some(annals_core::Code::AggregateOfOtherTenant));
    assert_eq!(kept.version("c-1").await, 1);
}

#[tokio::test]
async fn snapshots_are_made_anew_one_or_many_and_go_on_where_they_ended() {
    let kept = Kept::new();
    for n in 0..25 {
        for _ in 0..=n % 3 {
            kept.commit(&format!("c-{n:02}"), 1).await;
        }
    }
    let counters = kept.counters();
    assert_eq!(counters.regenerate("c-02").await, Ok(true));
    assert_eq!((kept.version("c-02").await, kept.version("c-01").await), (3, 0));
    assert_eq!(counters.regenerate("nobody").await, Ok(false));
    let mut seen = Vec::new();
    let first = IdRange { until: Some("c-09".into()), ..IdRange::default() };
    let done = counters.regenerate_range(first, |done| seen.push(done.saved)).await.expect("all of them");
    assert_eq!(done, Regenerated { after: Some("c-09".into()), saved: 10, left: 0 });
    assert_eq!(seen, (1..=10).collect::<Vec<_>>());
    assert_eq!(kept.version("c-10").await, 0);
    let rest = IdRange { after: done.after, until: None };
    let done = counters.regenerate_range(rest, |_| ()).await.expect("all of them");
    assert_eq!((done.after, done.saved), (Some("c-24".into()), 15));
    assert_eq!((kept.version("c-24").await, kept.version("c-23").await), (1, 3));
}

#[tokio::test]
async fn making_snapshots_anew_ends_at_the_first_that_fails_and_says_where_to_go_on() {
    let kept = Kept::new();
    kept.commit("c-1", 1).await;
    let broken = Data::from_value(&json!({ "n": "many" })).expect("an object");
    let broken = NewEvent { generation: 2, ..NewEvent::new("added", broken) };
    kept.log.commit(NewCommit::new("counter", "c-2").event(broken)).await.expect("taken");
    kept.commit("c-3", 1).await;
    let error = kept.counters().regenerate_range(IdRange::default(), |_| ()).await.expect_err("c-2 cannot be read");
    assert_eq!((error.id.as_deref(), error.done.after.as_deref(), error.done.saved), (Some("c-2"), Some("c-1"), 1));
    assert!(error.to_string().contains("counter/c-2 version 1, event 0"), "{error}");
    assert_eq!(kept.snapshot("c-3").await, None);
}

#[tokio::test]
async fn a_snapshot_that_is_wrong_though_readable_is_mended_by_making_it_anew() {
    let kept = Kept::new();
    kept.commit("c-1", 1).await;
    for version in [1, 9] {
        let state = Data::from_value(&json!({ "count": 77, "odd": [] })).expect("an object");
        let wrong = Snapshot::new(Aggregate::new("counter", "c-1"), version, state);
        assert_eq!(kept.snapshots.save(&wrong).await, Ok(true));
        assert_eq!(kept.counters().regenerate("c-1").await, Ok(true));
        let mended = kept.snapshot("c-1").await.expect("saved").loaded::<Counter>().expect("a counter's");
        assert_eq!((mended.count, mended.version()), (1, 1));
    }
}
