//! Collections of Annals' own, which wait for their first write: what is read before it, and that every record finds all indexes, whatever
//! happened before.

use annals_core::bson::{doc, rawdoc};
use annals_core::{
    Code, Collection, Condition, Explained, GroupPage, GroupQuery, Index, RecordChange, RecordError, RecordPage,
    RecordQuery, Store,
};
use annals_mongodb::Options;
use mongodb::Database;
use mongodb::bson::Document;

use crate::records_writers::{named, records_of};
use crate::server::{Databases, Faults};

const THINGS: &str = "annals-things";

fn things() -> Collection {
    Collection::new(THINGS).index(Index::on("n").unique()).index(Index::on("at").expires_after_seconds(60))
}

fn thing(id: i32, n: i32) -> RecordChange {
    RecordChange::insert(THINGS, rawdoc! { "_id": id, "n": n })
}

/// The names of a collection's indexes; none if it does not exist.
async fn indexes(database: &Database, collection: &str) -> Vec<String> {
    let there = database.list_collection_names().filter(doc! { "name": collection }).await.expect("listed");
    if there.is_empty() {
        return Vec::new();
    }
    let mut names = database.collection::<Document>(collection).list_index_names().await.expect("listed");
    names.sort_unstable();
    names
}

fn is_duplicate<T>(answer: &Result<T, RecordError>) -> bool {
    answer.as_ref().is_err_and(|error| error.code() == Code::DuplicateKey)
}

#[tokio::test]
async fn a_collection_of_annals_is_empty_until_its_first_record_and_has_all_indexes_then() {
    let databases = Databases::new();
    let database = databases.database().await;
    let store = databases.store(Options::default()).await;
    let records = records_of(&store);
    records.declare(things().with_feed()).await.expect("declared");
    assert_eq!(indexes(&database, THINGS).await, [""; 0]);
    let query = || RecordQuery::new(THINGS).matching(Condition::eq("n", 1)).descending("at");
    assert_eq!(records.get(THINGS, &1.into()).await, Ok(None));
    assert_eq!(records.find(query()).await, Ok(RecordPage::default()));
    assert_eq!(records.explain(query()).await, Ok(Explained::default()));
    assert_eq!(records.count(THINGS, &Condition::All).await, Ok(0));
    assert_eq!(records.group(GroupQuery::new(THINGS).by("n")).await, Ok(GroupPage::default()));
    assert_eq!(records.changes(THINGS, 0, 10).await, Ok(Vec::new()));

    records.write(vec![thing(1, 1)]).await.expect("written");
    assert_eq!(indexes(&database, THINGS).await, ["_id_", "at_1", "n_1"]);
    assert!(is_duplicate(&records.write(vec![thing(2, 1)]).await));
    assert_eq!(records.find(query()).await.map(|page| page.records.len()), Ok(1));
    assert_eq!(records.last_change(THINGS).await, Ok(1));

    // These do not wait: the server refuses a text search in a missing collection, and the others are not of Annals alone.
    let texts = Collection::new("annals-texts").index(Index::text(["t"]));
    records.declare(texts).await.expect("declared");
    let search = RecordQuery::new("annals-texts").matching(Condition::matching_text("word"));
    assert_eq!(records.find(search).await, Ok(RecordPage::default()));
    for name in ["orders", "sagas", "annals-projection-totals-1"] {
        records.declare(Collection::new(name).index(Index::on("n"))).await.expect("declared");
        assert_eq!(indexes(&database, name).await, ["_id_", "n_1"], "{name}");
    }
    store.close().await;
}

/// A process was killed after it had created the collection, or other software has one of this name: indexes come before the first record.
#[tokio::test]
async fn a_collection_that_lacks_indexes_gets_them_before_the_first_record_or_the_record_is_refused() {
    let databases = Databases::new();
    let database = databases.database().await;
    let store = databases.store(Options::default()).await;
    let records = records_of(&store);
    records.declare(things()).await.expect("declared");
    database.create_collection(THINGS).await.expect("created");
    records.write(vec![thing(1, 1)]).await.expect("written");
    assert_eq!(indexes(&database, THINGS).await, ["_id_", "at_1", "n_1"]);

    let other = "annals-other";
    records.declare(Collection::new(other).index(Index::on("n").unique())).await.expect("declared");
    let documents = database.collection::<Document>(other);
    documents.insert_many([doc! { "_id": 1, "n": 7 }, doc! { "_id": 2, "n": 7 }]).await.expect("inserted");
    let both = || vec![thing(2, 2), RecordChange::insert(other, rawdoc! { "_id": 3, "n": 3 })];
    let refused = records.write(both()).await.expect_err("two documents break the index");
    assert_eq!(refused.code(), Code::IndexConflict, "duplicate_key would be about the record: {refused}");
    assert_eq!(documents.count_documents(doc! {}).await.expect("counted"), 2);
    documents.delete_one(doc! { "_id": 2 }).await.expect("deleted");
    records.write(both()).await.expect("written");
    assert_eq!(indexes(&database, other).await, ["_id_", "n_1"]);
    store.close().await;
}

/// The server lists an index from the beginning of its creation on, which fails here.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_that_another_process_is_creating_is_not_declared_before_it_exists() {
    let databases = Databases::new();
    let documents = databases.database().await.collection::<Document>("orders");
    documents.insert_many((0..2_000_i32).map(|n| doc! { "_id": n, "n": n / 2 })).await.expect("inserted");
    let (one, other) = tokio::join!(databases.store(Options::default()), databases.store(Options::default()));
    let (records, others) = (records_of(&one), records_of(&other));
    let orders = || Collection::new("orders").index(Index::on("n").unique());
    let first = tokio::spawn(async move { records.declare(orders()).await });
    loop {
        let ended = first.is_finished();
        let declared = others.declare(orders()).await;
        assert!(is_duplicate(&declared), "{declared:?}");
        if ended {
            break;
        }
    }
    assert!(is_duplicate(&first.await.expect("it ended")));
    tokio::join!(one.close(), other.close());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_first_writes_of_several_processes_with_one_unique_value_one_wins() {
    let databases = Databases::new();
    let database = databases.database().await;
    let (one, other) = tokio::join!(databases.store(Options::default()), databases.store(Options::default()));
    let (records, others) = (records_of(&one), records_of(&other));
    for round in 0..6 {
        let name = format!("annals-things-{round}");
        let collection = || Collection::new(&*name).index(Index::on("n").unique());
        let (first, second) = tokio::join!(records.declare(collection()), others.declare(collection()));
        assert!(first.is_ok() && second.is_ok(), "{first:?} {second:?}");
        let insert = |id: i32| vec![RecordChange::insert(&*name, rawdoc! { "_id": id, "n": 7 })];
        let (a, b, c, d) = tokio::join!(
            records.write(insert(1)),
            others.write(insert(2)),
            records.write(insert(3)),
            others.write(insert(4))
        );
        let written = [a, b, c, d];
        assert_eq!(written.iter().filter(|written| written.is_ok()).count(), 1, "{written:?}");
        assert_eq!(written.iter().filter(|written| is_duplicate(written)).count(), 3, "{written:?}");
        assert_eq!(indexes(&database, &name).await, ["_id_", "n_1"]);
    }
    tokio::join!(one.close(), other.close());
}

/// The first writer stops before each of its commands in turn. Another process, which has declared nothing, completes what is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_write_that_stops_anywhere_is_completed_by_the_next_writer() {
    let databases = Databases::new();
    let database = databases.database().await;
    let (store, name) = named(&databases, "stops").await;
    let beside = databases.store(Options::default()).await;
    let (records, others) = (records_of(&store), records_of(&beside));
    let fault = Faults::take().await;
    let mut stopped = 0;
    loop {
        let collection = format!("annals-things-{stopped}");
        let insert = |id: i32| vec![RecordChange::insert(&*collection, rawdoc! { "_id": id, "n": 7 })];
        let declared = Collection::new(&*collection).index(Index::on("n").unique());
        records.declare(declared).await.expect("declared");
        let fails = doc! {
            "failCommands": ["find", "listIndexes", "createIndexes", "update"], "errorCode": 14031, "appName": &name,
        };
        fault.set_after(stopped, fails).await;
        let first = records.write(insert(1)).await;
        fault.end().await;
        let second = others.write(insert(2)).await;
        assert_eq!(indexes(&database, &collection).await, ["_id_", "n_1"], "after {stopped} commands");
        assert!(is_duplicate(&records.write(insert(3)).await), "after {stopped} commands");
        if first.is_ok() {
            assert!(is_duplicate(&second), "{second:?}");
            break;
        }
        assert!(second.is_ok(), "after {stopped} commands: {second:?}");
        stopped += 1;
    }
    // The entry is read, the indexes are listed and created, the entry is changed and read again.
    assert!(stopped >= 5, "it was stopped {stopped} times");
    tokio::join!(store.close(), beside.close());
}

/// Either the collection is created with it, or it is created before the declaration succeeds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_that_is_declared_beside_the_first_write_holds_for_every_later_write() {
    let databases = Databases::new();
    let database = databases.database().await;
    let (one, other) = tokio::join!(databases.store(Options::default()), databases.store(Options::default()));
    let (records, others) = (records_of(&one), records_of(&other));
    for round in 0..8 {
        let name = format!("annals-things-{round}");
        let by = |path: &str| Collection::new(&*name).index(Index::on(path).unique());
        let insert = |id: i32| vec![RecordChange::insert(&*name, rawdoc! { "_id": id, "a": id, "b": 7 })];
        records.declare(by("a")).await.expect("declared");
        let (declared, written) = tokio::join!(records.declare(by("b")), others.write(insert(1)));
        assert!(declared.is_ok() && written.is_ok(), "{declared:?} {written:?}");
        assert!(is_duplicate(&others.write(insert(2)).await), "round {round}");
        assert_eq!(indexes(&database, &name).await, ["_id_", "a_1", "b_1"]);
    }
    tokio::join!(one.close(), other.close());
}

/// Other software empties the catalog under two processes, and one of them declares the collection again. The other one still knows it as
/// one that exists.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_knows_a_dropped_collection_creates_it_again_before_it_writes() {
    let databases = Databases::new();
    let database = databases.database().await;
    let (one, other) = tokio::join!(databases.store(Options::default()), databases.store(Options::default()));
    let (records, others) = (records_of(&one), records_of(&other));
    records.declare(things()).await.expect("declared");
    records.write(vec![thing(1, 1)]).await.expect("written");
    others.write(vec![thing(2, 2)]).await.expect("written");
    database.collection::<Document>(THINGS).drop().await.expect("dropped");
    for name in ["annals-records", "annals-record-state"] {
        database.collection::<Document>(name).delete_many(doc! {}).await.expect("deleted");
    }
    others.declare(things()).await.expect("declared");
    assert_eq!(indexes(&database, THINGS).await, [""; 0]);
    records.write(vec![thing(3, 1)]).await.expect("written");
    assert_eq!(indexes(&database, THINGS).await, ["_id_", "at_1", "n_1"]);
    assert!(is_duplicate(&others.write(vec![thing(4, 1)]).await));
    tokio::join!(one.close(), other.close());
}

/// Of what two processes declare for a new collection at once, nothing is lost, whether it waits for its first write or not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_declare_a_new_collection_at_once_declare_all_of_it() {
    let databases = Databases::new();
    let database = databases.database().await;
    let (one, other) = tokio::join!(databases.store(Options::default()), databases.store(Options::default()));
    let (records, others) = (records_of(&one), records_of(&other));
    for round in 0..8 {
        let name = if round % 2 == 0 { format!("annals-things-{round}") } else { format!("things-{round}") };
        let by = |path: &str| Collection::new(&*name).index(Index::on(path).unique());
        let insert =
            |id: i32, a: i32, b: i32| vec![RecordChange::insert(&*name, rawdoc! { "_id": id, "a": a, "b": b })];
        let (first, second) = tokio::join!(records.declare(by("a")), others.declare(by("b").with_feed()));
        assert!(first.is_ok() && second.is_ok(), "{first:?} {second:?}");
        records.write(insert(1, 1, 1)).await.expect("written");
        assert!(is_duplicate(&others.write(insert(2, 2, 1)).await), "{name}");
        assert!(is_duplicate(&others.write(insert(2, 1, 2)).await), "{name}");
        assert_eq!(indexes(&database, &name).await, ["_id_", "a_1", "b_1"]);
        assert_eq!(others.last_change(&name).await, Ok(1));
    }
    tokio::join!(one.close(), other.close());
}

#[tokio::test]
async fn where_nothing_may_be_created_a_collection_that_waits_is_refused_until_a_start_creates_all() {
    let databases = Databases::new();
    let database = databases.database().await;
    let declared = async |options: Options| {
        let store = databases.store(options).await;
        let records = records_of(&store);
        let declared = records.declare(things()).await;
        let written = match declared.is_ok() {
            true => records.write(vec![RecordChange::put(THINGS, rawdoc! { "_id": 1, "n": 1 })]).await.map(drop),
            false => Ok(()),
        };
        let there = records.count(THINGS, &Condition::All).await;
        store.close().await;
        assert_eq!(written, Ok(()));
        (declared, there)
    };
    let off = || Options { auto_init_schema: false, ..Options::default() };
    let store = databases.store(Options::default()).await;
    records_of(&store).declare(things()).await.expect("declared");
    store.close().await;
    let (refused, there) = declared(off()).await;
    let refused = refused.expect_err("it is missing").to_string();
    for part in [THINGS, "n_1", "auto_init_schema", "create_all_at_start"] {
        assert!(refused.contains(part), "{part} in {refused}");
    }
    assert_eq!(there, Ok(0));
    assert_eq!(indexes(&database, THINGS).await, [""; 0]);
    let store = databases.store(Options { create_all_at_start: true, ..Options::default() }).await;
    records_of(&store).declare(things()).await.expect("declared");
    store.close().await;
    assert_eq!(indexes(&database, THINGS).await, ["_id_", "at_1", "n_1"]);
    assert_eq!(declared(off()).await, (Ok(()), Ok(1)));
}
