//! Commits that wait until a handler has handled their events.

use annals_core::Code;
use annals_server::Options;
use reqwest::Method;
use serde_json::{Value, json};

use crate::running::{Answer, Running, soon};

async fn ask(server: &Running, method: Method, path: &str, body: &Value) -> Answer {
    let request = server.request(method, path).header("content-type", "application/json");
    server.send(request.body(body.to_string())).await
}

/// A server with the handler `billing`, which has events of the type `placed`.
async fn with_billing() -> Running {
    let server = Running::start().await;
    let definition = json!({"types": ["placed"]});
    assert_eq!(ask(&server, Method::PUT, "/v1/handlers/billing", &definition).await.status, 201);
    server
}

fn waiting(event_type: &str, stage: &str, timeout_ms: u64) -> Value {
    json!({"aggregate": {"name": "order", "id": "o-1"}, "events": [{"type": event_type, "data": {}}],
           "wait": {"for": stage, "timeout_ms": timeout_ms}})
}

/// Pulls the delivery that comes next.
async fn pulled(server: &Running) -> Value {
    let pull = json!({"max": 1, "wait_ms": 20_000, "worker": "w"});
    let pulled = ask(server, Method::POST, "/v1/handlers/billing/pull", &pull).await.json();
    pulled["deliveries"][0].clone()
}

async fn settle(server: &Running, delivery: &Value) {
    let results = json!({"results": [{"token": delivery["token"]}]});
    let settled = ask(server, Method::POST, "/v1/handlers/billing/settle", &results).await.json();
    assert_eq!(settled["results"][0]["settled"], json!(true), "{settled}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_is_answered_when_a_handler_has_handled_its_events() {
    let server = with_billing().await;
    let commit = waiting("placed", "handled:billing", 20_000).to_string();
    let mut answered = std::pin::pin!(server.post(commit.clone()));
    let delivery = tokio::select! {
        answer = &mut answered => panic!("nothing is handled: {answer:?}"),
        delivery = pulled(&server) => delivery,
    };
    let (answer, ()) = soon("the answer", async { tokio::join!(answered, settle(&server, &delivery)) }).await;
    assert_eq!((answer.status.as_u16(), &answer.json()["reached"]), (201, &json!("handled:billing")));
    // Events of other types are not the handler's. When the time is up, the answer says how far the commit came.
    let passed = server.commit(&waiting("paid", "handled:billing", 20_000)).await;
    assert_eq!(passed["reached"], json!("handled:billing"));
    let late = server.commit(&waiting("placed", "handled:billing", 0)).await;
    assert_eq!((&late["reached"], &late["version"]), (&json!("logged"), &json!(3)));
}

#[tokio::test(flavor = "multi_thread")]
async fn several_commits_of_a_request_wait_each_for_its_stage() {
    let server = with_billing().await;
    let lines = ["handled:billing", "logged"].map(|stage| waiting("paid", stage, 20_000).to_string() + "\n").concat();
    let request = server.request(Method::POST, "/v1/commits").header("content-type", "application/x-ndjson");
    let answers = server.send(request.body(lines)).await;
    let reached = answers.text().lines().map(|line| {
        let answer: Value = serde_json::from_str(line).expect("JSON");
        answer["reached"].clone()
    });
    assert_eq!(reached.collect::<Vec<_>>(), [json!("handled:billing"), json!("logged")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stage_that_does_not_exist_is_refused_before_anything_is_committed() {
    let server = with_billing().await;
    let refused = async |stage: &str, code| server.post(waiting("placed", stage, 0).to_string()).await.problem(code);
    assert_eq!(refused("handled:other", Code::UnknownHandler).await["name"], json!("other"));
    for stage in ["tea", "handled", "handled:a b", "snapshot:billing"] {
        let problem = refused(stage, Code::InvalidWait).await;
        assert_eq!(problem["path"], json!("wait.for"), "{stage}");
        assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains("\"handled:NAME\"")), "{problem}");
    }
    let part = |id: &str| json!({"aggregate": {"name": "order", "id": id}, "events": [{"type": "placed", "data": {}}]});
    let both = json!({"commits": [part("a"), part("b")], "wait": {"for": "handled:billing"}});
    let refused = ask(&server, Method::POST, "/v1/transactions", &both).await.problem(Code::InvalidWait);
    assert_eq!(refused["path"], json!("wait.for"));
    assert_eq!(server.head().await, 0);
}

/// Its body counts among those of all requests until it is stored, and the wait may be long.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_waits_for_a_stage_keeps_no_body_from_others() {
    let mut options = Options::default();
    options.body_bytes_in_flight_max = 1_000;
    let server = Running::start_with(options).await;
    let definition = json!({"types": ["placed"]});
    assert_eq!(ask(&server, Method::PUT, "/v1/handlers/billing", &definition).await.status, 201);
    // Longer than this test waits for anything.
    let mut commit = waiting("placed", "handled:billing", 50_000);
    commit["events"][0]["data"]["text"] = "x".repeat(700).into();
    let other = commit.to_string().replace("placed", "other").replace("50000", "0");
    let one = server.request(Method::POST, "/v1/commits").body(commit.to_string());
    let lines = server.request(Method::POST, "/v1/commits").header("content-type", "application/x-ndjson");
    for request in [one, lines.body(commit.to_string())] {
        let before = server.head().await;
        let waits = tokio::spawn(request.send());
        soon("the commit to be stored", async { while server.head().await == before {} }).await;
        let others = async { while server.post(other.clone()).await.status != 201 {} };
        soon("a place for another body", others).await;
        assert!(!waits.is_finished(), "nothing was handled");
        waits.abort();
    }
}
