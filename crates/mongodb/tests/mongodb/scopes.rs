//! Scopes: logs of received events that a Dolittle Runtime writes, read and followed, and their streams.

use std::sync::Arc;

use annals_core::{
    Aggregate, AggregateFilter, AggregateIdsQuery, AggregateQuery, Code, DEFAULT_TENANT, EventLog, Filter, Follower,
    Included, LogQuery, RecordedEvent, Store, StoreError, StreamQuery, Streams, Verdicts,
};
use annals_mongodb::adopt::AdoptNames;
use annals_mongodb::{MongoStore, Options};
use mongodb::Database;
use mongodb::bson::{DateTime, Document, RawDocumentBuf, doc};

use crate::adopting::{ORDER, PAID, PLACED, names, standard, v9};
use crate::server::{Databases, log_of, order, two_tenants};

const SCOPE: &str = "0a1b2c3d-0000-4000-8000-00000000abcd";

fn options(scopes: &[&str]) -> Options {
    Options { scopes: scopes.iter().map(|scope| (*scope).to_owned()).collect(), ..two_tenants() }
}

fn collection(database: &Database) -> mongodb::Collection<Document> {
    database.collection(&format!("x-{SCOPE}-event-log"))
}

/// An event as a Runtime writes it that has received it.
fn received(number: u64, event_type: &str, source: &str) -> Document {
    let mut event = v9(number, event_type, source, None);
    event.insert(
        "EventHorizon",
        doc! {
            "FromEventHorizon": true, "ExternalEventLogSequenceNumber": number as i64 * 10,
            "Received": DateTime::from_millis(1_700_000_100_000), "Consent": standard(ORDER),
        },
    );
    event
}

async fn receive(database: &Database, numbers: std::ops::Range<u64>) {
    let events = numbers.map(|number| received(number, [PLACED, PAID][number as usize % 2], "s-1"));
    collection(database).insert_many(events).await.expect("inserted");
}

fn log(store: &MongoStore, scope: &str) -> Arc<dyn EventLog> {
    store.log(DEFAULT_TENANT, scope).expect("it is declared")
}

fn streams(store: &MongoStore, scope: &str) -> Arc<dyn Streams> {
    store.streams(DEFAULT_TENANT, scope).expect("it is declared")
}

fn numbers(events: &[RecordedEvent]) -> Vec<u64> {
    events.iter().map(|event| event.sequence_number).collect()
}

async fn read(log: &Arc<dyn EventLog>, query: LogQuery) -> (Vec<u64>, u64) {
    let page = log.read(query).await.expect("read");
    (numbers(&page.events), page.next)
}

#[tokio::test]
async fn events_that_a_runtime_received_are_read_as_they_are() {
    let databases = Databases::new();
    let database = databases.database().await;
    receive(&database, 0..5).await;
    let mut redacted = received(5, PAID, "s-2");
    redacted.insert("RedactedBy", vec![mongodb::bson::Bson::from(3_i64)]);
    collection(&database).insert_one(redacted).await.expect("inserted");
    let store = databases.store(options(&[SCOPE])).await;
    let log = log(&store, SCOPE);
    let page = log.read(LogQuery::default()).await.expect("read");
    assert_eq!((numbers(&page.events), page.next, page.head), (vec![0, 1, 2, 3, 4, 5], 6, 6));
    let event = &page.events[1];
    assert_eq!((&*event.event_type, event.generation, event.public), (PAID, 2, false));
    assert_eq!((event.commit.aggregate.event_source(), event.commit.version), (Some("s-1"), 0));
    assert_eq!((event.commit.request_id.clone(), event.time.as_millis()), (None, 1_700_000_000_001));
    assert_eq!(event.commit.correlation_id.as_deref(), Some("99999999-9999-4999-8999-999999999999"));
    let ids: std::collections::HashSet<_> = page.events.iter().map(|event| event.commit.commit_id).collect();
    assert_eq!(ids.len(), 6);

    let from = |from: u64| LogQuery { from: Some(from), limit: 2, ..LogQuery::default() };
    assert_eq!(read(&log, from(2)).await, (vec![2, 3], 4));
    assert_eq!(read(&log, from(5)).await, (vec![5], 6));
    assert_eq!(read(&log, from(9)).await, (vec![], 6));
    let back = |from: Option<u64>| LogQuery { from, limit: 2, backwards: true, ..LogQuery::default() };
    assert_eq!(read(&log, back(None)).await, (vec![5, 4], 4));
    assert_eq!(read(&log, back(Some(1))).await, (vec![0], 0));
    let of = |filter: Filter| LogQuery { filter, ..LogQuery::default() };
    let types = |name: &str| Filter { types: vec![name.to_owned().into()], ..Filter::default() };
    assert_eq!(read(&log, of(types(PAID))).await, (vec![1, 3, 5], 6));
    assert_eq!(read(&log, of(types("paid"))).await, (vec![], 6), "nobody has given it that name");
    assert_eq!(read(&log, of(Filter { tags: vec!["x".into()], ..Filter::default() })).await, (vec![], 6));
    let one = LogQuery { limit: 1, ..of(types(PAID)) };
    assert_eq!(read(&log, one).await, (vec![1], 2));

    let ours = collection(&database).list_index_names().await.expect("listed");
    assert_eq!(ours, ["_id_", "Metadata.EventSource_1", "Metadata.EventSource_1_Aggregate.TypeId_1"]);
    let mut seen = 0;
    let stats = log.stats(&mut |counted, of| seen = counted.min(of)).await.expect("counted");
    assert_eq!((stats.events, stats.commits, stats.aggregates, seen), (6, 6, 0, 6));
    assert_eq!(stats.events_by_type.get(PAID), Some(&3));
    assert_eq!(stats.oldest.map(|time| time.as_millis()), Some(1_700_000_000_000));
    let status = store.status();
    let status = status.iter().find(|log| (&*log.tenant, &*log.scope) == ("default", SCOPE)).expect("it is told");
    assert_eq!((status.head, &status.refusing), (6, &None));
    let other = store.log("other", SCOPE).expect("every tenant has it");
    assert_eq!(other.head().await, Ok(0));
    assert!(store.log(DEFAULT_TENANT, "inbox").is_err_and(|error| error.code() == Code::UnknownScope));
    assert_eq!(log_of(&store).head().await, Ok(0));
    store.close().await;
}

/// A scope has one name, however its UUID is written where it is declared or asked for.
#[tokio::test]
async fn a_scope_is_the_same_in_any_letter_case() {
    let databases = Databases::new();
    receive(&databases.database().await, 0..2).await;
    let upper = SCOPE.to_uppercase();
    let store = databases.store(options(&[&upper])).await;
    for name in [SCOPE, &upper] {
        assert_eq!(log(&store, name).head().await, Ok(2));
        assert_eq!(streams(&store, name).list(annals_core::StreamsQuery::default()).await, Ok(Vec::new()));
        assert_eq!(store.scope_name(name), SCOPE);
    }
    assert!(store.status().iter().any(|log| log.scope == SCOPE), "{:?}", store.status());
    store.close().await;
}

/// What occurs in scopes only is listed with what needs a name, is in nobody's way, and can be given one at any time.
#[tokio::test]
async fn uuids_that_only_scopes_hold_get_names_by_an_adoption() {
    let databases = Databases::new();
    let database = databases.database().await;
    let events = database.collection::<Document>("event-log");
    events.insert_one(v9(0, PLACED, "o-1", Some(0))).await.expect("inserted");
    receive(&database, 0..2).await;
    let without = AdoptNames { event_types: [(PLACED.to_owned(), Some("placed".to_owned()))].into(), ..names() };
    let report = databases.inspect(&without).await.expect("inspected");
    assert_eq!(report.obstacles, []);
    assert_eq!(report.names.event_types.get(PAID), Some(&None));
    let told = report.findings.iter().find(|finding| finding.kind == "name_of_scope").expect("it is told");
    assert!(told.what.contains(PAID) && told.what.contains("1 events"), "{}", told.what);
    databases.adopt(&without).await.expect("adopted");
    let again = databases.adopt(&without).await.expect("adopted");
    assert!(again.steps.is_empty(), "{:?}", again.steps);
    let types = async || {
        let store = databases.store(options(&[SCOPE])).await;
        let page = log(&store, SCOPE).read(LogQuery::default()).await.expect("read");
        store.close().await;
        page.events.iter().map(|event| event.event_type.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(types().await, ["placed", PAID]);
    let later = databases.adopt(&names()).await.expect("adopted with the name");
    assert_eq!(later.steps, ["keep the names of 2 UUIDs"]);
    assert_eq!(types().await, ["placed", "paid"]);
}

#[tokio::test]
async fn names_of_an_adoption_stand_for_uuids_in_scopes_too() {
    let databases = Databases::new();
    let database = databases.database().await;
    let events = database.collection::<Document>("event-log");
    events.insert_many([v9(0, PLACED, "o-1", Some(0)), v9(1, PAID, "o-1", Some(1))]).await.expect("inserted");
    databases.adopt(&names()).await.expect("adopted");
    receive(&database, 0..2).await;
    // What a Runtime does not write here, and a tool may.
    let applied = [v9(2, PLACED, "o-9", Some(0)), v9(3, PAID, "o-9", Some(1)), v9(4, PLACED, "o-8", Some(0))];
    collection(&database).insert_many(applied).await.expect("inserted");
    let store = databases.store(options(&[SCOPE])).await;
    let log = log(&store, SCOPE);
    let types = |name: &str| Filter { types: vec![name.to_owned().into()], ..Filter::default() };
    assert_eq!(read(&log, LogQuery { filter: types("paid"), ..LogQuery::default() }).await, (vec![1, 3], 5));
    assert_eq!(read(&log, LogQuery { filter: types(PAID), ..LogQuery::default() }).await, (vec![], 5));
    let aggregate = Some(AggregateFilter { name: "purchase".into(), id: Some("o-9".into()) });
    let filter = Filter { aggregate, ..Filter::default() };
    assert_eq!(read(&log, LogQuery { filter, ..LogQuery::default() }).await, (vec![2, 3], 5));
    let commits = log.read_aggregate(AggregateQuery::new(Aggregate::new("purchase", "o-9"))).await.expect("read");
    let versions: Vec<_> = commits.commits.iter().map(|commit| commit.info.version).collect();
    assert_eq!((versions, commits.version), (vec![1, 2], 2));
    let last = log.read_aggregate(AggregateQuery::last(Aggregate::new("purchase", "o-9"))).await.expect("read");
    assert_eq!(last.commits[0].events[0].sequence_number, 3);
    let ids = AggregateIdsQuery { name: "purchase".into(), after: None, limit: 10 };
    let ids = log.aggregate_ids(ids).await.expect("listed");
    assert_eq!(ids.iter().map(|known| &*known.id).collect::<Vec<_>>(), ["o-8", "o-9"]);
    store.close().await;
    let again = databases.adopt(&AdoptNames::default()).await.expect("adopted before");
    assert_eq!(again.left, [format!("x-{SCOPE}-event-log")], "it needs no adoption, and is named");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_follows_sees_what_is_received_in_order() {
    let databases = Databases::new();
    let database = databases.database().await;
    let store = databases.store(options(&[SCOPE])).await;
    let followers: Vec<_> = (0..3)
        .map(|_| {
            let mut follower = Follower::new(log(&store, SCOPE), 0, Filter::default());
            tokio::spawn(async move {
                let mut seen = Vec::new();
                while seen.len() < 60 {
                    seen.extend(numbers(&follower.next_page().await.expect("a page")));
                }
                seen
            })
        })
        .collect();
    for first in (0..60).step_by(3) {
        receive(&database, first..first + 3).await;
    }
    for follower in followers {
        assert_eq!(follower.await.expect("it ends well"), (0..60).collect::<Vec<_>>());
    }
    let waiting = tokio::spawn({
        let log = log(&store, SCOPE);
        async move { log.wait_past(60).await }
    });
    store.close().await;
    assert_eq!(waiting.await.expect("it ends"), Err(StoreError::Closed.into()));
}

/// Whoever writes leaves no hole; should one be there, nothing behind it is shown before what is missing.
#[tokio::test]
async fn nothing_behind_a_missing_number_is_shown_until_it_is_there() {
    let databases = Databases::new();
    let database = databases.database().await;
    receive(&database, 0..2).await;
    let store = databases.store(options(&[SCOPE])).await;
    let log = log(&store, SCOPE);
    receive(&database, 2..40).await;
    receive(&database, 41..90).await;
    assert_eq!(log.head().await, Ok(40));
    assert_eq!(read(&log, LogQuery { from: Some(38), ..LogQuery::default() }).await, (vec![38, 39], 40));
    let refusing = |store: &MongoStore| store.status().into_iter().find_map(|log| log.refusing);
    let sentence = refusing(&store).expect("it is said").to_string();
    assert!(sentence.contains("40, which is missing"), "{sentence}");
    let mut follower = Follower::new(log.clone(), 40, Filter::default());
    receive(&database, 90..95).await;
    assert_eq!(log.head().await, Ok(40));
    receive(&database, 40..41).await;
    assert_eq!(numbers(&follower.next_page().await.expect("a page")), (40..95).collect::<Vec<_>>());
    assert_eq!((log.head().await, refusing(&store)), (Ok(95), None));
    collection(&database).delete_one(doc! { "_id": 7_i64 }).await.expect("deleted");
    store.close().await;

    // What was deleted is passed over, as in the default scope.
    let store = databases.store(options(&[SCOPE])).await;
    let log = self::log(&store, SCOPE);
    assert_eq!(read(&log, LogQuery { from: Some(6), limit: 2, ..LogQuery::default() }).await, (vec![6, 8], 9));
    assert_eq!(log.head().await, Ok(95));
    store.close().await;
}

#[tokio::test]
async fn commits_to_a_scope_are_refused_by_name() {
    let databases = Databases::new();
    let store = databases.store(options(&["inbox"])).await;
    let error = log(&store, "inbox").commit(order("a", 1)).await.expect_err("refused");
    assert_eq!(error.code(), Code::NotSupportedByStore, "{error}");
    assert!(error.to_string().contains("\"inbox\""), "{error}");
    assert_eq!(log(&store, "inbox").request_exists(&Aggregate::new("order", "a"), "r").await, Ok(false));
    log_of(&store).commit(order("a", 1)).await.expect("the default scope takes it");
    assert_eq!(log(&store, "inbox").head().await, Ok(0));
    store.close().await;
}

#[tokio::test]
async fn an_event_that_cannot_be_read_is_named() {
    let databases = Databases::new();
    let database = databases.database().await;
    receive(&database, 0..1).await;
    let mut broken = received(1, PAID, "s-1");
    broken.remove("Metadata");
    collection(&database).insert_one(broken).await.expect("inserted");
    let store = databases.store(options(&[SCOPE])).await;
    let error = log(&store, SCOPE).read(LogQuery::default()).await.expect_err("it cannot be read");
    assert_eq!(error.code(), Code::MalformedDocument);
    for part in ["_id 1:", "Metadata", SCOPE, "correct or delete it"] {
        assert!(error.to_string().contains(part), "{part} in {error}");
    }
    store.close().await;
}

/// A stream of a scope is in the Runtime's layout under the scope's name, and has nothing to do with one of the same name elsewhere.
#[tokio::test]
async fn streams_of_a_scope_are_its_own() {
    const STREAM: &str = "323bcdb2-5bbd-4f13-a7c3-b19bc2cc2452";
    let databases = Databases::new();
    let database = databases.database().await;
    receive(&database, 0..6).await;
    let store = databases.store(options(&[SCOPE])).await;
    for n in 0..3 {
        log_of(&store).commit(order("a", n)).await.expect("committed");
    }
    let scoped = streams(&store, SCOPE);
    let run = Verdicts::new(STREAM, 0..4).include(Included::of(1, "s-1")).include(Included::of(3, "s-1"));
    let appended = scoped.append(run.clone()).await.expect("appended");
    assert_eq!((appended.positions, appended.duplicate), (0..2, false));
    assert!(scoped.append(run).await.expect("the same").duplicate);
    let default = streams(&store, "default");
    let other = Verdicts::new(STREAM, 0..1).include(Included::new(0));
    assert_eq!(default.append(other).await.expect("appended").positions, 0..1);

    let page = scoped.read_events(StreamQuery::new(STREAM)).await.expect("read");
    let seen: Vec<_> = page.events.iter().map(|event| (event.position, event.event.sequence_number)).collect();
    assert_eq!((seen, page.head), (vec![(0, 1), (1, 3)], 2));
    assert_eq!(&*page.events[0].event.event_type, PAID);
    assert_eq!(scoped.position_of(STREAM, 2).await, Ok(1));
    let listed = scoped.list(annals_core::StreamsQuery::default()).await.expect("listed");
    assert_eq!((listed.len(), listed[0].progress), (1, 4));
    let entries = database.collection::<Document>(&format!("x-{SCOPE}-stream-{STREAM}"));
    let mut indexes = entries.list_index_names().await.expect("listed");
    indexes.sort_unstable();
    assert!(indexes.contains(&"Metadata.EventLogSequenceNumber_1".to_owned()), "{indexes:?}");
    let raw = entries.clone_with_type::<RawDocumentBuf>();
    let stored = raw.find_one(doc! { "_id": 1_i64 }).await.expect("read").expect("stored");
    let keys: Vec<_> = stored.iter().map(|field| field.expect("readable").0.to_string()).collect();
    assert_eq!(keys, ["_id", "Partition", "Content", "ExecutionContext", "Metadata", "EventHorizon"]);
    let beyond = scoped.append(Verdicts::new(STREAM, 4..9)).await.expect_err("the log is not that long");
    assert_eq!(beyond.code(), Code::UnknownEvent, "{beyond}");
    let public = Verdicts::new(format!("public-stream-{STREAM}"), 0..1);
    let refused = scoped.append(public.clone()).await.expect_err("a scope has none");
    assert!(refused.code() == Code::InvalidName && refused.to_string().contains("public"), "{refused}");
    default.append(public).await.expect("the default scope has");
    let metadata = database.collection::<Document>("event-log-metadata");
    let offset = metadata.find_one(doc! { "_id": entries.name() }).await.expect("read").expect("there");
    assert_eq!(offset.get("NextEventOffset").map(ToString::to_string).as_deref(), Some("2"));
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_fill_a_stream_of_a_scope_while_it_is_received() {
    let databases = Databases::new();
    let database = databases.database().await;
    let (first, second) = tokio::join!(databases.store(options(&[SCOPE])), databases.store(options(&[SCOPE])));
    let filter = |store: &MongoStore| {
        let (log, streams) = (log(store, SCOPE), streams(store, SCOPE));
        tokio::spawn(async move {
            let mut new = 0;
            for n in 0..30 {
                assert!(log.wait_past(n).await.expect("it goes on") > n);
                let run = Verdicts::new("all", n..n + 1).include(Included::new(n));
                new += u32::from(!streams.append(run).await.expect("stored, or stored before").duplicate);
            }
            new
        })
    };
    let (a, b) = (filter(&first), filter(&second));
    for n in 0..30 {
        receive(&database, n..n + 1).await;
    }
    assert_eq!(a.await.expect("it ends well") + b.await.expect("it ends well"), 30);
    let page = streams(&first, SCOPE).read(StreamQuery::new("all")).await.expect("read");
    assert!(page.entries.iter().zip(0..).all(|(entry, n)| (entry.position, entry.sequence_number) == (n, n)));
    assert_eq!(page.head, 30);
    tokio::join!(first.close(), second.close());
}
