//! Sagas over HTTP.

use annals_core::Code;
use reqwest::Method;
use serde_json::{Value, json};

use crate::running::{Answer, Running};

async fn send(server: &Running, method: Method, path: &str, body: Value) -> Answer {
    server.send(server.request(method, path).header("content-type", "application/json").body(body.to_string())).await
}

fn definition() -> Value {
    json!({"start": {"on": ["placed"]}, "steps": [
        {"name": "pay", "publish": {"type": "request_payment", "data": {"total": "$context.total"}},
         "await": {"on": ["paid"]}, "compensation": {"name": "refund", "publish": {"type": "refund"}}}
    ]})
}

async fn commit(server: &Running, id: &str, event_type: &str, data: Value) {
    let body = json!({"aggregate": {"name": "order", "id": id}, "events": [{"type": event_type, "data": data}]});
    assert_eq!(send(server, Method::POST, "/v1/commits", body).await.status, 201);
}

async fn until(server: &Running, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    loop {
        let answer = server.get(path).await.json();
        if wanted(&answer) {
            return answer;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_saga_is_defined_followed_cancelled_and_counted() {
    let server = Running::start().await;
    let path = "/v1/saga-definitions/order";
    assert_eq!(send(&server, Method::PUT, path, definition()).await.status, 201);
    let again = send(&server, Method::PUT, path, definition()).await;
    assert_eq!((again.status.as_u16(), again.json()["version"].as_u64()), (200, Some(1)));
    for id in ["o-1", "o-2"] {
        commit(&server, id, "placed", json!({"total": 7})).await;
        until(&server, &format!("/v1/sagas?execution_id={id}"), |page| {
            page["items"][0]["steps"][0]["state"] == "awaiting"
        })
        .await;
    }
    commit(&server, "o-1", "paid", json!({})).await;
    until(&server, "/v1/sagas?state=completed", |page| page["items"].as_array().is_some_and(|it| it.len() == 1)).await;
    let second = server.get("/v1/sagas?name=order&state=running&limit=1").await.json();
    let id = second["items"][0]["id"].as_str().expect("an id").to_owned();
    let cancelled = send(&server, Method::POST, &format!("/v1/sagas/{id}/cancel"), json!({"reason": "a test"})).await;
    assert_eq!(cancelled.status, 200);
    let saga = until(&server, &format!("/v1/sagas/{id}"), |saga| saga["state"] == "cancelled").await;
    assert_eq!((&saga["cause"], &saga["compensated_steps"]), (&json!("a test"), &json!(["refund"])));
    until(&server, "/v1/log?types=saga_cancelled", |log| !log["events"][0].is_null()).await;
    let statistics = server.get("/v1/sagas/statistics?name=order").await.json();
    assert_eq!(statistics["by_state"], json!({"cancelled": 1, "completed": 1}));
    let again = send(&server, Method::POST, &format!("/v1/sagas/{id}/cancel"), json!({"reason": "a test"})).await;
    again.problem(Code::StateConflict);
    let deleted = send(&server, Method::DELETE, path, json!({"reason": "a test"})).await;
    assert_eq!(deleted.status, 200);
    server.get(path).await.problem(Code::UnknownSagaDefinition);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_refused_with_its_place() {
    let server = Running::start().await;
    let wrong = "{\n\"start\": {\"on\": [\"placed\"]},\n\"steps\": [\n{\"name\": \"no name\"}]}";
    let request = server.request(Method::PUT, "/v1/saga-definitions/order").header("content-type", "application/json");
    let refused = server.send(request.body(wrong)).await.problem(Code::InvalidName);
    assert_eq!(refused["path"], "steps[0].name");
    assert!(refused["detail"].as_str().is_some_and(|why| why.contains("line 4")), "{refused}");
    for (path, code) in [
        ("/v1/sagas/none", Code::UnknownSaga),
        ("/v1/saga-definitions/none", Code::UnknownSagaDefinition),
        ("/v1/sagas?state=sleeping", Code::InvalidQuery),
    ] {
        server.get(path).await.problem(code);
    }
}
