//! Collections that other software drops or renames under load: what comes back has its indexes, and versions continue from the log.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use annals_core::{Code, EventLog, ExpectedVersion, NewCommit, Store, Wait};
use annals_mongodb::{MongoStore, Options, Step};
use mongodb::bson::doc;

use crate::held::ORDERS;
use crate::held_alone::goes_on;
use crate::server::{Databases, log_of, order, until};

/// Acknowledged commits: the aggregate, the version and the commit's id.
type Acknowledged = Arc<Mutex<Vec<(String, u64, String)>>>;

async fn write(log: Arc<dyn EventLog>, acknowledged: Acknowledged, stop: Arc<AtomicBool>) {
    for n in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let id = format!("a{}", n % 3);
        let mut commit = order(&id, n);
        commit.wait = annals_core::NewCommit::new("order", "x").wait;
        // What is refused, or not known, was not acknowledged.
        if let Ok(outcome) = log.commit(commit).await {
            acknowledged.lock().expect("no panic").push((id, outcome.version, outcome.commit_id.to_string()));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collection_dropped_or_renamed_under_load_comes_back_with_its_indexes_and_its_versions_continue() {
    let databases = Databases::new();
    let (one, two) = (databases.store(Options::default()).await, databases.store(Options::default()).await);
    let (acknowledged, stop) = (Acknowledged::default(), Arc::new(AtomicBool::new(false)));
    let logs = [log_of(&one), log_of(&two), log_of(&one), log_of(&two)];
    let writers = logs.map(|log| tokio::spawn(write(log, acknowledged.clone(), stop.clone())));
    let database = databases.database().await;
    let admin = databases.client().await.database("admin");
    let count = || acknowledged.lock().expect("no panic").len();
    for round in 0..6 {
        let before = count();
        until("more commits", async || count() >= before + 40).await;
        if round % 2 == 0 {
            database.collection::<mongodb::bson::Document>(ORDERS).drop().await.expect("dropped");
        } else {
            let to = format!("{}.old-{round}", databases.name);
            let rename = doc! { "renameCollection": databases.stream(), "to": to };
            admin.run_command(rename).await.expect("renamed");
        }
    }
    let before = count();
    until("more commits", async || count() >= before + 40).await;
    stop.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.expect("the writer ends well");
    }
    let mut versions: BTreeMap<(String, u64), Vec<String>> = BTreeMap::new();
    for (id, version, commit) in acknowledged.lock().expect("no panic").drain(..) {
        versions.entry((id, version)).or_default().push(commit);
    }
    let twice: Vec<_> = versions.iter().filter(|(_, commits)| commits.len() > 1).collect();
    assert!(twice.is_empty(), "{} of {} versions were acknowledged twice: {twice:?}", twice.len(), versions.len());
    let entries = database.collection::<mongodb::bson::Document>("event-log-commits");
    let pipeline = [
        doc! { "$group": { "_id": { "id": "$id", "version": "$version" }, "count": { "$sum": 1 } } },
        doc! { "$match": { "count": { "$gt": 1 } } },
    ];
    let mut repeated = entries.aggregate(pipeline).await.expect("grouped");
    assert!(!repeated.advance().await.expect("read"), "the log has a version twice: {:?}", repeated.current());
    let indexes = database.run_command(doc! { "listIndexes": ORDERS }).await.expect("listed").to_string();
    for name in ["aggregateId_1_version_1", "aggregateId_1_requestId_1"] {
        assert!(indexes.contains(name), "{name} in {indexes}");
    }
    goes_on(&one).await;
    goes_on(&two).await;
    tokio::join!(one.close(), two.close());
}

/// An index that is dropped from a collection that stays is noticed within seconds, and made again before commits are taken.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_that_other_software_drops_is_made_again() {
    let databases = Databases::new();
    let store = databases.store(Options::default()).await;
    log_of(&store).commit(order("a", 1)).await.expect("committed");
    let database = databases.database().await;
    let drop = doc! { "dropIndexes": ORDERS, "index": "aggregateId_1_version_1" };
    database.run_command(drop).await.expect("dropped");
    let mut n = 1;
    until("the index", async || {
        n += 1;
        log_of(&store).commit(order("a", n)).await.expect("committed");
        let indexes = database.run_command(doc! { "listIndexes": ORDERS }).await.expect("listed").to_string();
        indexes.contains("aggregateId_1_version_1")
    })
    .await;
    store.close().await;
}

/// Whether the sequencer stands still once it has taken commits out of the change stream.
static STANDS_STILL: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());

fn stand_still(step: Step) {
    if step == Step::CommitsTaken {
        let still = STANDS_STILL.0.lock().expect("no panic");
        // Other tasks of this thread go on.
        tokio::task::block_in_place(|| drop(STANDS_STILL.1.wait_while(still, |still| *still).expect("no panic")));
    }
}

/// One test at a time has its sequencer stand still.
static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

fn set_still(still: bool) {
    *STANDS_STILL.0.lock().expect("no panic") = still;
    STANDS_STILL.1.notify_all();
}

/// The first that is not refused as not ready.
async fn once_ready(log: &Arc<dyn EventLog>, commit: NewCommit) -> u64 {
    let mut version = 0;
    until("commits again", async || match log.commit(commit.clone()).await {
        Ok(outcome) => {
            version = outcome.version;
            true
        }
        Err(error) => {
            assert_eq!(error.code(), Code::NotReady, "{error}");
            false
        }
    })
    .await;
    version
}

/// Commits are acknowledged and have no sequence numbers yet when their collection is dropped: only the change stream knows them.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_version_acknowledged_right_before_its_collection_was_dropped_is_not_used_again() {
    let _turn = TURN.lock().await;
    let databases = Databases::new();
    let open = async || databases.store(Options { at_step: stand_still, ..Options::default() }).await;
    let store: MongoStore = open().await;
    let log = log_of(&store);
    let stored = |id: &str, n| NewCommit { wait: Wait::default(), ..order(id, n) };
    for n in 1..=2 {
        log.commit(order("a", n)).await.expect("committed");
    }
    let orders = databases.database().await.collection::<mongodb::bson::Document>(ORDERS);
    for (round, next) in [(0, 5), (1, 8)] {
        set_still(true);
        for (n, expected) in (next - 2..next).enumerate() {
            let outcome = log.commit(stored("a", n as u64)).await.expect("acknowledged");
            assert_eq!((outcome.version, outcome.first_sequence_number), (expected, None), "round {round}");
        }
        orders.drop().await.expect("dropped");
        // The first commit finds out; a later one is refused as well, and so is one that expects that there is none.
        for n in 0..3 {
            let mut commit = stored("a", n);
            if n == 2 {
                commit.expected_version = ExpectedVersion::Empty;
            }
            let refused = log.commit(commit).await.expect_err("what the log will have is not known");
            assert_eq!(refused.code(), Code::NotReady, "{refused}");
            assert!(refused.to_string().contains("dropped or renamed"), "{refused}");
        }
        set_still(false);
        assert_eq!(once_ready(&log, order("a", 9)).await, next);
        let empty = NewCommit { expected_version: ExpectedVersion::Empty, ..stored("a", 1) };
        let refused = log.commit(empty).await.expect_err("the log has versions of it, the collection has not");
        assert!(refused.to_string().contains(&format!("{next}")), "{refused}");
    }
    // The entries, because the dropped commits cannot be read any more.
    let entries = databases.database().await.collection::<mongodb::bson::Document>("event-log-commits");
    let mut found = entries.find(doc! { "id": "a" }).sort(doc! { "_id": 1 }).await.expect("found");
    let mut versions = Vec::new();
    while found.advance().await.expect("read") {
        versions.push(found.deserialize_current().expect("an entry").get_i64("version").expect("a version"));
    }
    assert_eq!(versions, (1..=8).collect::<Vec<_>>(), "all versions are in the log, once each");
    assert_eq!(crate::held::held(&store).await, []);

    // A process that never saw the first collection asks nothing, and knows that the second one is not the first.
    let other = databases.store(Options::default()).await;
    let empty = NewCommit { expected_version: ExpectedVersion::Empty, ..stored("a", 1) };
    log_of(&other).commit(empty).await.expect_err("the log has versions of it");
    assert_eq!(log_of(&other).commit(stored("a", 1)).await.expect("committed").version, 9);
    tokio::join!(store.close(), other.close());
}

/// Nothing in the database knows the version of a commit that other software deletes before it has a number, so another process assigns it
/// again. The change stream knows both commits: the log takes the first, and the second is held and says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_two_commits_of_a_version_the_log_takes_the_first_although_other_software_deleted_it() {
    let _turn = TURN.lock().await;
    let databases = Databases::new();
    let open = async || databases.store(Options { at_step: stand_still, ..Options::default() }).await;
    let (one, two) = (open().await, open().await);
    let stored = |n| NewCommit { wait: Wait::default(), ..order("a", n) };
    log_of(&one).commit(order("a", 1)).await.expect("committed");
    set_still(true);
    let first = log_of(&one).commit(stored(2)).await.expect("acknowledged");
    let orders = databases.database().await.collection::<mongodb::bson::Document>(ORDERS);
    orders.delete_one(doc! { "_id": first.commit_id.to_string() }).await.expect("deleted");
    let second = log_of(&two).commit(stored(3)).await.expect("acknowledged");
    set_still(false);
    assert_eq!((first.version, second.version), (2, 2), "what remains, by docs/decisions/0037");
    crate::held::until_held(&one, 1).await;
    let held = crate::held::held(&two).await.remove(0);
    assert!(held.reason.starts_with("taken: "), "{}", held.reason);
    assert_eq!(held.id.commit, second.commit_id.to_string());
    let entries = databases.database().await.collection::<mongodb::bson::Document>("event-log-commits");
    let entry = entries.find_one(doc! { "id": "a", "version": 2_i64 }).await.expect("read").expect("it has numbers");
    assert_eq!(entry.get_str("commit").expect("its id"), first.commit_id.to_string());
    goes_on(&one).await;
    goes_on(&two).await;
    tokio::join!(one.close(), two.close());
}
