//! How a handler selects events: by a condition, by where it starts, and by where it stops.

use annals_core::bson::DateTime;
use annals_core::handlers::{HandlerDefinition, HandlerState, Start};
use annals_core::processing::PartitionBy;
use annals_core::{
    Condition, DEFAULT_SCOPE, DEFAULT_TENANT, Data, Included, NewCommit, NewEvent, Reached, Timestamp, Verdicts,
};
use serde_json::json;

use crate::Subject;
use crate::handlers::opened::{Opened, positions, seconds};

/// Commits one event of this type and time, with `n` as its data.
async fn commit_at(it: &Opened, event_type: &str, id: &str, n: u64, millis: i64) {
    let data = Data::from_value(&json!({ "n": n })).expect("a document");
    let event = NewEvent::new(event_type, data).tag(format!("n:{n}"));
    let event = NewEvent { time: Some(Timestamp::from_millis(millis)), ..event };
    let commit = NewCommit { owner_id: Some(format!("owner-{id}").into()), ..NewCommit::new("order", id).event(event) };
    it.log.commit(commit.wait_until(Reached::Logged)).await.expect("committed");
}

fn definition(name: &str) -> HandlerDefinition {
    HandlerDefinition { retry: seconds(), ..HandlerDefinition::new(name) }
}

/// The condition covers data, metadata and all other fields of an event. The index finds the types that it names.
pub async fn a_condition_over_data_and_metadata_decides_what_is_handled(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    for (n, (event_type, id)) in
        [("placed", "a"), ("paid", "a"), ("placed", "b"), ("placed", "a"), ("paid", "b")].into_iter().enumerate()
    {
        commit_at(&it, event_type, id, n as u64, n as i64).await;
    }
    for (name, condition, expected) in [
        ("by-data", Condition::gte("data.n", 3), vec![3, 4]),
        ("by-type", Condition::eq("type", "paid"), vec![1, 4]),
        ("by-both", Condition::and([Condition::eq("type", "placed"), Condition::eq("aggregate.id", "a")]), vec![0, 3]),
        ("by-owner", Condition::eq("owner_id", "owner-b"), vec![2, 4]),
        ("by-tag", Condition::eq("tags", "n:2"), vec![2]),
        ("by-time", Condition::gt("time", DateTime::from_millis(2)), vec![3, 4]),
        ("by-none", Condition::eq("data.n", "three"), vec![]),
    ] {
        it.define(definition(name).matching(condition)).await;
        assert_eq!(it.handle_all(name, 5).await, expected, "{name}");
        assert_eq!(it.handlers.get(name).await.expect("defined").lag, 0, "{name}");
    }
    let other = definition("by-data").matching(Condition::gte("data.n", 4));
    let refused = it.handlers.put(other).await.expect_err("it would mean other events");
    assert!(refused.to_string().contains("condition"), "{refused}");
    let same = definition("by-data").matching(Condition::gte("data.n", 3_i64));
    assert!(!it.handlers.put(same).await.expect("it means the same"));
}

/// The later events of a failing partition are looked up, without those that the condition rejects.
pub async fn a_failing_partition_catches_up_on_what_the_condition_admits(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    let by_aggregate = definition("h").partitioned(PartitionBy::Aggregate, 2);
    it.define(by_aggregate.matching(Condition::is_in("data.n", [0, 3]))).await;
    for n in 0..4 {
        commit_at(&it, "placed", "a", n, 0).await;
    }
    let first = it.pull("h").await;
    it.fail("h", &first[0]).await;
    it.advance(1_000);
    assert_eq!(it.handle_all("h", 4).await, [0, 3]);
}

/// This holds whatever the times of the events after it.
pub async fn a_handler_starts_with_the_first_event_at_or_after_a_time(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    // The clock was set back partway.
    for (n, millis) in [10, 20, 30, 25, 40, 50].into_iter().enumerate() {
        commit_at(&it, "placed", "a", n as u64, millis).await;
    }
    for (name, millis, first) in [("all", 0, 0), ("at", 20, 1), ("jump", 26, 2), ("last", 41, 5)] {
        let start = Start::Time(Timestamp::from_millis(millis));
        it.define(HandlerDefinition { start, ..definition(name) }).await;
        let handled = it.handle_all(name, 6).await;
        assert_eq!(handled, (first..6).collect::<Vec<_>>(), "{name}");
    }
    // In a stream the same event is selected, at its position there.
    let streams = it.store.streams(DEFAULT_TENANT, DEFAULT_SCOPE).expect("always there");
    let verdicts = Verdicts::new("stream-1", 0..6).include(Included::new(1)).include(Included::new(4));
    streams.append(verdicts).await.expect("appended");
    let start = Start::Time(Timestamp::from_millis(31));
    it.define(HandlerDefinition { start, ..definition("of-stream").stream("stream-1") }).await;
    let delivered = it.pull("of-stream").await;
    assert_eq!((positions(&delivered), delivered[0].event.sequence_number), (vec![1], 4));
}

/// The handler waits, also across a restart. Once it has begun, it gets every later event.
pub async fn a_start_in_the_future_passes_over_what_comes_before_it(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    commit_at(&it, "placed", "a", 0, 10).await;
    let start = Start::Time(Timestamp::from_millis(1_000));
    it.define(HandlerDefinition { start, ..definition("h") }).await;
    commit_at(&it, "placed", "a", 1, 500).await;
    assert!(it.pull_now("h").await.is_empty());
    let it = it.restarted().await;
    commit_at(&it, "placed", "a", 2, 999).await;
    commit_at(&it, "placed", "a", 3, 1_000).await;
    commit_at(&it, "placed", "a", 4, 700).await;
    assert_eq!(it.handle_all("h", 5).await, [3, 4]);
    let it = it.restarted().await;
    commit_at(&it, "placed", "a", 5, 600).await;
    assert_eq!(it.handle_all("h", 6).await, [5]);
}

/// The event at which it ends is not delivered. A later end lets it continue.
pub async fn a_handler_ends_before_the_first_event_at_or_after_its_stop(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    for (n, millis) in [10, 20, 30, 15].into_iter().enumerate() {
        commit_at(&it, "placed", "a", n as u64, millis).await;
    }
    let until = |millis| HandlerDefinition { stop_at: Some(Timestamp::from_millis(millis)), ..definition("h") };
    it.define(until(30)).await;
    assert_eq!(it.handle_all("h", 2).await, [0, 1]);
    assert!(it.pull_now("h").await.is_empty());
    let status = it.handlers.get("h").await.expect("defined");
    assert_eq!((status.state, status.ended, status.position), (HandlerState::Stopped, true, 2));
    let it = it.restarted().await;
    assert!(it.pull_now("h").await.is_empty(), "over a restart too");
    assert!(!it.handlers.put(until(31)).await.expect("allowed"));
    assert_eq!(it.handle_all("h", 4).await, [2, 3]);
    assert!(!it.handlers.get("h").await.expect("defined").ended);
}
