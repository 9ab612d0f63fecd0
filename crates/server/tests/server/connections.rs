//! Connections that are not what they should be, and those of HTTP/2.

use std::time::Duration;

use annals_core::Code;
use annals_server::Options;
use reqwest::Client;

use crate::raw::{Raw, commit_request};
use crate::running::{Answer, Running, opened, soon};

async fn impatient() -> Running {
    let mut options = Options::default();
    options.header_wait_max = Duration::from_millis(700);
    Running::start_with(options).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_finish_its_headers_is_let_go() {
    let server = impatient().await;
    for beginning in ["", "P", "PRI * HT", "GET /v1/log", "GET /v1/log HTTP/1.1\r\nhost: x\r\nx-slow: 1\r\n"] {
        let mut raw = Raw::open(&server).await;
        raw.write(beginning).await.expect("written");
        assert!(!raw.closed().await, "{beginning:?} was answered");
    }
    assert_eq!(server.head().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_connection_is_let_go() {
    let server = impatient().await;
    let mut raw = Raw::open(&server).await;
    raw.write(commit_request(&opened().to_string())).await.expect("written");
    assert_eq!(raw.answer().await.status, 201);
    assert!(!raw.closed().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn several_requests_share_a_connection() {
    let server = Running::start().await;
    let mut raw = Raw::open(&server).await;
    let request = commit_request(&opened().to_string());
    raw.write(request.repeat(3)).await.expect("written");
    for version in 1..=3 {
        assert_eq!(raw.answer().await.json()["version"], version);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_http_is_answered_400() {
    let server = Running::start().await;
    let mut raw = Raw::open(&server).await;
    raw.write("hello, is anybody there?\r\n\r\n").await.expect("written");
    assert_eq!(raw.answer().await.status, 400);
    raw.closed().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_that_is_not_percent_encoded_utf8_is_a_problem() {
    let server = Running::start().await;
    for path in ["/v1/aggregates/door/%zz/commits", "/v1/aggregates/door/%ff/commits", "/v1/%", "/%c3%28"] {
        let mut raw = Raw::open(&server).await;
        raw.write(format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n")).await.expect("written");
        raw.answer().await.problem(Code::InvalidPath);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_in_another_form_is_answered_too() {
    let server = Running::start().await;
    for (line, code) in [
        ("OPTIONS *", Code::UnknownRoute),
        ("CONNECT example.org:80", Code::UnknownRoute),
        ("GET http://example.org/v1/nothing", Code::UnknownRoute),
        ("PUT http://example.org/v1/log", Code::MethodNotAllowed),
    ] {
        let mut raw = Raw::open(&server).await;
        raw.write(format!("{line} HTTP/1.1\r\nhost: x\r\n\r\n")).await.expect("written");
        raw.answer().await.problem(code);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_of_dots_are_reached_by_clients_that_send_paths_as_they_are() {
    let server = Running::start().await;
    let body = opened().to_string().replace("\"7\"", "\"..\"");
    assert_eq!(server.post(body).await.status, 201);
    let mut raw = Raw::open(&server).await;
    raw.write("GET /v1/aggregates/door/../commits HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("written");
    assert_eq!(raw.answer().await.json()["version"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn http2_with_prior_knowledge_is_spoken() {
    let server = Running::start().await;
    let client = Client::builder().http2_prior_knowledge().no_proxy().build().expect("a client");
    let commit = client.post(server.url("/v1/commits")).body(opened().to_string());
    let answer = soon("an answer", commit.send()).await.expect("an answer");
    assert_eq!(answer.version(), reqwest::Version::HTTP_2);
    assert_eq!(Answer::of(answer).await.json()["version"], 1);
    let lines = client.get(server.url("/v1/log")).header("accept", "application/x-ndjson");
    let answer = Answer::of(soon("an answer", lines.send()).await.expect("an answer")).await;
    assert_eq!(answer.text().lines().count(), 1);
    let unknown = soon("an answer", client.get(server.url("/nothing")).send()).await.expect("an answer");
    Answer::of(unknown).await.problem(Code::UnknownRoute);
    let large = client.get(server.url("/v1/log")).header("x-long", "x".repeat(70_000));
    Answer::of(soon("an answer", large.send()).await.expect("an answer")).await.problem(Code::HeadersTooLarge);
}

#[tokio::test(flavor = "multi_thread")]
async fn more_connections_than_allowed_wait_for_a_place() {
    let mut options = Options::default();
    options.connections_max = 1;
    let server = Running::start_with(options).await;
    let mut first = Raw::open(&server).await;
    first.write(commit_request(&opened().to_string())).await.expect("written");
    assert_eq!(first.answer().await.json()["version"], 1);
    let mut second = Raw::open(&server).await;
    second.write(commit_request(&opened().to_string())).await.expect("written");
    first.write(commit_request(&opened().to_string())).await.expect("written");
    assert_eq!(first.answer().await.json()["version"], 2);
    drop(first);
    assert_eq!(second.answer().await.json()["version"], 3);
}
