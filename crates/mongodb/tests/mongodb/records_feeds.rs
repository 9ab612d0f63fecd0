//! Feeds of collections on MongoDB: turning one on beside writers that do not know of it, wherever that stops; records that expire; and
//! databases in which a former version kept one feed of all collections.

use std::sync::Arc;
use std::time::Duration;

use annals_conformance::ManualClock;
use annals_core::bson::{Bson, DateTime, RawDocumentBuf, doc, rawdoc};
use annals_core::order::Direction;
use annals_core::{
    ChangeKind, ChangesError, Clock, Code, Collection, Condition, Expected, Index, RecordChange, Records, Store, limits,
};
use annals_mongodb::Options;
use annals_system::SystemClock;
use mongodb::bson::Document;

use crate::records_writers::{insert, named, records_of, slow_commits, until_held};
use crate::server::{Databases, Faults, until};

const THINGS: &str = "things";

async fn noted(records: &Arc<dyn Records>) -> Vec<(u64, i32)> {
    let changes = records.changes(THINGS, 0, limits::PAGE_MAX).await.expect("read");
    changes.iter().map(|change| (change.number, change.id.as_i32().expect("a number"))).collect()
}

/// A transaction was judged by an entry without a feed, and its commit takes long. Whoever reads the collection after the declaration and
/// follows it from then on misses nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_declaration_waits_for_transactions_that_do_not_know_of_the_feed() {
    let databases = Databases::new();
    let store = databases.store(Options::default()).await;
    let (slow, name) = named(&databases, "slow").await;
    let (records, others) = (records_of(&store), records_of(&slow));
    records.declare(Collection::new(THINGS)).await.expect("declared");
    others.write(vec![insert(1)]).await.expect("written");
    let fault = Faults::take().await;
    fault.set(1, slow_commits(&name, 3_000)).await;
    let held = tokio::spawn({
        let others = others.clone();
        async move { others.write(vec![insert(2)]).await }
    });
    until_held(&databases, &name).await;
    records.declare(Collection::new(THINGS).with_feed()).await.expect("declared");
    let seen = records.get(THINGS, &2.into()).await.expect("read").is_some();
    held.await.expect("the task ends well").expect("written");
    fault.end().await;
    let told = noted(&records).await.iter().any(|(_, id)| *id == 2);
    assert!(seen || told, "the record is neither there after the declaration nor in the feed");
    // The other process has heard of nothing but the fence.
    others.write(vec![insert(3)]).await.expect("written");
    assert_eq!(noted(&records).await.last().map(|(_, id)| *id), Some(3));
    tokio::join!(store.close(), slow.close());
}

/// The declaration stops at each of its commands in turn. The next one completes it, and then a process that has written before and was
/// told of nothing notes its changes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_feed_is_on_once_a_declaration_succeeds_wherever_the_one_before_stopped() {
    let databases = Databases::new();
    let (store, name) = named(&databases, "declares").await;
    let beside = databases.store(Options::default()).await;
    let (records, others) = (records_of(&store), records_of(&beside));
    let fault = Faults::take().await;
    let (mut stopped, mut n) = (0, 0);
    loop {
        let collection = || Collection::new(format!("things-{n}"));
        let insert = |id: i32| RecordChange::insert(collection().name, rawdoc! { "_id": id });
        let expires = || collection().index(Index::on("at").expires_after_seconds(60));
        records.declare(expires()).await.expect("declared");
        others.write(vec![insert(1)]).await.expect("written");
        let fails = doc! {
            "failCommands": ["find", "update", "findAndModify", "insert", "commitTransaction"], "errorCode": 14031,
            "appName": &name,
        };
        fault.set_after(n, fails).await;
        let declared = records.declare(expires().with_feed()).await;
        fault.end().await;
        others.write(vec![insert(2)]).await.expect("written");
        let whole = declared.is_ok();
        if !whole {
            stopped += 1;
            // Not asked of the other process, which must hear of nothing but the fence.
            let refused = records.last_change(&collection().name).await;
            assert!(matches!(refused, Err(ChangesError::NoFeed(_)) | Ok(_)), "{refused:?}");
            records.declare(expires().with_feed()).await.expect("declared");
        }
        let before = records.last_change(&collection().name).await.expect("it has a feed");
        others.write(vec![insert(3)]).await.expect("written");
        let changes = records.changes(&collection().name, before, 10).await.expect("read");
        let told: Vec<_> = changes.iter().map(|change| (change.number, change.id.clone())).collect();
        assert_eq!(told, [(before + 1, Bson::Int32(3))], "after {n} commands");
        if whole {
            break;
        }
        n += 1;
    }
    assert!(stopped >= 5, "it was stopped {stopped} times");
    tokio::join!(store.close(), beside.close());
}

/// The same for new collections, whether they wait for their first write or not: they are declared with their feed or not at all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_collection_has_its_feed_once_it_is_declared_wherever_a_declaration_stopped() {
    let databases = Databases::new();
    let (store, name) = named(&databases, "declares-new").await;
    let beside = databases.store(Options::default()).await;
    let (records, others) = (records_of(&store), records_of(&beside));
    records.declare(Collection::new("first")).await.expect("declared");
    let fault = Faults::take().await;
    let (mut stopped, mut n) = (0, 0);
    loop {
        let before = stopped;
        for collection in [format!("things-{n}"), format!("annals-things-{n}")] {
            let declared =
                || Collection::new(&*collection).index(Index::on("at").expires_after_seconds(60)).with_feed();
            let insert = |id: i32| vec![RecordChange::insert(&*collection, rawdoc! { "_id": id })];
            let fails = doc! {
                "failCommands": ["find", "listIndexes", "createIndexes", "update", "insert"], "errorCode": 14031,
                "appName": &name,
            };
            fault.set_after(n, fails).await;
            let whole = records.declare(declared()).await.is_ok();
            fault.end().await;
            let first = others.write(insert(1)).await;
            if !whole {
                stopped += 1;
                records.declare(declared()).await.expect("declared");
            }
            others.write(insert(2)).await.expect("written");
            let changes = records.changes(&collection, 0, 10).await.expect("read");
            let told: Vec<_> = changes.iter().map(|change| change.id.clone()).collect();
            let due: &[i32] = if first.is_ok() { &[1, 2] } else { &[2] };
            assert_eq!(told, due.iter().map(|id| Bson::Int32(*id)).collect::<Vec<_>>(), "{collection}: {first:?}");
        }
        if stopped == before {
            break;
        }
        n += 1;
    }
    assert!(stopped >= 8, "it was stopped {stopped} times");
    tokio::join!(store.close(), beside.close());
}

/// A process that died between the steps leaves changes noted and nobody following.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_feed_that_is_starting_is_written_and_not_read() {
    let databases = Databases::new();
    let store = databases.store(Options::default()).await;
    let records = records_of(&store);
    records.declare(Collection::new(THINGS)).await.expect("declared");
    let database = databases.database().await;
    let state = database.collection::<Document>("annals-record-state");
    state.insert_one(doc! { "_id": "feed:things", "last": 0_i64, "gone": 0_i64 }).await.expect("inserted");
    let catalog = database.collection::<Document>("annals-records");
    let starting = doc! { "$set": { "feed": "starting" } };
    catalog.update_one(doc! { "_id": THINGS }, starting).await.expect("changed");
    let beside = databases.store(Options::default()).await;
    let others = records_of(&beside);
    others.write(vec![insert(1)]).await.expect("written");
    assert_eq!(others.changes(THINGS, 0, 1).await, Err(ChangesError::NoFeed(THINGS.to_owned())));
    assert_eq!(others.collections().await, Ok(vec![Collection::new(THINGS)]));
    others.declare(Collection::new(THINGS).with_feed()).await.expect("declared");
    assert_eq!(noted(&records).await, [(1, 1)]);
    tokio::join!(store.close(), beside.close());
}

/// As docs/mongodb.md tells an operator to do it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collection_that_is_dropped_with_its_entry_while_no_process_runs_is_declared_anew() {
    let databases = Databases::new();
    let declared = || Collection::new(THINGS).index(Index::on("n").unique()).with_feed();
    let with_n = |id: i32| RecordChange::insert(THINGS, rawdoc! { "_id": id, "n": 7 });
    let store = databases.store(Options::default()).await;
    let records = records_of(&store);
    records.declare(declared()).await.expect("declared");
    records.write(vec![with_n(1)]).await.expect("written");
    store.close().await;
    let database = databases.database().await;
    database.collection::<Document>(THINGS).drop().await.expect("dropped");
    let catalog = database.collection::<Document>("annals-records");
    catalog.delete_one(doc! { "_id": THINGS }).await.expect("deleted");

    let store = databases.store(Options::default()).await;
    let records = records_of(&store);
    let unknown = records.write(vec![with_n(2)]).await.expect_err("it is not declared");
    assert_eq!(unknown.code(), Code::UnknownCollection, "{unknown}");
    records.declare(declared()).await.expect("declared");
    records.write(vec![with_n(2)]).await.expect("the first record is gone");
    let refused = records.write(vec![with_n(3)]).await.expect_err("its unique index is there again");
    assert_eq!(refused.code(), Code::DuplicateKey, "{refused}");
    assert_eq!(noted(&records).await.last(), Some(&(2, 2)), "the numbers of the feed continue");
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_write_to_one_feed_note_every_change_once() {
    const COUNT: i32 = 40;
    let databases = Databases::new();
    let (one, other) = tokio::join!(databases.store(Options::default()), databases.store(Options::default()));
    let (records, others) = (records_of(&one), records_of(&other));
    records.declare(Collection::new(THINGS).with_feed()).await.expect("declared");
    let write = async |records: &Arc<dyn Records>, first: i32| {
        for id in first..first + COUNT {
            records.write(vec![insert(id)]).await.expect("written");
        }
    };
    tokio::join!(write(&records, 0), write(&others, COUNT));
    let noted = noted(&records).await;
    let numbers: Vec<_> = noted.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, (1..=2 * COUNT as u64).collect::<Vec<_>>());
    let mut ids: Vec<_> = noted.iter().map(|(_, id)| *id).collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..2 * COUNT).collect::<Vec<_>>());
    tokio::join!(one.close(), other.close());
}

/// Markers are there for feeds only; records that were there before the feed, or before the index, have theirs when the declaration ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_that_expire_are_noted_although_they_were_there_before_the_feed() {
    const HOUR: i64 = 3_600_000;
    let databases = Databases::new();
    let clock = Arc::new(ManualClock::at(SystemClock.now()));
    let store = databases.store(Options { clock: clock.clone(), ..Options::default() }).await;
    let records = records_of(&store);
    let by = |path: &str| Collection::new(THINGS).index(Index::on(path).expires_after_seconds(0));
    records.declare(by("at")).await.expect("declared");
    let later = DateTime::from_millis(clock.now().as_millis() + HOUR);
    let put = |id: i32, path: &str| {
        RecordChange::put(THINGS, RawDocumentBuf::try_from(&doc! { "_id": id, path: later }).expect("encodes"))
    };
    records.write(vec![put(1, "at"), put(2, "until"), insert(3)]).await.expect("written");
    let database = databases.database().await;
    let markers = database.collection::<Document>("annals-record-expiries");
    let marked = async || {
        let ids = markers.distinct("_id.id", doc! {}).await.expect("read");
        ids.into_iter().map(|id| id.as_i32().expect("a number")).collect::<Vec<_>>()
    };
    assert_eq!(marked().await, Vec::<i32>::new());
    records.declare(by("at").with_feed()).await.expect("declared");
    assert_eq!(marked().await, [1]);
    records.declare(by("until")).await.expect("declared");
    assert_eq!(marked().await, [1, 2]);
    assert_eq!(records.last_change(THINGS).await, Ok(0));
    clock.advance_millis(2 * HOUR);
    until("the deletions", async || records.last_change(THINGS).await == Ok(2)).await;
    let changes = records.changes(THINGS, 0, 10).await.expect("read");
    assert!(changes.iter().all(|change| change.what == ChangeKind::Deleted), "{changes:?}");
    assert_eq!(records.get(THINGS, &1.into()).await, Ok(None));
    assert_eq!(marked().await, Vec::<i32>::new());
    store.close().await;
}

/// Records of a database that a former version wrote stay what they are. Its feed had numbers of all collections, which mean nothing in the
/// feed of one; and its processes do not note changes in those, so they cannot write any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn positions_in_the_feed_of_a_former_version_are_refused_and_its_records_stay() {
    let databases = Databases::new();
    let database = databases.database().await;
    let collection = |name: &str| database.collection::<Document>(name);
    collection("annals-records").insert_one(doc! { "_id": THINGS, "indexes": [] }).await.expect("inserted");
    let state = collection("annals-record-state");
    let changes = doc! { "_id": "changes", "last": 7_i64, "gone": 2_i64, "fence": 0_i64, "by": "x" };
    state.insert_one(changes).await.expect("inserted");
    let note = |n: i64| doc! { "_id": n, "note": { "c": THINGS, "id": 1, "w": "r" } };
    collection("annals-record-changes").insert_many((3..=7).map(note)).await.expect("inserted");
    let record = doc! { "_id": 1, "n": 5, "_annals": { "revision": 7_i64 } };
    collection(THINGS).insert_one(record).await.expect("inserted");

    let store = databases.store(Options::default()).await;
    let records = records_of(&store);
    let there = records.get(THINGS, &1.into()).await.expect("read").expect("there");
    assert_eq!((there.revision, there.document.get_i32("n").ok()), (7, Some(5)));
    assert_eq!(records.changes(THINGS, 3, 10).await.expect_err("it has none").code(), Code::NoFeed);
    let next = records.replace_if(THINGS, rawdoc! { "_id": 1, "n": 6 }, Expected::Revision(7)).await;
    assert!(next.expect("written") > 7);
    let former = state.find_one(doc! { "_id": "changes" }).await.expect("read").expect("there");
    assert!(!former.contains_key("last"), "a process of the former version takes a number from it: {former}");

    records.declare(Collection::new(THINGS).with_feed()).await.expect("declared");
    assert_eq!(records.last_change(THINGS).await, Ok(8));
    for after in [0, 3, 7] {
        let gone = records.changes(THINGS, after, 10).await.expect_err("it is another feed's");
        assert_eq!(gone, ChangesError::Gone { after, oldest: 9 });
    }
    records.write(vec![insert(2)]).await.expect("written");
    let changes = records.changes(THINGS, 8, 10).await.expect("read");
    assert_eq!(changes.iter().map(|change| (change.number, change.id.clone())).collect::<Vec<_>>(), [(9, 2.into())]);
    store.close().await;
}

/// Every kind of index as a former version wrote it in its catalogue: declaring the same again changes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn indexes_that_a_former_version_declared_are_what_they_were() {
    let databases = Databases::new();
    let database = databases.database().await;
    let index = |name: &str, fields: Bson| {
        doc! {
            "name": name, "fields": fields, "unique": false, "hashed": false, "text": false, "sparse": false,
            "partial": Bson::Null, "expiresAfterSeconds": Bson::Null,
        }
    };
    let field = |path: &str, way: i32| Bson::Array(vec![path.into(), way.into()]);
    let with = |mut index: Document, changes: Document| {
        index.extend(changes);
        index
    };
    let partial = doc! { "field": "n", "operator": "GT", "value": 1 };
    let indexes = [
        with(index("a_1_b_-1", vec![field("a", 1), field("b", -1)].into()), doc! { "unique": true }),
        with(index("n_1", vec![field("n", 1)].into()), doc! { "sparse": true, "partial": partial }),
        with(index("at_1", vec![field("at", 1)].into()), doc! { "expiresAfterSeconds": 3_600_i64 }),
        with(index("k_hashed", vec![field("k", 1)].into()), doc! { "hashed": true }),
        with(index("t_text", vec![field("t", 1)].into()), doc! { "text": true }),
    ];
    let catalogue = database.collection::<Document>("annals-records");
    catalogue.insert_one(doc! { "_id": THINGS, "indexes": indexes.to_vec() }).await.expect("inserted");

    let store = databases.store(Options::default()).await;
    let records = records_of(&store);
    let declared = Collection::new(THINGS)
        .index(Index::ordered([("a", Direction::Ascending), ("b", Direction::Descending)]).unique())
        .index(Index::on("n").sparse().partial(Condition::gt("n", 1)))
        .index(Index::on("at").expires_after_seconds(3_600))
        .index(Index::hashed("k"))
        .index(Index::text(["t"]));
    assert_eq!(records.collections().await, Ok(vec![declared.clone()]));
    records.declare(declared).await.expect("it is the same");
    let there = catalogue.find_one(doc! { "_id": THINGS }).await.expect("read").expect("there");
    assert_eq!(there.get_array("indexes").expect("a list").len(), 5);
    store.close().await;
}

/// A snapshot that is waited for is found although nobody asked for a feed of snapshots.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_for_a_snapshot_needs_no_feed() {
    let databases = Databases::new();
    let (one, other) = tokio::join!(databases.store(Options::default()), databases.store(Options::default()));
    let order = annals_core::Aggregate::new("order", "o-1");
    let snapshots = |store: &annals_mongodb::MongoStore| store.snapshots("default").expect("the tenant is declared");
    let waiting = tokio::spawn({
        let (snapshots, order) = (snapshots(&one), order.clone());
        async move { snapshots.until(&order, 2).await }
    });
    for version in 1..=2 {
        let state = annals_core::Data::from_value(&serde_json::json!({ "n": version })).expect("an object");
        let saved = snapshots(&other).save(&annals_core::Snapshot::new(order.clone(), version, state)).await;
        assert_eq!(saved, Ok(true));
    }
    let reached = tokio::time::timeout(Duration::from_secs(20), waiting).await;
    reached.expect("in time").expect("the task ends well").expect("reached");
    let collections = records_of(&one).collections().await.expect("listed");
    assert!(collections.iter().all(|collection| !collection.feed), "{collections:?}");
    tokio::join!(one.close(), other.close());
}
