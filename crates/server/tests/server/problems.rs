//! Whatever is asked wrongly, at whatever address, is answered with a problem document whose code is in the table.

use annals_core::Code;
use reqwest::Method;

use crate::running::{Answer, Running};

const ADDRESSES: [(&str, &str); 11] = [
    ("/v1", "GET,HEAD"),
    ("/v1/commits", "POST"),
    ("/v1/aggregates/door", "GET,HEAD"),
    ("/v1/aggregates/door/7/commits", "GET,HEAD"),
    ("/v1/aggregates/door/7/requests/r", "GET,HEAD"),
    ("/v1/log", "GET,HEAD"),
    ("/v1/log/follow", "GET,HEAD"),
    ("/v1/log/0", "GET,HEAD"),
    ("/health/live", "GET,HEAD"),
    ("/health/ready", "GET,HEAD"),
    ("/metrics", "GET,HEAD"),
];

/// Checks that it is a problem of some code of the table.
fn any_problem(answer: &Answer) -> Code {
    let problem: serde_json::Value = serde_json::from_slice(&answer.body).expect("JSON");
    let code = Code::ALL.iter().find(|code| problem["code"] == code.as_str()).expect("a code of the table");
    answer.problem(*code);
    *code
}

#[tokio::test(flavor = "multi_thread")]
async fn every_address_refuses_other_methods_and_names_its_own() {
    let server = Running::start().await;
    for (path, allowed) in ADDRESSES {
        for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"] {
            if allowed.split(',').any(|known| known == method) {
                continue;
            }
            let request = server.request(Method::from_bytes(method.as_bytes()).expect("a method"), path);
            let answer = server.send(request).await;
            assert_eq!(answer.status, 405, "{method} {path}");
            assert_eq!(answer.header("allow"), allowed, "{method} {path}");
            if method != "HEAD" {
                answer.problem(Code::MethodNotAllowed);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_address_of_the_api_refuses_what_it_does_not_know() {
    let server = Running::start().await;
    for (path, allowed) in ADDRESSES.into_iter().filter(|(path, _)| path.starts_with("/v1")) {
        let method = if allowed == "POST" { Method::POST } else { Method::GET };
        let unknown = server.send(server.request(method.clone(), &format!("{path}?unknown=1"))).await;
        assert_eq!(unknown.problem(Code::InvalidQuery)["path"], "unknown", "{path}");
        let tenant = server.request(method.clone(), path).header("annals-tenant", "nobody");
        server.send(tenant).await.problem(Code::UnknownTenant);
        let headers = server.request(method.clone(), path).header("x-long", "x".repeat(70_000));
        server.send(headers).await.problem(Code::HeadersTooLarge);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_asked_anywhere_else_is_an_unknown_route() {
    let server = Running::start().await;
    for path in [
        "/",
        "/v2",
        "/v1/",
        "/v1/logs",
        "/v1/commits/",
        "/v1/log/1/2",
        "/v1/aggregate",
        "/v1/aggregates/a/b",
        "/v1/aggregates/a/b/c",
        "/health",
        "/metrics/",
        "/favicon.ico",
    ] {
        for method in [Method::GET, Method::POST, Method::DELETE] {
            let code = any_problem(&server.send(server.request(method, path)).await);
            assert_eq!(code, Code::UnknownRoute, "{path}");
        }
    }
}
