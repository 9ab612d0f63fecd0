//! Aggregates with snapshots: when they are saved, when they are used, and how an unusable one is replaced.

use std::sync::Arc;

use annals_core::{
    Aggregate, AggregateType, Code, DEFAULT_TENANT, Data, EventLog, NewCommit, Reached, Snapshot, Snapshots, Store,
    UnknownLog, Version, Wait,
};
use annals_runtime::{Aggregates, IdRange, Regenerated, Request, SnapshotStrategy};
use serde_json::json;

use crate::aggregates::counted::Counted;
use crate::aggregates::counter::{Counter, add, increased, recorded};
use crate::aggregates::later::{Later, Twice};
use crate::tap::Tapped;
use crate::{OTHER_TENANT, Subject, WithOther, sample};

/// An open store that counts the commits that were read.
struct Kept {
    store: Arc<dyn Store>,
    log: Arc<Tapped<Counted>>,
    snapshots: Arc<dyn Snapshots>,
}

impl Kept {
    async fn open(subject: &dyn Subject) -> Self {
        let (store, log) = sample::open(subject).await;
        let log = Counted::over(log);
        let snapshots = store.snapshots(DEFAULT_TENANT).expect("the tenant is declared");
        Self { store, log, snapshots }
    }

    async fn reopen(self, subject: &dyn Subject) -> Self {
        self.store.close().await;
        drop(self);
        Self::open(subject).await
    }

    fn of<A: AggregateType>(&self, strategy: SnapshotStrategy) -> Aggregates<A> {
        self.without::<A>().snapshots(self.snapshots.clone(), strategy)
    }

    fn without<A: AggregateType>(&self) -> Aggregates<A> {
        Aggregates::new(self.log.clone() as Arc<dyn EventLog>)
    }

    fn counters(&self) -> Aggregates<Counter> {
        self.of(SnapshotStrategy::Every)
    }

    /// Commits as another program would, without a snapshot.
    async fn commit(&self, commit: NewCommit) {
        self.log.commit(commit).await.expect("taken");
    }

    async fn snapshot(&self, id: &str) -> Option<Snapshot> {
        self.snapshots.load(&Aggregate::new("counter", id)).await.expect("it is read")
    }

    async fn version(&self, id: &str) -> Version {
        self.snapshot(id).await.map_or(0, |snapshot| snapshot.info.version)
    }
}

/// The snapshot is saved before the answer. A past state is rebuilt from all commits.
pub async fn a_snapshot_is_saved_with_every_commit_and_spares_reading_those_before_it(subject: &dyn Subject) {
    let kept = Kept::open(subject).await;
    let counters = kept.counters();
    for n in 1..=20 {
        let request = Request::new("c-1").owner("eva").operator("otto");
        let handled = counters.handle(request, add(n)).await.expect("taken");
        assert_eq!(kept.snapshot("c-1").await.expect("saved").loaded().as_ref(), Some(&handled.aggregate));
    }
    assert_eq!(kept.log.tap.taken(), 0);
    let loaded = counters.load("c-1").await.expect("loads");
    assert_eq!((loaded.count, loaded.version(), kept.log.tap.taken()), (210, 20, 0));
    kept.commit(increased("c-1", 5)).await;
    let ahead = counters.load("c-1").await.expect("loads");
    assert_eq!((ahead.count, ahead.version(), kept.log.tap.taken()), (215, 21, 1));
    // The same as without snapshots. A past state is rebuilt from all commits.
    assert_eq!(kept.without::<Counter>().load("c-1").await.expect("loads"), ahead);
    kept.log.tap.taken();
    assert_eq!(counters.load_at("c-1", 20).await.expect("loads"), loaded);
    assert_eq!(kept.log.tap.taken(), 20);
}

/// Existing snapshots are used, whatever the strategy.
pub async fn strategies_say_when_a_snapshot_is_saved(subject: &dyn Subject) {
    let kept = Kept::open(subject).await;
    let counters = kept.of::<Counter>(SnapshotStrategy::EveryVersions(5));
    let mut versions = Vec::new();
    for _ in 0..12 {
        counters.handle("c-1", add(1)).await.expect("taken");
        versions.push(kept.version("c-1").await);
    }
    assert_eq!(versions, [0, 0, 0, 0, 5, 5, 5, 5, 5, 10, 10, 10]);
    let counters = kept.of::<Counter>(SnapshotStrategy::Never);
    kept.log.tap.taken();
    counters.handle("c-1", add(1)).await.expect("taken");
    assert_eq!((kept.version("c-1").await, kept.log.tap.taken()), (10, 2));
    counters.handle("c-2", add(1)).await.expect("taken");
    assert_eq!(kept.snapshot("c-2").await, None);
}

/// Neither a command without events nor a refused one saves a snapshot.
pub async fn a_command_that_commits_nothing_saves_nothing(subject: &dyn Subject) {
    let kept = Kept::open(subject).await;
    let counters = kept.counters();
    counters.handle("c-1", add(0)).await.expect("nothing to do");
    counters.handle("c-1", add(99_999)).await.expect_err("refused");
    assert_eq!(kept.snapshot("c-1").await, None);
}

/// The new snapshot replaces the unusable one.
pub async fn a_snapshot_of_a_state_that_was_changed_since_is_made_anew(subject: &dyn Subject) {
    let kept = Kept::open(subject).await;
    for _ in 0..3 {
        kept.counters().handle("c-1", add(1)).await.expect("taken");
    }
    // Its fields differ.
    let later = kept.of::<Later>(SnapshotStrategy::Every);
    assert_eq!(later.load("c-1").await.expect("loads").tally, 3);
    assert_eq!(kept.log.tap.taken(), 3, "made of all commits");
    assert_eq!(later.load("c-1").await.expect("loads").tally, 3);
    assert_eq!(kept.log.tap.taken(), 0, "healed");
    // Its fields are the same, but have another meaning.
    let twice = kept.of::<Twice>(SnapshotStrategy::Every);
    assert_eq!(twice.load("c-1").await.expect("loads").tally, 6);
    assert_eq!((twice.load("c-1").await.expect("loads").tally, kept.log.tap.taken()), (6, 3));
    assert_eq!(kept.snapshot("c-1").await.expect("saved").state_revision, 2);
    assert_eq!(later.load("c-1").await.expect("loads").tally, 3, "the earlier program goes on, too");
}

/// The snapshot is of another log. A snapshot of the actual commits replaces it.
pub async fn a_snapshot_that_is_ahead_of_the_log_is_not_believed(subject: &dyn Subject) {
    let kept = Kept::open(subject).await;
    kept.commit(increased("c-1", 1)).await;
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

/// Its snapshot stays unchanged.
pub async fn an_aggregate_of_another_tenant_id_is_not_seen_through_its_snapshot(subject: &dyn Subject) {
    let kept = Kept::open(subject).await;
    kept.counters().handle(Request::new("c-1").tenant_id("a"), add(9_000)).await.expect("taken");
    let other = kept.counters().handle(Request::new("c-1").tenant_id("b"), add(9_000)).await.expect_err("taken by a");
    assert_eq!(other.code(), Some(Code::AggregateOfOtherTenant));
    assert_eq!(kept.version("c-1").await, 1);
}

/// This holds however many commits followed the first request.
pub async fn a_repeated_request_is_answered_without_reading_the_aggregates_commits(subject: &dyn Subject) {
    let kept = Kept::open(subject).await;
    let request = || Request::new("c-1").request_id("r-1");
    let first = kept.counters().handle(request(), add(5)).await.expect("taken").outcome.expect("committed");
    for _ in 0..40 {
        kept.counters().handle("c-1", add(1)).await.expect("taken");
    }
    kept.log.tap.taken();
    // The command would be refused, or would have no events, now; the first outcome counts.
    for n in [99_999, 0] {
        let again = kept.counters().handle(request(), add(n)).await.expect("answered");
        let outcome = again.outcome.expect("its first outcome");
        assert_eq!((outcome.version, outcome.commit_id, outcome.duplicate), (1, first.commit_id, true));
        assert_eq!(kept.log.tap.taken(), 0, "the snapshot and the index of requests are enough");
    }
}

/// Snapshots are rebuilt in the order of the ids, and each is reported.
pub async fn snapshots_are_made_anew_one_or_many_and_go_on_where_they_ended(subject: &dyn Subject) {
    let kept = Kept::open(subject).await;
    for n in 0..25 {
        for _ in 0..=n % 3 {
            kept.commit(increased(&format!("c-{n:02}"), 1)).await;
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

/// Later aggregates are left as they are.
pub async fn making_snapshots_anew_ends_at_the_first_that_fails_and_says_where_to_go_on(subject: &dyn Subject) {
    let kept = Kept::open(subject).await;
    kept.commit(increased("c-1", 1)).await;
    kept.commit(recorded("c-2", "added", &json!({ "n": "many" }))).await;
    kept.commit(increased("c-3", 1)).await;
    let error = kept.counters().regenerate_range(IdRange::default(), |_| ()).await.expect_err("c-2 cannot be read");
    assert_eq!((error.id.as_deref(), error.done.after.as_deref(), error.done.saved), (Some("c-2"), Some("c-1"), 1));
    assert!(error.to_string().contains("counter/c-2 version 1, event 0"), "{error}");
    assert_eq!(kept.snapshot("c-3").await, None);
}

/// This holds whatever version the wrong snapshot claims to have.
pub async fn a_snapshot_that_is_wrong_though_readable_is_mended_by_making_it_anew(subject: &dyn Subject) {
    let kept = Kept::open(subject).await;
    kept.commit(increased("c-1", 1)).await;
    for version in [1, 9] {
        let state = Data::from_value(&json!({ "count": 77, "odd": [] })).expect("an object");
        let wrong = Snapshot::new(Aggregate::new("counter", "c-1"), version, state);
        assert_eq!(kept.snapshots.save(&wrong).await, Ok(true));
        assert_eq!(kept.counters().regenerate("c-1").await, Ok(true));
        let mended = kept.snapshot("c-1").await.expect("saved").loaded::<Counter>().expect("a counter's");
        assert_eq!((mended.count, mended.version()), (1, 1));
    }
}

/// The aggregate is loaded through its snapshot, and a repeated request is recognised.
pub async fn an_aggregate_goes_on_where_it_was_after_reopening(subject: &dyn Subject) {
    let kept = Kept::open(subject).await;
    let request = || Request::new("c-1").request_id("r-1");
    let before = kept.counters().handle(request(), add(5)).await.expect("taken").aggregate;
    let kept = kept.reopen(subject).await;
    assert_eq!(kept.counters().load("c-1").await, Ok(before.clone()));
    assert_eq!(kept.log.tap.taken(), 0);
    assert_eq!(kept.without().load("c-1").await, Ok(before));
    let again = kept.counters().handle(request(), add(7)).await.expect("answered");
    assert_eq!(again.outcome.map(|outcome| (outcome.version, outcome.duplicate)), Some((1, true)));
    let next = kept.counters().handle("c-1", add(2)).await.expect("taken").aggregate;
    assert_eq!((next.count, next.version()), (7, 2));
}

/// Tenants also have their own snapshots. A tenant that is not declared has none.
pub async fn tenants_have_aggregates_of_their_own(subject: &dyn Subject) {
    let subject = &WithOther(subject);
    let store = subject.open().await;
    let of = |tenant| Aggregates::<Counter>::open(&*store, tenant);
    let (ours, theirs) = (of(DEFAULT_TENANT).expect("declared"), of(OTHER_TENANT).expect("declared"));
    let request = || Request { wait: Wait::until(Reached::Logged), ..Request::new("c-1") };
    ours.handle(request(), add(1)).await.expect("taken");
    assert_eq!(theirs.load("c-1").await.expect("loads").version(), 0);
    theirs.handle(request(), add(2)).await.expect("taken");
    for (counters, count) in [(ours, 1), (theirs, 2)] {
        let loaded = counters.load("c-1").await.expect("loads");
        assert_eq!((loaded.count, loaded.version()), (count, 1));
    }
    assert_eq!(of("nobody").err(), Some(UnknownLog::Tenant("nobody".into())));
}
