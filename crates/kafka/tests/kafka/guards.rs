//! Guards where events are published to Kafka, beside their suite: they hold nothing back from topics, and those of consumers that join
//! their groups there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use annals_core::groups::{GroupDefinition, Guard, GuardSettings};
use annals_core::handlers::{PullBody, SettleBody, Settlement};
use annals_core::processing::{ProcessingRetry, Then};
use annals_core::{Broker, DEFAULT_TENANT, LogQuery, RecordedEvent, Uuid};
use annals_runtime::{HandleFailure, Host, consumer};

use crate::support::{
    address, broker_at, commit, consuming_host, log_of, memory, read_all, relaying, settings, until, until_published,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn duplicates_that_a_guard_skips_are_on_their_topic_all_the_same() {
    const EVENTS: u64 = 50;
    let (settings, store) = (settings(), memory());
    let broker = broker_at(&address(), &settings);
    let (log, host) = (log_of(&*store), relaying(&store, &broker, &settings));
    let groups = host.groups(DEFAULT_TENANT).expect("the tenant");
    let guard = Some(GuardSettings::new(Guard::Content));
    let definition = GroupDefinition { guard, in_flight: 64, ..GroupDefinition::new("mailer", ["order_placed"]) };
    groups.put(definition).await.expect("defined");
    for n in 0..EVENTS {
        // Of different aggregates, with the same content.
        commit(&*log, &format!("o-{n}"), "order_placed", 7, 0).await;
    }
    let pull = PullBody { max: 100, worker: "w".to_owned(), ..PullBody::default() };
    let mut delivered = 0;
    until("one is processed, and the others are skipped", async || {
        for delivery in groups.pull("mailer", pull.clone()).await.expect("pulled") {
            let results = vec![Settlement::done(delivery.token)];
            groups.settle("mailer", SettleBody { results }).await.expect("settled");
            delivered += 1;
        }
        (groups.get("mailer").await.expect("defined").processor.lag == 0).then_some(())
    })
    .await;
    let status = groups.get("mailer").await.expect("defined");
    assert_eq!((delivered, status.processor.duplicates), (1, EVENTS - 1));
    until_published(&host, EVENTS).await;
    assert_eq!(read_all(&broker, &settings.topic_of("order_placed")).await.len() as u64, EVENTS);
    host.drain().await;
}

/// The first attempt fails, so the message is processed by another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_equivalent_messages_that_racing_members_get_one_has_an_effect() {
    const EVENTS: u64 = 60;
    let (settings, store) = (settings(), memory());
    let broker = broker_at(&address(), &settings);
    let (log, publishing) = (log_of(&*store), relaying(&store, &broker, &settings));
    for n in 0..EVENTS {
        commit(&*log, &format!("o-{n}"), "order_placed", 7, 0).await;
    }
    until_published(&publishing, EVENTS).await;
    let (attempts, effects) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut members = Vec::new();
    for _ in 0..3 {
        let (attempted, done) = (Arc::clone(&attempts), Arc::clone(&effects));
        let retry =
            ProcessingRetry { first_ms: 1, factor: 1.0, max_ms: 1, jitter: 0.0, attempts: None, then: Then::Block };
        let member = consumer("billing", ["order_placed"]).retry(retry).in_flight(8).guard(Guard::Content);
        let member = member.on("order_placed", move |_: RecordedEvent, _: serde_json::Value| {
            let is_first = attempted.fetch_add(1, Ordering::SeqCst) == 0;
            let done = Arc::clone(&done);
            async move {
                // The others have time to compete.
                tokio::task::yield_now().await;
                if is_first {
                    return Err(HandleFailure::new("the database is down"));
                }
                done.fetch_add(1, Ordering::SeqCst);
                Ok(())
            }
        });
        let host = consuming_host(&store, &broker, &settings);
        member.run(&host, DEFAULT_TENANT).await.expect("it runs");
        members.push(host);
    }
    let group = settings.topic_of("billing");
    until("every message is passed", async || {
        let offsets = broker.group_offsets(&group).await.ok()?;
        (offsets.len() == 3 && offsets.iter().all(|offset| offset.lag == 0)).then_some(())
    })
    .await;
    assert_eq!((attempts.load(Ordering::SeqCst), effects.load(Ordering::SeqCst)), (2, 1));
    let passed = |host: &Host| host.group_metrics().iter().map(|it| it.duplicates).sum::<u64>();
    assert!(members.iter().map(passed).sum::<u64>() >= EVENTS - 1, "the others are duplicates");
    for member in members {
        member.drain().await;
    }
    publishing.drain().await;
}

/// So a function that stores the ids of what it has processed has each effect once, also without a guard.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_failed_runs_again_under_its_own_id_whichever_of_racing_members_gets_it() {
    const EVENTS: u64 = 200;
    let (settings, store) = (settings(), memory());
    let broker = broker_at(&address(), &settings);
    let (log, publishing) = (log_of(&*store), relaying(&store, &broker, &settings));
    for n in 0..EVENTS {
        commit(&*log, &format!("o-{}", n % 20), "order_placed", n, 0).await;
    }
    let attempts: Arc<Mutex<BTreeMap<Uuid, usize>>> = Arc::default();
    let mut members = Vec::new();
    for _ in 0..3 {
        let counted = Arc::clone(&attempts);
        let retry =
            ProcessingRetry { first_ms: 1, factor: 1.0, max_ms: 1, jitter: 0.0, attempts: None, then: Then::Block };
        let member = consumer("billing", ["order_placed"]).retry(retry).in_flight(8);
        let member = member.on("order_placed", move |event: RecordedEvent, _: serde_json::Value| {
            let mut attempts = counted.lock().expect("no panic");
            let count = attempts.entry(event.id).or_default();
            *count += 1;
            let fails = *count == 1;
            async move { if fails { Err(HandleFailure::new("the database is down")) } else { Ok(()) } }
        });
        let host = consuming_host(&store, &broker, &settings);
        member.run(&host, DEFAULT_TENANT).await.expect("it runs");
        members.push(host);
    }
    until("each event is attempted again", async || {
        let attempts = attempts.lock().expect("no panic");
        (attempts.values().filter(|count| **count >= 2).count() as u64 >= EVENTS).then_some(())
    })
    .await;
    let page = log.read(LogQuery { limit: 1_000, ..LogQuery::default() }).await.expect("read");
    let committed: BTreeSet<Uuid> = page.events.iter().map(|event| event.id).collect();
    let attempted: BTreeSet<Uuid> = attempts.lock().expect("no panic").keys().copied().collect();
    assert_eq!((attempted, committed.len() as u64), (committed, EVENTS));
    for member in members {
        member.drain().await;
    }
    publishing.drain().await;
}
