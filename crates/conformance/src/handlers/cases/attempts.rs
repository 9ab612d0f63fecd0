//! What an attempt knows of those before it, step by step, as the specifications of the Dolittle Runtime have it.

use annals_core::handlers::{Act, Delivery, DeliveryFailure, End, HandlerDefinition, HandlerState, Place, Settlement};
use annals_core::processing::{ProcessingRetry, Then};

use crate::Subject;
use crate::handlers::opened::{Opened, positions, seconds};

async fn never(it: &Opened, delivery: &Delivery) {
    let failure = DeliveryFailure { reason: "bad".to_owned(), retry_after_ms: None, never: true };
    let settlement = Settlement { token: delivery.token.clone(), failure: Some(failure) };
    let results = it.settle("h", vec![settlement]).await;
    assert!(results[0].settled, "{results:?}");
}

/// With its number and the last reason each time; after the last one only an operator helps.
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
    never(&it, &last).await;
    it.advance(1_000_000_000);
    assert!(it.pull_now("h").await.is_empty(), "it is not attempted again");
    let failing = it.handlers.partitions("h", None, 10).await.expect("reads").items.remove(0);
    assert_eq!((failing.attempts, failing.retry_at, &*failing.reason, failing.position), (4, None, "bad", 0));
}

/// Its next event fails for the first time, whatever the one before it took.
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
        never(&it, &delivery).await;
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

/// Also when another process or the next run has taken over meanwhile.
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

/// In the shape of handlers with partitions and in that of those without.
pub async fn states_are_shown_in_the_layout_of_the_dolittle_runtime(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    let by_key =
        HandlerDefinition::new("h").partitioned(annals_core::processing::PartitionBy::Data("key".to_owned()), 16);
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
    let states = it.handlers.states().await.expect("reads");
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
