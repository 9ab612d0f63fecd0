//! Servers on which no store can be opened, and one that goes away and comes back.

use annals_core::{Code, OpenError, Store};
use annals_mongodb::{MongoStore, Options};
use mongodb::bson::{Document, doc};

use crate::server::{log_of, order, until};
use crate::servers::{Member, ReplicaSet};

async fn refused(url: &str) -> OpenError {
    MongoStore::open(url, Options::default()).await.err().expect("it is refused")
}

#[tokio::test]
async fn a_server_that_is_no_replica_set_is_refused_with_what_to_do() {
    let server = Member::start(&[]);
    let admin = server.admin().await;
    until("the server", async || admin.run_command(doc! { "ping": 1 }).await.is_ok()).await;
    let error = refused(&format!("mongodb://{}/shop", server.address())).await;
    assert_eq!(error.code, Code::UnsuitableServer, "{}", error.message);
    assert!(error.message.contains("--replSet"), "{}", error.message);
    let databases = admin.run_command(doc! { "listDatabases": 1, "nameOnly": true }).await.expect("listed");
    assert!(!format!("{databases}").contains("shop"), "nothing was made: {databases}");
}

/// A replica set that the URL names otherwise, and a server that is of none: what they are is found out by asking them.
#[tokio::test]
async fn a_url_that_names_the_wrong_replica_set_is_refused_with_what_to_write() {
    let set = ReplicaSet::start(1).await;
    let url = format!("mongodb://{}/shop?replicaSet=other", set.members[0].address());
    let error = refused(&url).await;
    assert_eq!(error.code, Code::InvalidConfig, "{}", error.message);
    for part in [&set.members[0].address(), "\"rs0\"", "write replicaSet=rs0"] {
        assert!(error.message.contains(part), "{part} in {}", error.message);
    }
    let alone = Member::start(&[]);
    let admin = alone.admin().await;
    until("the server", async || admin.run_command(doc! { "ping": 1 }).await.is_ok()).await;
    let error = refused(&format!("mongodb://{}/shop?replicaSet=rs7", alone.address())).await;
    assert_eq!(error.code, Code::UnsuitableServer, "{}", error.message);
    for part in [&alone.address(), "standalone", "--replSet rs7"] {
        assert!(error.message.contains(part), "{part} in {}", error.message);
    }
}

/// One that was never initiated is no server to wait for either.
#[tokio::test]
async fn a_replica_set_that_was_not_initiated_is_refused_with_what_to_do() {
    let server = Member::start(&["--replSet", "rs0"]);
    let admin = server.admin().await;
    until("the server", async || admin.run_command(doc! { "ping": 1 }).await.is_ok()).await;
    for query in ["directConnection=true", "replicaSet=rs0"] {
        let url = format!("mongodb://{}/shop?{query}&serverSelectionTimeoutMS=1000", server.address());
        let error = refused(&url).await;
        assert!([Code::UnsuitableServer, Code::Unreachable].contains(&error.code), "{}", error.message);
        assert!(error.message.contains("rs.initiate()"), "{}", error.message);
        assert!(!error.message.contains("standalone"), "{}", error.message);
    }
}

/// The store outlives its server: what waits is answered when it is back, and what was told stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_and_started_again_is_worked_with_again() {
    let mut set = ReplicaSet::start(1).await;
    let store = MongoStore::open(&set.url("shop"), Options::default()).await.expect("the store opens");
    let log = log_of(&store);
    for n in 0..20 {
        log.commit(order("a", n)).await.expect("committed");
    }
    set.members[0].signal("KILL");
    let under_way = tokio::spawn({
        let log = log.clone();
        async move { log.commit(order("a", 20).request_id("r")).await }
    });
    set.members[0].start_again();
    let _either = under_way.await.expect("it ends");
    let again = async || log.commit(order("a", 20).request_id("r")).await;
    until("an answer", async || again().await.is_ok()).await;
    assert_eq!(again().await.expect("committed").version, 21);
    assert_eq!(log.head().await, Ok(21));
    let commits = set.client().await.database("shop").collection::<Document>("order_event_stream");
    assert_eq!(commits.count_documents(doc! {}).await.expect("counted"), 21);
    store.close().await;
}
