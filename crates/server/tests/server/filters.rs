//! Filters over HTTP.

use annals_core::Code;
use reqwest::Method;
use serde_json::{Value, json};

use crate::running::{Answer, Running, soon};

async fn send(server: &Running, method: Method, path: &str, body: Value) -> Answer {
    server.send(server.request(method, path).header("content-type", "application/json").body(body.to_string())).await
}

async fn post(server: &Running, path: &str, body: Value) -> Answer {
    send(server, Method::POST, path, body).await
}

async fn put(server: &Running, stream: &str, body: Value) -> Answer {
    send(server, Method::PUT, &format!("/v1/filters/{stream}"), body).await
}

async fn commit(server: &Running, event_type: &str, id: &str, public: bool) {
    let event = json!({"type": event_type, "data": {"of": id}, "public": public});
    let body = json!({"aggregate": {"name": "order", "id": id}, "events": [event]});
    assert_eq!(post(server, "/v1/commits", body).await.status, 201);
}

/// Waits until a stream has so many entries, and returns their sequence numbers and partitions.
async fn entries(server: &Running, stream: &str, count: u64) -> Value {
    let state = format!("/v1/streams/{stream}/state?past={}&timeout_ms=20000", count - 1);
    soon("the stream is filled", server.get(&state)).await;
    let page = server.get(&format!("/v1/streams/{stream}")).await.json();
    let of = |entry: &Value| json!([entry["event"]["sequence_number"], entry["partition"]]);
    page["events"].as_array().expect("a list").iter().map(of).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_is_put_fills_its_stream_and_is_shown_and_deleted() {
    let server = Running::start().await;
    commit(&server, "placed", "o-1", true).await;
    let definition = json!({"types": ["placed"], "partition_by": "aggregate"});
    let created = put(&server, "orders", definition.clone()).await;
    assert_eq!(created.status, 201);
    assert_eq!(created.json()["definition"], definition);
    assert_eq!(put(&server, "orders", definition.clone()).await.status, 200);
    commit(&server, "paid", "o-1", true).await;
    commit(&server, "placed", "o-2", false).await;
    assert_eq!(entries(&server, "orders", 2).await, json!([[0, "order/o-1"], [2, "order/o-2"]]));
    let public = json!({"public": true, "condition": {"field": "data.of", "operator": "EQ", "value": "o-1"}});
    assert_eq!(put(&server, "public-orders", public).await.status, 201);
    assert_eq!(entries(&server, "public-orders", 2).await, json!([[0, null], [1, null]]));
    let status = server.get("/v1/filters/orders").await.json();
    assert_eq!(
        (&status["stream"], &status["scope"], &status["entries"]),
        (&json!("orders"), &json!("default"), &json!(2))
    );
    assert_eq!((&status["position"], &status["head"], &status["lag"]), (&json!(3), &json!(3), &json!(0)));
    assert_eq!((&status["state"], &status["progress"]), (&json!("running"), &json!(3)));
    let listed = server.get("/v1/filters?limit=1").await.json();
    assert_eq!((&listed["items"][0]["stream"], &listed["cursor"]), (&json!("orders"), &json!("orders")));
    let ready = server.get("/health/ready").await.json();
    let tasks = ready["tasks"].as_array().expect("tasks");
    assert!(tasks.iter().any(|task| task["name"] == "filter/default/orders"), "{ready}");
    let deleted = send(&server, Method::DELETE, "/v1/filters/orders", json!({"reason": "a test"})).await;
    assert_eq!(deleted.json(), json!({"deleted": true}));
    let unknown = server.get("/v1/filters/orders").await.problem(Code::UnknownFilter);
    assert_eq!(unknown["name"], "orders");
    assert_eq!(entries(&server, "orders", 2).await, json!([[0, "order/o-1"], [2, "order/o-2"]]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_filter_is_refused_with_the_first_event_that_differs() {
    let server = Running::start().await;
    put(&server, "orders", json!({"types": ["placed"]})).await;
    for event_type in ["placed", "paid", "placed"] {
        commit(&server, event_type, "o-1", false).await;
    }
    entries(&server, "orders", 2).await;
    let refused = put(&server, "orders", json!({"types": ["placed", "paid"]})).await.problem(Code::FilterChanged);
    assert_eq!((&refused["first_difference"], &refused["setting"]), (&json!(1), &json!("events")));
    let refused = put(&server, "orders", json!({"types": ["placed"], "public": true})).await;
    let refused = refused.problem(Code::FilterChanged);
    assert_eq!((&refused["first_difference"], &refused["setting"]), (&json!(0), &json!("public")));
    assert_eq!(put(&server, "orders", json!({"types": ["placed", "shipped"]})).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_pulls_and_settles_the_events_of_a_remote_filter() {
    let server = Running::start().await;
    assert_eq!(put(&server, "orders", json!({"remote": true, "types": ["placed"]})).await.status, 201);
    for id in ["o-1", "o-2", "o-3"] {
        commit(&server, "placed", id, false).await;
    }
    let mut number = 0;
    while number < 3 {
        let pull = json!({"max": 1, "wait_ms": 20_000, "worker": "w"});
        let pulled = post(&server, "/v1/filters/orders/pull", pull).await.json();
        let delivery = &pulled["deliveries"][0];
        assert_eq!(
            (&delivery["position"], &delivery["event"]["data"]["of"]),
            (&json!(number), &json!(format!("o-{}", number + 1)))
        );
        let result = match number {
            0 => json!({"token": delivery["token"], "included": true, "partition": "p"}),
            1 => json!({"token": delivery["token"], "included": false}),
            _ => json!({"token": delivery["token"], "included": true}),
        };
        let settled = post(&server, "/v1/filters/orders/settle", json!({"results": [result]})).await.json();
        assert_eq!(settled["results"][0]["settled"], true, "{settled}");
        number += 1;
    }
    assert_eq!(entries(&server, "orders", 2).await, json!([[0, "p"], [2, null]]));
    let stale =
        post(&server, "/v1/filters/orders/settle", json!({"results": [{"token": "1.orders", "included": true}]}));
    assert_eq!(stale.await.json()["results"][0]["error"], "lease_lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_refused_with_its_code_and_path() {
    let server = Running::start().await;
    for (body, code, path) in [
        (json!({"partition_by": "x"}), Code::InvalidFilter, "partition_by"),
        (json!({"types": ["a b"]}), Code::InvalidName, "types[0]"),
        (json!({"stream": "other"}), Code::InvalidBody, "stream"),
        (json!({"function": true}), Code::InvalidFilter, "function"),
        (json!({"scope": "inbox", "public": true}), Code::InvalidFilter, "public"),
        (json!({"condition": {"field": "time", "operator": "TODAY"}}), Code::InvalidCondition, "condition"),
    ] {
        let problem = put(&server, "orders", body).await.problem(code);
        assert_eq!(problem["path"], path, "{problem}");
    }
    put(&server, "orders", json!({"scope": "nowhere"})).await.problem(Code::UnknownScope);
    put(&server, "a b", json!({})).await.problem(Code::InvalidName);
    put(&server, "orders", json!({})).await;
    let refused = post(&server, "/v1/filters/orders/pull", json!({})).await.problem(Code::StateConflict);
    assert!(refused["state"].as_str().is_some_and(|state| state.contains("not remote")), "{refused}");
    send(&server, Method::DELETE, "/v1/filters/orders", json!({})).await.problem(Code::InvalidBody);
}
