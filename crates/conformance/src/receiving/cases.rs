//! Events are received once, without gaps, and with everything that came with them.

use std::ops::Range;
use std::sync::Arc;

use annals_core::{
    Aggregate, AggregateFilter, ByteString, Code, DEFAULT_SCOPE, DEFAULT_TENANT, EventLog, Filter, Follower, Included,
    IncomingEvent, LogQuery, ReceiveError, Received, ReceivedBatch, ReceivedFrom, Receiving, RecordedEvent, ScanQuery,
    SequenceNumber, Store, StoreError, StreamError, StreamQuery, Subscription, SubscriptionState, Timestamp, Uuid,
    Verdicts, limits,
};
use serde_json::json;

use super::SCOPE;
use crate::Subject;
use crate::sample::{data, event_of_bytes, ns_of, whole_log};

struct Opened {
    store: Arc<dyn Store>,
    log: Arc<dyn EventLog>,
    receiving: Arc<dyn Receiving>,
}

async fn open(subject: &dyn Subject) -> Opened {
    let store = subject.open().await;
    let log = store.log(DEFAULT_TENANT, SCOPE).expect("the scope is declared");
    let receiving = store.receiving(DEFAULT_TENANT, SCOPE).expect("the scope is declared");
    Opened { store, log, receiving }
}

async fn reopen(subject: &dyn Subject, opened: Opened) -> Opened {
    opened.store.close().await;
    drop(opened);
    open(subject).await
}

/// Returns a subscription. The UUIDs are names as in a Dolittle Runtime, which every layout can write.
fn subscription(partition: &str) -> Subscription {
    let id = |n: u128| ByteString::from(Uuid::from_u128(n).to_string());
    Subscription { producer: id(1), tenant: id(2), stream: id(3), partition: partition.into() }
}

/// Returns the event at a position. Its number in the producer's log is ten times the position, plus one.
fn incoming(position: u64) -> IncomingEvent {
    IncomingEvent {
        position,
        sequence_number: 10 * position + 1,
        event_type: "order_placed".into(),
        generation: 2,
        data: data(json!({ "n": position })),
        time: Timestamp::from_millis(1_700_000_000_000 + position as i64),
        source: format!("order-{}", position % 3).into(),
        correlation_id: Some(Uuid::from_u128(77).to_string().into()),
    }
}

/// Returns the events at these positions, which follow `from`.
fn batch(partition: &str, from: u64, positions: impl IntoIterator<Item = u64>) -> ReceivedBatch {
    let events = positions.into_iter().map(incoming).collect();
    ReceivedBatch { subscription: subscription(partition), consent: Uuid::from_u128(9), from, events }
}

fn state(position: u64) -> SubscriptionState {
    SubscriptionState { position, sequence_number: position.checked_sub(1).map(|last| 10 * last + 1) }
}

async fn receive(opened: &Opened, batch: ReceivedBatch) -> Received {
    opened.receiving.receive(batch).await.expect("it is received")
}

async fn refused(opened: &Opened, batch: ReceivedBatch) -> ReceiveError {
    opened.receiving.receive(batch).await.expect_err("it is refused")
}

async fn stands(opened: &Opened, partition: &str) -> SubscriptionState {
    opened.receiving.state(&subscription(partition)).await.expect("it is read")
}

fn from_of(event: &RecordedEvent) -> &ReceivedFrom {
    event.commit.received.as_deref().expect("it was received")
}

fn positions(events: &[RecordedEvent]) -> Vec<u64> {
    events.iter().map(|event| from_of(event).position).collect()
}

/// Content, times, source and correlation are the producer's. Every read of the log shows the origin of each event, also after reopening.
pub async fn received_events_are_read_with_what_came_with_them(subject: &dyn Subject) {
    let mut opened = open(subject).await;
    let at = annals_core::Clock::now(&*subject.clock());
    let given = batch("p", 0, [0, 2, 3]);
    let received = receive(&opened, given.clone()).await;
    assert_eq!(received, Received { first: 0, state: state(4), duplicate: false });
    for _ in 0..2 {
        let events = whole_log(&opened.log).await;
        assert_eq!(events.len(), 3);
        for (event, given) in events.iter().zip(&given.events) {
            assert_eq!((&event.event_type, event.generation), (&given.event_type, given.generation));
            assert_eq!((&event.data, event.time, event.ordinal), (&given.data, given.time, 0));
            assert_eq!((event.public, event.tags.len(), &event.metadata), (false, 0, &None));
            let commit = &event.commit;
            assert_eq!(commit.aggregate, Aggregate::of_source(given.source.clone()));
            assert_eq!((commit.version, &commit.request_id), (0, &None));
            assert_eq!((commit.time, &commit.correlation_id), (given.time, &given.correlation_id));
            let from = from_of(event);
            assert_eq!(from.subscription, subscription("p"));
            assert_eq!((from.sequence_number, from.position), (given.sequence_number, given.position));
            assert_eq!((from.consent, from.at), (Uuid::from_u128(9), at));
        }
        let filter = Filter { types: vec!["order_placed".into()], ..Filter::default() };
        let query = LogQuery { filter, backwards: true, ..LogQuery::default() };
        let mut backwards = opened.log.read(query).await.expect("it is read").events;
        backwards.reverse();
        assert_eq!(backwards, events);
        let mut lent = Vec::new();
        let mut visit = |event: annals_core::EventRef<'_>| {
            lent.push(event.to_recorded());
            std::ops::ControlFlow::Continue(())
        };
        opened.log.scan(ScanQuery::default(), &mut visit).await.expect("it is read");
        assert_eq!(lent, events);
        let aggregate = Some(AggregateFilter { name: "order".into(), id: None });
        let of_orders = LogQuery { filter: Filter { aggregate, ..Filter::default() }, ..LogQuery::default() };
        assert_eq!(opened.log.read(of_orders).await.expect("it is read").events, []);
        opened = reopen(subject, opened).await;
    }
}

/// The next batch begins after the last event, wherever that is. A subscription that received nothing is at 0.
pub async fn a_subscription_stands_behind_its_last_event(subject: &dyn Subject) {
    let opened = open(subject).await;
    assert_eq!(stands(&opened, "p").await, SubscriptionState::default());
    receive(&opened, batch("p", 0, [4])).await;
    assert_eq!(stands(&opened, "p").await, state(5));
    let opened = reopen(subject, opened).await;
    assert_eq!(stands(&opened, "p").await, state(5));
    assert_eq!(receive(&opened, batch("p", 5, [5, 9])).await.state, state(10));
    assert_eq!(positions(&whole_log(&opened.log).await), [4, 5, 9]);
}

/// The same batch again, or a part of what was received, is answered as a repeat, even after other batches and after reopening.
pub async fn a_repeated_batch_adds_nothing(subject: &dyn Subject) {
    let mut opened = open(subject).await;
    let first = receive(&opened, batch("p", 0, [0, 1])).await;
    assert_eq!(receive(&opened, batch("p", 0, [0, 1])).await, Received { duplicate: true, ..first });
    receive(&opened, batch("p", 2, [2, 3])).await;
    for _ in 0..2 {
        let again = |first| Received { first, state: state(4), duplicate: true };
        assert_eq!(receive(&opened, batch("p", 0, [0, 1])).await, again(0));
        assert_eq!(receive(&opened, batch("p", 1, [1, 2])).await, again(1), "cut elsewhere");
        assert_eq!(receive(&opened, batch("p", 0, [0, 1, 2, 3])).await, again(0));
        assert_eq!(receive(&opened, batch("p", 3, [3])).await, again(3));
        assert_eq!(whole_log(&opened.log).await.len(), 4);
        opened = reopen(subject, opened).await;
    }
}

/// In a scope, appends follow the same rules as in the default scope. A stream of the same name there is another stream.
pub async fn a_stream_of_the_scope_has_each_event_once(subject: &dyn Subject) {
    let opened = open(subject).await;
    receive(&opened, batch("p", 0, 0..4)).await;
    let streams = opened.store.streams(DEFAULT_TENANT, SCOPE).expect("the scope is declared");
    let run = |stream: &'static str, judged: Range<u64>, partition: &'static str| {
        let verdicts = Verdicts::new(stream, judged.clone());
        judged.fold(verdicts, |verdicts, n| verdicts.include(Included::of(n, partition)))
    };
    let numbers = async |stream: &'static str| {
        let entries = streams.read(StreamQuery::new(stream)).await.expect("it is read").entries;
        entries.iter().map(|entry| entry.sequence_number).collect::<Vec<_>>()
    };
    assert_eq!(streams.append(run("at-once", 0..4, "p")).await.expect("appended").positions, 0..4);
    for part in [0..2, 2..4] {
        let positions = part.clone();
        assert_eq!(streams.append(run("in-parts", part, "p")).await.expect("appended").positions, positions);
    }
    assert!(streams.append(run("in-parts", 3..4, "p")).await.expect("it is there").duplicate);
    assert_eq!((numbers("at-once").await, numbers("in-parts").await), (vec![0, 1, 2, 3], vec![0, 1, 2, 3]));

    streams.append(run("three", 0..3, "p")).await.expect("appended");
    let all_four = streams.append(run("three", 0..4, "p")).await;
    assert_eq!(all_four, Err(StreamError::Moved { from: 0, progress: 3 }));
    let elsewhere = streams.append(run("three", 1..3, "q")).await;
    assert_eq!(elsewhere, Err(StreamError::VerdictsDiffer { sequence_number: 1 }));
    assert_eq!(numbers("three").await, [0, 1, 2]);

    let of_default = opened.store.streams(DEFAULT_TENANT, DEFAULT_SCOPE).expect("always there");
    assert_eq!(of_default.stream("three").await.expect("it is read").head, 0);
}

/// A batch ahead of the stored position, or overlapping it, is refused with the state, and nothing of it is stored.
pub async fn a_gap_and_an_overlap_are_refused_with_what_is_stored(subject: &dyn Subject) {
    let opened = open(subject).await;
    let moved = |from, position| ReceiveError::Moved { from, stored: state(position) };
    assert_eq!(refused(&opened, batch("p", 1, [1])).await, moved(1, 0));
    receive(&opened, batch("p", 0, [0, 1])).await;
    assert_eq!(refused(&opened, batch("p", 3, [3])).await, moved(3, 2));
    assert_eq!(refused(&opened, batch("p", 1, [1, 2])).await, moved(1, 2));
    assert_eq!(refused(&opened, batch("p", 0, [2])).await, moved(0, 2));
    assert_eq!(moved(0, 2).code(), Code::SubscriptionMoved);
    assert_eq!(stands(&opened, "p").await, state(2));
    assert_eq!(receive(&opened, batch("p", 2, [2, 3])).await.first, 2);
    assert_eq!(positions(&whole_log(&opened.log).await), [0, 1, 2, 3]);
}

/// A producer whose log differs from before is refused.
pub async fn a_repeat_with_other_events_is_refused(subject: &dyn Subject) {
    let opened = open(subject).await;
    receive(&opened, batch("p", 0, [0, 2, 3])).await;
    let mut other = batch("p", 0, [0, 2]);
    other.events[1].sequence_number = 22;
    let due = ReceiveError::OtherEvents { position: 2, sequence_number: 22 };
    assert_eq!((due.code(), refused(&opened, other).await), (Code::OtherEvents, due));
    let elsewhere = refused(&opened, batch("p", 0, [0, 1])).await;
    assert_eq!(elsewhere, ReceiveError::OtherEvents { position: 1, sequence_number: 11 });
    assert_eq!(whole_log(&opened.log).await.len(), 3);
}

/// The producer's numbers ascend along a subscription.
pub async fn a_number_that_does_not_follow_is_refused(subject: &dyn Subject) {
    let opened = open(subject).await;
    receive(&opened, batch("p", 0, [0, 1])).await;
    for number in [1, 5, 11] {
        let mut again = batch("p", 2, [2]);
        again.events[0].sequence_number = number;
        let due = ReceiveError::OtherEvents { position: 2, sequence_number: number };
        assert_eq!(refused(&opened, again).await, due);
    }
    assert_eq!(stands(&opened, "p").await, state(2));
    assert_eq!(whole_log(&opened.log).await.len(), 2);
}

/// Another partition, stream, tenant or producer is another subscription, with the same numbers.
pub async fn subscriptions_do_not_mind_one_another(subject: &dyn Subject) {
    let opened = open(subject).await;
    let other = || ByteString::from(Uuid::from_u128(99).to_string());
    let mut all = vec![subscription("p"), subscription("q"), subscription("")];
    all.push(Subscription { stream: other(), ..subscription("p") });
    all.push(Subscription { tenant: other(), ..subscription("p") });
    all.push(Subscription { producer: other(), ..subscription("p") });
    for (n, subscription) in (0..).zip(&all) {
        let batch = ReceivedBatch { subscription: subscription.clone(), ..batch("", 0, [0, 1]) };
        assert_eq!(receive(&opened, batch).await, Received { first: 2 * n, state: state(2), duplicate: false });
    }
    let opened = reopen(subject, opened).await;
    let events = whole_log(&opened.log).await;
    for (events, subscription) in events.chunks(2).zip(&all) {
        assert!(events.iter().all(|event| from_of(event).subscription == *subscription));
        assert_eq!(opened.receiving.state(subscription).await, Ok(state(2)));
    }
}

/// Many callers send from one position, with batches of different sizes. The log has each event once, and every caller gets an answer.
pub async fn of_many_racing_batches_one_is_received(subject: &dyn Subject) {
    let opened = open(subject).await;
    for round in 0..8 {
        let from = stands(&opened, "p").await.position;
        let callers: Vec<_> = (1..=6)
            .map(|length| {
                let receiving = opened.receiving.clone();
                tokio::spawn(async move { receiving.receive(batch("p", from, from..from + length)).await })
            })
            .collect();
        let mut received = 0;
        for caller in callers {
            match caller.await.expect("the task ends well") {
                Ok(answer) => received += u64::from(!answer.duplicate),
                Err(ReceiveError::Moved { from: told, stored }) => {
                    assert_eq!(told, from);
                    assert!(stored.position > from, "round {round}: nobody was received");
                }
                Err(error) => panic!("round {round}: {error}"),
            }
        }
        assert_eq!(received, 1, "round {round}");
    }
    let events = whole_log(&opened.log).await;
    assert!(positions(&events).into_iter().eq(0..events.len() as u64));
    assert_eq!(stands(&opened, "p").await, state(events.len() as u64));
}

/// With concurrent batches of several subscriptions, the log has no gap, each batch is adjacent, and each subscription's events are in
/// order.
pub async fn racing_batches_of_several_subscriptions_leave_no_gap(subject: &dyn Subject) {
    let opened = open(subject).await;
    let partitions = ["a", "b", "c", "d"];
    let callers: Vec<_> = partitions
        .map(|partition| {
            let receiving = opened.receiving.clone();
            tokio::spawn(async move {
                for n in 0..10 {
                    let from = 3 * n;
                    receiving.receive(batch(partition, from, from..from + 3)).await.expect("nobody else sends it");
                }
            })
        })
        .into_iter()
        .collect();
    for caller in callers {
        caller.await.expect("the task ends well");
    }
    let opened = reopen(subject, opened).await;
    let events = whole_log(&opened.log).await;
    assert!(events.iter().map(|event| event.sequence_number).eq(0..120));
    for together in events.chunks(3) {
        assert!(together.iter().all(|event| from_of(event).subscription == from_of(&together[0]).subscription));
    }
    for partition in partitions {
        let own = events.iter().filter(|event| from_of(event).subscription.partition == partition);
        assert!(own.map(|event| from_of(event).position).eq(0..30), "{partition}");
        assert_eq!(stands(&opened, partition).await, state(30));
    }
}

/// Followers of the scope are woken.
pub async fn a_follower_sees_what_is_received(subject: &dyn Subject) {
    let opened = open(subject).await;
    let mut follower = Follower::new(opened.log.clone(), 0, Filter::default());
    let seen = tokio::spawn(async move {
        let mut seen = Vec::new();
        while seen.len() < 6 {
            seen.extend(follower.next_page().await.expect("it is read"));
        }
        seen
    });
    for n in 0..3 {
        receive(&opened, batch("p", 2 * n, [2 * n, 2 * n + 1])).await;
    }
    let seen = seen.await.expect("the task ends well");
    assert_eq!(ns_of(&seen), [0, 1, 2, 3, 4, 5]);
    assert_eq!(positions(&seen), [0, 1, 2, 3, 4, 5]);
}

/// A batch may have the maximum number of events, and an event of the maximum size.
pub async fn a_batch_may_be_as_large_as_its_limits(subject: &dyn Subject) {
    let opened = open(subject).await;
    let most = limits::RECEIVED_MAX as u64;
    receive(&opened, batch("p", 0, 0..most)).await;
    let mut large = batch("p", most, [most, most + 1]);
    large.events[0].data = event_of_bytes("big", limits::EVENT_BYTES_MAX).data;
    receive(&opened, large.clone()).await;
    let opened = reopen(subject, opened).await;
    assert!(receive(&opened, large).await.duplicate);
    assert_eq!(stands(&opened, "p").await, state(most + 2));
    assert_eq!(opened.log.head().await, Ok(most + 2 as SequenceNumber));
}

/// The error names the first broken rule, and nothing is stored.
pub async fn a_batch_that_breaks_a_rule_is_refused_with_its_path(subject: &dyn Subject) {
    let opened = open(subject).await;
    let broken = async |change: &dyn Fn(&mut ReceivedBatch)| {
        let mut batch = batch("p", 1, [1, 2]);
        change(&mut batch);
        match refused(&opened, batch).await {
            ReceiveError::Invalid(invalid) => (invalid.code, invalid.path),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(broken(&|it| it.events.clear()).await, (Code::InvalidEvents, "events".into()));
    let many = |it: &mut ReceivedBatch| it.events = (1..=limits::RECEIVED_MAX as u64 + 1).map(incoming).collect();
    assert_eq!(broken(&many).await, (Code::InvalidEvents, "events".into()));
    let producer = (Code::InvalidId, "subscription.producer".into());
    assert_eq!(broken(&|it| it.subscription.producer = "".into()).await, producer);
    let position = (Code::InvalidRange, "events[1].position".into());
    assert_eq!(broken(&|it| it.events[1].position = 1).await, position);
    assert_eq!(broken(&|it| it.from = 2).await, (Code::InvalidRange, "events[0].position".into()));
    let number = (Code::InvalidRange, "events[1].sequence_number".into());
    assert_eq!(broken(&|it| it.events[1].sequence_number = 11).await, number);
    assert_eq!(broken(&|it| it.events[0].source = "".into()).await, (Code::InvalidId, "events[0].source".into()));
    let wrong_type = (Code::InvalidName, "events[1].type".into());
    assert_eq!(broken(&|it| it.events[1].event_type = "a b".into()).await, wrong_type);
    let wrong = Subscription { stream: "".into(), ..subscription("p") };
    assert!(matches!(opened.receiving.state(&wrong).await, Err(ReceiveError::Invalid(_))));
    assert_eq!(opened.log.head().await, Ok(0));
}

/// Committed and received events are kept apart.
pub async fn the_default_scope_receives_nothing(subject: &dyn Subject) {
    let opened = open(subject).await;
    assert!(opened.store.receiving(DEFAULT_TENANT, DEFAULT_SCOPE).is_err());
    assert!(opened.store.receiving(DEFAULT_TENANT, "unknown").is_err());
    assert!(opened.store.receiving("unknown", SCOPE).is_err());
}

/// A closed store accepts nothing.
pub async fn a_closed_store_receives_nothing(subject: &dyn Subject) {
    let opened = open(subject).await;
    receive(&opened, batch("p", 0, [0])).await;
    opened.store.close().await;
    assert_eq!(refused(&opened, batch("p", 1, [1])).await, ReceiveError::Store(StoreError::Closed));
    let opened = reopen(subject, opened).await;
    assert_eq!(whole_log(&opened.log).await.len(), 1);
}
