//! Commits beside one that waits: other software has an insert of the same unique key in a transaction that it has not committed.

use std::sync::Arc;
use std::time::Duration;

use annals_core::{CommitError, CommitOutcome, EventLog, NewCommit, Store, Wait};
use annals_mongodb::Options;
use futures_util::future::join_all;
use mongodb::bson::{Document, doc};
use mongodb::{ClientSession, Collection};
use tokio::task::JoinHandle;

use crate::held::ORDERS;
use crate::server::{Databases, log_of, order, until, wow_commit};

/// A transaction of other software lives for a minute, and a commit waits for 20 s.
const IN_TIME: Duration = Duration::from_secs(15);

type Committing = JoinHandle<Result<CommitOutcome, CommitError>>;

fn stored(id: &str, n: u64) -> NewCommit {
    NewCommit { wait: Wait::default(), ..order(id, n) }
}

fn commit(log: &Arc<dyn EventLog>, commit: NewCommit) -> Committing {
    let log = log.clone();
    tokio::spawn(async move { log.commit(commit).await })
}

/// Inserts the first commits of these aggregates in a transaction, which stays open.
async fn hold(databases: &Databases, ids: &[String]) -> (ClientSession, Collection<Document>) {
    let database = databases.database().await;
    let commits = database.collection::<Document>(ORDERS);
    let mut session = database.client().start_session().await.expect("a session");
    session.start_transaction().await.expect("begun");
    for id in ids {
        let foreign = wow_commit(&format!("foreign-{id}"), id, 1, 7);
        commits.insert_one(foreign).session(&mut session).await.expect("inserted");
    }
    (session, commits)
}

async fn begun(databases: &Databases) -> (annals_mongodb::MongoStore, Arc<dyn EventLog>) {
    let store = databases.store(Options::default()).await;
    let log = log_of(&store);
    log.commit(order("before", 0)).await.expect("the collection is there");
    (store, log)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_waits_for_an_open_transaction_holds_up_none_of_its_batch() {
    let databases = Databases::new();
    let (store, log) = begun(&databases).await;
    let all: Vec<String> = (0..21).map(|n| format!("o-{n}")).collect();
    for (round, held) in [0, 10, 20].into_iter().enumerate() {
        let id = |n: usize| format!("{round}-{}", all[n]);
        let (mut session, _) = hold(&databases, &[id(held)]).await;
        // All at once, so that they share batches with the one that waits.
        let mut committing: Vec<(usize, Committing)> =
            (0..all.len()).map(|n| (n, commit(&log, stored(&id(n), n as u64)))).collect();
        let (_, waiting) = committing.remove(held);
        let others = join_all(committing.into_iter().map(|(_, committing)| committing));
        let answered = tokio::time::timeout(IN_TIME, others).await.expect("answered while the transaction is open");
        for outcome in answered {
            let outcome = outcome.expect("the task ends well").expect("committed");
            assert_eq!((outcome.version, outcome.duplicate), (1, false));
        }
        assert!(!waiting.is_finished(), "what it waits for is not decided");
        // Later commits are answered as well, and a retry of one that was answered is a duplicate.
        log.commit(stored(&format!("{round}-later"), 1)).await.expect("committed");
        match round {
            0 => session.abort_transaction().await.expect("aborted"),
            _ => session.commit_transaction().await.expect("committed"),
        }
        let outcome = tokio::time::timeout(IN_TIME, waiting).await.expect("answered once that is decided");
        let outcome = outcome.expect("the task ends well").expect("committed at any version");
        assert_eq!((outcome.version, outcome.duplicate), (if round == 0 { 1 } else { 2 }, false));
    }
    let commits = databases.database().await.collection::<Document>(ORDERS);
    let count = commits.count_documents(doc! {}).await.expect("counted");
    // Two of them are the foreign ones that were committed.
    assert_eq!(count, 1 + 3 * 21 + 3 + 2, "every commit is stored once");
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_expects_the_version_of_an_open_transaction_is_refused_once_that_is_committed() {
    let databases = Databases::new();
    let (store, log) = begun(&databases).await;
    let (mut session, _) = hold(&databases, &["a".to_owned()]).await;
    let expected = annals_core::ExpectedVersion::Exact(0);
    let waiting = commit(&log, NewCommit { expected_version: expected, ..stored("a", 1) });
    let others = join_all((0..20).map(|n| log.commit(stored(&format!("b-{n}"), n))));
    let answered = tokio::time::timeout(IN_TIME, others).await.expect("answered while the transaction is open");
    assert!(answered.iter().all(Result::is_ok), "{answered:?}");
    session.commit_transaction().await.expect("committed");
    let refused = tokio::time::timeout(IN_TIME, waiting).await.expect("answered").expect("the task ends well");
    assert!(matches!(refused, Err(CommitError::VersionConflict { actual_version: 1, .. })), "{refused:?}");
    store.close().await;
}

/// More commits wait than are sent at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_commits_that_wait_hold_up_no_others_and_all_are_answered() {
    let databases = Databases::new();
    let (store, log) = begun(&databases).await;
    let held: Vec<String> = (0..12).map(|n| format!("held-{n}")).collect();
    let (mut session, commits) = hold(&databases, &held).await;
    let waiting: Vec<Committing> = held.iter().map(|id| commit(&log, stored(id, 1))).collect();
    for round in 0..3 {
        let others = join_all((0..20).map(|n| log.commit(stored(&format!("other-{round}-{n}"), n))));
        let answered = tokio::time::timeout(IN_TIME, others).await.expect("answered while the transaction is open");
        assert!(answered.iter().all(Result::is_ok), "{answered:?}");
    }
    assert!(waiting.iter().all(|one| !one.is_finished()), "what they wait for is not decided");
    session.abort_transaction().await.expect("aborted");
    for one in tokio::time::timeout(IN_TIME, join_all(waiting)).await.expect("answered once that is decided") {
        assert_eq!(one.expect("the task ends well").expect("committed").version, 1);
    }
    until("sequence numbers", async || log.head().await.is_ok_and(|head| head == 1 + 60 + 12)).await;
    assert_eq!(commits.count_documents(doc! {}).await.expect("counted"), 1 + 60 + 12);
    store.close().await;
}

/// Closing gives up what waits; nothing of it is stored afterwards, as the caller could not know.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_caller_has_gone_is_not_sent_again() {
    let databases = Databases::new();
    let (store, log) = begun(&databases).await;
    let (mut session, commits) = hold(&databases, &["a".to_owned()]).await;
    let waiting = commit(&log, stored("a", 1));
    let admin = databases.client().await.database("admin");
    let inserts = doc! { "currentOp": 1, "ns": databases.stream(), "op": "insert", "active": true };
    let count = async || {
        let found = admin.run_command(inserts.clone()).await.expect("asked");
        found.get_array("inprog").expect("a list").len()
    };
    until("an insert that waits", async || count().await > 0).await;
    waiting.abort();
    assert!(waiting.await.expect_err("it was aborted").is_cancelled());
    until("the end of it", async || count().await == 0).await;
    session.abort_transaction().await.expect("aborted");
    // The next commit of the aggregate does not meet it.
    assert_eq!(log.commit(stored("a", 2)).await.expect("committed").version, 1);
    assert_eq!(commits.count_documents(doc! { "aggregateId": "a" }).await.expect("counted"), 1);
    store.close().await;
}
