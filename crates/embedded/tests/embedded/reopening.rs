//! What is served after a crash was made durable before, also when there is a crash while recovering from one.

use std::sync::Arc;

use annals_conformance::history::{History, read_all};
use annals_core::{Data, EventLog, NewCommit, NewEvent, Store};

use crate::faulty_disk::{Fault, FaultyDisk};
use crate::stores::{block_on, open, repeatable, roomy_segments};

/// More operations than an opening of these small stores has.
const OPERATIONS_MAX: u64 = 60;

fn commit(n: u64) -> NewCommit {
    let data =
        Data::from_value(&serde_json::json!({ "n": n, "text": "x".repeat(n as usize % 200) })).expect("an object");
    NewCommit::new("order", format!("{}", n % 5)).event(NewEvent::new("placed", data)).request_id(format!("r-{n}"))
}

async fn commit_some(log: &Arc<dyn EventLog>, from: u64, count: u64) -> u64 {
    for n in from..from + count {
        if log.commit(commit(n)).await.is_err() {
            return n;
        }
    }
    from + count
}

/// The first life of a store ends at every operation of its creation; the second serves commits; the third comes after power loss.
#[test]
fn a_store_whose_creation_was_killed_anywhere_survives_power_loss() {
    block_on(async {
        for (operation, seed) in (0..OPERATIONS_MAX).flat_map(|operation| (0..5).map(move |seed| (operation, seed))) {
            let first = FaultyDisk::new(seed);
            first.plan(operation, Fault::End);
            drop(open(first.clone(), repeatable(seed)));
            let second = first.after_kill();
            let opened = open(second.clone(), repeatable(seed + 1)).expect("what a killed process left opens");
            let identity = opened.store.identity("default");
            let history = History::new();
            let log = history.watch("client", opened.log.clone());
            assert_eq!(commit_some(&log, 0, 5).await, 5);
            let third = second.after_power_loss();
            let opened = open(third, repeatable(seed + 2))
                .unwrap_or_else(|error| panic!("ended at {operation}, seed {seed}: {error}"));
            assert_eq!(opened.store.identity("default"), identity, "ended at {operation}, seed {seed}");
            history
                .check(&history.watch("checker", opened.log.clone()))
                .await
                .unwrap_or_else(|broken| panic!("{broken}"));
        }
    });
}

/// A store with a torn tail is opened by processes that each end one operation later, by kill -9 and by power loss; none of them may
/// make worse what the next one finds.
#[test]
fn recovery_may_end_at_any_operation() {
    block_on(async {
        for seed in 0..20 {
            let mut disk = FaultyDisk::new(seed);
            let history = History::new();
            let opened = open(disk.clone(), repeatable(seed)).expect("an empty disk opens");
            disk.plan(20 + seed * 3, Fault::End);
            commit_some(&history.watch("first", opened.log.clone()), 0, 100).await;
            disk = disk.after_power_loss();
            history.restarted();
            drop(opened);
            for operation in 0..OPERATIONS_MAX {
                disk.plan(operation, Fault::End);
                if let Ok(opened) = open(disk.clone(), repeatable(seed + operation)) {
                    let refusing = opened.status().refusing;
                    assert_eq!(refusing, None, "seed {seed}, ended at {operation}");
                    // It may end while reading; what was read counts.
                    let _ = read_all(&history.watch("reader", opened.log.clone())).await;
                }
                disk = if (operation + seed) % 2 == 0 { disk.after_kill() } else { disk.after_power_loss() };
                history.restarted();
            }
            let opened = open(disk.clone(), repeatable(seed)).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            let log = history.watch("last", opened.log.clone());
            history.check(&log).await.unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
            commit_some(&log, 1_000, 10).await;
            history.check(&log).await.unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
        }
    });
}

/// A sync fails, the process is killed, the next one serves what the page cache shows; then the power goes. What was served is there.
#[test]
fn what_is_served_after_a_failed_sync_and_a_kill_survives_power_loss() {
    block_on(async {
        let mut served_more = 0;
        for seed in 0..150 {
            let mut disk = FaultyDisk::new(seed);
            let history = History::new();
            let opened = open(disk.clone(), repeatable(seed)).expect("an empty disk opens");
            disk.plan(5 + seed % 40, Fault::Error);
            let reached = commit_some(&history.watch("first", opened.log.clone()), 0, 60).await;
            disk = disk.after_kill();
            history.restarted();
            drop(opened);
            let opened = open(disk.clone(), repeatable(seed)).expect("what a killed process left opens");
            let served = read_all(&history.watch("second", opened.log.clone())).await.expect("the log is read");
            served_more += usize::from(served.len() as u64 > reached);
            disk = disk.after_power_loss();
            history.restarted();
            drop(opened);
            let opened = open(disk.clone(), repeatable(seed)).expect("it opens");
            let log = history.watch("third", opened.log.clone());
            history.check(&log).await.unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
        }
        assert!(served_more > 5, "a commit whose sync failed was served {served_more} times");
    });
}

/// After a failed write or sync nothing is taken any more until the store is opened again; then retries tell what became of it.
#[test]
fn after_a_failed_sync_commits_are_refused_until_reopened() {
    block_on(async {
        for seed in 0..30 {
            let disk = FaultyDisk::new(seed);
            // Roomy segments, so that nothing but these commits is written.
            let opened = open(disk.clone(), roomy_segments()).expect("an empty disk opens");
            assert_eq!(commit_some(&opened.log, 0, 3).await, 3);
            disk.plan(seed % 2, Fault::Error);
            let error = opened.log.commit(commit(3)).await.expect_err("its write or sync fails");
            assert_eq!(error.code(), annals_core::Code::StoreFailed);
            for n in [3, 4] {
                let error = opened.log.commit(commit(n)).await.expect_err("it is refused");
                assert_eq!(error.code(), annals_core::Code::StoreFailed);
            }
            assert!(opened.status().refusing.is_some());
            assert_eq!(read_all(&opened.log).await.expect("reads go on").len(), 3);
            opened.store.close().await;
            drop(opened);
            let opened = open(disk.clone(), roomy_segments()).expect("it opens again");
            assert!(opened.status().refusing.is_none());
            let retried = opened.log.commit(commit(3)).await.expect("the retry tells");
            assert_eq!(retried.first_sequence_number, Some(3));
            assert_eq!(read_all(&opened.log).await.expect("the log is read").len(), 4);
        }
    });
}
