//! Receiving events: the suite of the port, the documents as a Dolittle Runtime has them, and what other software does to them.

use std::sync::Arc;

use annals_conformance::receiving::SCOPE;
use annals_core::{
    ByteString, Code, DEFAULT_TENANT, Data, EventLog, Filter, IncomingEvent, LogQuery, ReceiveError, Received,
    ReceivedBatch, Receiving, RecordedEvent, Store, Subscription, SubscriptionState, Timestamp, TransactionPlace, Uuid,
};
use annals_mongodb::{MongoStore, Options};
use mongodb::Database;
use mongodb::bson::{Bson, DateTime, Decimal128, Document, doc};

use crate::adopting::{PAID, names, standard};
use crate::server::Databases;

mod replica_set {
    use super::*;
    annals_conformance::receiving!(crate::conformance::Mongo::with_scope(SCOPE));
}

/// A scope that is called by its UUID.
pub const INBOX: &str = "0a1b2c3d-0000-4000-8000-00000000abcd";
const SHOP: &str = "11111111-0000-4000-8000-00000000abcd";
const TENANT: &str = "22222222-0000-4000-8000-00000000abcd";
const ORDERS: &str = "33333333-0000-4000-8000-00000000abcd";
const CONSENT: &str = "44444444-0000-4000-8000-00000000abcd";
const CORRELATION: &str = "55555555-0000-4000-8000-00000000abcd";

pub fn options() -> Options {
    Options { scopes: vec![INBOX.to_owned()], ..Options::default() }
}

pub fn receiving(store: &MongoStore) -> Arc<dyn Receiving> {
    store.receiving(DEFAULT_TENANT, INBOX).expect("declared")
}

fn log(store: &MongoStore) -> Arc<dyn EventLog> {
    store.log(DEFAULT_TENANT, INBOX).expect("declared")
}

pub fn subscription(partition: &str) -> Subscription {
    Subscription { producer: SHOP.into(), tenant: TENANT.into(), stream: ORDERS.into(), partition: partition.into() }
}

fn id(text: &str) -> Uuid {
    Uuid::try_parse(text).expect("a UUID")
}

fn incoming(position: u64) -> IncomingEvent {
    IncomingEvent {
        position,
        sequence_number: 10 * position + 1,
        event_type: PAID.into(),
        generation: 2,
        data: Data::from_value(&serde_json::json!({ "n": position })).expect("an object"),
        time: Timestamp::from_millis(1_700_000_000_000 + position as i64),
        source: format!("o-{}", position % 3).into(),
        correlation_id: Some(CORRELATION.into()),
    }
}

/// The events of a partition at these positions, of which every one holds one.
pub fn batch(partition: &str, positions: std::ops::Range<u64>) -> ReceivedBatch {
    let from = positions.start;
    let events = positions.map(incoming).collect();
    ReceivedBatch { subscription: subscription(partition), consent: id(CONSENT), from, events }
}

fn state(position: u64) -> SubscriptionState {
    SubscriptionState { position, sequence_number: position.checked_sub(1).map(|last| 10 * last + 1) }
}

pub async fn all(store: &MongoStore) -> Vec<RecordedEvent> {
    let (log, mut events, mut from) = (log(store), Vec::new(), 0);
    loop {
        let page = log.read(LogQuery { from: Some(from), ..LogQuery::default() }).await.expect("read");
        from = page.next;
        events.extend(page.events);
        if from >= page.head {
            return events;
        }
    }
}

/// Sees that each event of a partition is in the log once, and in order, and that its state is behind the last. Returns how many there are.
pub async fn exactly_once(store: &MongoStore, partition: &str) -> u64 {
    let events = all(store).await;
    assert!(events.iter().map(|event| event.sequence_number).eq(0..events.len() as u64), "the log has a hole");
    let of = events.iter().filter_map(|event| event.commit.received.as_deref());
    let of = of.filter(|received| received.subscription.partition == partition);
    let count = of.clone().count() as u64;
    assert!(of.map(|received| received.position).eq(0..count), "{partition}: an event is missing, or is there twice");
    assert_eq!(receiving(store).state(&subscription(partition)).await, Ok(state(count)), "{partition}");
    count
}

fn collection(database: &Database, name: &str) -> mongodb::Collection<Document> {
    database.collection(&format!("x-{INBOX}-{name}"))
}

fn decimal(value: u64) -> Bson {
    Bson::Decimal128(value.to_string().parse::<Decimal128>().expect("a decimal"))
}

async fn only(database: &Database, name: &str, filter: Document) -> Document {
    let found = collection(database, name).find_one(filter).await.expect("found");
    found.unwrap_or_else(|| panic!("a document of {name}"))
}

/// Field by field, by the plain driver: a reader of the Runtime refuses a field that it does not know.
#[tokio::test]
async fn what_is_received_is_stored_as_a_runtime_stores_it() {
    let databases = Databases::new();
    let store = databases.store(options()).await;
    receiving(&store).receive(batch("p", 0..2)).await.expect("received");
    let database = databases.database().await;
    let zero = standard("00000000-0000-0000-0000-000000000000");
    let mut event = only(&database, "event-log", doc! { "_id": 1 }).await;
    let received = event.get_document_mut("EventHorizon").expect("a document").remove("Received");
    let Some(Bson::DateTime(received)) = received else { panic!("a date: {received:?}") };
    let due = doc! {
        "_id": decimal(1), "Content": { "n": 1_i64 },
        "Aggregate": {
            "WasAppliedByAggregate": false, "TypeId": zero, "TypeGeneration": 0_i64, "Version": decimal(0),
        },
        "EventHorizon": {
            "FromEventHorizon": true, "ExternalEventLogSequenceNumber": decimal(11), "Consent": standard(CONSENT),
        },
        "ExecutionContext": {
            "Correlation": standard(CORRELATION),
            "SpanId": mongodb::bson::Binary { subtype: mongodb::bson::spec::BinarySubtype::Generic, bytes: vec![0; 8] },
            "Microservice": standard(SHOP), "Tenant": standard(TENANT),
            "Version": { "Major": 0_i32, "Minor": 0_i32, "Patch": 0_i32, "Build": 0_i32, "PreRelease": "" },
            "Environment": "", "Claims": [],
        },
        "Metadata": {
            "Occurred": DateTime::from_millis(1_700_000_000_001), "EventSource": "o-1", "TypeId": standard(PAID),
            "TypeGeneration": 2_i64, "Public": false,
        },
    };
    assert_eq!(event, due);
    let mut kept = only(&database, "subscription-states", doc! {}).await;
    assert!(kept.remove("_id").is_some_and(|id| id.as_object_id().is_some()));
    let due = doc! {
        "Microservice": standard(SHOP), "Tenant": standard(TENANT), "Stream": standard(ORDERS), "Partition": "p",
        "Position": decimal(2), "EventLogSequence": decimal(12), "LastSuccessfullyProcessed": received,
        "RetryTime": received, "FailureReason": "", "ProcessingAttempts": 0_i32, "IsFailing": false,
    };
    let sorted = |document: &Document| document.clone().into_iter().collect::<std::collections::BTreeMap<_, _>>();
    assert_eq!(sorted(&kept), sorted(&due));
    let offsets = database.collection::<Document>("event-log-metadata");
    let log_name = format!("x-{INBOX}-event-log");
    let offset = offsets.find_one(doc! { "_id": &log_name }).await.expect("found").expect("there");
    assert_eq!(offset, doc! { "_id": log_name, "NextEventOffset": decimal(2) });
    let due = doc! {
        "_id": 1_i64, "microservice": standard(SHOP), "tenant": standard(TENANT), "stream": standard(ORDERS),
        "partition": "p", "position": 1_i64, "external": 11_i64, "place": 1_i64, "count": 2_i64,
    };
    assert_eq!(only(&database, "annals-received", doc! { "_id": 1 }).await, due);
    let indexes = collection(&database, "subscription-states").list_index_names().await.expect("listed");
    assert_eq!(indexes, ["_id_", "Microservice_1_Tenant_1_Stream_1_Partition_1"]);
    let indexes = collection(&database, "annals-received").list_index_names().await.expect("listed");
    assert_eq!(indexes, ["_id_", "subscription_1_external_1"]);
    store.close().await;
}

/// Events of one batch name it, as those of a transaction do.
#[tokio::test]
async fn events_of_one_batch_name_it_and_an_event_alone_does_not() {
    let databases = Databases::new();
    let store = databases.store(options()).await;
    receiving(&store).receive(batch("p", 0..1)).await.expect("received");
    receiving(&store).receive(batch("p", 1..3)).await.expect("received");
    let events = all(&store).await;
    let first = events[1].commit.commit_id;
    let place = |place| Some(TransactionPlace { id: first, place, count: 2 });
    let due = [None, place(0), place(1)];
    assert!(events.iter().map(|event| event.commit.transaction).eq(due), "{events:?}");
    store.close().await;
}

/// A name that is no UUID stands for one, and is what readers see; two spellings of one UUID are one subscription.
#[tokio::test]
async fn names_are_read_as_they_were_given_and_spellings_of_a_uuid_are_one_subscription() {
    let databases = Databases::new();
    let store = databases.store(options()).await;
    let receiving = receiving(&store);
    let name = |name: &str| ByteString::from(name);
    let shop =
        Subscription { producer: name("shop"), tenant: name("acme"), stream: name("orders"), partition: name("") };
    let mut named = ReceivedBatch { subscription: shop.clone(), ..batch("", 0..3) };
    named.events[0].correlation_id = Some(name("c-1"));
    named.events[1].correlation_id = None;
    named.events[2].event_type = name("order_paid");
    receiving.receive(named.clone()).await.expect("received");
    let upper = Subscription { producer: SHOP.to_uppercase().into(), ..subscription("p") };
    receiving.receive(batch("p", 0..2)).await.expect("received");
    assert_eq!(receiving.state(&upper).await, Ok(state(2)));
    let again = receiving.receive(ReceivedBatch { subscription: upper.clone(), ..batch("p", 0..2) }).await;
    assert!(again.is_ok_and(|received| received.duplicate && received.first == 3));
    receiving.receive(ReceivedBatch { subscription: upper.clone(), ..batch("p", 2..3) }).await.expect("received");
    let events = all(&store).await;
    for (event, given) in events.iter().zip(&named.events) {
        let received = event.commit.received.as_deref().expect("received");
        assert_eq!((&received.subscription, &event.event_type), (&shop, &given.event_type));
        assert_eq!(event.commit.correlation_id, given.correlation_id);
    }
    let of = |event: &RecordedEvent| event.commit.received.as_deref().expect("received").subscription.clone();
    assert_eq!(events[3..].iter().map(of).collect::<Vec<_>>(), [subscription("p"), subscription("p"), upper]);
    let types = |name: &str| Filter { types: vec![name.to_owned().into()], ..Filter::default() };
    let read = async |filter| {
        let page = log(&store).read(LogQuery { filter, ..LogQuery::default() }).await.expect("read");
        (page.events.iter().map(|event| event.sequence_number).collect::<Vec<_>>(), page.next)
    };
    assert_eq!(read(types("order_paid")).await, (vec![2], 6));
    let database = databases.database().await;
    let stored = only(&database, "event-log", doc! { "_id": 2 }).await;
    let uuid = match stored.get_document("Metadata").expect("a document").get("TypeId") {
        Some(Bson::Binary(binary)) => Uuid::from_slice(&binary.bytes).expect("a UUID"),
        other => panic!("{other:?}"),
    };
    assert_eq!(read(types(&uuid.to_string())).await, (vec![], 6), "it is called by its name");
    let stats = log(&store).stats(&mut |_, _| {}).await.expect("counted");
    assert_eq!((stats.events, stats.events_by_type.get("order_paid")), (6, Some(&1)));
    store.close().await;
}

/// Names that an adoption gave to UUIDs are used in both directions.
#[tokio::test]
async fn names_of_an_adoption_stand_for_uuids_of_what_is_received() {
    let databases = Databases::new();
    let database = databases.database().await;
    let adopted = crate::adopting::v9(0, PAID, "o-1", Some(0));
    database.collection::<Document>("event-log").insert_one(adopted).await.expect("inserted");
    databases.adopt(&names()).await.expect("adopted");
    let store = databases.store(options()).await;
    let mut given = batch("p", 0..2);
    given.events[0].event_type = "paid".into();
    receiving(&store).receive(given).await.expect("received");
    for number in [0, 1] {
        let stored = only(&database, "event-log", doc! { "_id": number }).await;
        assert_eq!(stored.get_document("Metadata").expect("a document").get("TypeId"), Some(&standard(PAID)));
    }
    let events = all(&store).await;
    assert_eq!(events.iter().map(|event| &*event.event_type).collect::<Vec<_>>(), ["paid", PAID]);
    store.close().await;
}

/// What a Runtime has received stays as it is, and its subscription goes on where it stands.
#[tokio::test]
async fn a_subscription_of_a_runtime_is_continued_where_it_stands() {
    let databases = Databases::new();
    let database = databases.database().await;
    let of_runtime = |number: u64| {
        let mut event = crate::adopting::v9(number, PAID, "o-1", None);
        let received = DateTime::from_millis(1_700_000_100_000);
        event.insert(
            "EventHorizon",
            doc! { "FromEventHorizon": true, "ExternalEventLogSequenceNumber": decimal(10 * number + 1),
            "Received": received, "Consent": standard(CONSENT) },
        );
        event
    };
    collection(&database, "event-log").insert_many((0..3).map(of_runtime)).await.expect("inserted");
    let partition = "66666666-0000-4000-8000-00000000abcd";
    // One of version 8: without `EventLogSequence`, and its partition as older ones wrote it.
    let kept = doc! {
        "Microservice": standard(SHOP), "Tenant": standard(TENANT), "Stream": standard(ORDERS),
        "Partition": standard(partition), "Position": decimal(3), "RetryTime": DateTime::from_millis(0),
        "FailureReason": "it was down", "ProcessingAttempts": 4_i32, "IsFailing": true,
    };
    collection(&database, "subscription-states").insert_one(kept).await.expect("inserted");
    let store = databases.store(options()).await;
    let receiving = receiving(&store);
    let standing = SubscriptionState { position: 3, sequence_number: None };
    assert_eq!(receiving.state(&subscription(partition)).await, Ok(standing));
    let known = receiving.receive(batch(partition, 1..3)).await.expect_err("it cannot be compared");
    assert_eq!(known, ReceiveError::Moved { from: 1, stored: standing });
    let received = receiving.receive(batch(partition, 3..5)).await.expect("received");
    assert_eq!(received, Received { first: 3, state: state(5), duplicate: false });
    let around = receiving.receive(batch(partition, 2..5)).await.expect_err("in part of before");
    assert_eq!(around, ReceiveError::Moved { from: 2, stored: state(5) });
    assert!(receiving.receive(batch(partition, 3..5)).await.expect("a repeat").duplicate);
    let mut kept = only(&database, "subscription-states", doc! {}).await;
    let given: Vec<_> =
        ["Position", "IsFailing", "ProcessingAttempts", "FailureReason"].map(|key| kept.remove(key)).into();
    assert_eq!(given, [Some(decimal(5)), Some(false.into()), Some(0_i32.into()), Some("".into())]);
    assert_eq!(kept.get("Partition"), Some(&standard(partition)), "who finds it by its partition finds it still");
    let events = all(&store).await;
    assert!(events.iter().map(|event| event.commit.received.is_some()).eq([false, false, false, true, true]));
    store.close().await;
}

/// The layout's numbers are int64.
#[tokio::test]
async fn numbers_that_the_layout_cannot_hold_are_refused_by_their_place() {
    let databases = Databases::new();
    let store = databases.store(options()).await;
    let mut large = batch("p", 0..2);
    large.events[1].sequence_number = i64::MAX as u64;
    let refused = receiving(&store).receive(large.clone()).await.expect_err("refused");
    assert_eq!(refused.code(), Code::InvalidRange, "{refused}");
    assert!(refused.to_string().contains("events[1].sequence_number"), "{refused}");
    large.events[1].sequence_number -= 1;
    receiving(&store).receive(large).await.expect("received");
    let last = receiving(&store).state(&subscription("p")).await.expect("read");
    assert_eq!(last.sequence_number, Some(i64::MAX as u64 - 1));
    store.close().await;
}

/// An event is in the log at most once, also where other software sets a subscription back: it is named with what to do.
#[tokio::test]
async fn a_subscription_that_is_set_back_receives_nothing_twice() {
    let databases = Databases::new();
    let store = databases.store(options()).await;
    let receiving = receiving(&store);
    receiving.receive(batch("p", 0..3)).await.expect("received");
    let database = databases.database().await;
    let states = collection(&database, "subscription-states");
    let back = doc! { "$set": { "Position": decimal(1), "EventLogSequence": decimal(2) } };
    states.update_one(doc! {}, back).await.expect("set back");
    let refused = receiving.receive(batch("p", 1..4)).await.expect_err("refused");
    assert_eq!(refused.code(), Code::MalformedDocument, "{refused}");
    assert!(refused.to_string().contains("set the subscription back"), "{refused}");
    assert_eq!(log(&store).head().await, Ok(3));
    states.update_one(doc! {}, doc! { "$set": { "Position": 3.0, "EventLogSequence": 22_i32 } }).await.expect("mended");
    assert_eq!(receiving.receive(batch("p", 3..4)).await.expect("received").first, 3);
    assert_eq!(exactly_once(&store, "p").await, 4);
    states.update_one(doc! {}, doc! { "$set": { "Position": "x" } }).await.expect("broken");
    let broken = receiving.receive(batch("p", 4..5)).await.expect_err("it cannot be read");
    assert_eq!(broken.code(), Code::MalformedDocument, "{broken}");
    assert!(broken.to_string().contains("Position"), "{broken}");
    states.update_one(doc! {}, doc! { "$set": { "Position": decimal(4) } }).await.expect("mended");
    collection(&database, "annals-received")
        .update_one(doc! { "_id": 2 }, doc! { "$set": { "position": "x" } })
        .await
        .expect("broken");
    let broken = log(&store).read(LogQuery::default()).await.expect_err("it cannot be read");
    for part in ["annals-received", "_id 2:", "position", "not a whole number"] {
        assert!(broken.to_string().contains(part), "{part} in {broken}");
    }
    store.close().await;
}

/// A Runtime that writes into the same log takes numbers without moving the offset first.
#[tokio::test]
async fn numbers_that_other_software_took_are_passed_over() {
    let databases = Databases::new();
    let store = databases.store(options()).await;
    receiving(&store).receive(batch("p", 0..1)).await.expect("received");
    let database = databases.database().await;
    let other = crate::adopting::v9(1, PAID, "o-1", None);
    collection(&database, "event-log").insert_one(other).await.expect("inserted");
    let received = receiving(&store).receive(batch("p", 1..3)).await.expect("received");
    assert_eq!(received, Received { first: 2, state: state(3), duplicate: false });
    assert_eq!(log(&store).head().await, Ok(4));
    store.close().await;
}
