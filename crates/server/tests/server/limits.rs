//! Bodies, headers and commits beyond their limits.

use std::time::Duration;

use annals_core::{Code, limits};
use annals_server::Options;
use futures_util::{StreamExt, stream};
use reqwest::{Body, Method};

use crate::raw::{Raw, commit_request};
use crate::running::{Running, opened, soon};
use crate::tapped::Tap;

#[tokio::test(flavor = "multi_thread")]
async fn a_body_over_its_limit_is_answered_413_and_the_connection_closes() {
    let server = Running::start().await;
    let answer = server.post(vec![b' '; limits::BODY_BYTES_MAX + 1]).await;
    answer.problem(Code::BodyTooLarge);
    assert_eq!(answer.header("connection"), "close");
    // At the limit it is read, and refused for what it is.
    server.post(vec![b' '; limits::BODY_BYTES_MAX]).await.problem(Code::NotJson);
    assert_eq!(server.head().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_over_its_limit_without_a_length_is_answered_413_too() {
    let server = Running::start().await;
    let chunks = stream::repeat_with(|| Ok::<_, std::io::Error>(vec![b' '; 1024 * 1024])).take(40);
    let request = server.request(Method::POST, "/v1/commits").body(Body::wrap_stream(chunks));
    server.send(request).await.problem(Code::BodyTooLarge);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_sends_everything_before_it_reads_gets_its_413() {
    let mut options = Options::default();
    options.body_bytes_max = 1024;
    let server = Running::start_with(options).await;
    let length = 20 * 1024 * 1024;
    let mut raw = Raw::open(&server).await;
    raw.write(format!("POST /v1/commits HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n"))
        .await
        .expect("written");
    raw.write(vec![b' '; length]).await.expect("all of the body is read");
    raw.answer().await.problem(Code::BodyTooLarge);
    raw.closed().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_of_a_body_is_read_than_its_bound() {
    let mut options = Options::default();
    options.body_bytes_max = 1024;
    let server = Running::start_with(options).await;
    let mut raw = Raw::open(&server).await;
    raw.write("POST /v1/commits HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000000000\r\n\r\n").await.expect("written");
    raw.answer().await.problem(Code::BodyTooLarge);
    let piece = vec![b' '; 1024 * 1024];
    let mut written = 0;
    while written < 4 * limits::BODY_DRAIN_BYTES_MAX && raw.write(&piece).await.is_ok() {
        written += piece.len();
    }
    // What the system's buffers hold was written too.
    assert!(written >= limits::BODY_DRAIN_BYTES_MAX, "{written}");
    assert!(written < 2 * limits::BODY_DRAIN_BYTES_MAX, "{written}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_asks_before_it_sends_a_large_body_is_told_not_to() {
    let server = Running::start().await;
    let mut raw = Raw::open(&server).await;
    let head = "POST /v1/commits HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 100000000\r\n\r\n";
    raw.write(head).await.expect("written");
    raw.answer().await.problem(Code::BodyTooLarge);
    raw.closed().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_before_the_body_is_read_still_reaches_a_client_that_is_sending_it() {
    let server = Running::start().await;
    let body = " ".repeat(10 * 1024 * 1024);
    for (target, code) in [
        ("/v1/commits?x=1", Code::InvalidQuery),
        ("/v1/nothing", Code::UnknownRoute),
        ("/v1/log", Code::MethodNotAllowed),
    ] {
        let mut raw = Raw::open(&server).await;
        let request = commit_request(&body).replacen("/v1/commits", target, 1);
        raw.write(request).await.expect("all of the body is read");
        raw.answer().await.problem(code);
        // The connection is good for the next request.
        raw.write(commit_request(&opened().to_string())).await.expect("written");
        assert_eq!(raw.answer().await.status, 201, "{target}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_stops_arriving_is_answered_408() {
    let mut options = Options::default();
    options.body_idle_max = Duration::from_millis(100);
    let server = Running::start_with(options).await;
    let mut raw = Raw::open(&server).await;
    let request = commit_request(&opened().to_string());
    raw.write(&request[..request.len() - 1]).await.expect("written");
    let answer = raw.answer().await;
    answer.problem(Code::RequestTimeout);
    assert_eq!(answer.header("connection"), "close");
    raw.closed().await;
    assert_eq!(server.head().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_in_broken_chunks_is_refused() {
    let server = Running::start().await;
    let mut raw = Raw::open(&server).await;
    let request = "POST /v1/commits HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n";
    raw.write(request).await.expect("written");
    raw.answer().await.problem(Code::NotJson);
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_over_their_limit_are_answered_431() {
    let server = Running::start().await;
    let long = server.request(Method::GET, "/v1/log").header("x-long", "x".repeat(70_000));
    server.send(long).await.problem(Code::HeadersTooLarge);
    let mut many = server.request(Method::GET, "/v1/log");
    for n in 0..80 {
        many = many.header(format!("x-{n}"), "x".repeat(1_000));
    }
    server.send(many).await.problem(Code::HeadersTooLarge);
    let short = server.request(Method::GET, "/v1/log").header("x-long", "x".repeat(60_000));
    assert_eq!(server.send(short).await.status, 200);
    // Beyond what the HTTP library reads there is only the status.
    let beyond = server.request(Method::GET, "/v1/log").header("x-long", "x".repeat(500_000));
    assert_eq!(server.send(beyond).await.status, 431);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_request_target_counts_with_the_headers() {
    let server = Running::start().await;
    let target = format!("/v1/{}", "x".repeat(60_000));
    server.get(&target).await.problem(Code::UnknownRoute);
    let both = server.request(Method::GET, &target).header("x-long", "x".repeat(6_000));
    server.send(both).await.problem(Code::HeadersTooLarge);
}

#[tokio::test(flavor = "multi_thread")]
async fn commits_beyond_those_that_may_be_under_way_are_answered_429() {
    let (store, tap) = Tap::store();
    let mut options = Options::default();
    options.commits_in_flight_max = 2;
    let server = Running::over(store, options).await;
    tap.commits_held.send_replace(true);
    let held: Vec<_> = (0..2)
        .map(|_| {
            let request = server.request(Method::POST, "/v1/commits").body(opened().to_string());
            tokio::spawn(async move { request.send().await.expect("an answer").status() })
        })
        .collect();
    soon("both commits to be under way", tap.commits_begun.subscribe().wait_for(|begun| *begun == 2))
        .await
        .expect("there");
    let refused = server.post(opened().to_string()).await;
    refused.problem(Code::Overloaded);
    assert_eq!(refused.header("retry-after"), "1");
    // Reads go on.
    assert_eq!(server.head().await, 0);
    tap.commits_held.send_replace(false);
    for commit in held {
        assert_eq!(soon("the commit", commit).await.expect("no panic"), 201);
    }
    assert_eq!(server.post(opened().to_string()).await.status, 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_beyond_those_that_may_be_held_are_answered_429() {
    let (store, tap) = Tap::store();
    let mut options = Options::default();
    let body = opened().to_string();
    options.body_bytes_in_flight_max = body.len() + body.len() / 2;
    let server = Running::over(store, options).await;
    tap.commits_held.send_replace(true);
    let request = server.request(Method::POST, "/v1/commits").body(body.clone());
    let held = tokio::spawn(async move { request.send().await.expect("an answer").status() });
    soon("the commit to be under way", tap.commits_begun.subscribe().wait_for(|begun| *begun == 1))
        .await
        .expect("there");
    server.post(body.clone()).await.problem(Code::Overloaded);
    tap.commits_held.send_replace(false);
    assert_eq!(soon("the commit", held).await.expect("no panic"), 201);
    assert_eq!(server.post(body).await.status, 201);
}
