//! `/v1/keys/…`: prepare keys without a commit.

use annals_core::Code;
use reqwest::Method;
use serde_json::{Value, json};

use crate::running::{Answer, Running};

const EVA: &str = "/v1/keys/user/eva";

async fn ask(server: &Running, method: Method, path: &str) -> Answer {
    server.send(server.request(method, path)).await
}

async fn put(server: &Running, path: &str, body: Value) -> bool {
    server.put(path, &body).await.json()["changed"] == json!(true)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_prepared_looked_at_changed_and_rolled_back() {
    let server = Running::start().await;
    ask(&server, Method::GET, EVA).await.problem(Code::UnknownKey);
    assert!(put(&server, EVA, json!({"value": "u-1"})).await);
    assert!(!put(&server, EVA, json!({"value": "u-2", "expected": "free"})).await);
    let found = ask(&server, Method::GET, EVA).await.json();
    assert_eq!(found, json!({"name": "user", "key": "eva", "value": "u-1", "expired": false}));
    assert!(!put(&server, EVA, json!({"value": "u-3", "old_value": "u-2"})).await);
    assert!(put(&server, EVA, json!({"value": {"id": 7}, "old_value": "u-1", "ttl_at": "9001-01-01T00:00:00Z"})).await);
    let found = ask(&server, Method::GET, EVA).await.json();
    assert_eq!((&found["value"], &found["ttl_at"]), (&json!({"id": 7}), &json!("9001-01-01T00:00:00.000Z")));
    assert!(put(&server, "/v1/keys/user/eve", json!({"value": 8, "old_key": "eva", "old_value": {"id": 7.0}})).await);
    let gone = server.put(EVA, &json!({"value": 8, "old_key": "otto", "old_value": 1})).await;
    let problem = gone.problem(Code::KeyNotHeld);
    assert!(problem["name"] == "user" && problem["key"] == "otto", "{problem}");
    ask(&server, Method::GET, EVA).await.problem(Code::UnknownKey);
    assert!(put(&server, "/v1/keys/user/eve", json!({"value": 9, "expected": "held"})).await);
    assert_eq!(server.head().await, 0, "no event was committed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_given_back_with_a_body_or_without() {
    let server = Running::start().await;
    let past = json!({"value": "u-1", "ttl_at": "2001-01-01T00:00:00Z"});
    assert!(put(&server, EVA, past).await);
    assert_eq!(ask(&server, Method::GET, EVA).await.json()["expired"], json!(true));
    let delete = async |query: &str| ask(&server, Method::DELETE, &format!("{EVA}{query}")).await.json();
    assert_eq!(delete("").await, json!({"changed": false}));
    assert_eq!(delete("?value=%22u-2%22").await, json!({"changed": false}));
    assert_eq!(delete("?value=%22u-1%22").await, json!({"changed": true}));
    assert!(put(&server, EVA, json!({"value": null})).await);
    assert_eq!(delete("").await, json!({"changed": true}));
    assert!(put(&server, EVA, json!({"value": [1, 2]})).await);
    let back = async |body: Value| server.ask(&format!("{EVA}/rollback"), &body).await.json();
    assert_eq!(back(json!({"value": [2, 1]})).await, json!({"changed": false}));
    assert_eq!(back(json!({"value": [1, 2]})).await, json!({"changed": true}));
    assert_eq!(back(json!({})).await, json!({"changed": false}));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_change_of_a_key_is_refused_with_its_place() {
    let server = Running::start().await;
    for (body, code, path) in [
        (json!({}), Code::InvalidBody, "value"),
        (json!({"value": 1, "ttl": 1}), Code::InvalidBody, "ttl"),
        (json!({"value": 1, "ttl_at": "soon"}), Code::InvalidKeys, "ttl_at"),
        (json!({"value": 1, "expected": "taken"}), Code::InvalidBody, "expected"),
        (json!({"value": 1, "old_key": "eva", "old_value": 1}), Code::InvalidKeys, "new_key"),
        (json!({"value": "x".repeat(70_000)}), Code::InvalidKeys, "value"),
    ] {
        assert_eq!(server.put(EVA, &body).await.problem(code)["path"], path, "{code:?}");
    }
    server.put("/v1/keys/a%20user/eva", &json!({"value": 1})).await.problem(Code::InvalidKeys);
    ask(&server, Method::GET, "/v1/keys/a%20user/eva").await.problem(Code::InvalidKeys);
    ask(&server, Method::GET, &format!("{EVA}?x=1")).await.problem(Code::InvalidQuery);
    ask(&server, Method::DELETE, &format!("{EVA}?value=u-1")).await.problem(Code::InvalidQuery);
    ask(&server, Method::POST, EVA).await.problem(Code::MethodNotAllowed);
    let other = server.request(Method::GET, EVA).header("Annals-Tenant", "nobody");
    server.send(other).await.problem(Code::UnknownTenant);
}

#[tokio::test(flavor = "multi_thread")]
async fn held_keys_of_a_name_are_listed() {
    let server = Running::start().await;
    let list = async |query: &str| ask(&server, Method::GET, &format!("/v1/keys/user{query}")).await;
    assert_eq!(list("").await.json(), json!({"keys": [], "next": null}));
    assert!(put(&server, "/v1/keys/user/eva%2F1", json!({"value": {"b": 1, "a": 2}})).await);
    assert!(put(&server, EVA, json!({"value": "u-1", "ttl_at": "2999-01-01T00:00:00Z"})).await);
    assert!(put(&server, "/v1/keys/user/old", json!({"value": 1, "ttl_at": "2001-01-01T00:00:00Z"})).await);
    assert!(put(&server, "/v1/keys/door/7", json!({"value": 1})).await);
    let eva =
        json!({"name": "user", "key": "eva", "value": "u-1", "ttl_at": "2999-01-01T00:00:00.000Z", "expired": false});
    assert_eq!(list("?limit=1").await.json(), json!({"keys": [eva], "next": "eva"}));
    let rest = json!({"name": "user", "key": "eva/1", "value": {"b": 1, "a": 2}, "expired": false});
    assert_eq!(list("?after=eva").await.json(), json!({"keys": [rest], "next": "eva/1"}));
    list("?limit=1001").await.problem(Code::InvalidQuery);
    list("?scope=x").await.problem(Code::InvalidQuery);
    ask(&server, Method::GET, "/v1/keys/a%20user").await.problem(Code::InvalidKeys);
}
