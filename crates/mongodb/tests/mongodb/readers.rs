//! Readers of the two layouts, with the plain driver: each of their own queries finds what Annals wrote, by the index that is there for it.

use annals_core::{Data, ExpectedVersion, NewCommit, NewEvent, Reached, Store};
use annals_mongodb::Options;
use mongodb::Database;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, DateTime, Decimal128, Document, doc};
use serde::Deserialize;

use crate::server::{Databases, log_of};

const AGGREGATES: u64 = 20;
const COMMITS: u64 = 20;

/// Commits of many orders, so that one index is better than another.
async fn written(databases: &Databases, options: Options) -> Database {
    let store = databases.store(options).await;
    let log = log_of(&store);
    for version in 0..COMMITS {
        let commits = (0..AGGREGATES).map(|n| {
            let data = Data::from_value(&serde_json::json!({ "n": n })).expect("an object");
            let kind = if version % 2 == 0 { "order_changed" } else { "order_seen" };
            let commit = NewCommit::new("order", format!("o-{n:02}")).event(NewEvent::new(kind, data));
            let commit = commit.request_id(format!("r-{n}-{version}")).expect(ExpectedVersion::Exact(version));
            let commit = NewCommit { owner_id: Some(format!("owner-{n}").into()), ..commit };
            log.commit(commit.wait_until(Reached::Logged))
        });
        for outcome in futures_util::future::join_all(commits).await {
            outcome.expect("committed");
        }
    }
    store.close().await;
    databases.database().await
}

async fn found(database: &Database, collection: &str, filter: Document, sort: Document) -> Vec<Document> {
    let documents = database.collection::<Document>(collection);
    let mut cursor = documents.find(filter).sort(sort).await.expect("found");
    let mut all = Vec::new();
    while cursor.advance().await.expect("read") {
        all.push(cursor.deserialize_current().expect("a document"));
    }
    all
}

/// The names of the indexes of the plan for this query.
pub async fn indexes(database: &Database, collection: &str, filter: &Document, sort: &Document) -> Vec<String> {
    let find = doc! { "find": collection, "filter": filter.clone(), "sort": sort.clone() };
    let plan = database.run_command(doc! { "explain": find, "verbosity": "queryPlanner" }).await.expect("explained");
    let plan = plan.get_document("queryPlanner").and_then(|it| it.get_document("winningPlan")).expect("a plan");
    let mut names = Vec::new();
    collect(plan, &mut names);
    names
}

fn collect(plan: &Document, names: &mut Vec<String>) {
    names.extend(plan.get_str("indexName").ok().map(str::to_owned));
    // A collection that is stored in the order of its ids needs no index of them.
    names.extend(plan.get_str("stage").ok().filter(|stage| *stage == "CLUSTERED_IXSCAN").map(|_| "_id_".to_owned()));
    for value in plan.values() {
        match value {
            Bson::Document(inner) => collect(inner, names),
            Bson::Array(stages) => stages.iter().filter_map(Bson::as_document).for_each(|stage| collect(stage, names)),
            _ => {}
        }
    }
}

/// Wow's event store: load by version and by time, one, the last, whether a request exists, ids, and queries by tenant and owner.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_queries_of_wow_find_commits_by_their_indexes() {
    const STREAM: &str = "order_event_stream";
    let databases = Databases::new();
    let database = written(&databases, Options { optional_indexes: true, ..Options::default() }).await;
    let one = || doc! { "aggregateId": "o-07", "tenantId": "(0)" };
    let and = |more: Document| one().into_iter().chain(more).collect::<Document>();
    let (all, last) = (doc! { "version": 1 }, doc! { "version": -1 });
    let by_version = "aggregateId_1_version_1";
    let named =
        doc! { "contextName": "annals", "aggregateName": "order", "version": 1, "aggregateId": { "$gt": "(0)" } };
    let commits = COMMITS as usize;
    for (filter, sort, index, count) in [
        (and(doc! { "version": { "$gte": 1, "$lte": i32::MAX - 1 } }), all.clone(), by_version, commits),
        (and(doc! { "version": { "$gte": 3, "$lte": 9 } }), all.clone(), by_version, 7),
        (and(doc! { "createTime": { "$gte": 0_i64, "$lte": i64::MAX } }), all.clone(), by_version, commits),
        (and(doc! { "version": 5 }), doc! {}, by_version, 1),
        (one(), last, by_version, commits),
        (doc! { "aggregateId": "o-07", "requestId": "r-7-3" }, doc! {}, "aggregateId_1_requestId_1", 1),
        (named, doc! { "aggregateId": 1 }, by_version, AGGREGATES as usize),
        (doc! { "ownerId": "owner-7" }, doc! {}, "ownerId_hashed", commits),
        (doc! { "tenantId": "(0)" }, doc! {}, "tenantId_hashed", commits * AGGREGATES as usize),
        (doc! { "createTime": { "$gte": 0_i64 } }, doc! { "createTime": 1 }, "idx_create_time", 400),
        (doc! { "body.name": "order_seen" }, doc! { "createTime": 1 }, "idx_event_type_time", 200),
    ] {
        assert_eq!(indexes(&database, STREAM, &filter, &sort).await, [index], "{filter} {sort}");
        let documents = found(&database, STREAM, filter.clone(), sort.clone()).await;
        assert_eq!(documents.len(), count, "{filter}");
    }
    let versions = found(&database, STREAM, one(), all).await;
    let versions: Vec<i32> = versions.iter().map(|it| it.get_i32("version").expect("int32")).collect();
    assert_eq!(versions, (1..=COMMITS as i32).collect::<Vec<_>>());
}

/// What the Dolittle Runtime's reader takes: no field is unknown to it, and none is missing.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
struct Event {
    #[serde(rename = "_id")]
    number: Decimal128,
    content: Document,
    aggregate: Aggregate,
    event_horizon: EventHorizon,
    execution_context: ExecutionContext,
    metadata: Metadata,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
struct Aggregate {
    was_applied_by_aggregate: bool,
    type_id: Binary,
    type_generation: i64,
    version: Decimal128,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
struct EventHorizon {
    from_event_horizon: bool,
    external_event_log_sequence_number: Decimal128,
    received: DateTime,
    consent: Binary,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
struct ExecutionContext {
    correlation: Binary,
    span_id: Binary,
    microservice: Binary,
    tenant: Binary,
    version: Document,
    environment: String,
    claims: Vec<Document>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
struct Metadata {
    occurred: DateTime,
    event_source: String,
    type_id: Binary,
    type_generation: i64,
    public: bool,
}

fn is_uuid(binary: &Binary) -> bool {
    binary.subtype == BinarySubtype::Uuid && binary.bytes.len() == 16
}

fn number(decimal: Decimal128) -> u64 {
    decimal.to_string().parse().expect("a whole number")
}

/// The Runtime: the log from a number on, and the events of one aggregate, whose source it looks for as text and as UUID.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_queries_of_the_dolittle_runtime_find_events_by_their_indexes() {
    let databases = Databases::new();
    let database = written(&databases, Options::default()).await;
    let events = database.collection::<Event>("event-log");
    let mut log = events.find(doc! { "_id": { "$gte": 0_i64 } }).sort(doc! { "_id": 1 }).await.expect("found");
    let mut read = Vec::new();
    while log.advance().await.expect("read") {
        read.push(log.deserialize_current().expect("an event as the Runtime has it"));
    }
    assert_eq!(read.iter().map(|it| number(it.number)).collect::<Vec<_>>(), (0..400).collect::<Vec<_>>());
    for event in &read {
        let Event { aggregate, event_horizon, execution_context, metadata, content, .. } = event;
        assert!(aggregate.was_applied_by_aggregate && aggregate.type_generation == 1);
        assert!(!event_horizon.from_event_horizon && number(event_horizon.external_event_log_sequence_number) == 0);
        let never = DateTime::from_millis(-62_135_596_800_000);
        assert!(event_horizon.received == never && metadata.occurred > never);
        let uuids = [
            &aggregate.type_id,
            &event_horizon.consent,
            &execution_context.correlation,
            &execution_context.microservice,
            &execution_context.tenant,
            &metadata.type_id,
        ];
        assert!(uuids.into_iter().all(is_uuid), "{event:?}");
        assert_eq!((execution_context.span_id.bytes.len(), execution_context.version.len()), (8, 5));
        assert!(execution_context.environment.is_empty() && execution_context.claims.is_empty());
        assert!(metadata.event_source.starts_with("o-") && metadata.type_generation == 1 && !metadata.public);
        assert!(content.get_i64("n").is_ok());
    }

    let of_one: Vec<&Event> = read.iter().filter(|it| it.metadata.event_source == "o-07").collect();
    let versions: Vec<u64> = of_one.iter().map(|it| number(it.aggregate.version)).collect();
    assert_eq!(versions, (0..COMMITS).collect::<Vec<_>>(), "versions count events from 0");
    let type_id = of_one[0].aggregate.type_id.clone();
    let twice = doc! { "$in": ["o-07", Bson::Binary(Binary { subtype: BinarySubtype::Uuid, bytes: vec![7; 16] })] };
    let source = |source: Bson| {
        doc! {
            "Aggregate.WasAppliedByAggregate": true, "Aggregate.TypeId": type_id.clone(), "Metadata.EventSource": source,
            "Aggregate.Version": { "$lte": 400_i64 },
        }
    };
    let in_order = doc! { "Aggregate.Version": 1 };
    for (collection, filter, sort, index, count) in [
        ("event-log", doc! { "_id": { "$gte": 17_i64, "$lt": 20_i64 } }, doc! { "_id": 1 }, "_id_", 3),
        ("event-log", source("o-07".into()), in_order.clone(), "aggregate_version_index", 20),
        ("event-log", source(twice.into()), in_order, "aggregate_version_index", 20),
        ("event-log", doc! { "Metadata.EventSource": "o-07" }, doc! { "_id": 1 }, "Metadata.EventSource_1", 20),
        (
            "aggregates",
            doc! { "EventSource": "o-07", "AggregateType": type_id.clone() },
            doc! {},
            "EventSource_1_AggregateType_1",
            1,
        ),
    ] {
        let mut used = indexes(&database, collection, &filter, &sort).await;
        used.dedup();
        assert_eq!(used, [index], "{filter}");
        assert_eq!(found(&database, collection, filter.clone(), sort).await.len(), count, "{filter}");
    }
    let aggregates = found(&database, "aggregates", doc! { "EventSource": "o-07" }, doc! {}).await;
    assert_eq!(aggregates[0].get("Version"), Some(&Bson::Decimal128(COMMITS.to_string().parse().expect("a decimal"))));
}
