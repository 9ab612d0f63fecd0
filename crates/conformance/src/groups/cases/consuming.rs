//! What consumers receive.

use std::sync::{Arc, Mutex};

use annals_core::groups::GroupDefinition;
use annals_core::{ByteString, DEFAULT_TENANT, GroupStart, Topics};
use annals_runtime::consumer;
use serde::Deserialize;
use serde_json::json;

use super::Grouped;
use crate::Subject;

fn sorted(mut numbers: Vec<u64>) -> Vec<u64> {
    numbers.sort_unstable();
    numbers
}

/// This holds whatever other groups do.
pub async fn every_group_gets_each_message_of_its_topics_once(subject: &dyn Subject) {
    let it = Grouped::of(subject).await;
    it.define("k8s-worker", &["create_pod_command", "delete_pod_command"]).await;
    it.define("result-processor", &["execution_completed"]).await;
    it.define("everything", &["create_pod_command", "delete_pod_command", "execution_completed"]).await;
    it.it.commit("create_pod_command", &["a", "b", "a"]).await;
    it.it.commit("execution_completed", &["a", "c"]).await;
    it.it.commit("delete_pod_command", &["a"]).await;
    it.it.commit("of_no_topic", &["a"]).await;
    assert_eq!(sorted(it.process_all("k8s-worker").await), [0, 1, 2, 5]);
    assert_eq!(sorted(it.process_all("everything").await), [0, 1, 2, 3, 4, 5]);
    assert_eq!(sorted(it.process_all("result-processor").await), [3, 4]);
    for name in ["k8s-worker", "result-processor", "everything"] {
        assert!(it.pull_now(name).await.is_empty(), "{name}");
    }
}

/// The status of groups and of topics shows the lag by topic.
pub async fn a_group_that_is_down_lags_in_its_own_topics_and_others_advance(subject: &dyn Subject) {
    let it = Grouped::of(subject).await;
    it.define("k8s-worker", &["create_pod_command", "delete_pod_command"]).await;
    it.define("notification-service", &["execution_completed", "create_pod_command"]).await;
    it.it.commit("create_pod_command", &["a", "b"]).await;
    it.it.commit("execution_completed", &["a", "b", "c"]).await;
    it.process_all("notification-service").await;
    let of = |topic: &str, lag: u64| (topic.to_owned(), lag);
    assert_eq!(it.lags("k8s-worker").await, [of("create_pod_command", 2), of("delete_pod_command", 0)]);
    assert_eq!(it.lags("notification-service").await, [of("create_pod_command", 0), of("execution_completed", 0)]);
    let topics: Arc<dyn Topics> = it.it.host.topics(DEFAULT_TENANT).expect("declared");
    let shown = topics.get("create_pod_command").await.expect("created with the group");
    let groups: Vec<_> = shown.groups.iter().map(|it| (&*it.group, it.lag)).collect();
    assert_eq!(groups, [("k8s-worker", 2), ("notification-service", 0)]);
    it.process_all("k8s-worker").await;
    assert_eq!(it.status("k8s-worker").await.processor.lag, 0);
}

/// At most `in_flight` keys are processed at once.
pub async fn messages_of_a_key_come_one_after_the_other_and_keys_side_by_side(subject: &dyn Subject) {
    let it = Grouped::of(subject).await;
    let definition = GroupDefinition { in_flight: 2, ..GroupDefinition::new("g", ["placed", "paid"]) };
    it.groups.put(definition).await.expect("defined");
    it.it.commit("placed", &["a", "b", "c"]).await;
    it.it.commit("paid", &["a"]).await;
    let first = it.pull_count("g", 2).await;
    let numbers: Vec<u64> = first.iter().map(|it| it.event.sequence_number).collect();
    assert_eq!(sorted(numbers), [0, 1]);
    assert!(it.pull_now("g").await.is_empty(), "two keys are in flight");
    let of_a = first.iter().find(|it| it.event.sequence_number == 0).expect("of a");
    it.done("g", of_a).await;
    let next = it.pull_count("g", 1).await;
    assert_eq!(next[0].event.sequence_number, 2, "the longest waiting key");
    it.done("g", &next[0]).await;
    let next = it.pull_count("g", 1).await;
    assert_eq!((next[0].event.sequence_number, &*next[0].event.event_type), (3, "paid"), "across topics");
}

/// The first definition decides.
pub async fn a_group_starts_with_the_earliest_message_unless_it_says_latest(subject: &dyn Subject) {
    let it = Grouped::of(subject).await;
    it.it.commit("placed", &["a", "b"]).await;
    it.define("earliest", &["placed"]).await;
    let latest = GroupDefinition { start: GroupStart::Latest, ..GroupDefinition::new("latest", ["placed"]) };
    it.groups.put(latest).await.expect("defined");
    assert_eq!(it.lags("latest").await, [("placed".to_owned(), 0)]);
    it.it.commit("placed", &["a"]).await;
    assert_eq!(it.process_all("latest").await, [2]);
    assert_eq!(sorted(it.process_all("earliest").await), [0, 1, 2]);
}

/// This includes messages that were done out of order.
pub async fn what_is_done_does_not_come_again_after_a_restart_and_the_rest_does(subject: &dyn Subject) {
    let it = Grouped::of(subject).await;
    it.define("g", &["placed"]).await;
    it.it.commit("placed", &["a", "b", "c"]).await;
    let deliveries = it.pull_count("g", 3).await;
    let of_c = deliveries.iter().find(|it| it.event.sequence_number == 2).expect("of c");
    it.done("g", of_c).await;
    assert_eq!(it.lags("g").await, [("placed".to_owned(), 2)]);
    let it = it.restarted().await;
    assert_eq!(sorted(it.process_all("g").await), [0, 1]);
}

/// It is attempted again until it succeeds.
pub async fn a_failing_key_is_retried_and_holds_up_no_other(subject: &dyn Subject) {
    let it = Grouped::of(subject).await;
    it.define("g", &["placed"]).await;
    it.it.commit("placed", &["a", "b", "a"]).await;
    for delivery in it.pull_count("g", 2).await {
        match delivery.event.sequence_number {
            0 => it.fail("g", &delivery).await,
            _ => it.done("g", &delivery).await,
        }
    }
    assert!(it.pull_now("g").await.is_empty(), "the key waits, with its later message");
    let failing = it.groups.partitions("g", None, 10).await.expect("listed").items;
    assert_eq!((failing.len(), &*failing[0].partition, failing[0].attempts), (1, "order/a", 1));
    it.it.advance(1_000);
    let again = it.pull_count("g", 1).await;
    assert_eq!((again[0].event.sequence_number, again[0].attempt), (0, 2));
    it.done("g", &again[0]).await;
    assert_eq!(it.process_all("g").await, [2]);
}

#[derive(Deserialize)]
struct Placed {
    customer: String,
}

/// A consumer has a function for each topic.
pub async fn a_consumer_in_rust_gets_typed_events(subject: &dyn Subject) {
    let it = Grouped::of(subject).await;
    let seen: Arc<Mutex<Vec<(String, String)>>> = Arc::default();
    let (placed, other) = (Arc::clone(&seen), Arc::clone(&seen));
    let missing = consumer("g", ["placed"]).run(&it.it.host, DEFAULT_TENANT).await;
    missing.expect_err("a topic without a function");
    consumer("g", ["placed", "paid"])
        .on("placed", move |event, data: Placed| {
            let seen = Arc::clone(&placed);
            async move {
                seen.lock().expect("no panic").push((event.event_type.to_string(), data.customer));
                Ok(())
            }
        })
        .on("paid", move |event, _: serde_json::Value| {
            let seen = Arc::clone(&other);
            async move {
                seen.lock().expect("no panic").push((event.event_type.to_string(), String::new()));
                Ok(())
            }
        })
        .in_flight(1)
        .run(&it.it.host, DEFAULT_TENANT)
        .await
        .expect("it runs");
    it.it.commit_data("order", "a", &json!({"customer": "Ada"})).await;
    it.it.commit("paid", &["a"]).await;
    while it.status("g").await.processor.lag > 0 {
        crate::between_looks().await;
    }
    let expected = [("placed".to_owned(), "Ada".to_owned()), ("paid".to_owned(), String::new())];
    assert_eq!(*seen.lock().expect("no panic"), expected);
}

/// Such an event is not passed to the function, and counts as failing.
pub async fn data_that_is_no_value_of_its_type_waits_for_an_operator_and_the_others_go_on(subject: &dyn Subject) {
    let it = Grouped::of(subject).await;
    let seen: Arc<Mutex<Vec<ByteString>>> = Arc::default();
    let placed = Arc::clone(&seen);
    consumer("g", ["placed"])
        .on("placed", move |_, data: Placed| {
            let seen = Arc::clone(&placed);
            async move {
                seen.lock().expect("no panic").push(data.customer.into());
                Ok(())
            }
        })
        .run(&it.it.host, DEFAULT_TENANT)
        .await
        .expect("it runs");
    it.it.commit_data("order", "bad", &json!({"customer": 7})).await;
    it.it.commit_data("order", "good", &json!({"customer": "Eva"})).await;
    let status = loop {
        let status = it.status("g").await;
        if status.processor.blocked == 1 && !seen.lock().expect("no panic").is_empty() {
            break status;
        }
        crate::between_looks().await;
    };
    assert_eq!(*seen.lock().expect("no panic"), ["Eva"]);
    assert!(status.processor.last_reason.expect("why").contains("not a valid placed"));
}
