//! How long events are kept, and what happens before they are deleted.

use std::sync::Arc;

use annals_core::archive::{ArchiveError, ArchiveTarget, HoldBody, RetentionBody, RuleKind};
use annals_core::browse::EVENTS;
use annals_core::bson::{DateTime, Document, RawDocumentBuf, doc, oid::ObjectId};
use annals_core::handlers::ACTS;
use annals_core::types::TypeDefinition;
use annals_core::{Clock, Code, DEFAULT_TENANT, Store};
use annals_runtime::HostOptions;
use annals_runtime::types::TypedStore;
use serde_json::json;

use crate::Subject;
use crate::archive::opened::{Archived, days_of, is_there};
use crate::browse::opened::of_type;

/// The date is `stored_at` plus the days of the rule.
pub async fn without_an_archive_the_expiry_date_is_written_with_the_event(subject: &dyn Subject) {
    let it = Archived::of(subject).await;
    it.rule("placed", 30, ArchiveTarget::None).await;
    let (placed, paid) = (it.commit("placed").await, it.commit("paid").await);
    assert_eq!(days_of(&it.in_view(&placed).await.expect("in the view")), Some(30));
    assert_eq!(days_of(&it.in_view(&paid).await.expect("in the view")), None);
}

/// P9: every field is in the copy, and the date and the copy are one batch.
pub async fn with_an_archive_the_expiry_date_is_written_with_the_copy_and_not_before(subject: &dyn Subject) {
    let it = Archived::of(subject).await;
    it.rule("placed", 30, ArchiveTarget::Collection).await;
    let (id, other) = (it.commit("placed").await, it.commit("paid").await);
    let before = it.in_view(&id).await.expect("in the view");
    assert!(!is_there(&before, "ttl_expires_at"));
    it.pass_days(29);
    it.settled().await;
    assert!(it.archived().await.is_empty());
    it.pass_days(2);
    assert_eq!(it.until(|status| status.archived == 1).await.waiting, 0);
    let archived = it.archived().await;
    assert_eq!(archived.len(), 1);
    let copy = &archived[0];
    for (name, value) in before.iter().filter(|(name, _)| !["annals", "_annals", "deleted_by"].contains(&name.as_str()))
    {
        assert_eq!(copy.get(name), Some(value), "{name}");
    }
    // A field of the event with the name of one of the archive's own is kept beside it.
    assert_eq!(copy.get_str("deleted_by").ok(), Some("annals"));
    let beside = copy.get_document("annals").and_then(|own| own.get_document("beside")).expect("kept");
    assert_eq!(beside, &doc! {"deleted_by": "ada"});
    assert_eq!(copy.get_str("deletion_reason").ok(), Some("retention"));
    assert!(copy.get_datetime("deleted_at").is_ok());
    // It expires now, or has already expired.
    if let Some(after) = it.in_view(&id).await {
        assert_eq!(days_of(&after), Some(30));
    }
    assert!(!is_there(&it.in_view(&other).await.expect("in the view"), "ttl_expires_at"));
}

/// The retention becomes longer, shorter, and unlimited.
pub async fn a_changed_retention_applies_to_existing_events(subject: &dyn Subject) {
    let it = Archived::of(subject).await;
    let id = it.commit("placed").await;
    for days in [10, 40] {
        it.rule("placed", days, ArchiveTarget::None).await;
        it.settled().await;
        assert_eq!(days_of(&it.in_view(&id).await.expect("in the view")), Some(days.into()));
    }
    // An event that has no copy loses its date before the request is answered.
    it.rule("placed", 5, ArchiveTarget::Collection).await;
    assert_eq!(days_of(&it.in_view(&id).await.expect("in the view")), None);
    it.archive.put_rule("placed", RetentionBody::new(None, ArchiveTarget::None)).await.expect("set");
    it.settled().await;
    assert_eq!(days_of(&it.in_view(&id).await.expect("in the view")), None);
}

/// Types without a category belong to the default one.
pub async fn a_rule_of_a_type_comes_before_that_of_its_category(subject: &dyn Subject) {
    let it = Archived::of(subject).await;
    it.rule("default", 20, ArchiveTarget::Collection).await;
    it.rule("placed", 50, ArchiveTarget::Collection).await;
    it.commit("placed").await;
    it.commit("paid").await;
    it.pass_days(21);
    it.until(|status| status.archived == 1).await;
    let archived = it.archived().await;
    assert_eq!(archived[0].get_str("event_type").ok(), Some("paid"));
    let rules = it.archive.rules(None, 10).await.expect("listed").items;
    assert_eq!(rules.iter().map(|it| it.kind).collect::<Vec<_>>(), [RuleKind::Category, RuleKind::Type]);
}

/// This includes a type that is registered after the rule was set, with its events that are already in the view.
pub async fn a_rule_of_a_category_applies_to_the_types_that_are_registered_in_it(subject: &dyn Subject) {
    let store: Arc<dyn Store> = Arc::new(TypedStore::new(subject.open().await, subject.clock()));
    let it = Archived::on(store, subject.clock(), HostOptions::default()).await;
    let types = it.it.it.store.event_types(DEFAULT_TENANT).expect("declared");
    let register = async |name: &str| {
        let definition = TypeDefinition::new(name, json!({"type": "object"})).category("pod");
        types.put(definition).await.expect("registered");
    };
    register("pod_created").await;
    it.rule("pod", 10, ArchiveTarget::Collection).await;
    for event_type in ["pod_created", "pod_failed", "placed"] {
        it.commit(event_type).await;
    }
    it.pass_days(11);
    it.until(|status| status.archived == 1).await;
    assert_eq!(it.archived().await[0].get_str("event_type").ok(), Some("pod_created"));
    register("pod_failed").await;
    it.pass_days(1);
    it.until(|status| status.archived == 2).await;
    let archived = it.archived().await;
    assert!(archived.iter().all(|it| it.get_str("event_type").is_ok_and(|it| it.starts_with("pod_"))), "{archived:?}");
}

/// The dry run counts what the view holds now.
pub async fn a_dry_run_counts_and_changes_nothing(subject: &dyn Subject) {
    let it = Archived::of(subject).await;
    for _ in 0..3 {
        it.commit("placed").await;
    }
    it.pass_days(10);
    it.commit("placed").await;
    let body = RetentionBody { dry_run: true, ..RetentionBody::new(Some(5), ArchiveTarget::Collection) };
    let put = it.archive.put_rule("placed", body).await.expect("counted");
    assert_eq!((put.due, put.created), (Some(3), true));
    assert!(it.archive.rules(None, 10).await.expect("listed").items.is_empty());
    let wrong = RetentionBody::new(Some(0), ArchiveTarget::None);
    let refused = it.archive.put_rule("placed", wrong).await.expect_err("refused");
    assert_eq!(refused.code(), Code::InvalidBody);
}

/// A replay of the log into the view also brings events that are older than their retention, which are archived already.
pub async fn a_rebuild_brings_archived_events_back_and_archives_none_twice(subject: &dyn Subject) {
    let it = Archived::of(subject).await;
    it.rule("placed", 30, ArchiveTarget::Collection).await;
    for _ in 0..3 {
        it.commit("placed").await;
    }
    it.pass_days(31);
    it.until(|status| status.archived == 3).await;
    let before = it.archived().await;
    it.it.browse.rebuild("a test".into()).await.expect("begun");
    // They are found in the archive, and may expire again.
    it.until(|status| status.archived == 6).await;
    assert_eq!(it.archived().await, before);
}

/// The clock jumps a year ahead, and back.
pub async fn a_clock_that_jumps_archives_no_event_twice_and_loses_none(subject: &dyn Subject) {
    let it = Archived::of(subject).await;
    it.rule("placed", 30, ArchiveTarget::Collection).await;
    it.commit("placed").await;
    it.pass_days(365);
    it.until(|status| status.archived == 1).await;
    it.pass_days(-365);
    let id = it.commit("placed").await;
    assert_eq!(it.archived().await.len(), 1);
    assert!(!is_there(&it.in_view(&id).await.expect("in the view"), "ttl_expires_at"));
    // The task looks again although the clock has not reached the previous time.
    it.pass_days(31);
    it.until(|status| status.archived == 2).await;
    assert_eq!(it.archived().await.len(), 2);
}

/// This includes missing and wrong fields.
pub async fn a_document_of_other_software_is_archived_as_it_is_and_breaks_nothing(subject: &dyn Subject) {
    let it = Archived::of(subject).await;
    let own = it.commit("placed").await;
    let now = DateTime::from_millis(it.it.it.clock.now().as_millis());
    let whole = doc! {
        "_id": ObjectId::from_bytes([9; 12]), "event_id": "x-1", "event_type": "placed", "timestamp": now, "stored_at": now,
        "small": 1_i32, "metadata": {"user_id": "eve"},
    };
    let broken =
        doc! {"_id": ObjectId::from_bytes([8; 12]), "event_id": "x-2", "event_type": 7, "timestamp": "yesterday"};
    let odd = doc! {
        "_id": ObjectId::from_bytes([7; 12]), "event_id": "x-3", "event_type": "placed", "timestamp": now, "stored_at": now,
        "annals": "mine",
    };
    for document in [&whole, &broken, &odd] {
        it.it.records.insert(EVENTS, RawDocumentBuf::try_from(document).expect("BSON")).await.expect("inserted");
    }
    it.rule("placed", 30, ArchiveTarget::Collection).await;
    it.pass_days(31);
    it.until(|status| status.archived == 2).await;
    let archived = it.archived().await;
    let copy = archived.iter().find(|it| it.get_str("event_id").ok() == Some("x-1")).expect("archived");
    assert_eq!(copy.get_i32("small").ok(), Some(1));
    assert!(archived.iter().any(|it| it.get_str("event_id").ok() == Some(&own)));
    for left in ["x-2", "x-3"] {
        assert!(!is_there(&it.in_view(left).await.expect("in the view"), "ttl_expires_at"), "{left}");
    }
}

/// Removing a rule that does not exist is refused.
pub async fn rules_are_listed_and_removed(subject: &dyn Subject) {
    let it = Archived::of(subject).await;
    for name in ["b", "a", "c"] {
        it.rule(name, 30, ArchiveTarget::None).await;
    }
    let page = it.archive.rules(None, 2).await.expect("listed");
    assert_eq!(page.items.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(page.default.ttl_days, None);
    let next = it.archive.rules(page.cursor.as_deref(), 2).await.expect("listed");
    assert_eq!((next.items.len(), next.cursor), (1, None));
    it.archive.remove_rule("b", "a test".into()).await.expect("removed");
    let again = it.archive.remove_rule("b", "a test".into()).await;
    assert_eq!(again, Err(ArchiveError::UnknownRule("b".to_owned())));
}

/// The reason is kept beside the audit log, in the batch that removes the rule or hold.
pub async fn a_removed_rule_or_hold_leaves_its_reason(subject: &dyn Subject) {
    let it = Archived::of(subject).await;
    it.rule("placed", 30, ArchiveTarget::None).await;
    it.archive.put_hold("court", HoldBody::new(of_type("placed"))).await.expect("set");
    it.archive.remove_rule("placed", "kept elsewhere".into()).await.expect("removed");
    it.pass_days(1);
    it.archive.remove_hold("court", "closed".into()).await.expect("removed");
    it.archive.remove_hold("court", "again".into()).await.expect_err("it is gone");
    let mut acts = it.documents(ACTS).await;
    acts.sort_by_key(|act| act.get_str("_id").unwrap_or_default().to_owned());
    let told = |act: &Document| ["processor", "act", "reason"].map(|it| act.get_str(it).unwrap_or("-").to_owned());
    let told: Vec<_> = acts.iter().map(told).collect();
    assert_eq!(told, [["retention/placed", "delete", "kept elsewhere"], ["hold/court", "delete", "closed"]]);
}
