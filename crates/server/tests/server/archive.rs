//! Retention, holds and the archive over HTTP.

use annals_core::Code;
use reqwest::Method;
use serde_json::{Value, json};

use crate::running::{Answer, Running};

async fn send(server: &Running, method: Method, path: &str, body: Value) -> Answer {
    server.send(server.request(method, path).header("content-type", "application/json").body(body.to_string())).await
}

/// Commits an event, and returns its id.
async fn commit(server: &Running, aggregate: &str, event_type: &str) -> String {
    let body = json!({"aggregate": {"name": "order", "id": aggregate}, "events": [{"type": event_type, "data": {"total": 7}}],
        "header": {"user_id": "ada"}, "wait": {"for": "logged"}});
    let answer = send(server, Method::POST, "/v1/commits", body).await;
    answer.json()["events"][0]["id"].as_str().expect("an id").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn retention_of_categories_and_types_is_put_listed_and_removed() {
    let server = Running::start().await;
    let put = async |name: &str, body: Value| send(&server, Method::PUT, &format!("/v1/retention/{name}"), body).await;
    let created = put("placed", json!({"ttl_days": 30, "archive": "collection"})).await;
    assert_eq!(created.status, 201);
    assert_eq!(created.json()["kind"], "type");
    let changed = put("placed", json!({"ttl_days": null, "archive": "none", "reason": "kept"})).await;
    assert_eq!(changed.status, 200);
    assert_eq!(changed.json()["ttl_days"], json!(null));
    let of_category = put("pod", json!({"archive": "collection"})).await.json();
    assert_eq!((&of_category["kind"], &of_category["ttl_days"]), (&json!("category"), &json!(90)));
    for wrong in [json!({"ttl_days": 0}), json!({"archive": "tape"}), json!({"days": 3}), json!({"ttl_days": 40_000})] {
        put("placed", wrong).await.problem(Code::InvalidBody);
    }
    let no_folder = put("placed", json!({"archive": "files"})).await.problem(Code::InvalidBody);
    assert!(no_folder["detail"].as_str().is_some_and(|detail| detail.contains("server.archive")), "{no_folder}");
    put("a%20b", json!({})).await.problem(Code::InvalidName);
    let listed = server.get("/v1/retention").await.json();
    assert_eq!(listed["items"].as_array().map(Vec::len), Some(2));
    assert_eq!((&listed["default"]["ttl_days"], &listed["archive"]["waiting"]), (&json!(90), &json!(0)));
    let remove = async || send(&server, Method::DELETE, "/v1/retention/pod", json!({"reason": "a test"})).await;
    assert_eq!(remove().await.status, 200);
    assert_eq!(remove().await.problem(Code::UnknownRetention)["name"], "pod");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_protects_the_events_of_its_filter_until_it_is_removed() {
    let server = Running::start().await;
    let (held, other) = (commit(&server, "o-1", "placed").await, commit(&server, "o-2", "placed").await);
    let delete =
        async |id: &str| send(&server, Method::DELETE, &format!("/v1/events/{id}"), json!({"reason": "x"})).await;
    let put = async |body: Value| send(&server, Method::PUT, "/v1/holds/case-7", body).await;
    put(json!({"reason": "no filter"})).await.problem(Code::InvalidBody);
    let hold = put(json!({"aggregate_id": "o-1", "reason": "a court asked"})).await;
    assert_eq!(hold.status, 201);
    assert_eq!(hold.json()["in_force"], true);
    assert_eq!(put(json!({"filter": {"aggregate_id": "o-1"}})).await.status, 200);
    let refused = delete(&held).await.problem(Code::StateConflict);
    assert!(refused["state"].as_str().is_some_and(|state| state.contains("case-7")), "{refused}");
    assert_eq!(delete(&other).await.status, 200);
    assert_eq!(server.get("/v1/holds").await.json()["items"][0]["filter"], json!({"aggregate_id": "o-1"}));
    let removed = send(&server, Method::DELETE, "/v1/holds/case-7", json!({"reason": "closed"})).await;
    assert_eq!(removed.status, 200);
    server.get("/v1/holds/case-7").await.problem(Code::UnknownHold);
    assert_eq!(delete(&held).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_event_is_read_in_the_archive_and_restored() {
    let server = Running::start().await;
    let id = commit(&server, "o-1", "placed").await;
    let one = format!("/v1/events/{id}");
    send(&server, Method::DELETE, &one, json!({})).await.problem(Code::InvalidBody);
    let deleted = send(&server, Method::DELETE, &one, json!({"reason": "entered twice", "by": "eva"})).await.json();
    assert_eq!((&deleted["deleted"], &deleted["archived_in"]), (&json!(true), &json!("events_archive")));
    server.get(&one).await.problem(Code::UnknownEvent);
    send(&server, Method::DELETE, &one, json!({"reason": "again"})).await.problem(Code::UnknownEvent);
    let page = server.get("/v1/events/archive?event_types=placed&user_id=ada&limit=1").await.json();
    let copy = &page["items"][0];
    assert_eq!(
        (&page["total"], &copy["total"], &copy["deletion_reason"]),
        (&json!(1), &json!(7), &json!("entered twice"))
    );
    assert_eq!((&copy["deleted_by"], copy["deleted_at"].is_string()), (&json!("eva"), true));
    let bounded = server.get("/v1/events/archive?count_up_to=1").await.json();
    assert_eq!((&bounded["total"], &bounded["total_is_bound"]), (&json!(1), &json!(true)));
    assert_eq!(page.get("total_is_bound"), None);
    for query in ["search=x", "limit=0", "skip=-1", "format=csv"] {
        server.get(&format!("/v1/events/archive?{query}")).await.problem(Code::InvalidQuery);
    }
    assert_eq!(server.get("/v1/events/archive/files").await.json(), json!({"items": []}));
    let restored = send(&server, Method::POST, &format!("{one}/restore"), json!({"reason": "needed"})).await.json();
    assert_eq!((&restored["event_id"], restored.get("deleted_at")), (&json!(id), None));
    assert_eq!(server.get(&one).await.json()["event"]["total"], 7);
    let unknown = send(&server, Method::POST, "/v1/events/nothing/restore", json!({"reason": "x"})).await;
    unknown.problem(Code::UnknownArchivedEvent);
}
