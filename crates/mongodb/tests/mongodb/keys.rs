//! Prepare keys that change with a commit: as Wow stores them, and with the commit or not at all, whatever the server does.

use annals_core::{Code, CommitError, ExpectedVersion, KeyValue, NewCommit, Release, Reserve, Store, Timestamp};
use annals_mongodb::{MongoStore, Options};
use mongodb::bson::{Bson, Document, doc};

use crate::server::{Databases, Faults, log_of, order};

fn value(text: &str) -> KeyValue {
    serde_json::from_str(text).expect("a value")
}

fn reserve(key: &str) -> Reserve {
    Reserve::new("user", key, value("\"u-1\""))
}

fn taken(key: &str) -> CommitError {
    CommitError::KeyTaken { name: "user".into(), key: key.into() }
}

async fn held(databases: &Databases) -> Vec<String> {
    let keys = databases.database().await.collection::<Document>("prepare_user");
    let mut found = keys.find(doc! {}).sort(doc! { "_id": 1 }).await.expect("read");
    let mut held = Vec::new();
    while found.advance().await.expect("read") {
        held.push(found.current().get_str("_id").expect("a text").to_owned());
    }
    held
}

#[tokio::test]
async fn keys_are_stored_as_wow_stores_them_in_their_own_database() {
    let databases = Databases::new();
    let options = Options { prepare_database: Some(databases.other()), ..Options::default() };
    let store = databases.store(options).await;
    let log = log_of(&store);
    let timed =
        Reserve::new("user", "timed", value(r#"{"b":1,"a":2}"#)).until(Timestamp::from_millis(5_000_000_000_000));
    log.commit(order("a", 1).reserve(reserve("ever")).reserve(timed)).await.expect("committed");
    let client = databases.client().await;
    let keys = client.database(&databases.other()).collection::<Document>("prepare_user");
    let found = keys.find_one(doc! { "_id": "ever" }).await.expect("read").expect("there");
    let date = |millis| Bson::DateTime(mongodb::bson::DateTime::from_millis(millis));
    assert_eq!(found, doc! { "_id": "ever", "value": "u-1", "ttlAt": date(148_204_944_000_000) });
    // Wow's own question: is it free, or has it expired?
    let now = date(5_000_000_000_000);
    let question = doc! { "_id": "timed", "ttlAt": { "$lt": now.clone() } };
    assert_eq!(keys.find_one(question).await.expect("read"), None);
    let mut indexes = keys.list_indexes().await.expect("listed");
    let mut ttl = None;
    while indexes.advance().await.expect("listed") {
        let index = indexes.deserialize_current().expect("an index");
        if index.keys == doc! { "ttlAt": 1 } {
            ttl = index.options.map(|options| (options.name, options.expire_after));
        }
    }
    assert_eq!(ttl, Some((Some("ttlAt_1".to_owned()), Some(std::time::Duration::ZERO))));
    store.close().await;
}

/// What Wow's application reserved is taken here, and given back by its value.
#[tokio::test]
async fn keys_of_other_software_are_respected() {
    let databases = Databases::new();
    let store = databases.store(Options::default()).await;
    let log = log_of(&store);
    let keys = databases.database().await.collection::<Document>("prepare_user");
    let later = mongodb::bson::DateTime::from_millis(5_000_000_000_000);
    let past = mongodb::bson::DateTime::from_millis(1_000);
    keys.insert_many([
        doc! { "_id": "theirs", "value": "w-1", "ttlAt": later },
        doc! { "_id": "old", "value": "w-2", "ttlAt": past },
        doc! { "_id": "dateless", "value": 3 },
    ])
    .await
    .expect("inserted");
    for key in ["theirs", "dateless"] {
        assert_eq!(log.commit(order("a", 1).reserve(reserve(key))).await, Err(taken(key)));
    }
    log.commit(order("a", 1).reserve(reserve("old"))).await.expect("it has expired");
    let wrong = order("a", 2).release(Release::new("user", "theirs").of_value(value("\"w-2\"")));
    assert_eq!(log.commit(wrong).await.expect_err("refused").code(), Code::KeyNotHeld);
    let right = order("a", 2).release(Release::new("user", "theirs").of_value(value("\"w-1\"")));
    log.commit(right.release(Release::new("user", "dateless").of_value(value("3")))).await.expect("given back");
    assert_eq!(held(&databases).await, ["old"]);
    store.close().await;
}

/// Two processes race for the next version, each with a key: who loses leaves none behind.
#[tokio::test]
async fn a_conflict_leaves_no_key_behind() {
    let databases = Databases::new();
    let (one, other) = tokio::join!(databases.store(Options::default()), databases.store(Options::default()));
    let (log, beside) = (log_of(&one), log_of(&other));
    let mut winners = Vec::new();
    for round in 0..15_u64 {
        let commit = |who: &str| {
            order("a", round).reserve(reserve(&format!("{round:02}-{who}"))).expect(ExpectedVersion::Exact(round))
        };
        let (first, second) = tokio::join!(log.commit(commit("a")), beside.commit(commit("b")));
        let won = match (first, second) {
            (Ok(_), Err(CommitError::VersionConflict { .. })) => "a",
            (Err(CommitError::VersionConflict { .. }), Ok(_)) => "b",
            other => panic!("one wins: {other:?}"),
        };
        winners.push(format!("{round:02}-{won}"));
    }
    assert_eq!(held(&databases).await, winners);
    tokio::join!(one.close(), other.close());
}

/// A store whose commands only are met by a fault that names it.
async fn named(databases: &Databases) -> (MongoStore, String) {
    let name = format!("keys-{}", databases.name);
    let url = format!("{}&appName={name}", databases.url());
    (MongoStore::open(&url, Options::default()).await.expect("the store opens"), name)
}

#[tokio::test]
async fn a_commit_with_keys_survives_what_the_server_does_and_happens_once() {
    let databases = Databases::new();
    let (store, name) = named(&databases).await;
    let log = log_of(&store);
    log.commit(order("a", 0).reserve(reserve("00"))).await.expect("committed");
    let label = ["TransientTransactionError"];
    let unknown = ["UnknownTransactionCommitResult"];
    let fault = Faults::take().await;
    let faults = [
        doc! { "failCommands": ["find"], "closeConnection": true },
        doc! { "failCommands": ["update"], "errorCode": 112, "errorLabels": label },
        doc! { "failCommands": ["update"], "closeConnection": true },
        doc! { "failCommands": ["insert"], "errorCode": 112, "errorLabels": label },
        doc! { "failCommands": ["commitTransaction"], "errorCode": 251, "errorLabels": label },
        doc! { "failCommands": ["commitTransaction"], "closeConnection": true },
        doc! { "failCommands": ["commitTransaction"], "errorCode": 11602 },
        doc! { "failCommands": ["commitTransaction"],
        "writeConcernError": { "code": 64, "errmsg": "too late", "errorLabels": unknown } },
    ];
    let mut due = vec!["00".to_owned()];
    for (n, mut data) in (1..).zip(faults) {
        data.insert("appName", &name);
        fault.set(1, data.clone()).await;
        let key = format!("{n:02}");
        let commit =
            order("a", n).request_id(format!("r-{n}")).reserve(reserve(&key)).expect(ExpectedVersion::Exact(n));
        let outcome = log.commit(commit.clone()).await.unwrap_or_else(|error| panic!("{data}: {error}"));
        assert_eq!((outcome.version, outcome.duplicate), (n + 1, false), "{data}");
        assert!(log.commit(commit).await.expect("a repeat").duplicate, "{data}");
        due.push(key);
        assert_eq!(held(&databases).await, due, "{data}");
    }
    // What the server refuses for good is said at once, and nothing of it is stored.
    fault.set(1, doc! { "failCommands": ["insert"], "errorCode": 14031, "appName": &name }).await;
    let full = log.commit(order("a", 99).reserve(reserve("full"))).await.expect_err("there is no room");
    assert_eq!(full.code(), Code::StoreReadOnly, "{full}");
    fault.end().await;
    assert_eq!(held(&databases).await, due);
    assert_eq!(log.head().await, Ok(due.len() as u64));
    store.close().await;
}

#[tokio::test]
async fn a_name_whose_collection_is_taken_is_refused_by_its_path() {
    let databases = Databases::new();
    let store = databases.store(Options::default()).await;
    let log = log_of(&store);
    let bad = |name: &str| NewCommit { ..order("a", 1).reserve(Reserve::new(name, "k", value("1"))) };
    for name in ["order_event_stream", "order_snapshot"] {
        match log.commit(bad(name)).await {
            Err(CommitError::Invalid(invalid)) => {
                assert_eq!((invalid.code, &*invalid.path), (Code::InvalidKeys, "reserve[0].name"));
            }
            other => panic!("{name} is to be refused, not {other:?}"),
        }
    }
    assert_eq!(log.head().await, Ok(0));
    store.close().await;
}
