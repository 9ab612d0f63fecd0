//! How events are folded.

use annals_core::bson::{Bson, DateTime, doc};
use annals_core::projections::{ProjectionDefinition, ProjectionState};
use annals_core::{Clock, Condition, DEFAULT_TENANT, RecordedEvent};
use serde_json::json;

use crate::Subject;
use crate::projections::opened::{ORDERS, Projected};

/// Each operation is used, with paths, constants, and paths that lead to nothing.
pub async fn declared_rules_fold_events_into_records(subject: &dyn Subject) {
    let it = Projected::of(subject).await;
    it.put(
        "orders",
        r#"{"on": {
            "placed": {"set": {"customer.name": "$data.customer", "absent": "$data.absent", "at": "$time", "price": {"$literal": "$5"},
                               "first": {"number": "$sequence_number", "none": "$data.absent"}},
                       "increment": {"total": "$data.total"}, "decrement": {"left": 1}, "push": {"lines": {"sku": "$data.sku", "n": 1}}},
            "changed": {"push": {"lines": {"sku": "$data.sku", "n": "$data.n"}}, "unset": ["price", "customer.none"], "increment": {"total": "$data.absent"}},
            "removed": {"remove": {"lines": {"sku": "$data.sku"}, "tags": "x"}},
            "cancelled": {"delete": true}
        }}"#,
    )
    .await;
    it.commit("a", "placed", json!({"customer": "Ada", "total": 5, "sku": "x"})).await;
    it.commit("b", "placed", json!({"customer": "Bob", "total": 1.5, "sku": "y"})).await;
    it.commit("a", "other", json!({})).await;
    it.commit("a", "changed", json!({"sku": "y", "n": 2})).await;
    it.commit("b", "placed", json!({"customer": "Bob", "total": 2, "sku": "y"})).await;
    it.commit("a", "removed", json!({"sku": "x"})).await;
    it.commit("c", "placed", json!({})).await;
    it.commit("c", "cancelled", json!({})).await;
    it.settled("orders").await;
    let now = Bson::DateTime(DateTime::from_millis(it.it.clock.now().as_millis()));
    assert_eq!(
        it.records("orders").await,
        [
            doc! { "at": &now, "customer": { "name": "Ada" }, "first": { "number": 0_i64 }, "total": 5_i64, "left": -1_i64,
            "lines": [{ "n": 2_i64, "sku": "y" }], "_id": "a" },
            doc! { "at": &now, "customer": { "name": "Bob" }, "first": { "number": 4_i64 }, "price": "$5", "total": 3.5, "left": -2_i64,
            "lines": [{ "n": 1_i64, "sku": "y" }, { "n": 1_i64, "sku": "y" }], "_id": "b" },
        ]
    );
}

/// A key may also combine several constants and paths.
pub async fn keys_come_from_the_aggregate_a_path_or_a_constant(subject: &dyn Subject) {
    let it = Projected::of(subject).await;
    it.put("by-order", r#"{"on": {"placed": {"increment": {"n": 1}}}}"#).await;
    it.put("by-customer", r#"{"key": "$data.customer", "on": {"*": {"increment": {"n": 1}}}}"#).await;
    it.put("all", r#"{"key": "all", "on": {"*": {"increment": {"n": 1}}}}"#).await;
    it.put("by-both", r#"{"key": {"c": "$data.customer", "k": "x"}, "on": {"*": {"increment": {"n": 1}}}}"#).await;
    for (id, customer) in [("a", "Ada"), ("b", "Bob"), ("c", "Ada")] {
        it.commit(id, "placed", json!({"customer": customer})).await;
    }
    for (name, key, n) in [
        ("by-order", Bson::from("a"), 1_i64),
        ("by-customer", "Ada".into(), 2),
        ("all", "all".into(), 3),
        ("by-both", doc! { "c": "Ada", "k": "x" }.into(), 2),
    ] {
        it.settled(name).await;
        assert_eq!(it.record(name, key.clone()).await, Some(doc! { "n": n, "_id": key }), "{name}");
    }
    let absent = r#"{"key": "$data.nothing", "on": {"*": {"increment": {"n": 1}}}}"#;
    it.put("keyless", absent).await;
    let status = it.until("keyless", |status| status.state == ProjectionState::Blocked).await;
    let reason = status.last_reason.unwrap_or_default();
    assert!(reason.contains("event 0 (placed): key: the event has no $data.nothing"), "{reason}");
}

/// A transfer takes from one account and gives to another.
pub async fn one_event_changes_the_records_of_several_keys(subject: &dyn Subject) {
    let it = Projected::of(subject).await;
    let rules = r#"{"on": {"transferred": [
        {"key": "$data.from", "decrement": {"balance": "$data.amount"}},
        {"key": "$data.to", "increment": {"balance": "$data.amount"}}]}}"#;
    it.put("accounts", rules).await;
    it.commit("t", "transferred", json!({"from": "a", "to": "b", "amount": 5})).await;
    it.commit("t", "transferred", json!({"from": "b", "to": "b", "amount": 3})).await;
    it.settled("accounts").await;
    let due = [doc! { "balance": -5_i64, "_id": "a" }, doc! { "balance": 5_i64, "_id": "b" }];
    assert_eq!(it.records("accounts").await, due);
    // Its first rule fits and its second one does not, so neither is applied.
    it.put("strict", &rules.replace("\"increment\": {\"balance\"", "\"increment\": {\"note.balance\"")).await;
    it.commit("t", "transferred", json!({"from": "a", "to": ["c"], "amount": 1})).await;
    let status = it.until("accounts", |status| status.state == ProjectionState::Blocked).await;
    assert_eq!(status.position, 2);
    assert_eq!(it.records("accounts").await, due);
}

/// It gets every event of its types in order, with the record of the key.
pub async fn a_function_of_a_program_folds_events(subject: &dyn Subject) {
    let it = Projected::of(subject).await;
    let definition = ProjectionDefinition::program("longest", 1).types(["placed", "cancelled"]);
    let reduce = |record: &mut Option<annals_core::bson::Document>, event: &RecordedEvent| {
        if &*event.event_type == "cancelled" {
            *record = None;
            return Ok(());
        }
        let n = record.as_ref().and_then(|record| record.get_i64("n").ok()).unwrap_or(0);
        *record = Some(doc! { "n": n + 1, "last": event.sequence_number.cast_signed() });
        Ok(())
    };
    it.it.host.project(DEFAULT_TENANT, definition, reduce).await.expect("defined");
    for (id, event_type) in [("a", "placed"), ("b", "placed"), ("a", "placed"), ("b", "cancelled"), ("a", "other")] {
        it.commit(id, event_type, json!({})).await;
    }
    it.settled("longest").await;
    assert_eq!(it.records("longest").await, [doc! { "n": 2_i64, "last": 2_i64, "_id": "a" }]);
}

/// The condition covers data, like a handler's.
pub async fn a_condition_decides_which_events_are_folded(subject: &dyn Subject) {
    let it = Projected::of(subject).await;
    let large = r#"{"condition": {"field": "data.total", "operator": "GT", "value": 3}, "on": {"placed": {"increment": {"n": 1}}}}"#;
    it.put("large", large).await;
    for (id, total) in [("a", 5), ("b", 1), ("c", 4)] {
        it.commit(id, "placed", json!({"total": total})).await;
    }
    it.settled("large").await;
    let keys: Vec<_> =
        it.records("large").await.iter().map(|record| record.get_str("_id").unwrap_or("").to_owned()).collect();
    assert_eq!(keys, ["a", "c"]);
}

/// Earlier events are folded; neither this event nor any later one is.
pub async fn an_event_that_does_not_fit_stops_the_projection_before_it(subject: &dyn Subject) {
    let it = Projected::of(subject).await;
    it.commit("a", "placed", json!({"customer": "Ada", "total": 5})).await;
    it.commit("a", "placed", json!({"customer": "Eve", "total": "five"})).await;
    it.commit("a", "placed", json!({"customer": "Bob", "total": 7})).await;
    it.put("orders", ORDERS).await;
    let status = it.until("orders", |status| status.state == ProjectionState::Blocked).await;
    assert_eq!((status.position, status.lag), (1, 2));
    let reason = status.last_reason.unwrap_or_default();
    assert!(reason.starts_with("event 1 (placed): increment.total: the event has \"five\""), "{reason}");
    let due = doc! { "customer": "Ada", "state": "placed", "events": 1_i64, "total": 5_i64, "_id": "a" };
    assert_eq!(it.record("orders", "a").await, Some(due.clone()));
    // A restart attempts it once more, and stops again.
    let it = it.restarted().await;
    it.until("orders", |status| status.owner.is_some()).await;
    assert_eq!(it.until("orders", |status| status.state == ProjectionState::Blocked).await.position, 1);
    assert_eq!(it.record("orders", "a").await, Some(due));
}

/// It has the effect of an error.
pub async fn a_panic_of_a_reducer_stops_the_projection(subject: &dyn Subject) {
    let it = Projected::of(subject).await;
    let definition = ProjectionDefinition::program("p", 1);
    let reduce = |record: &mut Option<annals_core::bson::Document>, event: &RecordedEvent| {
        assert!(&*event.event_type != "bad", "it is bad");
        *record = Some(doc! { "seen": true });
        Ok(())
    };
    it.it.host.project(DEFAULT_TENANT, definition, reduce).await.expect("defined");
    it.commit("a", "good", json!({})).await;
    it.commit("b", "bad", json!({})).await;
    let status = it.until("p", |status| status.state == ProjectionState::Blocked).await;
    let reason = status.last_reason.unwrap_or_default();
    assert!(reason.contains("event 1 (bad): reducer: it panicked: it is bad"), "{reason}");
    assert_eq!(it.records("p").await, [doc! { "seen": true, "_id": "a" }]);
}

/// Queries use the indexes of the definition.
pub async fn records_are_found_by_conditions_page_by_page(subject: &dyn Subject) {
    let it = Projected::of(subject).await;
    let indexed = ORDERS.replacen('{', r#"{"indexes": [{"fields": [{"field": "customer"}]}], "#, 1);
    it.put("orders", &indexed).await;
    for n in 0..7 {
        it.commit(&format!("o-{n}"), "placed", json!({"customer": format!("c-{}", n % 2), "total": n})).await;
    }
    let status = it.settled("orders").await;
    let found = it.matching("orders", Condition::eq("customer", "c-0")).await;
    let keys: Vec<_> = found.iter().map(|record| record.get_str("_id").unwrap_or("").to_owned()).collect();
    assert_eq!(keys, ["o-0", "o-2", "o-4", "o-6"]);
    let records = it.it.store.records(DEFAULT_TENANT).expect("declared");
    let query = annals_core::RecordQuery::new(status.collection).matching(Condition::eq("customer", "c-0"));
    let explained = records.explain(query).await.expect("explained");
    assert!(explained.index.is_some(), "{explained:?}");
}
