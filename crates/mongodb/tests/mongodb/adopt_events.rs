//! An event log that a Dolittle Runtime wrote is adopted: it is read as it is, goes on with its next number, and stays readable by the
//! Runtime.

use std::sync::Arc;

use annals_core::{
    Aggregate, AggregateFilter, AggregateIdsQuery, AggregateQuery, Code, CommitError, Data, EventLog, ExpectedVersion,
    Filter, LogQuery, NewCommit, NewEvent, Reached, RecordedEvent, Store, StoreError,
};
use annals_mongodb::adopt::{AdoptNames, adopt};
use annals_mongodb::{MongoStore, Options};
use mongodb::Database;
use mongodb::bson::{Bson, Document, doc};

use crate::adopting::{ORDER, PAID, PLACED, applied, hash, names, standard, v6, v7, v9};
use crate::server::{Databases, log_of, until};

const SOURCE: &str = "5eed5eed-4444-4444-8444-0123456789ab";

async fn insert(database: &Database, events: impl IntoIterator<Item = Document>) {
    database.collection::<Document>("event-log").insert_many(events).await.expect("inserted");
}

/// Events of every era: 0 to 6, of which 4 was deleted.
async fn every_era(database: &Database) {
    let mut redacted = v9(5, PLACED, "plain", None);
    redacted.insert("RedactedBy", vec![Bson::from(6_i64)]);
    redacted.insert("Content", doc! { "name": Bson::Null });
    let mut bare = v9(3, PAID, "bare", None);
    bare.remove("ExecutionContext");
    insert(
        database,
        [
            v6(0, PLACED, SOURCE, 0),
            v6(1, PAID, SOURCE, 1),
            v7(2, PLACED, "o-1", Some(0)),
            bare,
            redacted,
            v9(6, PAID, "o-1", Some(1)),
        ],
    )
    .await;
    let aggregates = database.collection::<Document>("aggregates");
    let old = doc! { "EventSource": crate::adopting::legacy(SOURCE), "AggregateType": crate::adopting::legacy(ORDER),
    "Version": 2_i64 };
    aggregates.insert_many([applied("o-1", 2), old]).await.expect("inserted");
}

async fn whole(log: &Arc<dyn EventLog>) -> Vec<RecordedEvent> {
    log.read(LogQuery::default()).await.expect("read").events
}

fn purchase(id: &str) -> NewCommit {
    let data = Data::from_value(&serde_json::json!({ "n": 7 })).expect("an object");
    NewCommit::new("purchase", id).event(NewEvent::new("paid", data)).wait_until(Reached::Logged)
}

async fn refused(databases: &Databases) -> annals_core::OpenError {
    MongoStore::open(&databases.url(), Options::default()).await.err().expect("refused")
}

#[tokio::test]
async fn a_log_of_every_era_is_read_as_it_is() {
    let databases = Databases::new();
    let database = databases.database().await;
    every_era(&database).await;
    let before = hash(&database).await;
    let error = refused(&databases).await;
    assert_eq!(error.code, Code::NotAdopted, "{}", error.message);
    let report = databases.inspect(&names()).await.expect("inspected");
    assert_eq!(hash(&database).await, before, "neither opening nor looking writes anything");
    let found = report.log.clone().expect("a log");
    assert_eq!((found.to_take_in, found.next, found.holes), (6, 7, 1), "{report:?}");
    assert_eq!((found.redacted, found.of_no_aggregate), (1, 2));
    assert!(report.obstacles.is_empty(), "{:?}", report.obstacles);
    databases.adopt(&names()).await.expect("adopted");
    let events_before: Vec<_> = before.iter().filter(|(name, _)| name == "aggregates").collect();
    assert_eq!(events_before.len(), 1);
    let after = hash(&database).await;
    let again = databases.adopt(&names()).await.expect("again");
    assert!(again.steps.is_empty(), "{:?}", again.steps);
    assert_eq!(hash(&database).await, after, "the second time changes nothing");

    let store = databases.store(Options::default()).await;
    let log = log_of(&store);
    let events = whole(&log).await;
    assert_eq!(events.iter().map(|event| event.sequence_number).collect::<Vec<_>>(), [0, 1, 2, 3, 5, 6]);
    let of = |number: usize| {
        let event = &events[number];
        (&*event.event_type, event.commit.aggregate.to_string(), event.commit.version)
    };
    assert_eq!(of(0), ("placed", format!("purchase/{SOURCE}"), 1));
    assert_eq!(of(1), ("paid", format!("purchase/{SOURCE}"), 2));
    assert_eq!(of(5), ("paid", "purchase/o-1".to_owned(), 2));
    assert_eq!(events[3].commit.aggregate.event_source(), Some("bare"));
    assert_eq!((events[3].commit.version, events[3].commit.correlation_id.clone()), (0, None));
    let first = &events[0];
    assert_eq!((first.commit.request_id.clone(), first.generation, first.ordinal), (None, 2, 0));
    assert_eq!(first.time.as_millis(), 1_700_000_000_000);
    assert_eq!(first.commit.correlation_id.as_deref(), Some("99999999-9999-4999-8999-999999999999"));
    assert_eq!(first.id.get_version_num(), 5, "an id that follows from the log and the number");
    assert_eq!(first.commit.commit_id.get_version_num(), 5);
    let ids: std::collections::HashSet<_> = events.iter().map(|event| event.id).collect();
    assert_eq!(ids.len(), events.len());
    assert!(events[4].data.as_raw().get("name").expect("readable").is_some(), "redacted, and readable");

    let one = log.read(LogQuery { from: Some(6), limit: 1, ..LogQuery::default() }).await.expect("read");
    assert_eq!(one.events[0].sequence_number, 6);
    let backwards = LogQuery { backwards: true, limit: 2, ..LogQuery::default() };
    let numbers: Vec<_> = log.read(backwards).await.expect("read").events.iter().map(|e| e.sequence_number).collect();
    assert_eq!(numbers, [6, 5]);
    let filter = Filter { types: vec!["paid".into()], ..Filter::default() };
    let paid = log.read(LogQuery { filter, ..LogQuery::default() }).await.expect("read");
    assert_eq!(paid.events.iter().map(|event| event.sequence_number).collect::<Vec<_>>(), [1, 3, 6]);
    let aggregate = Some(AggregateFilter { name: "purchase".into(), id: Some("o-1".into()) });
    let filter = Filter { aggregate, ..Filter::default() };
    let of_one = log.read(LogQuery { filter, ..LogQuery::default() }).await.expect("read");
    assert_eq!(of_one.events.iter().map(|event| event.sequence_number).collect::<Vec<_>>(), [2, 6]);
    store.close().await;
}

#[tokio::test]
async fn a_log_goes_on_with_its_next_number_and_its_aggregates_with_their_next_version() {
    let databases = Databases::new();
    let database = databases.database().await;
    every_era(&database).await;
    // The last event was deleted after its number was given.
    let metadata = database.collection::<Document>("event-log-metadata");
    metadata.insert_one(doc! { "_id": "event-log", "NextEventOffset": 9_i64 }).await.expect("inserted");
    databases.adopt(&names()).await.expect("adopted");
    let store = databases.store(Options::default()).await;
    let log = log_of(&store);
    assert_eq!(log.head().await, Ok(9));
    let empty = log.commit(purchase("o-1").expect(ExpectedVersion::Empty)).await.expect_err("it is not");
    assert!(matches!(empty, CommitError::VersionConflict { actual_version: 2, .. }), "{empty:?}");
    let outcome = log.commit(purchase("o-1").expect(ExpectedVersion::Exact(2))).await.expect("committed");
    assert_eq!((outcome.version, outcome.first_sequence_number), (3, Some(9)));
    let outcome = log.commit(purchase(SOURCE).expect(ExpectedVersion::Exists)).await.expect("committed");
    assert_eq!((outcome.version, outcome.first_sequence_number), (3, Some(10)));
    log.commit(purchase("new").expect(ExpectedVersion::Empty)).await.expect("committed");

    let read = log.read_aggregate(AggregateQuery::new(Aggregate::new("purchase", "o-1"))).await.expect("read");
    let versions = |read: &annals_core::AggregateCommits| {
        read.commits.iter().map(|commit| (commit.info.version, commit.events[0].sequence_number)).collect::<Vec<_>>()
    };
    assert_eq!((versions(&read), read.version), (vec![(1, 2), (2, 6), (3, 9)], 3));
    let query = AggregateQuery::new(Aggregate::new("purchase", "o-1"));
    let last = log.read_aggregate(AggregateQuery { last: true, limit: 2, ..query.clone() }).await.expect("read");
    assert_eq!(versions(&last), [(2, 6), (3, 9)]);
    let some = log.read_aggregate(AggregateQuery { limit: 1, ..query.clone() }).await.expect("read");
    assert_eq!((versions(&some), some.version), (vec![(1, 2)], 3));
    let early = annals_core::Timestamp::from_millis(1_700_000_000_003);
    let early = log.read_aggregate(AggregateQuery { to_time: Some(early), ..query }).await.expect("read");
    assert_eq!((versions(&early), early.version), (vec![(1, 2)], 3));
    let ids =
        log.aggregate_ids(AggregateIdsQuery { name: "purchase".into(), after: None, limit: 10 }).await.expect("listed");
    assert_eq!(ids.iter().map(|known| &*known.id).collect::<Vec<_>>(), [SOURCE, "new", "o-1"]);

    // The Runtime finds what it looks for.
    let events = database.collection::<Document>("event-log");
    let stored = events.find_one(doc! { "_id": 9_i64 }).await.expect("read").expect("stored");
    let part = |name: &str| stored.get_document(name).expect("a document").clone();
    assert_eq!(part("Metadata").get("TypeId"), Some(&standard(PAID)));
    assert_eq!(part("Aggregate").get("TypeId"), Some(&standard(ORDER)));
    assert_eq!(part("Aggregate").get("Version").map(ToString::to_string).as_deref(), Some("2"));
    let aggregates = database.collection::<Document>("aggregates");
    assert_eq!(aggregates.count_documents(doc! {}).await.expect("counted"), 3, "in whichever form a UUID is");
    let three = doc! { "Version": 3_i64 };
    assert_eq!(aggregates.count_documents(three).await.expect("counted"), 2);
    store.close().await;
}

#[tokio::test]
async fn names_are_needed_and_must_be_names() {
    let databases = Databases::new();
    let database = databases.database().await;
    every_era(&database).await;
    let before = hash(&database).await;
    let mut given = names();
    given.event_types.remove(PAID);
    let report = databases.inspect(&given).await.expect("inspected");
    assert_eq!(report.names.event_types.get(PAID), Some(&None), "in the form of the file, with what is missing");
    let error = databases.adopt(&given).await.expect_err("refused");
    assert_eq!(error.code, Code::InvalidNames);
    assert!(error.message.contains(PAID) && error.message.contains("--names"), "{}", error.message);
    for (uuid, name, says) in [(PAID, "a b", "a b"), (PAID, "placed", "give each its own"), ("x", "y", "is not a UUID")]
    {
        let mut given = names();
        given.event_types.insert(uuid.to_owned(), Some(name.to_owned()));
        let error = databases.adopt(&given).await.expect_err(says);
        assert!(error.code == Code::InvalidNames && error.message.contains(says), "{}", error.message);
    }
    assert_eq!(hash(&database).await, before);
    databases.adopt(&names()).await.expect("adopted");
    let mut other = names();
    other.event_types.insert(PAID.to_owned(), Some("settled".to_owned()));
    let error = databases.adopt(&other).await.expect_err("a name stays");
    assert!(error.message.contains("keeps that name"), "{}", error.message);
    assert!(databases.adopt(&AdoptNames::default()).await.expect("they are known").steps.is_empty());
}

#[tokio::test]
async fn an_event_that_cannot_be_read_is_in_the_way() {
    let databases = Databases::new();
    let database = databases.database().await;
    let mut broken = v9(1, PAID, "x", None);
    broken.remove("Metadata");
    insert(&database, [v9(0, PAID, "x", None), broken]).await;
    let error = databases.adopt(&names()).await.expect_err("refused");
    assert_eq!(error.code, Code::CannotAdopt);
    assert!(error.message.contains("event 1") && error.message.contains("Metadata"), "{}", error.message);
}

#[tokio::test]
async fn a_runtime_that_still_gives_numbers_is_noticed_while_it_is_adopted() {
    let databases = Databases::new();
    let database = databases.database().await;
    every_era(&database).await;
    let (writing, stop) = (database.clone(), Arc::new(tokio::sync::Notify::new()));
    let stopped = stop.clone();
    let runtime = tokio::spawn(async move {
        for number in 7.. {
            insert(&writing, [v9(number, PAID, "o-2", None)]).await;
            tokio::select! {
                () = stopped.notified() => return number,
                // tidy: allow(pause) the pace of the writer
                () = tokio::time::sleep(std::time::Duration::from_millis(50)) => {}
            }
        }
        0
    });
    let error = databases.adopt(&names()).await.expect_err("it is noticed");
    assert_eq!(error.code, Code::ForeignNumbers, "{}", error.message);
    stop.notify_one();
    let last = runtime.await.expect("it ends well");
    let report = databases.adopt(&names()).await.expect("adopted once it is stopped");
    assert_eq!(report.head, Some(last + 1));
}

#[tokio::test]
async fn a_runtime_that_gives_numbers_beside_a_store_is_noticed_and_what_it_wrote_is_taken_in() {
    let databases = Databases::new();
    let database = databases.database().await;
    every_era(&database).await;
    databases.adopt(&names()).await.expect("adopted");
    let store = databases.store(Options::default()).await;
    let log = log_of(&store);
    log.commit(purchase("o-1")).await.expect("committed");
    insert(&database, [v9(8, PLACED, "o-3", Some(0))]).await;
    // Nothing is committed meanwhile: it is looked for now and then.
    until("the notice", async || {
        matches!(store.status()[0].refusing, Some(StoreError::Other { code: Code::ForeignNumbers, .. }))
    })
    .await;
    let error = log.commit(purchase("o-1")).await.expect_err("refused");
    assert_eq!(error.code(), Code::ForeignNumbers, "{error}");
    assert_eq!(whole(&log).await.len(), 7, "reading goes on");
    store.close().await;
    assert_eq!(refused(&databases).await.code, Code::ForeignNumbers);
    databases.adopt(&AdoptNames::default()).await.expect("taken in");
    let store = databases.store(Options::default()).await;
    let log = log_of(&store);
    assert_eq!(
        whole(&log).await.last().map(|event| event.commit.aggregate.to_string()),
        Some("purchase/o-3".to_owned())
    );
    assert_eq!(log.commit(purchase("o-3")).await.expect("committed").version, 2);
    store.close().await;
}

/// How many commits of purchases are stored.
async fn stored(database: &Database) -> u64 {
    database.collection::<Document>("purchase_event_stream").count_documents(doc! {}).await.expect("counted")
}

/// A commit comes for the number that another has given: nothing is written over, and the caller learns why it has no number.
#[tokio::test]
async fn a_number_that_is_taken_is_not_given_again() {
    let databases = Databases::new();
    let store = databases.store(Options::default()).await;
    let log = log_of(&store);
    log.commit(purchase("o-1")).await.expect("committed");
    let database = databases.database().await;
    insert(&database, [v9(1, PLACED, "o-3", None)]).await;
    let error = log.commit(purchase("o-1")).await.expect_err("no number");
    assert_eq!(error.code(), Code::ForeignNumbers, "{error}");
    let said = error.to_string();
    assert!(said.contains("other software") && (said.contains("is stored") || stored(&database).await == 1), "{said}");
    let again = log.commit(purchase("o-2")).await.expect_err("nothing has changed");
    assert_eq!(again.code(), Code::ForeignNumbers, "{again}");
    let events = database.collection::<Document>("event-log");
    assert_eq!(events.count_documents(doc! {}).await.expect("counted"), 2);
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn taking_in_that_was_broken_off_is_taken_up_again() {
    const COUNT: u64 = 5000;
    let databases = Databases::new();
    let database = databases.database().await;
    insert(&database, (0..COUNT).map(|n| v9(n, PLACED, &format!("o-{}", n % 10), Some(n / 10)))).await;
    let (broken, mut brake) = tokio::sync::watch::channel(false);
    let mut looked = false;
    let mut progress = |done: u64, _| {
        if looked && (1..COUNT).contains(&done) {
            broken.send_replace(true);
        }
        looked |= done == COUNT;
    };
    let (url, options, given) = (databases.url(), Options::default(), names());
    tokio::select! {
        done = adopt(&url, "default", &options, &given, &mut progress) => drop(done.expect("it was too fast, and is whole")),
        _ = brake.wait_for(|broken| *broken) => {
            assert_eq!(refused(&databases).await.code, Code::NotAdopted, "half of it is no store");
        }
    }
    // The names are kept already.
    databases.adopt(&AdoptNames::default()).await.expect("taken up");
    let store = databases.store(Options::default()).await;
    let read =
        log_of(&store).read_aggregate(AggregateQuery::new(Aggregate::new("purchase", "o-7"))).await.expect("read");
    assert_eq!((read.version, read.commits.len()), (500, annals_core::limits::PAGE_DEFAULT.min(500)));
    assert_eq!(log_of(&store).head().await, Ok(COUNT));
    store.close().await;
}
