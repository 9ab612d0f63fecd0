//! Workers that answer incorrectly, and other failures around a handler.

use std::collections::BTreeSet;
use std::time::Duration;

use annals_core::Clock;
use annals_core::handlers::{Delivery, HandlerDefinition, PullBody, Settlement};
use annals_core::processing::{PartitionBy, ProcessingRetry};

use crate::Subject;
use crate::handlers::opened::{Opened, positions, seconds};

async fn refused(it: &Opened, name: &str, settlement: Settlement) {
    let results = it.settle(name, vec![settlement]).await;
    assert_eq!((results[0].settled, results[0].error.as_deref()), (false, Some("lease_lost")), "{results:?}");
}

/// By then another worker has the event, and its answer counts.
pub async fn an_answer_that_comes_late_changes_nothing(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    it.by_aggregate("h").await;
    it.commit("placed", &["a", "a"]).await;
    let late = it.pull("h").await;
    it.advance(30_000);
    refused(&it, "h", Settlement::done(late[0].token.clone())).await;
    it.advance(1_000);
    let again = it.pull("h").await;
    assert_eq!((positions(&again), again[0].attempt), (vec![0], 2));
    refused(&it, "h", Settlement::done(late[0].token.clone())).await;
    refused(&it, "h", Settlement::failed(late[0].token.clone(), "late")).await;
    let failing = it.handlers.partitions("h", None, 10).await.expect("reads").items;
    assert_eq!((failing[0].attempts, failing[0].position), (1, 0), "as the end of the lease left it");
    it.done("h", &again[0]).await;
    assert_eq!(it.handle_all("h", 2).await, [1]);
}

/// This holds whatever the second answer is.
pub async fn a_second_answer_changes_nothing(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    it.by_aggregate("h").await;
    it.commit("placed", &["a", "b", "a"]).await;
    let taken = it.pull_count("h", 2).await;
    for delivery in &taken {
        it.done("h", delivery).await;
        refused(&it, "h", Settlement::done(delivery.token.clone())).await;
        refused(&it, "h", Settlement::failed(delivery.token.clone(), "no, it failed")).await;
    }
    // Also twice in one request.
    let last = it.pull("h").await;
    let twice = vec![Settlement::done(last[0].token.clone()), Settlement::failed(last[0].token.clone(), "both")];
    let results = it.settle("h", twice).await;
    assert_eq!(results.iter().map(|result| result.settled).collect::<Vec<_>>(), [true, false]);
    let status = it.handlers.get("h").await.expect("defined");
    assert_eq!((status.position, status.failing), (3, 0));
}

/// This also holds while that delivery is in flight.
pub async fn an_answer_for_the_delivery_of_another_handler_is_refused(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    it.by_aggregate("h").await;
    it.by_aggregate("other").await;
    it.commit("placed", &["a"]).await;
    let (of_h, of_other) = (it.pull("h").await, it.pull("other").await);
    refused(&it, "h", Settlement::done(of_other[0].token.clone())).await;
    refused(&it, "other", Settlement::done(of_h[0].token.clone())).await;
    // Those with a name are what could be guessed if a token were a number alone.
    for token in ["", "0", "no token", "10000000000.", "ffffffffffffffffff.h", "10000000000.h", "10000000000-0.h"] {
        refused(&it, "h", Settlement::done(token)).await;
    }
    it.done("h", &of_h[0]).await;
    it.done("other", &of_other[0]).await;
}

/// The next worker that pulls gets the events, as their first attempt.
pub async fn a_worker_that_disconnects_in_the_middle_of_a_pull_has_taken_nothing(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    it.by_aggregate("h").await;
    for round in 0..10_u64 {
        let pull = PullBody { max: 100, wait_ms: 50_000, ..PullBody::default() };
        // It waits, an event comes, and it disconnects before the answer reaches it, or as it does.
        let mut waiting = it.handlers.pull("h", pull);
        tokio::select! {
            biased;
            _ = &mut waiting => unreachable!("nothing was committed"),
            () = std::future::ready(()) => {}
        }
        it.commit("placed", &["a"]).await;
        drop(waiting);
        let next = it.pull("h").await;
        assert_eq!((positions(&next), next[0].attempt), (vec![round], 1));
        it.done("h", &next[0]).await;
    }
}

/// Only its own partition waits for the retry.
pub async fn a_poison_event_in_one_of_a_thousand_partitions_delays_no_other(subject: &dyn Subject) {
    const PARTITIONS: usize = 1_000;
    let it = Opened::of(subject).await;
    let by_key = HandlerDefinition::new("h").partitioned(PartitionBy::Data("key".to_owned()), 8);
    it.define(HandlerDefinition { retry: seconds(), batch: 10, ..by_key }).await;
    // Two events of each partition. The clock stands still, so nothing that waits for time could end.
    for round in 0..2 {
        for first in (0..PARTITIONS).step_by(100) {
            let commit = annals_core::NewCommit::new("order", format!("o-{round}-{first}"));
            let commit = (first..first + 100).fold(commit, |commit, key| {
                let data = serde_json::json!({ "key": key });
                commit.event(annals_core::NewEvent::new(
                    "placed",
                    annals_core::Data::from_value(&data).expect("a document"),
                ))
            });
            it.log.commit(commit.wait_until(annals_core::Reached::Logged)).await.expect("committed");
        }
    }
    let mut handled = BTreeSet::new();
    let mut failed = 0;
    while handled.len() < 2 * (PARTITIONS - 1) {
        let pulled = it.pull("h").await;
        let settle = |delivery: &Delivery| match delivery.partition.as_deref() == Some("500") {
            true => Settlement::failed(delivery.token.clone(), "poison"),
            false => Settlement::done(delivery.token.clone()),
        };
        let results = it.settle("h", pulled.iter().map(settle).collect()).await;
        for (delivery, result) in pulled.iter().zip(&results) {
            match delivery.partition.as_deref() {
                Some("500") => failed += usize::from(result.settled),
                _ => assert!(result.settled && handled.insert(delivery.position), "{delivery:?}"),
            }
        }
    }
    assert_eq!(failed, 1, "it is not attempted again before its time");
    let status = it.handlers.get("h").await.expect("defined");
    assert_eq!((status.position, status.failing), (2 * PARTITIONS as u64, 1));
    let failing = it.handlers.partitions("h", None, 10).await.expect("reads").items;
    assert_eq!((&*failing[0].partition, failing[0].position, &*failing[0].reason), ("500", 500, "poison"));
    assert!(status.degraded.is_some_and(|reason| reason.contains("poison")));
    it.advance(1_000);
    assert_eq!(it.handle_all("h", 2 * PARTITIONS as u64).await, [500, 1_500]);
    assert_eq!(it.handlers.get("h").await.expect("defined").degraded, None);
}

/// If the clock jumps ahead, a lease ends early. If it is set back, a retry waits until its time comes again. New events are delivered in
/// both cases.
pub async fn a_clock_that_jumps_skips_and_repeats_no_event(subject: &dyn Subject) {
    const HOUR: i64 = 3_600_000;
    let it = Opened::of(subject).await;
    it.by_aggregate("h").await;
    it.commit("placed", &["a", "b"]).await;
    let first = it.pull_count("h", 2).await;
    let of = |deliveries: &[Delivery], position: u64| {
        deliveries.iter().find(|delivery| delivery.position == position).cloned().expect("came")
    };
    it.fail("h", &of(&first, 0)).await;
    it.advance(-HOUR);
    it.done("h", &of(&first, 1)).await;
    it.commit("placed", &["b", "c"]).await;
    for delivery in it.pull_count("h", 2).await {
        assert!([2, 3].contains(&delivery.position), "{delivery:?}");
        it.done("h", &delivery).await;
    }
    let status = it.handlers.get("h").await.expect("defined");
    assert_eq!((status.position, status.failing), (4, 1));
    assert!(status.seconds_since_progress.is_none_or(|seconds| seconds < 3_600), "no time is negative or huge");
    it.commit("placed", &["c"]).await;
    let taken = it.pull("h").await;
    assert_eq!(positions(&taken), [4]);
    it.advance(2 * HOUR);
    refused(&it, "h", Settlement::done(taken[0].token.clone())).await;
    let mut handled = Vec::new();
    while handled.len() < 2 {
        it.advance(1_000);
        for delivery in it.pull_now("h").await {
            it.done("h", &delivery).await;
            handled.push(delivery.position);
        }
    }
    handled.sort_unstable();
    assert_eq!(handled, [0, 4], "each once: what failed, and what was in flight");
    assert!(it.handle_all("h", 5).await.is_empty());
    let it = it.restarted().await;
    it.advance(-HOUR);
    it.commit("placed", &["a"]).await;
    assert_eq!(it.handle_all("h", 6).await, [5]);
}

/// Deliveries in flight are settled under the definition that is in force by then.
pub async fn a_definition_that_changes_while_events_are_in_flight_loses_none(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    let definition = it.by_aggregate("h").await;
    it.commit("placed", &["a", "b", "c", "d", "e", "f"]).await;
    let taken = it.pull_count("h", 4).await;
    let patient = ProcessingRetry { first_ms: 9_000, ..seconds() };
    let narrow = HandlerDefinition { concurrency: 1, retry: patient, ..definition };
    assert!(!it.handlers.put(narrow).await.expect("allowed"), "it is known");
    for delivery in &taken {
        match delivery.position {
            0 => it.fail("h", delivery).await,
            _ => it.done("h", delivery).await,
        }
    }
    let failing = it.handlers.partitions("h", None, 10).await.expect("reads").items;
    assert_eq!(failing[0].retry_at, Some(it.clock.now().plus(Duration::from_secs(9))));
    let next = it.pull("h").await;
    assert_eq!(positions(&next), [4], "one partition at once");
    it.done("h", &next[0]).await;
    it.advance(9_000);
    let mut handled = it.handle_all("h", 6).await;
    handled.sort_unstable();
    assert_eq!(handled, [0, 5]);
}
