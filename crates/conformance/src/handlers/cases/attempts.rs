//! What an attempt knows about earlier ones, step by step, as in the specifications of the Dolittle Runtime.

use annals_core::DEFAULT_SCOPE;
use annals_core::handlers::{
    Act, Delivery, DeliveryFailure, End, HandlerDefinition, HandlerState, PartitionStatus, Place, Settlement,
};
use annals_core::processing::{PartitionBy, ProcessingRetry, Then};

use crate::Subject;
use crate::handlers::opened::{Opened, positions, seconds};

async fn fail_as(it: &Opened, name: &str, delivery: &Delivery, failure: DeliveryFailure) {
    let settlement = Settlement { token: delivery.token.clone(), failure: Some(failure) };
    let results = it.settle(name, vec![settlement]).await;
    assert!(results[0].settled, "{results:?}");
}

async fn never(it: &Opened, name: &str, delivery: &Delivery) {
    let failure = DeliveryFailure { reason: "bad".to_owned(), retry_after_ms: None, never: true };
    fail_as(it, name, delivery, failure).await;
}

async fn retry_after(it: &Opened, delivery: &Delivery, millis: u64) {
    let failure = DeliveryFailure { reason: "busy".to_owned(), retry_after_ms: Some(millis), never: false };
    fail_as(it, "h", delivery, failure).await;
}

async fn failing(it: &Opened, name: &str) -> Vec<PartitionStatus> {
    it.handlers.partitions(name, None, 10).await.expect("reads").items
}

/// Each attempt has its number and the last reason. After the last attempt, only an operator can continue.
pub async fn an_event_is_attempted_with_its_number_and_last_reason_until_it_fails_for_good(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    it.by_aggregate("h").await;
    it.commit("placed", &["a"]).await;
    for attempt in 1..=3_u32 {
        let delivery = it.pull("h").await.remove(0);
        let last = (attempt > 1).then(|| format!("reason {}", attempt - 1));
        assert_eq!((delivery.attempt, &delivery.last_reason), (attempt, &last));
        let failed = Settlement::failed(delivery.token.clone(), format!("reason {attempt}"));
        assert!(it.settle("h", vec![failed]).await[0].settled);
        it.advance(1_000 << (attempt - 1));
    }
    let last = it.pull("h").await.remove(0);
    assert_eq!((last.attempt, last.last_reason.as_deref()), (4, Some("reason 3")));
    never(&it, "h", &last).await;
    it.advance(1_000_000_000);
    assert!(it.pull_now("h").await.is_empty(), "it is not attempted again");
    let retries: Vec<_> = it.host.retry_metrics().into_iter().map(|it| (it.kind, it.processor, it.events)).collect();
    assert_eq!(retries, [("handler", "h".to_owned(), 3)]);
    let failing = it.handlers.partitions("h", None, 10).await.expect("reads").items.remove(0);
    assert_eq!((failing.attempts, failing.retry_at, &*failing.reason, failing.position), (4, None, "bad", 0));
}

/// This holds whatever the policy says, also across a restart, and only for this retry.
pub async fn a_worker_chooses_the_delay_of_a_retry(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    it.by_aggregate("h").await;
    it.commit("placed", &["a"]).await;
    retry_after(&it, &it.pull("h").await[0], 7_000).await;
    let chosen = failing(&it, "h").await.remove(0);
    assert_eq!((chosen.attempts, &*chosen.reason, chosen.retry_at), (1, "busy", Some(it.now_plus(7_000))));
    it.advance(6_999);
    assert!(it.pull_now("h").await.is_empty(), "not due");
    let it = it.restarted().await;
    assert!(it.pull_now("h").await.is_empty(), "not due after a restart either");
    it.advance(1);
    let again = it.pull("h").await.remove(0);
    assert_eq!((again.position, again.attempt, again.last_reason.as_deref()), (0, 2, Some("busy")));
    it.fail("h", &again).await;
    let by_policy = failing(&it, "h").await.remove(0);
    assert_eq!((by_policy.attempts, by_policy.retry_at), (2, Some(it.now_plus(2_000))), "the policy's second delay");
    it.advance(2_000);
    assert_eq!(it.handle_all("h", 1).await, [0]);
    it.commit("placed", &["a"]).await;
    retry_after(&it, &it.pull("h").await[0], u64::MAX).await;
    assert!(failing(&it, "h").await[0].retry_at.is_some_and(|at| at.is_writable()), "every delay has an end");
}

/// Here, the one that failed last is due first.
pub async fn of_two_failing_partitions_the_one_that_is_due_first_comes_first(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    it.by_aggregate("h").await;
    it.commit("placed", &["a", "b"]).await;
    for delivery in it.pull_count("h", 2).await {
        retry_after(&it, &delivery, if delivery.position == 0 { 7_000 } else { 3_000 }).await;
    }
    it.advance(2_999);
    assert!(it.pull_now("h").await.is_empty(), "neither is due");
    it.advance(1);
    let earliest = it.pull("h").await;
    assert_eq!(positions(&earliest), [1]);
    it.done("h", &earliest[0]).await;
    it.advance(3_999);
    assert!(it.pull_now("h").await.is_empty(), "the other is not due");
    it.advance(1);
    let other = it.pull("h").await;
    assert_eq!((positions(&other), other[0].attempt), (vec![0], 2));
    it.done("h", &other[0]).await;
    assert!(it.handle_all("h", 2).await.is_empty());
}

/// One partition at a time is in flight. A retry that is not due leaves its turn to a new event.
pub async fn a_retry_that_is_due_comes_before_a_new_event(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    let one_at_a_time = HandlerDefinition::new("h").partitioned(PartitionBy::Aggregate, 1);
    it.define(HandlerDefinition { retry: seconds(), ..one_at_a_time }).await;
    it.commit("placed", &["a", "b", "c"]).await;
    it.fail("h", &it.pull("h").await[0]).await;
    let new = it.pull("h").await;
    assert_eq!(positions(&new), [1]);
    it.advance(1_000);
    it.done("h", &new[0]).await;
    let retried = it.pull("h").await;
    assert_eq!((positions(&retried), retried[0].attempt), (vec![0], 2));
    it.done("h", &retried[0]).await;
    assert_eq!(it.handle_all("h", 3).await, [2]);
}

/// Each is attempted once more, at its own event.
pub async fn two_partitions_that_fail_at_their_second_event_are_retried_each_at_its_own(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    it.by_aggregate("h").await;
    it.commit("placed", &["a", "b", "a", "b", "a", "b"]).await;
    for delivery in it.pull_count("h", 2).await {
        it.done("h", &delivery).await;
    }
    let second = it.pull_count("h", 2).await;
    assert_eq!(positions(&second), [2, 3]);
    for delivery in &second {
        it.fail("h", delivery).await;
    }
    let entries = failing(&it, "h").await;
    let entries: Vec<_> = entries.iter().map(|entry| (&*entry.partition, entry.position, entry.attempts)).collect();
    assert_eq!(entries, [("order/a", 2, 1), ("order/b", 3, 1)]);
    assert!(it.pull_now("h").await.is_empty(), "what follows in them waits");
    it.advance(1_000);
    let again = it.pull_count("h", 2).await;
    assert_eq!((positions(&again), again[0].attempt, again[1].attempt), (vec![2, 3], 2, 2));
    for delivery in &again {
        it.done("h", delivery).await;
    }
    let mut rest = it.handle_all("h", 6).await;
    rest.sort_unstable();
    assert_eq!(rest, [4, 5]);
    assert!(failing(&it, "h").await.is_empty());
}

/// This holds whether the events came before the definition or after. The position is that of the event, which was attempted once.
pub async fn without_partitions_a_handler_stops_before_an_event_whose_failure_is_final(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    let name = |when: &str, fails_at: u64| format!("{when}-{fails_at}");
    let plain = |name: String| HandlerDefinition { retry: seconds(), ..HandlerDefinition::new(name) };
    for fails_at in 0..3 {
        it.define(plain(name("before", fails_at))).await;
    }
    it.commit("placed", &["a", "b", "c", "a"]).await;
    for fails_at in 0..3 {
        it.define(plain(name("after", fails_at))).await;
    }
    let all: Vec<_> = (0..3_u64).flat_map(|at| [(name("before", at), at), (name("after", at), at)]).collect();
    for (handler, fails_at) in &all {
        for position in 0..*fails_at {
            let delivery = it.pull(handler).await.remove(0);
            assert_eq!(delivery.position, position, "{handler}");
            it.done(handler, &delivery).await;
        }
        let last = it.pull(handler).await.remove(0);
        assert_eq!((last.position, last.attempt), (*fails_at, 1), "{handler}");
        never(&it, handler, &last).await;
    }
    it.advance(1_000_000_000);
    for (handler, fails_at) in &all {
        assert!(it.pull_now(handler).await.is_empty(), "{handler} delivers neither the event nor what follows it");
        let status = it.handlers.get(handler).await.expect("defined");
        let shown = (status.position, status.state, status.last_reason.as_deref());
        assert_eq!(shown, (*fails_at, HandlerState::Blocked, Some("bad")), "{handler}");
        let entry = failing(&it, handler).await.remove(0);
        assert_eq!((entry.position, entry.attempts, entry.retry_at), (*fails_at, 1, None), "{handler}");
    }
}

/// Its next event fails for the first time, however many attempts the previous one took.
pub async fn an_event_that_follows_a_failed_one_counts_its_own_attempts(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    it.by_aggregate("h").await;
    it.commit("placed", &["a", "a", "a"]).await;
    for _ in 0..2 {
        it.fail("h", &it.pull("h").await[0]).await;
        it.advance(60_000);
    }
    it.done("h", &it.pull("h").await[0]).await;
    // The partition catches up: its next event has no attempt and no reason of its own yet.
    let second = it.pull("h").await.remove(0);
    assert_eq!((second.position, second.attempt, &second.last_reason), (1, 1, &None));
    it.fail("h", &second).await;
    let failing = it.handlers.partitions("h", None, 10).await.expect("reads").items.remove(0);
    assert_eq!((failing.position, failing.attempts), (1, 1));
    assert_eq!(failing.retry_at, Some(it.now_plus(1_000)), "the first delay");
    it.advance(1_000);
    assert_eq!(it.handle_all("h", 3).await, [1, 2]);
}

/// Each has its own position, and none waits for another.
pub async fn partitions_that_all_wait_for_an_operator_hold_up_no_other(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    it.by_aggregate("h").await;
    it.commit("placed", &["a", "b", "c"]).await;
    for delivery in it.pull_count("h", 3).await {
        never(&it, "h", &delivery).await;
    }
    let status = it.handlers.get("h").await.expect("defined");
    assert_eq!((status.position, status.failing, status.blocked, status.state), (3, 3, 3, HandlerState::Running));
    it.commit("placed", &["a", "d", "b"]).await;
    let next = it.pull("h").await;
    assert_eq!(positions(&next), [4], "events of failing partitions stay where they are");
    it.done("h", &next[0]).await;
    let it = it.restarted().await;
    assert!(it.pull_now("h").await.is_empty());
    it.handlers.act("h", Act::Retry("order/b".into()), "fixed".into()).await.expect("allowed");
    let mut of_b = Vec::new();
    while of_b.len() < 2 {
        for delivery in it.pull("h").await {
            it.done("h", &delivery).await;
            of_b.push(delivery.position);
        }
    }
    assert_eq!(of_b, [1, 5]);
    assert!(it.pull_now("h").await.is_empty());
    let failing = it.handlers.partitions("h", None, 10).await.expect("reads").items;
    let left: Vec<_> = failing.iter().map(|failing| (&*failing.partition, failing.position)).collect();
    assert_eq!(left, [("order/a", 0), ("order/c", 2)]);
}

/// This also holds if another process or the next run has taken over meanwhile.
pub async fn without_partitions_a_failed_event_waits_for_its_time_over_a_restart(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    it.define(HandlerDefinition { retry: seconds(), ..HandlerDefinition::new("h") }).await;
    it.commit("placed", &["a", "b"]).await;
    it.fail("h", &it.pull("h").await[0]).await;
    let it = it.restarted().await;
    assert!(it.pull_now("h").await.is_empty(), "its time has not come");
    assert_eq!(it.handlers.get("h").await.expect("defined").position, 0);
    it.advance(1_000);
    let again = it.pull("h").await;
    assert_eq!((positions(&again), again[0].attempt), (vec![0], 2));
    assert_eq!(again[0].last_reason.as_deref(), Some("down"));
    it.done("h", &again[0]).await;
    assert_eq!(it.handle_all("h", 2).await, [1]);
}

/// They are events that the handler has passed.
pub async fn a_replay_delivers_parked_events_again(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    let once = ProcessingRetry { attempts: Some(1), then: Then::Park, ..seconds() };
    it.define(HandlerDefinition { retry: once, ..HandlerDefinition::new("h") }).await;
    it.commit("placed", &["a", "b"]).await;
    it.fail("h", &it.pull("h").await[0]).await;
    assert_eq!(it.handle_all("h", 2).await, [1]);
    assert_eq!(it.handlers.get("h").await.expect("defined").parked, 1);
    let from = Place::End(End::Beginning);
    it.handlers.act("h", Act::Replay { from }, "it is mended".into()).await.expect("allowed");
    let mut again = Vec::new();
    while again.len() < 2 {
        for delivery in it.pull("h").await {
            assert!(delivery.replay.is_some(), "{delivery:?}");
            it.done("h", &delivery).await;
            again.push(delivery.position);
        }
    }
    assert_eq!(again, [0, 1]);
}

/// The states have the shapes of handlers with partitions and of handlers without.
pub async fn states_are_shown_in_the_layout_of_the_dolittle_runtime(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    let by_key = HandlerDefinition::new("h").partitioned(PartitionBy::Data("key".to_owned()), 16);
    it.define(HandlerDefinition { retry: seconds(), ..by_key }).await;
    it.define(HandlerDefinition { retry: seconds(), ..HandlerDefinition::new("plain") }).await;
    let keys = ["", "a.b", "$x", "sound"];
    for key in keys {
        it.commit_data("order", "o", &serde_json::json!({ "key": key })).await;
    }
    for delivery in it.pull_count("h", keys.len()).await {
        match delivery.partition.as_deref() {
            Some("sound") => it.done("h", &delivery).await,
            _ => it.fail("h", &delivery).await,
        }
    }
    it.fail("plain", &it.pull("plain").await[0]).await;
    let states = it.handlers.states(DEFAULT_SCOPE).await.expect("reads");
    let of = |partitioned: bool| {
        let mut found = states.iter().filter(|state| state.get_bool("Partitioned").ok() == Some(partitioned));
        found.next().cloned().expect("a state")
    };
    let (partitioned, plain) = (of(true), of(false));
    assert_eq!(partitioned.get("Position").map(ToString::to_string).as_deref(), Some("4"));
    let failing = partitioned.get_document("FailingPartitions").expect("a document");
    let mut names: Vec<_> = failing.keys().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["", "$x", "a.b"]);
    let one = failing.get_document("a.b").expect("an entry");
    assert_eq!((one.get_str("Reason").ok(), one.get_i32("ProcessingAttempts").ok()), (Some("down"), Some(1)));
    assert_eq!(one.get("EventLogPosition").map(ToString::to_string).as_deref(), Some("1"));
    assert_eq!((plain.get_bool("IsFailing").ok(), plain.get_str("FailureReason").ok()), (Some(true), Some("down")));
    assert_eq!(plain.get("Position").map(ToString::to_string).as_deref(), Some("0"));
}

/// Returns `LastSuccessfullyProcessed` of the only handler, in milliseconds.
async fn last_success(it: &Opened) -> i64 {
    let states = it.handlers.states(DEFAULT_SCOPE).await.expect("reads");
    let at = states[0].get_datetime("LastSuccessfullyProcessed").expect("a date");
    at.timestamp_millis()
}

/// As in the Runtime, a failure and a skip keep the time although the position moves. A success of a failing partition changes it
/// although the position stays. A restart and a replay keep it.
pub async fn a_state_in_the_layout_has_the_time_of_the_last_success(subject: &dyn Subject) {
    const NEVER: i64 = -62_135_596_800_000;
    let it = Opened::of(subject).await;
    it.by_aggregate("h").await;
    it.commit("placed", &["a"]).await;
    assert_eq!(last_success(&it).await, NEVER, "0001-01-01 in a layout that has no null");
    it.fail("h", &it.pull("h").await[0]).await;
    let status = it.handlers.get("h").await.expect("defined");
    assert_eq!((status.position, status.last_progress), (1, Some(it.now_plus(0))), "the position moved past it");
    assert_eq!(last_success(&it).await, NEVER);
    it.advance(1_000);
    it.done("h", &it.pull("h").await[0]).await;
    let caught_up = it.now_plus(0).as_millis();
    assert_eq!(last_success(&it).await, caught_up);
    it.advance(1_000);
    it.commit("placed", &["b"]).await;
    it.fail("h", &it.pull("h").await[0]).await;
    let skip = Act::Skip { partition: "order/b".into(), position: Some(1) };
    it.handlers.act("h", skip, "a test".into()).await.expect("allowed");
    assert_eq!(last_success(&it).await, caught_up);
    it.commit("placed", &["c"]).await;
    it.done("h", &it.pull("h").await[0]).await;
    let new = it.now_plus(0).as_millis();
    assert_eq!(last_success(&it).await, new);
    let it = it.restarted().await;
    it.advance(1_000);
    let from = Place::End(End::Beginning);
    it.handlers.act("h", Act::Replay { from }, "a test".into()).await.expect("allowed");
    assert_eq!((it.handlers.get("h").await.expect("defined").position, last_success(&it).await), (0, new));
}
