//! Prepare keys in the body of a commit, and the problems they become.

use annals_core::Code;
use reqwest::Method;

use crate::running::{Answer, Running};

/// A commit with these fields beside its event; text, because a tree of JSON values sorts the fields of values.
fn commit(id: &str, fields: &str) -> String {
    format!(r#"{{"aggregate":{{"name":"account","id":"{id}"}},"events":[{{"type":"renamed","data":{{}}}}],{fields}}}"#)
}

async fn post(server: &Running, body: String) -> Answer {
    server.send(server.request(Method::POST, "/v1/commits").body(body)).await
}

/// Asserts that the commit is refused because of this key of `user`.
async fn assert_refused(server: &Running, body: String, code: Code, key: &str) {
    let problem = post(server, body).await.problem(code);
    assert!(problem["name"] == "user" && problem["key"] == key, "{problem}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_taken_and_given_back_with_its_value() {
    let server = Running::start().await;
    let reserve = r#""reserve":[{"name":"user","key":"eva","value":{"b":7,"a":null}}]"#;
    assert_eq!(post(&server, commit("a", reserve)).await.status, 201);
    assert_refused(&server, commit("b", reserve), Code::KeyTaken, "eva").await;
    let release = |value: &str| commit("a", &format!(r#""release":[{{"name":"user","key":"eva","value":{value}}}]"#));
    assert_refused(&server, release(r#"{"a":null,"b":7}"#), Code::KeyNotHeld, "eva").await;
    assert_refused(&server, release("null"), Code::KeyNotHeld, "eva").await;
    assert_eq!(post(&server, release(r#"{"b":7.0,"a":null}"#)).await.status, 201);
    let any_value = r#""release":[{"name":"user","key":"eva"}]"#;
    assert_refused(&server, commit("a", any_value), Code::KeyNotHeld, "eva").await;
    assert_eq!(post(&server, commit("b", reserve)).await.status, 201);
    assert_eq!(post(&server, commit("a", any_value)).await.status, 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reservation_whose_time_has_passed_may_be_taken_over() {
    let server = Running::start().await;
    let reserve = |key: &str, ttl_at: &str| {
        commit("a", &format!(r#""reserve":[{{"name":"user","key":"{key}","value":1,"ttl_at":"{ttl_at}"}}]"#))
    };
    for _ in 0..2 {
        assert_eq!(post(&server, reserve("eva", "2001-01-01T00:00:00Z")).await.status, 201);
    }
    assert_eq!(post(&server, reserve("eve", "9001-01-01T00:00:00Z")).await.status, 201);
    assert_refused(&server, reserve("eve", "9001-01-01T00:00:00Z"), Code::KeyTaken, "eve").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_are_wrong_are_refused_with_their_path() {
    let server = Running::start().await;
    for (fields, path) in [
        (r#""reserve":[{"name":"user","key":"eva"}]"#, "reserve[0]"),
        (r#""reserve":[{"name":"user","key":"eva","value":1,"ttl":1}]"#, "reserve[0].ttl"),
        (r#""reserve":[{"name":"user","key":"eva","value":1,"ttl_at":"soon"}]"#, "reserve[0].ttl_at"),
        (r#""reserve":[{"name":"user","key":"eva","value":{"a":1,"a":2}}]"#, "reserve[0].value"),
        (r#""reserve":[{"name":"a b","key":"eva","value":1}]"#, "reserve[0].name"),
        (r#""reserve":{"name":"user"}"#, "reserve"),
        (r#""release":[{"name":"user","key":""}]"#, "release[0].key"),
        (r#""release":[{"name":"user","key":"eva"},{"name":"user","key":"eva"}]"#, "release[1].key"),
        (r#""release":[7]"#, "release[0]"),
    ] {
        let problem = post(&server, commit("a", fields)).await.problem(Code::InvalidKeys);
        assert!(problem["path"].as_str().is_some_and(|at| at.starts_with(path)), "{fields}: {problem}");
    }
    assert_eq!(server.head().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_names_the_commit_whose_key_is_taken() {
    let server = Running::start().await;
    let reserve = r#""reserve":[{"name":"user","key":"eva","value":1}]"#;
    let body = format!(r#"{{"commits":[{},{}]}}"#, commit("a", reserve), commit("b", reserve));
    let answer = server.send(server.request(Method::POST, "/v1/transactions").body(body)).await;
    let problem = answer.problem(Code::KeyTaken);
    assert!(problem["path"] == "commits[1]" && problem["name"] == "user" && problem["key"] == "eva", "{problem}");
    assert_eq!(server.head().await, 0);
}
