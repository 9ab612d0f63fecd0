//! What survives a restart.

use annals_core::bson::doc;
use serde_json::json;

use crate::Subject;
use crate::projections::opened::{ORDERS, Projected};

/// It skips none either.
pub async fn a_restart_folds_no_event_twice(subject: &dyn Subject) {
    let mut it = Projected::of(subject).await;
    it.put("orders", ORDERS).await;
    for round in 1..=5_i64 {
        for _ in 0..3 {
            it.commit("a", "placed", json!({"customer": "Ada", "total": 1})).await;
        }
        if round % 2 == 0 {
            it.settled("orders").await;
        }
        it = it.restarted().await;
    }
    it.settled("orders").await;
    let due = doc! { "customer": "Ada", "state": "placed", "events": 15_i64, "total": 15_i64, "_id": "a" };
    assert_eq!(it.record("orders", "a").await, Some(due));
}

/// The build still has its definition.
pub async fn a_restart_resumes_the_build_beside_the_live_one(subject: &dyn Subject) {
    let it = Projected::of(subject).await;
    it.put("orders", ORDERS).await;
    for n in 0..20 {
        it.commit(&format!("o-{n}"), "placed", json!({"customer": "Ada", "total": n})).await;
    }
    it.settled("orders").await;
    it.put("orders", &ORDERS.replace("\"state\": \"placed\"", "\"state\": \"new\"")).await;
    let it = it.restarted().await;
    let status = it.settled("orders").await;
    assert_eq!(status.build, 2);
    let records = it.records("orders").await;
    assert_eq!(records.len(), 20);
    assert!(records.iter().all(|record| record.get("state") == Some(&"new".into())), "{records:?}");
}
