//! A network that is cut while a commit is under way: what is not known is not guessed, and a retry finds the first outcome.

use std::sync::Arc;
use std::time::Duration;

use annals_core::{Code, CommitError, EventLog, NewCommit, Store};
use annals_mongodb::{MongoStore, Options};
use mongodb::bson::{Document, doc};

use crate::proxy::{Network, Proxy};
use crate::server::{Databases, log_of, order, until, url};

/// A store whose every connection goes through the relay.
pub async fn opened(outcome_time: Duration) -> (Databases, Proxy, Arc<MongoStore>, Arc<dyn EventLog>) {
    let (databases, proxy, store) = opened_as("annals", Options { outcome_time, ..Options::default() }).await;
    let log = log_of(&store);
    log.commit(order("a", 0)).await.expect("committed");
    (databases, proxy, store, log)
}

/// The same with these options, and a name by which the server knows its connections.
pub async fn opened_as(name: &str, options: Options) -> (Databases, Proxy, Arc<MongoStore>) {
    let databases = Databases::new();
    let place = url();
    let host = place.trim_start_matches("mongodb://").split(['/', ',']).next().expect("a host").to_owned();
    let port = host.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).expect("a port");
    let proxy = Proxy::to(port).await;
    let through = format!("mongodb://{}/{}?directConnection=true&appName={name}", proxy.address, databases.name);
    let store = Arc::new(MongoStore::open(&through, options).await.expect("the store opens"));
    (databases, proxy, store)
}

/// Sends a commit whose answer gets lost, and cuts the network once it is stored.
async fn cut_in_the_middle(
    databases: &Databases,
    proxy: &Proxy,
    log: &Arc<dyn EventLog>,
    commit: NewCommit,
) -> tokio::task::JoinHandle<Result<annals_core::CommitOutcome, CommitError>> {
    let commits = databases.database().await.collection::<Document>("order_event_stream");
    proxy.set(Network::OneWay);
    let request = commit.request_id.clone().expect("a request id").to_string();
    let under_way = tokio::spawn({
        let log = log.clone();
        async move { log.commit(commit).await }
    });
    until("the stored commit", async || {
        commits.count_documents(doc! { "requestId": &request }).await.is_ok_and(|count| count == 1)
    })
    .await;
    proxy.set(Network::Cut);
    until("every connection is broken", async || proxy.connections() == 0).await;
    under_way
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_answer_is_lost_is_answered_when_the_network_is_back() {
    let (databases, proxy, store, log) = opened(Duration::from_secs(20)).await;
    let under_way = cut_in_the_middle(&databases, &proxy, &log, order("a", 1).request_id("r")).await;
    proxy.set(Network::Whole);
    let outcome = under_way.await.expect("it ends").expect("committed");
    assert_eq!((outcome.version, outcome.first_sequence_number, outcome.duplicate), (2, Some(1), false));
    assert_eq!(log.head().await, Ok(2));
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_answer_never_comes_is_unknown_and_its_retry_finds_it() {
    let (databases, proxy, store, log) = opened(Duration::from_secs(2)).await;
    let under_way = cut_in_the_middle(&databases, &proxy, &log, order("a", 1).request_id("r")).await;
    let error = under_way.await.expect("it ends").expect_err("nobody can know");
    assert_eq!(error.code(), Code::Unreachable, "{error}");
    assert!(error.to_string().contains("\"r\""), "the request id is named: {error}");
    proxy.set(Network::Whole);
    let retry = async || log.commit(order("a", 1).request_id("r")).await;
    // The driver may need a moment to see that the server is back.
    until("an answer", async || !retry().await.is_err_and(|error| error.code() == Code::Unreachable)).await;
    let outcome = retry().await.expect("committed");
    assert_eq!((outcome.version, outcome.first_sequence_number, outcome.duplicate), (2, Some(1), true));
    let other = log.commit(order("a", 9).request_id("r")).await;
    assert_eq!(other, Err(CommitError::RequestIdReused { request_id: "r".into() }));
    assert_eq!(log.head().await, Ok(2));
    store.close().await;
}
