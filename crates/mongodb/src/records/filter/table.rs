//! What each operator becomes: the filters of Wow's Mongo extension, one row each.

use annals_core::bson::{Bson, Document, Regex, doc};
use annals_core::{Condition, DocumentKind, Now, Timestamp};

use super::compile;

const COMMIT: DocumentKind = DocumentKind::Commit;
const SNAPSHOT: DocumentKind = DocumentKind::Snapshot;

/// The filter of what Wow writes, on a Wednesday: 2026-05-13T12:00:00Z.
fn compiled(kind: DocumentKind, json: &str) -> Document {
    let condition: Condition = serde_json::from_str(json).unwrap_or_else(|error| panic!("{json}: {error}"));
    let now = Now::utc(Timestamp::parse("2026-05-13T12:00:00Z").expect("a time"));
    let resolved = condition.resolved(kind, &now).expect("it is resolved");
    resolved.validate().expect("it is right");
    compile(&resolved).expect("the server takes it")
}

fn regex(pattern: &str, options: &str) -> Bson {
    let text = |text: &str| text.try_into().expect("without NUL");
    Bson::RegularExpression(Regex { pattern: text(pattern), options: text(options) })
}

fn time(text: &str) -> i64 {
    Timestamp::parse(text).expect("a time").as_millis()
}

fn between(first: &str, last: &str) -> Document {
    doc! { "$and": [{ "t": { "$gte": time(first) } }, { "t": { "$lte": time(last) } }] }
}

#[track_caller]
fn rows(rows: impl IntoIterator<Item = (DocumentKind, &'static str, Document)>) {
    for (kind, json, filter) in rows {
        assert_eq!(compiled(kind, json), filter, "{kind:?} {json}");
    }
}

#[test]
fn joining_operators() {
    let one = r#"{"field":"a","operator":"EQ","value":1}"#;
    for (operator, name) in [("AND", "$and"), ("OR", "$or"), ("NOR", "$nor")] {
        let json = format!(r#"{{"operator":"{operator}","children":[{one}]}}"#);
        assert_eq!(compiled(COMMIT, &json), doc! { name: [{ "a": 1 }] });
        let json = format!(r#"{{"operator":"{operator}","children":[{one},{{"operator":"OR","children":[{one}]}}]}}"#);
        assert_eq!(compiled(COMMIT, &json), doc! { name: [{ "a": 1 }, { "$or": [{ "a": 1 }] }] });
        let json = format!(r#"{{"operator":"{operator}","children":[]}}"#);
        assert!(serde_json::from_str::<Condition>(&json).is_err(), "{json}");
    }
}

#[test]
fn operators_of_the_aggregate() {
    rows([
        (COMMIT, r#"{"operator":"ID","value":"x"}"#, doc! { "_id": "x" }),
        (SNAPSHOT, r#"{"operator":"ID","value":"x"}"#, doc! { "_id": "x" }),
        (COMMIT, r#"{"operator":"IDS","value":["x","y"]}"#, doc! { "_id": { "$in": ["x", "y"] } }),
        (COMMIT, r#"{"operator":"AGGREGATE_ID","value":"x"}"#, doc! { "aggregateId": "x" }),
        (SNAPSHOT, r#"{"operator":"AGGREGATE_ID","value":"x"}"#, doc! { "_id": "x" }),
        (COMMIT, r#"{"operator":"AGGREGATE_IDS","value":["x"]}"#, doc! { "aggregateId": { "$in": ["x"] } }),
        (SNAPSHOT, r#"{"operator":"AGGREGATE_IDS","value":["x"]}"#, doc! { "_id": { "$in": ["x"] } }),
        (COMMIT, r#"{"operator":"TENANT_ID","value":"x"}"#, doc! { "tenantId": "x" }),
        (COMMIT, r#"{"operator":"OWNER_ID","value":"x"}"#, doc! { "ownerId": "x" }),
        (COMMIT, r#"{"operator":"SPACE_ID","value":"x"}"#, doc! { "spaceId": "x" }),
        (SNAPSHOT, r#"{"operator":"DELETED","value":"ACTIVE"}"#, doc! { "deleted": false }),
        (SNAPSHOT, r#"{"operator":"DELETED","value":"deleted"}"#, doc! { "deleted": true }),
        (SNAPSHOT, r#"{"operator":"DELETED","value":"ALL"}"#, doc! {}),
        (SNAPSHOT, r#"{"operator":"DELETED","value":true}"#, doc! { "deleted": true }),
        (SNAPSHOT, r#"{"operator":"DELETED","value":false}"#, doc! { "deleted": false }),
        (SNAPSHOT, r#"{"operator":"ALL"}"#, doc! {}),
    ]);
}

#[test]
fn operators_of_values() {
    rows([
        (COMMIT, r#"{"field":"f","operator":"EQ","value":"v"}"#, doc! { "f": "v" }),
        (COMMIT, r#"{"field":"f","operator":"EQ"}"#, doc! { "f": "" }),
        (COMMIT, r#"{"field":"f","operator":"EQ","value":[1]}"#, doc! { "f": { "$eq": [1] } }),
        (COMMIT, r#"{"field":"f","operator":"NE","value":"v"}"#, doc! { "f": { "$ne": "v" } }),
        (COMMIT, r#"{"field":"f","operator":"GT","value":1}"#, doc! { "f": { "$gt": 1 } }),
        (COMMIT, r#"{"field":"f","operator":"LT","value":1}"#, doc! { "f": { "$lt": 1 } }),
        (COMMIT, r#"{"field":"f","operator":"GTE","value":1}"#, doc! { "f": { "$gte": 1 } }),
        (COMMIT, r#"{"field":"f","operator":"LTE","value":1}"#, doc! { "f": { "$lte": 1 } }),
        (COMMIT, r#"{"field":"f","operator":"IN","value":["a"]}"#, doc! { "f": { "$in": ["a"] } }),
        (COMMIT, r#"{"field":"f","operator":"NOT_IN","value":["a"]}"#, doc! { "f": { "$nin": ["a"] } }),
        (COMMIT, r#"{"field":"f","operator":"ALL_IN","value":["a"]}"#, doc! { "f": { "$all": ["a"] } }),
        (
            COMMIT,
            r#"{"field":"f","operator":"BETWEEN","value":[1,2]}"#,
            doc! { "$and": [{ "f": { "$gte": 1 } }, { "f": { "$lte": 2 } }] },
        ),
        (COMMIT, r#"{"field":"f","operator":"NULL"}"#, doc! { "f": null }),
        (COMMIT, r#"{"field":"f","operator":"NOT_NULL"}"#, doc! { "f": { "$ne": null } }),
        (COMMIT, r#"{"field":"f","operator":"TRUE"}"#, doc! { "f": true }),
        (COMMIT, r#"{"field":"f","operator":"FALSE"}"#, doc! { "f": false }),
        (COMMIT, r#"{"field":"f","operator":"EXISTS"}"#, doc! { "f": { "$exists": true } }),
        (COMMIT, r#"{"field":"f","operator":"EXISTS","value":false}"#, doc! { "f": { "$exists": false } }),
    ]);
}

/// What a missing field passes is asked for so that no sparse index is read for it.
#[test]
fn ranges_that_hold_null() {
    rows([
        (COMMIT, r#"{"field":"f","operator":"GTE","value":null}"#, doc! { "f": null }),
        (COMMIT, r#"{"field":"f","operator":"LTE","value":null}"#, doc! { "f": null }),
        (COMMIT, r#"{"field":"f","operator":"GT","value":null}"#, doc! { "f": { "$gt": null } }),
        (
            COMMIT,
            r#"{"field":"f","operator":"BETWEEN","value":[null,1]}"#,
            doc! { "$and": [{ "f": null }, { "f": { "$lte": 1 } }] },
        ),
        (
            COMMIT,
            r#"{"field":"f","operator":"GTE","value":{"$minKey":1}}"#,
            doc! { "$or": [{ "f": { "$gte": Bson::MinKey } }, { "f": null }] },
        ),
        (
            COMMIT,
            r#"{"field":"f","operator":"LT","value":{"$maxKey":1}}"#,
            doc! { "$or": [{ "f": { "$lt": Bson::MaxKey } }, { "f": null }] },
        ),
    ]);
}

#[test]
fn operators_of_texts_and_elements() {
    rows([
        (COMMIT, r#"{"field":"f","operator":"CONTAINS","value":"a+b"}"#, doc! { "f": regex("a\\+b", "") }),
        (
            COMMIT,
            r#"{"field":"f","operator":"CONTAINS","value":"a","options":{"ignoreCase":true}}"#,
            doc! { "f": regex("a", "i") },
        ),
        (
            COMMIT,
            r#"{"field":"f","operator":"CONTAINS","value":"a","options":{"ignoreCase":false}}"#,
            doc! { "f": regex("a", "") },
        ),
        (COMMIT, r#"{"field":"f","operator":"STARTS_WITH","value":"a.b"}"#, doc! { "f": regex("^a\\.b", "") }),
        (COMMIT, r#"{"field":"f","operator":"ENDS_WITH","value":"a)"}"#, doc! { "f": regex("a\\)$", "") }),
        (
            COMMIT,
            r#"{"field":"f","operator":"CONTAINS","value":"\\^$.|?*+()[]{}"}"#,
            doc! { "f": regex("\\\\\\^\\$\\.\\|\\?\\*\\+\\(\\)\\[\\]\\{\\}", "") },
        ),
        (COMMIT, r#"{"field":"ignored","operator":"MATCH","value":"x y"}"#, doc! { "$text": { "$search": "x y" } }),
        (
            COMMIT,
            r#"{"field":"body","operator":"ELEM_MATCH","children":[{"field":"id","operator":"EQ","value":"x"}]}"#,
            doc! { "body": { "$elemMatch": { "id": "x" } } },
        ),
        (COMMIT, r#"{"operator":"RAW","value":{"id":{"$gt":1}}}"#, doc! { "id": { "$gt": 1 } }),
        (COMMIT, r#"{"operator":"RAW","value":"{\"id\":{\"$gt\":1}}"}"#, doc! { "id": { "$gt": 1_i64 } }),
    ]);
}

#[test]
fn windows_of_time() {
    let today = between("2026-05-13T00:00:00Z", "2026-05-13T23:59:59.999Z");
    rows([
        (COMMIT, r#"{"field":"t","operator":"TODAY"}"#, today.clone()),
        (COMMIT, r#"{"field":"t","operator":"TODAY","options":{"zoneId":"UTC"}}"#, today.clone()),
        (
            COMMIT,
            r#"{"field":"t","operator":"TODAY","options":{"zoneId":"Europe/Berlin"}}"#,
            between("2026-05-12T22:00:00Z", "2026-05-13T21:59:59.999Z"),
        ),
        (
            COMMIT,
            r#"{"field":"t","operator":"TODAY","options":{"datePattern":"yyyy-MM-dd HH:mm:ss"}}"#,
            doc! { "$and": [
                { "t": { "$gte": "2026-05-13 00:00:00" } }, { "t": { "$lte": "2026-05-13 23:59:59" } },
            ] },
        ),
        (COMMIT, r#"{"field":"t","operator":"TOMORROW"}"#, between("2026-05-14T00:00:00Z", "2026-05-14T23:59:59.999Z")),
        (
            COMMIT,
            r#"{"field":"t","operator":"THIS_WEEK"}"#,
            between("2026-05-11T00:00:00Z", "2026-05-17T23:59:59.999Z"),
        ),
        (
            COMMIT,
            r#"{"field":"t","operator":"NEXT_WEEK"}"#,
            between("2026-05-18T00:00:00Z", "2026-05-24T23:59:59.999Z"),
        ),
        (
            COMMIT,
            r#"{"field":"t","operator":"LAST_WEEK"}"#,
            between("2026-05-04T00:00:00Z", "2026-05-10T23:59:59.999Z"),
        ),
        (
            COMMIT,
            r#"{"field":"t","operator":"THIS_MONTH"}"#,
            between("2026-05-01T00:00:00Z", "2026-05-31T23:59:59.999Z"),
        ),
        (
            COMMIT,
            r#"{"field":"t","operator":"LAST_MONTH"}"#,
            between("2026-04-01T00:00:00Z", "2026-04-30T23:59:59.999Z"),
        ),
        (COMMIT, r#"{"field":"t","operator":"RECENT_DAYS","value":1}"#, today),
        (
            COMMIT,
            r#"{"field":"t","operator":"RECENT_DAYS","value":3}"#,
            between("2026-05-11T00:00:00Z", "2026-05-13T23:59:59.999Z"),
        ),
        (
            COMMIT,
            r#"{"field":"t","operator":"EARLIER_DAYS","value":3}"#,
            doc! { "t": { "$lt": time("2026-05-11T00:00:00Z") } },
        ),
        (
            COMMIT,
            r#"{"field":"t","operator":"BEFORE_TODAY","value":"17:30"}"#,
            doc! { "t": { "$lt": time("2026-05-13T17:30:00Z") } },
        ),
        (
            COMMIT,
            r#"{"field":"t","operator":"BEFORE_TODAY","value":3600}"#,
            doc! { "t": { "$lt": time("2026-05-13T01:00:00Z") } },
        ),
    ]);
}

#[test]
fn fields_are_converted_at_every_level_but_inside_elements() {
    let of = |field: &str| {
        format!(
            r#"{{"operator":"NOR","children":[{{"field":"{field}","operator":"EQ","value":"x"}},{{"operator":"AND","children":[
            {{"field":"{field}","operator":"NE","value":"y"}},{{"field":"{field}.z","operator":"NULL"}}]}}]}}"#
        )
    };
    let stored = |field: &str| doc! { "$nor": [{ "_id": "x" }, { "$and": [{ "_id": { "$ne": "y" } }, { format!("{field}.z"): null }] }] };
    assert_eq!(compiled(COMMIT, &of("id")), stored("id"));
    assert_eq!(compiled(SNAPSHOT, &of("aggregateId")), stored("aggregateId"));
}

#[test]
fn what_is_deleted_is_left_out_of_snapshots() {
    let guarded = |json: &str| {
        let condition: Condition = serde_json::from_str(json).expect("it is read");
        compile(&condition.guarded()).expect("the server takes it")
    };
    let one = r#"{"field":"a","operator":"TRUE"}"#;
    let deleted = r#"{"operator":"DELETED","value":true}"#;
    let and = |children: &str| format!(r#"{{"operator":"AND","children":[{children}]}}"#);
    assert_eq!(guarded("{}"), doc! { "deleted": false });
    assert_eq!(guarded(deleted), doc! { "deleted": true });
    assert_eq!(guarded(one), doc! { "$and": [{ "deleted": false }, { "a": true }] });
    let both = doc! { "$and": [{ "deleted": true }, { "a": true }] };
    assert_eq!(guarded(&and(&format!("{deleted},{one}"))), both.clone());
    let nested = and(&format!("{},{one}", and(&format!("{deleted},{one}"))));
    assert_eq!(guarded(&nested), doc! { "$and": [both, { "a": true }] });
    let or = format!(r#"{{"operator":"OR","children":[{deleted}]}}"#);
    assert_eq!(guarded(&or), doc! { "$and": [{ "deleted": false }, { "$or": [{ "deleted": true }] }] });
}
