//! The content of the view.

use std::sync::Arc;

use annals_core::browse::{
    BROWSE_VIEW, BrowseError, BrowseQuery, EVENTS, ReplayFilter, ViewBody, ViewSwitch, browse_id, browse_indexes,
};
use annals_core::bson::{Document, RawDocumentBuf, doc, oid::ObjectId};
use annals_core::{
    Condition, DEFAULT_TENANT, Data, Index, NewCommit, NewEvent, Reached, RecordQuery, TextLanguage, Uuid,
};
use serde_json::json;

use crate::Subject;
use crate::browse::opened::{Browsed, Sample, sample};

async fn documents(it: &Browsed) -> Vec<Document> {
    it.browse.page(BrowseQuery::default()).await.expect("a page");
    let page = it.records.find(RecordQuery::new(EVENTS).limit(1_000)).await.expect("declared");
    page.records.iter().map(|it| Document::try_from(&*it.document).expect("a document")).collect()
}

/// Base fields come with event-specific fields beside them. A field that collides with a base field is kept.
pub async fn an_event_becomes_one_flat_document_without_nulls(subject: &dyn Subject) {
    let it = Browsed::of(subject).await;
    let header: &[_] =
        &[("service_name", "api"), ("service_version", "2.1"), ("user_id", "ada"), ("environment", "test")];
    let data =
        json!({"execution_id": "e-1", "language": "python", "pod_name": null, "exit_code": 0, "metadata": 7, "$a": 1});
    let id = it.commit(Sample { data, header, time: 1_234, ..sample() }).await;
    it.commit(Sample { event_type: "paid", ..sample() }).await;
    let found = documents(&it).await;
    let first = &found[0];
    assert_eq!(first.get_str("event_id").ok(), Some(id.to_string().as_str()));
    assert_eq!(first.get_str("event_type").ok(), Some("placed"));
    assert_eq!(first.get_str("event_version").ok(), Some("1.0"));
    assert_eq!(first.get_str("aggregate_id").ok(), Some("o-1"));
    assert_eq!(first.get_datetime("timestamp").map(|it| it.timestamp_millis()).ok(), Some(1_234));
    assert!(first.get_datetime("stored_at").is_ok());
    let metadata = doc! {"service_name": "api", "service_version": "2.1", "user_id": "ada", "environment": "test"};
    assert_eq!(first.get_document("metadata").ok(), Some(&metadata));
    assert_eq!(first.get_str("execution_id").ok(), Some("e-1"));
    assert_eq!(first.get_str("language").ok(), Some("python"));
    assert_eq!(first.get_i64("exit_code").ok(), Some(0));
    assert_eq!(
        first.get_document("annals").and_then(|own| own.get_document("data")).ok(),
        Some(&doc! {"metadata": 7_i64, "$a": 1_i64})
    );
    for absent in ["pod_name", "ttl_expires_at", "$a"] {
        assert!(!first.contains_key(absent), "{absent}");
    }
    assert!(!found[1].contains_key("execution_id"));
}

/// This also holds if many commits with the id come at the same time.
pub async fn of_events_with_one_id_the_first_is_shown(subject: &dyn Subject) {
    let it = Browsed::of(subject).await;
    let id = Uuid::from_u128(7);
    let aggregates: Vec<String> = (0..100).map(|n| format!("o-{n}")).collect();
    let mut commits = tokio::task::JoinSet::new();
    for aggregate in aggregates {
        let event =
            NewEvent { id: Some(id), ..NewEvent::new("placed", Data::from_value(&json!({})).expect("a document")) };
        let commit = NewCommit::new("order", aggregate).event(event).wait_until(Reached::Logged);
        let log = Arc::clone(&it.it.log);
        commits.spawn(async move { log.commit(commit).await });
    }
    assert!(commits.join_all().await.iter().all(Result::is_ok));
    it.commit(Sample { event_type: "paid", ..sample() }).await;
    let first = it.it.log.read(annals_core::LogQuery::default()).await.expect("read").events[0].clone();
    let found = documents(&it).await;
    assert_eq!(found.len(), 2);
    assert_eq!(found[0].get_str("aggregate_id").ok(), Some(&*first.commit.aggregate.id));
    assert_eq!(found[1].get_str("event_type").ok(), Some("paid"));
}

/// They also have them after a restart, and declaring them again changes nothing.
pub async fn all_indexes_have_their_names_and_options(subject: &dyn Subject) {
    let it = Browsed::of(subject).await;
    it.commit(sample()).await;
    documents(&it).await;
    let it = it.restarted().await;
    documents(&it).await;
    let collections = it.records.collections().await.expect("read");
    let found = collections.iter().find(|it| it.name == EVENTS).expect("declared");
    let language = found.indexes.iter().find_map(|index| match index {
        Index::Text(text) => Some(text.language),
        _ => None,
    });
    assert_eq!(found.indexes, browse_indexes(language.expect("one is of words")));
    let names: Vec<_> = found.indexes.iter().map(Index::name).collect();
    assert_eq!(names.len(), 17);
    assert!(names.starts_with(&[
        "event_id_1",
        "timestamp_1",
        "aggregate_id_1",
        "idx_event_type_ts",
        "idx_aggregate_ts"
    ]));
    for name in ["idx_execution_id", "idx_pod_name"] {
        assert!(found.indexes.iter().any(|index| index.name() == name && index.is_sparse()), "{name}");
    }
    let text = found.indexes.iter().find_map(Index::as_text).expect("one is of words");
    assert_eq!(text.language_override.as_deref(), Some("none"));
    assert!(matches!(text.language, TextLanguage::English | TextLanguage::None));
}

/// Reads follow the live collection.
pub async fn a_rebuild_makes_the_same_documents_in_another_collection(subject: &dyn Subject) {
    let it = Browsed::of(subject).await;
    it.commit_many("placed", 12).await;
    let before = it.browse.page(BrowseQuery::default()).await.expect("a page");
    assert_eq!(it.browse.view().await.expect("defined").collection.as_deref(), Some(EVENTS));
    it.browse.rebuild("a test".into()).await.expect("begun");
    loop {
        let page = it.browse.page(BrowseQuery::default()).await.expect("a page");
        assert_eq!((page.items, page.total), (before.items.clone(), before.total));
        let view = it.browse.view().await.expect("defined");
        if view.building.is_none() {
            assert_eq!(view.collection.as_deref(), Some("events-2"));
            break;
        }
    }
}

/// Nothing is built while the view is off. Events committed meanwhile are there once it is on.
pub async fn a_view_that_is_off_is_refused_and_comes_back_whole(subject: &dyn Subject) {
    let it = Browsed::of(subject).await;
    it.commit_many("placed", 3).await;
    assert_eq!(documents(&it).await.len(), 3);
    it.switch(Some(ViewSwitch::Off)).await;
    assert_eq!(it.browse.page(BrowseQuery::default()).await, Err(BrowseError::Off));
    assert!(it.it.host.projections(DEFAULT_TENANT).expect("declared").get(BROWSE_VIEW).await.is_err());
    it.commit(Sample { time: 9_000, ..sample() }).await;
    it.switch(Some(ViewSwitch::On)).await;
    assert_eq!(it.browse.page(BrowseQuery::default()).await.expect("a page").total, 4);
}

/// Existing ones are removed, and none is added. The log keeps them, so a rebuild brings them back. A document of other software stays,
/// because it is in no log.
pub async fn events_of_a_type_that_is_off_are_not_in_the_view(subject: &dyn Subject) {
    let it = Browsed::of(subject).await;
    it.commit_many("placed", 3).await;
    it.commit_many("ping", 2).await;
    assert_eq!(documents(&it).await.len(), 5);
    let foreign = doc! {"_id": ObjectId::from_bytes([9; 12]), "event_id": "x-1", "event_type": "ping"};
    it.records.insert(EVENTS, RawDocumentBuf::try_from(&foreign).expect("BSON")).await.expect("inserted");
    let off = |types: &[&str]| {
        let off_types = Some(types.iter().map(|it| (*it).to_owned()).collect());
        ViewBody { off_types, ..ViewBody::switched(None, "a test") }
    };
    let until = async |total: u64| {
        while it.browse.page(BrowseQuery::default()).await.expect("a page").total != total {
            crate::between_looks().await;
        }
    };
    assert_eq!(it.browse.set_view(off(&["ping", "ping"])).await.expect("set").off_types, ["ping"]);
    it.commit(Sample { event_type: "ping", ..sample() }).await;
    it.commit(Sample { time: 9_000, ..sample() }).await;
    until(5).await;
    let types: Vec<_> =
        documents(&it).await.iter().map(|it| it.get_str("event_type").map(str::to_owned).ok()).collect();
    assert_eq!(types.iter().filter(|it| it.as_deref() == Some("placed")).count(), 4);
    assert_eq!(it.browse.view().await.expect("defined").off_types, ["ping"]);
    assert_eq!(it.it.log.head().await, Ok(7), "the log keeps them");
    assert!(it.browse.set_view(off(&[])).await.expect("set").off_types.is_empty());
    it.commit(Sample { event_type: "ping", ..sample() }).await;
    until(6).await;
    it.browse.rebuild("a test".into()).await.expect("begun");
    until(8).await;
}

/// The document is shown as it is, and everything else works.
pub async fn a_damaged_document_breaks_no_page(subject: &dyn Subject) {
    let it = Browsed::of(subject).await;
    it.commit_many("placed", 3).await;
    documents(&it).await;
    let foreign =
        doc! {"_id": ObjectId::from_bytes([9; 12]), "event_id": "x-1", "event_type": 7, "timestamp": "yesterday"};
    it.records.insert(EVENTS, RawDocumentBuf::try_from(&foreign).expect("BSON")).await.expect("inserted");
    let damaged = doc! {"_id": browse_id(1), "event_id": "x-2"};
    let damaged = annals_core::RecordChange::put(EVENTS, RawDocumentBuf::try_from(&damaged).expect("BSON"));
    it.records.write(vec![damaged]).await.expect("replaced");
    let page = it.browse.page(BrowseQuery::default()).await.expect("a page");
    assert_eq!((page.items.len(), page.total), (4, 4));
    let wrong: Vec<_> = page.items.iter().filter_map(|item| item["damaged"].as_str()).collect();
    assert_eq!(wrong.len(), 2, "{:?}", page.items);
    let found = it.browse.event("x-1").await.expect("found");
    assert_eq!(found.event["document"]["event_type"], 7);
    it.browse.statistics(Default::default()).await.expect("counted");
    let of_order = ReplayFilter { aggregate_id: Some("o-0".to_owned()), ..ReplayFilter::default() };
    let found = it.records.count(EVENTS, &Condition::and([of_order.condition()])).await.expect("counted");
    assert_eq!(found, 1);
}
