//! Each operator as Wow writes it: what it means, what is written again, and names as documents store them.

use bson::{Bson, RawDocumentBuf, doc};

use crate::{Condition, Days, Deletion, DocumentKind, Fragment, Nested, Now, Test, TimeOfDay, Timestamp, Window};

fn read(text: &str) -> Condition {
    let condition: Condition = serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let again = serde_json::to_string(&condition).expect("it is JSON");
    assert_eq!(serde_json::from_str::<Condition>(&again).expect("it is read back"), condition, "{again}");
    let bson = condition.to_bson().expect("it is BSON");
    assert_eq!(Condition::from_bson(&bson).expect("it is read back"), condition, "{bson:?}");
    condition
}

#[test]
fn a_condition_that_says_something_needs_an_operator() {
    for text in [
        r#"{"field":"a"}"#,
        r#"{"value":1}"#,
        r#"{"field":"a","value":1}"#,
        r#"{"children":[{}]}"#,
        r#"{"field":"a","options":{"ignoreCase":true}}"#,
    ] {
        let error = serde_json::from_str::<Condition>(text).expect_err(text);
        assert!(error.to_string().contains("has no operator"), "{text}: {error}");
        let document: bson::Document = serde_json::from_str(text).expect("a document");
        let inner = RawDocumentBuf::try_from(&doc! { "operator": "AND", "children": [document] }).expect("BSON");
        let error = Condition::from_bson(&inner).expect_err(text);
        assert_eq!((error.code, &*error.path), (crate::Code::InvalidCondition, "condition.children[0]"), "{text}");
        assert!(error.message.contains("has no operator"), "{text}: {error}");
    }
    assert!(serde_json::from_str::<Condition>(r#"{"operator":null}"#).is_err());
}

#[test]
fn every_operator_is_read_as_wow_writes_it() {
    let noon = TimeOfDay::parse("12:00").expect("a time");
    let cases = [
        (r#"{}"#, Condition::All),
        (r#"{"operator":"ALL"}"#, Condition::All),
        (r#"{"operator":"AND","children":[{}]}"#, Condition::And(vec![Condition::All])),
        (r#"{"operator":"OR","children":[{},{}]}"#, Condition::or([Condition::All, Condition::All])),
        (r#"{"operator":"NOR","children":[{}]}"#, Condition::nor([Condition::All])),
        (r#"{"operator":"ID","value":"x"}"#, Condition::eq("_id", "x")),
        (r#"{"operator":"IDS","value":["x","y"]}"#, Condition::is_in("_id", ["x", "y"])),
        (r#"{"operator":"AGGREGATE_ID","value":"x"}"#, Condition::eq("aggregateId", "x")),
        (r#"{"operator":"AGGREGATE_IDS","value":["x"]}"#, Condition::is_in("aggregateId", ["x"])),
        (r#"{"operator":"TENANT_ID","value":"t"}"#, Condition::eq("tenantId", "t")),
        (r#"{"operator":"OWNER_ID","value":"o"}"#, Condition::eq("ownerId", "o")),
        (r#"{"operator":"SPACE_ID"}"#, Condition::eq("spaceId", "")),
        (r#"{"operator":"DELETED","value":"active"}"#, Condition::Deleted(Deletion::Active)),
        (r#"{"operator":"DELETED","value":"ALL"}"#, Condition::Deleted(Deletion::All)),
        (r#"{"operator":"DELETED","value":true}"#, Condition::Deleted(Deletion::Deleted)),
        (r#"{"field":"a","operator":"EQ","value":1}"#, Condition::eq("a", 1)),
        (r#"{"field":"a","operator":"EQ"}"#, Condition::eq("a", "")),
        (r#"{"field":"a","operator":"NE","value":1}"#, Condition::ne("a", 1)),
        (r#"{"field":"a","operator":"GT","value":1}"#, Condition::gt("a", 1)),
        (r#"{"field":"a","operator":"LT","value":1}"#, Condition::lt("a", 1)),
        (r#"{"field":"a","operator":"GTE","value":1}"#, Condition::gte("a", 1)),
        (r#"{"field":"a","operator":"LTE","value":1}"#, Condition::lte("a", 1)),
        (r#"{"field":"a","operator":"CONTAINS","value":"x"}"#, Condition::contains("a", "x")),
        (
            r#"{"field":"a","operator":"CONTAINS","value":"x","options":{"ignoreCase":true}}"#,
            Condition::contains("a", Fragment::new("x").ignoring_case()),
        ),
        (r#"{"field":"a","operator":"STARTS_WITH","value":"x"}"#, Condition::starts_with("a", "x")),
        (r#"{"field":"a","operator":"startsWith","value":"x"}"#, Condition::starts_with("a", "x")),
        (r#"{"field":"a","operator":"ENDS_WITH","value":"x"}"#, Condition::ends_with("a", "x")),
        (r#"{"field":"ignored","operator":"MATCH","value":"x y"}"#, Condition::matching_text("x y")),
        (r#"{"field":"a","operator":"IN","value":[1,2]}"#, Condition::is_in("a", [1, 2])),
        (r#"{"field":"a","operator":"NOT_IN","value":[]}"#, Condition::not_in("a", Vec::<Bson>::new())),
        (r#"{"field":"a","operator":"BETWEEN","value":[1,2]}"#, Condition::between("a", 1, 2)),
        (r#"{"field":"a","operator":"ALL_IN","value":[1,2]}"#, Condition::all_in("a", [1, 2])),
        (
            r#"{"field":"a","operator":"ELEM_MATCH","children":[{"field":"b","operator":"GT","value":1}]}"#,
            Condition::elem_match("a", Condition::gt("b", 1)),
        ),
        (r#"{"field":"a","operator":"NULL"}"#, Condition::is_null("a")),
        (r#"{"field":"a","operator":"NOT_NULL"}"#, Condition::not_null("a")),
        (r#"{"field":"a","operator":"TRUE"}"#, Condition::is_true("a")),
        (r#"{"field":"a","operator":"FALSE"}"#, Condition::is_false("a")),
        (r#"{"field":"a","operator":"EXISTS"}"#, Condition::exists("a")),
        (r#"{"field":"a","operator":"EXISTS","value":false}"#, Condition::missing("a")),
        (r#"{"operator":"RAW","value":{"a":{"$gt":1}}}"#, Condition::raw(doc! { "a": { "$gt": 1 } })),
        (r#"{"field":"t","operator":"TODAY"}"#, Condition::today("t")),
        (
            r#"{"field":"t","operator":"TODAY","options":{"zoneId":"UTC","datePattern":"yyyy"}}"#,
            Condition::within("t", Window::from(Days::Today).in_zone("UTC").written_as("yyyy")),
        ),
        (r#"{"field":"t","operator":"BEFORE_TODAY","value":"12:00"}"#, Condition::before_today("t", noon)),
        (r#"{"field":"t","operator":"BEFORE_TODAY","value":43200}"#, Condition::before_today("t", noon)),
        (r#"{"field":"t","operator":"TOMORROW"}"#, Condition::tomorrow("t")),
        (r#"{"field":"t","operator":"THIS_WEEK"}"#, Condition::this_week("t")),
        (r#"{"field":"t","operator":"NEXT_WEEK"}"#, Condition::next_week("t")),
        (r#"{"field":"t","operator":"LAST_WEEK"}"#, Condition::last_week("t")),
        (r#"{"field":"t","operator":"THIS_MONTH"}"#, Condition::this_month("t")),
        (r#"{"field":"t","operator":"LAST_MONTH"}"#, Condition::last_month("t")),
        (r#"{"field":"t","operator":"RECENT_DAYS","value":7}"#, Condition::recent_days("t", 7)),
        (r#"{"field":"t","operator":"EARLIER_DAYS","value":7}"#, Condition::earlier_days("t", 7)),
    ];
    for (text, expected) in cases {
        assert_eq!(read(text), expected, "{text}");
    }
    // A filter document may come as a text.
    let text = r#"{"operator":"RAW","value":"{\"a\":{\"$gt\":{\"$numberInt\":\"1\"}}}"}"#;
    assert_eq!(read(text), Condition::raw(doc! { "a": { "$gt": 1 } }));
}

#[test]
fn what_is_not_deleted_is_meant_unless_it_is_asked_otherwise() {
    let deleted = || Condition::deleted(Deletion::Deleted);
    let active = || Condition::deleted(Deletion::Active);
    let one = || Condition::eq("a", 1);
    let and = Condition::And;
    assert_eq!(Condition::All.guarded(), active());
    for said in [
        deleted(),
        Condition::deleted(Deletion::All),
        and(vec![deleted(), one()]),
        // What a rewrite for one tenant makes of it.
        and(vec![and(vec![deleted(), one()]), Condition::tenant_id("t")]),
    ] {
        assert_eq!(said.clone().guarded(), said);
    }
    for silent in [
        one(),
        and(vec![one(), one()]),
        Condition::or([deleted(), one()]),
        Condition::nor([deleted()]),
        Condition::raw(doc! { "deleted": true }),
        and(vec![one(), Condition::or([deleted()])]),
    ] {
        assert_eq!(silent.clone().guarded(), and(vec![active(), silent]));
    }
}

#[test]
fn names_are_converted_to_those_that_are_stored() {
    let now = Now::utc(Timestamp::from_millis(0));
    let asked = |id: &str| {
        Condition::And(vec![
            Condition::eq(id, "x"),
            Condition::or([Condition::nor([Condition::ne(id, "y")])]),
            Condition::eq(format!("{id}.x"), 1),
            Condition::elem_match("body", Condition::eq(id, "z")),
            Condition::raw(doc! { id: 1 }),
        ])
    };
    let stored = |id: &str| {
        Condition::And(vec![
            Condition::eq("_id", "x"),
            Condition::or([Condition::nor([Condition::ne("_id", "y")])]),
            Condition::eq(format!("{id}.x"), 1),
            Condition::elem_match("body", Condition::eq(id, "z")),
            Condition::raw(doc! { id: 1 }),
        ])
    };
    for (kind, id) in [(DocumentKind::Commit, "id"), (DocumentKind::Snapshot, "aggregateId")] {
        assert_eq!(asked(id).resolved(kind, &now), Ok(stored(id)));
        assert_eq!(asked("other").resolved(kind, &now), Ok(asked("other")));
    }
    assert_eq!(asked("id").resolved(DocumentKind::Snapshot, &now), Ok(asked("id")));
    assert_eq!(asked("id").resolved(DocumentKind::Record, &now), Ok(asked("id")));
    let of_snapshot = Condition::aggregate_id("a").resolved(DocumentKind::Snapshot, &now);
    assert_eq!(of_snapshot, Ok(Condition::eq("_id", "a")));
    let of_commits = Condition::aggregate_ids(["a"]).resolved(DocumentKind::Commit, &now);
    assert_eq!(of_commits, Ok(Condition::is_in("aggregateId", ["a"])));
}

#[test]
fn nested_fields_have_one_path_before_them() {
    let state = Nested::in_state();
    assert_eq!(Condition::eq(state.at("status"), 1), Condition::eq("state.status", 1));
    assert_eq!(state.nested("owner").at("name"), "state.owner.name");
    assert_eq!(Nested::new("").at("name"), "name");
}

/// What a window is at a time of a zone: the times of its ends.
#[track_caller]
fn window(days: Days, now: &str, zone: &str) -> (Option<String>, String) {
    let at = Timestamp::parse(now).expect("a time");
    let condition = Condition::within("t", Window::from(days).in_zone(zone));
    let resolved = condition.resolved(DocumentKind::Record, &Now::utc(at)).expect("it is resolved");
    assert_eq!(resolved.validate(), Ok(()));
    let text = |value: Bson| Timestamp::from_millis(value.as_i64().expect("milliseconds")).to_string();
    match resolved {
        Condition::Field { test: Test::Between(first, last), .. } => (Some(text(first)), text(last)),
        Condition::Field { test: Test::Lt(end), .. } => (None, text(end)),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn days(days: Days, now: &str, zone: &str, first: &str, last: &str) {
    assert_eq!(window(days, now, zone), (Some(first.to_owned()), last.to_owned()), "{days} at {now} in {zone}");
}

#[test]
fn a_window_holds_whole_days_of_its_zone() {
    // A Wednesday.
    let now = "2026-05-13T22:30:00.000Z";
    days(Days::Today, now, "UTC", "2026-05-13T00:00:00.000Z", "2026-05-13T23:59:59.999Z");
    days(Days::Today, now, "Europe/Berlin", "2026-05-13T22:00:00.000Z", "2026-05-14T21:59:59.999Z");
    days(Days::Tomorrow, now, "UTC", "2026-05-14T00:00:00.000Z", "2026-05-14T23:59:59.999Z");
    days(Days::ThisWeek, now, "UTC", "2026-05-11T00:00:00.000Z", "2026-05-17T23:59:59.999Z");
    days(Days::NextWeek, now, "UTC", "2026-05-18T00:00:00.000Z", "2026-05-24T23:59:59.999Z");
    days(Days::LastWeek, now, "UTC", "2026-05-04T00:00:00.000Z", "2026-05-10T23:59:59.999Z");
    days(Days::ThisMonth, now, "UTC", "2026-05-01T00:00:00.000Z", "2026-05-31T23:59:59.999Z");
    days(Days::LastMonth, "2026-01-31T12:00:00Z", "UTC", "2025-12-01T00:00:00.000Z", "2025-12-31T23:59:59.999Z");
    days(Days::Recent(1), now, "UTC", "2026-05-13T00:00:00.000Z", "2026-05-13T23:59:59.999Z");
    days(Days::Recent(7), now, "UTC", "2026-05-07T00:00:00.000Z", "2026-05-13T23:59:59.999Z");
    // A week begins on its Monday, on a Sunday and on a Monday too.
    days(Days::ThisWeek, "2026-05-17T23:00:00Z", "UTC", "2026-05-11T00:00:00.000Z", "2026-05-17T23:59:59.999Z");
    days(Days::ThisWeek, "2026-05-11T00:00:00Z", "UTC", "2026-05-11T00:00:00.000Z", "2026-05-17T23:59:59.999Z");
    let before = |days| window(days, now, "UTC").1;
    assert_eq!(before(Days::Earlier(1)), "2026-05-13T00:00:00.000Z");
    assert_eq!(before(Days::Earlier(7)), "2026-05-07T00:00:00.000Z");
    let time = |text| Days::BeforeToday(TimeOfDay::parse(text).expect("a time"));
    assert_eq!(before(time("12:00")), "2026-05-13T12:00:00.000Z");
    assert_eq!(before(time("23:59:59.9999")), "2026-05-13T23:59:59.999Z");
}

#[test]
fn days_on_which_the_clocks_change_are_as_long_as_they_are_there() {
    // Berlin, 29 March 2026: 23 hours. 25 October: 25 hours.
    days(Days::Today, "2026-03-29T12:00:00Z", "Europe/Berlin", "2026-03-28T23:00:00.000Z", "2026-03-29T21:59:59.999Z");
    days(Days::Today, "2026-10-25T12:00:00Z", "Europe/Berlin", "2026-10-24T22:00:00.000Z", "2026-10-25T22:59:59.999Z");
    // Both ends of a week and of a month have the offset of their own day.
    days(
        Days::LastWeek,
        "2026-04-01T12:00:00Z",
        "Europe/Berlin",
        "2026-03-22T23:00:00.000Z",
        "2026-03-29T21:59:59.999Z",
    );
    days(
        Days::ThisMonth,
        "2026-10-31T12:00:00Z",
        "Europe/Berlin",
        "2026-09-30T22:00:00.000Z",
        "2026-10-31T22:59:59.999Z",
    );
    // A midnight that there is not: in Havana the clocks go from 0:00 to 1:00.
    days(Days::Today, "2026-03-08T16:00:00Z", "America/Havana", "2026-03-08T05:00:00.000Z", "2026-03-09T03:59:59.999Z");
    // A midnight that there is twice: the day begins with the first.
    days(Days::Today, "2025-11-02T16:00:00Z", "America/Havana", "2025-11-02T04:00:00.000Z", "2025-11-03T04:59:59.999Z");
}

#[test]
fn fields_that_hold_texts_are_compared_with_texts() {
    let at = Timestamp::parse("2026-05-13T22:30:00Z").expect("a time");
    let window = Window::from(Days::Today).written_as("yyyy-MM-dd HH:mm:ss");
    let now = Now::in_zone(at, "Europe/Berlin").expect("a zone");
    let resolved = Condition::within("t", window).resolved(DocumentKind::Record, &now);
    assert_eq!(resolved, Ok(Condition::between("t", "2026-05-14 00:00:00", "2026-05-14 23:59:59")));
}

#[test]
fn a_window_that_cannot_be_is_refused() {
    let now = Now::utc(Timestamp::from_millis(0));
    for (window, named) in [
        (Window::from(Days::Today).in_zone("Berlin"), "Berlin"),
        (Window::from(Days::Today).written_as("MMM"), "MMM"),
        (Window::from(Days::Recent(u32::MAX)), "RECENT_DAYS"),
    ] {
        let error = Condition::within("t", window).resolved(DocumentKind::Record, &now).expect_err("it is refused");
        assert!(error.message.contains(named) && error.path == "condition", "{error}");
    }
    assert!(Now::in_zone(Timestamp::from_millis(0), "Mars/Olympus").is_err());
    let far = Now::utc(Timestamp::from_millis(i64::MAX));
    assert!(Condition::today("t").resolved(DocumentKind::Record, &far).is_err());
}

#[test]
fn a_window_inside_an_element_is_resolved_too() {
    let now = Now::utc(Timestamp::from_millis(0));
    let resolved = Condition::elem_match("body", Condition::earlier_days("time", 1));
    let expected = Condition::elem_match("body", Condition::lt("time", 0_i64));
    assert_eq!(resolved.resolved(DocumentKind::Commit, &now), Ok(expected));
    let _: RawDocumentBuf = resolved.to_bson().expect("it is BSON");
}
