//! `GET /v1/log` as a stream of lines.

use std::sync::atomic::Ordering::SeqCst;

use annals_core::Code;
use annals_server::Options;
use reqwest::{Method, Response};
use serde_json::{Value, json};

use crate::raw::Raw;
use crate::running::{Answer, Running, soon};
use crate::tapped::{Reads, Tap};

async fn lines(server: &Running, path: &str) -> Vec<Value> {
    let answer = server.send(server.request(Method::GET, path).header("accept", "application/x-ndjson")).await;
    parsed(&answer)
}

fn parsed(answer: &Answer) -> Vec<Value> {
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("content-type"), "application/x-ndjson");
    assert!(answer.body.is_empty() || answer.body.ends_with(b"\n"));
    answer.text().lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
}

fn numbers(lines: &[Value]) -> Vec<u64> {
    lines.iter().map(|line| line["sequence_number"].as_u64().expect("a number")).collect()
}

async fn filled(commits: u64) -> Running {
    let server = Running::start().await;
    for n in 0..commits {
        server.commit_orders(&format!("o-{n}"), 1_000).await;
    }
    server
}

async fn open_lines(server: &Running, path: &str) -> Response {
    let request = server.request(Method::GET, path).header("accept", "application/x-ndjson");
    soon("an answer", request.send()).await.expect("an answer")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_whole_log_comes_in_one_answer_one_event_a_line() {
    let server = filled(3).await;
    let all = lines(&server, "/v1/log").await;
    assert_eq!(numbers(&all), (0..3_000).collect::<Vec<_>>());
    assert_eq!(all[1_234], server.get("/v1/log/1234").await.json());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_of_the_log_may_have_more_than_a_page() {
    let server = filled(3).await;
    for (query, expected) in [
        ("from=500", (500..3_000).collect::<Vec<u64>>()),
        ("from=500&limit=1500", (500..2_000).collect()),
        ("limit=1", vec![0]),
        ("from=2999&limit=5000", vec![2_999]),
        ("from=3000", vec![]),
        ("from=18446744073709551615", vec![]),
        ("backwards", (0..3_000).rev().collect()),
        ("backwards&limit=1001", (1_999..3_000).rev().collect()),
        ("backwards&from=1100", (0..1_100).rev().collect()),
        ("aggregate=order/o-1", (1_000..2_000).collect()),
        ("aggregate=order/o-1&limit=3&from=7", vec![1_000, 1_001, 1_002]),
        ("types=order_placed&limit=2500", (0..2_500).collect()),
        ("types=other", vec![]),
    ] {
        assert_eq!(numbers(&lines(&server, &format!("/v1/log?{query}")).await), expected, "{query}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_are_answered_to_whoever_accepts_them() {
    let server = filled(1).await;
    for accept in ["application/x-ndjson", "Application/X-NDJSON;q=0.9", "text/html, application/x-ndjson"] {
        let answer = server.send(server.request(Method::GET, "/v1/log?limit=2").header("accept", accept)).await;
        assert_eq!(parsed(&answer).len(), 2, "{accept}");
    }
    for accept in ["*/*", "application/json"] {
        let answer = server.send(server.request(Method::GET, "/v1/log?limit=2").header("accept", accept)).await;
        assert_eq!(answer.json()["head"], 1_000, "{accept}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_stream_ends_where_the_head_was_when_it_began() {
    let (store, _) = Tap::store();
    let server = Running::over(store, Options::default()).await;
    // Large enough that the connection's buffers cannot hold it, so that commits come while it is being read.
    let text = "x".repeat(100_000);
    let batch = json!({"aggregate": {"name": "a", "id": "1"}, "events": vec![json!({"type": "t", "data": {"text": text}}); 100]});
    for _ in 0..2 {
        server.commit(&batch).await;
    }
    let response = open_lines(&server, "/v1/log").await;
    server.commit(&batch).await;
    assert_eq!(numbers(&parsed(&Answer::of(response).await)), (0..200).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_is_read_no_faster_than_the_reader_takes_it() {
    let (store, tap) = Tap::store();
    let server = Running::over(store, Options::default()).await;
    server.commit_batches(6).await;
    // 30 MB in pages of 5 MB. The server's side of the connection holds up to 4 MB, the reader's next to nothing.
    let mut reader = Raw::slow_reader(&server, "/v1/log", "application/x-ndjson").await;
    for _ in 0..50 {
        // Others are served meanwhile.
        server.commit_orders("o", 1).await;
    }
    let read = tap.reads.load(SeqCst);
    assert!(read <= 2, "{read} pages read for a reader that has not begun");
    let body = reader.body_in_chunks().await.expect("a whole answer");
    assert!(body.split(|b| *b == b'\n').count() > 6_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_cannot_be_finished_is_broken_off_and_not_ended() {
    let (store, tap) = Tap::store();
    let server = Running::over(store, Options::default()).await;
    server.commit_batches(3).await;
    let mut reader = Raw::slow_reader(&server, "/v1/log", "application/x-ndjson").await;
    soon("the first page to be read", async {
        while tap.reads.load(SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    tap.reading.send_replace(Reads::Fail);
    assert_eq!(reader.body_in_chunks().await, None, "a part was answered as if it were the whole");
    let again = server.request(Method::GET, "/v1/log").header("accept", "application/x-ndjson");
    server.send(again).await.problem(Code::ReadFailed);
}
