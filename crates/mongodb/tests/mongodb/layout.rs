//! The stored documents, field by field, as other software reads them.

use annals_core::{Data, ExpectedVersion, NewCommit, NewEvent, Reached, Store, Timestamp};
use annals_mongodb::Options;
use mongodb::bson::{Bson, Document, doc, spec::BinarySubtype};

use crate::server::{Databases, log_of, order};

fn keys(document: &Document) -> Vec<&str> {
    document.keys().map(String::as_str).collect()
}

fn everything() -> NewCommit {
    let placed = NewEvent {
        generation: 2,
        tags: vec!["vip".into()],
        public: true,
        time: Some(Timestamp::from_millis(1_700_000_000_000)),
        ..NewEvent::new("order_placed", Data::from_json(r#"{"total": 1.5, "$a.b": 1}"#).expect("an object"))
    };
    let placed =
        placed.with_metadata(&serde_json::json!({ "trace": "t-1", "attempt": 2 })).expect("strings and numbers");
    let paid = NewEvent { time: Some(Timestamp::from_millis(5)), ..NewEvent::new("order_paid", Data::empty()) };
    NewCommit {
        header: vec![("trace_id".into(), "t".into())],
        owner_id: Some("o".into()),
        correlation_id: Some("cart-7".into()),
        ..NewCommit::new("order", "o-1").event(placed).event(paid).request_id("r-1").expect(ExpectedVersion::Empty)
    }
    .wait_until(Reached::Logged)
}

async fn stored(databases: &Databases, collection: &str) -> Vec<Document> {
    let documents = databases.database().await.collection::<Document>(collection);
    let mut found = documents.find(doc! {}).sort(doc! { "_id": 1 }).await.expect("found");
    let mut all = Vec::new();
    while found.advance().await.expect("read") {
        all.push(found.deserialize_current().expect("a document"));
    }
    all
}

#[tokio::test]
async fn a_commit_is_the_document_that_wow_has() {
    let databases = Databases::new();
    let store = databases.store(Options::default()).await;
    let outcome = log_of(&store).commit(everything()).await.expect("committed");
    let plain = NewCommit::new("order", "o-2").event(NewEvent::new("order_placed", Data::empty()));
    log_of(&store).commit(plain.expect(ExpectedVersion::Empty)).await.expect("committed");
    store.close().await;
    let all = stored(&databases, "order_event_stream").await;
    let (full, plain) = (&all[0], &all[1]);
    let wow = [
        "_id",
        "contextName",
        "aggregateName",
        "header",
        "aggregateId",
        "tenantId",
        "ownerId",
        "spaceId",
        "commandId",
        "requestId",
        "version",
        "body",
        "createTime",
        "size",
    ];
    assert_eq!(keys(plain), wow, "nothing of ours where there is nothing to say");
    assert_eq!(plain.get("version"), Some(&Bson::Int32(1)));
    assert_eq!(plain.get("size"), Some(&Bson::Int32(1)));
    assert!(plain.get_i64("createTime").is_ok());
    assert_eq!(plain.get_str("tenantId").expect("text"), "(0)");
    assert_eq!(full.get_str("_id").expect("text"), outcome.commit_id.to_string());
    assert_eq!(full.get_document("header").expect("an object"), &doc! { "trace_id": "t" });
    assert_eq!(
        full.get_document("annals").expect("ours"),
        &doc! {
            "correlationId": "cart-7", "times": [1_700_000_000_000_i64, 5_i64],
        }
    );
    let body = full.get_array("body").expect("an array");
    let first = body[0].as_document().expect("a document");
    assert_eq!(keys(first), ["id", "name", "revision", "bodyType", "body", "tags", "public", "metadata"]);
    assert_eq!(first.get_str("revision").expect("text"), "2.0.0");
    assert_eq!(first.get_document("body").expect("data"), &doc! { "total": 1.5, "$a.b": 1_i64 });
    assert_eq!(first.get_document("metadata").expect("ours"), &doc! { "trace": "t-1", "attempt": 2_i64 });
    assert_eq!(keys(body[1].as_document().expect("a document")), ["id", "name", "revision", "bodyType", "body"]);
}

#[tokio::test]
async fn an_event_is_the_document_that_the_dolittle_runtime_has() {
    let databases = Databases::new();
    let store = databases.store(Options::default()).await;
    log_of(&store).commit(everything()).await.expect("committed");
    store.close().await;
    let events = stored(&databases, "event-log").await;
    assert_eq!(events.len(), 2);
    let event = &events[1];
    assert_eq!(keys(event), ["_id", "Content", "Aggregate", "EventHorizon", "ExecutionContext", "Metadata"]);
    let one = "1".parse().expect("a decimal");
    assert_eq!(event.get("_id"), Some(&Bson::Decimal128(one)));
    let aggregate = event.get_document("Aggregate").expect("an object");
    assert_eq!(keys(aggregate), ["WasAppliedByAggregate", "TypeId", "TypeGeneration", "Version"]);
    assert_eq!(aggregate.get("WasAppliedByAggregate"), Some(&Bson::Boolean(true)));
    assert_eq!(aggregate.get("Version"), Some(&Bson::Decimal128(one)), "the version counts events from 0");
    let metadata = event.get_document("Metadata").expect("an object");
    assert_eq!(keys(metadata), ["Occurred", "EventSource", "TypeId", "TypeGeneration", "Public"]);
    assert!(matches!(metadata.get("TypeId"), Some(Bson::Binary(id)) if id.subtype == BinarySubtype::Uuid));
    assert_eq!(metadata.get_datetime("Occurred").expect("a date").timestamp_millis(), 5);
    let context = event.get_document("ExecutionContext").expect("an object");
    assert_eq!(keys(context), ["Correlation", "SpanId", "Microservice", "Tenant", "Version", "Environment", "Claims"]);
    let aggregates = stored(&databases, "aggregates").await;
    assert_eq!(aggregates[0].get("Version"), Some(&Bson::Decimal128("2".parse().expect("a decimal"))));
    let offset = stored(&databases, "event-log-metadata").await;
    assert_eq!(
        offset,
        [doc! { "_id": "event-log", "NextEventOffset": Bson::Decimal128("2".parse().expect("a decimal")) }]
    );
    let entries = stored(&databases, "event-log-commits").await;
    assert_eq!(entries[0].get_i64("_id").expect("a number"), 0);
    assert_eq!(
        entries[0].get_array("types").expect("an array"),
        &vec![Bson::from("order_paid"), "order_placed".into()]
    );
}

/// The stage that reads a collection by the ids in whose order it is stored.
const CLUSTERED: &str = "CLUSTERED_IXSCAN";

/// The queries of the layouts' own readers use the index that is there for them.
#[tokio::test]
async fn the_layouts_own_queries_use_their_indexes() {
    let databases = Databases::new();
    let store = databases.store(Options::default()).await;
    log_of(&store).commit(everything()).await.expect("committed");
    // With one commit every index is as good as any.
    for n in 2..40 {
        log_of(&store).commit(order("o-1", n)).await.expect("committed");
    }
    store.close().await;
    let database = databases.database().await;
    for (collection, filter, sort, index) in [
        (
            "order_event_stream",
            doc! { "aggregateId": "o-1", "tenantId": "(0)", "version": { "$gte": 1, "$lte": 9 } },
            doc! { "version": 1 },
            "aggregateId_1_version_1",
        ),
        ("order_event_stream", doc! { "aggregateId": "o-1" }, doc! { "version": -1 }, "aggregateId_1_version_1"),
        ("order_event_stream", doc! { "aggregateId": "o-1", "requestId": "r-1" }, doc! {}, "aggregateId_1_requestId_1"),
        ("event-log", doc! { "_id": { "$gte": 0 } }, doc! { "_id": 1 }, CLUSTERED),
        (
            "event-log",
            doc! { "Aggregate.WasAppliedByAggregate": true, "Aggregate.TypeId": 1, "Metadata.EventSource": "o-1" },
            doc! { "Aggregate.Version": 1 },
            "aggregate_version_index",
        ),
        ("event-log-commits", doc! { "aggregate": "order", "id": "o-1", "version": 1 }, doc! {}, "aggregate_1"),
        (
            "event-log-commits",
            doc! { "coll": "order_event_stream", "commit": { "$in": ["a", "b"] } },
            doc! {},
            "commit_1",
        ),
    ] {
        let explain = doc! { "explain": { "find": collection, "filter": filter.clone(), "sort": sort } };
        let plan = database.run_command(explain).await.expect("explained");
        let plan = plan.get_document("queryPlanner").and_then(|p| p.get_document("winningPlan")).expect("a plan");
        let wanted = match index {
            CLUSTERED => format!("\"stage\": \"{CLUSTERED}\""),
            name => format!("\"indexName\": \"{name}\""),
        };
        assert!(plan.to_string().contains(&wanted), "{collection} {filter}: {plan}");
    }
}
