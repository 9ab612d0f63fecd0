//! Keys that are restricted to event types.

use annals_core::Code;
use annals_core::credentials::{Grant, Role};
use reqwest::Method;
use serde_json::{Value, json};

use crate::follow::Events;
use crate::restricted::{forbidden, may_use_only};
use crate::running::Answer;
use crate::secured::Secured;

/// The operations that a restricted key may use, because they check event types or show no events.
const CHECKED: [&str; 6] = ["index", "commit", "transact", "readLog", "readEvent", "followLog"];

/// A server, and a key that commits and reads events of the type `paid`.
async fn restricted() -> (Secured, String) {
    let secured = Secured::start(&["default"]).await;
    let grant = Grant { event_types: vec!["paid".to_owned()], ..Grant::new(Role::Writer, ["default"]) };
    let (_, key) = secured.create(grant).await;
    (secured, key)
}

fn commit(id: &str, event_types: &[&str]) -> Value {
    let events: Vec<_> = event_types.iter().map(|name| json!({"type": name, "data": {}})).collect();
    json!({"aggregate": {"name": "order", "id": id}, "events": events})
}

async fn post(secured: &Secured, key: &str, path: &str, body: &Value) -> Answer {
    secured.send(secured.request(key, Method::POST, path).body(body.to_string())).await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_operation_that_does_not_check_event_types_refuses_a_restricted_key() {
    let (secured, key) = restricted().await;
    may_use_only(&secured, &key, &CHECKED, &["reader", "writer"], "restricted to event types").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restricted_key_commits_events_of_its_types_and_no_others() {
    let (secured, key) = restricted().await;
    assert_eq!(post(&secured, &key, "/v1/commits", &commit("o-1", &["paid"])).await.status, 201);
    for body in [commit("o-1", &["shipped"]), commit("o-1", &["paid", "shipped"])] {
        let detail = forbidden(&post(&secured, &key, "/v1/commits", &body).await);
        assert!(detail.contains("may not commit events of the type \"shipped\""), "{detail}");
    }
    let lines = format!("{}\n{}\n", commit("o-2", &["paid"]), commit("o-2", &["shipped"]));
    let request = secured.request(&key, Method::POST, "/v1/commits").header("content-type", "application/x-ndjson");
    let answer = secured.send(request.body(lines)).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let answers: Vec<Value> = answer.text().lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!((answers.len(), &answers[1]["code"]), (2, &json!("forbidden")), "{answers:?}");
    let transaction = json!({"commits": [commit("o-3", &["paid"]), commit("o-4", &["shipped"])]});
    forbidden(&post(&secured, &key, "/v1/transactions", &transaction).await);
    let transaction = json!({"commits": [commit("o-3", &["paid"]), commit("o-4", &["paid"])]});
    assert_eq!(post(&secured, &key, "/v1/transactions", &transaction).await.status, 201);
    let log = secured.get(&secured.admin, "/v1/log").await.json();
    let stored: Vec<_> = log["events"].as_array().expect("events").iter().map(|event| event["type"].clone()).collect();
    assert_eq!(stored, ["paid"; 4]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_condition_of_a_restricted_key_does_not_tell_of_other_events() {
    let (secured, key) = restricted().await;
    for (pattern, says) in
        [(json!({"types": ["shipped"]}), "\"shipped\""), (json!({"tags": ["of:eva"]}), "a pattern without types")]
    {
        let mut body = commit("o-1", &["paid"]);
        body["append_condition"] = json!({"fail_if": [{"types": ["paid"]}, pattern]});
        let detail = forbidden(&post(&secured, &key, "/v1/commits", &body).await);
        assert!(detail.contains(says), "{detail}");
    }
    let mut body = commit("o-1", &["paid"]);
    body["append_condition"] = json!({"fail_if": [{"types": ["paid"]}]});
    assert_eq!(post(&secured, &key, "/v1/commits", &body).await.status, 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restricted_key_reads_and_follows_events_of_its_types_and_no_others() {
    let (secured, key) = restricted().await;
    let committed = post(&secured, &secured.admin, "/v1/commits", &commit("o-1", &["paid", "shipped", "paid"])).await;
    assert_eq!(committed.status, 201, "{}", committed.text());
    for path in ["/v1/log", "/v1/log?types=paid"] {
        let page = secured.get(&key, path).await.json();
        let numbers: Vec<_> =
            page["events"].as_array().expect("events").iter().map(|it| &it["sequence_number"]).collect();
        assert_eq!(numbers, [&json!(0), &json!(2)], "{path}: {page}");
    }
    for media_type in ["application/x-ndjson", "application/bson"] {
        let request = secured.request(&key, Method::GET, "/v1/log").header("accept", media_type);
        let answer = secured.send(request).await;
        let text = String::from_utf8_lossy(&answer.body);
        assert!(answer.status.is_success() && text.contains("paid") && !text.contains("shipped"), "{text}");
    }
    assert_eq!(secured.get(&key, "/v1/log/2").await.json()["type"], "paid");
    let detail = forbidden(&secured.get(&key, "/v1/log/1").await);
    assert!(detail.contains("event 1") && !detail.contains("shipped"), "{detail}");
    for path in ["/v1/log?types=shipped", "/v1/log?types=paid,shipped", "/v1/log/follow?types=shipped"] {
        let detail = forbidden(&secured.get(&key, path).await);
        assert!(detail.contains("may not read events of the type \"shipped\""), "{path}: {detail}");
    }
    let mut events = Events::of(secured.request(&key, Method::GET, "/v1/log/follow")).await;
    assert_eq!(events.numbers(2).await, [0, 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_credential_shows_its_event_types_and_operators_are_not_restricted() {
    let secured = Secured::start(&["default"]).await;
    let new = |role: &str| json!({"name": "a", "roles": [role], "tenants": ["default"], "event_types": ["paid"]});
    let created = post(&secured, &secured.admin, "/v1/credentials", &new("reader")).await.json();
    let path = format!("/v1/credentials/{}", created["id"].as_str().expect("an id"));
    assert_eq!(secured.get(&secured.admin, &path).await.json()["event_types"], json!(["paid"]));
    let refused = post(&secured, &secured.admin, "/v1/credentials", &new("operator")).await;
    assert_eq!(refused.problem(Code::InvalidCredential)["path"], "event_types");
}
