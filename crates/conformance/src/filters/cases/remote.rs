//! Filters whose events a client evaluates.

use annals_core::filters::{
    FilterDefinition, FilterError, FilterName, FilterSettleBody, FilterSettlement, FilterState,
};
use annals_core::handlers::{Delivery, DeliveryFailure, PullBody};
use annals_core::processing::PartitionBy;
use annals_core::{Code, NewCommit, NewEvent, Reached};

use crate::Subject;
use crate::filters::words::Filtered;
use crate::sample::event;

/// Defines a remote filter of the type `placed`, and commits events of these aggregates.
async fn remote(subject: &dyn Subject, ids: &[&str]) -> Filtered {
    let all = Filtered::of(subject).await;
    all.define(FilterDefinition::new("orders").types(["placed"]).remote()).await;
    all.it.commit("placed", ids).await;
    all
}

fn numbers(deliveries: &[Delivery]) -> Vec<u64> {
    deliveries.iter().map(|delivery| delivery.event.sequence_number).collect()
}

/// Pulls until `count` events are in one batch.
async fn batch(all: &Filtered, count: usize) -> Vec<Delivery> {
    loop {
        let deliveries = all.pull("orders", count).await;
        if deliveries.len() == count {
            return deliveries;
        }
        // The events had not all been read. The batch is returned after its lease.
        all.it.advance(31_000);
    }
}

/// Events come one after the other, in positions of the source.
pub async fn a_client_evaluates_events_in_order_and_names_their_partitions(subject: &dyn Subject) {
    let all = remote(subject, &["a", "b", "c"]).await;
    all.it.commit("paid", &["a"]).await;
    let mut seen = Vec::new();
    while seen.len() < 3 {
        for delivery in all.pull("orders", 1).await {
            let token = delivery.token.clone();
            let result = match &*delivery.event.commit.aggregate.id {
                "a" => FilterSettlement::in_partition(token, "p.$1"),
                "b" => FilterSettlement::excluded(token),
                _ => FilterSettlement::included(token),
            };
            assert!(all.settle("orders", vec![result]).await[0].settled);
            seen.push((delivery.event.sequence_number, delivery.position, delivery.attempt));
        }
    }
    assert_eq!(seen, [(0, 0, 1), (1, 1, 1), (2, 2, 1)]);
    all.holds("orders", 4, &[(0, Some("p.$1")), (2, None)]).await;
    let status = all.status("orders").await;
    assert_eq!((status.lag, status.state, status.workers.len()), (0, FilterState::Running, 1));
}

/// They are excluded without the client, wherever they are.
pub async fn a_client_of_a_public_filter_gets_no_event_that_is_not_public(subject: &dyn Subject) {
    let all = Filtered::of(subject).await;
    for public in [false, true, false, true, false] {
        let event = NewEvent { public, ..event("placed", 0) };
        let commit = NewCommit::new("order", "a").event(event).wait_until(Reached::Logged);
        all.it.log.commit(commit).await.expect("committed");
    }
    all.define(FilterDefinition::new("public-orders").types(["placed"]).public().remote()).await;
    let mut seen = Vec::new();
    while seen.len() < 2 {
        for delivery in all.pull("public-orders", 1).await {
            let verdict = FilterSettlement::in_partition(&*delivery.token, "p");
            assert!(all.settle("public-orders", vec![verdict]).await[0].settled);
            seen.push((delivery.event.sequence_number, delivery.event.public));
        }
    }
    assert_eq!(seen, [(1, true), (3, true)]);
    all.holds("public-orders", 5, &[(1, Some("p")), (3, Some("p"))]).await;
    assert_eq!(all.pull_now("public-orders").await, []);
}

/// So events are evaluated in log order, whatever the number of clients.
pub async fn one_batch_is_in_flight_at_a_time_and_is_settled_in_order(subject: &dyn Subject) {
    let all = remote(subject, &["a", "b", "c"]).await;
    let taken = batch(&all, 2).await;
    assert_eq!(all.pull_now("orders").await, []);
    let included = |n: usize| FilterSettlement::included(&*taken[n].token);
    let answers = all.settle("orders", vec![included(1), included(0), FilterSettlement::included("0")]).await;
    let errors: Vec<_> = answers.iter().map(|answer| answer.error.as_deref()).collect();
    assert_eq!(errors, [Some("out_of_order"), None, Some("lease_lost")]);
    assert_eq!(all.pull_now("orders").await, [], "one is in flight still");
    assert!(all.settle("orders", vec![included(1)]).await[0].settled);
    assert_eq!(numbers(&all.pull("orders", 10).await), [2]);
    all.holds("orders", 2, &[(0, None), (1, None)]).await;
}

/// Late verdicts of the first client are refused.
pub async fn a_batch_whose_lease_ended_is_handed_out_again(subject: &dyn Subject) {
    let all = remote(subject, &["a"]).await;
    let late = all.pull("orders", 1).await;
    all.it.advance(31_000);
    let failing = all.until("orders", false, |status| status.state == FilterState::Failing).await;
    assert!(failing.last_reason.is_some_and(|reason| reason.contains("lease")));
    all.it.advance(2_000);
    let again = all.pull("orders", 1).await;
    assert_eq!((again[0].attempt, numbers(&again)), (2, vec![0]));
    let refused = all.settle("orders", vec![FilterSettlement::excluded(&*late[0].token)]).await;
    assert_eq!(refused[0].error.as_deref(), Some("lease_lost"));
    all.settle("orders", vec![FilterSettlement::included(&*again[0].token)]).await;
    all.holds("orders", 1, &[(0, None)]).await;
}

/// If the clock jumps ahead, the lease of a batch ends early. If it is set back, events come as before.
pub async fn a_clock_that_jumps_skips_and_repeats_no_event(subject: &dyn Subject) {
    const HOUR: i64 = 3_600_000;
    let all = remote(subject, &["a", "b", "c"]).await;
    let include = async |delivery: &Delivery| {
        let included = FilterSettlement::included(&*delivery.token);
        all.settle("orders", vec![included]).await.remove(0)
    };
    let first = all.pull("orders", 1).await;
    all.it.advance(-HOUR);
    assert!(include(&first[0]).await.settled);
    let lost = all.pull("orders", 1).await;
    assert_eq!(numbers(&lost), [1]);
    all.it.advance(2 * HOUR);
    let again = loop {
        // The retry of an event whose lease ended has a delay.
        all.it.advance(1_000);
        let pulled = all.pull_now("orders").await;
        if !pulled.is_empty() {
            break pulled;
        }
    };
    assert_eq!(numbers(&again[..1]), [1]);
    assert_eq!(include(&lost[0]).await.error.as_deref(), Some("lease_lost"));
    for delivery in &again {
        assert!(include(delivery).await.settled);
    }
    all.it.commit("placed", &["d"]).await;
    all.it.advance(-HOUR);
    let mut last = again[again.len() - 1].event.sequence_number;
    while last < 3 {
        let next = all.pull("orders", 1).await;
        assert_eq!(numbers(&next), [last + 1]);
        assert!(include(&next[0]).await.settled);
        last += 1;
    }
    all.holds("orders", 4, &[(0, None), (1, None), (2, None), (3, None)]).await;
}

/// The client chooses the delay. Verdicts before the failure are stored, and events after it are handed out again.
pub async fn a_failure_holds_the_filter_until_its_delay_has_passed(subject: &dyn Subject) {
    let all = remote(subject, &["a", "b", "c"]).await;
    let taken = batch(&all, 3).await;
    let failure = DeliveryFailure { reason: "not ready".to_owned(), retry_after_ms: Some(5_000), never: false };
    let failed = FilterSettlement { failure: Some(failure), ..FilterSettlement::failed(&*taken[1].token, "") };
    let results =
        vec![FilterSettlement::included(&*taken[0].token), failed, FilterSettlement::included(&*taken[2].token)];
    let errors: Vec<_> = all.settle("orders", results).await.into_iter().map(|answer| answer.error).collect();
    assert_eq!(errors, [None, None, Some("out_of_order".to_owned())]);
    let status = all.status("orders").await;
    assert_eq!((status.position, status.attempts, status.state), (1, Some(1), FilterState::Failing));
    assert_eq!((status.last_reason.as_deref(), status.retry_at), (Some("not ready"), Some(all.it.now_plus(5_000))));
    assert_eq!(all.pull_now("orders").await, []);
    let all = all.restarted().await;
    assert_eq!(all.pull_now("orders").await, [], "also after a restart");
    all.it.advance(5_000);
    let again = all.pull("orders", 1).await;
    assert_eq!((numbers(&again), again[0].attempt, again[0].last_reason.as_deref()), (vec![1], 2, Some("not ready")));
    all.settle("orders", vec![FilterSettlement::excluded(&*again[0].token)]).await;
    assert_eq!(all.status("orders").await.last_reason, None);
}

/// An operator decides about such an event.
pub async fn what_never_succeeds_blocks_the_filter_until_it_is_put_again(subject: &dyn Subject) {
    let all = remote(subject, &["a"]).await;
    let taken = all.pull("orders", 1).await;
    let failure = DeliveryFailure { reason: "unreadable".to_owned(), retry_after_ms: None, never: true };
    let never = FilterSettlement { failure: Some(failure), ..FilterSettlement::failed(&*taken[0].token, "") };
    all.settle("orders", vec![never]).await;
    all.it.advance(3_600_000);
    assert_eq!(all.pull_now("orders").await, []);
    assert_eq!(all.status("orders").await.state, FilterState::Blocked);
    all.filters.put(FilterDefinition::new("orders").types(["placed"]).remote()).await.expect("unchanged");
    assert_eq!(numbers(&all.pull("orders", 1).await), [0]);
}

/// This holds whether or not the caller had waited.
pub async fn a_caller_who_goes_away_has_taken_nothing(subject: &dyn Subject) {
    let all = remote(subject, &[]).await;
    let name = FilterName::new("orders");
    let pull = PullBody { wait_ms: 50_000, ..PullBody::default() };
    {
        let waiting = all.filters.pull(&name, pull);
        tokio::pin!(waiting);
        tokio::select! {
            biased;
            pulled = &mut waiting => panic!("{pulled:?}"),
            () = tokio::task::yield_now() => {}
        }
    }
    all.it.commit("placed", &["a"]).await;
    let taken = all.pull("orders", 1).await;
    assert_eq!((numbers(&taken), taken[0].attempt), (vec![0], 1));
}

/// Nothing of the settlement is stored.
pub async fn a_settlement_that_is_no_verdict_is_refused_whole(subject: &dyn Subject) {
    let all = remote(subject, &["a", "b"]).await;
    let taken = batch(&all, 2).await;
    let nothing = FilterSettlement { included: None, ..FilterSettlement::included(&*taken[1].token) };
    let results = vec![FilterSettlement::included(&*taken[0].token), nothing];
    let refused = all.filters.settle(&FilterName::new("orders"), FilterSettleBody { results }).await;
    match refused {
        Err(FilterError::Invalid(invalid)) => {
            assert_eq!((invalid.code, &*invalid.path), (Code::InvalidBody, "results[1].included"));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(all.status("orders").await.entries, 0);
}

/// A verdict with a partition is refused, and the event stays in flight.
pub async fn a_partition_that_the_definition_determines_is_not_named(subject: &dyn Subject) {
    let all = Filtered::of(subject).await;
    all.define(FilterDefinition::new("orders").partitioned(PartitionBy::Aggregate).remote()).await;
    all.it.commit("placed", &["a"]).await;
    let taken = all.pull("orders", 1).await;
    let named = vec![FilterSettlement::in_partition(&*taken[0].token, "p")];
    let refused = all.filters.settle(&FilterName::new("orders"), FilterSettleBody { results: named }).await;
    assert_eq!(refused.expect_err("it is determined").code(), Code::InvalidBody);
    all.settle("orders", vec![FilterSettlement::included(&*taken[0].token)]).await;
    all.holds("orders", 1, &[(0, Some("order/a"))]).await;
}

/// The server evaluates its events itself.
pub async fn a_filter_that_is_not_remote_hands_nothing_out(subject: &dyn Subject) {
    let all = Filtered::of(subject).await;
    all.define(FilterDefinition::new("orders")).await;
    let refused = all.filters.pull(&FilterName::new("orders"), PullBody::default()).await.expect_err("it is declared");
    assert_eq!(refused.code(), Code::StateConflict);
}
