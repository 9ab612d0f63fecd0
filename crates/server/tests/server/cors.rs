//! Pages of other origins: kept out by default, and let in to the API where the operator names them.

use std::sync::Arc;

use annals_core::Code;
use annals_embedded::disk::MemoryDisk;
use annals_server::{Callers, Options, Origins, Security};
use reqwest::Method;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HOST, ORIGIN};

use crate::running::{Answer, Running, opened, store_on};

const PAGE: &str = "https://app.example";

async fn server(origins: &[&str]) -> Running {
    let mut options = Options::default();
    options.callers = Callers::ThisMachine;
    options.cors_origins = Origins::read(origins).expect("origins");
    Running::over(store_on(Arc::new(MemoryDisk::default()), annals_embedded::Options::default()), options).await
}

async fn preflight(server: &Running, path: &str, origin: &str) -> Answer {
    let request = server.request(Method::OPTIONS, path).header(ORIGIN, origin).header("sec-fetch-site", "cross-site");
    let request = request.header("access-control-request-method", "POST");
    server.send(request.header("access-control-request-headers", "annals-tenant,authorization,content-type")).await
}

fn allowed(answer: &Answer) -> Option<&str> {
    answer.headers.get("access-control-allow-origin").map(|origin| origin.to_str().expect("text"))
}

#[tokio::test(flavor = "multi_thread")]
async fn without_origins_no_page_of_another_site_gets_an_answer_that_it_may_read() {
    let server = server(&[]).await;
    for path in ["/v1", "/v1/commits", "/health/ready"] {
        let asked = preflight(&server, path, PAGE).await;
        asked.problem(Code::ForbiddenOrigin);
        assert_eq!(allowed(&asked), None);
        let refused = server.send(server.request(Method::GET, path).header(ORIGIN, PAGE)).await;
        refused.problem(Code::ForbiddenOrigin);
        assert_eq!((allowed(&refused), refused.headers.get("vary")), (None, None), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_a_named_origin_asks_first_and_then_calls_the_api() {
    let server = server(&["http://localhost:5173", PAGE]).await;
    let asked = preflight(&server, "/v1/commits", PAGE).await;
    assert_eq!((asked.status.as_u16(), allowed(&asked), asked.body.len()), (204, Some(PAGE), 0));
    assert_eq!(asked.header("access-control-allow-headers"), "annals-tenant,authorization,content-type");
    assert!(asked.header("access-control-allow-methods").contains("POST"), "{asked:?}");
    assert_eq!(asked.headers.get("access-control-allow-credentials"), None, "cookies are never allowed");
    let commit =
        server.request(Method::POST, "/v1/commits").header(ORIGIN, PAGE).header(CONTENT_TYPE, "application/json");
    let committed = server.send(commit.header("sec-fetch-site", "cross-site").body(opened().to_string())).await;
    assert_eq!((committed.status.as_u16(), allowed(&committed)), (201, Some(PAGE)));
    assert_eq!(committed.header("vary"), "Origin");
    // A stream of events can be read as well, and so can a refusal.
    let stream = server.request(Method::GET, "/v1/log/follow").header(ORIGIN, PAGE).send().await.expect("an answer");
    assert_eq!(stream.headers()["access-control-allow-origin"], PAGE);
    let refused = server.send(server.request(Method::GET, "/v1/nothing").header(ORIGIN, PAGE)).await;
    refused.problem(Code::UnknownRoute);
    assert_eq!(allowed(&refused), Some(PAGE));
    // A program that is no page is answered as ever.
    let program = server.get("/v1").await;
    assert_eq!((program.status.as_u16(), allowed(&program), program.header("vary")), (200, None, "Origin"));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_other_page_name_and_address_is_kept_out_all_the_same() {
    let server = server(&[PAGE]).await;
    for origin in
        ["http://app.example", "https://app.example:8443", "https://evil.example", "https://app.example.evil", "null"]
    {
        let asked = preflight(&server, "/v1", origin).await;
        asked.problem(Code::ForbiddenOrigin);
        assert_eq!(allowed(&asked), None, "{origin}");
        server.send(server.request(Method::GET, "/v1").header(ORIGIN, origin)).await.problem(Code::ForbiddenOrigin);
    }
    // Neither the pages of the server nor its metrics are part of the API.
    for path in ["/", "/console/handlers/act/pause", "/metrics"] {
        let asked = preflight(&server, path, PAGE).await;
        asked.problem(Code::ForbiddenOrigin);
        assert_eq!((allowed(&asked), asked.headers.get("vary")), (None, None), "{path}");
    }
    // An allowed page that calls the server by a foreign name is one whose name was given this machine's address.
    for method in [Method::GET, Method::OPTIONS] {
        let named = server.request(method, "/v1").header(ORIGIN, PAGE).header(HOST, "evil.example");
        server.send(named.header("access-control-request-method", "GET")).await.problem(Code::ForbiddenOrigin);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_named_origin_is_no_credential() {
    let mut options = Options::default();
    options.security = Some(Security::default());
    options.callers = Callers::Named;
    options.cors_origins = Origins::read(&[PAGE]).expect("origins");
    let tenants = vec!["default".to_owned(), "system".to_owned()];
    let store = annals_embedded::Options { tenants, ..annals_embedded::Options::default() };
    let server = Running::over(store_on(Arc::new(MemoryDisk::default()), store), options).await;
    assert_eq!(preflight(&server, "/v1", PAGE).await.status, 204, "a preflight has no credential");
    for key in [None, Some("Bearer ann_0"), Some("Basic YTpi")] {
        let mut request = server.request(Method::GET, "/v1").header(ORIGIN, PAGE);
        if let Some(key) = key {
            request = request.header(AUTHORIZATION, key);
        }
        let refused = server.send(request).await;
        refused.problem(Code::Unauthenticated);
        assert_eq!(allowed(&refused), Some(PAGE), "the page learns why");
    }
}
