//! The suites of the browse view, its archive and replays; and Integr8sCode's own queries, with the plain driver: each finds events by an
//! index that Integr8sCode has for it.

use std::sync::Arc;

use annals_core::browse::{BrowseQuery, EVENTS, ReplayFilter};
use annals_core::{DEFAULT_TENANT, Data, NewCommit, NewEvent, Reached, Store, Timestamp};
use annals_mongodb::Options;
use annals_runtime::{Host, HostOptions};
use mongodb::Database;
use mongodb::bson::{Bson, Document, doc};

use crate::readers::indexes;
use crate::records::MongoRecords;
use crate::server::{Databases, log_of};

mod replica_set {
    use super::*;
    annals_conformance::browse!(MongoRecords::new());
    annals_conformance::archive!(MongoRecords::new());
    annals_conformance::replays!(MongoRecords::new());
    annals_conformance::replays_of_processes!(MongoRecords::new());
}

const AGGREGATES: i64 = 40;
/// Commits of each aggregate.
const COMMITS: i64 = 5;
/// Events of each commit, each of another type.
const EVENTS_OF_COMMIT: i64 = 15;

/// The `n`th commit: of one of 25 users and 8 services, and of an execution if `n` is even. Its events are one second apart.
fn commit(n: i64) -> NewCommit {
    let events = (0..EVENTS_OF_COMMIT).map(|of_commit| {
        let data = match n % 2 {
            0 => serde_json::json!({ "execution_id": format!("e-{n}"), "pod_name": format!("p-{n}-{of_commit}") }),
            _ => serde_json::json!({ "n": n }),
        };
        let data = Data::from_value(&data).expect("an object");
        let time = Some(Timestamp::from_millis((n * EVENTS_OF_COMMIT + of_commit) * 1_000));
        NewEvent { time, ..NewEvent::new(format!("type_{of_commit}"), data) }
    });
    let empty = NewCommit::new("order", format!("o-{}", n % AGGREGATES));
    let mut commit = events.fold(empty, NewCommit::event).wait_until(Reached::Logged);
    commit.header = vec![
        ("user_id".into(), format!("u-{}", n % 25).into()),
        ("service_name".into(), format!("service-{}", n % 8).into()),
    ];
    commit
}

/// Commits the events, and waits until all of them are in the view. Returns the id of the first event of each commit.
async fn viewed(databases: &Databases) -> Vec<String> {
    let store = Arc::new(databases.store(Options::default()).await);
    let log = log_of(&store);
    let mut ids = Vec::new();
    for round in 0..COMMITS {
        let commits = (0..AGGREGATES).map(|n| log.commit(commit(round * AGGREGATES + n)));
        for outcome in futures_util::future::join_all(commits).await {
            ids.push(outcome.expect("committed").event_ids[0].to_string());
        }
    }
    let host = Host::start(store.clone(), HostOptions::default());
    host.start_defined();
    let browse = host.browse(DEFAULT_TENANT).expect("declared");
    let all = (AGGREGATES * COMMITS * EVENTS_OF_COMMIT).cast_unsigned();
    crate::server::until("the view has every event", async || {
        browse.page(BrowseQuery::default()).await.expect("a page").total == all
    })
    .await;
    host.drain().await;
    store.close().await;
    ids
}

/// The filters of Integr8sCode, each with the names of the indexes that are there for it. Where two have the same fields and one has the
/// times in descending order, either is right, because an index is read in both directions.
fn filters(ids: &[String]) -> Vec<(ReplayFilter, &'static str)> {
    const TYPE: &str = "idx_event_type_ts or idx_events_type_ts_asc";
    const AGGREGATE: &str = "idx_aggregate_ts or idx_events_agg_ts";
    const USER: &str = "idx_meta_user_ts or idx_events_user_ts";
    let text = |text: &str| Some(text.to_owned());
    let list = |texts: &[&str]| Some(texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
    let at = |second: i64| Some(Timestamp::from_millis(second * 1_000));
    let all = ReplayFilter::default;
    let (one, two) = (|| list(&["type_3"]), || list(&["type_3", "type_4"]));
    vec![
        (ReplayFilter { event_ids: Some(vec![ids[7].clone(), ids[70].clone()]), ..all() }, "event_id_1"),
        (ReplayFilter { execution_id: text("e-8"), ..all() }, "idx_execution_id"),
        (ReplayFilter { aggregate_id: text("o-3"), ..all() }, AGGREGATE),
        (ReplayFilter { aggregate_id: text("o-3"), end_time: at(900), ..all() }, AGGREGATE),
        (ReplayFilter { event_types: one(), ..all() }, TYPE),
        (ReplayFilter { event_types: two(), ..all() }, TYPE),
        (ReplayFilter { event_types: two(), exclude_event_types: list(&["type_4"]), ..all() }, TYPE),
        (ReplayFilter { event_types: one(), start_time: at(50), end_time: at(900), ..all() }, TYPE),
        (ReplayFilter { user_id: text("u-3"), ..all() }, USER),
        (ReplayFilter { user_id: text("u-3"), start_time: at(50), end_time: at(900), ..all() }, USER),
        (ReplayFilter { service_name: text("service-3"), ..all() }, "idx_meta_service_ts"),
        (ReplayFilter { start_time: at(50), end_time: at(90), ..all() }, "timestamp_1"),
        (ReplayFilter { event_types: one(), user_id: text("u-3"), ..all() }, "idx_events_type_user_ts"),
        (ReplayFilter { event_types: one(), aggregate_id: text("o-3"), ..all() }, "idx_events_type_agg"),
    ]
}

/// The indexes of Integr8sCode's `EventDocument`: the name, the fields with their directions, and the options.
const DECLARED: [&str; 17] = [
    "aggregate_id_1 aggregate_id:1",
    "event_id_1 event_id:1 unique:true",
    "idx_aggregate_ts aggregate_id:1,timestamp:-1",
    "idx_event_type_ts event_type:1,timestamp:-1",
    "idx_events_agg_ts aggregate_id:1,timestamp:1",
    "idx_events_type_agg event_type:1,aggregate_id:1",
    "idx_events_type_ts_asc event_type:1,timestamp:1",
    "idx_events_type_user_ts event_type:1,metadata.user_id:1,timestamp:-1",
    "idx_events_user_ts metadata.user_id:1,timestamp:1",
    "idx_events_user_type metadata.user_id:1,event_type:1",
    "idx_execution_id execution_id:1 sparse:true",
    "idx_meta_service_ts metadata.service_name:1,timestamp:-1",
    "idx_meta_user_ts metadata.user_id:1,timestamp:-1",
    "idx_pod_name pod_name:1 sparse:true",
    "idx_text_search _fts:text,_ftsx:1 default_language:english language_override:none textIndexVersion:3 \
     weights:event_type:1,execution_id:1,metadata.service_name:1,metadata.user_id:1",
    "idx_ttl ttl_expires_at:1 expireAfterSeconds:0",
    "timestamp_1 timestamp:1",
];

fn shown(value: &Bson) -> String {
    match value {
        Bson::String(text) => text.clone(),
        Bson::Document(parts) => {
            parts.iter().map(|(name, value)| format!("{name}:{}", shown(value))).collect::<Vec<_>>().join(",")
        }
        other => other.to_string(),
    }
}

/// The first batch of the cursor that a command opens.
async fn first_batch(database: &Database, command: Document) -> Vec<Document> {
    let answer = database.run_command(command).await.expect("a cursor");
    let cursor = answer.get_document("cursor").expect("a cursor");
    let batch = cursor.get_array("firstBatch").expect("a batch");
    batch.iter().map(|it| it.as_document().expect("a document").clone()).collect()
}

/// The indexes that the server has for the view, without that of `_id`, in the form of [`DECLARED`].
async fn listed(database: &Database) -> Vec<String> {
    let indexes = first_batch(database, doc! { "listIndexes": EVENTS, "cursor": { "batchSize": 200 } }).await;
    let line = |index: &Document| {
        let options = index.iter().filter(|(name, _)| !["v", "key", "name"].contains(&name.as_str()));
        let mut options: Vec<_> = options.map(|(name, value)| format!("{name}:{}", shown(value))).collect();
        options.sort();
        let key = shown(index.get("key").expect("a key"));
        [vec![index.get_str("name").expect("a name").to_owned(), key], options].concat().join(" ")
    };
    let mut lines: Vec<_> = indexes.iter().map(line).filter(|line| !line.starts_with("_id_ ")).collect();
    lines.sort();
    lines
}

/// How many documents a sparse index has entries of.
async fn entries(database: &Database, index: &str) -> usize {
    let found = doc! { "find": EVENTS, "hint": index, "projection": { "_id": 1 }, "batchSize": 10_000 };
    first_batch(database, found).await.len()
}

/// In ascending and in descending order of time, as its services sort them. The indexes have its names and options.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_queries_of_integr8scode_find_events_by_their_indexes() {
    let databases = Databases::new();
    let ids = viewed(&databases).await;
    let database = databases.database().await;
    assert_eq!(listed(&database).await, DECLARED);
    // Half of the commits are of an execution.
    for sparse in ["idx_execution_id", "idx_pod_name"] {
        assert_eq!(entries(&database, sparse).await as i64, AGGREGATES * COMMITS * EVENTS_OF_COMMIT / 2, "{sparse}");
    }
    let events = database.collection::<Document>(EVENTS);
    for (filter, expected) in filters(&ids) {
        let query = filter.to_mongo_query();
        for direction in [1_i32, -1] {
            let used = indexes(&database, EVENTS, &query, &doc! { "timestamp": direction }).await;
            let is_expected = |used: &String| expected.split(" or ").any(|name| name == used);
            assert!(!used.is_empty() && used.iter().all(is_expected), "{query} in order {direction}: {used:?}");
        }
        assert!(events.count_documents(query.clone()).await.expect("counted") > 0, "{query} finds nothing");
    }
    for (query, expected) in [
        (doc! { "pod_name": "p-4-0" }, "idx_pod_name"),
        (doc! { "$text": { "$search": "service" } }, "idx_text_search"),
    ] {
        let used = indexes(&database, EVENTS, &query, &doc! {}).await;
        assert!(!used.is_empty() && used.iter().all(|used| used == expected), "{query}: {used:?}");
        assert!(events.count_documents(query.clone()).await.expect("counted") > 0, "{query} finds nothing");
    }
}
