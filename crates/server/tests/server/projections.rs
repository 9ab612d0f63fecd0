//! Projections over HTTP.

use annals_core::Code;
use reqwest::Method;
use serde_json::{Value, json};

use crate::running::{Answer, Running};

async fn send(server: &Running, method: Method, path: &str, body: Value) -> Answer {
    server.send(server.request(method, path).header("content-type", "application/json").body(body.to_string())).await
}

async fn put(server: &Running, body: Value) -> Answer {
    send(server, Method::PUT, "/v1/projections/orders", body).await
}

async fn act(server: &Running, act: &str) -> Answer {
    send(server, Method::POST, &format!("/v1/projections/orders/{act}"), json!({"reason": "a test"})).await
}

async fn commit(server: &Running, id: &str, event_type: &str, data: Value) -> Answer {
    let body = json!({"aggregate": {"name": "order", "id": id}, "events": [{"type": event_type, "data": data}],
        "wait": {"for": "projected:orders"}});
    send(server, Method::POST, "/v1/commits", body).await
}

async fn until(server: &Running, wanted: impl Fn(&Value) -> bool) -> Value {
    loop {
        let status = server.get("/v1/projections/orders").await.json();
        if wanted(&status) {
            return status;
        }
        tokio::task::yield_now().await;
    }
}

fn orders() -> Value {
    json!({"on": {"placed": {"set": {"customer": "$data.customer"}, "increment": {"total": "$data.total"}},
        "cancelled": {"delete": true}}})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_projection_is_defined_waited_for_and_queried() {
    let server = Running::start().await;
    let created = put(&server, orders()).await;
    assert_eq!(created.status, 201);
    assert_eq!(put(&server, orders()).await.status, 200);
    for (id, total) in [("o-1", 5), ("o-2", 7), ("o-1", 1)] {
        let answer = commit(&server, id, "placed", json!({"customer": "c", "total": total})).await;
        assert_eq!(answer.status, 201);
        assert_eq!(answer.json()["reached"], "projected:orders");
    }
    let large = server.get("/v1/projections/orders/records?condition=total%20%3E%206").await.json();
    assert_eq!(large, json!({"items": [{"customer": "c", "total": 7, "_id": "o-2"}]}));
    let json_condition =
        "/v1/projections/orders/records?condition=%7B%22field%22:%22total%22,%22operator%22:%22LT%22,%22value%22:7%7D";
    assert_eq!(server.get(json_condition).await.json()["items"][0]["_id"], "o-1");
    let first = server.get("/v1/projections/orders/records?limit=1&sort=-total").await.json();
    assert_eq!(first["items"][0]["_id"], "o-2");
    let cursor = first["cursor"].as_str().expect("there is more");
    let second =
        server.get(&format!("/v1/projections/orders/records?limit=1&sort=-total&cursor={cursor}")).await.json();
    assert_eq!((&second["items"][0]["_id"], second.get("cursor")), (&json!("o-1"), None));
    let query = json!({"condition": {"field": "_id", "operator": "EQ", "value": "o-1"}, "limit": 10});
    let found = send(&server, Method::POST, "/v1/projections/orders/records", query).await.json();
    assert_eq!(found["items"][0]["total"], 6);
    assert_eq!(server.get("/v1/projections/orders/records/o-1").await.json()["document"]["total"], 6);
    server.get("/v1/projections/orders/records/o-9").await.problem(Code::UnknownRecord);
    let status = server.get("/v1/projections/orders").await.json();
    assert_eq!((&status["state"], &status["position"], &status["lag"]), (&json!("running"), &json!(3), &json!(0)));
    assert_eq!((&status["build"], &status["definition"]["on"]), (&json!(1), &orders()["on"]));
    let collection = status["collection"].as_str().expect("a name");
    let write = json!({"changes": [{"insert": {"collection": collection, "document": {"_id": "x"}}}]});
    send(&server, Method::POST, "/v1/records/changes", write).await.problem(Code::SystemCollection);
    let ready = server.get("/health/ready").await.json().to_string();
    assert!(ready.contains("projection/default/orders/1"), "{ready}");
    assert!(server.get("/metrics").await.text().contains("annals_task_up{task=\"projection/default/orders/1\"} 1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_projection_is_operated_rebuilt_and_deleted() {
    let server = Running::start().await;
    put(&server, orders()).await;
    commit(&server, "o-1", "placed", json!({"customer": "c", "total": 5})).await;
    send(&server, Method::POST, "/v1/projections/orders/pause", json!({})).await.problem(Code::InvalidBody);
    assert_eq!(act(&server, "pause").await.json()["state"], "paused");
    act(&server, "pause").await.problem(Code::StateConflict);
    let changed = put(&server, json!({"on": {"placed": {"set": {"c": "$data.customer"}}}})).await.json();
    assert_eq!((&changed["build"], &changed["building"]["build"]), (&json!(1), &json!(2)));
    assert_eq!(changed["building"]["reason"], "its definition changed");
    act(&server, "rebuild").await.problem(Code::StateConflict);
    act(&server, "resume").await;
    until(&server, |status| status["build"] == 2).await;
    assert_eq!(server.get("/v1/projections/orders/records").await.json(), json!({"items": [{"c": "c", "_id": "o-1"}]}));
    act(&server, "rebuild").await;
    until(&server, |status| status["build"] == 3).await;
    let acts = server.get("/v1/projections/orders/acts").await.json();
    let acts: Vec<_> = acts["items"].as_array().expect("a list").iter().map(|act| act["act"].clone()).collect();
    assert_eq!(acts, ["rebuild", "resume", "pause"]);
    let reason = json!({"reason": "a test"});
    assert_eq!(send(&server, Method::DELETE, "/v1/projections/orders", reason).await.json()["deleted"], true);
    server.get("/v1/projections/orders").await.problem(Code::UnknownProjection);
    server.get("/v1/projections/orders/records").await.problem(Code::UnknownProjection);
    assert_eq!(server.get("/v1/projections").await.json(), json!({"items": []}));
    commit(&server, "o-1", "placed", json!({})).await.problem(Code::UnknownProjection);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_does_not_fit_is_named_in_the_state() {
    let server = Running::start().await;
    put(&server, orders()).await;
    let body =
        json!({"aggregate": {"name": "order", "id": "o-1"}, "events": [{"type": "placed", "data": {"total": "x"}}]});
    assert_eq!(send(&server, Method::POST, "/v1/commits", body).await.status, 201);
    let status = until(&server, |status| status["state"] == "blocked").await;
    let reason = status["last_reason"].as_str().unwrap_or_default();
    assert!(reason.starts_with("event 0 (placed): increment.total:"), "{reason}");
    assert_eq!((&status["position"], &status["lag"]), (&json!(0), &json!(1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_a_definition_is_refused_with_its_path() {
    let server = Running::start().await;
    for (body, code, path) in [
        (json!({}), Code::InvalidProjection, "on"),
        (json!({"on": {"placed": {"add": {}}}}), Code::InvalidProjection, "on.placed.add"),
        (json!({"on": {"placed": {"set": {"x": "$datum"}}}}), Code::InvalidProjection, "on.placed.set.x"),
        (json!({"reducer": "program"}), Code::InvalidProjection, "reducer"),
        (json!({"on": {"a b": {}}}), Code::InvalidName, "on.a b"),
        (json!({"rules": {}}), Code::InvalidBody, "rules"),
    ] {
        let problem = put(&server, body).await.problem(code);
        assert_eq!(problem["path"], path, "{problem}");
    }
    server.get("/v1/projections/orders/records?condition=total%20%3E").await.problem(Code::InvalidCondition);
    // A condition costs the same wherever the records lie.
    let unequal = "/v1/projections/orders/records?condition=total%20!%3D%201";
    server.get(unequal).await.problem(Code::QueryTooExpensive);
    let body = json!({"condition": {"field": "total", "operator": "NE", "value": 1}});
    let asked = send(&server, Method::POST, "/v1/projections/orders/records", body).await;
    asked.problem(Code::QueryTooExpensive);
    server.get("/v1/projections?limit=0").await.problem(Code::InvalidQuery);
}
