//! Messages that are equivalent.

use std::collections::BTreeSet;

use annals_core::dead_letters::{LetterQuery, LetterStatus};
use annals_core::groups::{GroupDefinition, Guard, GuardSettings};
use annals_core::handlers::{Delivery, PullBody, Reason};
use annals_core::processing::{ProcessingRetry, Then};
use annals_core::{DEFAULT_TENANT, Data, NewCommit, NewEvent, Reached, Uuid};
use serde_json::json;
use tokio::task::JoinSet;

use super::Grouped;
use crate::Subject;
use crate::handlers::opened::seconds;

fn by_x() -> Guard {
    Guard::Fields(vec!["data.x".to_owned()])
}

/// Defines a group of the topic `placed` with a guard, up to 64 keys at once, with delays of 1, 2, 4 … s.
async fn guarded(it: &Grouped, by: Guard, seconds_kept: u64) {
    let guard = Some(GuardSettings { by, seconds: seconds_kept });
    let definition =
        GroupDefinition { retry: seconds(), in_flight: 64, guard, ..GroupDefinition::new("g", ["placed"]) };
    assert!(it.groups.put(definition).await.expect("defined"), "it is new");
}

/// Commits an event with this data to each of these aggregates.
async fn place(it: &Grouped, ids: impl IntoIterator<Item = String>, data: serde_json::Value) {
    for id in ids {
        it.it.commit_data("order", &id, &data).await;
    }
}

/// Makes this many pulls concurrently.
async fn race(it: &Grouped, callers: usize, pull: &PullBody) -> Vec<Delivery> {
    let mut racing = JoinSet::new();
    for _ in 0..callers {
        let (groups, pull) = (std::sync::Arc::clone(&it.groups), pull.clone());
        racing.spawn(async move { groups.pull("g", pull).await.expect("pulled") });
    }
    racing.join_all().await.into_iter().flatten().collect()
}

async fn until_done(it: &Grouped) -> Vec<u64> {
    it.process_all("g").await
}

/// Fifty concurrent consumers and fifty messages of different keys have one effect.
pub async fn of_fifty_racing_callers_one_gets_the_message(subject: &dyn Subject) {
    let it = Grouped::of(subject).await;
    guarded(&it, by_x(), 3_600).await;
    place(&it, (0..50).map(|n| format!("o-{n}")), json!({"x": 7})).await;
    let pull = PullBody { max: 10, worker: "w".to_owned(), ..PullBody::default() };
    let mut won: Vec<Delivery> = Vec::new();
    while won.is_empty() {
        won.extend(race(&it, 50, &pull).await);
    }
    won.extend(race(&it, 50, &pull).await);
    assert_eq!(won.len(), 1, "one winner");
    it.done("g", &won[0]).await;
    assert!(until_done(&it).await.is_empty(), "the others are duplicates");
    assert_eq!(it.status("g").await.processor.duplicates, 49);
    let counted: Vec<_> = it.it.host.group_metrics().into_iter().map(|it| (it.group, it.duplicates)).collect();
    assert_eq!(counted, [("g".to_owned(), 49)]);
}

/// This also holds after a restart, and ends once the time has passed.
pub async fn what_was_processed_is_a_duplicate_until_the_time_is_over(subject: &dyn Subject) {
    let it = Grouped::of(subject).await;
    guarded(&it, Guard::Content, 60).await;
    place(&it, ["a".to_owned()], json!({"x": 1})).await;
    assert_eq!(until_done(&it).await, [0]);
    let it = it.restarted().await;
    it.it.advance(59_000);
    place(&it, ["b".to_owned()], json!({"x": 1})).await;
    assert!(until_done(&it).await.is_empty(), "the same content under another id");
    place(&it, ["c".to_owned()], json!({"x": 2})).await;
    assert_eq!(until_done(&it).await, [2], "another content");
    // A duplicate does not extend the time.
    it.it.advance(1_000);
    place(&it, ["d".to_owned()], json!({"x": 1})).await;
    assert_eq!(until_done(&it).await, [3]);
    assert_eq!(it.status("g").await.processor.duplicates, 1);
}

/// This holds whatever their data.
pub async fn two_commits_of_one_event_id_are_one_message(subject: &dyn Subject) {
    let it = Grouped::of(subject).await;
    guarded(&it, Guard::EventId, 3_600).await;
    for (id, n) in [("a", 1), ("b", 2)] {
        let data = Data::from_value(&json!({ "n": n })).expect("data");
        let event = NewEvent { id: Some(Uuid::from_u128(7)), ..NewEvent::new("placed", data) };
        it.it.log.commit(NewCommit::new("order", id).event(event).wait_until(Reached::Logged)).await.expect("stored");
    }
    assert_eq!(until_done(&it).await, [0]);
}

/// It was not processed, so an equivalent message is.
pub async fn an_event_that_failed_runs_again(subject: &dyn Subject) {
    let it = Grouped::of(subject).await;
    guarded(&it, by_x(), 3_600).await;
    place(&it, ["a", "b"].map(str::to_owned), json!({"x": 1})).await;
    let first = it.pull_count("g", 1).await;
    it.fail("g", &first[0]).await;
    let second = it.pull_count("g", 1).await;
    assert_ne!(first[0].event.sequence_number, second[0].event.sequence_number, "the other one is tried");
    it.fail("g", &second[0]).await;
    it.it.advance(1_000);
    let again = it.pull_count("g", 1).await;
    assert_eq!(again[0].attempt, 2);
    it.done("g", &again[0]).await;
    it.it.advance(1_000);
    assert!(until_done(&it).await.is_empty());
}

/// The retry of a letter is not a duplicate of the attempt that failed.
pub async fn a_dead_letter_of_a_guarded_group_runs_again(subject: &dyn Subject) {
    let it = Grouped::of(subject).await;
    let retry = ProcessingRetry { attempts: Some(1), then: Then::Park, ..ProcessingRetry::default() };
    let guard = Some(GuardSettings::new(Guard::Content));
    let definition = GroupDefinition { retry, guard, ..GroupDefinition::new("g", ["placed"]) };
    it.groups.put(definition).await.expect("defined");
    place(&it, ["a".to_owned()], json!({"x": 1})).await;
    let first = it.pull_count("g", 1).await;
    it.fail("g", &first[0]).await;
    let letters = it.it.host.dead_letters(DEFAULT_TENANT).expect("declared");
    let letter = letters.list(LetterQuery::default()).await.expect("listed").items.remove(0);
    let because = Reason { reason: "mended".to_owned(), by: None };
    letters.retry(&letter.id, because).await.expect("retried");
    let again = it.pull_count("g", 1).await;
    assert_eq!((again[0].event.sequence_number, again[0].attempt), (0, 2));
    it.done("g", &again[0]).await;
    place(&it, ["b".to_owned()], json!({"x": 1})).await;
    assert!(until_done(&it).await.is_empty(), "now it was processed");
    assert_eq!(letters.get(&letter.id).await.expect("kept").status, LetterStatus::Retried);
}

/// One of all waiting messages is delivered.
pub async fn when_a_lease_ends_exactly_one_other_gets_the_message(subject: &dyn Subject) {
    let it = Grouped::of(subject).await;
    guarded(&it, by_x(), 3_600).await;
    place(&it, ["a", "b", "c"].map(str::to_owned), json!({"x": 1})).await;
    let pull = PullBody { max: 10, lease_ms: 1_000, worker: "w".to_owned(), ..PullBody::default() };
    let mut seen = BTreeSet::new();
    while seen.is_empty() {
        seen.extend(it.groups.pull("g", pull.clone()).await.expect("pulled").iter().map(|it| it.event.sequence_number));
    }
    assert_eq!(seen.len(), 1);
    it.it.advance(1_000);
    let mut next = Vec::new();
    while next.is_empty() {
        next.extend(race(&it, 10, &pull).await);
    }
    assert_eq!(next.len(), 1, "one of those that waited");
    assert!(!seen.contains(&next[0].event.sequence_number), "the first one waits for its retry");
    it.done("g", &next[0]).await;
    it.it.advance(1_000);
    assert!(until_done(&it).await.is_empty());
    assert_eq!(it.status("g").await.processor.duplicates, 2);
}

/// Another group can have its name.
pub async fn a_deleted_group_remembers_nothing(subject: &dyn Subject) {
    let it = Grouped::of(subject).await;
    guarded(&it, Guard::Content, 3_600).await;
    place(&it, ["a", "b"].map(str::to_owned), json!({"x": 1})).await;
    assert_eq!(until_done(&it).await.len(), 1);
    it.groups.delete("g", Reason { reason: "a test".to_owned(), by: None }).await.expect("deleted");
    guarded(&it, Guard::Content, 3_600).await;
    assert_eq!(until_done(&it).await.len(), 1);
}
