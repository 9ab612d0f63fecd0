//! Answers that nobody reads: they hold little memory, and not for long.

use std::time::Duration;

use annals_core::Code;
use annals_server::Options;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::raw::Raw;
use crate::running::{Running, opened, soon};

const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;

/// A server that waits a second for its readers.
async fn impatient() -> Running {
    let mut options = Options::default();
    options.write_wait_max = Duration::from_secs(1);
    Running::start_with(options).await
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short frame").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Asks for `path` on `count` streams of one connection of HTTP/2 whose windows are closed.
async fn ask_without_a_window(server: &Running, path: &str, count: u32) -> TcpStream {
    let mut stream = TcpStream::connect(server.address).await.expect("a connection");
    let no_window = [0, 4, 0, 0, 0, 0];
    let mut asked = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &frame(SETTINGS, 0, 0, &no_window)].concat();
    for place in 0..count {
        let path = [&[0x04, u8::try_from(path.len()).expect("short")], path.as_bytes()].concat();
        let head = [&[0x82, 0x86, 0x41, 0x01, b'x'][..], &path].concat();
        asked.extend(frame(HEADERS, 0x05, 2 * place + 1, &head));
    }
    stream.write_all(&asked).await.expect("written");
    stream
}

/// The number of answers that were begun until the connection was cut.
async fn answers_begun(mut stream: TcpStream) -> usize {
    let mut begun = 0;
    loop {
        let mut head = [0; 9];
        if soon("a frame, or the end", stream.read_exact(&mut head)).await.is_err() {
            return begun;
        }
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        if soon("a frame, or the end", stream.read_exact(&mut payload)).await.is_err() {
            return begun;
        }
        begun += usize::from(head[3] == HEADERS);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_connection_of_http2_holds_a_few_answers_that_nobody_reads_and_is_cut() {
    let server = impatient().await;
    server.commit_batches(1).await;
    // A page has 5 MB and more.
    let stream = ask_without_a_window(&server, "/v1/log?limit=1000", 100).await;
    let begun = answers_begun(stream).await;
    assert!((1..=10).contains(&begun), "{begun} answers of 5 MB were made for a client that reads none");
    assert_eq!(server.get("/health/live").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_reads_on_http2_gets_all_that_it_asks_for_at_once() {
    // With the time that a client gets by default: this one shares the machine with other tests.
    let server = Running::start_with(Options::default()).await;
    server.commit_batches(1).await;
    let client = reqwest::Client::builder().http2_prior_knowledge().no_proxy().build().expect("a client");
    let asked = (0..40).map(|_| async {
        let answer = client.get(server.url("/v1/log?limit=1000")).send().await.expect("an answer");
        (answer.status(), answer.bytes().await.expect("a whole answer").len())
    });
    for (status, bytes) in soon("the answers", futures_util::future::join_all(asked)).await {
        assert!(status == 200 && bytes > 5_000_000, "{status} {bytes}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_that_does_not_read_is_closed_with_a_last_event_that_says_so() {
    let server = impatient().await;
    server.commit_batches(2).await;
    let mut events = Raw::slow_reader(&server, "/v1/log/follow", "text/event-stream").await;
    let gone = async {
        loop {
            let metrics = server.get("/metrics").await;
            if metrics.text().lines().any(|line| line == "annals_followers 0") {
                return;
            }
        }
    };
    // It is counted once it is answered.
    assert!(events.through(b"\r\n\r\n").await.is_some());
    soon("the end of the follower", gone).await;
    let read = events.rest_in_chunks().await.expect("the stream is ended as it must be");
    let read = String::from_utf8_lossy(&read);
    let last = read.trim_end().rsplit("\n\n").next().expect("an event");
    assert!(last.starts_with("event: problem\n") && last.contains(Code::ReaderTooSlow.as_str()), "{last}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_that_reads_slowly_but_reads_is_not_sent_away() {
    let server = impatient().await;
    let mut events = Raw::slow_reader(&server, "/v1/log/follow", "text/event-stream").await;
    assert!(events.through(b"head 0").await.is_some());
    server.commit_batches(1).await;
    assert!(events.through(b"id: 999\n").await.is_some());
    server.commit(&opened()).await;
    assert!(events.through(b"id: 1000\n").await.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn all_answers_together_are_bounded_and_clients_that_do_not_read_make_room() {
    let mut options = Options::default();
    options.answer_bytes_in_flight_max = 8_000_000;
    let server = Running::start_with(options).await;
    server.commit_batches(1).await;
    let mut stalled = Raw::slow_reader(&server, "/v1/log?limit=1000", "application/json").await;
    assert!(stalled.through(b"\r\n\r\n").await.is_some());
    server.get("/v1/log?limit=1000").await.problem(Code::Overloaded);
    assert_eq!(server.post(opened().to_string()).await.status, 201, "small answers pass");
    let again = async { while server.get("/v1/log?limit=1000").await.status != 200 {} };
    soon("room, because the other does not read", again).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_that_nobody_reads_loses_its_place() {
    let server = impatient().await;
    server.commit_batches(4).await;
    let mut stalled = Vec::new();
    for _ in 0..2 {
        let mut raw = Raw::slow_reader(&server, "/v1/backup", "application/x-tar").await;
        assert!(raw.through(b"\r\n\r\n").await.is_some());
        stalled.push(raw);
    }
    server.get("/v1/backup").await.problem(Code::Overloaded);
    soon("a place", async { while server.get("/v1/backup").await.status != 200 {} }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_connection_gets_the_place_of_one_that_says_nothing_or_does_not_finish() {
    let mut options = Options::default();
    options.connections_max = 3;
    let server = Running::start_with(options).await;
    let silent = Raw::open(&server).await;
    let (mut idle, mut unfinished) = (Raw::open(&server).await, Raw::open(&server).await);
    idle.write("GET /health/live HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("written");
    assert_eq!(idle.answer().await.status, 200);
    unfinished.write("POST /v1/commits HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{").await.expect("written");
    for _ in 0..3 {
        let mut new = Raw::open(&server).await;
        new.write(crate::raw::commit_request(&opened().to_string())).await.expect("written");
        assert_eq!(new.answer().await.status, 201);
        // It keeps its place, but does not say more.
        std::mem::forget(new);
    }
    for raw in [silent, idle, unfinished] {
        raw.closed().await;
    }
}

/// A byte now and then keeps a connection from being idle, and its place is needed all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_connection_gets_the_place_of_one_that_sends_a_byte_now_and_then() {
    let mut options = Options::default();
    options.connections_max = 2;
    let server = Running::start_with(options).await;
    for beginning in [
        "GET /health/live HTTP/1.1\r\nhost: x\r\nx-slow: ",
        "POST /v1/commits HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n{",
    ] {
        let mut raw = Raw::open(&server).await;
        raw.write(beginning).await.expect("written");
        tokio::spawn(async move {
            while raw.write("1").await.is_ok() {
                // tidy: allow(pause) the pace of the client
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
    }
    let mut new = Raw::open(&server).await;
    new.write(crate::raw::commit_request(&opened().to_string())).await.expect("written");
    assert_eq!(new.answer().await.status, 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn unfinished_bodies_hold_their_bytes_no_longer_than_others_can_wait() {
    let mut options = Options::default();
    options.body_bytes_in_flight_max = 1_000;
    options.body_idle_max = Duration::from_secs(600);
    let server = Running::start_with(options).await;
    let mut unfinished = Raw::open(&server).await;
    let head = "POST /v1/commits HTTP/1.1\r\nhost: x\r\ncontent-length: 2000\r\n\r\n";
    unfinished.write(format!("{head}{}", "x".repeat(990))).await.expect("written");
    let held = async {
        loop {
            let metrics = server.get("/metrics").await;
            if metrics.text().lines().any(|line| line == "annals_http_requests_in_flight 2") {
                return server.post(opened().to_string()).await.problem(Code::Overloaded);
            }
        }
    };
    soon("the bytes to be held", held).await;
    let again = async { while server.post(opened().to_string()).await.status != 201 {} };
    soon("the bytes to be free", again).await;
}
