//! Consumers in Rust. They join their group on a broker that holds copies, and follow the log elsewhere.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use annals_core::dead_letters::{LetterPolicy, LetterQuery, LetterStatus, Strategy};
use annals_core::processing::{ProcessingRetry, Then};
use annals_core::{DEFAULT_TENANT, RecordedEvent};
use annals_runtime::{HandleFailure, consumer};
use serde_json::Value;

use super::{Brokered, until};
use crate::Subject;

/// The versions of each key, in the order in which consumers processed them.
type Seen = Arc<Mutex<BTreeMap<String, Vec<u64>>>>;

fn note(seen: &Seen, event: &RecordedEvent) {
    let key = format!("{}/{}", event.event_type, event.commit.aggregate.id);
    seen.lock().expect("no panic").entry(key).or_default().push(event.commit.version);
}

fn count(seen: &Seen) -> usize {
    seen.lock().expect("no panic").values().map(Vec::len).sum()
}

/// Retries twice at most, with delays of a millisecond.
fn twice() -> ProcessingRetry {
    ProcessingRetry { first_ms: 1, factor: 1.0, max_ms: 1, jitter: 0.0, attempts: Some(2), then: Then::Park }
}

/// This holds whatever other groups do.
pub async fn every_consumer_group_processes_each_message_once_and_in_order_per_key(subject: &dyn Subject) {
    let it = Brokered::of(subject).await;
    it.register("placed", "execution").await;
    it.register("paid", "default").await;
    let ids = ["a", "b", "c", "d", "e"];
    it.it.commit("placed", &ids).await;
    let all: Vec<Seen> = vec![Seen::default(), Seen::default()];
    for (group, seen) in ["k8s-worker", "sse-bridge-pool"].into_iter().zip(&all) {
        let (placed, paid) = (Arc::clone(seen), Arc::clone(seen));
        let of_group = consumer(group, ["placed", "paid"])
            .on("placed", move |event, _: Value| {
                note(&placed, &event);
                async { Ok(()) }
            })
            .on("paid", move |event, _: Value| {
                note(&paid, &event);
                // A consumer that does not end at once.
                async {
                    tokio::task::yield_now().await;
                    Ok(())
                }
            });
        of_group.run(&it.it.host, DEFAULT_TENANT).await.expect("it runs");
    }
    for _ in 0..3 {
        it.it.commit("placed", &ids).await;
        it.it.commit("paid", &ids[..2]).await;
    }
    until("both processed everything", async || all.iter().all(|seen| count(seen) >= 26)).await;
    for seen in all {
        let seen = seen.lock().expect("no panic");
        assert_eq!(seen.values().map(Vec::len).sum::<usize>(), 26, "{seen:?}");
        assert!(seen.values().all(|versions| versions.is_sorted()), "{seen:?}");
    }
}

/// The message is attempted again until it succeeds.
pub async fn a_failing_key_holds_up_no_other_and_is_processed_when_it_succeeds(subject: &dyn Subject) {
    let it = Brokered::of(subject).await;
    it.register("placed", "default").await;
    let (seen, is_down) = (Seen::default(), Arc::new(Mutex::new(true)));
    let (noted, down) = (Arc::clone(&seen), Arc::clone(&is_down));
    let retry = ProcessingRetry { attempts: None, then: Then::Block, ..twice() };
    let of_group = consumer("g", ["placed"]).retry(retry).on("placed", move |event, _: Value| {
        let fails = *event.commit.aggregate.id == *"bad" && *down.lock().expect("no panic");
        if !fails {
            note(&noted, &event);
        }
        async move { if fails { Err(HandleFailure::new("it is down")) } else { Ok(()) } }
    });
    of_group.run(&it.it.host, DEFAULT_TENANT).await.expect("it runs");
    it.it.commit("placed", &["bad", "bad", "good", "fine", "good"]).await;
    until("the others are processed", async || count(&seen) == 3).await;
    *is_down.lock().expect("no panic") = false;
    until("the key succeeds", async || {
        it.it.advance(10);
        count(&seen) == 5
    })
    .await;
    assert_eq!(seen.lock().expect("no panic")["placed/bad"], [1, 2]);
}

/// Its key waits, and other groups are not affected.
pub async fn what_fails_too_often_is_a_dead_letter_of_that_group_and_is_processed_when_a_person_retries_it(
    subject: &dyn Subject,
) {
    let it = Brokered::of(subject).await;
    it.register("placed", "default").await;
    let letters = it.it.host.dead_letters(DEFAULT_TENANT).expect("declared");
    let policy = LetterPolicy { strategy: Strategy::Manual, ..LetterPolicy::default() };
    letters.put_policy(it.topic("placed"), policy, "a person decides".into()).await.expect("put");
    let (seen, other, is_down) = (Seen::default(), Seen::default(), Arc::new(Mutex::new(true)));
    let (noted, down) = (Arc::clone(&seen), Arc::clone(&is_down));
    let failing = consumer("failing", ["placed"]).retry(twice()).on("placed", move |event, _: Value| {
        let fails = *event.commit.aggregate.id == *"bad" && *down.lock().expect("no panic");
        if !fails {
            note(&noted, &event);
        }
        async move { if fails { Err(HandleFailure::new("no such customer")) } else { Ok(()) } }
    });
    failing.run(&it.it.host, DEFAULT_TENANT).await.expect("it runs");
    let noted = Arc::clone(&other);
    let healthy = consumer("healthy", ["placed"]).on("placed", move |event, _: Value| {
        note(&noted, &event);
        async { Ok(()) }
    });
    healthy.run(&it.it.host, DEFAULT_TENANT).await.expect("it runs");
    it.it.commit("placed", &["bad", "good", "bad", "good"]).await;
    let list = async || letters.list(LetterQuery { group: Some("failing".into()), ..LetterQuery::default() }).await;
    until("both messages of the key are letters", async || {
        it.it.advance(10);
        list().await.expect("listed").items.len() == 2
    })
    .await;
    until("the others are processed", async || count(&seen) == 2 && count(&other) == 4).await;
    let mut items = list().await.expect("listed").items;
    items.sort_by_key(|letter| letter.sequence_number);
    let shown: Vec<_> = items.iter().map(|it| (&*it.error, it.attempts)).collect();
    assert_eq!(shown, [("no such customer", 2), ("an earlier event of its key is a dead letter", 0)]);
    *is_down.lock().expect("no panic") = false;
    letters.retry(&items[0].id, "the customer is there".into()).await.expect("retried");
    until("the first succeeds, and then the one that followed it", async || {
        it.it.advance(20);
        count(&seen) == 4
    })
    .await;
    assert_eq!(seen.lock().expect("no panic")["placed/bad"], [1, 2]);
    until("both are over", async || {
        it.it.advance(20);
        let items = list().await.expect("listed").items;
        items.iter().all(|it| it.status == LetterStatus::Retried)
    })
    .await;
    assert_eq!(count(&other), 4, "for that group only");
}
