//! Processes that are killed at each of their writes: what they wrote before is there, and another process continues.

use std::collections::BTreeSet;
use std::sync::Arc;

use annals_core::filters::{FilterDefinition, FilterName, FilterSettleBody, FilterSettlement};
use annals_core::handlers::PullBody;
use annals_core::processing::PartitionBy;
use annals_core::{DEFAULT_SCOPE, DEFAULT_TENANT, NewCommit, Reached, StreamEntry, StreamQuery, limits};

use crate::Subject;
use crate::filters::words::Filtered;
use crate::handlers::opened::Opened;
use crate::mortal::{Life, at_each_write};
use crate::sample::event;

/// What a process writes for a filter besides verdicts and the definition in the layout: its own definition, failures and progress.
const STEPS: &[&str] = &["annals-filter"];
/// How much time passes with each durable write, in milliseconds. A lease lasts for several writes.
const PASSING_MS: i64 = 500;
/// Long, so that no batch of a client counts as failed because time passes fast.
const LEASE_MS: u64 = 12 * 60 * 60 * 1_000;

/// A filter of its own event type, so that it does not interact with others on the same store.
struct Run<'a> {
    /// The store. No host runs there.
    all: &'a Filtered,
    name: String,
    /// The events that belong in its stream.
    included: Vec<u64>,
    /// One past the last event.
    end: u64,
}

impl Run<'_> {
    fn definition(&self) -> FilterDefinition {
        FilterDefinition::new(self.name.clone()).types([self.name.clone()]).partitioned(PartitionBy::Aggregate)
    }

    /// Commits an event that is included, one that is not, and another one that is.
    async fn commit(&mut self) {
        let types = [self.name.as_str(), "other", self.name.as_str()];
        let commit = types.iter().fold(NewCommit::new("order", "a"), |commit, it| commit.event(event(it, 0)));
        self.all.it.log.commit(commit.wait_until(Reached::Logged)).await.expect("committed");
        self.end = self.all.it.log.head().await.expect("reads");
        self.included.extend([self.end - 3, self.end - 1]);
    }

    fn remote(&self) -> FilterDefinition {
        FilterDefinition::new(self.name.clone()).types([self.name.clone()]).remote()
    }

    /// Returns whether every event is evaluated, according to the store.
    async fn is_filled(&self) -> bool {
        self.all.streams.stream(&self.name).await.expect("reads").progress >= self.end
    }

    /// Lets time pass while `does` runs.
    async fn as_time_passes(&self, does: impl Future<Output = ()>) {
        tokio::select! {
            () = does => {}
            never = self.all.it.let_time_pass_by_writes_of(PASSING_MS) => match never {},
        }
    }

    /// Waits until every event is evaluated, or the process dies.
    async fn until_filled(&self, is_dead: impl Fn() -> bool) {
        let filled = async {
            while !is_dead() && !self.is_filled().await {
                crate::between_looks().await;
            }
        };
        self.as_time_passes(filled).await;
    }

    async fn has_each_event_once(&self) {
        let query = StreamQuery { limit: limits::PAGE_MAX, ..StreamQuery::new(self.name.clone()) };
        let entries = self.all.streams.read(query).await.expect("reads").entries;
        let due = self.included.iter().zip(0..).map(|(sequence_number, position)| StreamEntry {
            position,
            sequence_number: *sequence_number,
            partition: Some("order/a".into()),
        });
        assert_eq!(entries, due.collect::<Vec<_>>(), "{}", self.name);
        let definitions = self.all.it.store.stream_definitions(DEFAULT_TENANT, DEFAULT_SCOPE).expect("always there");
        let defined = definitions.get(&self.name).await.expect("reads");
        assert!(defined.is_some_and(|it| it.partitioned && !it.public), "{} is in the layout", self.name);
    }
}

/// The process is killed before the write is applied, and in another run after. The next process completes whatever it leaves: no event
/// is skipped, and none is included twice.
pub async fn a_filter_skips_and_repeats_no_event_whichever_write_its_process_dies_at(subject: &dyn Subject) {
    let all = Filtered::of(subject).await;
    all.it.host.drain().await;
    let kills = at_each_write(STEPS, async |life, n| is_killed(&all, &life, n).await).await;
    assert!(kills >= 6, "a process makes more writes than {kills}");
}

/// Returns whether the first process was killed before the stream was filled.
async fn is_killed(all: &Filtered, life: &Arc<Life>, n: usize) -> bool {
    let mut run = Run { all, name: format!("run-{n}"), included: Vec::new(), end: 0 };
    run.commit().await;
    let dying = Filtered::on(Opened::on(life.store(&all.it.store), all.it.clock.clone()));
    let defined = dying.filters.put(run.definition()).await;
    assert!(defined.is_ok() || life.is_over(), "{defined:?}");
    run.commit().await;
    run.until_filled(|| life.is_over()).await;
    let killed = life.is_over();
    dying.it.host.drain().await;
    let next = Filtered::on(Opened::on(all.it.store.clone(), all.it.clock.clone()));
    next.filters.put(run.definition()).await.expect("defined");
    run.commit().await;
    run.until_filled(|| false).await;
    next.it.host.drain().await;
    run.has_each_event_once().await;
    killed
}

/// What a client of a remote filter knows.
#[derive(Default)]
struct Client {
    /// The events whose verdict was acknowledged.
    settled: BTreeSet<u64>,
    failed: bool,
}

impl Client {
    /// Works until every event is evaluated, or the server dies.
    async fn until_filled(&mut self, run: &Run<'_>, server: &Filtered, is_dead: impl Fn() -> bool) {
        while self.work(run, server).await.is_none() && !is_dead() {
            crate::between_looks().await;
        }
    }

    /// Pulls and settles until every event is evaluated. The first event fails once. Returns `None` if the server does not answer.
    async fn work(&mut self, run: &Run<'_>, server: &Filtered) -> Option<()> {
        let name = FilterName::new(run.name.clone());
        server.filters.put(run.remote()).await.ok()?;
        // A settlement whose answer was lost may be stored or not. The stored progress decides.
        while !run.is_filled().await {
            let pull = PullBody { max: 2, wait_ms: 1_000, lease_ms: LEASE_MS, ..PullBody::default() };
            for delivery in server.filters.pull(&name, pull).await.ok()? {
                let number = delivery.event.sequence_number;
                assert!(!self.settled.contains(&number), "event {number} was settled and comes again");
                let fails = !std::mem::replace(&mut self.failed, true);
                let result = match fails {
                    true => FilterSettlement::failed(&*delivery.token, "this time it fails"),
                    false => FilterSettlement::in_partition(&*delivery.token, "order/a"),
                };
                let body = FilterSettleBody { results: vec![result] };
                let settled = server.filters.settle(&name, body).await.ok()?;
                // What follows a failed event is handed out again.
                if settled[0].settled && !fails {
                    self.settled.insert(number);
                }
            }
        }
        Some(())
    }
}

/// An event whose verdict was acknowledged never comes again. None is skipped, and none is included twice.
pub async fn a_client_evaluates_every_event_whichever_write_its_server_dies_at(subject: &dyn Subject) {
    let all = Filtered::of(subject).await;
    all.it.host.drain().await;
    let kills = at_each_write(STEPS, async |life, n| server_is_killed(&all, &life, n).await).await;
    assert!(kills >= 6, "a server makes more writes than {kills}");
}

/// Returns whether the first server was killed before the stream was filled.
async fn server_is_killed(all: &Filtered, life: &Arc<Life>, n: usize) -> bool {
    let mut run = Run { all, name: format!("run-{n}"), included: Vec::new(), end: 0 };
    run.commit().await;
    run.commit().await;
    let mut client = Client::default();
    let dying = Filtered::on(Opened::on(life.store(&all.it.store), all.it.clock.clone()));
    let dies = async {
        while !life.is_over() {
            crate::between_looks().await;
        }
    };
    let works = async {
        tokio::select! {
            biased;
            () = dies => {}
            () = client.until_filled(&run, &dying, || life.is_over()) => {}
        }
    };
    run.as_time_passes(works).await;
    let killed = life.is_over();
    dying.it.host.drain().await;
    let next = Filtered::on(Opened::on(all.it.store.clone(), all.it.clock.clone()));
    run.commit().await;
    run.as_time_passes(client.until_filled(&run, &next, || false)).await;
    next.it.host.drain().await;
    run.has_each_event_once().await;
    assert!(client.failed);
    killed
}
