//! Held commits in numbers and out of order, and what other software may call its collections, views and aggregates.

use std::time::Duration;

use annals_core::{Aggregate, AggregateIdsQuery, AggregateQuery, Ask, Asked, Code, LogQuery, ReadError, Store};
use annals_mongodb::{MongoStore, Options};
use mongodb::bson::{Document, doc};

use crate::held::{ORDERS, ask, begun, held, sequencing, status, until_held, versions};
use crate::held_alone::goes_on;
use crate::server::{Databases, log_of, order, until, wow_commit};
use crate::servers::ReplicaSet;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_accepted_before_an_earlier_held_one_does_not_cost_that_one_its_numbers() {
    let databases = Databases::new();
    let (store, commits) = begun(&databases).await;
    for (id, version) in [("a1", 1), ("a3", 3), ("a5", 5), ("a6", 6)] {
        commits.insert_one(wow_commit(id, "a", version, 1)).await.expect("inserted");
    }
    until_held(&store, 3).await;
    assert!(matches!(ask(&store, "a5", Ask::Accept).await, Asked::Numbered { .. }));
    until_held(&store, 0).await;
    assert_eq!(versions(&store, "a").await, [1, 3, 5, 6]);
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_of_a_held_commit_is_told_by_its_own_code() {
    let databases = Databases::new();
    let (store, commits) = begun(&databases).await;
    commits.insert_many([wow_commit("a1", "a", 1, 1), wow_commit("a3", "a", 3, 1)]).await.expect("inserted");
    until_held(&store, 1).await;
    let refused = log_of(&store).read_aggregate(AggregateQuery::new(Aggregate::new("order", "a"))).await;
    let Err(ReadError::Store(error)) = refused else { panic!("it has no numbers: {refused:?}") };
    assert_eq!((error.code(), error.code().status()), (Code::CommitHeld, 409), "{error}");
    assert!(error.to_string().contains("gap: version 3 came when the log had version 1"), "{error}");
    store.close().await;
}

/// The gap before thousands of held commits closes: they get their numbers some at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::disallowed_methods, reason = "how long others wait is what is tested")]
async fn thousands_of_held_commits_are_released_while_others_commit() {
    const HELD: i32 = 3000;
    let databases = Databases::new();
    let (store, commits) = begun(&databases).await;
    let waiting = (2..HELD + 2).map(|version| wow_commit(&format!("a{version}"), "a", version, 1));
    commits.insert_many(waiting).await.expect("inserted");
    until("all of them held", async || status(&store).held == HELD as u64).await;
    commits.insert_one(wow_commit("a1", "a", 1, 1)).await.expect("inserted");
    let mut longest = Duration::ZERO;
    let mut n = 0;
    while status(&store).held > 0 {
        let begun = std::time::Instant::now();
        n += 1;
        log_of(&store).commit(order("others", n)).await.expect("committed");
        longest = longest.max(begun.elapsed());
    }
    assert!(longest < Duration::from_secs(5), "others waited {longest:?} for their numbers");
    let last = AggregateQuery { last: true, limit: 1, ..AggregateQuery::new(Aggregate::new("order", "a")) };
    let last = log_of(&store).read_aggregate(last).await.expect("read");
    assert_eq!(last.version, HELD as u64 + 1);
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collection_without_an_aggregates_name_and_a_view_hold_no_commits() {
    let databases = Databases::new();
    let (store, commits) = begun(&databases).await;
    let database = databases.database().await;
    database.collection("_event_stream").insert_one(wow_commit("n1", "n", 1, 1)).await.expect("inserted");
    let view = doc! { "create": "shown_event_stream", "viewOn": ORDERS, "pipeline": [] };
    database.run_command(view).await.expect("created");
    commits.insert_one(wow_commit("a1", "a", 1, 1)).await.expect("inserted");
    until("its number", async || versions(&store, "a").await == [1]).await;
    assert_eq!(held(&store).await, []);
    goes_on(&store).await;
    store.close().await;
    // Every collection is read where the position in the change stream is lost.
    let state = database.collection::<Document>("sequencer-state");
    state.update_one(doc! { "_id": "event-log" }, doc! { "$unset": { "token": "" } }).await.expect("updated");
    let store = databases.store(Options::default()).await;
    goes_on(&store).await;
    assert_eq!(versions(&store, "a").await, [1]);
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_aggregate_id_that_is_no_text_is_held_and_does_not_hide_the_others() {
    let databases = Databases::new();
    let (store, commits) = begun(&databases).await;
    let mut strange = wow_commit("s1", "s", 1, 1);
    strange.insert("aggregateId", 7);
    commits.insert_one(strange).await.expect("inserted");
    until_held(&store, 1).await;
    let ids = AggregateIdsQuery { name: "order".into(), after: None, limit: 10 };
    let ids = log_of(&store).aggregate_ids(ids).await.expect("listed");
    assert_eq!(ids.iter().map(|one| &*one.id).collect::<Vec<_>>(), ["ours"]);
    store.close().await;
}

/// The counts that MongoDB keeps of its collections may be wrong afterwards; the log is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_while_held_commits_are_released_loses_and_repeats_none() {
    const HELD: i32 = 1500;
    let mut set = ReplicaSet::start(1).await;
    let store = MongoStore::open(&set.url("shop"), Options::default()).await.expect("the store opens");
    log_of(&store).commit(order("ours", 0)).await.expect("committed");
    let commits = set.client().await.database("shop").collection::<Document>(ORDERS);
    let waiting = (2..HELD + 2).map(|version| wow_commit(&format!("a{version}"), "a", version, 1));
    commits.insert_many(waiting).await.expect("inserted");
    until("all of them held", async || status(&store).held == HELD as u64).await;
    commits.insert_one(wow_commit("a1", "a", 1, 1)).await.expect("inserted");
    until("some of them released", async || status(&store).held < HELD as u64).await;
    set.members[0].signal("KILL");
    set.members[0].start_again();
    set.until_well().await;
    until("all of them released", async || {
        log_of(&store).head().await.is_ok_and(|head| head == HELD as u64 + 2) && held(&store).await.is_empty()
    })
    .await;
    let mut versions = Vec::new();
    let mut query = LogQuery { limit: 1000, from: Some(1), ..LogQuery::default() };
    while versions.len() <= HELD as usize {
        let page = log_of(&store).read(query.clone()).await.expect("read");
        assert!(!page.events.is_empty(), "{} of {}", versions.len(), HELD + 1);
        versions.extend(page.events.iter().map(|event| event.commit.version));
        query.from = Some(page.next);
    }
    assert_eq!(versions, (1..=HELD as u64 + 1).collect::<Vec<_>>());
    goes_on(&store).await;
    assert_eq!(sequencing(&store).state().await.expect("read").missing, []);
    store.close().await;
}
