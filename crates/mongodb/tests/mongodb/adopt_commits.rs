//! A database that Wow wrote is adopted: every commit that can have a number gets one, and nothing of Wow's is changed.

use annals_core::{Code, LogQuery, RecordedEvent, Store, limits};
use annals_mongodb::adopt::{AdoptNames, adopt};
use annals_mongodb::{MongoStore, Options};
use mongodb::bson::{Document, doc};

use crate::adopting::hash;
use crate::server::{Databases, log_of, order, wow_commit};

fn commit_of(context: &str, id: &str, aggregate: &str, version: i32, time: i64) -> Document {
    let mut commit = wow_commit(id, aggregate, version, time);
    commit.insert("contextName", context);
    commit
}

async fn order_of(store: &MongoStore) -> Vec<String> {
    let page = log_of(store).read(LogQuery { limit: limits::PAGE_MAX, ..LogQuery::default() }).await.expect("read");
    let label = |event: &RecordedEvent| format!("{}{}", event.commit.aggregate.id, event.commit.version);
    assert!(page.events.iter().enumerate().all(|(place, event)| event.sequence_number == place as u64));
    page.events.iter().map(label).collect()
}

async fn refused(databases: &Databases) -> annals_core::OpenError {
    MongoStore::open(&databases.url(), Options::default()).await.err().expect("refused")
}

#[tokio::test]
async fn commits_get_numbers_in_the_order_of_their_times_and_doing_it_twice_changes_nothing() {
    let databases = Databases::new();
    let database = databases.database().await;
    let mark = doc! { "_id": "boundedContext", "contextName": "shop", "layoutVersion": 1_i32 };
    database.collection("wow_database_metadata").insert_one(mark).await.expect("marked");
    let commits = database.collection::<Document>("order_event_stream");
    for (id, aggregate, version, time) in
        [("x2", "x", 2, 5), ("y1", "y", 1, 20), ("x1", "x", 1, 30), ("z1", "z", 1, 10)]
    {
        commits.insert_one(commit_of("shop", id, aggregate, version, time)).await.expect("inserted");
    }
    let mut cart = commit_of("shop", "c1", "c", 1, 15);
    cart.insert("aggregateName", "cart");
    database.collection::<Document>("cart_event_stream").insert_one(cart).await.expect("inserted");
    let before = hash(&database).await;
    let error = refused(&databases).await;
    assert_eq!(error.code, Code::NotAdopted, "{}", error.message);
    let report = databases.inspect(&AdoptNames::default()).await.expect("inspected");
    assert_eq!(hash(&database).await, before, "looking writes nothing");
    assert_eq!((&*report.context, report.obstacles.len(), report.done), ("shop", 0, false));
    let orders = report.commits.iter().find(|found| found.collection == "order_event_stream").expect("found");
    assert_eq!((orders.commits, orders.aggregates, orders.to_number, orders.to_hold), (4, 3, 4, 0));
    let report = databases.adopt(&AdoptNames::default()).await.expect("adopted");
    assert_eq!((report.done, report.head), (true, Some(5)));
    let after = hash(&database).await;
    for (name, documents) in &before {
        let kept = after.iter().any(|(other, same)| other == name && same == documents);
        assert!(kept || name.ends_with("_event_stream"), "{name} is as it was");
    }
    let again = databases.adopt(&AdoptNames::default()).await.expect("again");
    assert!(again.steps.is_empty() && again.done, "{:?}", again.steps);
    assert_eq!(hash(&database).await, after, "the second time changes nothing");
    let store = databases.store(Options::default()).await;
    assert_eq!(order_of(&store).await, ["z1", "c1", "y1", "x1", "x2"]);
    let outcome = log_of(&store).commit(order("x", 1)).await.expect("and it goes on");
    assert_eq!((outcome.version, outcome.first_sequence_number), (3, Some(5)));
    let stored = commits.find_one(doc! { "aggregateId": "x", "version": 3 }).await.expect("read").expect("stored");
    assert_eq!(stored.get_str("contextName").expect("text"), "shop");
    store.close().await;
}

#[tokio::test]
async fn what_cannot_have_a_number_is_told_and_held_back() {
    let databases = Databases::new();
    let database = databases.database().await;
    let commits = database.collection::<Document>("order_event_stream");
    for (id, aggregate, version) in [("a1", "a", 1), ("a2", "a", 2), ("b1", "b", 1), ("b3", "b", 3), ("b4", "b", 4)] {
        commits.insert_one(wow_commit(id, aggregate, version, 7)).await.expect("inserted");
    }
    let mut broken = wow_commit("a3", "a", 3, 7);
    broken.remove("body");
    let mut nameless = wow_commit("d1", "d", 1, 7);
    nameless.insert("_id", 17);
    commits.insert_many([broken, nameless, wow_commit("a4", "a", 4, 7)]).await.expect("inserted");
    let report = databases.inspect(&AdoptNames::default()).await.expect("inspected");
    let found = &report.commits[0];
    assert_eq!((found.to_number, found.to_hold, found.held), (3, 5, 0), "{:?}", report.findings);
    let kinds = |kind| report.findings.iter().filter(|finding| finding.kind == kind).count();
    assert_eq!((kinds("malformed"), kinds("gap")), (2, 3));
    databases.adopt(&AdoptNames::default()).await.expect("adopted");
    let held = database.collection::<Document>("sequencer-held");
    assert_eq!(held.count_documents(doc! {}).await.expect("counted"), 5);
    let shown = held.find_one(doc! { "_id.commit": "a3" }).await.expect("read").expect("held");
    assert!(shown.get_str("reason").expect("text").contains("body"), "{shown}");
    let again = databases.inspect(&AdoptNames::default()).await.expect("again");
    assert!(again.steps.is_empty(), "{:?}", again.steps);
    assert_eq!((again.commits[0].in_log, again.commits[0].held), (3, 5));
    let store = databases.store(Options::default()).await;
    assert_eq!(order_of(&store).await, ["a1", "a2", "b1"]);
    store.close().await;
}

#[tokio::test]
async fn commits_of_two_contexts_are_in_the_way() {
    let databases = Databases::new();
    let database = databases.database().await;
    let commits = database.collection::<Document>("order_event_stream");
    commits.insert_one(commit_of("shop", "a1", "a", 1, 1)).await.expect("inserted");
    commits.insert_one(commit_of("bank", "b1", "b", 1, 1)).await.expect("inserted");
    let before = hash(&database).await;
    let error = databases.adopt(&AdoptNames::default()).await.expect_err("refused");
    assert_eq!(error.code, Code::CannotAdopt);
    assert!(error.message.contains("shop") && error.message.contains("bank"), "{}", error.message);
    assert_eq!(hash(&database).await, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_adoption_that_was_broken_off_is_taken_up_again() {
    const COUNT: u64 = 3000;
    let databases = Databases::new();
    let database = databases.database().await;
    let commits = database.collection::<Document>("order_event_stream");
    let all = (0..COUNT).map(|n| wow_commit(&format!("c{n}"), &format!("a{}", n % 50), (n / 50) as i32 + 1, n as i64));
    commits.insert_many(all).await.expect("inserted");
    let (broken, mut brake) = tokio::sync::watch::channel(false);
    let mut looked = false;
    let mut progress = |done: u64, _| {
        // First all is looked through, then it gets numbers: some have got theirs.
        if looked && (1..COUNT).contains(&done) {
            broken.send_replace(true);
        }
        looked |= done == COUNT;
    };
    let (url, options, names) = (databases.url(), Options::default(), AdoptNames::default());
    tokio::select! {
        done = adopt(&url, "default", &options, &names, &mut progress) => drop(done.expect("it was too fast, and is whole")),
        _ = brake.wait_for(|broken| *broken) => {}
    }
    let report = databases.adopt(&AdoptNames::default()).await.expect("taken up");
    assert_eq!(report.head, Some(COUNT));
    let store = databases.store(Options::default()).await;
    assert_eq!(log_of(&store).head().await, Ok(COUNT));
    let entries = database.collection::<Document>("event-log-commits");
    assert_eq!(entries.count_documents(doc! {}).await.expect("counted"), COUNT);
    assert_eq!(store.status()[0].refusing, None);
    store.close().await;
}
