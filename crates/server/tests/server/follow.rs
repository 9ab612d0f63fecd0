//! `GET /v1/log/follow`.

use std::convert::Infallible;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use annals_core::Code;
use annals_server::Options;
use axum::Router;
use axum::body::Body;
use axum::routing::get;
use reqwest::{Method, RequestBuilder, Response};
use serde_json::{Value, json};

use crate::raw::Raw;
use crate::running::{Running, soon};
use crate::tapped::{Reads, Tap};

/// A stream of server-sent events, read as the standard says.
pub struct Events {
    response: Response,
    unread: Vec<u8>,
}

/// A block of the stream.
#[derive(Debug, Default, PartialEq)]
pub struct Block {
    pub id: Option<String>,
    pub event: Option<String>,
    pub data: String,
    pub comment: Option<String>,
}

impl Events {
    pub async fn open(server: &Running, path: &str, last_event_id: Option<&str>) -> Self {
        let mut request = server.request(Method::GET, path).header("accept", "text/event-stream");
        if let Some(id) = last_event_id {
            request = request.header("last-event-id", id);
        }
        Self::of(request).await
    }

    /// The stream that a request opens.
    pub async fn of(request: RequestBuilder) -> Self {
        let response = soon("an answer", request.send()).await.expect("an answer");
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { response, unread: Vec::new() }
    }

    /// The next block; none at the end.
    pub async fn block(&mut self) -> Option<Block> {
        loop {
            if let Some(end) = self.unread.windows(2).position(|two| two == b"\n\n") {
                let block: Vec<u8> = self.unread.drain(..end + 2).collect();
                return Some(parse(std::str::from_utf8(&block).expect("UTF-8")));
            }
            let chunk = soon("more of the stream", self.response.chunk()).await.expect("an unbroken stream")?;
            self.unread.extend_from_slice(&chunk);
        }
    }

    /// The next event, past comments.
    pub async fn next(&mut self) -> Block {
        loop {
            let block = self.block().await.expect("more events");
            if block.comment.is_none() {
                return block;
            }
        }
    }

    pub async fn numbers(&mut self, count: usize) -> Vec<u64> {
        let mut numbers = Vec::new();
        while numbers.len() < count {
            let block = self.next().await;
            let event: Value = serde_json::from_str(&block.data).expect("JSON");
            let number = event["sequence_number"].as_u64().expect("a number");
            assert_eq!(block.id, Some(number.to_string()));
            numbers.push(number);
        }
        numbers
    }
}

fn parse(text: &str) -> Block {
    let mut block = Block::default();
    for line in text.lines().filter(|line| !line.is_empty()) {
        let (field, value) = line.split_once(": ").expect("field: value");
        match field {
            "" => block.comment = Some(value.to_owned()),
            "id" => block.id = Some(value.to_owned()),
            "event" => block.event = Some(value.to_owned()),
            "data" => block.data.push_str(value),
            other => panic!("{other:?} in {text:?}"),
        }
    }
    block
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_gets_what_is_there_and_then_what_comes_without_gap_or_repeat() {
    let server = Running::start().await;
    server.commit_orders("o-1", 1_500).await;
    let mut events = Events::open(&server, "/v1/log/follow", None).await;
    let writers = (0..20).map(|n| {
        let request = server.request(Method::POST, "/v1/commits").body(
            json!({"aggregate": {"name": "order", "id": n.to_string()}, "events": vec![json!({"type": "t", "data": {}}); 50]})
                .to_string(),
        );
        tokio::spawn(async move { request.send().await.expect("an answer").status() })
    });
    let writers: Vec<_> = writers.collect();
    assert_eq!(events.numbers(2_500).await, (0..2_500).collect::<Vec<_>>());
    for writer in writers {
        assert_eq!(writer.await.expect("no panic"), 201);
    }
    server.commit_orders("o-2", 1).await;
    let last = events.next().await;
    assert_eq!(serde_json::from_str::<Value>(&last.data).expect("JSON"), server.get("/v1/log/2500").await.json());
}

#[tokio::test(flavor = "multi_thread")]
async fn following_begins_where_it_is_told_to() {
    let server = Running::start().await;
    server.commit_orders("o-1", 10).await;
    for (path, last_event_id, first) in [
        ("/v1/log/follow?from=4", None, 4),
        ("/v1/log/follow?from=4", Some(""), 4),
        ("/v1/log/follow?from=4", Some("6"), 7),
        ("/v1/log/follow", Some("6@0"), 7),
        ("/v1/log/follow", Some("0"), 1),
    ] {
        let mut events = Events::open(&server, path, last_event_id).await;
        assert_eq!(events.numbers(1).await, [first], "{path} {last_event_id:?}");
    }
    // At the head nothing comes until something does; a number past the head is waited for.
    let mut at_head = Events::open(&server, "/v1/log/follow", Some("9")).await;
    let mut ahead = Events::open(&server, "/v1/log/follow?from=12", None).await;
    server.commit_orders("o-1", 5).await;
    assert_eq!(at_head.numbers(5).await, [10, 11, 12, 13, 14]);
    assert_eq!(ahead.numbers(3).await, [12, 13, 14]);
}

#[tokio::test(flavor = "multi_thread")]
async fn following_from_the_end_begins_with_what_comes_next() {
    let server = Running::start().await;
    server.commit_orders("o-1", 3).await;
    let mut events = Events::open(&server, "/v1/log/follow?from=end", None).await;
    assert_eq!(events.block().await.and_then(|block| block.comment).as_deref(), Some("from 3, head 3"));
    server.commit_orders("o-1", 2).await;
    assert_eq!(events.numbers(2).await, [3, 4]);
    // An event that the client has seen goes before it.
    let mut resumed = Events::open(&server, "/v1/log/follow?from=end", Some("0")).await;
    assert_eq!(resumed.numbers(1).await, [1]);
    let refused = server.get("/v1/log/follow?from=ends").await.problem(Code::InvalidQuery);
    assert!(refused["detail"].as_str().is_some_and(|detail| detail.contains("not the word end")), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_position_that_this_log_cannot_have_shown_is_clamped_and_reported() {
    let server = Running::start().await;
    server.commit_orders("o-1", 3).await;
    for (id, from) in [("7@2", 0), ("0@1", 0), ("3", 3), ("18446744073709551615", 3)] {
        let mut events = Events::open(&server, "/v1/log/follow", Some(id)).await;
        let report = events.next().await;
        assert_eq!((report.event.as_deref(), report.id), (Some("position_clamped"), None), "{id}");
        let report: Value = serde_json::from_str(&report.data).expect("JSON");
        assert_eq!((&report["from"], &report["incarnation"]), (&json!(from), &json!(0)), "{id}");
        if from == 0 {
            assert_eq!(events.numbers(3).await, [0, 1, 2]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filtered_follower_gets_what_it_asked_for() {
    let server = Running::start().await;
    let commit = async |kind: &str, id: &str, tags: &[&str]| {
        let event = json!({"type": kind, "data": {}, "tags": tags});
        server.commit(&json!({"aggregate": {"name": "order", "id": id}, "events": [event]})).await;
    };
    let mut typed = Events::open(&server, "/v1/log/follow?types=a,b", None).await;
    let mut tagged = Events::open(&server, "/v1/log/follow?tags=x", None).await;
    let mut one = Events::open(&server, "/v1/log/follow?aggregate=order/2&types=a", None).await;
    for round in 0..3 {
        commit("a", "1", &[]).await;
        commit("c", "1", &["x", "y"]).await;
        commit("b", "2", &["y"]).await;
        commit("a", "2", &["x"]).await;
        let at = round * 4;
        assert_eq!(typed.numbers(3).await, [at, at + 2, at + 3]);
        assert_eq!(tagged.numbers(2).await, [at + 1, at + 3]);
        assert_eq!(one.numbers(1).await, [at + 3]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quiet_stream_sends_comments() {
    let mut options = Options::default();
    options.comment_interval = Duration::from_millis(20);
    let server = Running::start_with(options).await;
    let mut events = Events::open(&server, "/v1/log/follow", None).await;
    assert_eq!(events.block().await.and_then(|block| block.comment), Some("from 0, head 0".to_owned()));
    for _ in 0..3 {
        assert_eq!(events.block().await.and_then(|block| block.comment), Some("quiet".to_owned()));
    }
    server.commit_orders("o-1", 2).await;
    assert_eq!(events.numbers(2).await, [0, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn followers_are_counted_while_they_follow() {
    let server = Running::start().await;
    let events = Events::open(&server, "/v1/log/follow", None).await;
    assert!(server.get("/metrics").await.text().contains("annals_followers 1\n"));
    drop(events);
    soon("the follower to be gone", async {
        while !server.get("/metrics").await.text().contains("annals_followers 0\n") {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_cannot_go_on_says_why_and_ends() {
    let (store, tap) = Tap::store();
    let server = Running::over(store, Options::default()).await;
    let mut events = Events::open(&server, "/v1/log/follow", None).await;
    server.commit_orders("o-1", 1).await;
    assert_eq!(events.numbers(1).await, [0]);
    tap.reading.send_replace(Reads::Fail);
    server.commit_orders("o-1", 1).await;
    let last = events.next().await;
    assert_eq!((last.event.as_deref(), last.id), (Some("problem"), None));
    let problem: Value = serde_json::from_str(&last.data).expect("JSON");
    assert_eq!(problem["code"], Code::ReadFailed.as_str());
    assert_eq!(events.block().await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_above_the_limit_is_refused_until_another_one_ends() {
    let mut options = Options::default();
    options.followers_max = 1;
    let server = Running::start_with(options).await;
    let follower = Events::open(&server, "/v1/log/follow", None).await;
    let refused = server.get("/v1/log/follow").await.problem(Code::Overloaded);
    assert!(refused["detail"].as_str().is_some_and(|detail| detail.contains("1 followers")), "{refused}");
    // Those that are refused are not counted, and nothing else is refused.
    assert!(server.get("/metrics").await.text().contains("\nannals_followers 1\n"));
    server.get("/v1/log").await.json();
    drop(follower);
    let accepted = async {
        loop {
            let request = server.request(Method::GET, "/v1/log/follow").send();
            if request.await.expect("an answer").status() == 200 {
                break;
            }
        }
    };
    soon("a place among the followers", accepted).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_the_last_answer_of_its_connection_and_comes_after_those_before() {
    let server = Running::start().await;
    let mut raw = Raw::open(&server).await;
    let asked = ["/health/live", "/v1/log/follow"].map(|path| format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n"));
    raw.write(asked.concat()).await.expect("written");
    assert_eq!(raw.answer().await.json(), json!({"status": "live"}));
    let head = raw.through(b"\r\n\r\n").await.expect("an answer");
    let head = String::from_utf8(head).expect("text");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    for header in ["connection: close", "transfer-encoding: chunked", "content-type: text/event-stream"] {
        assert!(head.lines().any(|line| line == header), "{head}");
    }
    assert_eq!(raw.through(b"\n\n\r\n").await.as_deref(), Some(&b"12\r\n: from 0, head 0\n\n\r\n"[..]));
    // Nobody answers what is asked after it, and it does no harm.
    raw.write(&asked[0]).await.expect("written");
    server.commit_orders("o-1", 2).await;
    assert!(raw.through(b"id: 1\n").await.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_http_1_0_gets_the_stream_without_chunks() {
    let mut server = Running::start().await;
    let mut raw = Raw::open(&server).await;
    raw.write("GET /v1/log/follow HTTP/1.0\r\nhost: x\r\n\r\n").await.expect("written");
    let head = String::from_utf8(raw.through(b"\r\n\r\n").await.expect("an answer")).expect("text");
    assert!(head.starts_with("HTTP/1.0 200 ") && !head.contains("chunked"), "{head}");
    assert_eq!(raw.through(b"\n\n").await.as_deref(), Some(&b": from 0, head 0\n\n"[..]));
    server.commit_orders("o-1", 1).await;
    let event = raw.through(b"\n\n").await.expect("an event");
    assert!(event.starts_with(b"id: 0\ndata: {"), "{}", String::from_utf8_lossy(&event));
    server.begin_stop();
    assert!(!raw.closed().await, "the stream ends with its last event");
}

/// A route of one's own may pass on what a server of HTTP/1.0 answers.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_from_elsewhere_is_sent_as_its_headers_say() {
    let passed_on = || async {
        let events = futures_util::stream::iter([Ok::<_, Infallible>("data: 1\n\n")]);
        let mut response = axum::http::Response::new(Body::from_stream(events));
        response.headers_mut().insert("content-type", "text/event-stream".parse().expect("a value"));
        *response.version_mut() = axum::http::Version::HTTP_10;
        response
    };
    let (store, _) = Tap::store();
    let with_route = |router: Router| router.route("/elsewhere", get(passed_on));
    let server = Running::with_router(store, Options::default(), with_route).await;
    let mut raw = Raw::open(&server).await;
    raw.write("GET /elsewhere HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("written");
    let head = String::from_utf8(raw.through(b"\r\n\r\n").await.expect("an answer")).expect("text");
    assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("transfer-encoding: chunked\r\n"), "{head}");
    assert_eq!(raw.rest_in_chunks().await.as_deref(), Some(&b"data: 1\n\n"[..]));
}

/// On one thread, so that the first follower has its events before the next one looks for them.
#[tokio::test]
async fn followers_of_the_same_events_read_them_once_and_each_gets_all() {
    const FOLLOWERS: usize = 20;
    let (store, tap) = Tap::store();
    let server = Running::over(store, Options::default()).await;
    let mut followers = Vec::new();
    for _ in 0..FOLLOWERS {
        followers.push(Events::open(&server, "/v1/log/follow", None).await);
    }
    let before = tap.reads.load(SeqCst);
    server.commit_orders("o-1", 5).await;
    for follower in &mut followers {
        assert_eq!(follower.numbers(5).await, (0..5).collect::<Vec<_>>());
    }
    let reads = tap.reads.load(SeqCst) - before;
    assert!(reads < FOLLOWERS as u64, "{reads} reads for {FOLLOWERS} followers");
    // Several pages and portions; one that comes later begins inside of one.
    server.commit_orders("o-1", 995).await;
    let mut late = Events::open(&server, "/v1/log/follow?from=100", None).await;
    for follower in &mut followers {
        assert_eq!(follower.numbers(995).await, (5..1_000).collect::<Vec<_>>());
    }
    assert_eq!(late.numbers(900).await, (100..1_000).collect::<Vec<_>>());
    followers.push(late);
    server.commit_orders("o-1", 3).await;
    for follower in &mut followers {
        assert_eq!(follower.numbers(3).await, [1_000, 1_001, 1_002]);
    }
}
