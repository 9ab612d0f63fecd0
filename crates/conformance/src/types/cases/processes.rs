//! Several processes on one store.

use annals_core::Code;
use serde_json::json;

use super::Typed;
use crate::Subject;

/// It holds in all of them.
pub async fn what_another_process_registers_holds_within_a_second(subject: &dyn Subject) {
    let store = subject.open().await;
    let beside = subject.open_beside(&store).await;
    let (one, two) = (Typed::on(store, subject.clock()), Typed::on(beside, subject.clock()));
    two.commit("placed", json!({"total": "many"})).await.expect("not registered yet");
    one.register("placed").await;
    one.commit("placed", json!({"total": "many"})).await.expect_err("registered here");
    subject.clock().advance_millis(1_000);
    let refused = two.commit("placed", json!({"total": "many"})).await.expect_err("registered there");
    assert_eq!(refused.code(), Code::SchemaViolation);
}
