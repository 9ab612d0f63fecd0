//! Guards where events are published to Kafka, beside their suite: they hold nothing back from topics, and what there is in their place for
//! a consumer that joins its group on Kafka.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use annals_core::groups::{GroupDefinition, GroupError, Guard, GuardSettings};
use annals_core::handlers::{PullBody, SettleBody, Settlement};
use annals_core::processing::{ProcessingRetry, Then};
use annals_core::{Code, DEFAULT_TENANT, LogQuery, RecordedEvent, Uuid};
use annals_runtime::{HandleFailure, consumer};

use crate::support::{
    Seen, address, broker_at, commit, consuming_host, log_of, memory, noting, read_all, relaying, settings, until,
    until_published,
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guard_of_a_consumer_that_would_join_its_group_on_kafka_is_refused_by_name() {
    let (settings, store) = (settings(), memory());
    let broker = broker_at(&address(), &settings);
    let host = consuming_host(&store, &broker, &settings);
    let refused = noting("billing", &Seen::default()).guard(Guard::EventId).run(&host, DEFAULT_TENANT).await;
    let Err(GroupError::Invalid(invalid)) = refused else { panic!("{refused:?}") };
    assert_eq!((invalid.code, &*invalid.path), (Code::InvalidGroup, "guard"));
    assert!(host.consumers().is_empty(), "it joined no group");
    host.drain().await;
}

/// So a function that stores the ids of what it has processed has each effect once, as with a guard by event id.
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
