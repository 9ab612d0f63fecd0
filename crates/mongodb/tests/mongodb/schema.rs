//! Indexes by exact name, compared and never dropped; and whose database it is.

use annals_core::{Code, Collection, Included, Index, OpenError, Store, Verdicts};
use annals_mongodb::{MongoStore, Options, Requests};
use mongodb::bson::{Document, doc};

use crate::server::{Databases, log_of, order, wow_commit};
use crate::streams::streams_of;

async fn index_names(databases: &Databases, collection: &str) -> Vec<String> {
    let answer = databases.database().await.run_command(doc! { "listIndexes": collection }).await.expect("listed");
    let batch = answer.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch")).expect("a batch");
    batch.iter().filter_map(|index| Some(index.as_document()?.get_str("name").ok()?.to_owned())).collect()
}

/// Commits once, and gives what is said where that, or the opening, is refused.
async fn commit_with(databases: &Databases, options: Options) -> Result<(), String> {
    let store = MongoStore::open(&databases.url(), options).await.map_err(|error| error.to_string())?;
    let committed = log_of(&store).commit(order("a", 1)).await;
    store.close().await;
    committed.map(|_| ()).map_err(|error| error.to_string())
}

const FIVE: [&str; 6] = [
    "_id_",
    "aggregateId_hashed",
    "aggregateId_1_version_1",
    "aggregateId_1_requestId_1",
    "tenantId_hashed",
    "ownerId_hashed",
];

#[tokio::test]
async fn a_first_commit_makes_the_indexes_in_their_order() {
    let databases = Databases::new();
    commit_with(&databases, Options::default()).await.expect("committed");
    assert_eq!(index_names(&databases, "order_event_stream").await, FIVE);
    commit_with(&databases, Options { optional_indexes: true, ..Options::default() }).await.expect("committed");
    let seven = index_names(&databases, "order_event_stream").await;
    assert_eq!(seven[6..], ["idx_create_time", "idx_event_type_time"]);
    let log = index_names(&databases, "event-log").await;
    assert_eq!(log, ["_id_", "Metadata.EventSource_1", "aggregate_version_index"]);
}

#[tokio::test]
async fn a_bare_collection_gets_all_indexes() {
    let databases = Databases::new();
    let database = databases.database().await;
    database.create_collection("order_event_stream").await.expect("created");
    commit_with(&databases, Options::default()).await.expect("committed");
    assert_eq!(index_names(&databases, "order_event_stream").await, FIVE);
}

#[tokio::test]
async fn request_ids_are_unique_in_all_aggregates_where_that_is_configured() {
    let databases = Databases::new();
    let global = || Options { requests: Requests::Global, ..Options::default() };
    commit_with(&databases, global()).await.expect("committed");
    let names = index_names(&databases, "order_event_stream").await;
    assert_eq!(names[3], "requestId_1");
    let mixed = MongoStore::open(&databases.url(), Options::default()).await.err().expect("the two never mix");
    assert_eq!(mixed.code, Code::UnsuitableServer);
    assert!(mixed.message.contains("requestId_1") && mixed.message.contains("cannot be mixed"), "{}", mixed.message);
    assert_eq!(index_names(&databases, "order_event_stream").await, names, "nothing was changed");
}

#[tokio::test]
async fn an_index_that_is_something_else_is_refused_with_what_was_expected_and_found() {
    for (index, says) in [
        (doc! { "key": { "aggregateId": 1, "version": 1 }, "name": "aggregateId_1_version_1" }, "expected"),
        (
            doc! { "key": { "version": 1, "aggregateId": 1 }, "name": "aggregateId_1_version_1", "unique": true },
            "expected",
        ),
        (doc! { "key": { "aggregateId": 1, "version": 1 }, "name": "mine", "unique": true }, "has the keys of"),
        (doc! { "key": { "requestId": -1 }, "name": "old", "unique": true }, "cannot be mixed"),
        (doc! { "key": { "tenantId": "hashed" }, "name": "tenantId_hashed", "hidden": true }, "expected"),
    ] {
        let databases = Databases::new();
        let command = doc! { "createIndexes": "order_event_stream", "indexes": [index.clone()] };
        databases.database().await.run_command(command).await.expect("created");
        let refused = MongoStore::open(&databases.url(), Options::default()).await.err().expect("refused at the start");
        assert_eq!(refused.code, Code::UnsuitableServer);
        assert!(refused.message.contains(says), "{index}: {}", refused.message);
        assert_eq!(index_names(&databases, "order_event_stream").await.len(), 2, "nothing was changed");
    }
}

#[tokio::test]
async fn an_index_of_requests_that_is_not_unique_is_tolerated() {
    let databases = Databases::new();
    let index = doc! { "key": { "requestId": 1 }, "name": "requestId_1" };
    let command = doc! { "createIndexes": "order_event_stream", "indexes": [index] };
    databases.database().await.run_command(command).await.expect("created");
    commit_with(&databases, Options::default()).await.expect("committed");
}

#[tokio::test]
async fn documents_that_break_an_index_are_named() {
    let databases = Databases::new();
    let commits = databases.database().await.collection::<Document>("order_event_stream");
    commits.insert_one(wow_commit("1", "a", 1, 1)).await.expect("inserted");
    commits.insert_one(wow_commit("2", "a", 1, 1)).await.expect("inserted");
    let refused = commit_with(&databases, Options::default()).await.expect_err("refused");
    assert!(refused.contains("migrate"), "{refused}");
}

/// The server lists an index from the beginning of its creation on, which fails here.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_stored_beside_an_index_that_another_process_is_creating() {
    const STREAM: &str = "323bcdb2-5bbd-4f13-a7c3-b19bc2cc2452";
    let databases = Databases::new();
    let entries = databases.database().await.collection::<Document>(&format!("stream-{STREAM}"));
    let of_one_event = |n: i32| doc! { "_id": n, "Metadata": { "EventLogSequenceNumber": n / 2 } };
    entries.insert_many((0..2_000).map(of_one_event)).await.expect("inserted");
    let (one, other) = tokio::join!(databases.store(Options::default()), databases.store(Options::default()));
    log_of(&one).commit(order("a", 1)).await.expect("committed");
    let (streams, others) = (streams_of(&one), streams_of(&other));
    let verdicts = || Verdicts::new(STREAM, 0..1).include(Included::new(0));
    let names_the_index = |refused: &str| {
        assert!(refused.contains("Metadata.EventLogSequenceNumber_1") && refused.contains("migrate"), "{refused}");
    };
    let first = tokio::spawn(async move { streams.append(verdicts()).await });
    loop {
        let ended = first.is_finished();
        names_the_index(&others.append(verdicts()).await.expect_err("documents break the index").to_string());
        if ended {
            break;
        }
    }
    let refused = first.await.expect("it ended").expect_err("documents break the index");
    names_the_index(&refused.to_string());
    tokio::join!(one.close(), other.close());
}

#[tokio::test]
async fn nothing_is_made_where_that_is_switched_off() {
    let databases = Databases::new();
    databases.store(Options::default()).await.close().await;
    let off = || Options { auto_init_schema: false, ..Options::default() };
    let refused = commit_with(&databases, off()).await.expect_err("the indexes are missing");
    assert!(refused.contains("auto_init_schema"), "{refused}");
    commit_with(&databases, Options::default()).await.expect("made");
    commit_with(&databases, off()).await.expect("all is there");
}

#[tokio::test]
async fn collections_of_records_are_not_made_either_where_that_is_switched_off() {
    let databases = Databases::new();
    databases.store(Options::default()).await.close().await;
    let things = || Collection::new("things").index(Index::on("name").named("by_name"));
    let declare = async |auto_init_schema: bool| {
        let store = databases.store(Options { auto_init_schema, ..Options::default() }).await;
        let declared = store.records("default").expect("declared").declare(things()).await;
        store.close().await;
        declared.map_err(|error| error.to_string())
    };
    let refused = declare(false).await.expect_err("nothing is there");
    assert!(refused.contains("annals-records") && refused.contains("auto_init_schema"), "{refused}");
    let names = databases.database().await.list_collection_names().await.expect("listed");
    assert!(!names.iter().any(|name| name == "things" || name.starts_with("annals-record")), "{names:?}");
    declare(true).await.expect("made");
    declare(false).await.expect("all is there");
    databases.database().await.collection::<Document>("things").drop_index("by_name").await.expect("dropped");
    databases.database().await.collection::<Document>("annals-records").delete_many(doc! {}).await.expect("deleted");
    let refused = declare(false).await.expect_err("the index is missing");
    assert!(refused.contains("by_name") && refused.contains("things"), "{refused}");
}

async fn refused(databases: &Databases, context: &str) -> OpenError {
    let options = Options { context_name: Some(context.to_owned()), ..Options::default() };
    MongoStore::open(&databases.url(), options).await.err().expect("it is refused")
}

#[tokio::test]
async fn a_database_belongs_to_one_context() {
    let databases = Databases::new();
    databases.store(Options::default()).await.close().await;
    databases.store(Options::default()).await.close().await;
    let other = refused(&databases, "shop").await;
    assert_eq!(other.code, Code::UnsuitableServer);
    for part in [&*databases.name, "annals", "shop"] {
        assert!(other.message.contains(part), "{}", other.message);
    }
    assert_eq!(refused(&databases, " ").await.code, Code::InvalidConfig);
    let marker = databases.database().await.collection::<Document>("wow_database_metadata");
    let newer = doc! { "$set": { "layoutVersion": 2 } };
    marker.update_one(doc! { "_id": "boundedContext" }, newer).await.expect("updated");
    assert!(refused(&databases, "annals").await.message.contains("layoutVersion"));
}

/// Of contexts that begin on an empty database at once.
#[tokio::test]
async fn of_contexts_that_claim_a_database_at_once_one_gets_it() {
    for _ in 0..4 {
        let databases = Databases::new();
        let claim = async |context: &str| {
            let options = Options { context_name: Some(context.to_owned()), ..Options::default() };
            MongoStore::open(&databases.url(), options).await
        };
        let (sales, billing, shop) = tokio::join!(claim("sales"), claim("billing"), claim("shop"));
        let marker = databases.database().await.collection::<Document>("wow_database_metadata");
        let marker = marker.find_one(doc! { "_id": "boundedContext" }).await.expect("read").expect("it is there");
        let owner = marker.get_str("contextName").expect("a name");
        for (context, claimed) in [("sales", sales), ("billing", billing), ("shop", shop)] {
            match claimed {
                Ok(store) => {
                    assert_eq!(context, owner);
                    store.close().await;
                }
                Err(refused) => {
                    assert!(context != owner && refused.message.contains(owner), "{context}: {}", refused.message);
                }
            }
        }
    }
}

#[tokio::test]
async fn documents_of_another_context_are_found_before_the_database_is_claimed() {
    for collection in ["order_event_stream", "order_snapshot"] {
        let databases = Databases::new();
        let documents = databases.database().await.collection::<Document>(collection);
        documents.insert_one(wow_commit("1", "a", 1, 1)).await.expect("inserted");
        let mut foreign = wow_commit("2", "b", 1, 1);
        foreign.insert("contextName", "shop");
        documents.insert_one(foreign).await.expect("inserted");
        let error = refused(&databases, "annals").await;
        assert!(error.message.contains(collection) && error.message.contains("shop"), "{}", error.message);
        let marker = databases.database().await.collection::<Document>("wow_database_metadata");
        assert_eq!(marker.count_documents(doc! {}).await.expect("counted"), 0, "no mark is left");
    }
}
