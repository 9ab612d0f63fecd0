//! Several processes on one store.

use annals_core::archive::ArchiveTarget;

use crate::Subject;
use crate::archive::opened::Archived;

/// Each event once, although their leases end whenever days pass at once.
pub async fn of_two_processes_one_archives_and_the_other_goes_on_after_it(subject: &dyn Subject) {
    const EACH: u64 = 3;
    let one = Archived::of(subject).await;
    let other = one.beside(subject).await;
    one.rule("placed", 1, ArchiveTarget::Collection).await;
    let mut ids = Vec::new();
    for round in 1..=3 {
        for _ in 0..EACH {
            ids.push(one.commit("placed").await);
        }
        other.pass_days(2);
        other.until(|status| status.archived == round * EACH).await;
    }
    drop(one);
    for _ in 0..EACH {
        ids.push(other.commit("placed").await);
    }
    other.pass_days(2);
    other.until(|status| status.archived == 4 * EACH).await;
    let mut archived: Vec<_> =
        other.archived().await.iter().map(|it| it.get_str("event_id").expect("its id").to_owned()).collect();
    archived.sort();
    ids.sort();
    assert_eq!(archived, ids);
}
