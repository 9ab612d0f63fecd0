//! Several processes on one store.

use std::path::Path;
use std::sync::Arc;

use annals_core::browse::{BrowseQuery, ViewSwitch};
use annals_core::handlers::{HandlerDefinition, Start};
use annals_core::processing::PartitionBy;
use annals_core::replays::{INBOX, InboxRecord, ReplayAct, ReplayBody, ReplayError, ReplayState, ReplayTarget};
use annals_core::spread::ProcessRecord;
use annals_core::{DEFAULT_TENANT, RecordQuery, Timestamp, TypedRecords};
use tokio::sync::Notify;

use super::sending::into;
use super::{Stuck, numbers, to_handler, to_nowhere};
use crate::browse::opened::{Browsed, of_type};
use crate::{ManualClock, Subject};

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

/// It continues with the next event when the first process dies.
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

/// Begins a replay of three events to a file, in a process whose folder for it is a file. Returns the process and the replay's id.
async fn begun_without_a_folder(subject: &dyn Subject, folder: &Path, name: &str) -> (Browsed, String) {
    let broken = folder.join("broken");
    std::fs::write(&broken, "a file").expect("written");
    let one = Browsed::with(subject.open().await, subject.clock(), into(&broken));
    one.switch(Some(ViewSwitch::Auto)).await;
    one.commit_many("placed", 3).await;
    one.browse.page(BrowseQuery::default()).await.expect("a page");
    let to_file = ReplayTarget::File { name: name.to_owned() };
    let id = one.begin(ReplayBody::new(of_type("placed"), to_file)).await;
    (one, id)
}

/// A process whose export folder cannot be used gives the lease back, although the process keeps running.
pub async fn a_replay_that_one_process_cannot_send_is_sent_by_another(subject: &dyn Subject) {
    let folder = tempfile::tempdir().expect("a folder");
    let sound = folder.path().join("sound");
    let (one, id) = begun_without_a_folder(subject, folder.path(), "events.jsonl").await;
    let task = format!("replay/{DEFAULT_TENANT}/{id}");
    while !one.it.host.tasks().iter().any(|running| running.name == task && running.restarts > 0) {
        crate::between_looks().await;
    }
    let other = Browsed::with(subject.open().await, subject.clock(), into(&sound));
    sends_three(&other, &id, &sound.join(DEFAULT_TENANT).join("events.jsonl")).await;
}

/// Waits until the replay is over, and asserts that three events are in the file of this process.
async fn sends_three(other: &Browsed, id: &str, file: &Path) {
    let over = loop {
        let status = other.replays.get(id).await.expect("known");
        if status.status.is_terminal() {
            break status;
        }
        // So slowly that the heartbeat of a live process does not expire while it is being written.
        other.it.advance(20);
        crate::between_looks().await;
    };
    assert_eq!((over.status, over.replayed, over.failed), (ReplayState::Completed, 3, 0));
    assert_eq!(over.error, None);
    let text = std::fs::read_to_string(file).expect("a file");
    assert_eq!(text.lines().count(), 3);
}

/// A process without one reports what is missing, and writes no file, wherever it was started.
pub async fn a_replay_to_a_file_is_left_to_a_process_that_has_a_folder(subject: &dyn Subject) {
    let folder = tempfile::tempdir().expect("a folder");
    let sound = folder.path().join("sound");
    let (one, id) = begun_without_a_folder(subject, folder.path(), "left-to-another.jsonl").await;
    one.it.host.drain().await;
    drop(one);
    let without = Browsed::on(subject.open().await, subject.clock());
    let task = format!("replay/{DEFAULT_TENANT}/{id}");
    let refused = loop {
        let status = without.replays.get(&id).await.expect("known");
        assert_eq!(status.status, ReplayState::Running);
        let running = without.it.host.tasks().into_iter().find(|running| running.name == task);
        if let Some(error) = running.and_then(|running| running.last_error) {
            break error;
        }
        without.it.advance(100);
        crate::between_looks().await;
    };
    assert!(refused.contains("server.exports"), "{refused}");
    let shown = without.replays.get(&id).await.expect("known").error.expect("it says what it waits for");
    assert!(shown.starts_with("waits for a process that can send it") && shown.contains(&refused), "{shown}");
    assert!(!Path::new(DEFAULT_TENANT).join("left-to-another.jsonl").exists());
    let other = Browsed::with(subject.open().await, subject.clock(), into(&sound));
    sends_three(&other, &id, &sound.join(DEFAULT_TENANT).join("left-to-another.jsonl")).await;
}

/// Its task would otherwise be restarted repeatedly, as if the replay were not being sent.
pub async fn a_process_that_cannot_send_a_replay_does_not_fail_while_another_one_sends_it(subject: &dyn Subject) {
    let folder = tempfile::tempdir().expect("a folder");
    let one = Browsed::with(subject.open().await, subject.clock(), into(folder.path()));
    one.switch(Some(ViewSwitch::Auto)).await;
    one.commit_many("placed", 6).await;
    one.browse.page(BrowseQuery::default()).await.expect("a page");
    let to_file = ReplayTarget::File { name: "slowly.jsonl".to_owned() };
    let id = one.begin(ReplayBody { rate: Some(1.0), ..ReplayBody::new(of_type("placed"), to_file) }).await;
    one.until_replay(&id, |status| status.replayed > 0).await;
    let without = Browsed::on(subject.open().await, subject.clock());
    let name = format!("replay/{DEFAULT_TENANT}/{id}");
    let mut steps = 0;
    // In less than half a lease, so that the sender is there however slowly it writes.
    while steps < 19 {
        let task = without.it.host.tasks().into_iter().find(|task| task.name == name);
        let runs = task.is_some_and(|task| {
            assert_eq!((task.restarts, task.last_error), (0, None));
            true
        });
        if runs {
            without.it.advance(100);
            steps += 1;
        }
        crate::between_looks().await;
    }
    let status = without.replays.get(&id).await.expect("known");
    assert_eq!((status.status, status.error), (ReplayState::Running, None));
}

/// By the other process's clock, every heartbeat of the process that handles the event has expired before it is written.
pub async fn an_event_that_a_process_handles_is_not_sent_again_by_one_whose_clock_is_ahead(subject: &dyn Subject) {
    let slow = Browsed::of(subject).await;
    slow.commit_many("placed", 1).await;
    let began = Arc::new(Notify::new());
    let definition = HandlerDefinition { start: Start::Latest, ..HandlerDefinition::new("again") };
    slow.it.host.handle(DEFAULT_TENANT, definition, Stuck(Arc::clone(&began))).await.expect("defined");
    slow.begin(to_handler()).await;
    began.notified().await;
    let inbox = TypedRecords::<InboxRecord>::declared(Arc::clone(&slow.records));
    let (mut sent, _) = inbox.find(RecordQuery::new(INBOX)).await.expect("reads");
    let holder = sent.remove(0).value.holder.expect("a process has it");
    let processes = TypedRecords::<ProcessRecord>::declared(Arc::clone(&slow.records));
    let heartbeat = async || {
        let found = processes.get(holder.as_str()).await.expect("reads");
        found.map_or(Timestamp::default(), |found| found.value.until())
    };
    let fast = Browsed::on(subject.open().await, Arc::new(ManualClock::at(slow.it.now_plus(60_000))));
    let mut last = Timestamp::default();
    for second in 0..10 {
        // The heartbeat is renewed once a second, and then time passes for the other process.
        while heartbeat().await == last {
            slow.it.advance(100);
            crate::between_looks().await;
        }
        last = heartbeat().await;
        for _ in 0..10 {
            let pulled = fast.it.pull_now("again").await;
            assert!(pulled.is_empty(), "after {second} s: {pulled:?}");
            fast.it.advance(100);
            crate::between_looks().await;
        }
    }
}
