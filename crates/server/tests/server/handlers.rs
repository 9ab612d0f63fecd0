//! Handlers over HTTP: what workers in any language see.

use annals_core::Code;
use reqwest::Method;
use serde_json::{Value, json};

use crate::running::{Answer, Running};

async fn send(server: &Running, method: Method, path: &str, body: Value) -> Answer {
    server.send(server.request(method, path).header("content-type", "application/json").body(body.to_string())).await
}

async fn post(server: &Running, path: &str, body: Value) -> Answer {
    send(server, Method::POST, path, body).await
}

async fn put(server: &Running, name: &str, body: Value) -> Answer {
    send(server, Method::PUT, &format!("/v1/handlers/{name}"), body).await
}

async fn commit(server: &Running, id: &str) {
    let body = json!({"aggregate": {"name": "order", "id": id}, "events": [{"type": "placed", "data": {"of": id}}]});
    assert_eq!(post(server, "/v1/commits", body).await.status, 201);
}

async fn pull(server: &Running) -> Vec<Value> {
    let pulled = post(server, "/v1/handlers/billing/pull", json!({"max": 100, "wait_ms": 50_000, "worker": "w"})).await;
    pulled.json()["deliveries"].as_array().expect("a list").clone()
}

async fn settle(server: &Running, results: Value) -> Vec<Value> {
    let settled = post(server, "/v1/handlers/billing/settle", json!({ "results": results })).await.json();
    settled["results"].as_array().expect("a list").clone()
}

fn by_aggregate() -> Value {
    json!({"types": ["placed"], "partition_by": "aggregate", "concurrency": 4, "retry": {"first_ms": 1, "max_ms": 1}})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_pulls_settles_fails_and_gets_the_event_again() {
    let server = Running::start().await;
    assert_eq!(put(&server, "billing", by_aggregate()).await.status, 201);
    assert_eq!(put(&server, "billing", by_aggregate()).await.status, 200);
    for id in ["o-1", "o-1", "o-2"] {
        commit(&server, id).await;
    }
    let mut first = pull(&server).await;
    while first.len() < 2 {
        first.extend(pull(&server).await);
    }
    let of = |id: &str| first.iter().find(|it| it["partition"] == format!("order/{id}")).expect("came").clone();
    let (one, two) = (of("o-1"), of("o-2"));
    assert_eq!((&one["position"], &one["attempt"], &one["event"]["data"]["of"]), (&json!(0), &json!(1), &json!("o-1")));
    assert!(one["event"]["commit_id"].is_string() && one.get("last_reason").is_none(), "{one}");
    let failed = json!([{"token": one["token"], "failure": {"reason": "no stock"}}, {"token": two["token"]}]);
    assert!(settle(&server, failed).await.iter().all(|result| result["settled"] == true));
    let again = pull(&server).await;
    assert_eq!((&again[0]["position"], &again[0]["attempt"]), (&json!(0), &json!(2)));
    assert_eq!(again[0]["last_reason"], "no stock");
    let stale = settle(&server, json!([{ "token": one["token"] }])).await;
    assert_eq!((&stale[0]["settled"], &stale[0]["error"]), (&json!(false), &json!("lease_lost")));
    settle(&server, json!([{ "token": again[0]["token"] }])).await;
    let last = pull(&server).await;
    assert_eq!(last[0]["position"], 1);
    settle(&server, json!([{ "token": last[0]["token"] }])).await;
    let status = server.get("/v1/handlers/billing").await.json();
    assert_eq!((&status["name"], &status["position"], &status["lag"]), (&json!("billing"), &json!(3), &json!(0)));
    assert_eq!((&status["state"], &status["workers"][0]["worker"]), (&json!("running"), &json!("w")));
    let ready = server.get("/health/ready").await.json();
    let tasks = ready["tasks"].as_array().expect("tasks");
    assert!(tasks.iter().any(|task| task["name"] == "handler/default/billing"), "{ready}");
    assert!(server.get("/metrics").await.text().contains("annals_task_up{task=\"handler/default/billing\"} 1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocked_partition_is_listed_and_an_operator_decides() {
    let server = Running::start().await;
    let once = json!({"partition_by": "aggregate", "retry": {"attempts": 1, "then": "block"}});
    assert_eq!(put(&server, "billing", once).await.status, 201);
    commit(&server, "o/1").await;
    let failed = pull(&server).await;
    settle(&server, json!([{"token": failed[0]["token"], "failure": {"reason": "bad", "never": true}}])).await;
    let listed = server.get("/v1/handlers/billing/partitions?state=failing").await.json();
    let failing = &listed["items"][0];
    assert_eq!((&failing["partition"], &failing["attempts"]), (&json!("order/o/1"), &json!(1)));
    assert_eq!((&failing["reason"], &failing["retry_at"]), (&json!("bad"), &Value::Null));
    let partition = "/v1/handlers/billing/partitions/order%2Fo%2F1";
    post(&server, &format!("{partition}/skip"), json!({"reason": " "})).await.problem(Code::InvalidBody);
    let skipped = post(&server, &format!("{partition}/skip"), json!({"reason": "a test"})).await.json();
    assert_eq!((&skipped["parked"], &skipped["position"]), (&json!(1), &json!(1)));
    post(&server, "/v1/handlers/billing/partitions/order%2Fo%2F2/retry", json!({"reason": "x"}))
        .await
        .problem(Code::UnknownPartition);
    let paused = post(&server, "/v1/handlers/billing/pause", json!({"reason": "x"})).await.json();
    assert_eq!(paused["state"], "paused");
    let twice = post(&server, "/v1/handlers/billing/pause", json!({"reason": "x"})).await.problem(Code::StateConflict);
    assert_eq!(twice["state"], "it is already paused");
    post(&server, "/v1/handlers/billing/resume", json!({"reason": "x"})).await.json();
    assert_eq!(
        send(&server, Method::DELETE, "/v1/handlers/billing", json!({"reason": "x"})).await.json()["deleted"],
        true
    );
    server.get("/v1/handlers/billing").await.problem(Code::UnknownHandler);
    assert_eq!(server.get("/v1/handlers").await.json(), json!({"items": []}));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_refused_with_its_path() {
    let server = Running::start().await;
    for (body, code, path) in [
        (json!({"concurrency": 2}), Code::InvalidHandler, "concurrency"),
        (json!({"partition_by": "x"}), Code::InvalidHandler, "partition_by"),
        (json!({"types": ["a b"]}), Code::InvalidName, "types[0]"),
        (json!({"conditions": {}}), Code::InvalidBody, "conditions"),
    ] {
        let problem = put(&server, "billing", body).await.problem(code);
        assert_eq!(problem["path"], path, "{problem}");
    }
    put(&server, "a b", json!({})).await.problem(Code::InvalidName);
    assert_eq!(put(&server, "billing", by_aggregate()).await.status, 201);
    let changed = put(&server, "billing", json!({"types": ["other"]})).await.problem(Code::HandlerChanged);
    assert_eq!((&changed["name"], &changed["setting"]), (&json!("billing"), &json!("source")));
    for (body, path) in [
        (json!({"max": 0}), "max"),
        (json!({"wait_ms": 60_000}), "wait_ms"),
        (json!({"lease_ms": 1}), "lease_ms"),
        (json!({"maximum": 1}), "maximum"),
    ] {
        let problem = post(&server, "/v1/handlers/billing/pull", body).await.problem(Code::InvalidBody);
        assert_eq!(problem["path"], path, "{problem}");
    }
    post(&server, "/v1/handlers/none/pull", json!({})).await.problem(Code::UnknownHandler);
    let problem = server.get("/v1/handlers/billing/partitions?state=done").await.problem(Code::InvalidQuery);
    assert_eq!(problem["path"], "state");
}
