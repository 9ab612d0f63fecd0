//! Commits that wait for a projection: `projected:NAME`.

use annals_core::bson::doc;
use annals_core::projections::ProjectionAct;

use crate::Subject;
use crate::projections::opened::Projected;

const COUNTS: &str = r#"{"on": {"placed": {"increment": {"n": 1}}}}"#;

/// This also holds while a changed definition is being built.
pub async fn a_commit_waits_until_its_events_are_in_the_records(subject: &dyn Subject) {
    let it = Projected::of(subject).await;
    it.put("counts", COUNTS).await;
    for n in 1..=5_i64 {
        let outcome = it.it.commit_until("projected:counts", "a", &["placed", "placed"]).await;
        assert_eq!(outcome.reached().as_str(), "projected:counts");
        assert_eq!(it.record("counts", "a").await, Some(doc! { "n": 2 * n, "_id": "a" }));
        if n == 3 {
            it.projections.act("counts", ProjectionAct::Rebuild, "meanwhile".into()).await.expect("allowed");
        }
    }
}

/// It ends once the projection has passed them.
pub async fn a_wait_ends_for_events_that_are_not_the_projections(subject: &dyn Subject) {
    let it = Projected::of(subject).await;
    it.put("counts", COUNTS).await;
    let outcome = it.it.commit_until("projected:counts", "a", &["paid"]).await;
    assert_eq!(outcome.reached().as_str(), "projected:counts");
    assert!(it.records("counts").await.is_empty());
}
