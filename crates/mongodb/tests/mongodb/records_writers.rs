//! Several processes that write records of one tenant: what depends on each other is one after the other, what does not is not; and what
//! the server does to a transaction changes nothing about its outcome.

use std::sync::Arc;
use std::time::Duration;

use annals_core::bson::{doc, rawdoc};
use annals_core::{
    ChangeKind, Code, Collection, Condition, DEFAULT_TENANT, Expected, Index, RecordChange, Records, Store, limits,
};
use annals_mongodb::{MongoStore, Options};
use mongodb::bson::Document;

use crate::proxy::{Network, Proxy};
use crate::server::{Databases, Faults, until, url};

const THINGS: &str = "things";

/// A store whose commands only are met by a fault that names it.
pub async fn named(databases: &Databases, name: &str) -> (MongoStore, String) {
    let name = format!("{name}-{}", databases.name);
    let url = format!("{}&appName={name}", databases.url());
    (MongoStore::open(&url, Options::default()).await.expect("the store opens"), name)
}

pub fn records_of(store: &MongoStore) -> Arc<dyn Records> {
    store.records(DEFAULT_TENANT).expect("the tenant is declared")
}

pub fn insert(id: i32) -> RecordChange {
    RecordChange::insert(THINGS, rawdoc! { "_id": id })
}

/// Holds the commits of a store for so many milliseconds each.
pub fn slow_commits(name: &str, millis: i32) -> Document {
    doc! { "failCommands": ["commitTransaction"], "blockConnection": true, "blockTimeMS": millis, "appName": name }
}

/// Waits until a store's commit is held.
pub async fn until_held(databases: &Databases, name: &str) {
    let admin = databases.client().await.database("admin");
    let held = doc! { "currentOp": 1, "appName": name, "command.commitTransaction": 1 };
    until("a commit that is held", async || {
        let found = admin.run_command(held.clone()).await.expect("asked");
        found.get_array("inprog").is_ok_and(|found| !found.is_empty())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_write_different_records_do_not_wait_for_each_other() {
    let databases = Databases::new();
    let store = databases.store(Options::default()).await;
    let (slow, name) = named(&databases, "slow").await;
    let (records, others) = (records_of(&store), records_of(&slow));
    records.declare(Collection::new(THINGS).index(Index::on("n").unique().sparse())).await.expect("declared");
    // So that nothing but transactions is left to be done.
    records.write(vec![insert(1)]).await.expect("written");
    others.write(vec![insert(2)]).await.expect("written");
    let fault = Faults::take().await;
    fault.set(1, slow_commits(&name, 5_000)).await;
    let held = tokio::spawn(async move { others.write(vec![insert(3)]).await });
    until_held(&databases, &name).await;
    let batch = vec![insert(4), RecordChange::put(THINGS, rawdoc! { "_id": 1, "n": 1 })];
    records.write(batch).await.expect("written");
    assert!(!held.is_finished(), "the other transaction is in flight");
    held.await.expect("the task ends well").expect("written");
    fault.end().await;
    assert_eq!(records.count(THINGS, &Condition::All).await, Ok(4));
    tokio::join!(store.close(), slow.close());
}

/// The writers of one record win one after the other, and of each revision there is one write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_write_one_record_win_one_after_the_other() {
    const ROUNDS: i32 = 20;
    let databases = Databases::new();
    let (one, other) = tokio::join!(databases.store(Options::default()), databases.store(Options::default()));
    let records = records_of(&one);
    records.declare(Collection::new(THINGS)).await.expect("declared");
    records.write(vec![RecordChange::insert(THINGS, rawdoc! { "_id": 1, "n": 0 })]).await.expect("written");
    let count = async |records: Arc<dyn Records>| {
        let (mut won, mut revisions) = (0, Vec::new());
        while won < ROUNDS {
            let there = records.get(THINGS, &1.into()).await.expect("read").expect("there");
            let n = there.document.get_i32("n").expect("a number");
            let next = rawdoc! { "_id": 1, "n": n + 1 };
            match records.replace_if(THINGS, next, Expected::Revision(there.revision)).await {
                Ok(revision) => {
                    assert!(revision > there.revision, "{revision} {}", there.revision);
                    revisions.push(revision);
                    won += 1;
                }
                Err(error) => assert_eq!(error.code(), Code::RecordConflict, "{error}"),
            }
        }
        revisions
    };
    let (mut revisions, more) = tokio::join!(count(records.clone()), count(records_of(&other)));
    revisions.extend(more);
    revisions.sort_unstable();
    assert!(revisions.is_sorted_by(|one, next| one < next), "{revisions:?}");
    let there = records.get(THINGS, &1.into()).await.expect("read").expect("there");
    assert_eq!(there.document.get_i32("n").ok(), Some(2 * ROUNDS));
    tokio::join!(one.close(), other.close());
}

/// Of two batches of which each deletes what the other inserts, if it is there, one comes first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deletion_that_found_nothing_holds_for_the_whole_batch() {
    let databases = Databases::new();
    let (one, other) = tokio::join!(databases.store(Options::default()), databases.store(Options::default()));
    let (records, others) = (records_of(&one), records_of(&other));
    records.declare(Collection::new(THINGS)).await.expect("declared");
    for round in 0..30 {
        let (a, b) = (round * 2, round * 2 + 1);
        let batch = |gone: i32, there: i32| {
            vec![RecordChange::delete_if(THINGS, gone, Expected::AbsentOr(Condition::All)), insert(there)]
        };
        let (first, second) = tokio::join!(records.write(batch(a, b)), others.write(batch(b, a)));
        assert!(first.is_ok() && second.is_ok(), "{first:?} {second:?}");
        let both = Condition::is_in("_id", [a, b]);
        assert_eq!(records.count(THINGS, &both).await, Ok(1), "round {round}");
    }
    tokio::join!(one.close(), other.close());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_survives_what_the_server_does_and_happens_once() {
    let databases = Databases::new();
    let (store, name) = named(&databases, "faults").await;
    let records = records_of(&store);
    records.declare(Collection::new(THINGS).with_feed()).await.expect("declared");
    records.write(vec![insert(0)]).await.expect("written");
    let label = ["TransientTransactionError"];
    let unknown = ["UnknownTransactionCommitResult"];
    let fault = Faults::take().await;
    let faults = [
        doc! { "failCommands": ["findAndModify"], "errorCode": 112, "errorLabels": label },
        doc! { "failCommands": ["findAndModify"], "closeConnection": true },
        doc! { "failCommands": ["find"], "closeConnection": true },
        doc! { "failCommands": ["insert"], "errorCode": 112, "errorLabels": label },
        doc! { "failCommands": ["insert"], "closeConnection": true },
        doc! { "failCommands": ["commitTransaction"], "errorCode": 251, "errorLabels": label },
        doc! { "failCommands": ["commitTransaction"], "closeConnection": true },
        doc! { "failCommands": ["commitTransaction"], "errorCode": 11601 },
        doc! { "failCommands": ["commitTransaction"], "errorCode": 11602 },
        doc! { "failCommands": ["commitTransaction"],
        "writeConcernError": { "code": 64, "errmsg": "too late", "errorLabels": unknown } },
    ];
    let mut due = vec![(1, 0)];
    for (n, mut data) in (1..).zip(faults) {
        data.insert("appName", &name);
        // More than the driver repeats by itself.
        let times = if data.contains_key("closeConnection") || data.contains_key("writeConcernError") { 3 } else { 1 };
        fault.set(times, data.clone()).await;
        let written = records.write(vec![insert(n)]).await;
        assert!(written.is_ok(), "{data}: {written:?}");
        let again = records.write(vec![insert(n)]).await.expect_err("it is there");
        assert_eq!(again.code(), Code::DuplicateKey, "{data}");
        due.push((u64::from(n.unsigned_abs()) + 1, n));
        let changes = records.changes(THINGS, 0, limits::PAGE_MAX).await.expect("read");
        assert!(changes.iter().all(|change| change.what == ChangeKind::Inserted));
        let told: Vec<_> =
            changes.iter().map(|change| (change.number, change.id.as_i32().expect("a number"))).collect();
        assert_eq!(told, due, "{data}");
    }
    fault.end().await;
    store.close().await;
}

/// The commit was carried out, its answer got lost with the connection, and then the network is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_whose_answer_is_lost_is_answered_when_the_network_is_back() {
    let databases = Databases::new();
    let place = url();
    let host = place.trim_start_matches("mongodb://").split(['/', ',']).next().expect("a host").to_owned();
    let port = host.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).expect("a port");
    let proxy = Proxy::to(port).await;
    let name = format!("cut-{}", databases.name);
    let through = format!("mongodb://{}/{}?directConnection=true&appName={name}", proxy.address, databases.name);
    let store = MongoStore::open(&through, Options::default()).await.expect("the store opens");
    let records = records_of(&store);
    records.declare(Collection::new(THINGS).with_feed()).await.expect("declared");
    records.write(vec![insert(1)]).await.expect("written");
    let fault = Faults::take().await;
    fault.set(1, slow_commits(&name, 1_500)).await;
    let write = tokio::spawn({
        let records = records.clone();
        async move { records.write(vec![insert(2)]).await }
    });
    until_held(&databases, &name).await;
    proxy.set(Network::OneWay);
    let things = databases.database().await.collection::<Document>(THINGS);
    until("the record", async || things.count_documents(doc! { "_id": 2 }).await.is_ok_and(|count| count == 1)).await;
    proxy.set(Network::Cut);
    until("every connection is broken", async || proxy.connections() == 0).await;
    proxy.set(Network::Whole);
    let answer = tokio::time::timeout(Duration::from_secs(40), write).await.expect("in time").expect("it ends well");
    let revision = answer.expect("written")[0];
    assert_eq!(records.get(THINGS, &2.into()).await.expect("read").map(|record| record.revision), Some(revision));
    let changes = records.changes(THINGS, 0, 10).await.expect("read");
    assert_eq!(changes.iter().map(|change| change.number).collect::<Vec<_>>(), [1, 2]);
    fault.end().await;
    store.close().await;
}

/// What an operator deleted, or a clean-up took for that of a dead process: it is stored again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_whose_writer_was_deleted_stores_it_again() {
    let databases = Databases::new();
    let store = databases.store(Options::default()).await;
    let records = records_of(&store);
    records.declare(Collection::new(THINGS)).await.expect("declared");
    records.write(vec![insert(1)]).await.expect("written");
    let state = databases.database().await.collection::<Document>("annals-record-state");
    let writers = doc! { "_id": { "$regex": "^writer:" } };
    assert_eq!(state.delete_many(writers.clone()).await.expect("deleted").deleted_count, 1);
    records.write(vec![insert(2)]).await.expect("written");
    assert_eq!(state.count_documents(writers.clone()).await.expect("counted"), 1);
    // One that has not been used for days goes when another process begins.
    let old = mongodb::bson::DateTime::from_millis(1_000);
    state.insert_one(doc! { "_id": "writer:old", "n": 1_i64, "fence": 0_i64, "at": old }).await.expect("inserted");
    let other = databases.store(Options::default()).await;
    records_of(&other).write(vec![insert(3)]).await.expect("written");
    assert_eq!(state.count_documents(writers.clone()).await.expect("counted"), 2);
    tokio::join!(store.close(), other.close());
    assert_eq!(state.count_documents(writers).await.expect("counted"), 0);
}
