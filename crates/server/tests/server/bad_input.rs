//! Whatever is wrong with a request gets an answer that says so, and nothing of it is stored.

use annals_core::{Code, limits};
use reqwest::Method;
use serde_json::{Value, json};

use crate::running::{Running, door, opened};

/// A good body with one member set.
fn with(member: &str, value: Value) -> String {
    let mut body = opened();
    body[member] = value;
    body.to_string()
}

fn with_id(id: &str) -> String {
    json!({"aggregate": {"name": "door", "id": id}, "events": [{"type": "opened", "data": {}}]}).to_string()
}

fn event(event: Value) -> String {
    door(event).to_string()
}

fn bad_bodies() -> Vec<(&'static str, String, Code, &'static str)> {
    let long = "i".repeat(limits::ID_BYTES_MAX + 1);
    let id = "0190e5a4-8f3e-7c21-9d30-3f6f0d1f7b11";
    let many = vec![json!({"type": "t", "data": {}}); limits::EVENTS_MAX + 1];
    let raw = |text: &str| door(json!({"type": "t", "data": "DATA"})).to_string().replace("\"DATA\"", text);
    let deep = |depth: usize| format!("{}1{}", r#"{"a":"#.repeat(depth), "}".repeat(depth));
    vec![
        ("an empty body", String::new(), Code::NotJson, ""),
        ("half a body", opened().to_string()[..40].to_owned(), Code::NotJson, ""),
        ("text", "hello".to_owned(), Code::NotJson, ""),
        ("two documents", format!("{0}{0}", opened()), Code::NotJson, ""),
        ("an array", "[]".to_owned(), Code::InvalidBody, ""),
        ("no aggregate", json!({"events": []}).to_string(), Code::InvalidBody, ""),
        ("an unknown field", with("colour", json!("red")), Code::InvalidBody, "colour"),
        (
            "an unknown field of an event",
            event(json!({"type": "t", "data": {}, "x": 1})),
            Code::InvalidBody,
            "events[0].x",
        ),
        ("a field twice", r#"{"events":[],"events":[]}"#.to_owned(), Code::InvalidBody, ""),
        ("a wrong type", with("request_id", json!(7)), Code::InvalidBody, "request_id"),
        ("no events", with("events", json!([])), Code::InvalidEvents, "events"),
        ("10,001 events", with("events", json!(many)), Code::InvalidEvents, "events"),
        (
            "an event id twice",
            with("events", json!([{"type": "t", "data": {}, "id": id}, {"type": "t", "data": {}, "id": id}])),
            Code::InvalidEvents,
            "events",
        ),
        (
            "an event id that is none",
            event(json!({"type": "t", "data": {}, "id": "7"})),
            Code::InvalidId,
            "events[0].id",
        ),
        ("an empty id", with_id(""), Code::InvalidId, "aggregate.id"),
        ("an over-long id", with_id(&long), Code::InvalidId, "aggregate.id"),
        ("a NUL in an id", with_id("a\0b"), Code::InvalidId, "aggregate.id"),
        ("an empty request id", with("request_id", json!("")), Code::InvalidId, "request_id"),
        ("an over-long request id", with("request_id", json!(long)), Code::InvalidId, "request_id"),
        ("a NUL in a request id", with("request_id", json!("a\0")), Code::InvalidId, "request_id"),
        ("a bad type name", event(json!({"type": "no spaces", "data": {}})), Code::InvalidName, "events[0].type"),
        (
            "a bad aggregate name",
            with("aggregate", json!({"name": "a/b", "id": "1"})),
            Code::InvalidName,
            "aggregate.name",
        ),
        ("data that is no object", raw("[]"), Code::InvalidData, "events[0].data"),
        ("a key twice in data", raw(r#"{"k":1,"k":2}"#), Code::InvalidData, "events[0].data"),
        (
            "a long key twice in data",
            raw(&format!(r#"{{"{0}":1,"{0}":2}}"#, "k".repeat(100_000))),
            Code::InvalidData,
            "events[0].data",
        ),
        ("a NUL in a key of data", raw(r#"{"a\u0000":1}"#), Code::InvalidData, "events[0].data"),
        ("data nested too deep", raw(&deep(limits::DATA_DEPTH_MAX + 2)), Code::InvalidData, "events[0].data"),
        ("an integer beyond 64 bits", raw(r#"{"n":9223372036854775808}"#), Code::InvalidInteger, "events[0].data.n"),
        (
            "a time that is none",
            event(json!({"type": "t", "data": {}, "time": "noon"})),
            Code::InvalidTime,
            "events[0].time",
        ),
        ("a negative version", with("expected_version", json!(-1)), Code::InvalidVersion, "expected_version"),
        (
            "a version word that is none",
            with("expected_version", json!("new")),
            Code::InvalidVersion,
            "expected_version",
        ),
        (
            "65 tags",
            event(json!({"type": "t", "data": {}, "tags": vec!["x"; 65]})),
            Code::InvalidTags,
            "events[0].tags",
        ),
        ("an empty tag", event(json!({"type": "t", "data": {}, "tags": [""]})), Code::InvalidTags, "events[0].tags[0]"),
        ("a header over its limit", with("header", json!({"k": "v".repeat(65_536)})), Code::InvalidHeader, "header"),
        ("a header of numbers", with("header", json!({"k": 1})), Code::InvalidHeader, "header.k"),
        ("a wait for something else", with("wait", json!({"for": "tea"})), Code::InvalidWait, "wait.for"),
        (
            "an event over its limit",
            event(json!({"type": "t", "data": {"x": "y".repeat(limits::EVENT_BYTES_MAX)}})),
            Code::EventTooLarge,
            "events[0].data",
        ),
        (
            "a commit over its limit",
            with("events", json!(vec![json!({"type": "t", "data": {"x": "y".repeat(6_000_000)}}); 3])),
            Code::CommitTooLarge,
            "events",
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_body_is_refused_with_its_code_and_path_and_nothing_is_stored() {
    let server = Running::start().await;
    server.commit(&opened()).await;
    for (name, body, code, path) in bad_bodies() {
        let answer = server.post(body).await;
        let problem = answer.problem(code);
        let named = problem["path"].as_str().unwrap_or_default();
        assert!(named == path || (name.contains("deep") && named.starts_with(path)), "{name}: {problem}");
        assert!(answer.body.len() < 3_000, "{name}: the answer repeats a flood");
    }
    assert_eq!(server.head().await, 1);
    let metrics = server.get("/metrics").await;
    assert!(metrics.text().contains(r#"annals_commits_refused_total{code="invalid_data"} 5"#), "{}", metrics.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_not_utf8_is_not_json() {
    let server = Running::start().await;
    let mut body = opened().to_string().into_bytes();
    let place = body.windows(3).position(|w| w == b"Eva").expect("there");
    body[place] = 0xff;
    server.post(body).await.problem(Code::NotJson);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_query_names_the_parameter() {
    let server = Running::start().await;
    server.commit(&opened()).await;
    for (path, parameter, code) in [
        ("/v1/log?color=red", "color", Code::InvalidQuery),
        ("/v1/log?from=1&from=2", "from", Code::InvalidQuery),
        ("/v1/log?from=-1", "from", Code::InvalidQuery),
        ("/v1/log?from=18446744073709551616", "from", Code::InvalidQuery),
        ("/v1/log?from", "from", Code::InvalidQuery),
        ("/v1/log?limit=0", "limit", Code::InvalidQuery),
        ("/v1/log?limit=1001", "limit", Code::InvalidQuery),
        ("/v1/log?limit=99999999999999999999", "limit", Code::InvalidQuery),
        ("/v1/log?backwards=maybe", "backwards", Code::InvalidQuery),
        ("/v1/log?types=%zz", "types", Code::InvalidQuery),
        ("/v1/log?types=%ff", "types", Code::InvalidQuery),
        ("/v1/log?types=", "types", Code::InvalidName),
        ("/v1/log?types=a,b%20c", "types", Code::InvalidName),
        ("/v1/log?tags=a,,b", "tags", Code::InvalidId),
        ("/v1/log?aggregate=door/", "aggregate", Code::InvalidId),
        ("/v1/log?aggregate=/7", "aggregate", Code::InvalidName),
        ("/v1/log/follow?limit=3", "limit", Code::InvalidQuery),
        ("/v1/log/follow?from=x", "from", Code::InvalidQuery),
        ("/v1/log/x", "sequence_number", Code::InvalidQuery),
        ("/v1/log/-1", "sequence_number", Code::InvalidQuery),
        ("/v1/log/0?limit=1", "limit", Code::InvalidQuery),
        ("/v1/aggregates/a%20b", "name", Code::InvalidName),
        ("/v1/aggregates/door?limit=0", "limit", Code::InvalidQuery),
        ("/v1/aggregates/door/7/commits?limit=0", "limit", Code::InvalidQuery),
        ("/v1/aggregates/door/7/commits?last=0", "last", Code::InvalidQuery),
        ("/v1/aggregates/door/7/commits?last=x", "last", Code::InvalidQuery),
        ("/v1/aggregates/door/7/commits?last=2&limit=3", "last", Code::InvalidQuery),
        ("/v1/aggregates/door/7/commits?from_version=3&to_version=2", "from_version", Code::InvalidRange),
        ("/v1/aggregates/door/7/commits?from_time=noon", "from_time", Code::InvalidTime),
        (
            "/v1/aggregates/door/7/commits?from_time=2026-03-02T00:00:00Z&to_time=2026-03-01T00:00:00Z",
            "from_time",
            Code::InvalidRange,
        ),
        ("/v1/aggregates/door/7/commits?tenant_id=", "tenant_id", Code::InvalidId),
        ("/v1/aggregates/door/%00/commits", "aggregate.id", Code::InvalidId),
        ("/v1/aggregates//7/commits", "aggregate.name", Code::InvalidName),
        ("/v1/aggregates/door//commits", "aggregate.id", Code::InvalidId),
        ("/v1/aggregates/a%20b/7/commits", "aggregate.name", Code::InvalidName),
        ("/v1/aggregates/door/7/requests/%07", "request_id", Code::InvalidId),
        ("/v1?x", "x", Code::InvalidQuery),
    ] {
        let problem = server.get(path).await.problem(code);
        assert_eq!(problem["path"], parameter, "{path}: {problem}");
    }
    let commit = server.request(Method::POST, "/v1/commits?scope=other").body(opened().to_string());
    assert_eq!(server.send(commit).await.problem(Code::InvalidQuery)["path"], "scope");
    let lines = server.request(Method::GET, "/v1/log?limit=0").header("accept", "application/x-ndjson");
    assert_eq!(server.send(lines).await.problem(Code::InvalidQuery)["path"], "limit");
    // Each would be compared with each event that is read.
    for parameter in ["types", "tags"] {
        let asked = |count: usize| format!("/v1/log?{parameter}={}", vec!["a"; count].join(","));
        assert_eq!(server.get(&asked(1_000)).await.status, 200);
        assert_eq!(server.get(&asked(1_001)).await.problem(Code::InvalidQuery)["path"], parameter);
    }
    let position = server.request(Method::GET, "/v1/log/follow").header("last-event-id", "x");
    assert_eq!(server.send(position).await.problem(Code::InvalidQuery)["path"], "Last-Event-ID");
    assert_eq!(server.head().await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plus_that_became_a_space_is_explained() {
    let server = Running::start().await;
    let path = "/v1/aggregates/door/7/commits?from_time=2026-03-01T12:00:00+01:00";
    let problem = server.get(path).await.problem(Code::InvalidTime);
    assert!(problem["detail"].as_str().expect("text").contains("%2B"), "{problem}");
}
