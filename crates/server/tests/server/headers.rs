//! Headers of every answer: no page may guess its type, or take it in from another site.

use std::sync::Arc;

use annals_embedded::disk::MemoryDisk;
use annals_server::{Callers, Options};
use reqwest::Method;
use reqwest::header::{ACCEPT, HeaderMap};
use serde_json::json;

use crate::raw::Raw;
use crate::running::{Running, opened, soon, store_on};

#[track_caller]
fn are_guarded(headers: &HeaderMap, what: &str) {
    for (name, due) in [("x-content-type-options", "nosniff"), ("cross-origin-resource-policy", "same-origin")] {
        let found: Vec<_> = headers.get_all(name).iter().collect();
        assert_eq!(found, [due], "{name} of {what}: {headers:?}");
    }
}

/// The server as it is, and a router of someone's own.
async fn servers() -> [Running; 2] {
    let store = || store_on(Arc::new(MemoryDisk::default()), annals_embedded::Options::default());
    [Running::start().await, Running::with_router(store(), Options::default(), |router| router).await]
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_is_guarded_whether_a_success_or_an_error() {
    for server in servers().await {
        let created = server.post(opened().to_string()).await;
        assert_eq!(created.status, 201);
        are_guarded(&created.headers, "a commit");
        for (method, path, status) in [
            (Method::GET, "/openapi.json", 200),
            (Method::GET, "/v1/log", 200),
            (Method::GET, "/v1/stats", 200),
            (Method::GET, "/health/ready", 200),
            (Method::GET, "/metrics", 200),
            (Method::HEAD, "/v1/log", 200),
            (Method::GET, "/nothing", 404),
            (Method::DELETE, "/v1/log", 405),
            (Method::GET, "/v1/log?limit=x", 422),
            (Method::GET, "/v1/%ff", 400),
        ] {
            let answer = server.send(server.request(method.clone(), path)).await;
            are_guarded(&answer.headers, &format!("{method} {path}"));
            assert_eq!(answer.status, status, "{method} {path}");
        }
        let refused = server.post(json!({ "aggregate": 1 }).to_string()).await;
        assert!(refused.status.is_client_error());
        are_guarded(&refused.headers, "a refused commit");
        // The connection answers it, before any operation is looked for.
        let mut old = Raw::open(&server).await;
        old.write("GET /v1/log HTTP/1.0\r\n\r\n").await.expect("written");
        are_guarded(&old.answer().await.headers, "HTTP/1.0");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_guarded_from_its_first_byte_on() {
    for server in servers().await {
        server.commit(&opened()).await;
        for (path, kind) in [("/v1/log/follow", "text/event-stream"), ("/v1/log/follow", "application/x-ndjson")] {
            let asked = server.request(Method::GET, path).header(ACCEPT, kind);
            let stream = soon("a stream", asked.send()).await.expect("it is answered");
            assert_eq!(stream.status(), 200, "{kind}");
            are_guarded(stream.headers(), kind);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_who_is_kept_out_is_told_with_the_same_headers() {
    let mut options = Options::default();
    options.callers = Callers::ThisMachine;
    let server = Running::start_with(options).await;
    let answer = server.send(server.request(Method::GET, "/v1/log").header("origin", "http://example.org")).await;
    assert_eq!(answer.status, 403);
    are_guarded(&answer.headers, "another site");
}
