//! Several processes on one store: the basis of their leases, and the cost of idle handlers.

use std::sync::Arc;
use std::time::Duration;

use annals_core::dead_letters::{DEAD_LETTERS, LetterOrder, LetterPolicy, LetterStatus};
use annals_core::handlers::{HandlerDefinition, HandlerError, PullBody};
use annals_core::spread::ProcessRecord;
use annals_core::{Clock, DEFAULT_TENANT, Lease, RecordType, RecordedEvent, Store, Timestamp, TypedRecords};
use annals_runtime::{Effects, HandleFailure, Handler, HostOptions};
use async_trait::async_trait;

use crate::dead_letters::cases::{Lettered, because};
use crate::handlers::counted::Calls;
use crate::handlers::opened::{Opened, positions};
use crate::tap::TappedStore;
use crate::withheld::Withheld;
use crate::{ManualClock, Subject};

/// A handler that gets no events in these cases.
struct Idle;

#[async_trait]
impl Handler for Idle {
    async fn handle(&self, _: &[RecordedEvent], _: &mut Effects) -> Result<(), HandleFailure> {
        Ok(())
    }
}

/// Returns the lease of a handler, once it has one.
async fn lease(it: &Opened, name: &str) -> Option<Lease> {
    let records = it.store.records(DEFAULT_TENANT).expect("declared");
    let found = TypedRecords::<Lease>::declared(records).get(format!("handler/{name}")).await;
    // Before the first one, the collection does not exist.
    found.ok().flatten().map(|found| found.value)
}

/// Returns the heartbeat of the process that holds a lease.
async fn heartbeat(it: &Opened, lease: &Lease) -> Option<ProcessRecord> {
    let records = it.store.records(DEFAULT_TENANT).expect("declared");
    let found = TypedRecords::<ProcessRecord>::declared(records).get(lease.holder.as_str()).await;
    found.expect("reads").map(|found| found.value)
}

/// Lets time pass until each of these handlers has a lease of a later epoch than this one.
async fn until_taken(it: &Opened, names: &[&str], epoch: i64) -> Vec<Lease> {
    let mut leases = Vec::new();
    for name in names {
        let taken = loop {
            match lease(it, name).await {
                Some(found) if found.epoch > epoch => break found,
                _ => it.advance(10),
            }
            crate::between_looks().await;
        };
        leases.push(taken);
    }
    leases
}

/// Lets this many seconds pass, slowly.
async fn pass(it: &Opened, seconds: u64) {
    let until = it.now_plus(seconds * 1_000);
    tokio::select! {
        () = it.clock.sleep_until(until) => {}
        never = it.let_time_pass_by_writes() => match never {},
    }
}

/// There is no write for each handler, neither for its lease nor for dead letters.
pub async fn idle_handlers_cost_one_write_a_second_together(subject: &dyn Subject) {
    const HANDLERS: usize = 20;
    const SECONDS: u64 = 10;
    let calls = Arc::new(Calls::default());
    let store: Arc<dyn Store> = Arc::new(TappedStore::new(subject.open().await).with_records(&calls));
    let it = Opened::on(store, subject.clock());
    let names: Vec<String> = (0..HANDLERS).map(|n| format!("h-{n}")).collect();
    for name in &names {
        it.host.handle(DEFAULT_TENANT, HandlerDefinition::new(name.clone()), Idle).await.expect("defined");
    }
    until_taken(&it, &names.iter().map(String::as_str).collect::<Vec<_>>(), 0).await;
    // Each handler looks for letters once when it starts.
    pass(&it, 3).await;
    let counts = || {
        let writes = [Lease::COLLECTION, ProcessRecord::COLLECTION].map(|collection| calls.writes(collection));
        (writes, calls.queries(DEAD_LETTERS))
    };
    let ([leases, heartbeats], looks) = counts();
    pass(&it, SECONDS).await;
    let ([leases_after, heartbeats_after], looks_after) = counts();
    assert_eq!(leases_after, leases, "no lease is renewed");
    let (beats, looks) = (heartbeats_after - heartbeats, looks_after - looks);
    assert!((1..=SECONDS as usize + 1).contains(&beats), "{beats} heartbeats in {SECONDS} s");
    assert!(looks <= SECONDS as usize, "{looks} queries for letters in {SECONDS} s");
}

/// It takes the tasks again, and its leases then rest on another life.
pub async fn a_deposed_process_gives_up_all_tasks(subject: &dyn Subject) {
    let one = Opened::of(subject).await;
    for name in ["a", "b"] {
        one.host.handle(DEFAULT_TENANT, HandlerDefinition::new(name), Idle).await.expect("defined");
    }
    one.by_aggregate("h").await;
    assert!(one.pull_now("h").await.is_empty());
    let before = until_taken(&one, &["a", "b", "h"], 0).await;
    assert!(before.iter().all(|lease| lease.holder == before[0].holder && lease.life == before[0].life));
    one.commit("placed", &["x"]).await;
    // Time passes only for the other process, which sees that the heartbeat is not renewed.
    let ahead = Arc::new(ManualClock::at(one.now_plus(60_000)));
    let other = Opened::on(subject.open().await, ahead);
    let pull = PullBody { max: 1, wait_ms: 50_000, ..PullBody::default() };
    let pulled = tokio::select! {
        pulled = other.handlers.pull("h", pull) => pulled.expect("pulled"),
        never = other.let_time_pass_by_writes() => match never {},
    };
    assert_eq!(positions(&pulled), [0]);
    let taken = lease(&one, "h").await.expect("there");
    assert!(taken.holder != before[2].holder && taken.epoch > before[2].epoch, "{taken:?}");
    // No other process has taken these.
    let again = until_taken(&one, &["a", "b"], before[0].epoch.max(before[1].epoch)).await;
    for taken in again {
        assert_eq!(taken.holder, before[0].holder);
        assert!(taken.life > before[0].life, "{taken:?}");
    }
}

/// By the other process's clock, its heartbeat expired longer ago than processes are remembered.
pub async fn a_process_whose_clock_is_behind_keeps_its_tasks(subject: &dyn Subject) {
    let slow = Opened::of(subject).await;
    slow.host.handle(DEFAULT_TENANT, HandlerDefinition::new("mine"), Idle).await.expect("defined");
    let before = until_taken(&slow, &["mine"], 0).await.remove(0);
    let ahead = Arc::new(ManualClock::at(slow.now_plus(70_000)));
    let fast = Opened::on(subject.open().await, ahead);
    // A process compares heartbeats while it has a task of this kind.
    fast.host.handle(DEFAULT_TENANT, HandlerDefinition::new("other"), Idle).await.expect("defined");
    while lease(&fast, "other").await.is_none() {
        crate::between_looks().await;
    }
    // Once a second. A process that renews nothing for a minute counts as gone, so less than that passes.
    for _ in 0..500 {
        fast.advance(100);
        slow.advance(100);
        crate::between_looks().await;
    }
    // A deposed process learns this when it renews its heartbeat.
    let last = heartbeat(&slow, &before).await.map_or(Timestamp::default(), |found| found.until());
    let renewed = loop {
        match heartbeat(&slow, &before).await {
            Some(found) if found.until() > last => break found,
            _ => slow.advance(100),
        }
        crate::between_looks().await;
    };
    assert_eq!(Some(renewed.life), before.life, "nobody has ended its life");
    let after = lease(&slow, "mine").await.expect("there");
    assert_eq!((after.holder, after.epoch, after.life), (before.holder, before.epoch, before.life));
    slow.commit("placed", &["x"]).await;
    while slow.handlers.get("mine").await.expect("defined").position < 1 {
        slow.advance(10);
        crate::between_looks().await;
    }
}

/// By the clock of the standby process, every heartbeat of the other one has expired before it is written.
pub async fn a_process_whose_clock_is_ahead_takes_nothing_over(subject: &dyn Subject) {
    let slow = Opened::of(subject).await;
    slow.host.handle(DEFAULT_TENANT, HandlerDefinition::new("mine"), Idle).await.expect("defined");
    let before = until_taken(&slow, &["mine"], 0).await.remove(0);
    let fast = Opened::on(subject.open().await, Arc::new(ManualClock::at(slow.now_plus(60_000))));
    fast.host.handle(DEFAULT_TENANT, HandlerDefinition::new("mine"), Idle).await.expect("defined");
    let mut last = Timestamp::default();
    for second in 0..10 {
        // The heartbeat is renewed once a second, and then time passes for the standby process.
        while last == heartbeat(&slow, &before).await.map_or(last, |found| found.until()) {
            let now = lease(&slow, "mine").await.expect("there");
            assert_eq!((now.holder, now.epoch), (before.holder.clone(), before.epoch), "after {second} s");
            slow.advance(100);
            crate::between_looks().await;
        }
        last = heartbeat(&slow, &before).await.map_or(last, |found| found.until());
        for _ in 0..10 {
            fast.advance(100);
            crate::between_looks().await;
        }
    }
    let after = lease(&slow, "mine").await.expect("there");
    assert_eq!((after.holder, after.epoch, after.life), (before.holder.clone(), before.epoch, before.life));
    // It shows the owner, because it sees that the heartbeat is renewed.
    while fast.handlers.get("mine").await.expect("defined").owner.as_ref() != Some(&before.holder) {
        slow.advance(100);
        crate::between_looks().await;
    }
}

/// By its clock, every heartbeat of the process that joins has expired before it is written.
pub async fn a_process_whose_clock_is_ahead_gives_tasks_away(subject: &dyn Subject) {
    const NAMES: [&str; 2] = ["a", "b"];
    let slow = Opened::of(subject).await;
    let fast = Opened::on(subject.open().await, Arc::new(ManualClock::at(slow.now_plus(60_000))));
    for name in NAMES {
        fast.host.handle(DEFAULT_TENANT, HandlerDefinition::new(name), Idle).await.expect("defined");
    }
    let before = until_taken(&fast, &NAMES, 0).await;
    assert_eq!(before[0].holder, before[1].holder);
    for name in NAMES {
        slow.host.handle(DEFAULT_TENANT, HandlerDefinition::new(name), Idle).await.expect("defined");
    }
    let is_elsewhere = async |name: &str| lease(&slow, name).await.is_some_and(|it| it.holder != before[0].holder);
    while !is_elsewhere("a").await && !is_elsewhere("b").await {
        for it in [&slow, &fast] {
            it.advance(20);
            crate::between_looks().await;
        }
    }
}

/// The other process expects heartbeats at the interval that this process states.
pub async fn a_process_with_a_longer_lease_keeps_its_tasks(subject: &dyn Subject) {
    let options = HostOptions { lease: Duration::from_secs(40), ..HostOptions::default() };
    let patient = Opened::with(subject.open().await, subject.clock(), options);
    patient.host.handle(DEFAULT_TENANT, HandlerDefinition::new("mine"), Idle).await.expect("defined");
    let before = until_taken(&patient, &["mine"], 0).await.remove(0);
    let hasty = Opened::on(subject.open().await, patient.clock.clone());
    hasty.host.handle(DEFAULT_TENANT, HandlerDefinition::new("mine"), Idle).await.expect("defined");
    // More than two leases of the standby process, during which the other one need not renew its heartbeat.
    for _ in 0..450 {
        hasty.advance(20);
        crate::between_looks().await;
    }
    let after = lease(&hasty, "mine").await.expect("there");
    assert_eq!((after.holder, after.epoch, after.life), (before.holder, before.epoch, before.life));
}

/// If it kept the lease while it lives, no process could run the handler once it is defined again.
pub async fn a_process_that_finds_its_handler_deleted_gives_the_lease_back(subject: &dyn Subject) {
    let one = Opened::of(subject).await;
    let withheld = Withheld::of(Lease::COLLECTION);
    let store: Arc<dyn Store> = Arc::new(TappedStore::new(subject.open().await).with_records(&withheld));
    let other = Opened::on(store, one.clock.clone());
    // It continues to live with a task of its own.
    other.host.handle(DEFAULT_TENANT, HandlerDefinition::new("other"), Idle).await.expect("defined");
    until_taken(&other, &["other"], 0).await;
    let definition = one.by_aggregate("h").await;
    withheld.hold_next();
    let deleting = async {
        withheld.has_arrived().await;
        one.handlers.delete("h", because("a test")).await.expect("deleted");
        withheld.let_go();
    };
    let (pulled, ()) = tokio::join!(other.handlers.pull("h", PullBody::default()), deleting);
    assert!(matches!(pulled, Err(HandlerError::Unknown(_))), "{pulled:?}");
    one.define(definition).await;
    one.commit("placed", &["x"]).await;
    let pull = PullBody { max: 1, wait_ms: 50_000, ..PullBody::default() };
    let pulled = tokio::select! {
        pulled = one.handlers.pull("h", pull) => pulled.expect("pulled"),
        never = one.let_time_pass_by_writes() => match never {},
    };
    assert_eq!(positions(&pulled), [0]);
}

/// The limit is 5 s and the time that the store takes.
pub async fn all_tasks_of_a_process_that_dies_are_taken_over(subject: &dyn Subject) {
    const NAMES: [&str; 3] = ["a", "b", "c"];
    let one = Opened::of(subject).await;
    let other = Opened::on(subject.open().await, one.clock.clone());
    for name in NAMES {
        one.by_aggregate(name).await;
    }
    one.commit("placed", &["x"]).await;
    for name in NAMES {
        assert_eq!(positions(&one.pull(name).await), [0]);
    }
    // It dies: nothing is renewed and nothing is released.
    let Opened { host, store, .. } = one;
    std::mem::forget(host);
    store.close().await;
    let died = other.clock.now();
    let taken = async {
        for name in NAMES {
            let pull = PullBody { max: 1, wait_ms: 50_000, ..PullBody::default() };
            let pulled = other.handlers.pull(name, pull).await.expect("pulled");
            assert_eq!(positions(&pulled), [0], "{name}");
        }
    };
    tokio::select! {
        () = taken => {}
        never = other.let_time_pass_by_writes() => match never {},
    }
    let passed = other.clock.now().since(died);
    assert!(passed < Duration::from_secs(6), "it took {passed:?}");
}

/// A build without heartbeats renews its lease, or dies.
pub async fn a_lease_of_an_earlier_build_is_taken_over_once_it_has_ended(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    it.by_aggregate("h").await;
    it.commit("placed", &["x"]).await;
    let records = it.store.records(DEFAULT_TENANT).expect("declared");
    let leases = TypedRecords::<Lease>::declare(records).await.expect("declared");
    let earlier = Lease::ending(it.now_plus(4_000), "handler/h", "an earlier build", None);
    leases.insert(&earlier).await.expect("stored");
    assert!(it.pull_now("h").await.is_empty(), "it is the other one's");
    it.advance(4_000);
    assert_eq!(positions(&it.pull("h").await), [0]);
    let taken = lease(&it, "h").await.expect("there");
    assert_eq!(taken.epoch, 2);
    assert!(taken.life.is_some());
}

/// Its owner is in this process, which gets no notification.
pub async fn a_letter_that_another_process_makes_due_is_delivered(subject: &dyn Subject) {
    let one = Lettered::of(subject).await;
    one.letters.put_policy("placed".into(), LetterPolicy::manual(), because("a test")).await.expect("stored");
    one.define("g", LetterOrder::Wait).await;
    one.it.commit("placed", &["x"]).await;
    let failing = one.pull_count("g", 1).await;
    one.fail("g", &failing[0]).await;
    let letters = one.until_count(LetterStatus::Pending, 1).await;
    let other = Opened::on(subject.open().await, one.it.clock.clone());
    let others = other.host.dead_letters(DEFAULT_TENANT).expect("declared");
    others.retry(&letters[0].id, because("mended")).await.expect("retried");
    let pull = PullBody { max: 1, wait_ms: 50_000, worker: "w".to_owned(), ..PullBody::default() };
    let pulled = tokio::select! {
        pulled = one.groups.pull("g", pull) => pulled.expect("pulled"),
        never = one.it.let_time_pass_by_writes() => match never {},
    };
    assert_eq!(positions(&pulled), [0]);
}
