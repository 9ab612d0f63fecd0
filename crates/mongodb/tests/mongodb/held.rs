//! Commits that other software stored and that cannot have numbers: they are seen, counted, tried again and accepted.

use std::sync::Arc;

use annals_core::{
    Aggregate, AggregateQuery, Ask, Asked, Code, HeldCommit, HeldId, LogQuery, ReadError, SequencerStatus, Sequencing,
    Store,
};
use annals_mongodb::adopt::AdoptNames;
use annals_mongodb::{MongoStore, Options};
use mongodb::Collection;
use mongodb::bson::{Document, doc};
use tracing::Level;

use crate::server::{Databases, log_of, order, until, wow_commit};
use crate::told;

pub const ORDERS: &str = "order_event_stream";

pub fn sequencing(store: &MongoStore) -> Arc<dyn Sequencing> {
    store.sequencing("default").expect("the tenant is declared")
}

pub fn status(store: &MongoStore) -> SequencerStatus {
    store.status()[0].sequencer.expect("a sequencer gives the numbers")
}

fn one(commit: &str) -> HeldId {
    HeldId { collection: ORDERS.to_owned(), commit: commit.to_owned() }
}

pub async fn held(store: &MongoStore) -> Vec<HeldCommit> {
    sequencing(store).held(None, 100).await.expect("listed")
}

/// Waits until so many are held back.
pub async fn until_held(store: &MongoStore, count: usize) {
    until("held commits", async || held(store).await.len() == count && status(store).held == count as u64).await;
}

/// Waits until the sequencer has looked at what was held before it, and follows what comes: a commit of this id has its number.
async fn until_following(store: &MongoStore, id: &str) {
    log_of(store).commit(order(id, 0)).await.expect("committed");
    until("its number", async || versions(store, id).await == [1]).await;
}

pub async fn ask(store: &MongoStore, commit: &str, what: Ask) -> Asked {
    sequencing(store).ask(one(commit), what).await.expect("answered")
}

pub async fn versions(store: &MongoStore, id: &str) -> Vec<u64> {
    let page = log_of(store).read(LogQuery::default()).await.expect("read");
    page.events.iter().filter(|it| &*it.commit.aggregate.id == id).map(|it| it.commit.version).collect()
}

/// A store with a collection of commits that other software writes to.
pub async fn begun(databases: &Databases) -> (MongoStore, Collection<Document>) {
    let store = databases.store(Options::default()).await;
    log_of(&store).commit(order("ours", 0)).await.expect("committed");
    (store, databases.database().await.collection(ORDERS))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gap_is_seen_and_accepted_and_what_comes_late_is_seen_too() {
    let databases = Databases::new();
    let (store, commits) = begun(&databases).await;
    for (id, version) in [("a1", 1), ("a3", 3), ("a4", 4)] {
        commits.insert_one(wow_commit(id, "a", version, 1)).await.expect("inserted");
    }
    until_held(&store, 2).await;
    // Who reads what is held back is told so at once, and reads what comes before it.
    let all = AggregateQuery::new(Aggregate::new("order", "a"));
    let refused = log_of(&store).read_aggregate(all.clone()).await.expect_err("they have no numbers");
    assert!(matches!(&refused, ReadError::Store(error) if error.code() == Code::CommitHeld), "{refused}");
    assert!(refused.to_string().contains("is held"), "{refused}");
    let first = log_of(&store).read_aggregate(AggregateQuery { to_version: 1, ..all }).await.expect("read");
    assert_eq!(first.commits.len(), 1);
    let seen = held(&store).await;
    assert_eq!(seen.iter().map(|it| &*it.id.commit).collect::<Vec<_>>(), ["a3", "a4"]);
    assert_eq!(seen[0].reason, "gap: version 3 came when the log had version 1");
    assert_eq!((&*seen[0].aggregate_name, &*seen[0].aggregate_id, seen[0].version), ("order", "a", 3));
    assert!(seen[0].since.is_some());
    assert_eq!(sequencing(&store).held(Some(one("a3")), 100).await.expect("listed"), seen[1..]);
    log_of(&store).commit(order("b", 1)).await.expect("other aggregates go on");

    assert_eq!(ask(&store, "a3", Ask::Retry).await, Asked::Held { reason: seen[0].reason.clone() });
    assert_eq!(ask(&store, "a3", Ask::Accept).await, Asked::Numbered { sequence_number: 3 });
    until_held(&store, 0).await;
    assert_eq!(versions(&store, "a").await, [1, 3, 4], "what came behind it followed by itself");

    commits.insert_one(wow_commit("a2", "a", 2, 1)).await.expect("inserted");
    until_held(&store, 1).await;
    let late = &held(&store).await[0];
    assert!(late.reason.starts_with("late: version 2 came when the log had version 4"), "{}", late.reason);
    assert!(matches!(ask(&store, "a2", Ask::Accept).await, Asked::Held { .. }), "versions never go back");
    assert_eq!(log_of(&store).commit(order("a", 5)).await.expect("it goes on").version, 5);
    commits.delete_one(doc! { "_id": "a2" }).await.expect("deleted");
    assert_eq!(ask(&store, "a2", Ask::Retry).await, Asked::Gone);
    until_held(&store, 0).await;
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_malformed_commit_is_mended_and_tried_again() {
    let databases = Databases::new();
    let (store, commits) = begun(&databases).await;
    let mut broken = wow_commit("m1", "m", 1, 1);
    broken.insert("body", "nothing");
    commits.insert_one(broken).await.expect("inserted");
    let mut strange = wow_commit("s1", "s", 1, 1);
    strange.insert("_id", 7);
    commits.insert_one(strange).await.expect("inserted");
    until_held(&store, 2).await;
    let mut whose: Vec<_> = held(&store).await.into_iter().map(|it| (it.aggregate_name, it.aggregate_id)).collect();
    whose.sort();
    assert_eq!(whose, [("order".to_owned(), "m".to_owned()), ("order".to_owned(), "s".to_owned())]);
    let Asked::Held { reason } = ask(&store, "m1", Ask::Accept).await else { panic!("only a gap is accepted") };
    assert!(reason.starts_with("malformed: body"), "{reason}");
    store.close().await;

    let store = databases.store(Options::default()).await;
    until_following(&store, "behind").await;
    until_held(&store, 2).await;
    let body = wow_commit("m1", "m", 1, 1).get("body").cloned().expect("a body");
    commits.update_one(doc! { "_id": "m1" }, doc! { "$set": { "body": body } }).await.expect("mended");
    assert!(matches!(ask(&store, "m1", Ask::Retry).await, Asked::Numbered { .. }));
    until_held(&store, 1).await;
    assert_eq!(versions(&store, "m").await, [1]);
    let unknown = sequencing(&store).ask(one("nobody"), Ask::Retry).await.expect_err("it is not held");
    assert!(matches!(unknown, ReadError::Invalid(invalid) if invalid.code == Code::UnknownHeldCommit));
    store.close().await;
}

/// Deleting or mending a held commit is what the documentation says to do; to change any other is an error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_commit_that_is_deleted_or_mended_is_no_error_and_any_other_is() {
    let databases = Databases::new();
    let (store, commits) = begun(&databases).await;
    for id in ["m1", "m2"] {
        let mut broken = wow_commit(id, id, 1, 1);
        broken.insert("body", "nothing");
        commits.insert_one(broken).await.expect("inserted");
    }
    until_held(&store, 2).await;
    commits.delete_one(doc! { "_id": "m1" }).await.expect("deleted");
    commits.replace_one(doc! { "_id": "m2" }, wow_commit("m2", "m2", 1, 1)).await.expect("mended");
    let database = commits.namespace().db;
    let noted = |commit: &str| {
        let told = told::told(Level::INFO, &database);
        told.iter().any(|it| it.contains("a held commit was changed") && it.contains(commit))
    };
    until("notes of both", async || noted("m1") && noted("m2")).await;
    assert_eq!(ask(&store, "m1", Ask::Retry).await, Asked::Gone);
    assert!(matches!(ask(&store, "m2", Ask::Retry).await, Asked::Numbered { .. }));
    assert_eq!(told::told(Level::ERROR, &database), [""; 0]);
    commits.delete_one(doc! { "_id": "m2" }).await.expect("deleted");
    until("an error", async || told::told(Level::ERROR, &database).iter().any(|it| it.contains("m2"))).await;
    store.close().await;
}

/// The position in the stream is saved now and then only, so the next sequencer sees the insert of the commit as it was before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mended_commit_stays_in_the_log_when_its_insert_is_seen_again() {
    let databases = Databases::new();
    let (store, commits) = begun(&databases).await;
    let state = databases.database().await.collection::<Document>("sequencer-state");
    let log = doc! { "_id": "event-log" };
    let has_position =
        async || state.find_one(log.clone()).await.expect("read").filter(|log| log.contains_key("token"));
    until("a position", async || has_position().await.is_some()).await;
    let earlier = has_position().await.expect("it was there");
    let whole = wow_commit("m1", "m", 1, 1);
    let mut broken = whole.clone();
    broken.insert("body", "nothing");
    commits.insert_one(broken).await.expect("inserted");
    until_held(&store, 1).await;
    store.close().await;
    commits.replace_one(doc! { "_id": "m1" }, whole).await.expect("mended");
    state.replace_one(log, earlier).await.expect("gone back");

    let store = databases.store(Options::default()).await;
    until("the number", async || versions(&store, "m").await == [1]).await;
    // Behind all that the stream shows again.
    until_following(&store, "last").await;
    assert_eq!(held(&store).await, []);
    assert_eq!(versions(&store, "m").await, [1]);
    store.close().await;
}

/// Wow's reader does not ask whose a commit is, so neither does the log; a person is told once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_of_another_context_get_numbers_and_their_context_is_told() {
    let databases = Databases::new();
    let (store, commits) = begun(&databases).await;
    assert_eq!(sequencing(&store).state().await.expect("read").other_contexts, Vec::<String>::new());
    for version in 1..=3 {
        let mut foreign = wow_commit(&format!("f{version}"), "f", version, 1);
        foreign.insert("contextName", "billing");
        commits.insert_one(foreign).await.expect("inserted");
    }
    until("the numbers", async || versions(&store, "f").await == [1, 2, 3]).await;
    assert_eq!(sequencing(&store).state().await.expect("read").other_contexts, ["billing"]);
    store.close().await;
    let report = databases.inspect(&AdoptNames::default()).await.expect("inspected");
    let told = report.findings.iter().find(|finding| finding.kind == "other_context").expect("it is told");
    assert!(told.what.contains("billing") && report.obstacles.is_empty(), "{}", told.what);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_process_may_be_asked_and_all_know_who_leads() {
    let databases = Databases::new();
    let (first, commits) = begun(&databases).await;
    let second = databases.store(Options::default()).await;
    let leader = async |store: &MongoStore| sequencing(store).state().await.expect("read").leader.expect("one leads");
    let (here, there) = (leader(&first).await, leader(&second).await);
    assert!(here.here && !there.here);
    assert_eq!((here.holder, here.epoch), (there.holder, there.epoch));
    assert!(here.process.contains(&std::process::id().to_string()), "{}", here.process);
    assert!(status(&first).leads && !status(&second).leads);
    assert_eq!(status(&second).lag_ms, None);

    commits.insert_one(wow_commit("a2", "a", 2, 1)).await.expect("inserted");
    until_held(&second, 1).await;
    assert!(matches!(ask(&second, "a2", Ask::Accept).await, Asked::Numbered { .. }));
    until_held(&second, 0).await;
    let state = sequencing(&second).state().await.expect("read");
    assert_eq!((state.head, state.held), (2, 0));
    tokio::join!(first.close(), second.close());
}
