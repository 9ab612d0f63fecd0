//! A store is closed while MongoDB is silent: connections stay open and no answer comes.

use std::pin::pin;
use std::time::Duration;

use annals_core::bson::{RawDocumentBuf, rawdoc};
use annals_core::{Code, Collection, DEFAULT_SCOPE, DEFAULT_TENANT, Included, RecordChange, Store, Verdicts};

use crate::network::opened;
use crate::proxy::Network;
use crate::server::{order, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_ends_within_ten_seconds_while_mongodb_is_silent() {
    let (databases, proxy, store, log) = opened(Duration::from_secs(20)).await;
    let streams = store.streams(DEFAULT_TENANT, DEFAULT_SCOPE).expect("declared");
    let records = store.records(DEFAULT_TENANT).expect("declared");
    records.declare(Collection::new("things")).await.expect("declared");
    let commits = databases.database().await.collection::<RawDocumentBuf>("order_event_stream");
    proxy.set(Network::OneWay);
    let commit = tokio::spawn(async move { log.commit(order("a", 1).request_id("r")).await });
    until("the commit on its way", async || {
        commits.count_documents(mongodb::bson::doc! { "requestId": "r" }).await.is_ok_and(|count| count == 1)
    })
    .await;
    // So that no transaction of theirs stays open at the server.
    proxy.set(Network::Silent);
    let mut append = pin!(streams.append(Verdicts::new("s", 0..1).include(Included::new(0))));
    let change = RecordChange::Insert { collection: "things".to_owned(), document: rawdoc! { "_id": 1 } };
    let mut write = pin!(records.write(vec![change]));
    assert!(tokio::time::timeout(Duration::ZERO, &mut append).await.is_err(), "it is under way");
    assert!(tokio::time::timeout(Duration::ZERO, &mut write).await.is_err(), "it is under way");
    let closed = tokio::time::timeout(Duration::from_secs(10), store.close()).await;
    assert!(closed.is_ok(), "it is closed within ten seconds");
    // Nobody knows what became of them, and nobody is left waiting.
    let commit = commit.await.expect("it ends").expect_err("unknown");
    assert!(commit.code() == Code::Unreachable && commit.to_string().contains("\"r\""), "{commit}");
    let append = append.await.expect_err("unknown");
    assert_eq!(append.code(), Code::Unreachable, "{append}");
    let write = write.await.expect_err("unknown");
    assert_eq!(write.code(), Code::Unreachable, "{write}");
}
