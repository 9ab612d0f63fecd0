//! What reads find, as BSON documents: the same as in JSON.

use annals_core::wire::EventView;
use annals_core::wire::binary::{FoundEnd, read_found};
use annals_core::{Code, RecordedEvent};
use reqwest::Method;
use serde_json::{Value, json};

use crate::damaged::damaged;
use crate::running::Running;

async fn found(server: &Running, path: &str) -> (Vec<RecordedEvent>, FoundEnd) {
    let answer = server.send(server.request(Method::GET, path).header("accept", "application/bson")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("content-type"), "application/bson");
    let mut events = Vec::new();
    let end = read_found(&answer.body.into(), |commit| events.extend(commit.events)).expect("documents");
    (events, end)
}

fn as_json(events: &[RecordedEvent]) -> Value {
    let view = |event| EventView { event, tenant: "default", scope: "default" };
    serde_json::to_value(events.iter().map(view).collect::<Vec<_>>()).expect("JSON")
}

async fn mixed() -> Running {
    let server = Running::start().await;
    for n in 0..30 {
        let tags = if n % 5 == 0 { json!(["five", "x,y"]) } else { json!([]) };
        let event = |m: u64| {
            let name = if m.is_multiple_of(2) { "a" } else { "b" };
            json!({"type": name, "data": {"n": [n, m]}, "tags": tags})
        };
        let events: Vec<Value> = (0..n % 4 + 1).map(event).collect();
        server
            .commit(&json!({
                "aggregate": {"name": "order", "id": format!("{}", n % 3)}, "header": {"from": "test"},
                "events": events,
            }))
            .await;
    }
    server
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_hold_what_json_holds() {
    let server = mixed().await;
    for query in [
        "",
        "limit=7",
        "from=3&limit=1000",
        "from=74&limit=1",
        "from=75",
        "from=18446744073709551615",
        "types=b",
        "tags=five",
        "tags=five&types=a&limit=3",
        "aggregate=order/2",
        "backwards",
        "backwards&from=40&limit=9",
        "types=none",
    ] {
        let path = format!("/v1/log?{query}");
        let page = server.get(&path).await.json();
        let (events, end) = found(&server, &path).await;
        assert_eq!(as_json(&events), page["events"], "{query}");
        assert_eq!((json!(end.next), json!(end.head)), (page["next"].clone(), page["head"].clone()), "{query}");
    }
    for path in ["order/1/commits", "order/1/commits?limit=2&from_version=3", "order/1/commits?last", "order/x/commits"]
    {
        let path = format!("/v1/aggregates/{path}");
        let page = server.get(&path).await.json();
        let (events, end) = found(&server, &path).await;
        let commits = page["commits"].as_array().expect("a list").iter();
        let expected: Vec<_> = commits.flat_map(|commit| commit["events"].as_array().expect("a list")).collect();
        assert_eq!(as_json(&events), json!(expected), "{path}");
        assert_eq!(json!(end.version), page["version"], "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_query_is_a_problem_document() {
    let server = Running::start().await;
    for query in ["limit=0", "limit=1001", "types=no%20name", "colour=red"] {
        let request = server.request(Method::GET, &format!("/v1/log?{query}")).header("accept", "application/bson");
        assert_eq!(server.send(request).await.status, server.get(&format!("/v1/log?{query}")).await.status, "{query}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_of_a_damaged_log_end_at_the_damage_and_never_as_if_it_were_the_end() {
    let server = damaged().await;
    let page = server.get("/v1/log?limit=1000").await.json();
    let (events, end) = found(&server, "/v1/log?limit=1000").await;
    assert_eq!((as_json(&events), json!(end.next)), (page["events"].clone(), page["next"].clone()));
    let request = server.request(Method::GET, &format!("/v1/log?from={}", end.next));
    server.send(request.header("accept", "application/bson")).await.problem(Code::StoreDamaged);
}
