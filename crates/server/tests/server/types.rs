//! Event types, topics and consumer groups over HTTP.

use std::sync::Arc;

use annals_conformance::ManualClock;
use annals_core::{Code, Timestamp};
use annals_embedded::disk::MemoryDisk;
use annals_runtime::types::TypedStore;
use annals_server::Options;
use reqwest::Method;
use serde_json::{Value, json};

use crate::running::{Answer, Running, store_on};

async fn start() -> Running {
    let store = store_on(Arc::new(MemoryDisk::default()), annals_embedded::Options::default());
    let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_700_000_000_000)));
    Running::over(Arc::new(TypedStore::new(store, clock)), Options::default()).await
}

async fn send(server: &Running, method: Method, path: &str, body: Value) -> Answer {
    server.send(server.request(method, path).header("content-type", "application/json").body(body.to_string())).await
}

async fn commit(server: &Running, id: &str, event_type: &str, data: Value) -> Answer {
    let body = json!({"aggregate": {"name": "execution", "id": id}, "events": [{"type": event_type, "data": data}]});
    send(server, Method::POST, "/v1/commits", body).await
}

fn completed() -> Value {
    json!({"category": "execution", "schema": {"type": "object", "required": ["exit_code"],
        "properties": {"exit_code": {"type": "integer"}}}})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_type_is_registered_and_refuses_what_does_not_match_with_the_path() {
    let server = start().await;
    server.get("/v1/types/execution_completed").await.problem(Code::UnknownType);
    let put = async |body: Value| send(&server, Method::PUT, "/v1/types/execution_completed", body).await;
    let created = put(completed()).await;
    assert_eq!(created.status, 201);
    let shown = created.json();
    assert_eq!(
        (&shown["generation"], &shown["category"], &shown["policy"]),
        (&json!(1), &json!("execution"), &json!("enforce"))
    );
    assert_eq!(put(completed()).await.status, 200);
    assert_eq!(commit(&server, "x-1", "execution_completed", json!({"exit_code": 0})).await.status, 201);
    let refused = commit(&server, "x-1", "execution_completed", json!({"exit_code": "0"})).await;
    assert_eq!(refused.problem(Code::SchemaViolation)["path"], "events[0].data.exit_code");
    let transaction = json!({"commits": [
        {"aggregate": {"name": "a", "id": "1"}, "events": [{"type": "other", "data": {}}]},
        {"aggregate": {"name": "a", "id": "2"}, "events": [{"type": "execution_completed", "data": {}}]}]});
    let refused = send(&server, Method::POST, "/v1/transactions", transaction).await;
    assert_eq!(refused.problem(Code::SchemaViolation)["path"], "commits[1].events[0].data.exit_code");
    let mut narrower = completed();
    narrower["generation"] = json!(2);
    narrower["schema"]["required"] = json!(["exit_code", "stdout"]);
    let incompatible = put(narrower).await.problem(Code::TypeIncompatible);
    assert_eq!((&incompatible["path"], &incompatible["generation"]), (&json!("data.stdout"), &json!(2)));
    let remote = json!({"schema": {"$ref": "http://127.0.0.1:9/x"}});
    assert_eq!(put(remote).await.problem(Code::InvalidType)["path"], "schema.$ref");
    let listed = server.get("/v1/types").await.json();
    assert_eq!((&listed["items"][0]["name"], &listed["unknown"]), (&json!("execution_completed"), &json!("accept")));
    let settings = send(&server, Method::PUT, "/v1/types", json!({"unknown": "refuse"})).await;
    assert_eq!(settings.json(), json!({"unknown": "refuse"}));
    let refused = commit(&server, "x-1", "never_registered", json!({})).await;
    assert_eq!(refused.problem(Code::TypeNotRegistered)["path"], "events[0].type");
    let document = server.get("/asyncapi.json").await.json();
    assert_eq!(document["asyncapi"], "3.0.0");
    assert_eq!(document["channels"]["execution_completed"]["address"], "execution_completed");
    assert_eq!(document["components"]["messages"]["execution_completed"]["payload"], completed()["schema"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_pulls_from_the_topics_of_registered_types_and_its_lag_is_shown() {
    let server = start().await;
    send(&server, Method::PUT, "/v1/types/execution_completed", completed()).await.json();
    let topic = server.get("/v1/topics/execution_completed").await.json();
    assert_eq!((&topic["partitions"], &topic["retention_ms"]), (&json!(6), &json!(604_800_000)));
    assert_eq!((&topic["category"], &topic["head"]), (&json!("execution"), &json!([0, 0, 0, 0, 0, 0])));
    assert_eq!(server.get("/v1/topics").await.json()["items"][0]["name"], "execution_completed");
    server.get("/v1/topics/nothing").await.problem(Code::UnknownTopic);
    server.get("/v1/groups/results").await.problem(Code::UnknownGroup);
    let definition = json!({"topics": ["execution_completed"], "start": "earliest", "in_flight": 2});
    let put = async |body: Value| send(&server, Method::PUT, "/v1/groups/results", body).await;
    let created = put(definition.clone()).await;
    assert_eq!(created.status, 201);
    assert_eq!(created.json()["topics"], json!([{"topic": "execution_completed", "lag": 0}]));
    assert_eq!(put(definition).await.status, 200);
    put(json!({"topics": ["other"]})).await.problem(Code::GroupChanged);
    assert_eq!(put(json!({"topics": []})).await.problem(Code::InvalidGroup)["path"], "topics");
    for id in ["x-1", "x-2"] {
        assert_eq!(commit(&server, id, "execution_completed", json!({"exit_code": 0})).await.status, 201);
    }
    let groups = server.get("/v1/topics/execution_completed").await.json()["groups"].clone();
    assert_eq!(groups, json!([{"group": "results", "lag": 2}]));
    let pull =
        async || send(&server, Method::POST, "/v1/groups/results/pull", json!({"wait_ms": 20_000, "max": 1})).await;
    let pulled = pull().await.json();
    let delivery = &pulled["deliveries"][0];
    assert_eq!((&delivery["event"]["type"], &delivery["attempt"]), (&json!("execution_completed"), &json!(1)));
    let results = json!({"results": [{"token": delivery["token"]}, {"token": "1.other"}]});
    let settled = send(&server, Method::POST, "/v1/groups/results/settle", results).await.json();
    assert_eq!(
        (&settled["results"][0]["settled"], &settled["results"][1]["error"]),
        (&json!(true), &json!("lease_lost"))
    );
    let pulled = pull().await.json();
    let failure = json!({"token": pulled["deliveries"][0]["token"], "failure": {"reason": "down", "never": true}});
    send(&server, Method::POST, "/v1/groups/results/settle", json!({"results": [failure]})).await.json();
    let status = server.get("/v1/groups/results").await.json();
    assert_eq!((&status["lag"], &status["failing"], &status["blocked"]), (&json!(1), &json!(1), &json!(1)));
    let failing = server.get("/v1/groups/results/partitions").await.json();
    assert_eq!(
        (&failing["items"][0]["partition"], &failing["items"][0]["reason"]),
        (&json!("execution/x-2"), &json!("down"))
    );
    let act = async |path: &str| {
        send(&server, Method::POST, &format!("/v1/groups/results/{path}"), json!({"reason": "a test"})).await
    };
    act("partitions/execution%2Fx-2/skip").await.json();
    assert_eq!(server.get("/v1/groups/results").await.json()["lag"], 0);
    assert_eq!(act("pause").await.json()["state"], "paused");
    act("pause").await.problem(Code::StateConflict);
    assert_eq!(server.get("/v1/groups").await.json()["items"][0]["name"], "results");
    act("partitions/execution%2Fx-9/retry").await.problem(Code::UnknownPartition);
    send(&server, Method::DELETE, "/v1/groups/results", json!({"reason": "a test"})).await.json();
    server.get("/v1/groups/results").await.problem(Code::UnknownGroup);
    let applied =
        send(&server, Method::POST, "/v1/topics/execution_completed/apply", json!({"reason": "a test"})).await.json();
    assert_eq!(applied["differences"], json!([]));
}
