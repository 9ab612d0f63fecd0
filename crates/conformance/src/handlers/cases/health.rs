//! Health, derived from the store, whatever a worker or an owner reports.

use annals_core::handlers::{HandlerState, HandlerStatus};
use annals_core::{NewCommit, NewEvent, Reached};
use annals_runtime::ProcessorHealth;

use crate::Subject;
use crate::handlers::opened::Opened;
use crate::sample::event;

/// Commits an event with the current time.
async fn commit(it: &Opened, id: &str) {
    let event = NewEvent { time: Some(it.now_plus(0)), ..event("placed", 0) };
    let commit = NewCommit::new("order", id).event(event);
    it.log.commit(commit.wait_until(Reached::Logged)).await.expect("committed");
}

async fn status(it: &Opened) -> HandlerStatus {
    it.handlers.get("h").await.expect("defined")
}

/// Returns the health of the only handler, as probes and metrics get it.
async fn health(it: &Opened) -> ProcessorHealth {
    // A result is reused for a second.
    it.advance(1_000);
    let health = it.host.health().await.expect("the store can be read");
    health.iter().find(|of| of.name == "h").cloned().expect("it is defined")
}

/// They grow while no event is settled, although a worker pulls. Another process reports the same.
pub async fn the_lag_and_the_time_since_progress_are_those_of_the_store(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    it.by_aggregate("h").await;
    commit(&it, "a").await;
    it.advance(5_000);
    commit(&it, "a").await;
    let first = it.pull("h").await;
    let before = status(&it).await;
    assert_eq!((before.position, before.head, before.lag, before.lag_seconds), (0, 2, 2, 5));
    assert_eq!((before.last_progress, before.seconds_since_progress), (None, None));
    it.done("h", &first[0]).await;
    let at_once = status(&it).await;
    assert_eq!((at_once.position, at_once.lag, at_once.lag_seconds), (1, 1, 0), "the second event is of now");
    assert_eq!((at_once.last_progress, at_once.seconds_since_progress), (Some(it.now_plus(0)), Some(0)));
    it.advance(3_000);
    assert_eq!(it.pull("h").await.len(), 1, "it is in flight, which is no progress");
    let later = status(&it).await;
    assert_eq!((later.lag, later.lag_seconds, later.seconds_since_progress), (1, 3, Some(3)));
    let of_host = health(&it).await;
    assert_eq!((of_host.position, of_host.head, of_host.lag()), (1, 2, 1));
    assert_eq!((of_host.lag_seconds, of_host.seconds_since_progress, of_host.degraded), (4, 4, None));
    let it = it.restarted().await;
    it.advance(59_000);
    let stopped = status(&it).await;
    assert_eq!((stopped.state, stopped.lag), (HandlerState::Stopped, 1));
    assert_eq!((stopped.lag_seconds, stopped.seconds_since_progress), (63, Some(63)));
    assert!(stopped.degraded.is_some_and(|why| why.contains("63 s")), "nobody processes its events");
    let of_host = health(&it).await;
    assert_eq!((of_host.lag(), of_host.lag_seconds, of_host.seconds_since_progress), (1, 64, 64));
}

/// The lag is in positions and in seconds. The handler itself has none once it has passed everything.
pub async fn the_lag_of_a_failing_partition_is_its_own(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    it.by_aggregate("h").await;
    commit(&it, "a").await;
    it.advance(4_000);
    commit(&it, "b").await;
    commit(&it, "b").await;
    let mut settled = 0;
    while settled < 3 {
        for delivery in it.pull("h").await {
            match delivery.position {
                0 => it.fail("h", &delivery).await,
                _ => it.done("h", &delivery).await,
            }
            settled += 1;
        }
    }
    let failed = it.now_plus(0);
    // Less than the delay of its retry.
    it.advance(999);
    let failing = it.handlers.partitions("h", None, 10).await.expect("reads").items.remove(0);
    assert_eq!((&*failing.partition, failing.position, failing.behind), ("order/a", 0, 3));
    assert_eq!((failing.lag_seconds, failing.last_failed, failing.since), (4, failed, failed));
    it.advance(5_001);
    let failing = it.handlers.partitions("h", None, 10).await.expect("reads").items.remove(0);
    assert_eq!(failing.lag_seconds, 10);
    let status = status(&it).await;
    assert_eq!((status.position, status.lag, status.lag_seconds, status.failing), (3, 0, 0, 1));
    let of_host = health(&it).await;
    assert_eq!((of_host.lag(), of_host.lag_seconds, of_host.failing, of_host.blocked), (0, 0, 1, 0));
    assert!(of_host.degraded.is_some_and(|why| why.contains("failing partitions: 1")), "{:?}", status.degraded);
}
