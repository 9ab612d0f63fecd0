//! Failing partitions, and the acts of operators on them.

use annals_core::handlers::{Act, HandlerDefinition, HandlerState, PARKED_EVENTS, Settlement, partitions_of};
use annals_core::processing::{PartitionBy, ProcessingRetry, Then};
use annals_core::{Code, DEFAULT_TENANT, RecordQuery};

use crate::Subject;
use crate::handlers::opened::{Opened, positions, seconds};

/// It catches up before it counts as healthy.
pub async fn a_failing_partition_is_retried_after_its_delay_and_holds_up_no_other(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    it.by_aggregate("h").await;
    it.commit("placed", &["a", "b"]).await;
    let first = it.pull_count("h", 2).await;
    let (a, b) = match first[0].position {
        0 => (&first[0], &first[1]),
        _ => (&first[1], &first[0]),
    };
    it.fail("h", a).await;
    it.done("h", b).await;
    it.commit("placed", &["a", "b"]).await;
    let next = it.pull("h").await;
    assert_eq!(positions(&next), [3], "b continues, and a's next event waits behind its failed one");
    it.done("h", &next[0]).await;
    let failing = it.handlers.partitions("h", None, 10).await.expect("reads").items;
    assert_eq!((failing.len(), &*failing[0].partition, failing[0].position), (1, "order/a", 0));
    assert_eq!((failing[0].attempts, &*failing[0].reason, failing[0].behind), (1, "down", 4));
    assert_eq!(failing[0].retry_at, Some(it.now_plus(1_000)));
    assert!(it.pull_now("h").await.is_empty());
    it.advance(1_000);
    let again = it.pull("h").await;
    assert_eq!((positions(&again), again[0].attempt), (vec![0], 2));
    assert_eq!(again[0].last_reason.as_deref(), Some("down"));
    it.done("h", &again[0]).await;
    assert_eq!(it.handle_all("h", 4).await, [2]);
    assert!(it.handlers.partitions("h", None, 10).await.expect("reads").items.is_empty());
}

/// It keeps its attempts, its reason and its time.
pub async fn a_failing_partition_keeps_its_place_over_a_restart(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    it.by_aggregate("h").await;
    it.commit("placed", &["a", "a", "b"]).await;
    for delivery in it.pull_count("h", 2).await {
        match delivery.position {
            0 => it.fail("h", &delivery).await,
            _ => it.done("h", &delivery).await,
        }
    }
    let it = it.restarted().await;
    assert!(it.pull_now("h").await.is_empty(), "not due");
    it.advance(1_000);
    let again = it.pull("h").await;
    assert_eq!((positions(&again), again[0].attempt), (vec![0], 2));
    it.fail("h", &again[0]).await;
    let failing = it.handlers.partitions("h", None, 10).await.expect("reads").items;
    assert_eq!((failing[0].attempts, failing[0].retry_at), (2, Some(it.now_plus(2_000))));
    it.advance(2_000);
    assert_eq!(it.handle_all("h", 3).await, [0, 1]);
}

/// Its position shows this.
pub async fn without_partitions_a_failing_event_holds_up_all(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    it.define(HandlerDefinition { retry: seconds(), ..HandlerDefinition::new("h") }).await;
    it.commit("placed", &["a", "b"]).await;
    let first = it.pull("h").await;
    assert_eq!(positions(&first), [0]);
    it.fail("h", &first[0]).await;
    assert!(it.pull_now("h").await.is_empty());
    assert_eq!(it.handlers.get("h").await.expect("defined").position, 0);
    let it = it.restarted().await;
    assert!(it.pull_now("h").await.is_empty(), "not due after a restart either");
    it.advance(1_000);
    let again = it.pull("h").await;
    assert_eq!((positions(&again), again[0].attempt), (vec![0], 2));
    it.done("h", &again[0]).await;
    assert_eq!(it.handle_all("h", 2).await, [1]);
}

fn once(then: Then) -> ProcessingRetry {
    ProcessingRetry { attempts: Some(1), then, ..seconds() }
}

/// Until then it stays blocked, however much time passes.
pub async fn a_blocked_partition_is_retried_by_an_operator(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    it.define(HandlerDefinition { retry: once(Then::Block), ..HandlerDefinition::new("h") }).await;
    it.commit("placed", &["a"]).await;
    let first = it.pull("h").await;
    it.fail("h", &first[0]).await;
    it.advance(100_000_000);
    assert!(it.pull_now("h").await.is_empty());
    let status = it.handlers.get("h").await.expect("defined");
    assert_eq!((status.state, status.last_reason.as_deref()), (HandlerState::Blocked, Some("down")));
    let failing = it.handlers.partitions("h", None, 10).await.expect("reads").items;
    assert_eq!(failing[0].retry_at, None);
    it.handlers
        .act("h", Act::Retry(failing[0].partition.clone()), "the mail server is up".into())
        .await
        .expect("allowed");
    assert_eq!(it.handle_all("h", 1).await, [0]);
}

/// The record says who decided and why.
pub async fn a_skipped_or_parked_event_is_recorded_and_its_partition_continues(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    let by_aggregate = HandlerDefinition::new("h").types(["placed"]).partitioned(PartitionBy::Aggregate, 4);
    it.define(HandlerDefinition { retry: once(Then::Block), ..by_aggregate }).await;
    it.commit("placed", &["a", "a", "a"]).await;
    for act in [
        Act::Skip { partition: "order/a".into(), position: None },
        Act::Park { partition: "order/a".into(), position: None },
    ] {
        let failed = it.pull("h").await;
        it.fail("h", &failed[0]).await;
        it.handlers.act("h", act, "it is a duplicate".into()).await.expect("allowed");
    }
    assert_eq!(it.handle_all("h", 3).await, [2]);
    assert_eq!(it.handlers.get("h").await.expect("defined").parked, 2);
    let records = it.store.records(DEFAULT_TENANT).expect("declared");
    let query = RecordQuery::new(PARKED_EVENTS).matching(partitions_of("handler/h"));
    let parked = records.find(query).await.expect("reads").records;
    let acts: Vec<_> = parked.iter().map(|record| record.document.get_str("act").expect("a text")).collect();
    assert_eq!(acts, ["skipped: it is a duplicate", "parked: it is a duplicate"]);
    // The policy also parks, without a reason from an operator.
    let by_aggregate = HandlerDefinition::new("p").types(["placed"]).partitioned(PartitionBy::Aggregate, 4);
    it.define(HandlerDefinition { retry: once(Then::Park), ..by_aggregate }).await;
    let failed = it.pull("p").await;
    let never = it.settle("p", vec![Settlement::failed(failed[0].token.clone(), "bad")]).await;
    assert!(never[0].settled);
    assert_eq!(it.handle_all("p", 3).await, [1, 2]);
    assert_eq!(it.handlers.get("p").await.expect("defined").parked, 1);
}

/// So the event of a worker that died comes again.
pub async fn a_lease_that_ends_counts_as_a_failure(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    it.by_aggregate("h").await;
    it.commit("placed", &["a"]).await;
    let taken = it.pull("h").await;
    assert_eq!(taken[0].until, it.now_plus(30_000));
    it.advance(30_000);
    // A worker that settles late has lost the lease.
    let late = it.settle("h", vec![Settlement::done(taken[0].token.clone())]).await;
    assert_eq!(late[0].error.as_deref(), Some("lease_lost"));
    it.advance(1_000);
    let again = it.pull("h").await;
    assert_eq!((positions(&again), again[0].attempt), (vec![0], 2));
    assert!(again[0].last_reason.as_deref().is_some_and(|reason| reason.contains("lease")), "{again:?}");
    it.done("h", &again[0]).await;
}

/// Deliveries in flight can be settled.
pub async fn a_paused_handler_delivers_nothing_until_it_is_resumed(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    it.by_aggregate("h").await;
    it.commit("placed", &["a", "a"]).await;
    let first = it.pull("h").await;
    it.handlers.act("h", Act::Pause, "maintenance".into()).await.expect("allowed");
    let twice = it.handlers.act("h", Act::Pause, "maintenance".into()).await.expect_err("it is paused");
    assert_eq!(twice.code(), Code::StateConflict);
    it.done("h", &first[0]).await;
    assert!(it.pull_now("h").await.is_empty());
    let it = it.restarted().await;
    assert!(it.pull_now("h").await.is_empty(), "paused over a restart too");
    assert_eq!(it.handlers.get("h").await.expect("defined").state, HandlerState::Paused);
    it.handlers.act("h", Act::Resume, "done".into()).await.expect("allowed");
    assert_eq!(it.handle_all("h", 2).await, [1]);
}
