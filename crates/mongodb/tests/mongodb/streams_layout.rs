//! The stored documents of streams, as the Dolittle Runtime reads them.

use annals_core::{Code, Included, Store, StoreError, StreamError, Verdicts};
use annals_mongodb::Options;
use mongodb::bson::{Bson, Decimal128, Document, doc};

use crate::server::Databases;
use crate::streams::{streams_of, whole, write};

const ID: &str = "323bcdb2-5bbd-4f13-a7c3-b19bc2cc2452";

fn decimal(number: u64) -> Decimal128 {
    number.to_string().parse().expect("a decimal")
}

async fn stored(database: &mongodb::Database, collection: &str) -> Vec<Document> {
    let documents = database.collection::<Document>(collection);
    let mut found = documents.find(doc! {}).sort(doc! { "_id": 1 }).await.expect("found");
    let mut all = Vec::new();
    while found.advance().await.expect("read") {
        all.push(found.deserialize_current().expect("a document"));
    }
    all
}

#[tokio::test]
async fn an_entry_is_the_document_that_the_runtime_has() {
    let databases = Databases::new();
    let store = databases.store(Options::default()).await;
    write(&store, 5).await;
    let streams = streams_of(&store);
    for name in [format!("stream-{ID}"), format!("public-stream-{ID}")] {
        let verdicts = Verdicts::new(name.clone(), 0..5).include(Included::of(1, "a")).include(Included::new(4));
        streams.append(verdicts).await.expect("appended");
        let database = databases.database().await;
        let events = stored(&database, "event-log").await;
        let entries = stored(&database, &name).await;
        assert_eq!(entries.len(), 2);
        let no_partition = "00000000-0000-0000-0000-000000000000";
        for (position, (entry, (number, partition))) in (0..).zip(entries.iter().zip([(1, "a"), (4, no_partition)])) {
            assert_eq!(entry.get("_id"), Some(&Bson::Decimal128(decimal(position))));
            assert_eq!(entry.get("Partition"), Some(&Bson::from(partition)));
            let mut metadata = entry.get_document("Metadata").expect("a document").clone();
            let in_log = metadata.remove("EventLogSequenceNumber");
            assert_eq!(in_log, Some(Bson::Decimal128(decimal(number))));
            let event = &events[number as usize];
            assert_eq!(Some(&Bson::Document(metadata)), event.get("Metadata"));
            for field in ["Content", "Aggregate", "EventHorizon", "ExecutionContext"] {
                assert_eq!(entry.get(field), event.get(field), "{field}");
            }
            assert_eq!(entry.len(), 7, "nothing that the Runtime does not know: {entry}");
        }
        let offsets = database.collection::<Document>("event-log-metadata");
        let offset = offsets.find_one(doc! { "_id": &name }).await.expect("found").expect("it is there");
        assert_eq!(offset, doc! { "_id": &name, "NextEventOffset": decimal(2) });
    }
    store.close().await;
}

#[tokio::test]
async fn a_streams_indexes_have_the_names_that_the_runtime_gives() {
    let databases = Databases::new();
    let store = databases.store(Options::default()).await;
    write(&store, 5).await;
    let name = format!("stream-{ID}");
    streams_of(&store).append(Verdicts::new(name.clone(), 0..5).include(Included::new(1))).await.expect("appended");
    let database = databases.database().await;
    let listed = database.run_command(doc! { "listIndexes": &name }).await.expect("listed");
    let listed = listed.get_document("cursor").expect("a cursor").get_array("firstBatch").expect("a batch").clone();
    let names: Vec<_> = listed
        .iter()
        .filter_map(Bson::as_document)
        .map(|index| (index.get_str("name").expect("a name").to_owned(), index.get_bool("unique").unwrap_or(false)))
        .collect();
    let due = [
        ("_id_", false),
        ("Metadata.EventLogSequenceNumber_1", true),
        ("Metadata.EventSource_1", false),
        ("Partition_1", false),
        ("Metadata.EventSource_1_Aggregate.TypeId_1", false),
        ("Partition_1__id_1", false),
    ];
    assert_eq!(names, due.map(|(name, unique)| (name.to_owned(), unique)));
    // How the Runtime reads a stream, and a partition of it.
    for (filter, index) in [
        (doc! { "_id": { "$gte": decimal(0) } }, "_id_"),
        (doc! { "Partition": "a", "_id": { "$gte": decimal(0) } }, "Partition_1__id_1"),
        (doc! { "Metadata.EventLogSequenceNumber": { "$gte": decimal(0) } }, "Metadata.EventLogSequenceNumber_1"),
    ] {
        let sort = if index.starts_with("Metadata") {
            doc! { index.trim_end_matches("_1"): 1 }
        } else {
            doc! { "_id": 1 }
        };
        let find = doc! { "find": &name, "filter": filter, "sort": sort };
        let plan =
            database.run_command(doc! { "explain": find, "verbosity": "queryPlanner" }).await.expect("explained");
        let winning =
            plan.get_document("queryPlanner").and_then(|plan| plan.get_document("winningPlan")).expect("a plan");
        let said = winning.to_string();
        assert!(said.contains(&format!("\"indexName\": \"{index}\"")), "{index}: {said}");
        assert!(!said.contains("\"SORT\""), "{index}: {said}");
    }
    store.close().await;
}

/// A stream that the Runtime has filled is gone on with behind its last entry.
#[tokio::test]
async fn a_stream_of_the_runtime_is_continued() {
    let databases = Databases::new();
    let name = format!("stream-{ID}");
    let database = databases.database().await;
    let store = databases.store(Options::default()).await;
    write(&store, 10).await;
    let entries = database.collection::<Document>(&name);
    for (position, number) in [(0, 2), (1, 5)] {
        let event = database.collection::<Document>("event-log").find_one(doc! { "_id": decimal(number) }).await;
        let mut entry = event.expect("found").expect("it is there");
        entry.insert("_id", decimal(position));
        entry.insert("Partition", "p");
        let metadata = entry.get_document_mut("Metadata").expect("a document");
        metadata.insert("EventLogSequenceNumber", decimal(number));
        entries.insert_one(entry).await.expect("inserted");
    }
    let streams = streams_of(&store);
    let again =
        streams.append(Verdicts::new(name.clone(), 4..6).include(Included::of(5, "p"))).await.expect("a repeat");
    assert_eq!((again.positions, again.duplicate), (1..2, true));
    let next = streams.append(Verdicts::new(name.clone(), 6..10).include(Included::new(9))).await.expect("appended");
    assert_eq!((next.positions, next.duplicate), (2..3, false));
    let numbers: Vec<_> = whole(&streams, &name).await.iter().map(|entry| entry.sequence_number).collect();
    assert_eq!(numbers, [2, 5, 9]);
    store.close().await;
}

/// Other software that writes beside is named, and nothing is mixed.
#[tokio::test]
async fn entries_that_other_software_writes_meanwhile_are_named() {
    let databases = Databases::new();
    let store = databases.store(Options::default()).await;
    write(&store, 10).await;
    let streams = streams_of(&store);
    let name = format!("stream-{ID}");
    streams.append(Verdicts::new(name.clone(), 0..2).include(Included::new(1))).await.expect("appended");
    let entries = databases.database().await.collection::<Document>(&name);
    for (position, number, what) in [(1, 9, "at its position"), (7, 3, "of its event")] {
        let foreign = doc! {
            "_id": decimal(position), "Partition": "p", "Metadata": { "EventLogSequenceNumber": decimal(number) },
        };
        entries.insert_one(foreign).await.expect("inserted");
        let error = streams.append(Verdicts::new(name.clone(), 2..5).include(Included::new(3))).await;
        let error = error.expect_err("it is refused");
        assert!(
            matches!(&error, StreamError::Store(StoreError::Other { code: Code::MalformedDocument, message }) if message.contains(what)),
            "{error}"
        );
        entries.delete_one(doc! { "_id": decimal(position) }).await.expect("deleted");
    }
    let next = streams.append(Verdicts::new(name.clone(), 2..5).include(Included::new(3))).await.expect("appended");
    assert_eq!(next.positions, 1..2);
    store.close().await;
}

#[tokio::test]
async fn what_the_layout_cannot_tell_apart_is_refused() {
    let databases = Databases::new();
    let store = databases.store(Options::default()).await;
    write(&store, 2).await;
    let streams = streams_of(&store);
    let none = "00000000-0000-0000-0000-000000000000";
    let error = streams.append(Verdicts::new("s", 0..1).include(Included::of(0, none))).await.expect_err("refused");
    assert_eq!(error.code(), Code::InvalidId);
    streams.append(Verdicts::new(ID, 0..1).include(Included::new(0))).await.expect("appended");
    let error = streams.append(Verdicts::new(format!("stream-{ID}"), 0..1)).await.expect_err("refused");
    assert_eq!(error.code(), Code::InvalidName);
    assert!(error.to_string().contains(&format!("stream-{ID}")), "{error}");
    store.close().await;
}

/// A Runtime that fills a stream writes no state of ours.
#[tokio::test]
async fn a_stream_that_only_a_runtime_fills_is_read() {
    const OTHER: &str = "stream-111cdb25-5bbd-4f13-a7c3-b19bc2cc2452";
    let databases = Databases::new();
    let store = databases.store(Options::default()).await;
    write(&store, 5).await;
    let streams = streams_of(&store);
    assert_eq!(whole(&streams, OTHER).await, []);
    let own = format!("stream-{ID}");
    let verdicts = Verdicts::new(own.clone(), 0..5).include(Included::of(1, "a")).include(Included::new(4));
    streams.append(verdicts).await.expect("appended");
    let database = databases.database().await;
    let entries = stored(&database, &own).await;
    database.collection::<Document>(OTHER).insert_many(entries).await.expect("inserted");
    assert_eq!(whole(&streams, OTHER).await, whole(&streams, &own).await);
    let info = streams.stream(OTHER).await.expect("read");
    assert_eq!((info.head, info.progress), (2, 5));
    assert_eq!(streams.position_of(OTHER, 2).await, Ok(1));
    assert_eq!(streams.wait_past(OTHER, 1).await, Ok(2));
    store.close().await;
}
