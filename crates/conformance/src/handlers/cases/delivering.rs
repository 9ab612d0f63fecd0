//! What is delivered, and in which order.

use annals_core::bson::{DateTime, oid::ObjectId, rawdoc};
use annals_core::handlers::{HandlerDefinition, PullBody, Settlement, Start, read_deliveries, write_deliveries};
use annals_core::processing::PartitionBy;
use annals_core::{DEFAULT_SCOPE, DEFAULT_TENANT, Data, Included, NewCommit, NewEvent, Reached, StreamQuery, Verdicts};

use crate::Subject;
use crate::handlers::opened::{Opened, positions};

/// A settled event never comes again.
pub async fn events_of_a_partition_come_one_after_the_other_and_partitions_side_by_side(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    it.by_aggregate("h").await;
    it.commit("placed", &["a", "a", "b", "a"]).await;
    let first = it.pull_count("h", 2).await;
    assert_eq!(positions(&first), [0, 2]);
    assert!(it.pull_now("h").await.is_empty(), "both partitions are in flight");
    let b = first.iter().find(|delivery| delivery.position == 2).expect("came");
    assert_eq!((b.partition.as_deref(), b.attempt, &b.last_reason), (Some("order/b"), 1, &None));
    it.done("h", b).await;
    let a = first.iter().find(|delivery| delivery.position == 0).expect("came");
    it.done("h", a).await;
    assert_eq!(it.handle_all("h", 4).await, [1, 3]);
    let again = it.settle("h", vec![Settlement::done(a.token.clone())]).await;
    assert_eq!(again[0].error.as_deref(), Some("lease_lost"));
}

/// Other callers are not kept waiting.
pub async fn a_pull_waits_for_an_event_and_ends_when_its_time_is_up(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    it.by_aggregate("h").await;
    let (waited, ()) = tokio::join!(it.pull("h"), it.commit("placed", &["a"]));
    assert_eq!(positions(&waited), [0]);
    it.done("h", &waited[0]).await;
    let pull = PullBody { wait_ms: 1_000, ..PullBody::default() };
    let times_up = async {
        // The owner may read the clock only after it has the pull.
        loop {
            it.advance(100);
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        pulled = it.handlers.pull("h", pull) => assert_eq!(pulled.expect("ends"), []),
        () = times_up => {}
    }
}

/// So a handler of rare events does not lag because of a log of other events.
pub async fn events_of_other_types_move_the_position(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    it.define(HandlerDefinition::new("h").types(["rare"])).await;
    it.commit("common", &["a", "b", "c"]).await;
    it.commit("rare", &["a"]).await;
    it.commit("common", &["a", "b"]).await;
    assert_eq!(it.handle_all("h", 6).await, [3]);
    let status = it.handlers.get("h").await.expect("defined");
    assert_eq!((status.head, status.lag, status.lag_seconds), (6, 0, 0));
}

/// The start is the head at its definition, whenever the first pull comes.
pub async fn a_handler_that_begins_with_the_latest_gets_only_what_comes(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    it.commit("placed", &["a", "b"]).await;
    it.define(HandlerDefinition { start: Start::Latest, ..HandlerDefinition::new("latest") }).await;
    it.define(HandlerDefinition { start: Start::SequenceNumber(1), ..HandlerDefinition::new("from-1") }).await;
    it.commit("placed", &["c"]).await;
    assert_eq!(positions(&it.pull("latest").await), [2]);
    assert_eq!(positions(&it.pull("from-1").await), [1]);
}

/// A failure releases the events that follow it in the batch.
pub async fn a_batch_holds_events_of_one_partition_in_order(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    let by_aggregate = HandlerDefinition::new("h").partitioned(PartitionBy::Aggregate, 2);
    it.define(HandlerDefinition { batch: 3, ..by_aggregate }).await;
    it.commit("placed", &["a", "a", "a", "a", "b"]).await;
    let batch = it.pull_count("h", 4).await;
    assert_eq!(positions(&batch), [0, 1, 2, 4]);
    let of_a: Vec<_> = batch.iter().filter(|delivery| delivery.position < 4).collect();
    let [first, second, third] = of_a[..] else { panic!("three of a") };
    let results = it.settle("h", vec![Settlement::done(second.token.clone())]).await;
    assert_eq!(results[0].error.as_deref(), Some("out_of_order"));
    let failing = vec![
        Settlement::done(first.token.clone()),
        Settlement::failed(second.token.clone(), "down"),
        Settlement::done(third.token.clone()),
    ];
    let results = it.settle("h", failing).await;
    assert_eq!(results.iter().map(|result| result.settled).collect::<Vec<_>>(), [true, true, false]);
    let failing = it.handlers.partitions("h", None, 10).await.expect("reads").items;
    assert_eq!((failing[0].partition.as_ref(), failing[0].position), ("order/a", 1));
}

/// The positions of the stream are not those of the log.
pub async fn a_stream_is_handled_in_its_positions(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    it.commit("placed", &["a", "b", "c", "a"]).await;
    let streams = it.store.streams(DEFAULT_TENANT, DEFAULT_SCOPE).expect("always there");
    let verdicts = Verdicts::new("stream-1", 0..4).include(Included::new(1)).include(Included::new(3));
    streams.append(verdicts).await.expect("appended");
    it.define(HandlerDefinition::new("h").stream("stream-1")).await;
    let first = it.pull("h").await;
    assert_eq!((positions(&first), first[0].event.sequence_number, &first[0].partition), (vec![0], 1, &None));
    it.done("h", &first[0]).await;
    let second = it.pull("h").await;
    assert_eq!((positions(&second), second[0].event.sequence_number), (vec![1], 3));
    it.done("h", &second[0]).await;
    let entries = streams.read(StreamQuery::new("stream-1")).await.expect("reads").entries;
    assert_eq!(it.handlers.get("h").await.expect("defined").position, entries.len() as u64);
}

/// The types are those of the log, also on the way to another program.
pub async fn events_are_delivered_whole_with_all_their_types(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    it.by_aggregate("h").await;
    let document = rawdoc! {
        "small": 7_i32, "large": 7_i64, "at": DateTime::from_millis(1_700_000_000_123), "id": ObjectId::new(), "half": 0.5,
    };
    let data = Data::from_stored(document.into_bytes().into()).expect("a document");
    let event = NewEvent::new("placed", data).tag("customer:7");
    let commit = NewCommit::new("order", "a").request_id("r-1").event(event).wait_until(Reached::Logged);
    it.log.commit(commit).await.expect("committed");
    let delivered = it.pull("h").await;
    let logged = it.log.read(annals_core::LogQuery::default()).await.expect("reads").events;
    assert_eq!(delivered[0].event, logged[0]);
    assert_eq!(read_deliveries(&write_deliveries(&delivered)), Ok(delivered));
}
