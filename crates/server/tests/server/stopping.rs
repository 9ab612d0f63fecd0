//! A server that is told to stop.

use std::sync::Arc;
use std::time::Duration;

use annals_core::partners::{Answered, Outgoing, Sending};
use annals_core::{Code, CommitError, NewCommit, NewEvent, StoreError};
use annals_embedded::disk::{Disk, MemoryDisk};
use annals_server::{Options, Stop};
use async_trait::async_trait;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::Notify;

use crate::follow::Events;
use crate::raw::{Raw, commit_request};
use crate::running::{DEADLINE, Running, opened, soon, store_on};
use crate::tapped::Tap;

/// A server that would rather wait for ever than cut a connection: what ends in time has ended by itself.
async fn patient() -> Running {
    let mut options = Options::default();
    options.stop_wait_max = Duration::from_secs(3_600);
    Running::start_with(options).await
}

/// What a server may take to stop.
const STOP_MAX: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread")]
async fn streams_end_and_the_store_is_closed() {
    let mut server = patient().await;
    server.commit_orders("o-1", 10).await;
    let mut events = Events::open(&server, "/v1/log/follow", None).await;
    events.numbers(10).await;
    let store = server.store.clone();
    let log = store.log("default", "default").expect("the default log");
    server.begin_stop();
    // The stream ends as one that is complete, not as one that broke.
    while let Some(block) = events.block().await {
        assert!(block.comment.is_some(), "{block:?}");
    }
    tokio::time::timeout(STOP_MAX, server.stopped()).await.expect("stopped in time");
    let commit = NewCommit::new("order", "o-1").event(NewEvent::new("t", annals_core::Data::empty()));
    assert_eq!(log.commit(commit).await, Err(CommitError::Store(StoreError::Closed)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_does_not_read_does_not_hold_up_the_stop() {
    let mut server = patient().await;
    // More at once than the connection holds (4 MB here), so that a write waits from the first bytes on.
    let event = json!({"type": "t", "data": {"text": "x".repeat(8_000_000)}});
    server.commit(&json!({"aggregate": {"name": "large", "id": "1"}, "events": [event]})).await;
    let mut lines = Raw::slow_reader(&server, "/v1/log", "application/x-ndjson").await;
    let mut events = Raw::slow_reader(&server, "/v1/log/follow", "text/event-stream").await;
    assert!(lines.through(b"sequence_number").await.is_some());
    assert!(events.through(b"sequence_number").await.is_some());
    server.begin_stop();
    tokio::time::timeout(STOP_MAX, server.stopped()).await.expect("stopped in time");
    assert_eq!(lines.through(b"\r\n0\r\n\r\n").await, None, "a part was answered as if it were the whole");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_under_way_is_answered_and_idle_connections_are_closed() {
    let (store, tap) = Tap::store();
    let mut server = Running::over(store, Options::default()).await;
    let (mut idle, mut busy) = (Raw::open(&server).await, Raw::open(&server).await);
    idle.write("GET /health/live HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("written");
    assert_eq!(idle.answer().await.status, 200);
    tap.commits_held.send_replace(true);
    busy.write(commit_request(&opened().to_string())).await.expect("written");
    soon("the commit to be under way", tap.commits_begun.subscribe().wait_for(|begun| *begun == 1))
        .await
        .expect("there");
    server.begin_stop();
    assert!(!idle.closed().await);
    let address = server.address;
    soon("the port to be closed", async { while TcpStream::connect(address).await.is_ok() {} }).await;
    tap.commits_held.send_replace(false);
    assert_eq!(busy.answer().await.status, 201);
    tokio::time::timeout(STOP_MAX, server.stopped()).await.expect("stopped in time");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_never_ends_is_cut() {
    let (store, tap) = Tap::store();
    let mut options = Options::default();
    options.stop_wait_max = Duration::from_millis(200);
    let mut server = Running::over(store, options).await;
    tap.commits_held.send_replace(true);
    let mut busy = Raw::open(&server).await;
    busy.write(commit_request(&opened().to_string())).await.expect("written");
    soon("the commit to be under way", tap.commits_begun.subscribe().wait_for(|begun| *begun == 1))
        .await
        .expect("there");
    server.begin_stop();
    tokio::time::timeout(STOP_MAX, server.stopped()).await.expect("stopped in time");
    assert!(!busy.closed().await);
}

/// A webhook that takes longer to answer than tasks have to end.
#[derive(Default)]
struct Late(Notify);

#[async_trait]
impl Sending for Late {
    async fn send(&self, _: Outgoing) -> Result<Answered, String> {
        self.0.notify_one();
        // tidy: allow(pause) this long is what the server has to wait for
        tokio::time::sleep(Duration::from_secs(2)).await;
        Ok(Answered { status: 200, retry_after: None, said: String::new() })
    }

    fn check(&self, _: &str) -> Result<(), String> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_a_webhook_has_is_counted_although_its_answer_is_late() {
    async fn post(server: &Running, path: &str, body: Value) -> Value {
        let request = server.request(Method::POST, path).header("content-type", "application/json");
        server.send(request.body(body.to_string())).await.json()
    }
    let late = Arc::new(Late::default());
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::default());
    let mut options = Options::default();
    options.stop_wait_max = Duration::ZERO;
    options.tasks.partners.sending = late.clone();
    let mut server = Running::over(store_on(Arc::clone(&disk), Default::default()), options).await;
    server.commit_orders("o-1", 1).await;
    let target = json!({"kind": "webhook", "url": "https://receiver.example/"});
    let replay = json!({"filter": {"event_types": ["order_placed"]}, "target": target});
    let created = post(&server, "/v1/replays", replay).await;
    let one = format!("/v1/replays/{}", created["session_id"].as_str().expect("an id"));
    post(&server, &format!("{one}/start"), json!({"reason": "a test"})).await;
    soon("the event to be posted", late.0.notified()).await;
    server.begin_stop();
    server.stopped().await;
    let server = Running::over(store_on(disk, Default::default()), Options::default()).await;
    assert_eq!(server.get(&one).await.json()["replayed"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_going_to_stop_is_not_ready() {
    let options = Options::default();
    let stop: Stop = options.stop.clone();
    let (store, _) = Tap::store();
    let server = Running::over(store.clone(), Options::default()).await;
    assert_eq!(server.get("/health/ready").await.status, 200);
    // The router alone, as a program with a server of its own mounts it.
    let router = annals_server::router(store, options);
    let (listener, other) = listener().await;
    let (_ended, never) = tokio::sync::oneshot::channel::<()>();
    let serving = annals_server::serve_router(listener, router, server.store.clone(), Options::default(), async {
        let _ = never.await;
    });
    let asked = async {
        stop.stop();
        let request = server.client.get(format!("http://{other}/health/ready"));
        server.send(request).await.problem(Code::Closing);
    };
    tokio::select! {
        _ = serving => panic!("it serves until it is told to stop"),
        asked = tokio::time::timeout(DEADLINE, asked) => asked.expect("answered in time"),
    }
}

async fn listener() -> (tokio::net::TcpListener, std::net::SocketAddr) {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    (listener, address)
}
