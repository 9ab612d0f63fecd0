//! `GET /v1/aggregates/…`.

use annals_core::Code;
use serde_json::{Value, json};

use crate::running::Running;

async fn commit(server: &Running, id: &str, n: u64, time: &str) {
    let body = json!({"aggregate": {"name": "order", "id": id}, "request_id": format!("r/{n}"), "events": [
        {"type": "changed", "data": {"n": n}, "time": time}, {"type": "checked", "data": {}, "time": time}]});
    server.commit(&body).await;
}

async fn orders() -> Running {
    let server = Running::start().await;
    for n in 1..=5 {
        commit(&server, "o-1", n, &format!("2026-03-0{n}T00:00:00.000Z")).await;
    }
    server
}

async fn versions(server: &Running, query: &str) -> Vec<u64> {
    let answer = server.get(&format!("/v1/aggregates/order/o-1/commits{query}")).await.json();
    assert_eq!(answer["version"], 5, "{query}");
    let commits = answer["commits"].as_array().expect("a list");
    commits.iter().map(|commit| commit["version"].as_u64().expect("a number")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn commits_are_read_by_range_of_versions_and_times() {
    let server = orders().await;
    for (query, expected) in [
        ("", &[1, 2, 3, 4, 5][..]),
        ("?from_version=0", &[1, 2, 3, 4, 5]),
        ("?from_version=2&to_version=3", &[2, 3]),
        ("?from_version=4&to_version=99", &[4, 5]),
        ("?from_version=6", &[]),
        ("?limit=2", &[1, 2]),
        ("?from_version=3&limit=2", &[3, 4]),
        ("?from_time=2026-03-02T00:00:00Z&to_time=2026-03-04T00:00:00Z", &[2, 3, 4]),
        ("?from_time=2026-03-02T00:00:00.001Z", &[3, 4, 5]),
        ("?from_time=2026-03-02T01:00:00%2B01:00&to_version=3", &[2, 3]),
        ("?last", &[5]),
        ("?last=true", &[5]),
        ("?last=false&limit=1", &[1]),
        ("?last=2", &[4, 5]),
        ("?last=true&limit=3", &[3, 4, 5]),
        ("?last=2&to_version=3", &[2, 3]),
        ("?last&to_time=2026-03-02T23:00:00Z", &[2]),
        ("?tenant_id=(0)&limit=1", &[1]),
    ] {
        assert_eq!(versions(&server, query).await, expected, "{query}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_is_shown_whole() {
    let server = orders().await;
    let answer = server.get("/v1/aggregates/order/o-1/commits?from_version=2&to_version=2").await.json();
    let commit = &answer["commits"][0];
    assert_eq!((&commit["version"], &commit["request_id"]), (&json!(2), &json!("r/2")));
    assert_eq!(commit["time"], "2026-03-02T00:00:00.000Z");
    let events = commit["events"].as_array().expect("a list");
    assert_eq!(events.len(), 2);
    assert_eq!(events[1], server.get("/v1/log/3").await.json());
    assert_eq!((&events[1]["ordinal"], &events[1]["commit_id"]), (&json!(1), &commit["commit_id"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_aggregate_without_commits_has_version_0() {
    let server = orders().await;
    for path in [
        "/v1/aggregates/order/o-2/commits",
        "/v1/aggregates/nothing/o-1/commits?last",
        "/v1/aggregates/order/o-1/commits?tenant_id=other",
    ] {
        assert_eq!(server.get(path).await.json(), json!({"commits": [], "version": 0}), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whether_a_request_was_committed_is_known() {
    let server = orders().await;
    for (path, exists) in [
        ("/v1/aggregates/order/o-1/requests/r%2F3", true),
        ("/v1/aggregates/order/o-1/requests/r%2F9", false),
        ("/v1/aggregates/order/o-2/requests/r%2F3", false),
    ] {
        let answer = server.get(path).await.json();
        assert_eq!((&answer["exists"], answer["commit"].is_object()), (&json!(exists), exists), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_may_hold_anything_but_control_characters() {
    let server = Running::start().await;
    for (id, in_path) in [
        ("a/b ž%20", "a%2Fb%20%C5%BE%2520"),
        ("a/b ž ", "a%2Fb%20%C5%BE%20"),
        ("?#&=+;:@", "%3F%23%26%3D%2B%3B%3A%40"),
        ("日本", "%E6%97%A5%E6%9C%AC"),
        ("{id}", "%7Bid%7D"),
    ] {
        let body =
            json!({"aggregate": {"name": "odd", "id": id}, "request_id": id, "events": [{"type": "t", "data": {}}]});
        server.commit(&body).await;
        let answer = server.get(&format!("/v1/aggregates/odd/{in_path}/commits")).await.json();
        assert_eq!(answer["version"], 1, "{id}");
        assert_eq!(answer["commits"][0]["events"][0]["aggregate"]["id"], id);
        let exists = server.get(&format!("/v1/aggregates/odd/{in_path}/requests/{in_path}")).await.json();
        assert_eq!(exists["exists"], true, "{id}");
        let events = server.get(&format!("/v1/log?aggregate=odd/{in_path}")).await.json();
        assert_eq!(events["events"].as_array().map(Vec::len), Some(1), "{id}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_are_listed_in_order_page_by_page() {
    let server = Running::start().await;
    let mut ids: Vec<String> = (0..25).map(|n| format!("o/{n}")).collect();
    for id in &ids {
        server.commit_orders(id, 1).await;
    }
    server.commit(&json!({"aggregate": {"name": "other", "id": "x"}, "tenant_id": "t", "events": [{"type": "t", "data": {}}]})).await;
    ids.sort_unstable();
    let mut listed: Vec<String> = Vec::new();
    let mut after = String::new();
    loop {
        let page = server.get(&format!("/v1/aggregates/order?limit=10{after}")).await.json();
        let names: Vec<String> = serde_json::from_value(page["ids"].clone()).expect("ids");
        let Value::String(next) = &page["next"] else {
            assert!(names.is_empty());
            break;
        };
        assert_eq!(names.last(), Some(next));
        after = format!("&after={}", next.replace('/', "%2F"));
        listed.extend(names);
    }
    assert_eq!(listed, ids);
    let other = server.get("/v1/aggregates/other").await.json();
    assert_eq!(other, json!({"ids": ["x"], "aggregates": [{"id": "x", "tenant_id": "t"}], "next": "x"}));
}

#[tokio::test(flavor = "multi_thread")]
async fn names_are_listed_in_order_page_by_page() {
    let server = orders().await;
    assert_eq!(server.get("/v1/aggregates").await.json(), json!({"names": ["order"], "next": "order"}));
    for name in ["door", "order.line"] {
        server.commit(&json!({"aggregate": {"name": name, "id": "1"}, "events": [{"type": "t", "data": {}}]})).await;
    }
    let page = async |query: &str| server.get(&format!("/v1/aggregates{query}")).await.json();
    assert_eq!(page("?limit=2").await, json!({"names": ["door", "order"], "next": "order"}));
    assert_eq!(page("?after=order").await, json!({"names": ["order.line"], "next": "order.line"}));
    assert_eq!(page("?after=order.line").await, json!({"names": [], "next": null}));
    server.get("/v1/aggregates?limit=0").await.problem(Code::InvalidQuery);
    server.get("/v1/aggregates?name=order").await.problem(Code::InvalidQuery);
    server.get("/v1/aggregates?scope=partner").await.problem(Code::UnknownScope);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_exists_is_answered_with_its_commit() {
    let server = orders().await;
    let found = server.get("/v1/aggregates/order/o-1/requests/r%2F2").await.json();
    assert_eq!(found["exists"], json!(true));
    let commit = &found["commit"];
    assert_eq!(
        (&commit["version"], &commit["duplicate"], &commit["reached"]),
        (&json!(2), &json!(true), &json!("logged"))
    );
    assert_eq!(commit["events"][1]["sequence_number"], json!(3));
    let none = server.get("/v1/aggregates/order/o-1/requests/r%2F9").await.json();
    assert_eq!(none, json!({"exists": false}));
}
