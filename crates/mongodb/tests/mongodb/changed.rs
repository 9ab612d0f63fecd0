//! Documents of the log that other software changes, drops or deletes: what is noticed is reported, and no other history is served.

use std::ops::ControlFlow;

use annals_core::{Aggregate, AggregateQuery, Code, EventLog, Filter, LogQuery, MissingDocument, ScanQuery, Store};
use annals_mongodb::{MongoStore, Options};
use mongodb::bson::{Bson, Decimal128, Document, doc};
use tracing::Level;

use crate::held::{ORDERS, begun, sequencing};
use crate::held_alone::goes_on;
use crate::server::{Databases, log_of, order, until, wow_commit};
use crate::told::told;

/// The request that commits events 0 and 1.
const REQUEST: &str = "two-at-once";

/// Every way to read events 0 and 1 is refused, and says why. The outcome of their request names their numbers, so it is one of them.
async fn assert_refused(log: &dyn EventLog, said: &str) {
    let typed = Filter { types: vec!["order_changed".into()], ..Filter::default() };
    let reads = [
        log.read(LogQuery::default()).await.map(drop),
        log.read(LogQuery { filter: typed, ..LogQuery::default() }).await.map(drop),
        log.read_aggregate(AggregateQuery::new(Aggregate::new("order", "a"))).await.map(drop),
        log.scan(ScanQuery::default(), &mut |_| ControlFlow::Continue(())).await.map(drop),
        log.request_outcome(&Aggregate::new("order", "a"), REQUEST).await.map(drop),
    ];
    for (place, read) in reads.into_iter().enumerate() {
        let refused = read.expect_err(&format!("read {place} shows another history"));
        assert!(refused.to_string().contains(said), "{refused}");
        assert_eq!(refused.code(), Code::MalformedDocument);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_grown_or_shrunk_in_place_is_reported_and_never_served() {
    let databases = Databases::new();
    let store = databases.store(Options::default()).await;
    let mut two = order("a", 1);
    two.events.extend(order("a", 2).events);
    two.request_id = Some(REQUEST.into());
    let commit = log_of(&store).commit(two).await.expect("committed").commit_id.to_string();
    log_of(&store).commit(order("b", 1)).await.expect("committed");
    // The process that leads has the newest events in memory.
    store.close().await;
    let store = databases.store(Options::default()).await;
    let commits = databases.database().await.collection::<Document>(ORDERS);
    let whole = commits.find_one(doc! { "_id": &commit }).await.expect("read").expect("it is there");
    let mut body = whole.get_array("body").expect("events").clone();
    let set = async |body: &[Bson]| {
        let body = doc! { "$set": { "body": body.to_vec() } };
        commits.update_one(doc! { "_id": &commit }, body).await.expect("changed");
    };
    let log = log_of(&store);
    body.push(body[0].clone());
    set(&body).await;
    assert_refused(&*log, "has 3 events, and 2 got sequence numbers").await;
    set(&body[..1]).await;
    assert_refused(&*log, "has 1 events, and 2 got sequence numbers").await;
    // Whether or not anybody reads it, the sequencer reports the change.
    let said = "commits were changed by other software";
    until("a logged report", async || told(Level::ERROR, &commit).iter().any(|line| line.contains(said))).await;
    let other = log.read_aggregate(AggregateQuery::new(Aggregate::new("order", "b"))).await.expect("others are read");
    assert_eq!(other.version, 1);
    goes_on(&store).await;
    set(&body[..2]).await;
    assert_eq!(log.read(LogQuery::default()).await.expect("as it was").events.len(), 4);
    let first =
        log.request_outcome(&Aggregate::new("order", "a"), REQUEST).await.expect("as it was").expect("it is there");
    assert_eq!((first.first_sequence_number, first.event_ids.len()), (Some(0), 2));
    store.close().await;
}

/// Deleted, or moved to another version or aggregate: what is left is another history of the aggregate.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_aggregate_of_which_other_software_took_a_commit_away_is_not_served_without_it() {
    let databases = Databases::new();
    let (store, commits) = begun(&databases).await;
    let log = log_of(&store);
    let mut ids = Vec::new();
    for n in 0..4 {
        ids.push(log.commit(order("a", n)).await.expect("committed").commit_id.to_string());
    }
    let second = commits.find_one(doc! { "_id": &ids[1] }).await.expect("read").expect("it is there");
    let all = AggregateQuery::new(Aggregate::new("order", "a"));
    let moved = |set: Document| vec![doc! { "$set": set }];
    for change in [None, Some(doc! { "aggregateId": "b" }), Some(doc! { "version": 40 })] {
        match &change {
            None => drop(commits.delete_one(doc! { "_id": &ids[1] }).await.expect("deleted")),
            Some(set) => {
                drop(commits.update_one(doc! { "_id": &ids[1] }, moved(set.clone())).await.expect("changed"));
            }
        }
        for query in [
            all.clone(),
            AggregateQuery { to_version: 3, ..all.clone() },
            AggregateQuery { limit: 2, ..all.clone() },
            AggregateQuery { last: true, limit: 3, ..all.clone() },
        ] {
            let refused = log.read_aggregate(query.clone()).await.expect_err(&format!("{change:?} {query:?}"));
            assert_eq!(refused.code(), Code::MalformedDocument, "{refused}");
        }
        for query in [
            AggregateQuery { from_version: 3, to_version: 4, ..all.clone() },
            AggregateQuery { to_version: 1, ..all.clone() },
            AggregateQuery { last: true, limit: 2, to_version: 4, ..all.clone() },
        ] {
            log.read_aggregate(query).await.expect("the second is not among them");
        }
        commits.replace_one(doc! { "_id": &ids[1] }, &second).upsert(true).await.expect("restored");
        assert_eq!(log.read_aggregate(all.clone()).await.expect("read").commits.len(), 4);
    }
    store.close().await;
}

async fn missing(store: &MongoStore) -> Vec<MissingDocument> {
    sequencing(store).state().await.expect("read").missing
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_document_deleted_from_the_middle_of_the_log_is_reported_until_it_is_there_again() {
    let databases = Databases::new();
    let (store, _) = begun(&databases).await;
    for n in 0..8 {
        log_of(&store).commit(order("a", n)).await.expect("committed");
    }
    let database = databases.database().await;
    let decimal = |number: &str| Bson::Decimal128(number.parse::<Decimal128>().expect("a number"));
    for (collection, id, number) in
        [("event-log", decimal("3"), 3), ("event-log-commits", Bson::Int64(5), 5), ("event-log", decimal("7"), 7)]
    {
        let documents = database.collection::<Document>(collection);
        let document = documents.find_one(doc! { "_id": &id }).await.expect("read").expect("it is there");
        documents.delete_one(doc! { "_id": &id }).await.expect("deleted");
        let found = MissingDocument { collection: collection.to_owned(), sequence_number: number };
        until(&format!("{number} missing in {collection}"), async || missing(&store).await == [found.clone()]).await;
        goes_on(&store).await;
        documents.insert_one(document).await.expect("inserted");
        until("it is there again", async || missing(&store).await.is_empty()).await;
    }
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collection_of_the_log_that_is_dropped_is_reported_by_every_process() {
    for collection in ["event-log", "event-log-commits"] {
        let databases = Databases::new();
        let (store, _) = begun(&databases).await;
        let other = databases.store(Options::default()).await;
        databases.database().await.collection::<Document>(collection).drop().await.expect("dropped");
        for store in [&store, &other] {
            until(&format!("a report of {collection}"), async || {
                let refusing = store.status()[0].refusing.clone();
                refusing
                    .is_some_and(|error| error.code() == Code::StoreDamaged && error.to_string().contains(collection))
            })
            .await;
            let refused = log_of(store).commit(order("b", 1)).await.expect_err("it could have no number");
            assert_eq!(refused.code(), Code::StoreDamaged, "{refused}");
        }
        tokio::join!(store.close(), other.close());
    }
}

/// A store that has acknowledged commits never begins again at 0, whatever became of its database.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_dropped_under_its_store_is_reported_and_nothing_is_numbered_anew() {
    let databases = Databases::new();
    let (store, _) = begun(&databases).await;
    let other = databases.store(Options::default()).await;
    databases.database().await.drop().await.expect("dropped");
    for store in [&store, &other] {
        until("a report of the dropped database", async || {
            store.status()[0].refusing.as_ref().is_some_and(|error| error.code() == Code::StoreDamaged)
        })
        .await;
        let refused = log_of(store).commit(order("b", 1)).await.expect_err("it could have no number");
        assert_eq!(refused.code(), Code::StoreDamaged, "{refused}");
    }
    tokio::join!(store.close(), other.close());
}

/// The message says what to set it to, and the store goes on once it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_next_number_that_is_no_number_is_named_with_what_it_must_be() {
    let databases = Databases::new();
    let (store, _) = begun(&databases).await;
    let metadata = databases.database().await.collection::<Document>("event-log-metadata");
    let set = async |next: Bson| {
        let next = doc! { "$set": { "NextEventOffset": next } };
        metadata.update_one(doc! { "_id": "event-log" }, next).await.expect("changed");
    };
    let nan: Decimal128 = "NaN".parse().expect("a decimal");
    for wrong in [Bson::from("1"), Bson::Int64(-1), Bson::Decimal128(nan)] {
        set(wrong).await;
        until("a report", async || {
            store.status()[0].refusing.as_ref().is_some_and(|error| {
                error.code() == Code::StoreDamaged
                    && error.to_string().contains("set it to 1, the number after the last event")
            })
        })
        .await;
        set(Bson::Decimal128("1".parse().expect("a decimal"))).await;
        until("the end of it", async || store.status()[0].refusing.is_none()).await;
    }
    goes_on(&store).await;
    store.close().await;
}

/// What the sequencer keeps for itself, and what it derives, dropped while commits are stored.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_sequencer_keeps_for_itself_is_written_again_after_it_was_dropped() {
    let databases = Databases::new();
    let (store, commits) = begun(&databases).await;
    let other = databases.store(Options::default()).await;
    let database = databases.database().await;
    for collection in ["sequencer-state", "aggregates", "annals-blocks", "sequencer-held", "sequencer-state"] {
        database.collection::<Document>(collection).drop().await.expect("dropped");
        for n in 0..10 {
            log_of(&store).commit(order("a", n)).await.expect("committed");
            log_of(&other).commit(order("b", n)).await.expect("committed");
        }
    }
    commits.insert_one(wow_commit("g2", "gap", 2, 1)).await.expect("inserted");
    until("a held commit", async || crate::held::held(&store).await.len() == 1).await;
    until("readiness", async || store.status()[0].refusing.is_none()).await;
    let page = log_of(&store).read(LogQuery { limit: 1000, ..LogQuery::default() }).await.expect("read");
    let numbers: Vec<_> = page.events.iter().map(|event| event.sequence_number).collect();
    assert_eq!(numbers, (0..101).collect::<Vec<_>>());
    tokio::join!(store.close(), other.close());

    // The note of the held commit is lost, and found again as the documentation says.
    database.collection::<Document>("sequencer-held").drop().await.expect("dropped");
    let state = database.collection::<Document>("sequencer-state");
    state.delete_one(doc! { "_id": "event-log" }).await.expect("deleted");
    let store = databases.store(Options::default()).await;
    until("the held commit again", async || crate::held::held(&store).await.len() == 1).await;
    store.close().await;
}
