//! Work queues over HTTP.

use annals_core::Code;
use reqwest::Method;
use serde_json::{Value, json};

use crate::running::{Answer, Running};

async fn send(server: &Running, method: Method, path: &str, body: Value) -> Answer {
    server.send(server.request(method, path).header("content-type", "application/json").body(body.to_string())).await
}

async fn post(server: &Running, path: &str, body: Value) -> Value {
    send(server, Method::POST, path, body).await.json()
}

#[tokio::test(flavor = "multi_thread")]
async fn items_are_enqueued_taken_renewed_and_done_over_http() {
    let server = Running::start().await;
    server.get("/v1/queues/q").await.problem(Code::UnknownQueue);
    let unknown = send(&server, Method::POST, "/v1/queues/q/enqueue", json!({"id": "x"})).await;
    assert_eq!(unknown.problem(Code::UnknownQueue)["name"], "q");
    let defined = send(&server, Method::PUT, "/v1/queues/q", json!({"cap": 1})).await;
    assert_eq!((defined.status.as_u16(), &defined.json()["pending_max"]), (201, &json!(10_000)));
    let add = async |body: Value| send(&server, Method::POST, "/v1/queues/q/enqueue", body).await;
    let first = add(json!({"id": "a", "priority": "low", "payload": {"n": 1}})).await;
    assert_eq!((first.status.as_u16(), &first.json()["position"]), (201, &json!(0)));
    assert_eq!(add(json!({"id": "a", "priority": "critical"})).await.json()["duplicate"], true);
    add(json!({"id": "b", "priority": "high", "user": "eva"})).await.json();
    assert_eq!(add(json!({"id": "c", "priority": "urgent"})).await.problem(Code::InvalidBody)["path"], "priority");
    let taken = post(&server, "/v1/queues/q/take", json!({"max": 5, "worker": "w"})).await;
    let item = &taken["items"][0];
    assert_eq!((taken["items"].as_array().map(Vec::len), &item["id"]), (Some(1), &json!("b")), "the cap is 1");
    let held = json!({"id": "b", "token": item["token"]});
    let renewed = post(&server, "/v1/queues/q/renew", json!({"items": [held], "lease_ms": 90_000})).await;
    assert!(renewed["results"][0]["lease_until"].as_str() > item["lease_until"].as_str(), "{renewed}");
    let stale = post(&server, "/v1/queues/q/done", json!({"id": "b", "token": "1-1"})).await;
    assert_eq!(
        (&stale["results"][0]["accepted"], &stale["results"][0]["error"]),
        (&json!(false), &json!("lease_lost"))
    );
    let done = post(&server, "/v1/queues/q/done", held).await;
    assert_eq!((&done["results"][0]["accepted"], &done["results"][0]["changed"]), (&json!(true), &json!(true)));
    let next = post(&server, "/v1/queues/q/take", json!({})).await;
    assert_eq!((&next["items"][0]["id"], &next["items"][0]["payload"]), (&json!("a"), &json!({"n": 1})));
    send(&server, Method::POST, "/v1/queues/q/done", json!({})).await.problem(Code::InvalidBody);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_raises_cancels_and_deletes_with_a_reason() {
    let server = Running::start().await;
    send(&server, Method::PUT, "/v1/queues/q", json!({})).await.json();
    for id in ["a", "b/c"] {
        post(&server, "/v1/queues/q/enqueue", json!({"id": id})).await;
    }
    let raised = send(&server, Method::PATCH, "/v1/queues/q/items/b%2Fc", json!({"priority": "critical"})).await.json();
    assert_eq!(
        (&raised["id"], &raised["priority"], &raised["state"]),
        (&json!("b/c"), &json!("critical"), &json!("pending"))
    );
    let without = send(&server, Method::DELETE, "/v1/queues/q/items/a", json!({"reason": " "})).await;
    assert_eq!(without.problem(Code::InvalidBody)["path"], "reason");
    let cancelled =
        send(&server, Method::DELETE, "/v1/queues/q/items/a", json!({"reason": "nobody waits"})).await.json();
    assert_eq!(cancelled["cancelled"]["id"], "a");
    let gone = server.get("/v1/queues/q/items/a").await.problem(Code::UnknownItem);
    assert_eq!((&gone["name"], &gone["key"]), (&json!("q"), &json!("a")));
    assert_eq!(server.get("/v1/queues/q/items").await.json()["items"].as_array().map(Vec::len), Some(1));
    let acts = json!({"limit": 10});
    let kept = post(&server, "/v1/records/collections/annals-acts/find", acts).await;
    assert!(kept.to_string().contains("nobody waits"), "{kept}");
    send(&server, Method::DELETE, "/v1/queues/q", json!({"reason": "a test"})).await.json();
    assert_eq!(server.get("/v1/queues").await.json(), json!({"items": []}));
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_count_what_work_queues_hold_by_priority() {
    let server = Running::start().await;
    send(&server, Method::PUT, "/v1/queues/q", json!({"cap": 3})).await.json();
    for (id, priority) in [("a", "high"), ("b", "high"), ("c", "background")] {
        post(&server, "/v1/queues/q/enqueue", json!({"id": id, "priority": priority})).await;
    }
    post(&server, "/v1/queues/q/take", json!({})).await;
    let metrics = server.get("/metrics").await;
    let of = |name: &str, more: &str| {
        let line = format!("{name}{{tenant=\"default\",queue=\"q\"{more}}} ");
        let found = metrics.text().lines().find_map(|it| it.strip_prefix(&line).map(str::to_owned));
        found.unwrap_or_else(|| panic!("no {line}in\n{}", metrics.text()))
    };
    assert_eq!((&*of("annals_queue_active", ""), &*of("annals_queue_cap", "")), ("1", "3"));
    assert_eq!(&*of("annals_queue_pending", ",priority=\"high\""), "1");
    assert_eq!(&*of("annals_queue_pending", ",priority=\"background\""), "1");
    assert_eq!((&*of("annals_queue_enqueued_total", ""), &*of("annals_queue_taken_total", "")), ("3", "1"));
    assert!(metrics.text().contains("annals_queues_readable 1\n"));
}
