//! Collections of commits that other software makes, however it makes them: the log has their commits from the first.

use std::sync::Arc;

use annals_core::{EventLog, LogQuery, Store, limits};
use annals_mongodb::Options;
use mongodb::bson::Document;
use mongodb::{Collection, Database};

use crate::server::{Databases, log_of, order, until, wow_commit};

/// A commit of other software to the aggregates of this name.
fn commit_of(name: &str, id: &str, version: i32) -> Document {
    let mut commit = wow_commit(id, "a", version, 7);
    commit.insert("aggregateName", name);
    commit
}

fn commits_of(database: &Database, name: &str) -> Collection<Document> {
    database.collection(&format!("{name}_event_stream"))
}

/// The aggregates of the log's commits, in their order.
async fn names(log: &Arc<dyn EventLog>) -> Vec<String> {
    let page = log.read(LogQuery { limit: limits::PAGE_MAX, ..LogQuery::default() }).await.expect("read");
    page.events.iter().map(|event| event.commit.aggregate.name.to_string()).collect()
}

async fn until_head(log: &Arc<dyn EventLog>, head: u64) {
    until("the head", async || log.head().await.is_ok_and(|now| now >= head)).await;
}

#[tokio::test]
async fn a_collection_that_comes_with_its_first_commit_is_sequenced_from_that_commit_on() {
    let databases = Databases::new();
    let store = databases.store(Options::default()).await;
    let log = log_of(&store);
    log.commit(order("a", 0)).await.expect("committed");
    let database = databases.database().await;
    for (place, name) in ["cart", "user", "stock"].into_iter().enumerate() {
        let commits = commits_of(&database, name);
        commits.insert_many([commit_of(name, "1", 1), commit_of(name, "2", 2)]).await.expect("inserted");
        log.commit(order("a", place as u64 + 1)).await.expect("ours go on");
        commits.insert_one(commit_of(name, "3", 3)).await.expect("inserted");
    }
    until_head(&log, 1 + 3 * 4).await;
    let names = names(&log).await;
    for name in ["cart", "user", "stock"] {
        assert_eq!(names.iter().filter(|other| *other == name).count(), 3, "{names:?}");
    }
    store.close().await;
}

#[tokio::test]
async fn a_collection_that_a_transaction_makes_is_sequenced_too() {
    let databases = Databases::new();
    let store = databases.store(Options::default()).await;
    let log = log_of(&store);
    log.commit(order("a", 0)).await.expect("committed");
    let database = databases.database().await;
    let mut session = database.client().start_session().await.expect("a session");
    session.start_transaction().await.expect("begun");
    let commits = commits_of(&database, "cart");
    commits.insert_one(commit_of("cart", "1", 1)).session(&mut session).await.expect("inserted");
    session.commit_transaction().await.expect("committed");
    until_head(&log, 2).await;
    commits.insert_one(commit_of("cart", "2", 2)).await.expect("inserted");
    until_head(&log, 3).await;
    assert_eq!(names(&log).await, ["order", "cart", "cart"]);
    store.close().await;
}

#[tokio::test]
async fn many_collections_are_sequenced_and_none_of_another_database() {
    const COLLECTIONS: usize = 70;
    let databases = Databases::new();
    let database = databases.database().await;
    let name = |place: usize| format!("kind{place:02}");
    for place in 0..COLLECTIONS {
        let name = name(place);
        commits_of(&database, &name).insert_one(commit_of(&name, "1", 1)).await.expect("inserted");
    }
    let store = databases.store(Options::default()).await;
    let log = log_of(&store);
    until_head(&log, COLLECTIONS as u64).await;
    for place in [0, COLLECTIONS - 1] {
        let name = name(place);
        commits_of(&database, &name).insert_one(commit_of(&name, "2", 2)).await.expect("inserted");
    }
    // Another database's collection of the same name is nobody's here.
    let other = database.client().database(&format!("{}_other", database.name()));
    commits_of(&other, "kind00").insert_one(commit_of("kind00", "3", 3)).await.expect("inserted");
    commits_of(&database, "cart").insert_one(commit_of("cart", "1", 1)).await.expect("inserted");
    until_head(&log, COLLECTIONS as u64 + 3).await;
    other.drop().await.expect("dropped");
    assert_eq!(names(&log).await[COLLECTIONS..], ["kind00", &*name(COLLECTIONS - 1), "cart"]);
    store.close().await;
}

#[tokio::test]
async fn what_is_not_called_like_a_collection_of_commits_is_left_alone() {
    let databases = Databases::new();
    let store = databases.store(Options::default()).await;
    let log = log_of(&store);
    log.commit(order("a", 0)).await.expect("committed");
    let database = databases.database().await;
    let others = ["cart_event_streams", "cart_event_stream.old", "event_stream", "sequencer-held-2", "x-event-log"];
    for (place, name) in others.into_iter().enumerate() {
        let other = database.collection::<Document>(name);
        other.insert_one(commit_of("cart", &place.to_string(), 1)).await.expect("inserted");
        other.delete_many(Document::new()).await.expect("deleted");
    }
    // Behind all of them in the order of the oplog.
    commits_of(&database, "user").insert_one(commit_of("user", "1", 1)).await.expect("inserted");
    until_head(&log, 2).await;
    assert_eq!(names(&log).await, ["order", "user"]);
    let held = store.sequencing("default").expect("the tenant is declared").held(None, 100).await.expect("listed");
    assert!(held.is_empty(), "{held:?}");
    store.close().await;
}
