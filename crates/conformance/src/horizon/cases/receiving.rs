//! What a consumer stores.

use std::sync::Arc;

use annals_core::filters::{FilterDefinition, FilterName};
use annals_core::handlers::{HandlerDefinition, Reason};
use annals_core::horizon::{Consent, HorizonError, IntakeState, SubscriptionDefinition};
use annals_core::processing::PartitionBy;
use annals_core::{Code, DEFAULT_SCOPE, DEFAULT_TENANT, Included, NewEvent, StreamQuery, Streams, Verdicts};

use crate::Subject;
use crate::closing::Closing;
use crate::handlers::opened::{Opened, seconds};
use crate::horizon::words::{A, Bridge, STREAM, consent, reason, subscription};
use crate::receiving::SCOPE;
use crate::sample::event;

/// Type, data, source, time and origin are those of the producer's event.
pub async fn events_are_received_once_with_what_came_with_them(subject: &dyn Subject) {
    let bridge = Bridge::of(subject).await;
    bridge.produce("placed", &["a"]).await;
    bridge.produce("paid", &["a"]).await;
    bridge.produce_event("a", NewEvent { public: true, generation: 3, ..event("placed", 9) }).await;
    bridge.consent().await;
    bridge.subscribe().await;
    let events = bridge.has_received(2).await;
    let produced = bridge.produced.read(annals_core::LogQuery::default()).await.expect("reads").events;
    for (place, event, sent) in [(0, &events[0], &produced[0]), (1, &events[1], &produced[2])] {
        assert_eq!(
            (event.sequence_number, &event.event_type, event.generation),
            (place, &sent.event_type, sent.generation)
        );
        assert_eq!((&event.data, event.time), (&sent.data, sent.time));
        assert_eq!(event.commit.aggregate.event_source(), Some("a"), "it is of no aggregate here");
        let from = event.commit.received.as_ref().expect("received");
        assert_eq!(
            (from.sequence_number, from.position, from.consent),
            (sent.sequence_number, place, consent("c").uuid())
        );
        let of = &from.subscription;
        assert_eq!((&*of.producer, &*of.stream, &*of.partition), ("default", STREAM, A));
        assert!(!event.public, "it is not for partners of the consumer");
    }
    bridge.produce("placed", &["a"]).await;
    assert_eq!(bridge.numbers(3).await, [0, 2, 3]);
}

/// Other partitions are skipped.
pub async fn one_partition_is_received_and_its_positions_have_holes(subject: &dyn Subject) {
    let bridge = Bridge::connected(subject).await;
    bridge.produce("placed", &["b", "a", "b", "b", "a", "b"]).await;
    assert_eq!(bridge.numbers(2).await, [1, 4]);
    let caught_up = bridge.until(|status| status.head == 6 && status.lag == 0).await;
    assert_eq!((caught_up.position, caught_up.sequence_number), (5, Some(4)));
    bridge.produce("placed", &["b", "a"]).await;
    assert_eq!(bridge.numbers(3).await, [1, 4, 7]);
}

/// It continues across restarts of the host.
pub async fn a_subscription_continues_where_it_was(subject: &dyn Subject) {
    let bridge = Bridge::connected(subject).await;
    bridge.produce("placed", &["a", "a"]).await;
    assert_eq!(bridge.numbers(2).await, [0, 1]);
    let bridge = bridge.restarted().await;
    bridge.produce("placed", &["a"]).await;
    assert_eq!(bridge.numbers(3).await, [0, 1, 2]);
}

/// It does not restart at once, although its definition can be read.
pub async fn a_subscription_pauses_while_its_store_receives_nothing(subject: &dyn Subject) {
    let producer = Bridge::of(subject).await;
    producer.consent().await;
    producer.produce("placed", &["a"]).await;
    producer.has_entries(1).await;
    let (store, closing) = Closing::before(Arc::clone(&producer.it.store));
    let bridge = Bridge::on(Opened::on(store, Arc::clone(&producer.it.clock)));
    bridge.subscribe().await;
    closing.until_paused(&bridge.it, &format!("subscription/{DEFAULT_TENANT}/s")).await;
    assert_eq!(bridge.numbers(1).await, [0]);
}

/// Both have one position.
pub async fn two_subscriptions_of_the_same_receive_each_event_once(subject: &dyn Subject) {
    let bridge = Bridge::connected(subject).await;
    bridge.define(SubscriptionDefinition { name: "t".into(), ..subscription("s") }).await;
    for _ in 0..10 {
        bridge.produce("placed", &["a"]).await;
    }
    assert_eq!(bridge.numbers(10).await, (0..10).collect::<Vec<_>>());
}

/// This holds whichever of them owns the subscription.
pub async fn two_hosts_receive_each_event_once(subject: &dyn Subject) {
    let one = Bridge::of(subject).await;
    let other = Bridge::on(Opened::on(one.it.store.clone(), one.it.clock.clone()));
    one.it.host.start_defined();
    other.it.host.start_defined();
    one.consent().await;
    one.subscribe().await;
    assert!(!other.consumer.put_subscription(subscription("s")).await.expect("unchanged"));
    for _ in 0..20 {
        one.produce("placed", &["a"]).await;
    }
    one.has_received(20).await;
    one.it.host.drain().await;
    other.produce("placed", &["a"]).await;
    assert_eq!(other.numbers(21).await, (0..21).collect::<Vec<_>>());
}

/// The position stays with the log of the scope.
pub async fn a_deleted_subscription_receives_nothing_and_continues_when_it_is_defined_again(subject: &dyn Subject) {
    let bridge = Bridge::connected(subject).await;
    bridge.produce("placed", &["a"]).await;
    bridge.has_received(1).await;
    bridge.consumer.delete_subscription("s", reason()).await.expect("deleted");
    let unknown = bridge.consumer.subscription("s").await.expect_err("it is gone");
    assert_eq!(unknown, HorizonError::UnknownSubscription("s".to_owned()));
    while bridge.it.host.tasks().iter().any(|task| task.name.starts_with("subscription/")) {
        bridge.pass().await;
    }
    bridge.produce("placed", &["a"]).await;
    bridge.has_entries(2).await;
    bridge.has_received(1).await;
    bridge.subscribe().await;
    assert_eq!(bridge.numbers(2).await, [0, 1]);
}

/// Each keeps its own order and position.
pub async fn a_scope_receives_from_several_producers(subject: &dyn Subject) {
    let bridge = Bridge::connected(subject).await;
    let of_b = Consent::new("b", STREAM).of_partition("order/b");
    assert!(bridge.producer.put_consent(of_b).await.expect("given"));
    bridge.define(SubscriptionDefinition { name: "b".into(), ..subscription("s") }.of_partition("order/b")).await;
    bridge.produce("placed", &["a", "b", "b", "a"]).await;
    let events = bridge.has_received(4).await;
    for (partition, due) in [(A, [0, 3]), ("order/b", [1, 2])] {
        let from = events.iter().filter_map(|event| event.commit.received.as_ref());
        let of = from.filter(|from| *from.subscription.partition == *partition);
        assert_eq!(of.map(|from| from.sequence_number).collect::<Vec<_>>(), due, "{partition}");
    }
}

/// A handler names the scope.
pub async fn handlers_process_the_log_of_the_scope(subject: &dyn Subject) {
    let bridge = Bridge::connected(subject).await;
    let definition = HandlerDefinition::new("h").types(["placed"]).of_scope(SCOPE);
    bridge.it.define(definition.clone()).await;
    bridge.produce("placed", &["a", "a"]).await;
    bridge.has_received(2).await;
    let deliveries = bridge.it.pull("h").await;
    assert_eq!(deliveries[0].event.commit.received.as_ref().map(|from| from.sequence_number), Some(0));
    bridge.it.done("h", &deliveries[0]).await;
    assert_eq!(bridge.it.handle_all("h", 2).await, [1]);
    // The default scope is not affected, and the scope cannot change.
    let moved = bridge.it.handlers.put(HandlerDefinition::new("h").types(["placed"])).await;
    assert!(matches!(moved, Err(annals_core::handlers::HandlerError::Changed { setting, .. }) if setting == "scope"));
    let unknown = bridge.it.handlers.put(definition.of_scope("nowhere")).await.expect_err("no such scope");
    assert_eq!(unknown.code(), Code::UnknownScope);
}

/// The event is shown with its origin and as not public, when it arrives and also after a restart.
pub async fn a_handler_gets_a_received_event_as_the_log_of_its_scope_shows_it(subject: &dyn Subject) {
    let bridge = Bridge::connected(subject).await;
    bridge.it.define(HandlerDefinition { batch: 2, ..HandlerDefinition::new("h").of_scope(SCOPE) }).await;
    // The owner reads before there is anything, so the events come to it as they are received.
    assert!(bridge.it.pull_now("h").await.is_empty());
    bridge.produce("placed", &["a", "a"]).await;
    let shown = bridge.has_received(2).await;
    let delivered = |deliveries: Vec<annals_core::handlers::Delivery>| -> Vec<_> {
        deliveries.into_iter().map(|delivery| delivery.event).collect()
    };
    let mut live = delivered(bridge.it.pull("h").await);
    live.truncate(1);
    assert_eq!(live, shown[..1]);
    let bridge = bridge.restarted().await;
    assert_eq!(delivered(bridge.it.pull("h").await), shown);
    assert!(shown.iter().all(|event| !event.public && event.commit.received.is_some()));
}

/// Commits to another log of the tenant do not count.
pub async fn the_lag_of_a_handler_is_measured_against_the_log_of_its_scope(subject: &dyn Subject) {
    let bridge = Bridge::connected(subject).await;
    bridge.it.define(HandlerDefinition::new("h").of_scope(SCOPE)).await;
    bridge.it.commit("placed", &["x", "y", "z"]).await;
    bridge.produce("placed", &["a", "a"]).await;
    bridge.has_received(2).await;
    let status = bridge.it.handlers.get("h").await.expect("defined");
    assert_eq!((status.position, status.head, status.lag), (0, 2, 2));
    assert_eq!(bridge.it.handle_all("h", 2).await, [0, 1]);
    assert_eq!(bridge.it.handlers.get("h").await.expect("defined").lag, 0);
    // A result is reused for a second.
    bridge.it.advance(1_000);
    let health = bridge.it.host.health().await.expect("the store can be read");
    let of = health.iter().find(|of| of.kind == "handler" && of.name == "h").expect("defined");
    assert_eq!((of.position, of.head, of.lag()), (2, 2, 0));
}

/// They have the shapes of handlers with partitions and of handlers without. The default scope has states of its own.
pub async fn the_states_of_a_scope_are_shown_in_the_layout_of_the_dolittle_runtime(subject: &dyn Subject) {
    let bridge = Bridge::connected(subject).await;
    let it = &bridge.it;
    let by_n = HandlerDefinition::new("by-n").partitioned(PartitionBy::Data("n".to_owned()), 2).of_scope(SCOPE);
    it.define(HandlerDefinition { retry: seconds(), ..by_n }).await;
    it.define(HandlerDefinition { retry: seconds(), ..HandlerDefinition::new("plain").of_scope(SCOPE) }).await;
    it.define(HandlerDefinition::new("of-default")).await;
    bridge.produce("placed", &["a", "a"]).await;
    bridge.has_received(2).await;
    for delivery in it.pull_count("by-n", 2).await {
        match delivery.position {
            0 => it.fail("by-n", &delivery).await,
            _ => it.done("by-n", &delivery).await,
        }
    }
    it.done("plain", &it.pull("plain").await[0]).await;
    it.fail("plain", &it.pull("plain").await[0]).await;
    let states = it.handlers.states(SCOPE).await.expect("reads");
    assert_eq!(states.len(), 2, "{states:?}");
    let of = |partitioned: bool| {
        let found = states.iter().find(|state| state.get_bool("Partitioned").ok() == Some(partitioned));
        found.expect("a state of this shape")
    };
    let number = |of: &annals_core::bson::Document, name: &str| of.get(name).map(ToString::to_string);
    let (partitioned, plain) = (of(true), of(false));
    assert_eq!(number(partitioned, "Position").as_deref(), Some("2"));
    let failing = partitioned.get_document("FailingPartitions").expect("a document");
    assert_eq!(failing.keys().map(String::as_str).collect::<Vec<_>>(), ["0"]);
    let one = failing.get_document("0").expect("an entry");
    assert_eq!((number(one, "Position").as_deref(), one.get_str("Reason").ok()), (Some("0"), Some("down")));
    assert_eq!((number(plain, "Position").as_deref(), plain.get_bool("IsFailing").ok()), (Some("1"), Some(true)));
    assert_eq!(it.handlers.states(DEFAULT_SCOPE).await.expect("reads").len(), 1);
    assert_eq!(it.handlers.states("nowhere").await.expect_err("no such scope").code(), Code::UnknownScope);
}

/// A filter of the scope fills a stream of the scope, and a handler processes that.
pub async fn filters_and_handlers_process_the_log_of_the_scope(subject: &dyn Subject) {
    let bridge = Bridge::connected(subject).await;
    let filters = bridge.it.host.filters(DEFAULT_TENANT).expect("declared");
    let inbox = FilterDefinition {
        name: FilterName::of_scope(SCOPE, "inbox-orders"),
        ..FilterDefinition::new("x").types(["placed"]).partitioned(PartitionBy::Data("n".to_owned()))
    };
    assert!(filters.put(inbox).await.expect("defined"));
    bridge.it.define(HandlerDefinition::new("h").stream("inbox-orders").of_scope(SCOPE)).await;
    bridge.produce("placed", &["a", "a", "a"]).await;
    bridge.has_received(3).await;
    assert_eq!(bridge.it.handle_all("h", 3).await, [0, 1, 2]);
    let streams = bridge.it.store.streams(DEFAULT_TENANT, SCOPE).expect("declared");
    assert_eq!(streams.read(StreamQuery::new("inbox-orders")).await.expect("reads").entries.len(), 3);
}

/// Neither the stream of the same name in another scope, nor the public stream of that name, nor another scope's log ends a wait.
pub async fn a_wait_is_for_the_stream_and_the_log_of_its_scope_only(subject: &dyn Subject) {
    let bridge = Bridge::connected(subject).await;
    bridge.produce("placed", &["a", "a", "a"]).await;
    bridge.has_received(3).await;
    bridge.it.commit("placed", &["b", "b", "b"]).await;
    let default = bridge.it.store.streams(DEFAULT_TENANT, DEFAULT_SCOPE).expect("always there");
    let scoped = bridge.it.store.streams(DEFAULT_TENANT, SCOPE).expect("declared");
    let append = async |streams: &Arc<dyn Streams>, stream: &str, n: u64| {
        let verdicts = Verdicts::new(stream.to_owned(), n..n + 1).include(Included::new(n));
        streams.append(verdicts).await.expect("appended");
    };
    let wait_past = |streams: &Arc<dyn Streams>, head: u64| {
        let streams = Arc::clone(streams);
        tokio::spawn(async move { streams.wait_past("stream-1", head).await })
    };
    let of_default = wait_past(&default, 0);
    for n in 0..2 {
        append(&scoped, "stream-1", n).await;
        append(&default, "public-stream-1", n).await;
        tokio::task::yield_now().await;
    }
    assert!(!of_default.is_finished(), "its own stream is empty");
    append(&default, "stream-1", 0).await;
    assert_eq!(of_default.await.expect("the task ends well"), Ok(1));
    let of_scope = wait_past(&scoped, 2);
    for n in 1..3 {
        append(&default, "stream-1", n).await;
        tokio::task::yield_now().await;
    }
    assert!(!of_scope.is_finished(), "its own stream has no third entry");
    append(&scoped, "stream-1", 2).await;
    assert_eq!(of_scope.await.expect("the task ends well"), Ok(3));

    let log = Arc::clone(&bridge.it.log);
    let of_log = tokio::spawn(async move { log.wait_past(3).await });
    bridge.produce("placed", &["a"]).await;
    bridge.has_received(4).await;
    assert!(!of_log.is_finished(), "what a scope receives is not in the default scope's log");
    bridge.it.commit("placed", &["b"]).await;
    assert_eq!(of_log.await.expect("the task ends well"), Ok(4));
}

/// Commits never reach such a handler.
pub async fn a_wait_for_a_handler_of_another_scope_is_refused(subject: &dyn Subject) {
    let bridge = Bridge::connected(subject).await;
    bridge.it.define(HandlerDefinition::new("h").of_scope(SCOPE)).await;
    let refused = bridge.it.host.stage(DEFAULT_TENANT, "handled:h").await.expect_err("nothing is committed there");
    assert_eq!(refused.code(), Code::InvalidWait);
    let Reason { reason, .. } = reason();
    assert!(!reason.is_empty() && bridge.status().await.state != IntakeState::Blocked);
}

/// The clock is set back by an hour, and then far ahead.
pub async fn a_clock_that_jumps_loses_and_repeats_no_event(subject: &dyn Subject) {
    let bridge = Bridge::connected(subject).await;
    bridge.produce("placed", &["a"]).await;
    bridge.until(|status| status.state == IntakeState::Running && status.lag == 0 && status.position == 1).await;
    for (millis, due) in [(-3_600_000, vec![0, 1]), (48 * 3_600_000, vec![0, 1, 2])] {
        bridge.it.advance(millis);
        bridge.produce("placed", &["a"]).await;
        assert_eq!(bridge.numbers(due.len()).await, due, "the clock jumped by {millis} ms");
    }
}
