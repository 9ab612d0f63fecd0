//! Queries of snapshots.

use annals_core::bson::{Bson, doc};
use annals_core::{
    Clock, Code, Condition, Deletion, DocumentQuery, Index, Pagination, Projection, Snapshot, SnapshotQueryService,
    Timestamp,
};
use serde::Deserialize;
use serde_json::json;

use super::{Asked, fields, snapshot, snapshots, texts};
use crate::Subject;

/// The state of an order.
#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Order {
    status: String,
    total: f64,
}

fn paid() -> Order {
    Order { status: "paid".to_owned(), total: 12.5 }
}

/// The forms are: alone, in a list, on a page and as a number; typed, its state alone, and as a document.
pub async fn the_one_snapshot_is_answered_in_every_form(subject: &dyn Subject) {
    let asked = Asked::open(subject).await;
    let mut saved = snapshot("o-1", 3, json!({ "status": "paid", "total": 12.5 }));
    saved.info.owner_id = "eva".into();
    saved.info.time = Timestamp::from_millis(7_000);
    saved.time = Some(Timestamp::from_millis(8_000));
    asked.save(saved.clone()).await;
    asked.save(snapshot("o-2", 1, json!({ "status": "open", "total": 3 }))).await;
    let service = SnapshotQueryService::<Order>::new(asked.queries.clone(), "order").expect("a name");
    let one = || Condition::id("o-1");
    let page = Pagination::default();
    let found = service.single(one()).await.expect("found").expect("it is there");
    assert_eq!((&found.info, &found.state, found.snapshot_time), (&saved.info, &paid(), Timestamp::from_millis(8_000)));
    assert!(!found.context_name.is_empty());
    assert_eq!(service.list(one(), 10).await.expect("found"), std::slice::from_ref(&found));
    let paged = service.paged(one(), page).await.expect("found");
    assert_eq!((paged.total, paged.list), (1, vec![found]));
    assert_eq!(service.single_state(one()).await.expect("found"), Some(paid()));
    assert_eq!(service.list_states(one(), 10).await.expect("found"), [paid()]);
    let states = service.paged_states(one(), page).await.expect("found");
    assert_eq!((states.total, states.list), (1, vec![paid()]));
    let document = service.dynamic_single(one()).await.expect("found").expect("it is there");
    assert_eq!(document.get_document("state").and_then(|state| state.get_str("status")).ok(), Some("paid"));
    assert_eq!(document.get_str("aggregateId").ok(), Some("o-1"));
    assert_eq!(service.dynamic_list(one(), 10).await.expect("found"), std::slice::from_ref(&document));
    let dynamic = service.dynamic_paged(one(), page).await.expect("found");
    assert_eq!((dynamic.total, dynamic.list), (1, vec![document]));
    assert_eq!(service.count(&one()).await, Ok(1));
    assert_eq!(service.single(Condition::id("o-3")).await, Ok(None));
    asked.store.close().await;
}

/// Counts leave them out, too. The condition on deletion counts below `AND`, at any depth, and nowhere else.
pub async fn deleted_aggregates_are_left_out_unless_the_condition_says_which_are_meant(subject: &dyn Subject) {
    let asked = Asked::open(subject).await;
    asked.save(snapshot("here", 1, json!({ "n": 1 }))).await;
    let mut gone: Snapshot = snapshot("gone", 1, json!({ "n": 1 }));
    gone.info.deleted = true;
    asked.save(gone).await;
    let n = || Condition::eq("state.n", 1);
    let said = |which| Condition::Deleted(which);
    let deep = Condition::And(vec![
        Condition::And(vec![said(Deletion::Deleted), n()]),
        Condition::tenant_id(annals_core::DEFAULT_TENANT_ID),
    ]);
    for (condition, found) in [
        (Condition::All, vec!["here"]),
        (n(), vec!["here"]),
        (Condition::Or(vec![n(), Condition::id("gone")]), vec!["here"]),
        (Condition::Or(vec![said(Deletion::Deleted), n()]), vec!["here"]),
        (Condition::Nor(vec![said(Deletion::Active)]), vec![]),
        (Condition::raw(doc! { "deleted": true }), vec![]),
        (Condition::eq("deleted", true), vec![]),
        (said(Deletion::Active), vec!["here"]),
        (said(Deletion::Deleted), vec!["gone"]),
        (said(Deletion::All), vec!["gone", "here"]),
        (Condition::And(vec![said(Deletion::All), n()]), vec!["gone", "here"]),
        (deep, vec!["gone"]),
    ] {
        assert_eq!(asked.found(&snapshots(), condition.clone()).await, found, "{condition:?}");
    }
    asked.store.close().await;
}

/// This holds in conditions below `AND`, `OR` and `NOR`, in projections and in sorts. Inside elements, a field of that name is the
/// element's.
pub async fn ids_of_snapshots_have_their_names_wherever_a_query_has_one(subject: &dyn Subject) {
    let asked = Asked::open(subject).await;
    for (id, inner) in [("a", "x"), ("b", "y"), ("c", "a")] {
        asked.save(snapshot(id, 1, json!({ "parts": [{ "aggregateId": inner, "_id": 1 }] }))).await;
    }
    let id = |id: &str| Condition::aggregate_id(id);
    for (condition, found) in [
        (id("a"), vec!["a"]),
        (Condition::aggregate_ids(["a", "c", "z"]), vec!["a", "c"]),
        (Condition::ids(["b", "c"]), vec!["b", "c"]),
        (Condition::eq("aggregateId", "b"), vec!["b"]),
        (Condition::And(vec![Condition::Or(vec![id("a"), id("b")]), Condition::ne("aggregateId", "b")]), vec!["a"]),
        (Condition::Nor(vec![id("a"), id("b")]), vec!["c"]),
        (Condition::elem_match("state.parts", Condition::eq("aggregateId", "a")), vec!["c"]),
        (Condition::raw(doc! { "_id": "a" }), vec!["a"]),
    ] {
        assert_eq!(asked.found(&snapshots(), condition.clone()).await, found, "{condition:?}");
    }
    let only = |field: &str| DocumentQuery::default().descending("aggregateId").projection(Projection::only([field]));
    for field in ["aggregateId", "version"] {
        let listed = asked.list(&snapshots(), only(field), 0).await;
        assert_eq!(texts(&listed, "aggregateId"), ["c", "b", "a"]);
        let extra: Vec<_> = fields(&listed[0]).into_iter().filter(|name| name != "aggregateId").collect();
        assert_eq!(extra, if field == "version" { vec!["version"] } else { vec![] });
    }
    let without = DocumentQuery::new(id("a")).projection(Projection::without(["aggregateId", "state"]));
    let listed = asked.list(&snapshots(), without, 0).await;
    assert!(!fields(&listed[0]).iter().any(|name| name == "aggregateId" || name == "_id" || name == "state"));
    asked.store.close().await;
}

/// The queries are dynamic, with include and sort, and with exclude and limit.
pub async fn snapshots_have_the_fields_and_the_order_that_are_asked_for(subject: &dyn Subject) {
    let asked = Asked::open(subject).await;
    for (id, total, lines) in [("a", 5, vec![3, 9]), ("b", 7, vec![1]), ("c", 5, vec![])] {
        let state = json!({ "total": total, "lines": lines, "by": { "name": id, "note": 1 } });
        asked.save(snapshot(id, total, state)).await;
    }
    let query = DocumentQuery::new(Condition::gt("version", 1)).descending("state.total").ascending("aggregateId");
    let included = query.clone().projection(Projection::only(["state.total", "state.by.name"]));
    let listed = asked.list(&snapshots(), included, 0).await;
    assert_eq!(texts(&listed, "aggregateId"), ["b", "a", "c"]);
    let state = listed[0].get_document("state").expect("a state");
    let state = annals_core::bson::Document::try_from(state).expect("it can be read");
    assert_eq!(state, doc! { "total": 7_i64, "by": { "name": "b" } });
    let excluded = asked.list(&snapshots(), query.projection(Projection::without(["state", "tags"])), 2).await;
    assert_eq!(texts(&excluded, "aggregateId"), ["b", "a"]);
    assert!(!fields(&excluded[0]).iter().any(|name| name == "state" || name == "tags"));
    assert!(fields(&excluded[0]).iter().any(|name| name == "version"));
    // Without a sort, the order is by ids. Equal documents are in the order of ids, in the direction of the sort.
    let by = |query: DocumentQuery| async { texts(&asked.list(&snapshots(), query, 0).await, "aggregateId") };
    assert_eq!(by(DocumentQuery::default()).await, ["a", "b", "c"]);
    assert_eq!(by(DocumentQuery::default().descending("state.total")).await, ["b", "c", "a"]);
    assert_eq!(by(DocumentQuery::default().ascending("state.lines")).await, ["c", "b", "a"]);
    asked.store.close().await;
}

/// This holds with an index and without one.
pub async fn states_are_found_by_what_they_say(subject: &dyn Subject) {
    let asked = Asked::open(subject).await;
    for n in 0..40_u64 {
        let status = ["open", "paid", "sent"][n as usize % 3];
        let state = json!({
            "status": status, "n": n, "tags": [format!("t{}", n % 4), "all"],
            "lines": [{ "sku": format!("s-{n}"), "count": n % 5 }], "note": if n % 10 == 0 { json!(null) } else { json!("a+b") },
        });
        asked.save(snapshot(&format!("o-{n:02}"), n + 1, state)).await;
    }
    let cases = || {
        [
            (Condition::eq("state.status", "paid"), 13),
            (Condition::And(vec![Condition::eq("state.status", "paid"), Condition::gte("state.n", 20)]), 6),
            (Condition::between("state.n", 5, 9), 5),
            (Condition::all_in("state.tags", ["t1", "all"]), 10),
            (Condition::elem_match("state.lines", Condition::eq("count", 4)), 8),
            (Condition::starts_with("state.lines.sku", "s-1"), 11),
            (Condition::contains("state.note", "+"), 36),
            (Condition::is_null("state.note"), 4),
            (Condition::missing("state.nothing"), 40),
            (Condition::Nor(vec![Condition::lt("state.n", 39)]), 1),
            (Condition::raw(doc! { "state.n": { "$in": [1, 2, 99] } }), 2),
            (Condition::eq("version", Bson::Double(7.0)), 1),
        ]
    };
    for (condition, found) in cases() {
        assert_eq!(asked.count(&snapshots(), &condition).await, found, "{condition:?}");
    }
    let declared = asked.store.snapshots(annals_core::DEFAULT_TENANT).expect("the tenant is declared");
    let indexes = ["state.status", "state.n", "state.tags"].map(|path| Index::on(path).into()).to_vec();
    declared.declare("order", indexes).await.expect("declared");
    for (condition, found) in cases() {
        assert_eq!(asked.found(&snapshots(), condition.clone()).await.len() as u64, found, "{condition:?}");
    }
    asked.store.close().await;
}

/// Days are in UTC if no zone is named.
pub async fn windows_of_time_are_those_of_the_store_s_clock(subject: &dyn Subject) {
    const DAY: i64 = 24 * 3_600_000;
    let asked = Asked::open(subject).await;
    let now = subject.clock().now().as_millis();
    for (id, days) in [("today", 0), ("yesterday", 1), ("before", 40)] {
        let mut saved = snapshot(id, 1, json!({}));
        saved.info.time = Timestamp::from_millis(now - days * DAY);
        asked.save(saved).await;
    }
    for (condition, found) in [
        (Condition::today("eventTime"), vec!["today"]),
        (Condition::recent_days("eventTime", 2), vec!["today", "yesterday"]),
        (Condition::earlier_days("eventTime", 2), vec!["before"]),
        (Condition::tomorrow("eventTime"), vec![]),
    ] {
        assert_eq!(asked.found(&snapshots(), condition.clone()).await, found, "{condition:?}");
    }
    asked.store.close().await;
}

/// A projection that cuts off essential parts of a snapshot is an error, too.
pub async fn a_state_of_another_type_is_said_and_not_left_out(subject: &dyn Subject) {
    let asked = Asked::open(subject).await;
    asked.save(snapshot("o-1", 3, json!({ "status": 5 }))).await;
    let service = SnapshotQueryService::<Order>::new(asked.queries.clone(), "order").expect("a name");
    let refused = service.single(Condition::All).await.expect_err("it is another");
    assert_eq!(refused.code(), Code::InvalidRecord);
    assert!(refused.to_string().contains("o-1") && refused.to_string().contains("state"), "{refused}");
    assert_eq!(service.list_states(Condition::All, 0).await.expect_err("it is another").code(), Code::InvalidRecord);
    let cut = DocumentQuery::default().projection(Projection::only(["state"]));
    assert_eq!(service.single(cut).await.expect_err("it is cut").code(), Code::InvalidRecord);
    asked.store.close().await;
}
