//! Prepare keys as a service: as Wow stores and asks for them, and one winner among the callers of two stores.

use std::sync::Arc;

use annals_core::{Code, DEFAULT_TENANT, KeyChange, KeyValue, PrepareKeys, Release, Reserve, Store, Timestamp};
use annals_mongodb::{MongoStore, Options};
use mongodb::Collection;
use mongodb::bson::{Bson, DateTime, Document, doc};

use crate::server::{Databases, Faults};

fn value(json: &str) -> KeyValue {
    serde_json::from_str(json).expect("a value")
}

fn user(key: &str, json: &str) -> Reserve {
    Reserve::new("user", key, value(json))
}

fn keys_of(store: &MongoStore) -> Arc<dyn PrepareKeys> {
    store.prepare_keys(DEFAULT_TENANT).expect("declared")
}

const FOR_EVER: i64 = 148_204_944_000_000;

fn date(millis: i64) -> Bson {
    Bson::DateTime(DateTime::from_millis(millis))
}

async fn stored(keys: &Collection<Document>, key: &str) -> Option<Document> {
    keys.find_one(doc! { "_id": key }).await.expect("read")
}

#[tokio::test]
async fn the_service_stores_what_wow_stores() {
    let databases = Databases::new();
    let options = Options { prepare_database: Some(databases.other()), ..Options::default() };
    let store = databases.store(options).await;
    let keys = keys_of(&store);
    let there = databases.client().await.database(&databases.other()).collection::<Document>("prepare_user");
    assert_eq!(keys.prepare(user("eva", r#"{"b":"x","a":true}"#)).await, Ok(true));
    let due = doc! { "_id": "eva", "value": { "b": "x", "a": true }, "ttlAt": date(FOR_EVER) };
    assert_eq!(stored(&there, "eva").await, Some(due));
    let timed = user("eva", "\"u-2\"").until(Timestamp::from_millis(5_000_000_000_000));
    assert_eq!(keys.reprepare(None, timed).await, Ok(true));
    let due = doc! { "_id": "eva", "value": "u-2", "ttlAt": date(5_000_000_000_000) };
    assert_eq!(stored(&there, "eva").await, Some(due));
    let old = Release::new("user", "eva").of_value(value("\"u-2\""));
    assert_eq!(keys.reprepare_as(old, user("eve", "\"u-3\"")).await, Ok(true));
    assert_eq!(stored(&there, "eva").await, None);
    let due = doc! { "_id": "eve", "value": "u-3", "ttlAt": date(FOR_EVER) };
    assert_eq!(stored(&there, "eve").await, Some(due));
    let mut names = there.list_index_names().await.expect("listed");
    names.sort();
    assert_eq!(names, ["_id_", "_id_hashed", "ttlAt_1"]);
    store.close().await;
}

/// What Wow does with its own filters is seen here, and the other way round.
#[tokio::test]
async fn wow_and_the_service_hold_the_same_keys() {
    let databases = Databases::new();
    let store = databases.store(Options::default()).await;
    let keys = keys_of(&store);
    let theirs = databases.database().await.collection::<Document>("prepare_user");
    let wow_prepares = async |key: &str, json: &str| {
        let filter = doc! { "_id": key, "ttlAt": { "$lt": DateTime::now() } };
        let document = doc! { "_id": key, "value": json, "ttlAt": date(FOR_EVER) };
        theirs.replace_one(filter, document).upsert(true).await.is_ok()
    };
    assert_eq!(keys.prepare(user("eva", "\"u-1\"")).await, Ok(true));
    assert!(!wow_prepares("eva", "w-1").await);
    assert!(wow_prepares("eve", "w-1").await);
    assert_eq!(keys.prepare(user("eve", "\"u-1\"")).await, Ok(false));
    assert_eq!(keys.reprepare(Some(value("\"w-1\"")), user("eve", "\"u-2\"")).await, Ok(true));
    let gone = theirs.delete_one(doc! { "_id": "eve", "value": "u-2" }).await.expect("deleted");
    assert_eq!(gone.deleted_count, 1);
    // Without a date it is held for ever; Wow's rollback without a value does not find it, and so does not ours.
    theirs.insert_one(doc! { "_id": "dateless", "value": 3_i32 }).await.expect("inserted");
    let found = keys.look("user", "dateless").await.expect("read").expect("there");
    assert_eq!((found.holder.ttl_at, found.expired), (None, false));
    assert_eq!(keys.prepare(user("dateless", "1")).await, Ok(false));
    assert_eq!(keys.rollback(Release::new("user", "dateless")).await, Ok(false));
    assert_eq!(keys.rollback(Release::new("user", "dateless").of_value(value("3.0"))).await, Ok(true));
    store.close().await;
}

/// Each store is a process of its own; half of the callers ask one, half the other.
#[tokio::test(flavor = "multi_thread")]
async fn of_the_callers_of_two_stores_one_takes_a_key() {
    const ROUNDS: usize = 60;
    const CALLERS: usize = 8;
    let databases = Databases::new();
    let stores = [databases.store(Options::default()).await, databases.store(Options::default()).await];
    let keys = [keys_of(&stores[0]), keys_of(&stores[1])];
    for round in 0..ROUNDS {
        // Every second round meets a key that has expired, unless the server has removed it by then.
        let key = format!("seat-{}", round / 2);
        let tasks: Vec<_> = (0..CALLERS)
            .map(|n| {
                let keys = keys[n % 2].clone();
                let new = user(&key, &n.to_string());
                tokio::spawn(async move { keys.change(KeyChange::Prepare(new)).await })
            })
            .collect();
        let mut winners = 0;
        for task in tasks {
            winners += usize::from(task.await.expect("the task ends well").expect("it is answered"));
        }
        assert_eq!(winners, 1, "round {round}");
        let expired = user(&key, "-1").until(Timestamp::from_millis(1_000));
        assert_eq!(keys[0].reprepare(None, expired).await, Ok(true), "round {round}");
    }
    for store in stores {
        store.close().await;
    }
}

/// A connection that breaks once costs nothing; what is not answered at all is said to be unknown, and what is refused is no answer either.
#[tokio::test]
async fn a_change_happens_once_or_is_said_to_be_unknown() {
    let databases = Databases::new();
    let name = format!("prepare-{}", databases.name);
    let url = format!("{}&appName={name}", databases.url());
    let store = MongoStore::open(&url, Options::default()).await.expect("the store opens");
    let keys = keys_of(&store);
    assert_eq!(keys.prepare(user("other", "1")).await, Ok(true));
    let fault = Faults::take().await;
    let update = |more: Document| {
        let mut data = doc! { "failCommands": ["update"], "appName": &name };
        data.extend(more);
        data
    };
    fault.set(1, update(doc! { "closeConnection": true })).await;
    assert_eq!(keys.prepare(user("eva", "1")).await, Ok(true), "the driver sends it again");
    fault.set(1, update(doc! { "writeConcernError": { "code": 91, "errmsg": "stepping down" } })).await;
    match keys.change(KeyChange::Prepare(user("eve", "1"))).await {
        Ok(held) => assert!(held, "the server knows it again"),
        Err(unknown) => assert_eq!(unknown.code(), Code::Unreachable, "{unknown}"),
    }
    fault.end().await;
    assert!(keys.look("user", "eve").await.expect("looked").is_some(), "it was stored all the same");
    for (fails, due) in [
        (doc! { "closeConnection": true }, Code::Unreachable),
        (doc! { "writeConcernError": { "code": 64, "errmsg": "too late" } }, Code::Unreachable),
        (doc! { "errorCode": 14031 }, Code::StoreReadOnly),
    ] {
        // The sequencer's own updates meet the fault too, so it lasts until it is ended.
        fault.set(1000, update(fails.clone())).await;
        let told = keys.change(KeyChange::Prepare(user("otto", "1"))).await;
        let error = told.expect_err(&format!("{fails}"));
        fault.end().await;
        assert_eq!(error.code(), due, "{error}");
    }
    let moved = |from: &str, to: &str| {
        let old = Release::new("user", from).of_value(value("1"));
        keys.reprepare_as(old, user(to, "1"))
    };
    fault.set(1, doc! { "failCommands": ["commitTransaction"], "closeConnection": true, "appName": &name }).await;
    assert_eq!(moved("eva", "ida").await, Ok(true));
    fault.set(1, doc! { "failCommands": ["delete"], "errorCode": 112, "errorLabels": ["TransientTransactionError"], "appName": &name })
        .await;
    assert_eq!(moved("ida", "eva").await, Ok(true));
    fault.end().await;
    assert_eq!(keys.look("user", "ida").await, Ok(None));
    store.close().await;
}
