//! Servers on which no store can be opened, and one that goes away and comes back.

use annals_core::{Code, OpenError, Store};
use annals_mongodb::{MongoStore, Options};
use mongodb::Client;
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
        assert!(error.message.contains("rs.initiate") || error.message.contains("no primary"), "{}", error.message);
    }
}

#[tokio::test]
async fn a_user_without_rights_is_refused_with_the_rights_that_are_needed_and_no_password() {
    let key = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("key-{}", std::process::id()));
    std::fs::write(&key, "bm90IGEgc2VjcmV0IG9mIGFueWJvZHk=\n").expect("written");
    std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("private");
    let server = Member::start(&["--replSet", "rs0", "--keyFile", &key.display().to_string()]);
    let admin = server.admin().await;
    let members = vec![doc! { "_id": 0, "host": server.address() }];
    let initiate = doc! { "replSetInitiate": { "_id": "rs0", "members": members } };
    until("a set", async || admin.run_command(initiate.clone()).await.is_ok()).await;
    let create = |user: &str, role: &str, database: &str| {
        doc! { "createUser": user, "pwd": "s3cr3t", "roles": [{ "role": role, "db": database }] }
    };
    until("the first user", async || admin.run_command(create("root", "root", "admin")).await.is_ok()).await;
    let url = |user: &str, password: &str| {
        format!("mongodb://{user}:{password}@{}/shop?replicaSet=rs0&authSource=admin", server.address())
    };
    let root = Client::with_uri_str(url("root", "s3cr3t")).await.expect("a client").database("admin");
    root.run_command(create("reader", "read", "shop")).await.expect("created");
    root.run_command(create("writer", "readWrite", "shop")).await.expect("created");
    for (user, password, says) in
        [("reader", "s3cr3t", "readWrite"), ("writer", "s3cr3t", "readAnyDatabase"), ("reader", "wr0ng", "password")]
    {
        let error = refused(&url(user, password)).await;
        assert_eq!(error.code, Code::UnsuitableServer, "{user}: {}", error.message);
        assert!(error.message.contains(says), "{user}: {}", error.message);
        assert!(!error.message.contains(password), "{}", error.message);
    }
    let roles = ["readWrite", "dbAdmin"].map(|role| doc! { "role": role, "db": "shop" });
    let roles = [&roles[..], &[doc! { "role": "readAnyDatabase", "db": "admin" }]].concat();
    root.run_command(doc! { "createUser": "annals", "pwd": "s3cr3t", "roles": roles }).await.expect("created");
    let store = MongoStore::open(&url("annals", "s3cr3t"), Options::default()).await.expect("the store opens");
    log_of(&store).commit(order("a", 1)).await.expect("committed");
    store.close().await;
    let _ = std::fs::remove_file(key);
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
