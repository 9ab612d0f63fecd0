//! Several processes on one store.

use annals_core::Clock;
use annals_core::archive::ArchiveTarget;

use crate::Subject;
use crate::archive::opened::Archived;
use crate::between_looks;
use crate::browse::opened::{Sample, sample};

/// Each event once, although their leases end whenever days pass at once.
pub async fn of_two_processes_one_archives_and_the_other_goes_on_after_it(subject: &dyn Subject) {
    const EACH: u64 = 3;
    let one = Archived::of(subject).await;
    let other = one.beside(subject).await;
    one.rule("placed", 1, ArchiveTarget::Collection).await;
    let mut ids = Vec::new();
    for round in 1..=3 {
        ids.extend(committed(&one, EACH).await);
        other.pass_days(2);
        until_archived(&other, round * EACH).await;
    }
    drop(one);
    ids.extend(committed(&other, EACH).await);
    other.pass_days(2);
    until_archived(&other, 4 * EACH).await;
    let mut archived: Vec<_> =
        other.archived().await.iter().map(|it| it.get_str("event_id").expect("its id").to_owned()).collect();
    archived.sort();
    ids.sort();
    assert_eq!(archived, ids);
}

/// The ids of so many events that happen now.
async fn committed(it: &Archived, count: u64) -> Vec<String> {
    let mut ids = Vec::new();
    for _ in 0..count {
        let time = it.it.it.clock.now().as_millis();
        ids.push(it.it.commit(Sample { event_type: "placed", time, ..sample() }).await.to_string());
    }
    ids
}

/// Waits while seconds pass, by which processes ask for the leases of others.
async fn until_archived(it: &Archived, count: u64) {
    while it.archive.rules(None, 1).await.expect("read").archive.archived < count {
        it.it.it.clock.advance_millis(1_000);
        between_looks().await;
    }
}
