//! Several processes on one store.

use annals_core::handlers::{HandlerError, PullBody, SettleBody, Settlement};

use annals_core::{DEFAULT_TENANT, Lease, TypedRecords};

use crate::Subject;
use crate::handlers::opened::{Opened, positions};

fn now() -> PullBody {
    PullBody { max: 100, ..PullBody::default() }
}

/// Pulls at `it`, which does not own the handler, until it does. Time passes meanwhile.
async fn until_taken_over(it: &Opened) -> Vec<annals_core::handlers::Delivery> {
    let pull = PullBody { max: 100, wait_ms: 50_000, ..PullBody::default() };
    tokio::select! {
        pulled = it.handlers.pull("h", pull) => pulled.expect("pulled"),
        never = it.let_time_pass_by_writes() => match never {},
    }
}

/// The other process takes over once the lease has ended.
pub async fn one_process_at_a_time_delivers_and_another_takes_over_when_it_dies(subject: &dyn Subject) {
    let one = Opened::of(subject).await;
    let other = Opened::on(subject.open().await, one.clock.clone());
    one.by_aggregate("h").await;
    one.commit("placed", &["a", "a", "b"]).await;
    let first = one.pull_count("h", 2).await;
    assert_eq!(positions(&first), [0, 2]);
    assert_eq!(other.handlers.pull("h", now()).await.expect("waits"), []);
    let elsewhere = other.handlers.settle("h", SettleBody { results: vec![Settlement::done("1")] }).await;
    assert!(matches!(elsewhere, Err(HandlerError::OwnedElsewhere { .. })), "{elsewhere:?}");
    one.done("h", first.iter().find(|it| it.position == 0).expect("came")).await;
    // It dies: nothing is renewed and nothing is released.
    let Opened { host, store, .. } = one;
    std::mem::forget(host);
    store.close().await;
    let after = until_taken_over(&other).await;
    assert_eq!(positions(&after), [1, 2]);
}

/// The clock is set back by an hour while the other process pauses before it asks for the lease again.
pub async fn a_process_whose_clock_was_set_back_takes_over_in_time(subject: &dyn Subject) {
    let one = Opened::of(subject).await;
    let other = Opened::on(subject.open().await, one.clock.clone());
    one.by_aggregate("h").await;
    one.commit("placed", &["a"]).await;
    assert_eq!(positions(&one.pull("h").await), [0]);
    assert_eq!(other.handlers.pull("h", now()).await.expect("waits"), []);
    other.advance(-3_600_000);
    let Opened { host, store, .. } = one;
    std::mem::forget(host);
    store.close().await;
    assert_eq!(positions(&until_taken_over(&other).await), [0]);
}

/// The other process need not wait for a lease to end.
pub async fn a_drained_process_gives_its_handlers_back_at_once(subject: &dyn Subject) {
    let one = Opened::of(subject).await;
    let other = Opened::on(subject.open().await, one.clock.clone());
    one.by_aggregate("h").await;
    one.commit("placed", &["a"]).await;
    assert_eq!(one.pull("h").await.len(), 1);
    one.host.drain().await;
    let leases = TypedRecords::<Lease>::declared(one.store.records(DEFAULT_TENANT).expect("declared"));
    let lease = leases.get("handler/h").await.expect("reads").expect("there").value;
    assert!(lease.until() < one.now_plus(0), "it has ended");
    let after = until_taken_over(&other).await;
    assert_eq!(positions(&after), [0]);
}

/// Its workers get an error, and nothing happens twice.
pub async fn a_process_that_lost_its_lease_stores_nothing(subject: &dyn Subject) {
    let one = Opened::of(subject).await;
    one.by_aggregate("h").await;
    one.commit("placed", &["a"]).await;
    let stale = one.pull("h").await;
    // Time passes only for the other process, so the lease ends there and not here.
    let ahead = std::sync::Arc::new(crate::ManualClock::at(one.now_plus(60_000)));
    let other = Opened::on(subject.open().await, ahead);
    let taken = until_taken_over(&other).await;
    assert_eq!(positions(&taken), [0]);
    let lost = one.handlers.settle("h", SettleBody { results: vec![Settlement::done(stale[0].token.clone())] }).await;
    assert!(lost.is_err() || lost.is_ok_and(|results| !results[0].settled), "it stored nothing");
    assert_eq!(other.handlers.get("h").await.expect("defined").position, 0);
    other.done("h", &taken[0]).await;
    assert_eq!(other.handlers.get("h").await.expect("defined").position, 1);
}

/// The wait finds what the other process stored.
pub async fn a_commit_waits_for_the_handler_of_another_process(subject: &dyn Subject) {
    let one = Opened::of(subject).await;
    let other = Opened::on(subject.open().await, one.clock.clone());
    one.by_aggregate("h").await;
    one.commit("placed", &["a"]).await;
    one.done("h", &one.pull("h").await[0]).await;
    let handling = async {
        one.done("h", &one.pull("h").await[0]).await;
        // The other process polls every 100 ms.
        one.let_time_pass("h").await
    };
    tokio::select! {
        outcome = other.commit_until("handled:h", "a", &["paid"]) => {
            assert_eq!(outcome.reached().as_str(), "handled:h");
        }
        never = handling => match never {},
    }
    assert_eq!(one.handlers.get("h").await.expect("defined").position, 2);
}

/// The owner notices the change in the store.
pub async fn a_definition_that_another_process_changes_is_followed(subject: &dyn Subject) {
    let one = Opened::of(subject).await;
    let other = Opened::on(subject.open().await, one.clock.clone());
    let definition = one.by_aggregate("h").await;
    one.commit("placed", &["a", "b", "c", "d", "e"]).await;
    assert_eq!(one.pull_count("h", 4).await.len(), 4, "four partitions at once");
    let wider = annals_core::handlers::HandlerDefinition { concurrency: 5, ..definition };
    assert!(!other.handlers.put(wider).await.expect("allowed"));
    loop {
        if let [fifth] = &one.pull_now("h").await[..] {
            assert_eq!(fifth.position, 4);
            return;
        }
        crate::between_looks().await;
    }
}

/// This holds however long a commit of another process waits for its sequence number.
pub async fn commits_of_several_processes_are_handled_without_a_gap(subject: &dyn Subject) {
    const EACH: u64 = 40;
    let one = Opened::of(subject).await;
    let (two, three) = (
        Opened::on(subject.open_beside(&one.store).await, one.clock.clone()),
        Opened::on(subject.open_beside(&one.store).await, one.clock.clone()),
    );
    one.define(annals_core::handlers::HandlerDefinition::new("h")).await;
    let commit = async |it: &Opened, id: &str| {
        for _ in 0..EACH {
            it.commit("placed", &[id]).await;
        }
    };
    let handled = async {
        let mut handled = Vec::new();
        while handled.len() < 3 * EACH as usize {
            for delivery in one.pull("h").await {
                one.done("h", &delivery).await;
                handled.push(delivery.event.sequence_number);
            }
        }
        handled
    };
    let (handled, ..) = tokio::join!(handled, commit(&one, "a"), commit(&two, "b"), commit(&three, "c"));
    assert_eq!(handled, (0..3 * EACH).collect::<Vec<_>>());
}
