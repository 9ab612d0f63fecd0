//! Changed definitions and rebuilds.

use std::collections::BTreeSet;

use annals_core::bson::doc;
use annals_core::projections::{
    PROJECTIONS, ProjectionAct, ProjectionDefinition, ProjectionError, ProjectionState, PutProjection,
};
use annals_core::{DEFAULT_TENANT, RecordError, RecordQuery};
use serde_json::json;

use crate::Subject;
use crate::projections::opened::{ORDERS, Projected};
use crate::unanswered::Unanswered;

async fn with_orders(subject: &dyn Subject, count: usize) -> Projected {
    let it = Projected::of(subject).await;
    it.put("orders", ORDERS).await;
    for n in 0..count {
        it.commit(&format!("o-{n:03}"), "placed", json!({"customer": "Ada", "total": n})).await;
    }
    it.settled("orders").await;
    it
}

fn renamed() -> String {
    ORDERS.replace("\"state\": \"placed\"", "\"state\": \"new\"")
}

/// This also holds after a restart.
pub async fn the_same_definition_again_does_nothing(subject: &dyn Subject) {
    let it = with_orders(subject, 2).await;
    assert_eq!(it.put("orders", &ORDERS.replace('\n', " ")).await, PutProjection::Unchanged);
    let it = it.restarted().await;
    assert_eq!(it.put("orders", ORDERS).await, PutProjection::Unchanged);
    let status = it.settled("orders").await;
    assert_eq!((status.build, status.building), (1, None));
}

/// During the build, reads see all of the earlier records; afterwards, all of the new ones.
pub async fn a_changed_definition_is_built_beside_and_reads_never_see_half(subject: &dyn Subject) {
    const COUNT: usize = 40;
    let it = with_orders(subject, COUNT).await;
    assert_eq!(it.put("orders", &renamed()).await, PutProjection::Changed);
    let mut seen = Vec::new();
    loop {
        let page = it.projections.find("orders", RecordQuery::new("").limit(1_000)).await.expect("found");
        let states: BTreeSet<_> =
            page.records.iter().map(|it| it.document.get_str("state").expect("there").to_owned()).collect();
        assert_eq!((page.records.len(), states.len()), (COUNT, 1), "{states:?}");
        let state = states.into_iter().next().expect("one");
        if seen.last() != Some(&state) {
            seen.push(state.clone());
        }
        if state == "new" {
            break;
        }
    }
    assert!(seen == ["new"] || seen == ["placed", "new"], "{seen:?}");
    let status = it.settled("orders").await;
    assert_eq!(status.build, 2);
    it.commit("o-x", "placed", json!({"customer": "Bob", "total": 1})).await;
    it.settled("orders").await;
    assert_eq!(it.records("orders").await.len(), COUNT + 1);
}

/// The live records stay unchanged.
pub async fn a_definition_that_is_taken_back_drops_its_build(subject: &dyn Subject) {
    let it = with_orders(subject, 3).await;
    it.projections.act("orders", ProjectionAct::Pause, "look first".into()).await.expect("allowed");
    assert_eq!(it.put("orders", &renamed()).await, PutProjection::Changed);
    let building = it.status("orders").await.building.expect("it is built beside");
    assert_eq!((building.build, building.state), (2, ProjectionState::Paused));
    assert_eq!(building.reason, "its definition changed");
    assert_eq!(it.put("orders", ORDERS).await, PutProjection::Changed);
    it.projections.act("orders", ProjectionAct::Resume, "looked".into()).await.expect("allowed");
    let status = it.settled("orders").await;
    assert_eq!((status.build, status.building), (1, None));
    assert_eq!(it.put("orders", &renamed()).await, PutProjection::Changed);
    let status = it.until("orders", |status| status.build == 3 && status.building.is_none()).await;
    assert_eq!(status.definition["on"]["placed"]["set"]["state"], "new");
}

/// The rebuild begins with the first event.
pub async fn a_rebuild_makes_the_same_records_in_another_collection(subject: &dyn Subject) {
    let it = with_orders(subject, 5).await;
    let (before, records) = (it.status("orders").await, it.records("orders").await);
    it.projections.act("orders", ProjectionAct::Rebuild, "it was edited by hand".into()).await.expect("allowed");
    let after = it.until("orders", |status| status.build == 2).await;
    assert_ne!(before.collection, after.collection);
    assert_eq!(it.records("orders").await, records);
}

/// They hold events that never happened. Reads see them until the next build has caught up. A restore to a number that the projection has
/// not passed changes nothing.
pub async fn the_records_of_a_restored_store_are_rebuilt_and_the_reason_is_recorded(subject: &dyn Subject) {
    let it = with_orders(subject, 4).await;
    let records = it.records("orders").await;
    let it = it.restored_to(2).await;
    let status = it.until("orders", |status| status.build == 2 && status.building.is_none()).await;
    assert_eq!((status.position, status.state), (4, ProjectionState::Running));
    assert_eq!(it.records("orders").await, records);
    let rebuilds = async |it: &Projected| {
        let acts = it.projections.acts("orders", None, 100).await.expect("listed").items;
        acts.into_iter().filter(|act| act.act == "rebuild").collect::<Vec<_>>()
    };
    let recorded = rebuilds(&it).await;
    assert_eq!(recorded.len(), 1, "{recorded:?}");
    assert_eq!(recorded[0].by.as_deref(), Some("annals"));
    assert!(recorded[0].reason.contains("restored"), "{recorded:?}");
    let it = it.restarted().await.restored_to(4).await;
    it.commit("o-004", "placed", json!({"customer": "Ada", "total": 4})).await;
    let status = it.settled("orders").await;
    assert_eq!((status.build, status.position), (2, 5));
    assert_eq!((it.records("orders").await.len(), rebuilds(&it).await.len()), (5, 1));
}

/// Their collection is used again.
pub async fn records_of_a_dropped_build_are_removed(subject: &dyn Subject) {
    let it = with_orders(subject, 5).await;
    let first = it.status("orders").await.collection;
    it.projections.act("orders", ProjectionAct::Rebuild, "one".into()).await.expect("allowed");
    it.until("orders", |status| status.build == 2).await;
    let records = it.it.store.records(DEFAULT_TENANT).expect("declared");
    while records.count(&first, &annals_core::Condition::All).await.expect("counted") > 0 {
        crate::between_looks().await;
    }
    // Its last step is to report that nothing is left.
    loop {
        let found = records.get("annals-projections", &"orders".into()).await.expect("read").expect("there");
        if found.document.get_array("dropped").expect("an array").is_empty() {
            break;
        }
        crate::between_looks().await;
    }
    it.projections.act("orders", ProjectionAct::Rebuild, "two".into()).await.expect("allowed");
    let third = it.until("orders", |status| status.build == 3).await;
    assert_eq!(third.collection, first);
    assert_eq!(it.records("orders").await.len(), 5);
}

/// An old program cannot replace the definition of a newer one.
pub async fn an_older_version_is_refused(subject: &dyn Subject) {
    let it = Projected::of(subject).await;
    let reduce = |n: i64| {
        move |record: &mut Option<annals_core::bson::Document>, _: &annals_core::RecordedEvent| {
            *record = Some(doc! { "by": n });
            Ok(())
        }
    };
    it.commit("a", "placed", json!({})).await;
    for version in [1, 2] {
        let definition = ProjectionDefinition::program("p", version);
        it.it.host.project(DEFAULT_TENANT, definition, reduce(version.into())).await.expect("defined");
        it.settled("p").await;
        assert_eq!(it.records("p").await, [doc! { "by": i64::from(version), "_id": "a" }]);
    }
    let older = it.it.host.project(DEFAULT_TENANT, ProjectionDefinition::program("p", 1), reduce(1)).await;
    assert!(
        matches!(&older, Err(ProjectionError::NotAllowed { state, .. }) if state.contains("version 2")),
        "{older:?}"
    );
    let unregistered = it.projections.put(ProjectionDefinition::program("q", 1)).await;
    assert!(matches!(unregistered, Err(ProjectionError::Invalid(_))), "{unregistered:?}");
}

/// Meanwhile, the live build stays where it is.
pub async fn a_changed_definition_gets_past_an_event_that_did_not_fit(subject: &dyn Subject) {
    let it = with_orders(subject, 1).await;
    it.commit("o-bad", "placed", json!({"customer": "Eve", "total": "five"})).await;
    it.commit("o-001", "placed", json!({"customer": "Bob", "total": 1})).await;
    it.until("orders", |status| status.state == ProjectionState::Blocked).await;
    let lenient =
        ORDERS.replace("\"increment\": {\"total\": \"$data.total\", \"events\": 1}", "\"increment\": {\"events\": 1}");
    it.put("orders", &lenient).await;
    let status = it.settled("orders").await;
    assert_eq!((status.build, status.state, status.last_reason), (2, ProjectionState::Running, None));
    assert_eq!(it.records("orders").await.len(), 3);
    let unknown = it.it.store.records(DEFAULT_TENANT).expect("declared").find(RecordQuery::new("nothing")).await;
    assert!(matches!(unknown, Err(RecordError::UnknownCollection(_))));
}

/// It is built in this process, where no other one can define projections.
pub async fn a_new_projection_is_built_although_the_caller_goes_away(subject: &dyn Subject) {
    let (store, unanswered) = Unanswered::before(subject.open().await, PROJECTIONS);
    let it = Projected::on(store, subject.clock());
    // The task that starts definitions reads them once, and must not find this one.
    let follows = format!("projections/{DEFAULT_TENANT}");
    while !it.it.store.is_shared() && it.it.host.tasks().iter().any(|task| task.name == follows) {
        crate::between_looks().await;
    }
    it.commit("a", "placed", json!({"customer": "Ada", "total": 1})).await;
    let definition = ProjectionDefinition::read("orders", ORDERS.as_bytes()).expect("a definition");
    unanswered.abandon(it.projections.put(definition)).await;
    it.settled("orders").await;
    assert_eq!(it.records("orders").await.len(), 1);
}
