//! The suite of partner events, and their records as other software reads them.

use std::sync::Arc;

use annals_core::partners::{Answered, EventStatus, EventsQuery, Outgoing, PartnerDefinition, Sending, SigningSecret};
use annals_core::{Condition, DEFAULT_TENANT, Store};
use annals_mongodb::Options;
use annals_runtime::{Host, HostOptions, PartnerKeys, PartnerOptions};
use async_trait::async_trait;
use mongodb::bson::{Bson, Document, doc};

use crate::records::MongoRecords;
use crate::server::{Databases, log_of, order, until};

mod replica_set {
    use super::*;
    annals_conformance::partners!(MongoRecords::new());
    annals_conformance::partners_of_processes!(MongoRecords::new());
}

/// A partner that takes whatever it is sent.
struct Accepting;

#[async_trait]
impl Sending for Accepting {
    async fn send(&self, _request: Outgoing) -> Result<Answered, String> {
        Ok(Answered { status: 200, retry_after: None, said: String::new() })
    }

    fn check(&self, _url: &str) -> Result<(), String> {
        Ok(())
    }
}

/// The names of a document's fields, sorted: updates add some of them later than others.
fn fields(document: &Document) -> Vec<&str> {
    let mut names: Vec<_> = document.keys().map(String::as_str).collect();
    names.sort_unstable();
    names
}

fn is_millis(text: &Bson) -> bool {
    text.as_str().is_some_and(|text| text.len() == 13 && text.parse::<i64>().is_ok())
}

/// The name of an index and its fields, in order and each with its direction.
fn name_and_keys(index: &Document) -> (&str, Vec<(&str, i64)>) {
    let keys = index.get_document("key").expect("keys").iter().map(|(path, way)| {
        let way = way.as_i64().or_else(|| way.as_i32().map(i64::from)).or_else(|| way.as_f64().map(|way| way as i64));
        (path.as_str(), way.unwrap_or_else(|| panic!("{index}")))
    });
    (index.get_str("name").expect("a name"), keys.collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_has_the_fields_types_and_indexes_of_its_layout_and_our_revision() {
    let databases = Databases::new();
    let store = Arc::new(databases.store(Options::default()).await);
    let partners = PartnerOptions { sending: Arc::new(Accepting), keys: Some(PartnerKeys::for_development()) };
    let host = Host::start(store.clone(), HostOptions { partners, ..HostOptions::default() });
    let partners = host.partners(DEFAULT_TENANT).expect("declared");
    let definition = PartnerDefinition::new("p", "Example")
        .sends("https://p.example/events", Condition::eq("type", "order_changed"))
        .secrets([SigningSecret::of_bytes(vec![1; 24]).reveal()]);
    partners.put(PartnerDefinition { retention_days: Some(30), ..definition }).await.expect("defined");
    log_of(&store).commit(order("a", 7)).await.expect("committed");
    until("the event's delivery", async || {
        let page = partners.events("p", EventsQuery::default()).await.expect("listed");
        page.items.iter().any(|event| event.event_status == EventStatus::Success && event.expire_at.is_some())
    })
    .await;

    let database = databases.database().await;
    let stored = database.collection::<Document>("partner_events");
    let stored = stored.find_one(doc! {}).await.expect("found").expect("it is there");
    let layout = [
        "_annals",
        "_id",
        "created",
        "createdBy",
        "entity_data",
        "entity_metadata",
        "event_day_id",
        "event_direction",
        "event_status",
        "event_type",
        "event_version",
        "expire_at",
        "lastUpdatedTime",
    ];
    assert_eq!(fields(&stored), layout, "{stored}");
    let own = stored.get_document("_annals").expect("a document");
    assert_eq!(fields(own), ["revision"], "{own}");
    assert!(own.get_i64("revision").is_ok(), "{own}");
    assert!(stored.get_object_id("_id").is_ok(), "{stored}");
    assert!(stored.get_i32("event_day_id").is_ok(), "{stored}");
    assert!(stored.get_datetime("expire_at").is_ok(), "{stored}");
    for (field, text) in [
        ("event_version", "v1"),
        ("event_type", "order_changed"),
        ("event_status", "SUCCESS"),
        ("event_direction", "OUT"),
        ("createdBy", "annals"),
    ] {
        assert_eq!(stored.get_str(field).ok(), Some(text), "{stored}");
    }
    for field in ["created", "lastUpdatedTime"] {
        assert!(stored.get(field).is_some_and(is_millis), "{field}: {stored}");
    }
    assert_eq!(stored.get_document("entity_data").expect("a document").len(), 1, "{stored}");
    let metadata = stored.get_document("entity_metadata").expect("a document");
    let layout = ["entity_id", "entity_type", "partnerId", "partnerName", "resilienceAttemptCount"];
    assert_eq!(fields(metadata), layout, "{metadata}");
    for (field, text) in [("entity_id", "a"), ("entity_type", "order"), ("partnerId", "p"), ("partnerName", "Example")]
    {
        assert_eq!(metadata.get_str(field).ok(), Some(text), "{metadata}");
    }
    let attempts = metadata.get_document("resilienceAttemptCount").expect("a document");
    assert_eq!(fields(attempts), ["1"], "{attempts}");
    assert!(attempts.get("1").is_some_and(is_millis), "{attempts}");

    let listed = database.run_command(doc! { "listIndexes": "partner_events" }).await.expect("listed");
    let listed = listed.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch")).expect("a batch");
    let named: Vec<_> = listed.iter().filter_map(Bson::as_document).map(name_and_keys).collect();
    let due: [(&str, Vec<(&str, i64)>); 5] = [
        ("_id_", vec![("_id", 1)]),
        ("entity_metadata.partnerId_1_created_-1", vec![("entity_metadata.partnerId", 1), ("created", -1)]),
        ("event_status_1_event_type_1", vec![("event_status", 1), ("event_type", 1)]),
        ("expire_at_1", vec![("expire_at", 1)]),
        (
            "entity_metadata.entity_id_1_entity_metadata.entity_type_1",
            vec![("entity_metadata.entity_id", 1), ("entity_metadata.entity_type", 1)],
        ),
    ];
    assert_eq!(named, due);
    let expiring = listed[3].as_document().expect("a document");
    assert_eq!(expiring.get_i32("expireAfterSeconds").ok(), Some(0), "{expiring}");
    host.drain().await;
    store.close().await;
}
