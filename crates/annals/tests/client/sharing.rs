//! How commits travel: together where they wait together, and once more when a connection breaks.

use std::net::SocketAddr;
use std::sync::Arc;

use annals::server::{Options, serve};
use annals::{
    Client, Code, CommitError, CommitOutcome, DEFAULT_SCOPE, DEFAULT_TENANT, Data, EventLog, ExpectedVersion, LogQuery,
    NewCommit, NewEvent, Store, StoreError,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

async fn served() -> (SocketAddr, Arc<dyn Store>) {
    let store = annals::open("memory:").await.expect("a store");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(serve(listener, Arc::clone(&store), Options::default(), std::future::pending()));
    (address, store)
}

fn client(address: SocketAddr) -> Client {
    Client::new(&format!("http://{address}"), DEFAULT_TENANT, DEFAULT_SCOPE).expect("an address")
}

fn placed(id: usize) -> NewCommit {
    let event = NewEvent::new("order_placed", Data::from_json(r#"{"total":1}"#).expect("an object"));
    NewCommit::new("order", id.to_string()).expect(ExpectedVersion::Empty).event(event)
}

async fn head(store: &Arc<dyn Store>) -> u64 {
    store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("the log").head().await.expect("a head")
}

/// How many requests for commits the server has answered.
async fn requests(address: SocketAddr) -> usize {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").await.expect("written");
    let mut text = String::new();
    stream.read_to_string(&mut text).await.expect("an answer");
    let line = text.lines().find(|line| line.starts_with(r#"annals_http_requests_total{route="/v1/commits""#));
    line.expect("commits were counted").rsplit(' ').next().expect("a number").parse().expect("a number")
}

/// On one thread nothing is sent before all commits wait.
#[tokio::test]
async fn commits_that_wait_together_share_a_request_and_keep_their_own_outcomes() {
    let (address, store) = served().await;
    let client = client(address);
    let mut commits = JoinSet::new();
    for id in 0..500 {
        let client = client.clone();
        // Every fifth is the same as the one before.
        commits.spawn(async move { (id, client.commit(placed(id - usize::from(id % 5 == 4))).await) });
    }
    let mut refused = 0;
    while let Some(committed) = commits.join_next().await {
        match committed.expect("no panic") {
            (_, Ok(CommitOutcome { version: 1, duplicate: false, .. })) => {}
            (id, Err(CommitError::VersionConflict { actual_version: 1, .. })) if id % 5 >= 3 => refused += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((refused, head(&store).await), (100, 400));
    assert!(requests(address).await <= 4, "{} requests", requests(address).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_of_the_whole_request_is_told_to_each_commit() {
    let (address, _store) = served().await;
    let client = Client::new(&format!("http://{address}"), "nobody", DEFAULT_SCOPE).expect("an address");
    for committed in [client.commit(placed(1)), client.commit(placed(2))] {
        let error = committed.await.expect_err("refused");
        assert!(matches!(&error, CommitError::Invalid(invalid) if invalid.code == Code::UnknownTenant), "{error:?}");
    }
}

/// Passes connections on, and loses the answer of each at which `loses` says so.
async fn proxy(server: SocketAddr, loses: impl Fn(usize) -> bool + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        for number in 0.. {
            let (mut near, _) = listener.accept().await.expect("a connection");
            let mut far = TcpStream::connect(server).await.expect("the server");
            if !loses(number) {
                tokio::spawn(async move { tokio::io::copy_bidirectional(&mut near, &mut far).await });
                continue;
            }
            let (mut request, mut answer) = (vec![0; 65_536], vec![0; 65_536]);
            let length = near.read(&mut request).await.expect("a request");
            far.write_all(&request[..length]).await.expect("passed on");
            assert!(far.read(&mut answer).await.expect("an answer") > 0);
            // And both connections end here.
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_answer_is_lost_is_sent_again_and_stands_once() {
    let (address, store) = served().await;
    let client = client(proxy(address, |number| number == 0).await);
    let outcome = client.commit(placed(1)).await.expect("committed");
    assert_eq!((outcome.version, head(&store).await), (1, 1));
    assert!(outcome.duplicate, "the first request had made it");
    let second = client.commit(placed(2)).await.expect("committed");
    assert_eq!((second.first_sequence_number, second.duplicate), (Some(1), false));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_answers_are_all_lost_is_unknown_and_a_repeat_finds_out() {
    let (address, store) = served().await;
    let lossy = client(proxy(address, |number| number < 2).await);
    let commit = placed(1).request_id("r-1");
    let error = lossy.commit(commit.clone()).await.expect_err("unknown");
    assert!(matches!(error, CommitError::Store(StoreError::Unreachable(_))), "{error:?}");
    let outcome = lossy.commit(commit).await.expect("it gets through");
    assert_eq!((outcome.version, outcome.duplicate, head(&store).await), (1, true, 1));
}

#[test]
fn a_client_goes_on_when_the_runtime_it_was_used_in_has_ended() {
    let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("one");
    let servers = runtime();
    let (address, store) = servers.block_on(served());
    let client = client(address);
    for id in 0..3 {
        let outcome = runtime().block_on(client.commit(placed(id))).expect("committed");
        assert_eq!(outcome.version, 1);
    }
    assert_eq!(servers.block_on(head(&store)), 3);
    let page = servers.block_on(client.read(LogQuery::default())).expect("a page");
    assert_eq!(page.events.len(), 3);
}
