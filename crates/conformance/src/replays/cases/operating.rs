//! Acts of operators on replays, and restarts.

use std::sync::Arc;

use annals_core::DEFAULT_TENANT;
use annals_core::browse::BrowseQuery;
use annals_core::processing::PartitionBy;
use annals_core::replays::{REPLAY_SESSIONS, ReplayAct, ReplayBody, ReplayError, ReplayState, ReplayTarget};

use super::sending::{into, with_exports};
use super::{numbers, to_handler, to_nowhere};
use crate::Subject;
use crate::archive::opened::DAY;
use crate::browse::opened::{Browsed, of_type};
use crate::mortal::Life;

async fn refused(it: &Browsed, id: &str, act: ReplayAct) -> String {
    match it.replays.act(id, act, "a test".into()).await {
        Err(ReplayError::NotAllowed { state, .. }) => state,
        other => panic!("{act:?}: {other:?}"),
    }
}

/// This also holds once it is over, and its state stays.
pub async fn acts_that_the_state_does_not_allow_are_refused_with_the_state(subject: &dyn Subject) {
    let it = Browsed::of(subject).await;
    it.commit_many("placed", 2).await;
    let id = it.create(to_nowhere()).await;
    for act in [ReplayAct::Pause, ReplayAct::Resume] {
        assert_eq!(refused(&it, &id, act).await, "created");
    }
    it.act(&id, ReplayAct::Start).await;
    it.over(&id).await;
    for act in [ReplayAct::Start, ReplayAct::Pause, ReplayAct::Resume, ReplayAct::Cancel] {
        assert_eq!(refused(&it, &id, act).await, "completed");
    }
    assert_eq!(it.replays.get(&id).await.expect("known").status, ReplayState::Completed);
    let unknown = it.replays.act("nothing", ReplayAct::Start, "a test".into()).await;
    assert_eq!(unknown, Err(ReplayError::Unknown("nothing".into())));
}

/// None is lost and none comes twice.
pub async fn a_paused_replay_continues_with_the_next_event(subject: &dyn Subject) {
    let it = Browsed::of(subject).await;
    it.commit_many("placed", 12).await;
    it.handler(PartitionBy::None).await;
    let id = it.begin(ReplayBody { rate: Some(1.0), ..to_handler() }).await;
    let mut sent = it.handled(1).await;
    it.it.clock.advance_millis(1_000);
    sent.extend(it.handled(1).await);
    assert_eq!(it.act(&id, ReplayAct::Pause).await.status, ReplayState::Paused);
    it.it.clock.advance_millis(60_000);
    for _ in 0..20 {
        assert!(it.it.pull_now("again").await.is_empty());
        tokio::task::yield_now().await;
    }
    let paused = it.replays.get(&id).await.expect("known");
    assert_eq!((paused.status, paused.replayed, paused.eta), (ReplayState::Paused, 2, None));
    it.act(&id, ReplayAct::Resume).await;
    while sent.len() < 12 {
        sent.extend(it.handled(1).await);
        it.it.clock.advance_millis(1_000);
    }
    assert_eq!(numbers(&sent), (0..12).collect::<Vec<_>>());
    assert_eq!(it.over(&id).await.replayed, 12);
}

/// The other one is refused with the state.
pub async fn of_two_callers_that_resume_a_replay_one_succeeds(subject: &dyn Subject) {
    let it = Browsed::of(subject).await;
    it.commit_many("placed", 3).await;
    let id = it.begin(ReplayBody { rate: Some(1.0), ..to_nowhere() }).await;
    it.act(&id, ReplayAct::Pause).await;
    let resume = || {
        let (replays, id) = (Arc::clone(&it.replays), id.clone());
        tokio::spawn(async move { replays.act(&id, ReplayAct::Resume, "a test".into()).await })
    };
    let (one, two) = (resume(), resume());
    let results = [one.await.expect("it ends"), two.await.expect("it ends")];
    let won = results.iter().filter(|result| result.is_ok()).count();
    let lost =
        results.iter().filter(|it| matches!(it, Err(ReplayError::NotAllowed { state, .. }) if state == "running"));
    assert_eq!((won, lost.count()), (1, 1), "{results:?}");
}

/// Deliveries that were not taken are removed.
pub async fn a_cancelled_replay_sends_nothing_more(subject: &dyn Subject) {
    let it = Browsed::of(subject).await;
    it.commit_many("placed", 12).await;
    it.handler(PartitionBy::None).await;
    let id = it.begin(to_handler()).await;
    it.until_replay(&id, |status| status.replayed == 12).await;
    it.handled(2).await;
    let cancelled = it.act(&id, ReplayAct::Cancel).await;
    assert_eq!(cancelled.status, ReplayState::Cancelled);
    assert!(it.it.pull_now("again").await.is_empty());
    assert_eq!(refused(&it, &id, ReplayAct::Resume).await, "cancelled");
}

/// It is listed with its progress.
pub async fn a_restart_continues_with_the_next_event(subject: &dyn Subject) {
    let mut it = Browsed::of(subject).await;
    it.commit_many("placed", 9).await;
    it.handler(PartitionBy::None).await;
    let id = it.begin(ReplayBody { rate: Some(1.0), ..to_handler() }).await;
    let mut sent = Vec::new();
    for n in 0..9 {
        sent.extend(numbers(&it.handled(1).await));
        if n % 3 == 1 {
            it = it.restarted().await;
            let listed = it.replays.list(None, None, 10).await.expect("listed");
            assert_eq!(listed.items[0].session_id, id);
            assert!(listed.items[0].replayed > n, "{:?}", listed.items[0]);
        }
        it.it.clock.advance_millis(1_000);
    }
    assert_eq!(sent, (0..9).collect::<Vec<_>>());
    assert_eq!(it.over(&id).await.replayed, 9);
}

/// It is killed at the write that stores an event as sent: once before the write reaches the store, and once after it.
pub async fn a_replay_whose_process_is_killed_continues_with_the_next_event(subject: &dyn Subject) {
    let folder = tempfile::tempdir().expect("a folder");
    let it = with_exports(subject, folder.path()).await;
    it.browse.page(BrowseQuery::default()).await.expect("a page");
    it.it.host.drain().await;
    for is_applied in [false, true] {
        let name = format!("{is_applied}.jsonl");
        let file = ReplayTarget::File { name: name.clone() };
        let body = ReplayBody { batch_size: 1, ..ReplayBody::new(of_type("placed"), file) };
        // Before it, the replay is created, started and counted, and the first event is sent.
        let life = Life::of(&[REPLAY_SESSIONS], 4, is_applied);
        let dying = Browsed::with(life.store(&it.it.store), Arc::clone(&it.it.clock), into(folder.path()));
        let id = dying.begin(body).await;
        while !life.is_over() {
            it.it.advance(100);
            crate::between_looks().await;
        }
        dying.it.host.drain().await;
        let next = Browsed::with(Arc::clone(&it.it.store), Arc::clone(&it.it.clock), into(folder.path()));
        let over = loop {
            let status = next.replays.get(&id).await.expect("known");
            if status.status.is_terminal() {
                break status;
            }
            it.it.advance(100);
            crate::between_looks().await;
        };
        next.it.host.drain().await;
        assert_eq!((over.status, over.replayed, over.failed), (ReplayState::Completed, 5, 0));
        let text = std::fs::read_to_string(folder.path().join(DEFAULT_TENANT).join(name)).expect("a file");
        let number = |line: &str| serde_json::from_str::<serde_json::Value>(line).expect("JSON")["n"].as_i64();
        assert_eq!(text.lines().map(number).collect::<Vec<_>>(), [0, 1, 2, 3, 4].map(Some));
    }
}

/// Running ones stay.
pub async fn replays_that_ended_long_ago_are_removed(subject: &dyn Subject) {
    let it = Browsed::of(subject).await;
    it.commit_many("placed", 2).await;
    let ended = it.begin(to_nowhere()).await;
    it.over(&ended).await;
    let created = it.create(to_nowhere()).await;
    assert_eq!(it.replays.clean_up(24).await, Ok(0));
    it.it.clock.advance_millis(25 * 3_600_000);
    assert_eq!(it.replays.clean_up(24).await, Ok(1));
    assert_eq!(it.replays.get(&ended).await, Err(ReplayError::Unknown(ended.as_str().into())));
    assert_eq!(it.replays.get(&created).await.expect("known").status, ReplayState::Created);
}

/// Those that ended later, and those that are not over, stay.
pub async fn replays_that_ended_a_month_ago_are_removed_without_a_request(subject: &dyn Subject) {
    let it = Browsed::of(subject).await;
    it.commit_many("placed", 2).await;
    let ended = it.begin(to_nowhere()).await;
    it.over(&ended).await;
    let created = it.create(to_nowhere()).await;
    it.it.clock.advance_millis(15 * DAY);
    let later = it.begin(to_nowhere()).await;
    it.over(&later).await;
    it.it.clock.advance_millis(15 * DAY);
    while it.replays.get(&ended).await.is_ok() {
        it.it.clock.advance_millis(10 * 60 * 1_000);
        crate::between_looks().await;
    }
    assert_eq!(it.replays.get(&ended).await, Err(ReplayError::Unknown(ended.as_str().into())));
    assert_eq!(it.replays.get(&later).await.expect("it ended later").status, ReplayState::Completed);
    assert_eq!(it.replays.get(&created).await.expect("it is not over").status, ReplayState::Created);
}

/// They are followed from the state that a reader knows to the end.
pub async fn changes_of_a_replay_are_followed(subject: &dyn Subject) {
    let it = Browsed::of(subject).await;
    it.commit_many("placed", 5).await;
    let id = it.create(ReplayBody { batch_size: 1, ..to_nowhere() }).await;
    let mut seen = it.replays.changed(&id, None).await.expect("known");
    assert_eq!(seen.status, ReplayState::Created);
    it.act(&id, ReplayAct::Start).await;
    let mut sent = 0;
    while !seen.status.is_terminal() {
        let next = tokio::select! {
            next = it.replays.changed(&id, Some(&seen)) => next.expect("known"),
            // A store that processes share is polled by its clock.
            () = async { loop { tokio::task::yield_now().await; it.it.clock.advance_millis(100) } } => unreachable!(),
        };
        assert!(next.replayed >= sent, "{next:?}");
        (sent, seen) = (next.replayed, next);
    }
    assert_eq!((seen.status, seen.replayed), (ReplayState::Completed, 5));
}
