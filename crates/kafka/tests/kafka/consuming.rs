//! Consumers in Rust on Kafka: what other producers write, an outage of what they depend on, members that come and go, and topics that are
//! deleted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use annals_core::dead_letters::{BulkAct, BulkBody, LetterPolicy, LetterQuery, LetterStatus, Strategy};
use annals_core::processing::{ProcessingRetry, Then};
use annals_core::{Broker, DEFAULT_TENANT, RecordedEvent};
use annals_runtime::{HandleFailure, consumer};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};

use crate::support::{
    Seen, address, broker_at, commit, consuming_host, first_by_key, java, keys_in_turn, log_of, memory, noting,
    relaying, settings, until, until_published,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_message_of_another_producer_is_counted_and_a_dead_letter_and_its_partition_goes_on() {
    let (settings, store) = (settings(), memory());
    let broker = broker_at(&address(), &settings);
    let (log, host) = (log_of(&*store), relaying(&store, &broker, &settings));
    for n in 0..10 {
        commit(&*log, &format!("o-{}", n % 5), "order_placed", n, 0).await;
    }
    until_published(&host, 10).await;
    let topic = settings.topic_of("order_placed");
    let other: BaseProducer =
        rdkafka::ClientConfig::new().set("bootstrap.servers", address()).create().expect("a producer that is not ours");
    for partition in 0..3 {
        let record = BaseRecord::to(&topic).partition(partition).key("o-1").payload("{this is no JSON");
        other.send(record).expect("queued");
    }
    let keyless: BaseRecord<'_, (), str> = BaseRecord::to(&topic).partition(0).payload("");
    other.send(keyless).expect("queued");
    other.flush(Duration::from_secs(30)).expect("delivered");
    for n in 10..30 {
        commit(&*log, &format!("o-{}", n % 5), "order_placed", n, 0).await;
    }
    let seen = Seen::default();
    noting("billing", &seen).run(&host, DEFAULT_TENANT).await.expect("it runs");
    until("the events after them are processed", async || (seen.lock().expect("no panic").len() == 30).then_some(()))
        .await;
    assert_eq!(first_by_key(&seen.lock().expect("no panic")), (keys_in_turn(5, 30), 0));
    let status = until("they are counted", async || {
        host.consumers().into_iter().find(|it| it.unreadable == 4 && it.dead_letters == 4)
    });
    assert_eq!((status.await.processed, &*host.consumers()[0].group), (30, "billing"));
    let letters = host.dead_letters(DEFAULT_TENANT).expect("the tenant");
    let query = LetterQuery { group: Some("billing".into()), ..LetterQuery::default() };
    let items = letters.list(query.clone()).await.expect("listed").items;
    assert_eq!(items.len(), 4);
    for letter in &items {
        assert_eq!((&letter.original_topic, letter.status), (&topic, LetterStatus::Pending), "a person decides");
        let shown = serde_json::to_string(&letter.event).expect("JSON");
        assert!(shown.contains("\"offset\"") && shown.contains("\"partition\""), "{shown}");
    }
    // A retry reads the message again, and it is no better.
    letters.retry(&items[0].id, "try it".into()).await.expect("retried");
    let again = until("it fails again", async || {
        let letter = letters.get(&items[0].id).await.expect("there");
        (letter.attempts == 2).then_some(letter)
    });
    let again = again.await;
    assert_eq!(again.status, LetterStatus::Pending);
    assert!(again.last_error.is_some_and(|error| error.contains("cannot be read")));
    // Everything is committed, also behind what could not be read.
    let group = settings.topic_of("billing");
    until("nothing is left", async || {
        let offsets = broker.group_offsets(&group).await.expect("offsets");
        (offsets.len() == 3 && offsets.iter().all(|it| it.lag == 0)).then_some(())
    })
    .await;
    let shown = host.topics(DEFAULT_TENANT).expect("the tenant").get(&topic).await.expect("shown");
    let groups: Vec<_> = shown.groups.iter().map(|it| (&*it.group, it.lag)).collect();
    assert_eq!(groups, [("billing", 0)]);
    host.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_of_what_a_consumer_depends_on_does_not_drain_ten_thousand_messages_into_dead_letters() {
    const EVENTS: u64 = 10_000;
    let (settings, store) = (settings(), memory());
    let broker = broker_at(&address(), &settings);
    let (log, host) = (log_of(&*store), relaying(&store, &broker, &settings));
    for n in 0..EVENTS {
        commit(&*log, &format!("o-{}", n % 1_000), "order_placed", n, 0).await;
    }
    let letters = host.dead_letters(DEFAULT_TENANT).expect("the tenant");
    let policy = LetterPolicy { strategy: Strategy::Manual, ..LetterPolicy::default() };
    letters.put_policy(settings.topic_of("order_placed"), policy, "a person decides".into()).await.expect("put");
    let (seen, is_down, attempts) = (Seen::default(), Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
    let (noted, down, counted) = (Arc::clone(&seen), Arc::clone(&is_down), Arc::clone(&attempts));
    let retry =
        ProcessingRetry { first_ms: 1, factor: 1.0, max_ms: 1, jitter: 0.0, attempts: Some(2), then: Then::Park };
    let of_group = consumer("billing", ["order_placed"]).retry(retry).in_flight(100);
    let of_group = of_group.on("order_placed", move |event: RecordedEvent, _: serde_json::Value| {
        counted.fetch_add(1, Ordering::Relaxed);
        let fails = down.load(Ordering::Relaxed);
        if !fails {
            let noted_event = (event.commit.aggregate.id.to_string(), event.sequence_number);
            noted.lock().expect("no panic").push(noted_event);
        }
        async move { if fails { Err(HandleFailure::new("the database is down")) } else { Ok(()) } }
    });
    of_group.run(&host, DEFAULT_TENANT).await.expect("it runs");
    until("the breaker opens", async || host.consumers()[0].broken.then_some(())).await;
    let before = attempts.load(Ordering::Relaxed);
    until("it probes", async || (attempts.load(Ordering::Relaxed) >= before + 2).then_some(())).await;
    // Only letters of messages that were attempted count for the breaker. It opens at the tenth, and behind it none is added. A member that
    // has to join the group again, on a machine that is too busy for its heartbeats, counts from 0 once more.
    let query = LetterQuery { group: Some("billing".into()), limit: Some(1_000), ..LetterQuery::default() };
    let (first, following) = until("the letters that opened the breaker are stored", async || {
        let items = letters.list(query.clone()).await.expect("listed").items;
        let following = items.iter().filter(|letter| letter.follows).count();
        let first = items.len() - following;
        (first >= 10).then_some((first, following))
    })
    .await;
    assert!(first <= 20, "{first} of {EVENTS} messages failed into dead letters");
    // The others of a key wait behind its first one; a key has ten messages.
    assert!(following <= 9 * first, "{following} letters follow {first}");
    is_down.store(false, Ordering::Relaxed);
    until("all others are processed", async || {
        let letters = host.consumers()[0].dead_letters as usize;
        (seen.lock().expect("no panic").len() + letters >= EVENTS as usize).then_some(())
    })
    .await;
    let body = BulkBody {
        condition: Some(annals_core::Condition::All),
        ids: None,
        reason: "the database is back".to_owned(),
        by: None,
        dry_run: false,
    };
    letters.bulk(BulkAct::Retry, body).await.expect("retried");
    until("the letters are processed too", async || {
        (seen.lock().expect("no panic").len() >= EVENTS as usize).then_some(())
    })
    .await;
    assert_eq!(
        first_by_key(&seen.lock().expect("no panic")),
        (keys_in_turn(1_000, EVENTS), 0),
        "once, in order per key"
    );
    host.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_that_come_and_go_all_the_time_lose_nothing_and_keep_the_order_of_keys() {
    const EVENTS: u64 = 3_000;
    let (settings, store) = (settings(), memory());
    let broker = broker_at(&address(), &settings);
    let (log, publishing) = (log_of(&*store), relaying(&store, &broker, &settings));
    let seen = Seen::default();
    let member = async || {
        let host = consuming_host(&store, &broker, &settings);
        noting("billing", &seen).in_flight(8).run(&host, DEFAULT_TENANT).await.expect("it runs");
        host
    };
    let mut members = vec![member().await];
    for round in 0..10_u64 {
        for n in round * EVENTS / 10..(round + 1) * EVENTS / 10 {
            commit(&*log, &format!("o-{}", n % 50), "order_placed", n, 0).await;
        }
        members.push(member().await);
        let size = seen.lock().expect("no panic").len();
        until("somebody processes", async || (seen.lock().expect("no panic").len() > size).then_some(())).await;
        if members.len() > 3 {
            // One leaves in order; another is just gone, as after a panic.
            members.remove(0).drain().await;
            drop(members.remove(0));
        }
    }
    until("nothing is missing", async || {
        let (first, _) = first_by_key(&seen.lock().expect("no panic"));
        (first.values().map(Vec::len).sum::<usize>() == EVENTS as usize).then_some(())
    })
    .await;
    let (first, again) = first_by_key(&seen.lock().expect("no panic"));
    assert_eq!(first, keys_in_turn(50, EVENTS));
    assert!(again < EVENTS as usize, "{again} were processed again");
    for member in members {
        member.drain().await;
    }
    publishing.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_is_deleted_under_a_consumer_is_consumed_again_once_it_is_created_again() {
    let (settings, store) = (settings(), memory());
    let broker = broker_at(&address(), &settings);
    let (log, host) = (log_of(&*store), relaying(&store, &broker, &settings));
    let seen = Seen::default();
    noting("billing", &seen).run(&host, DEFAULT_TENANT).await.expect("it runs");
    // More than the new topic will have: a client cannot tell a topic that was created again from the old one while it is as long.
    for n in 0..200 {
        commit(&*log, "o-0", "order_placed", n, 0).await;
    }
    until("they are processed", async || (seen.lock().expect("no panic").len() == 200).then_some(())).await;
    let topic = settings.topic_of("order_placed");
    let mut delete = java("org.apache.kafka.tools.TopicCommand");
    delete.args(["--bootstrap-server", &address(), "--delete", "--topic", &topic]);
    assert!(delete.output().expect("java runs").status.success());
    // The consumer that notices joins its group again, which creates the topic, and that can be before the first look at it. Nothing is
    // published meanwhile, so one that has messages is the old one.
    until("the topic is gone, or is created again", async || {
        let states = broker.topics(Some(std::slice::from_ref(&topic))).await.ok()?;
        states.iter().all(|state| state.heads.iter().all(|head| *head == 0)).then_some(())
    })
    .await;
    for n in 200..210 {
        commit(&*log, "o-0", "order_placed", n, 0).await;
    }
    until("the new ones are processed", async || (seen.lock().expect("no panic").len() >= 210).then_some(())).await;
    assert_eq!(first_by_key(&seen.lock().expect("no panic")), (keys_in_turn(1, 210), 0));
    host.drain().await;
}
