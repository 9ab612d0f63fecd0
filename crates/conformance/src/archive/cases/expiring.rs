//! The store's own deletion of expired documents, at work while events are archived and replayed.

use annals_core::Condition;
use annals_core::archive::{ArchiveTarget, EVENTS_ARCHIVE};
use annals_core::browse::EVENTS;
use annals_core::replays::{ReplayBody, ReplayState};

use crate::archive::opened::Archived;
use crate::replays::cases::to_nowhere;
use crate::{Subject, between_looks};

const EVENTS_OF_EACH: u64 = 6;

/// The archive keeps what is deleted, and events without a rule stay. A replay that runs meanwhile passes over what is gone, and ends.
///
/// It is in no suite: it needs a store that looks for expired documents often, by the subject's clock or by one that is ahead of that.
pub async fn a_store_deletes_archived_events_alone_and_a_replay_that_runs_meanwhile_ends(subject: &dyn Subject) {
    let it = Archived::of(subject).await;
    for _ in 0..EVENTS_OF_EACH {
        for event_type in ["placed", "paid"] {
            it.commit(event_type).await;
        }
    }
    let count = async |place: &str, event_type: &str| {
        it.it.records.count(place, &Condition::eq("event_type", event_type)).await.unwrap_or(0)
    };
    assert_eq!((count(EVENTS, "placed").await, count(EVENTS, "paid").await), (EVENTS_OF_EACH, EVENTS_OF_EACH));

    let id = it.it.begin(ReplayBody { batch_size: 1, rate: Some(1.0), ..to_nowhere() }).await;
    let replay = async || it.it.replays.get(&id).await.expect("known");
    while replay().await.replayed == 0 {
        between_looks().await;
    }
    it.rule("placed", 1, ArchiveTarget::Collection).await;
    it.pass_days(2);
    while count(EVENTS, "placed").await > 0 {
        between_looks().await;
    }
    assert_eq!(count(EVENTS_ARCHIVE, "placed").await, EVENTS_OF_EACH, "all of them were archived before");
    assert_eq!(count(EVENTS, "paid").await, EVENTS_OF_EACH);
    while !replay().await.status.is_terminal() {
        it.it.it.clock.advance_millis(1_000);
        between_looks().await;
    }
    let over = replay().await;
    assert_eq!((over.status, over.failed), (ReplayState::Completed, 0));
    assert!((1..=EVENTS_OF_EACH).contains(&over.replayed), "{over:?}");
    it.it.it.host.drain().await;
    it.it.it.store.close().await;
}
