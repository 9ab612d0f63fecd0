//! The browse view and replays over HTTP.

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

/// Commits an event of a user, and returns its id.
async fn commit(server: &Running, aggregate: &str, event_type: &str, data: Value) -> String {
    let body = json!({"aggregate": {"name": "order", "id": aggregate}, "events": [{"type": event_type, "data": data}],
        "header": {"user_id": "ada", "service_name": "shop"}, "wait": {"for": "logged"}});
    let answer = post(server, "/v1/commits", body).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    answer.json()["events"][0]["id"].as_str().expect("an id").to_owned()
}

async fn with_events() -> (Running, Vec<String>) {
    let server = Running::start().await;
    let mut ids = Vec::new();
    for n in 0..6 {
        let event_type = if n % 3 == 2 { "paid" } else { "placed" };
        ids.push(commit(&server, &format!("o-{}", n % 2), event_type, json!({"n": n, "note": "=1+1"})).await);
    }
    (server, ids)
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_browsed_as_soon_as_they_are_committed() {
    let (server, ids) = with_events().await;
    let page = server.get("/v1/events?limit=4&sort=-sequence_number").await.json();
    assert_eq!((&page["total"], &page["has_more"]), (&json!(6), &json!(true)));
    assert_eq!((&page["items"][0]["event_id"], &page["items"][0]["n"]), (&json!(ids[5]), &json!(5)));
    assert_eq!(page["items"][0]["metadata"]["user_id"], "ada");
    assert_eq!(page["view"], json!({"position": 6, "head": 6}));
    let cursor = page["cursor"].as_str().expect("there is more");
    let rest = server.get(&format!("/v1/events?limit=4&sort=-sequence_number&cursor={cursor}")).await.json();
    assert_eq!((rest["items"].as_array().map(Vec::len), rest.get("cursor")), (Some(2), None));
    let total = async |query: &str| server.get(&format!("/v1/events?{query}")).await.json()["total"].clone();
    assert_eq!(total("event_types=placed,paid&exclude_event_types=paid").await, 4);
    assert_eq!(total("aggregate_id=o-1&user_id=ada&service_name=shop").await, 3);
    assert_eq!(total("search=paid").await, 2);
    assert_eq!(total("start_time=2099-01-01T00:00:00Z").await, 0);
    let detail = server.get(&format!("/v1/events/{}", ids[0])).await.json();
    assert_eq!((detail["related"].as_array().map(Vec::len), &detail["event"]["n"]), (Some(2), &json!(0)));
    server.get("/v1/events/nothing").await.problem(Code::UnknownEvent);
}

#[tokio::test(flavor = "multi_thread")]
async fn parameters_of_pages_are_checked() {
    let server = Running::start().await;
    for query in ["limit=0", "limit=1001", "skip=-1", "sort=color", "format=csv", "cursor=x&skip=1", "colour=red"] {
        server.get(&format!("/v1/events?{query}")).await.problem(Code::InvalidQuery);
    }
    server.get("/v1/events?start_time=yesterday").await.problem(Code::InvalidTime);
    for query in ["hours=0", "hours=169"] {
        server.get(&format!("/v1/events/statistics?{query}")).await.problem(Code::InvalidQuery);
    }
    for query in ["format=xml", "limit=0", "skip=1"] {
        server.get(&format!("/v1/events/export?{query}")).await.problem(Code::InvalidQuery);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn exports_are_attachments_with_any_number_of_rows() {
    let (server, ids) = with_events().await;
    for n in 0..30 {
        server.commit_orders(&format!("x-{n}"), 50).await;
    }
    let csv = server.get("/v1/events/export?format=csv&user_id=ada&limit=2").await;
    assert_eq!(csv.header("content-type"), "text/csv");
    let name = csv.header("content-disposition");
    assert!(name.starts_with("attachment; filename=\"events_export_") && name.ends_with(".csv\""), "{name}");
    let lines: Vec<_> = csv.text().split_terminator("\r\n").collect();
    assert_eq!(lines[0], "Event ID,Event Type,Timestamp,Aggregate ID,User ID,Service,Status,Error");
    assert_eq!((lines.len(), lines[1].starts_with(&ids[5]), lines[2].starts_with(&ids[4])), (3, true, true));
    let all = server.get("/v1/events/export").await;
    let rows: Vec<Value> = all.text().lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!((all.header("content-type"), rows.len()), ("application/x-ndjson", 1_506));
    let formulas = server.get("/v1/events/export?format=csv&aggregate_id=%3D1%2B1").await;
    assert_eq!(formulas.text().lines().count(), 1);
    commit(&server, "=1+1", "placed", json!({})).await;
    let formulas = server.get("/v1/events/export?format=csv&aggregate_id=%3D1%2B1").await;
    assert!(formulas.text().contains(",'=1+1,"), "{}", formulas.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_view_is_switched_off_and_on_with_a_reason() {
    let (server, _) = with_events().await;
    let set = async |body: Value| send(&server, Method::PUT, "/v1/events/view", body).await;
    let before = server.get("/v1/events/view").await.json();
    assert_eq!((&before["state"], &before["retention_days"], before.get("view")), (&json!("auto"), &json!(90), None));
    set(json!({"state": "off"})).await.problem(Code::InvalidBody);
    set(json!({"retention_days": 0, "reason": "x"})).await.problem(Code::InvalidBody);
    assert_eq!(set(json!({"state": "off", "reason": "less disk"})).await.status, 200);
    server.get("/v1/events").await.problem(Code::BrowseViewOff);
    let on = set(json!({"state": "on", "retention_days": null, "reason": "wanted"})).await.json();
    assert_eq!((&on["state"], &on["retention_days"]), (&json!("on"), &json!(null)));
    let page = server.get("/v1/events").await.json();
    assert_eq!((&page["total"], page["items"][0].get("ttl_expires_at")), (&json!(6), None));
    post(&server, "/v1/events/view/rebuild", json!({})).await.problem(Code::InvalidBody);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_is_previewed_created_started_and_followed_to_its_end() {
    let (server, ids) = with_events().await;
    let filter = json!({"event_types": ["placed"]});
    let preview =
        post(&server, "/v1/replays/preview", json!({"filter": filter, "target": {"kind": "test"}})).await.json();
    assert_eq!((&preview["count"], &preview["first"][0]["event_id"]), (&json!(4), &json!(ids[0])));
    let created = post(&server, "/v1/replays", json!({"filter": filter, "target": {"kind": "test"}})).await.json();
    let one = format!("/v1/replays/{}", created["session_id"].as_str().expect("an id"));
    assert_eq!(created["status"], "created");
    let refused =
        post(&server, &format!("{one}/resume"), json!({"reason": "a test"})).await.problem(Code::StateConflict);
    assert_eq!(refused["state"], "created");
    post(&server, &format!("{one}/start"), json!({})).await.problem(Code::InvalidBody);
    assert_eq!(post(&server, &format!("{one}/start"), json!({"reason": "a test"})).await.status, 200);
    // The stream ends with the replay.
    let followed = server.get(&format!("{one}/follow")).await;
    assert_eq!(followed.header("content-type"), "text/event-stream");
    let states: Vec<Value> = followed
        .text()
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let last = states.last().expect("a state");
    assert_eq!(
        (&last["status"], &last["replayed"], &last["progress"]),
        (&json!("completed"), &json!(4), &json!(100.0))
    );
    let listed = server.get("/v1/replays?status=completed").await.json();
    assert_eq!(listed["items"][0]["session_id"], created["session_id"]);
    server.get("/v1/replays?status=tired").await.problem(Code::InvalidQuery);
    server.get("/v1/replays/nothing").await.problem(Code::UnknownReplay);
    let empty = json!({"filter": {"exclude_event_types": ["paid"]}, "target": {"kind": "test"}});
    post(&server, "/v1/replays", empty).await.problem(Code::InvalidReplay);
    let file = json!({"filter": filter, "target": {"kind": "file", "name": "events.jsonl"}});
    post(&server, "/v1/replays", file).await.problem(Code::InvalidReplay);
    let removed = server.send(server.request(Method::DELETE, "/v1/replays?older_than_hours=1")).await.json();
    assert_eq!(removed, json!({"removed": 0}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_gets_replayed_events_with_the_id_of_the_replay() {
    let (server, _) = with_events().await;
    send(&server, Method::PUT, "/v1/handlers/billing", json!({"start": "latest", "partition_by": "aggregate"})).await;
    let replay = json!({"filter": {"event_types": ["paid"]}, "target": {"kind": "handler", "name": "billing"}});
    let created = post(&server, "/v1/replays", replay).await.json();
    let one = format!("/v1/replays/{}", created["session_id"].as_str().expect("an id"));
    post(&server, &format!("{one}/start"), json!({"reason": "a test"})).await;
    for _ in 0..2 {
        let pulled = post(&server, "/v1/handlers/billing/pull", json!({"max": 1, "wait_ms": 20_000})).await.json();
        let delivery = &pulled["deliveries"][0];
        assert_eq!((&delivery["replay"], &delivery["event"]["type"]), (&created["replay_id"], &json!("paid")));
        let settled = json!({"results": [{"token": delivery["token"]}]});
        let settled = post(&server, "/v1/handlers/billing/settle", settled).await.json();
        assert_eq!(settled["results"][0]["settled"], true);
    }
    let followed = server.get(&format!("{one}/follow")).await;
    assert!(followed.text().contains("\"status\":\"completed\""), "{}", followed.text());
}
