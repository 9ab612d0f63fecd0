//! Collections that other software drops or renames under load: what comes back has its indexes, and versions continue from the log.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use annals_core::{EventLog, Store};
use annals_mongodb::Options;
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
    // At most what was acknowledged right before and had no sequence numbers yet: one version of each aggregate for each time.
    assert!(twice.len() <= 6 * 3, "{} of {} versions were acknowledged twice: {twice:?}", twice.len(), versions.len());
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
