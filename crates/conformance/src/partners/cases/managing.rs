//! Definitions, queries, and the record itself.

use std::sync::Arc;

use annals_core::bson::{Bson, Document};
use annals_core::partners::{
    EventStatus, EventsQuery, PARTNERS, PartnerArchive, PartnerDefinition, PartnerError, PartnerEventRecord,
    PartnerEventView,
};
use annals_core::{Code, Condition, Expected, Record, RecordChange, RecordQuery, RecordType};

use crate::Subject;
use crate::partners::words::{Exchange, P, Reply, Scripted, are, placed_to, reason, secret};
use crate::rival::Rival;
use crate::tap::TappedStore;

/// Behaviour statement 107: the date has the type by which stores expire records. The suite of records shows that such records are
/// removed.
pub async fn statement_107_an_event_that_succeeded_gets_a_date_to_expire_and_one_that_failed_stays(
    subject: &dyn Subject,
) {
    let exchange = Exchange::of(subject).await;
    exchange.define(PartnerDefinition { retention_days: Some(30), ..placed_to(P) }).await;
    exchange.scripted.script([crate::partners::words::Reply::Status(404)]);
    exchange.commit("a").await;
    let failed = exchange.until(|events| are(events, EventStatus::Failed)).await;
    assert_eq!(failed[0].expire_at, None);
    exchange.commit("b").await;
    exchange.until(|events| events.iter().any(|event| event.event_status == EventStatus::Success)).await;
    let success = EventsQuery { status: Some(EventStatus::Success), ..EventsQuery::default() };
    let success = exchange.query(success).await;
    assert_eq!(success[0].expire_at, Some(exchange.it.now_plus(30 * 24 * 60 * 60 * 1_000)));
    let dated = RecordQuery::new("partner_events").matching(Condition::exists("expire_at"));
    let page = exchange.records.find(dated).await.expect("found");
    assert_eq!(page.records.len(), 1);
    assert!(page.records[0].document.get_datetime("expire_at").is_ok(), "it is a date");
}

/// INVARIANT: the copy and the date are one write. An event without a copy has no date.
pub async fn an_event_gets_a_date_of_expiry_once_the_archive_holds_its_copy(subject: &dyn Subject) {
    let exchange = Exchange::of(subject).await;
    let archive = PartnerArchive::Collection;
    exchange.define(PartnerDefinition { retention_days: Some(30), archive, ..placed_to(P) }).await;
    exchange.scripted.script([crate::partners::words::Reply::Status(404)]);
    exchange.commit("a").await;
    let failed = exchange.until(|events| are(events, EventStatus::Failed)).await;
    let archived = async || {
        let found = exchange.records.find(RecordQuery::new("partner_events_archive")).await.expect("found");
        let texts = found.records.iter().map(|it| {
            assert!(
                it.document.get_datetime("archived_at").is_ok() && matches!(it.document.get("expire_at"), Ok(None))
            );
            it.document.get_str("event_status").expect("a status").to_owned()
        });
        texts.collect::<Vec<_>>()
    };
    assert_eq!((failed[0].expire_at, archived().await), (None, Vec::new()));
    exchange.commit("b").await;
    exchange.until(|events| events.iter().any(|event| event.event_status == EventStatus::Success)).await;
    assert_eq!(archived().await, ["SUCCESS"]);
    let cancelled = exchange.partners.cancel(&failed[0].id, reason()).await.expect("cancelled");
    assert!(cancelled.expire_at.is_some());
    let mut all = archived().await;
    all.sort_unstable();
    assert_eq!(all, ["FAILED", "SUCCESS"]);
    let views = exchange.all().await;
    assert!(views.iter().all(|event| event.expire_at.is_some()), "{views:?}");
}

/// Returns the ids of the events that have a copy. A copy does not expire.
async fn copied(exchange: &Exchange) -> Vec<String> {
    let found = exchange.records.find(RecordQuery::new("partner_events_archive")).await.expect("found");
    let id = |it: &Record| {
        assert!(matches!(it.document.get("expire_at"), Ok(None)), "a copy does not expire");
        it.document.get_object_id("_id").expect("an id").to_hex()
    };
    found.records.iter().map(id).collect()
}

fn archived(archive: PartnerArchive) -> PartnerDefinition {
    PartnerDefinition { retention_days: Some(30), archive, ..placed_to(P) }
}

/// Nothing expires before the archive has a copy, whenever the archive is configured.
pub async fn events_that_were_final_before_the_archive_was_configured_get_their_copies(subject: &dyn Subject) {
    let exchange = Exchange::of(subject).await;
    exchange.define(archived(PartnerArchive::None)).await;
    for id in ["a", "b", "c"] {
        exchange.commit(id).await;
    }
    let dated = |events: &[PartnerEventView]| events.len() == 3 && events.iter().all(|it| it.expire_at.is_some());
    let mut final_before: Vec<_> = exchange.until(dated).await.into_iter().map(|event| event.id).collect();
    assert!(copied(&exchange).await.is_empty());
    exchange.partners.put(archived(PartnerArchive::Collection)).await.expect("changed");
    while copied(&exchange).await.len() < 3 {
        crate::between_looks().await;
    }
    let mut copies = copied(&exchange).await;
    copies.sort_unstable();
    final_before.sort_unstable();
    assert_eq!(copies, final_before);
    assert!(dated(&exchange.all().await), "their dates stay");
    // An event that ended while nothing was archived gets its copy as well.
    exchange.partners.put(archived(PartnerArchive::None)).await.expect("changed");
    exchange.commit("d").await;
    exchange.until(|events| events.len() == 4 && events.iter().all(|it| it.expire_at.is_some())).await;
    exchange.partners.put(archived(PartnerArchive::Collection)).await.expect("changed");
    while copied(&exchange).await.len() < 4 {
        crate::between_looks().await;
    }
}

/// Its attempt began under the previous definition.
pub async fn an_event_that_is_being_sent_when_the_archive_is_configured_gets_its_copy(subject: &dyn Subject) {
    let exchange = Exchange::of(subject).await;
    exchange.define(archived(PartnerArchive::None)).await;
    exchange.scripted.script([Reply::Held]);
    exchange.commit("a").await;
    exchange.scripted.has_got(1).await;
    exchange.partners.put(archived(PartnerArchive::Collection)).await.expect("changed");
    exchange.scripted.let_go();
    // The date comes with the copy, which may be a batch later than the end.
    let dated = |events: &[PartnerEventView]| are(events, EventStatus::Success) && events[0].expire_at.is_some();
    let events = exchange.in_time(dated).await;
    assert_eq!(copied(&exchange).await, [events[0].id.clone()]);
}

/// The fields have the types that other software expects.
pub async fn the_record_has_the_fields_of_its_layout_and_no_others(subject: &dyn Subject) {
    let exchange = Exchange::with_partner(subject).await;
    exchange.commit("a").await;
    exchange.until(|events| are(events, EventStatus::Success)).await;
    let page = exchange.records.find(RecordQuery::new("partner_events")).await.expect("found");
    let document = Document::try_from(&*page.records[0].document).expect("a document");
    let fields: Vec<_> = document.keys().map(String::as_str).collect();
    let due = [
        "_id",
        "event_day_id",
        "event_version",
        "event_type",
        "event_status",
        "event_direction",
        "entity_metadata",
        "entity_data",
        "created",
        "createdBy",
        "lastUpdatedTime",
    ];
    assert_eq!(fields, due);
    assert!(matches!(document.get("_id"), Some(Bson::ObjectId(_))));
    assert!(matches!(document.get("event_day_id"), Some(Bson::Int32(_))));
    assert!(document.get_str("created").is_ok_and(|millis| millis.len() == 13));
    let metadata = document.get_document("entity_metadata").expect("metadata");
    let fields: Vec<_> = metadata.keys().map(String::as_str).collect();
    assert_eq!(fields, ["partnerId", "partnerName", "entity_id", "entity_type", "resilienceAttemptCount"]);
    let attempts = metadata.get_document("resilienceAttemptCount").expect("attempts");
    assert!(attempts.get_str("1").is_ok_and(|millis| millis.len() == 13));
    let declared = exchange.records.collections().await.expect("declared");
    let events = declared.into_iter().find(|it| it.name == "partner_events").expect("declared");
    assert_eq!(events.indexes, PartnerEventRecord::indexes());
}

/// Neither answers nor records contain them.
pub async fn secrets_are_never_shown(subject: &dyn Subject) {
    let exchange = Exchange::with_partner(subject).await;
    let (shown, raw) = (secret(1).reveal(), [1; 24]);
    let status = exchange.partners.get(P).await.expect("defined");
    assert_eq!(status.definition["secrets"], 1);
    assert!(!serde_json::to_string(&status).expect("writes").contains(&shown));
    for collection in ["annals-partners", "annals-partner-secrets"] {
        for record in exchange.records.find(RecordQuery::new(collection)).await.expect("found").records {
            let bytes = record.document.as_bytes();
            assert!(
                !bytes.windows(24).any(|window| window == raw)
                    && !bytes.windows(16).any(|it| it == &shown.as_bytes()[..16])
            );
        }
    }
    assert!(annals_core::is_secret_collection("annals-partner-secrets"));
}

/// Lists have pages. A deleted partner is gone, and can be defined again.
pub async fn partners_are_defined_changed_listed_and_deleted(subject: &dyn Subject) {
    let exchange = Exchange::of(subject).await;
    let partners = &exchange.partners;
    assert!(partners.list(None, 10).await.expect("listed").items.is_empty());
    for id in ["q", "p", "r"] {
        exchange.define(placed_to(id)).await;
    }
    let page = partners.list(None, 2).await.expect("listed");
    assert_eq!((page.items.len(), page.cursor.as_deref()), (2, Some("q")));
    let rest = partners.list(page.cursor.as_deref(), 2).await.expect("listed");
    assert_eq!((rest.items[0].partner.as_str(), rest.cursor), ("r", None));
    let renamed = PartnerDefinition { name: "Other".into(), secrets: None, ..placed_to(P) };
    assert!(!partners.put(renamed).await.expect("changed"));
    let status = partners.get(P).await.expect("defined");
    assert_eq!((&status.definition["name"], &status.definition["secrets"]), (&"Other".into(), &1.into()));
    partners.delete(P, reason()).await.expect("deleted");
    assert_eq!(partners.get(P).await.expect_err("gone"), PartnerError::Unknown(P.to_owned()));
    exchange.define(placed_to(P)).await;
    exchange.commit("a").await;
    exchange.until(|events| are(events, EventStatus::Success)).await;
}

/// The change comes between the reading of the definition and the write.
pub async fn a_partner_that_is_paused_keeps_what_others_change_meanwhile(subject: &dyn Subject) {
    let rival = Rival::of(PARTNERS);
    let store = Arc::new(TappedStore::new(subject.open().await).with_records(&rival));
    let exchange = Exchange::on(store, subject.clock(), Scripted::new());
    exchange.define(placed_to(P)).await;
    let renamed = PartnerDefinition { name: "Other".into(), ..placed_to(P) };
    let put = RecordChange::set_if(PARTNERS, P, [("definition", renamed.shown().into())], Expected::Present);
    rival.will(put);
    let status = exchange.partners.switch(P, true, reason()).await.expect("paused");
    assert!(rival.is_done());
    assert_eq!((&status.definition["name"], &status.definition["paused"]), (&"Other".into(), &true.into()));
    // Retries are bounded.
    for n in 0..100 {
        let renamed = PartnerDefinition { name: format!("Other {n}").into(), paused: true, ..placed_to(P) };
        let put = RecordChange::set_if(PARTNERS, P, [("definition", renamed.shown().into())], Expected::Present);
        rival.will(put);
    }
    let refused = exchange.partners.switch(P, false, reason()).await.expect_err("others are faster");
    assert!(refused.to_string().contains("retry"), "{refused}");
}

/// The error names the wrong setting.
pub async fn a_partner_that_cannot_work_is_refused(subject: &dyn Subject) {
    let exchange = Exchange::of(subject).await;
    for (definition, path) in [
        (PartnerDefinition { secrets: None, ..placed_to(P) }, "secrets"),
        (placed_to(P).sends("https://10.0.0.1/", Condition::All), "url"),
        (placed_to(P).secrets(["short"]), "secrets[0]"),
    ] {
        match exchange.partners.put(definition).await.expect_err(path) {
            PartnerError::Invalid(invalid) => assert_eq!((invalid.code, &*invalid.path), (Code::InvalidPartner, path)),
            other => panic!("{other}"),
        }
    }
}
