//! Commits that cannot have sequence numbers, whatever the reason: each is held for its aggregate alone. Other aggregates, other tenants
//! and the leader continue, and readiness stays.

use std::sync::atomic::{AtomicU32, Ordering};

use annals_core::{Ask, Asked, Code, DEFAULT_SCOPE, Data, NewCommit, NewEvent, Store};
use annals_mongodb::{MongoStore, Options};
use mongodb::bson::{Document, RawDocumentBuf, doc};

use crate::held::{ORDERS, ask, begun, held, sequencing, status, until_held, versions};
use crate::server::{Databases, log_of, order, two_tenants, until, wow_commit};
use crate::servers::ReplicaSet;

/// Checks that every tenant commits and gets sequence numbers, and that none of them is reported as refusing.
pub async fn goes_on(store: &MongoStore) {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let id = format!("goes-on-{}", COUNT.fetch_add(1, Ordering::Relaxed));
    for tenant in store.tenants() {
        let log = store.log(&tenant, DEFAULT_SCOPE).expect("the tenant is declared");
        let outcome = log.commit(order(&id, 1)).await.expect("others go on");
        assert!(outcome.first_sequence_number.is_some(), "{tenant} gets numbers");
    }
    for status in store.status() {
        assert_eq!(status.refusing, None, "{}", status.tenant);
    }
}

async fn epoch(store: &MongoStore) -> u64 {
    sequencing(store).state().await.expect("read").leader.expect("a process leads").epoch
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_spellings_of_one_uuid_are_refused_and_held_where_other_software_uses_them() {
    const ID: &str = "0a1b2c3d-0000-4000-8000-00000000abcd";
    let databases = Databases::new();
    let store = databases.store(two_tenants()).await;
    goes_on(&store).await;
    let event = || NewEvent::new("placed", Data::from_json("{}").expect("an object"));
    for other in [ID.to_uppercase(), ID.replace('-', "")] {
        let refused = log_of(&store).commit(NewCommit::new(other.clone(), "a").event(event())).await;
        let refused = refused.expect_err("another spelling");
        assert!(refused.code() == Code::InvalidName && refused.to_string().contains(ID), "{refused}");
    }
    let leader = epoch(&store).await;
    let database = databases.database().await;
    for (name, commit) in [(ID.to_owned(), "lower"), (ID.to_uppercase(), "upper")] {
        let mut document = wow_commit(commit, "a", 1, 7);
        document.insert("aggregateName", &*name);
        database.collection(&format!("{name}_event_stream")).insert_one(document).await.expect("inserted");
    }
    until_held(&store, 1).await;
    let one = &held(&store).await[0];
    assert!(one.id.commit == "upper" && one.reason.starts_with("taken: "), "{}", one.reason);
    assert!(one.reason.contains(ID), "{}", one.reason);
    goes_on(&store).await;
    assert_eq!(epoch(&store).await, leader, "the leader stays");
    store.close().await;
}

/// A commit of other software whose event fits into a document of its collection, and not into one of `event-log`.
fn nearly_16_mib(id: &str) -> Document {
    const DOCUMENT_BYTES_MAX: usize = 16 * 1024 * 1024;
    let mut commit = wow_commit(id, id, 1, 1);
    let bytes = RawDocumentBuf::try_from(&commit).expect("encodes").as_bytes().len();
    let event = commit.get_array_mut("body").expect("events")[0].as_document_mut().expect("an event");
    event.insert("body", doc! { "text": "x".repeat(DOCUMENT_BYTES_MAX - bytes - 64) });
    commit
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_event_is_too_large_for_the_log_is_held_and_the_others_go_on() {
    let databases = Databases::new();
    let store = databases.store(two_tenants()).await;
    goes_on(&store).await;
    let commits = databases.database().await.collection::<Document>(ORDERS);
    commits.insert_one(nearly_16_mib("big")).await.expect("inserted");
    until_held(&store, 1).await;
    let reason = held(&store).await.remove(0).reason;
    assert!(reason.starts_with("too large: body[0]"), "{reason}");
    goes_on(&store).await;
    // The change stream cannot show a commit of this size; one that follows it is seen all the same.
    let leader = epoch(&store).await;
    commits.insert_one(wow_commit("small", "small", 1, 1)).await.expect("inserted");
    until("its number", async || versions(&store, "small").await == [1]).await;
    goes_on(&store).await;
    assert_eq!(epoch(&store).await, leader, "the leader stays");
    assert!(matches!(ask(&store, "big", Ask::Retry).await, Asked::Held { .. }));
    commits.delete_one(doc! { "_id": "big" }).await.expect("deleted");
    assert_eq!(ask(&store, "big", Ask::Retry).await, Asked::Gone);
    goes_on(&store).await;
    store.close().await;
}

/// On a server of its own, whose cache is much too small.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_too_large_for_the_cache_is_held_and_numbered_once_the_cache_is_larger() {
    let set = ReplicaSet::start(1).await;
    crate::told::listen();
    let store = MongoStore::open(&set.url("shop"), Options::default()).await.expect("the store opens");
    assert!(!crate::told::told(tracing::Level::WARN, "cache_mib=256").is_empty(), "a small cache is warned of");
    goes_on(&store).await;
    let admin = set.client().await.database("admin");
    let cache = async |size: &str| {
        let size = format!("cache_size={size}");
        admin.run_command(doc! { "setParameter": 1, "wiredTigerEngineRuntimeConfig": size }).await.expect("set");
    };
    cache("48MB").await;
    let data = Data::from_json(&format!(r#"{{"text":"{}"}}"#, "x".repeat(1400))).expect("an object");
    let mut large = NewCommit::new("order", "large");
    large.events = (0..10_000).map(|_| NewEvent::new("placed", data.clone())).collect();
    let stored = log_of(&store).commit(large).await.expect("it is within the limits").commit_id.to_string();
    until_held(&store, 1).await;
    let reason = held(&store).await.remove(0).reason;
    assert!(reason.starts_with("too large for the server's cache"), "{reason}");
    goes_on(&store).await;
    cache("1GB").await;
    // It may take longer than an answer is waited for.
    let _ = sequencing(&store).ask(held(&store).await.remove(0).id, Ask::Retry).await;
    until_held(&store, 0).await;
    let numbered = log_of(&store).commit(order("large", 1)).await.expect("committed");
    assert_eq!((numbered.version, numbered.first_sequence_number), (2, Some(10_002)), "{stored} has 10,000 numbers");
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_version_whose_commit_was_deleted_is_not_used_again_and_what_is_put_in_its_place_is_held() {
    let databases = Databases::new();
    let (store, commits) = begun(&databases).await;
    log_of(&store).commit(order("a", 1)).await.expect("committed");
    commits.delete_many(doc! { "aggregateId": "a" }).await.expect("deleted");
    store.close().await;

    let store = databases.store(Options::default()).await;
    let outcome = log_of(&store).commit(order("a", 2)).await.expect("committed");
    assert!(outcome.version == 2 && outcome.first_sequence_number.is_some(), "{outcome:?}");
    commits.insert_one(wow_commit("x1", "a", 1, 1)).await.expect("inserted");
    until_held(&store, 1).await;
    let reason = held(&store).await.remove(0).reason;
    assert!(reason.starts_with("taken: version 1 came when the log had version 2"), "{reason}");
    goes_on(&store).await;
    assert_eq!(log_of(&store).commit(order("a", 3)).await.expect("its aggregate too").version, 3);
    commits.delete_one(doc! { "_id": "x1" }).await.expect("deleted");
    assert_eq!(ask(&store, "x1", Ask::Retry).await, Asked::Gone);
    store.close().await;
}

/// A person set validators on collections of the log: one that refuses the events of one commit, and one that refuses everything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_validator_refuses_is_held_and_a_log_that_cannot_be_written_is_put_aside_alone() {
    let databases = Databases::new();
    let store = databases.store(two_tenants()).await;
    goes_on(&store).await;
    let leader = epoch(&store).await;
    let database = databases.database().await;
    let validate = async |collection: &str, validator: Document| {
        database.run_command(doc! { "collMod": collection, "validator": validator }).await.expect("set");
    };
    validate("event-log", doc! { "Metadata.EventSource": { "$ne": "refused" } }).await;
    let commits = database.collection::<Document>(ORDERS);
    commits.insert_one(wow_commit("v1", "refused", 1, 1)).await.expect("inserted");
    until_held(&store, 1).await;
    let reason = held(&store).await.remove(0).reason;
    assert!(reason.starts_with("refused: MongoDB says"), "{reason}");
    goes_on(&store).await;
    validate("event-log", doc! {}).await;
    assert!(matches!(ask(&store, "v1", Ask::Retry).await, Asked::Numbered { .. }));

    // Everything of one tenant is refused at once, and its aggregates have several commits.
    validate("event-log", doc! { "Metadata.EventSource": { "$not": { "$regex": "^many-" } } }).await;
    let each = |n: i32| wow_commit(&format!("m{n}"), &format!("many-{}", n / 2), n % 2 + 1, 1);
    commits.insert_many((0..200).map(each)).await.expect("inserted");
    until("all of them held", async || status(&store).held == 200).await;
    goes_on(&store).await;
    validate("event-log", doc! {}).await;
    store.close().await;
    let store = databases.store(two_tenants()).await;
    until("all of them numbered when the next process leads", async || status(&store).held == 0).await;
    goes_on(&store).await;

    // What is held cannot be noted: this log waits, and no other.
    validate("sequencer-held", doc! { "reason": "x" }).await;
    commits.insert_one(wow_commit("g2", "gap", 2, 1)).await.expect("inserted");
    let stalled = async || store.status()[0].refusing.clone().is_some_and(|error| error.code() == Code::NotReady);
    until("a report", stalled).await;
    let of_other = store.log("other", DEFAULT_SCOPE).expect("declared");
    let outcome = of_other.commit(order("b", 1)).await.expect("the other tenant goes on");
    assert!(outcome.first_sequence_number.is_some());
    validate("sequencer-held", doc! {}).await;
    until_held(&store, 1).await;
    until("the end of it", async || !stalled().await).await;
    goes_on(&store).await;
    assert!(epoch(&store).await >= leader);
    store.close().await;
}

/// Far more events than a commit of ours can have.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_of_other_software_with_tens_of_thousands_of_events_is_numbered_or_held() {
    let databases = Databases::new();
    let store = databases.store(two_tenants()).await;
    goes_on(&store).await;
    let mut many = wow_commit("many", "many", 1, 1);
    let event = many.get_array("body").expect("events")[0].clone();
    many.insert("body", vec![event; 60_000]);
    let commits = databases.database().await.collection::<Document>(ORDERS);
    commits.insert_one(many).await.expect("inserted");
    let database = databases.database().await;
    let entries = database.collection::<Document>("event-log-commits");
    until("its numbers, or a reason", async || {
        let entry = entries.find_one(doc! { "commit": "many" }).await.expect("read");
        entry.is_some_and(|entry| entry.get_i32("n").is_ok_and(|n| n == 60_000)) || held(&store).await.len() == 1
    })
    .await;
    goes_on(&store).await;
    store.close().await;
}
