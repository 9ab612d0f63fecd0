//! An oplog that does not reach back to where the sequencer stopped.

use annals_core::{LogQuery, Store, limits};
use annals_mongodb::{MongoStore, Options};
use mongodb::bson::{Document, doc};
use mongodb::error::ErrorKind;

use crate::server::{log_of, order, until, wow_commit};
use crate::servers::ReplicaSet;

/// A server with the smallest oplog, which other software fills until the position is gone from it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_position_that_the_oplog_has_lost_is_survived() {
    const HISTORY_LOST: i32 = 286;
    // What a restart would need is kept, so checkpoints come often.
    let set = ReplicaSet::start_with(1, &["--oplogSize", "1", "--syncdelay", "1"]).await;
    let store = MongoStore::open(&set.url("shop"), Options::default()).await.expect("the store opens");
    let (client, log) = (set.client().await, log_of(&store));
    let shop = client.database("shop");
    let (mut commits, mut token) = (0, None);
    until("a noted position", async || {
        log.commit(order("a", commits)).await.expect("committed");
        commits += 1;
        let state = shop.collection::<Document>("sequencer-state").find_one(doc! { "_id": "event-log" }).await;
        token = state.expect("read").and_then(|state| state.get_document("token").ok().cloned());
        token.is_some()
    })
    .await;
    store.close().await;
    let foreign = shop.collection::<Document>("order_event_stream").insert_one(wow_commit("x1", "x", 1, 7)).await;
    foreign.expect("inserted while no process was there");
    let follow = doc! { "$changeStream": { "allChangesForCluster": true, "resumeAfter": token } };
    let other = client.database("other").collection::<Document>("notes");
    until("an oplog without the position", async || {
        other.insert_one(doc! { "text": "x".repeat(200_000) }).await.expect("inserted");
        let follow = doc! { "aggregate": 1, "pipeline": [follow.clone()], "cursor": {} };
        let followed = client.database("admin").run_command(follow).await;
        followed.is_err_and(|error| matches!(&*error.kind, ErrorKind::Command(it) if it.code == HISTORY_LOST))
    })
    .await;
    let store = MongoStore::open(&set.url("shop"), Options::default()).await.expect("the store opens");
    let log = log_of(&store);
    log.commit(order("a", commits)).await.expect("committed");
    until("all commits", async || log.head().await == Ok(commits + 2)).await;
    let events = log.read(LogQuery { limit: limits::PAGE_MAX, ..LogQuery::default() }).await.expect("read").events;
    let found = events.iter().map(|it| (it.sequence_number, it.commit.aggregate.id.to_string()));
    let due = (0..commits + 2).map(|n| (n, if n == commits { "x" } else { "a" }.to_owned()));
    assert_eq!(found.collect::<Vec<_>>(), due.collect::<Vec<_>>());
    store.close().await;
}
