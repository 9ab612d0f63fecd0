//! Several processes on one store.

use std::sync::Arc;

use annals_core::processing::PartitionBy;
use annals_core::replays::{ReplayAct, ReplayBody, ReplayError, ReplayState};

use super::{numbers, to_handler, to_nowhere};
use crate::Subject;
use crate::browse::opened::Browsed;

/// The other one is refused with the state.
pub async fn of_two_processes_that_resume_a_replay_one_succeeds(subject: &dyn Subject) {
    let it = Browsed::of(subject).await;
    let other = Browsed::on(Arc::clone(&it.it.store), Arc::clone(&it.it.clock));
    it.commit_many("placed", 3).await;
    let id = it.begin(ReplayBody { rate: Some(1.0), ..to_nowhere() }).await;
    for _ in 0..5 {
        let pause = |of: &Browsed| {
            let (replays, id) = (Arc::clone(&of.replays), id.clone());
            async move { replays.act(&id, ReplayAct::Pause, "a test".into()).await }
        };
        pause(&it).await.expect("it runs");
        let resume = |of: &Browsed| {
            let (replays, id) = (Arc::clone(&of.replays), id.clone());
            tokio::spawn(async move { replays.act(&id, ReplayAct::Resume, "a test".into()).await })
        };
        let (one, two) = (resume(&it), resume(&other));
        let results = [one.await.expect("it ends"), two.await.expect("it ends")];
        let won = results.iter().filter(|result| result.is_ok()).count();
        let lost =
            results.iter().filter(|it| matches!(it, Err(ReplayError::NotAllowed { state, .. }) if state == "running"));
        assert_eq!((won, lost.count()), (1, 1), "{results:?}");
    }
}

/// With the next event, when the first one dies.
pub async fn another_process_continues_a_replay(subject: &dyn Subject) {
    let it = Browsed::of(subject).await;
    it.commit_many("placed", 6).await;
    it.handler(PartitionBy::None).await;
    let id = it.begin(ReplayBody { rate: Some(1.0), ..to_handler() }).await;
    let mut sent = numbers(&it.handled(1).await);
    it.it.clock.advance_millis(1_000);
    let (store, clock) = (Arc::clone(&it.it.store), Arc::clone(&it.it.clock));
    it.it.host.drain().await;
    drop(it);
    let other = Browsed::on(store, clock);
    while sent.len() < 6 {
        other.it.clock.advance_millis(1_000);
        sent.extend(numbers(&other.handled(1).await));
    }
    assert_eq!(sent, [0, 1, 2, 3, 4, 5]);
    assert_eq!(other.over(&id).await.status, ReplayState::Completed);
}
