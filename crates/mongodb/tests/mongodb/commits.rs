//! Commits: what the unique indexes say is told apart, gaps are never made, and what is not known is not guessed.

use annals_core::{
    Aggregate, AggregateQuery, Code, CommitError, EventLog, ExpectedVersion, NewCommit, NewTransaction, Store, Wait,
};
use annals_core::{AppendCondition, EventPattern};
use annals_mongodb::{MongoStore, Options};
use mongodb::bson::{Document, doc};

use crate::server::{Databases, Faults, log_of, order, wow_commit};

async fn opened() -> (Databases, MongoStore, std::sync::Arc<dyn EventLog>) {
    let databases = Databases::new();
    let store = databases.store(Options::default()).await;
    let log = log_of(&store);
    (databases, store, log)
}

fn version_of(error: Result<annals_core::CommitOutcome, CommitError>) -> u64 {
    match error {
        Err(CommitError::VersionConflict { actual_version, .. }) => actual_version,
        other => panic!("a version conflict was due, not {other:?}"),
    }
}

/// Replaying a create: the server names the index of versions, because that is the earlier one, and it is a repeat all the same.
#[tokio::test]
async fn a_repeated_create_is_a_repeat_and_no_conflict() {
    let (databases, store, log) = opened().await;
    let create = || order("a", 1).request_id("r").expect(ExpectedVersion::Empty);
    let first = log.commit(create()).await.expect("committed");
    // A process that knows nothing of it.
    let other = databases.store(Options::default()).await;
    let again = log_of(&other).commit(create()).await.expect("a repeat");
    assert!(again.duplicate);
    assert_eq!((again.commit_id, again.first_sequence_number), (first.commit_id, first.first_sequence_number));
    let reused = log_of(&other).commit(order("a", 2).request_id("r").expect(ExpectedVersion::Empty)).await;
    assert_eq!(reused, Err(CommitError::RequestIdReused { request_id: "r".into() }));
    tokio::join!(store.close(), other.close());
}

/// Ids that are called like indexes stand in the server's messages; only the index's fields are believed.
#[tokio::test]
async fn ids_that_are_called_like_indexes_mislead_nobody() {
    let (_databases, store, log) = opened().await;
    for id in ["aggregateId_1_version_1", "requestId_1", "aggregateId_1_requestId_1", "_id_"] {
        log.commit(order(id, 1).request_id("aggregateId_1_version_1")).await.expect("committed");
        let repeat = log.commit(order(id, 1).request_id("aggregateId_1_version_1")).await.expect("a repeat");
        assert!(repeat.duplicate, "{id}");
        assert_eq!(
            version_of(log.commit(order(id, 2).request_id("requestId_1").expect(ExpectedVersion::Empty)).await),
            1
        );
    }
    store.close().await;
}

/// MongoDB would take a version far ahead, and one behind it.
#[tokio::test]
async fn gaps_and_back_fills_are_refused() {
    let (databases, store, log) = opened().await;
    log.commit(order("a", 1)).await.expect("committed");
    assert_eq!(version_of(log.commit(order("a", 2).expect(ExpectedVersion::Exact(5))).await), 1);
    assert_eq!(version_of(log.commit(order("b", 2).expect(ExpectedVersion::Exact(5))).await), 0);
    // Another process went on; this one knows an older head.
    let other = databases.store(Options::default()).await;
    for n in 2..6 {
        log_of(&other).commit(order("a", n)).await.expect("committed");
    }
    assert_eq!(version_of(log.commit(order("a", 9).expect(ExpectedVersion::Exact(1))).await), 5);
    assert_eq!(log.commit(order("a", 9)).await.expect("at any version").version, 6);
    assert_eq!(
        log_of(&other).commit(order("a", 9).expect(ExpectedVersion::Exact(6))).await.expect("current").version,
        7
    );
    tokio::join!(store.close(), other.close());
}

/// A commit that other software inserted counts as any other: its version, its request, its tenant.
#[tokio::test]
async fn commits_of_other_software_count() {
    let (databases, store, log) = opened().await;
    let commits = databases.database().await.collection::<Document>("order_event_stream");
    log.commit(order("a", 1)).await.expect("committed");
    commits.insert_one(wow_commit("0Rmt0000000001", "a", 2, 7)).await.expect("inserted");
    assert_eq!(version_of(log.commit(order("a", 9).expect(ExpectedVersion::Exact(1))).await), 2);
    let repeat = log.commit(order("a", 2).request_id("r-0Rmt0000000001")).await.expect("a repeat of its request");
    assert_eq!((repeat.version, repeat.duplicate, repeat.first_sequence_number), (2, true, Some(1)));
    let other_content = log.commit(order("a", 3).request_id("r-0Rmt0000000001")).await;
    assert_eq!(other_content.expect_err("refused").code(), Code::RequestIdReused);
    let tenant = NewCommit { tenant_id: Some("t".into()), ..order("a", 9) };
    assert_eq!(log.commit(tenant).await, Err(CommitError::AggregateOfOtherTenant { tenant_id: "(0)".into() }));
    assert_eq!(log.commit(order("a", 9)).await.expect("at any version").version, 3);
    let read = log.read_aggregate(AggregateQuery::new(Aggregate::new("order", "a"))).await.expect("read");
    assert_eq!(read.commits.iter().map(|commit| commit.info.version).collect::<Vec<_>>(), [1, 2, 3]);
    store.close().await;
}

/// A connection that breaks in the middle leaves the outcome open; the same documents are sent again, and nothing is stored twice.
#[tokio::test]
async fn a_broken_connection_leaves_one_commit() {
    let (databases, store, log) = opened().await;
    log.commit(order("a", 1)).await.expect("committed");
    let faults = Faults::take().await;
    for (n, fault) in [
        doc! { "failCommands": ["insert"], "closeConnection": true, "namespace": databases.stream() },
        doc! { "failCommands": ["insert"], "errorCode": 11602, "namespace": databases.stream() },
        doc! { "failCommands": ["insert"], "namespace": databases.stream(),
        "writeConcernError": { "code": 91, "errmsg": "shutting down" } },
    ]
    .into_iter()
    .enumerate()
    {
        faults.set(1, fault).await;
        let version = 2 + n as u64;
        let outcome = log.commit(order("a", version).request_id(format!("r-{n}"))).await.expect("committed in the end");
        assert_eq!((outcome.version, outcome.duplicate), (version, false));
    }
    let commits = databases.database().await.collection::<Document>("order_event_stream");
    assert_eq!(commits.count_documents(doc! {}).await.expect("counted"), 4);
    store.close().await;
}

#[tokio::test]
async fn what_this_store_does_not_have_is_refused_by_name() {
    let (_databases, store, log) = opened().await;
    let condition =
        AppendCondition { fail_if: vec![EventPattern { types: vec!["t".into()], tags: Vec::new() }], after: None };
    let conditional = log.commit(order("a", 1).fail_if(condition)).await.expect_err("refused");
    // What an answer waits for is the transaction's to say.
    let plain = |id| NewCommit { wait: Wait::default(), ..order(id, 1) };
    let together = log.transact(NewTransaction::new([plain("a"), plain("b")])).await.expect_err("refused").error;
    for error in [conditional, together] {
        assert_eq!(error.code(), Code::NotSupportedByStore);
        assert!(error.to_string().contains("nothing was stored"), "{error}");
    }
    let name = log.commit(NewCommit { aggregate: Aggregate::new("system.x", "a"), ..order("a", 1) }).await;
    assert_eq!(name.expect_err("refused").code(), Code::InvalidName);
    assert_eq!(log.head().await, Ok(0));
    store.close().await;
}

#[tokio::test]
async fn more_than_may_wait_is_refused_as_overloaded() {
    let databases = Databases::new();
    let store = databases.store(Options { waiting_max: 2, ..Options::default() }).await;
    let log = log_of(&store);
    log.commit(order("a", 0)).await.expect("committed");
    let many = (0..20).map(|n| log.commit(order(&format!("a-{n}"), n)));
    let outcomes = futures_util::future::join_all(many).await;
    let refused = outcomes.iter().filter_map(|outcome| outcome.as_ref().err().map(CommitError::code));
    let refused: Vec<_> = refused.collect();
    assert!(!refused.is_empty() && refused.iter().all(|code| *code == Code::Overloaded), "{refused:?}");
    let stored = outcomes.iter().filter(|outcome| outcome.is_ok()).count() as u64;
    assert_eq!(log.head().await, Ok(1 + stored));
    store.close().await;
}
