//! The pure parts of the archive.

use bson::{Bson, DateTime, Document, RawDocumentBuf, doc, oid::ObjectId};
use serde_json::json;

use super::document::mark;
use super::{
    ArchiveReason, ArchiveTarget, EVENTS_ARCHIVE, HOLD_PARTS_MAX, HoldBody, HoldRecord, RetentionBody, RetentionPlan,
    RuleKind, RuleRecord, TypeCategory, archive_collection, archived_document, file_path, hold_parts,
    is_deleted_by_hand, numbers_of, packed_numbers, restored_document, shown_archived,
};
use crate::browse::{ReplayFilter, ViewRecord, browse_id};
use crate::{Matcher, Timestamp};

const DAY: i64 = 24 * 60 * 60 * 1_000;

fn rule(name: &str, kind: RuleKind, ttl_days: Option<i64>, archive: ArchiveTarget) -> RuleRecord {
    let at = DateTime::from_millis(0);
    RuleRecord { name: name.to_owned(), kind, ttl_days, archive, reason: None, by: None, at }
}

fn settings() -> ViewRecord {
    let category = |name: &str, category: &str| TypeCategory { name: name.to_owned(), category: category.to_owned() };
    ViewRecord {
        rules: vec![
            rule("pod", RuleKind::Category, Some(10), ArchiveTarget::Collection),
            rule("default", RuleKind::Category, Some(20), ArchiveTarget::None),
            rule("pod_failed", RuleKind::Type, None, ArchiveTarget::Files),
            rule("paid", RuleKind::Type, Some(30), ArchiveTarget::Files),
        ],
        categories: vec![category("pod_created", "pod"), category("pod_failed", "pod"), category("ran", "execution")],
        ..ViewRecord::default()
    }
}

fn document(event_type: &str) -> Document {
    doc! {
        "_id": browse_id(1), "event_id": "e", "event_type": event_type, "timestamp": DateTime::from_millis(0),
        "stored_at": DateTime::from_millis(5), "metadata": {"user_id": "ada"}, "annals": {"sequence_number": 1_i64},
    }
}

fn days(plan: &RetentionPlan, document: &Document) -> Option<i64> {
    plan.expiry(document).map(|at| (at.timestamp_millis() - 5) / DAY)
}

#[test]
fn a_type_has_its_own_rule_else_that_of_its_category_else_the_days_of_the_view() {
    let plan = RetentionPlan::of(&settings());
    let retained = |event_type: &str| plan.retention_of(event_type);
    assert_eq!((retained("pod_created").days, retained("pod_created").archive), (Some(10), ArchiveTarget::Collection));
    assert_eq!((retained("pod_failed").days, retained("pod_failed").archive), (None, ArchiveTarget::Files));
    assert_eq!((retained("anything").days, retained("anything").archive), (Some(20), ArchiveTarget::None));
    assert_eq!((retained("ran").days, retained("ran").archive), (Some(90), ArchiveTarget::None));
    let without = RetentionPlan::of(&ViewRecord::default());
    assert_eq!(without.retention_of("anything").days, Some(90));
}

#[test]
fn the_documents_of_a_category_are_those_of_its_types_without_a_rule_of_their_own() {
    let plan = RetentionPlan::of(&settings());
    let matching = |name: &str| {
        let matcher = Matcher::new(&plan.types_of(RuleKind::Category, name));
        let types = ["pod_created", "pod_failed", "paid", "ran", "other"];
        let is_of = |it: &&str| matcher.matches(&RawDocumentBuf::try_from(&document(it)).expect("BSON"));
        types.into_iter().filter(is_of).collect::<Vec<_>>()
    };
    assert_eq!(matching("pod"), ["pod_created"]);
    assert_eq!(matching("default"), ["other"]);
    assert!(matching("command").is_empty());
}

#[test]
fn a_document_that_is_to_be_archived_expires_only_once_the_archive_holds_a_copy() {
    let plan = RetentionPlan::of(&settings());
    let mut pod = document("pod_created");
    assert_eq!(days(&plan, &pod), None);
    mark(&mut pod, "refused");
    assert_eq!(days(&plan, &pod), None);
    mark(&mut pod, "collection");
    assert_eq!(days(&plan, &pod), Some(10));
    assert_eq!(days(&plan, &document("anything")), Some(20));
    assert_eq!(days(&plan, &document("pod_failed")), None, "it is kept for ever");
}

#[test]
fn a_held_document_does_not_expire_and_is_not_due() {
    let filter = ReplayFilter { user_id: Some("ada".to_owned()), ..ReplayFilter::default() };
    let at = DateTime::from_millis(0);
    let hold = HoldRecord { name: "court".to_owned(), filter, reason: None, by: None, at };
    let plan = RetentionPlan::of(&ViewRecord { holds: vec![hold], ..settings() });
    let held = document("anything");
    assert_eq!((plan.held_by(&held), plan.expiry(&held)), (Some("court"), None));
    let raw = |document: &Document| RawDocumentBuf::try_from(document).expect("BSON");
    assert_eq!(plan.archived_expiry(&raw(&held)), None);
    let mut expiring = held.clone();
    expiring.insert("ttl_expires_at", DateTime::from_millis(7));
    assert_eq!(plan.change_of(&expiring).expect("it expires").unset, ["ttl_expires_at"]);
    assert_eq!(plan.change_of(&held), None);
    let group = plan.due_groups().into_iter().find(|it| it.retention.days == Some(10)).expect("pods are archived");
    let due = Matcher::new(&plan.due(&group, 100 * DAY));
    let is_due = |document: &Document| due.matches(&RawDocumentBuf::try_from(document).expect("BSON"));
    let mut other = document("pod_created");
    assert!(!is_due(&other));
    other.insert("metadata", doc! {"user_id": "eve"});
    assert!(is_due(&other));
}

#[test]
fn what_is_due_is_one_valid_condition_with_as_many_holds_as_there_can_be() {
    let one = ReplayFilter { aggregate_id: Some("o-1".to_owned()), ..ReplayFilter::default() };
    let two = ReplayFilter { user_id: Some("ada".to_owned()), ..one.clone() };
    let at = DateTime::from_millis(0);
    let hold = |filter: &ReplayFilter| HoldRecord {
        name: "court".to_owned(),
        filter: filter.clone(),
        reason: None,
        by: None,
        at,
    };
    let due = |holds: Vec<HoldRecord>| {
        let plan = RetentionPlan::of(&ViewRecord { holds, ..settings() });
        let group = plan.due_groups().remove(0);
        plan.due(&group, 0).validate()
    };
    let mut holds = vec![hold(&two); HOLD_PARTS_MAX / 3];
    assert_eq!((holds.len(), hold_parts(&holds)), (328, 984));
    holds.extend([hold(&one), hold(&one)]);
    assert_eq!((hold_parts(&holds), due(holds.clone())), (HOLD_PARTS_MAX, Ok(())));
    holds.push(hold(&one));
    due(holds).expect_err("it has one part too many");
}

#[test]
fn files_hold_whole_days() {
    let plan = RetentionPlan::of(&settings());
    let group = plan.due_groups().into_iter().find(|it| it.retention.days == Some(30)).expect("paid is archived");
    let is_due = |now: i64| {
        Matcher::new(&plan.due(&group, now)).matches(&RawDocumentBuf::try_from(&document("paid")).expect("BSON"))
    };
    assert!(!is_due(31 * DAY - 1));
    assert!(is_due(31 * DAY));
}

#[test]
fn a_document_of_other_software_keeps_its_date_except_while_it_is_held() {
    let free = RetentionPlan::of(&settings());
    let mut foreign = document("anything");
    foreign.insert("_id", ObjectId::from_bytes([9; 12]));
    assert_eq!(free.change_of(&foreign), None);
    foreign.insert("annals_expires", DateTime::from_millis(9));
    let change = free.change_of(&foreign).expect("the hold is over");
    assert_eq!(change.set, [("ttl_expires_at", Bson::from(DateTime::from_millis(9)))]);
    assert_eq!(change.unset, ["annals_expires"]);
}

#[test]
fn a_document_comes_back_from_the_archive_with_every_field() {
    let mut before = document("placed");
    before.extend(doc! {"deleted_by": "ada", "deletion_reason": 7_i64, "ttl_expires_at": DateTime::from_millis(3)});
    let why = ArchiveReason {
        at: Timestamp::from_millis(8),
        by: Some("eva".to_owned()),
        reason: "a test".to_owned(),
        by_hand: true,
    };
    let copy = archived_document(before.clone(), &why);
    assert!(is_deleted_by_hand(&copy));
    assert_eq!((copy.get_str("deleted_by").ok(), copy.get_str("deletion_reason").ok()), (Some("eva"), Some("a test")));
    assert_eq!(copy.get_datetime("ttl_expires_at").ok(), Some(&DateTime::from_millis(3)));
    assert_eq!(shown_archived(&copy)["deleted_at"], "1970-01-01T00:00:00.008Z");
    let mut after = restored_document(copy, Timestamp::from_millis(9));
    assert_eq!(after.get_str("deleted_by").ok(), Some("ada"));
    for (name, value) in &before {
        if name != "annals" && name != "ttl_expires_at" {
            assert_eq!(after.remove(name).as_ref(), Some(value), "{name}");
        }
    }
    assert!(!after.contains_key("deleted_at") && !after.contains_key("ttl_expires_at"));
}

#[test]
fn a_restored_event_is_kept_for_its_days_again() {
    let plan = RetentionPlan::of(&settings());
    let restored = restored_document(document("anything"), Timestamp::from_millis(5 + 50 * DAY));
    assert_eq!(days(&plan, &restored), Some(70));
    let raw = RawDocumentBuf::try_from(&restored).expect("BSON");
    assert_eq!(plan.archived_expiry(&raw), plan.expiry(&restored));
}

#[test]
fn the_archive_has_the_indexes_of_integr8scode_and_does_not_expire() {
    let collection = archive_collection();
    let names: Vec<_> = collection.indexes.iter().map(crate::Index::name).collect();
    assert_eq!(
        (&*collection.name, names),
        (EVENTS_ARCHIVE, vec!["event_id_1", "timestamp_1", "deleted_at_1", "event_type_1"])
    );
    assert_eq!(collection.indexes.iter().map(crate::Index::is_unique).collect::<Vec<_>>(), [true, false, false, false]);
    assert!(
        collection.indexes.iter().all(|index| index.expires_after_seconds().is_none() && index.fields().len() == 1)
    );
}

#[test]
fn sequence_numbers_of_a_file_are_packed_and_come_back() {
    for numbers in [vec![], vec![0], vec![5, 6, 7, 300, 1 << 40, u64::MAX]] {
        assert_eq!(numbers_of(&packed_numbers(&numbers)), numbers);
    }
    assert_eq!(packed_numbers(&[1_000_000, 1_000_001]).bytes.len(), 4);
}

#[test]
fn the_path_of_a_file_has_the_type_and_the_day_and_leads_nowhere_else() {
    assert_eq!(file_path("placed", DAY, "a.parquet").0, "type=placed/day=1970-01-02/a.parquet");
    assert_eq!(file_path("../../etc", -1, "a").0, "type=..%2F..%2Fetc/day=1969-12-31/a");
}

#[test]
fn a_hold_is_read_from_the_fields_of_a_filter_or_from_the_filter() {
    let filter = ReplayFilter { user_id: Some("ada".to_owned()), ..ReplayFilter::default() };
    for body in [json!({"user_id": "ada", "reason": "x"}), json!({"filter": {"user_id": "ada"}, "reason": "x"})] {
        let read: HoldBody = serde_json::from_value(body).expect("read");
        assert_eq!((read.filter, read.reason.as_deref()), (filter.clone(), Some("x")));
    }
    for wrong in [json!({"user": "ada"}), json!({"filter": {}, "user_id": "ada"}), json!({"reason": 7})] {
        serde_json::from_value::<HoldBody>(wrong).expect_err("refused");
    }
    let read: RetentionBody = serde_json::from_value(json!({"archive": "collection"})).expect("read");
    assert_eq!(read.ttl_days, Some(90));
}

#[test]
fn documents_of_types_that_are_off_leave_the_view_unless_they_are_held_or_of_other_software() {
    assert!(RetentionPlan::of(&settings()).off().is_none());
    let off = |holds: Vec<HoldRecord>| {
        let plan = RetentionPlan::of(&ViewRecord { off_types: vec!["paid".to_owned()], holds, ..settings() });
        assert!(plan.is_off("paid") && !plan.is_off("pod_failed"));
        let leaves = Matcher::new(&plan.off().expect("a type is off"));
        move |document: Document| leaves.matches(&RawDocumentBuf::try_from(&document).expect("BSON"))
    };
    let leaves = off(Vec::new());
    assert!(leaves(document("paid")) && !leaves(document("pod_failed")));
    assert!(!leaves(doc! {"_id": 7, "event_id": "e", "event_type": "paid"}), "it is in no log");
    let filter = ReplayFilter { user_id: Some("ada".to_owned()), ..ReplayFilter::default() };
    let (name, at) = ("court".to_owned(), DateTime::from_millis(0));
    let held = off(vec![HoldRecord { name, filter, reason: None, by: None, at }]);
    assert!(!held(document("paid")));
}
