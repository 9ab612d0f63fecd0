//! What a producer does.

use std::time::Duration;

use annals_core::{Aggregate, Code, DEFAULT_TENANT, Data, NewEvent, Uuid};
use serde_json::json;

use super::Grouped;
use crate::Subject;

fn placed(id: u128, n: u64) -> NewEvent {
    let data = Data::from_value(&json!({ "n": n })).expect("data");
    NewEvent { id: Some(Uuid::from_u128(id)), ..NewEvent::new("placed", data) }
}

fn order() -> Aggregate {
    Aggregate::new("order", "o-1")
}

/// A producer repeats an event because the first answer may have been lost.
pub async fn an_event_that_is_published_twice_is_on_its_topic_once(subject: &dyn Subject) {
    let it = Grouped::of(subject).await;
    it.define("g", &["placed"]).await;
    let producer = it.it.host.producer(DEFAULT_TENANT).expect("declared").header("service", "api");
    let first = producer.publish(order(), placed(7, 1)).await.expect("published");
    let again = producer.publish(order(), placed(7, 1)).await.expect("published");
    assert_eq!((first.event_id, first.is_duplicate), (Uuid::from_u128(7), false));
    assert_eq!((again.event_id, again.is_duplicate), (Uuid::from_u128(7), true));
    let other = producer.publish(order(), placed(7, 2)).await.expect_err("another event under the id");
    assert_eq!(other.code(), Code::RequestIdReused);
    let delivered = it.pull_count("g", 1).await;
    assert_eq!((&*delivered[0].event.commit.aggregate.id, delivered[0].event.id), ("o-1", Uuid::from_u128(7)));
    assert_eq!(delivered[0].event.commit.header, [("service".into(), "api".into())]);
    it.done("g", &delivered[0]).await;
    assert!(it.process_all("g").await.is_empty());
}

/// An event without an id gets a new one.
pub async fn a_producer_that_waits_answers_once_the_event_is_on_its_topic(subject: &dyn Subject) {
    let it = Grouped::of(subject).await;
    let producer = it.it.host.producer(DEFAULT_TENANT).expect("declared");
    let event = NewEvent { id: None, ..placed(1, 1) };
    let published = producer.clone().waiting(Duration::from_secs(30)).publish(order(), event.clone()).await;
    let published = published.expect("published");
    assert!(published.is_published && published.sequence_number.is_some(), "{published:?}");
    let other = producer.publish(order(), event).await.expect("published");
    assert!(!other.is_published && !other.is_duplicate);
    assert_ne!(published.event_id, other.event_id);
}
