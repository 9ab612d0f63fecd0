//! Events that must not be deleted.

use std::sync::Arc;

use annals_core::archive::{ArchiveError, ArchiveTarget, HOLD_PARTS_MAX, HoldBody, HoldRecord, hold_parts};
use annals_core::browse::{BrowseError, EVENTS, ReplayFilter, ViewBody, ViewRecord, ViewSwitch};
use annals_core::bson::{DateTime, RawDocumentBuf, doc, oid::ObjectId};
use annals_core::{Clock, Code, Condition, Expected, RecordChange, TypedRecords};

use crate::Subject;
use crate::archive::opened::{Archived, DAY, date, days_of, is_there};
use crate::browse::opened::of_type;

/// Returns a hold on the events of a type.
fn on_type(event_type: &str) -> HoldBody {
    HoldBody::new(of_type(event_type))
}

/// Other events are not affected.
pub async fn a_hold_keeps_events_from_expiring_being_archived_and_being_deleted(subject: &dyn Subject) {
    let it = Archived::of(subject).await;
    it.rule("placed", 30, ArchiveTarget::Collection).await;
    let (held, other) = (it.commit("placed").await, it.commit("placed").await);
    let body = HoldBody::new(ReplayFilter { event_ids: Some(vec![held.clone()]), ..ReplayFilter::default() });
    let (hold, created) = it.archive.put_hold("court", body).await.expect("set");
    assert!(hold.in_force && created);
    let refused = it.archive.delete(&held, "a test".into()).await.expect_err("held");
    assert_eq!(refused.code(), Code::StateConflict);
    assert!(refused.to_string().contains("court"), "{refused}");
    it.pass_days(31);
    it.until(|status| status.archived == 1).await;
    let archived = it.archived().await;
    assert_eq!(archived[0].get_str("event_id").ok(), Some(&*other));
    assert!(!is_there(&it.in_view(&held).await.expect("in the view"), "ttl_expires_at"));
    it.archive.remove_hold("court", "closed".into()).await.expect("removed");
    it.until(|status| status.archived == 2).await;
    assert_eq!(it.archive.hold("court").await, Err(ArchiveError::UnknownHold("court".to_owned())));
}

/// The restored dates are the same.
pub async fn a_hold_takes_expiry_dates_and_its_end_gives_them_back(subject: &dyn Subject) {
    let it = Archived::of(subject).await;
    it.rule("placed", 30, ArchiveTarget::None).await;
    let id = it.commit("placed").await;
    assert_eq!(days_of(&it.in_view(&id).await.expect("in the view")), Some(30));
    assert!(it.archive.put_hold("court", on_type("placed")).await.expect("set").0.in_force);
    assert_eq!(days_of(&it.in_view(&id).await.expect("in the view")), None);
    let listed = it.archive.holds(None, 10).await.expect("listed");
    assert_eq!((listed.items.len(), listed.items[0].in_force), (1, true));
    it.archive.remove_hold("court", "closed".into()).await.expect("removed");
    it.settled().await;
    assert_eq!(days_of(&it.in_view(&id).await.expect("in the view")), Some(30));
}

/// The view follows the log while the hold is set.
pub async fn events_that_come_later_are_held_as_well(subject: &dyn Subject) {
    let it = Archived::of(subject).await;
    it.rule("placed", 30, ArchiveTarget::None).await;
    it.commit("placed").await;
    it.archive.put_hold("court", on_type("placed")).await.expect("set");
    let id = it.commit("placed").await;
    assert_eq!(days_of(&it.in_view(&id).await.expect("in the view")), None);
}

/// Each event is either gone with a copy in the archive, or is held.
pub async fn a_hold_that_is_set_while_events_are_deleted_protects_what_is_left(subject: &dyn Subject) {
    let it = Archived::of(subject).await;
    let mut ids = Vec::new();
    for _ in 0..8 {
        ids.push(it.commit("placed").await);
    }
    let deletions = async {
        let mut deleted = 0;
        for id in &ids {
            match it.archive.delete(id, "a test".into()).await {
                Ok(_) => deleted += 1,
                Err(error) => assert_eq!(error.code(), Code::StateConflict, "{error}"),
            }
        }
        deleted
    };
    let hold = async {
        while it.archived().await.len() < 2 {
            crate::between_looks().await;
        }
        it.archive.put_hold("court", on_type("placed")).await.expect("set");
        it.look().await
    };
    let (deleted, left) = tokio::join!(deletions, hold);
    assert_eq!((left, it.archived().await.len() as u64), (8 - deleted, deleted));
    assert_eq!(it.look().await, left, "nothing was deleted after the hold was in force");
}

/// The hold comes between the read of due events and the write that archives them. The write is refused, and the next one leaves the held
/// event out.
pub async fn a_hold_that_is_set_while_events_are_archived_protects_what_it_selects(subject: &dyn Subject) {
    let (it, rival) = Archived::contested(subject).await;
    it.rule("placed", 30, ArchiveTarget::Collection).await;
    let (held, other) = (it.commit("placed").await, it.commit("placed").await);
    // The view may have been built after the keeper's last look.
    it.pass_days(1);
    it.settled().await;
    let typed = TypedRecords::<ViewRecord>::declared(Arc::clone(&it.it.records));
    let mut record = typed.get(ViewRecord::ID).await.expect("read").expect("there is a rule").value;
    let filter = ReplayFilter { event_ids: Some(vec![held.clone()]), ..ReplayFilter::default() };
    let (name, at) = ("court".to_owned(), DateTime::from_millis(0));
    record.holds.push(HoldRecord { name, filter, reason: None, by: None, at });
    record.version += 1;
    rival.will(TypedRecords::replacement(&record, Expected::Present).expect("a document"));
    it.pass_days(31);
    it.until(|status| status.archived == 1).await;
    assert!(rival.is_done());
    let archived = it.archived().await;
    assert_eq!((archived.len(), archived[0].get_str("event_id").ok()), (1, Some(&*other)));
    assert!(!is_there(&it.in_view(&held).await.expect("in the view"), "ttl_expires_at"));
    it.archive.remove_hold("court", "closed".into()).await.expect("removed");
    it.until(|status| status.archived == 2).await;
}

/// The document has its own date again after the hold.
pub async fn a_held_document_of_other_software_keeps_its_own_expiry_date(subject: &dyn Subject) {
    let it = Archived::of(subject).await;
    it.commit("paid").await;
    let now = it.it.it.clock.now().as_millis();
    let foreign = doc! {
        "_id": ObjectId::from_bytes([9; 12]), "event_id": "x-1", "event_type": "placed",
        "timestamp": DateTime::from_millis(now), "ttl_expires_at": DateTime::from_millis(now + DAY),
    };
    it.it.records.insert(EVENTS, RawDocumentBuf::try_from(&foreign).expect("BSON")).await.expect("inserted");
    it.archive.put_hold("court", on_type("placed")).await.expect("set");
    assert!(!is_there(&it.in_view("x-1").await.expect("in the view"), "ttl_expires_at"));
    it.archive.remove_hold("court", "closed".into()).await.expect("removed");
    it.settled().await;
    let after = it.in_view("x-1").await.expect("in the view");
    assert_eq!((date(&after, "ttl_expires_at"), is_there(&after, "annals_expires")), (Some(now + DAY), false));
}

/// There are more documents than are changed together, and several have the same time.
pub async fn a_hold_is_in_force_when_it_has_taken_the_dates_of_many_documents(subject: &dyn Subject) {
    let it = Archived::of(subject).await;
    it.commit("paid").await;
    let now = it.it.it.clock.now().as_millis();
    let foreign = |n: u32| {
        let mut id = [9; 12];
        id[8..].copy_from_slice(&n.to_be_bytes());
        let document = doc! {
            "_id": ObjectId::from_bytes(id), "event_id": format!("x-{n}"), "event_type": "placed",
            "timestamp": DateTime::from_millis(now + i64::from(n / 3)),
            "ttl_expires_at": DateTime::from_millis(now + 10_000 * DAY),
        };
        RecordChange::insert(EVENTS, RawDocumentBuf::try_from(&document).expect("BSON"))
    };
    it.it.records.write((0..1_100).map(foreign).collect()).await.expect("inserted");
    let hold = it.archive.put_hold("court", on_type("placed")).await.expect("set").0;
    let left = it.it.records.count(EVENTS, &Condition::exists("ttl_expires_at")).await.expect("counted");
    assert_eq!((hold.in_force, left), (true, 0));
}

/// Setting and lifting a hold reread a document that has changed.
pub async fn a_document_that_changes_meanwhile_keeps_the_change_when_its_expiry_date_is_set(subject: &dyn Subject) {
    let (it, rival) = Archived::contested(subject).await;
    it.commit("paid").await;
    let now = it.it.it.clock.now().as_millis();
    let id = ObjectId::from_bytes([9; 12]);
    let foreign = doc! {
        "_id": id, "event_id": "x-1", "event_type": "placed", "timestamp": DateTime::from_millis(now),
        "ttl_expires_at": DateTime::from_millis(now + DAY),
    };
    it.it.records.insert(EVENTS, RawDocumentBuf::try_from(&foreign).expect("BSON")).await.expect("inserted");
    let later = |field: &'static str, days: i64| {
        let at = DateTime::from_millis(now + days * DAY);
        RecordChange::set_if(EVENTS, id, [(field, at.into())], Expected::Present)
    };
    rival.will(later("ttl_expires_at", 2));
    assert!(it.archive.put_hold("court", on_type("placed")).await.expect("set").0.in_force);
    let held = it.in_view("x-1").await.expect("in the view");
    assert_eq!((date(&held, "annals_expires"), is_there(&held, "ttl_expires_at")), (Some(now + 2 * DAY), false));
    it.settled().await;
    rival.will(later("annals_expires", 3));
    it.archive.remove_hold("court", "closed".into()).await.expect("removed");
    it.settled().await;
    let after = it.in_view("x-1").await.expect("in the view");
    assert_eq!((date(&after, "ttl_expires_at"), is_there(&after, "annals_expires")), (Some(now + 3 * DAY), false));
    assert!(rival.is_done());
}

/// A filter with only excluded types selects nothing in particular, and is refused.
pub async fn a_hold_selects_something_in_particular(subject: &dyn Subject) {
    let it = Archived::of(subject).await;
    let excluding = ReplayFilter { exclude_event_types: Some(vec!["placed".to_owned()]), ..ReplayFilter::default() };
    for filter in [ReplayFilter::default(), excluding] {
        let refused = it.archive.put_hold("court", HoldBody::new(filter)).await.expect_err("refused");
        assert_eq!(refused.code(), Code::InvalidBody);
    }
    let refused = it.archive.put_hold("no name", on_type("placed")).await.expect_err("refused");
    assert_eq!(refused.code(), Code::InvalidName);
}

/// Switching the view off would remove its documents.
pub async fn a_view_with_a_hold_is_not_switched_off(subject: &dyn Subject) {
    let it = Archived::of(subject).await;
    it.commit("placed").await;
    it.archive.put_hold("court", on_type("placed")).await.expect("set");
    let off = ViewBody::switched(Some(ViewSwitch::Off), "a test");
    let refused = it.it.browse.set_view(off.clone()).await;
    assert!(matches!(refused, Err(BrowseError::NotAllowed { .. })), "{refused:?}");
    let without = ViewBody { off_types: Some(vec!["placed".to_owned()]), ..ViewBody::switched(None, "a test") };
    let refused = it.it.browse.set_view(without.clone()).await;
    assert!(matches!(refused, Err(BrowseError::NotAllowed { .. })), "{refused:?}");
    assert_eq!(it.look().await, 1);
    it.archive.remove_hold("court", "closed".into()).await.expect("removed");
    assert_eq!(it.it.browse.set_view(without).await.expect("left out").off_types, ["placed"]);
    it.it.browse.set_view(off).await.expect("switched off");
}

/// All holds form one condition of limited size. Archiving continues at that limit.
pub async fn a_hold_that_is_one_too_many_is_refused_and_archiving_goes_on(subject: &dyn Subject) {
    let it = Archived::of(subject).await;
    it.rule("placed", 30, ArchiveTarget::Collection).await;
    it.commit("placed").await;
    let hold = |name: String| HoldRecord {
        name,
        filter: ReplayFilter { aggregate_id: Some("x".to_owned()), user_id: Some("eve".to_owned()), ..of_type("x") },
        reason: None,
        by: None,
        at: DateTime::from_millis(0),
    };
    // The settings after many requests.
    let typed = TypedRecords::<ViewRecord>::declared(Arc::clone(&it.it.records));
    let found = typed.get(ViewRecord::ID).await.expect("read").expect("there is a rule");
    let mut record = found.value;
    record.holds.extend((0..HOLD_PARTS_MAX / 4).map(|n| hold(format!("case-{n:04}"))));
    let spare = HOLD_PARTS_MAX - hold_parts(&record.holds);
    record.version += 1;
    typed.replace_if(&record, Expected::Revision(found.revision)).await.expect("written");
    let put = async |name: &str, filter: ReplayFilter| it.archive.put_hold(name, HoldBody::new(filter)).await;
    for n in 0..spare {
        put(&format!("small-{n}"), of_type("x")).await.expect("it fits");
    }
    let refused = put("court", of_type("x")).await.expect_err("one too many");
    assert_eq!(refused.code(), Code::InvalidBody);
    assert!(refused.to_string().contains("remove holds"), "{refused}");
    assert_eq!(it.archive.hold("court").await, Err(ArchiveError::UnknownHold("court".to_owned())));
    // An existing hold may be changed.
    put("case-0000", of_type("y")).await.expect("changed");
    it.pass_days(31);
    it.until(|status| status.archived == 1).await;
}
