//! How long a MongoDB that does not answer is waited for.

use std::time::Duration;

use annals_core::bson::Bson;
use annals_core::{Aggregate, AggregateQuery, Code, LogQuery, Store};
use annals_mongodb::{MongoStore, Options};
use tokio::time::Instant;

use crate::network::opened;
use crate::proxy::Network;
use crate::server::{log_of, order, until};
use crate::servers::ReplicaSet;

/// Reads have the patience of commits, and say how long it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_that_gets_no_answer_ends_with_the_limit() {
    let (_databases, proxy, store, log) = opened(Duration::from_secs(1)).await;
    proxy.set(Network::OneWay);
    let begun = Instant::now();
    let page = log.read(LogQuery::default()).await.expect_err("nothing comes back");
    let aggregate = log.read_aggregate(AggregateQuery::new(Aggregate::new("order", "a"))).await;
    for error in [page, log.head().await.expect_err("nothing comes"), aggregate.expect_err("nothing comes")] {
        assert_eq!(error.code(), Code::Unreachable, "{error}");
        assert!(error.to_string().contains("within 1000 ms (mongodb.answer_timeout_ms)"), "{error}");
        assert!(!error.to_string().contains("commit"), "{error}");
    }
    assert!(begun.elapsed() < Duration::from_secs(9), "{:?}", begun.elapsed());
    proxy.set(Network::Whole);
    until("an answer", async || log.head().await == Ok(1)).await;
    store.close().await;
}

/// Once the primary has been gone for longer than an election takes, nobody waits for it any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_needs_a_primary_that_is_gone_is_refused_fast() {
    const FAST: Duration = Duration::from_secs(3);
    let mut set = ReplicaSet::start(1).await;
    let store = MongoStore::open(&set.url("shop"), Options::default()).await.expect("the store opens");
    let log = log_of(&store);
    let records = store.records("default").expect("declared");
    log.commit(order("a", 0)).await.expect("committed");
    set.members[0].signal("KILL");
    until("the notice", async || store.status()[0].refusing.is_some()).await;
    let fast = async || {
        let begun = Instant::now();
        let refused = log.head().await.is_err_and(|error| error.code() == Code::Unreachable);
        refused && begun.elapsed() < FAST
    };
    until("a fast refusal", fast).await;
    let begun = Instant::now();
    let commit = log.commit(order("a", 1).request_id("r")).await.expect_err("refused");
    assert!(commit.code() == Code::Unreachable && commit.to_string().contains("no primary"), "{commit}");
    let record = records.get("things", &Bson::from(1)).await.expect_err("refused");
    assert_eq!(record.code(), Code::Unreachable, "{record}");
    assert!(begun.elapsed() < 2 * FAST, "{:?}", begun.elapsed());
    set.members[0].start_again();
    until("the store at work", async || log.commit(order("a", 1).request_id("r")).await.is_ok()).await;
    assert_eq!(log.head().await, Ok(2), "what was refused was not stored, and what was tried again is there once");
    store.close().await;
}
