//! Acts of operators.

use annals_core::Code;
use annals_core::projections::{ProjectionAct, ProjectionState, PutProjection};
use serde_json::json;

use crate::Subject;
use crate::projections::opened::{ORDERS, Projected};

/// It stays paused across a restart.
pub async fn a_paused_projection_folds_nothing_until_it_is_resumed(subject: &dyn Subject) {
    let it = Projected::of(subject).await;
    it.put("orders", ORDERS).await;
    it.settled("orders").await;
    it.projections.act("orders", ProjectionAct::Pause, "look first".into()).await.expect("allowed");
    let again = it.projections.act("orders", ProjectionAct::Pause, "look again".into()).await;
    assert_eq!(again.expect_err("it is paused").code(), Code::StateConflict);
    let it = it.restarted().await;
    it.commit("a", "placed", json!({"customer": "Ada", "total": 1})).await;
    let status = it.until("orders", |status| status.owner.is_some()).await;
    assert_eq!((status.state, status.position, status.lag), (ProjectionState::Paused, 0, 1));
    assert!(it.records("orders").await.is_empty());
    it.projections.act("orders", ProjectionAct::Resume, "looked".into()).await.expect("allowed");
    it.settled("orders").await;
    assert_eq!(it.records("orders").await.len(), 1);
    let again = it.projections.act("orders", ProjectionAct::Resume, "again".into()).await;
    assert_eq!(again.expect_err("it runs").code(), Code::StateConflict);
}

/// The new one begins with the first event.
pub async fn a_deleted_projection_is_unknown_and_can_be_defined_again(subject: &dyn Subject) {
    let it = Projected::of(subject).await;
    it.put("orders", ORDERS).await;
    it.commit("a", "placed", json!({"customer": "Ada", "total": 1})).await;
    it.settled("orders").await;
    it.projections.delete("orders", "nobody reads it".into()).await.expect("deleted");
    assert_eq!(it.projections.get("orders").await.expect_err("deleted").code(), Code::UnknownProjection);
    assert!(it.projections.list(None, 10).await.expect("listed").items.is_empty());
    let found = it.projections.record("orders", &"a".into()).await;
    assert_eq!(found.expect_err("deleted").code(), Code::UnknownProjection);
    assert_eq!(it.put("orders", ORDERS).await, PutProjection::Created);
    it.settled("orders").await;
    let record = it.record("orders", "a").await.expect("there");
    assert_eq!(record.get("events"), Some(&1_i64.into()));
    let names: Vec<_> =
        it.projections.list(None, 10).await.expect("listed").items.into_iter().map(|it| it.name).collect();
    assert_eq!(names, ["orders"]);
}

/// The newest act comes first.
pub async fn acts_are_recorded_with_their_reasons(subject: &dyn Subject) {
    let it = Projected::of(subject).await;
    it.put("orders", ORDERS).await;
    it.settled("orders").await;
    for (act, reason) in
        [(ProjectionAct::Pause, "first"), (ProjectionAct::Resume, "second"), (ProjectionAct::Rebuild, "third")]
    {
        it.it.advance(10);
        it.projections.act("orders", act, reason.into()).await.expect("allowed");
    }
    let none = it.projections.act("orders", ProjectionAct::Pause, "".into()).await;
    assert!(none.is_err(), "it needs a reason");
    it.it.advance(10);
    it.projections.delete("orders", "fourth".into()).await.expect("deleted");
    let acts = it.projections.acts("orders", None, 10).await.expect("listed").items;
    let acts: Vec<_> = acts.iter().map(|it| (it.act.as_str(), it.reason.as_str())).collect();
    assert_eq!(acts, [("delete", "fourth"), ("rebuild", "third"), ("resume", "second"), ("pause", "first")]);
}

/// Each operation refuses it.
pub async fn what_is_unknown_is_refused_by_name(subject: &dyn Subject) {
    let it = Projected::of(subject).await;
    let (name, unknown) = ("nothing", Code::UnknownProjection);
    assert_eq!(it.projections.get(name).await.expect_err("unknown").code(), unknown);
    assert_eq!(it.projections.acts(name, None, 10).await.expect_err("unknown").code(), unknown);
    assert_eq!(it.projections.delete(name, "why not".into()).await.expect_err("unknown").code(), unknown);
    let acted = it.projections.act(name, ProjectionAct::Rebuild, "why not".into()).await;
    assert_eq!(acted.expect_err("unknown").code(), unknown);
    let stage = it.it.host.stage(annals_core::DEFAULT_TENANT, "projected:nothing").await;
    assert_eq!(stage.expect_err("unknown").code(), unknown);
}
