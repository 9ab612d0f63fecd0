//! A store is closed while MongoDB is silent: connections stay open and no answer comes.

use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use annals_core::bson::{RawDocumentBuf, rawdoc};
use annals_core::{
    Code, Collection, DEFAULT_SCOPE, DEFAULT_TENANT, Included, NewCommit, RecordChange, Records, Store, Verdicts, Wait,
};
use annals_mongodb::{MongoStore, Options, Step};
use futures_util::FutureExt;
use mongodb::bson::doc;

use crate::network::opened;
use crate::proxy::Network;
use crate::server::{Databases, log_of, order, until};

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

/// Where the sequencer stands in its transaction, if it is to stand there.
#[derive(PartialEq)]
enum Stand {
    Off,
    Wanted,
    Reached,
}

static STAND: (Mutex<Stand>, Condvar) = (Mutex::new(Stand::Off), Condvar::new());

fn stand_in_the_transaction(step: Step) {
    let mut stand = STAND.0.lock().expect("no panic");
    if step == Step::OffsetMoved && *stand == Stand::Wanted {
        *stand = Stand::Reached;
        // Other tasks of this thread go on.
        tokio::task::block_in_place(|| {
            drop(STAND.1.wait_while(stand, |stand| *stand == Stand::Reached).expect("no panic"));
        });
    }
}

fn set_stand(stand: Stand) {
    *STAND.0.lock().expect("no panic") = stand;
    STAND.1.notify_all();
}

/// A transaction that is broken off would stay open at the server for a minute, and the next sequencer would wait for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_store_that_closes_inside_the_transaction_of_a_batch_takes_it_to_its_end() {
    let databases = Databases::new();
    let store = databases.store(Options { at_step: stand_in_the_transaction, ..Options::default() }).await;
    let log = log_of(&store);
    log.commit(order("a", 1)).await.expect("committed");
    set_stand(Stand::Wanted);
    let stored = NewCommit { wait: Wait::default(), ..order("a", 2) };
    assert_eq!(log.commit(stored).await.expect("acknowledged").version, 2);
    until("the transaction", async || *STAND.0.lock().expect("no panic") == Stand::Reached).await;
    let closing = tokio::spawn(async move { store.close().await });
    until("the store is closing", async || {
        let late = NewCommit { wait: Wait::default(), ..order("b", 1) };
        log.commit(late).await.is_err_and(|error| error.code() == Code::Closing)
    })
    .await;
    set_stand(Stand::Off);
    closing.await.expect("closed");
    let entries = databases.database().await.collection::<RawDocumentBuf>("event-log-commits");
    assert_eq!(entries.count_documents(doc! { "id": "a" }).await.expect("counted"), 2, "the batch is in the log");
}

/// A lease that outlives its process holds up the next one for seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_closes_while_it_takes_the_lease_leaves_none() {
    let databases = Databases::new();
    let states = databases.database().await.collection::<RawDocumentBuf>("sequencer-state");
    for round in 0..20 {
        databases.store(Options::default()).await.close().await;
        let held = doc! { "_id": "lease", "$expr": { "$gt": ["$until", "$$NOW"] } };
        assert_eq!(states.count_documents(held).await.expect("counted"), 0, "round {round}");
    }
}

/// Begins to write when it is dropped, as what a runtime drops may.
struct WritesAtTheEnd(Arc<dyn Records>);

impl Drop for WritesAtTheEnd {
    fn drop(&mut self) {
        let change = RecordChange::Insert { collection: "things".to_owned(), document: rawdoc! { "_id": 2 } };
        let _ = self.0.write(vec![change]).now_or_never();
    }
}

/// A program that ends without closing its store ends all the same.
#[test]
fn a_write_that_begins_while_its_runtime_shuts_down_holds_nobody_up() {
    let (ended, has_ended) = std::sync::mpsc::channel();
    let databases = Databases::new();
    let url = databases.url();
    std::thread::spawn(move || {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let store = runtime.block_on(async {
            let store = MongoStore::open(&url, Options::default()).await.expect("opened");
            let records = store.records(DEFAULT_TENANT).expect("declared");
            records.declare(Collection::new("things")).await.expect("declared");
            let change = RecordChange::Insert { collection: "things".to_owned(), document: rawdoc! { "_id": 1 } };
            records.write(vec![change]).await.expect("written");
            let at_the_end = WritesAtTheEnd(records);
            tokio::spawn(async move {
                let _at_the_end = at_the_end;
                std::future::pending::<()>().await;
            });
            store
        });
        drop(runtime);
        drop(store);
        let _ = ended.send(());
    });
    has_ended.recv_timeout(Duration::from_secs(30)).expect("the runtime has shut down");
}
