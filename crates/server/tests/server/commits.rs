//! `POST /v1/commits`.

use annals_core::{Code, Timestamp, Uuid};
use reqwest::Method;
use serde_json::{Value, json};

use crate::follow::Events;
use crate::running::{Running, door, opened};

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_is_answered_201_with_its_place_in_the_log() {
    let server = Running::start().await;
    let answer = server.post(opened().to_string()).await;
    assert_eq!(answer.status, 201);
    let first = answer.json();
    assert_eq!(
        (&first["version"], &first["duplicate"], &first["reached"]),
        (&json!(1), &json!(false), &json!("logged"))
    );
    assert_eq!(first["events"][0]["sequence_number"], 0);
    let two = json!({"aggregate": {"name": "door", "id": "7"}, "expected_version": 1, "events": [
        {"type": "closed", "data": {}}, {"type": "locked", "data": {}}]});
    let second = server.commit(&two).await;
    assert_eq!(second["version"], 2);
    assert_eq!(second["events"][1]["sequence_number"], 2);
    for id in [&first["commit_id"], &second["events"][0]["id"]] {
        assert!(Uuid::try_parse(id.as_str().expect("text")).is_ok());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_given_is_read_back() {
    let server = Running::start().await;
    let id = "0190e5a4-8f3e-7c21-9d30-3f6f0d1f7b11";
    let body = json!({
        "aggregate": {"name": "order", "id": "o-1"}, "expected_version": "empty", "request_id": "r-1", "command_id": "c-1",
        "events": [{"type": "placed", "data": {"z": 1, "a": {"$date": 2.5}, "ž": [null, true]}, "id": id, "generation": 3,
                    "tags": ["vip", "a,b"], "public": true, "time": "2026-03-01T12:00:00.123Z",
                    "metadata": {"trace": "t-1", "attempt": 2, "cost": 1.0}}],
        "header": {"b": "1", "a": "2"}, "tenant_id": "t", "owner_id": "o", "space_id": "s",
        "correlation_id": "k", "causation_id": "u", "wait": {"for": "logged", "timeout_ms": 100}});
    let answer = server.commit(&body).await;
    let event = server.get("/v1/log/0").await;
    let expected = json!({
        "sequence_number": 0, "id": id, "type": "placed", "generation": 3, "data": body["events"][0]["data"],
        "tags": ["vip", "a,b"], "aggregate": {"name": "order", "id": "o-1"}, "version": 1, "ordinal": 0,
        "commit_id": answer["commit_id"], "request_id": "r-1", "time": "2026-03-01T12:00:00.123Z", "tenant": "default",
        "scope": "default", "header": {"b": "1", "a": "2"}, "public": true,
        "metadata": {"trace": "t-1", "attempt": 2, "cost": 1.0}, "tenant_id": "t", "owner_id": "o",
        "space_id": "s", "command_id": "c-1", "correlation_id": "k", "causation_id": "u"});
    assert_eq!(event.json(), expected);
}

/// So that a handler or a consumer can continue the trace. A commit that names one itself keeps it, and a repeat within another trace is
/// still a repeat.
#[tokio::test(flavor = "multi_thread")]
async fn the_trace_of_a_request_is_in_the_header_of_its_commits() {
    const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    const OTHER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
    let server = Running::start().await;
    let send = async |path: &str, body: &Value, trace: &'static str, status: u16| {
        let request = server.request(Method::POST, path).header("traceparent", trace);
        let answer = server.send(request.header("content-type", "application/json").body(body.to_string())).await;
        assert_eq!(answer.status, status, "{}", answer.text());
    };
    let header = async |number: u64| server.get(&format!("/v1/log/{number}")).await.json()["header"].clone();
    let mut body = opened();
    body["request_id"] = json!("r");
    send("/v1/commits", &body, TRACE, 201).await;
    send("/v1/commits", &body, OTHER, 200).await;
    assert_eq!(header(0).await, json!({ "traceparent": TRACE }));
    let mut own = opened();
    own["header"] = json!({ "Traceparent": OTHER });
    send("/v1/commits", &own, TRACE, 201).await;
    assert_eq!(header(1).await, own["header"]);
    let mut full = opened();
    full["header"] = json!({ "k": "x".repeat(65_500) });
    send("/v1/commits", &full, TRACE, 201).await;
    assert_eq!(header(2).await, full["header"], "a trace never refuses a commit");
    let of = |id: &str| json!({"aggregate": {"name": "door", "id": id}, "events": [{"type": "opened", "data": {}}]});
    send("/v1/transactions", &json!({ "commits": [of("x"), of("y")] }), OTHER, 201).await;
    for number in [3, 4] {
        assert_eq!(header(number).await, json!({ "traceparent": OTHER }));
    }
    send("/v1/commits", &of("z"), "no trace", 201).await;
    assert_eq!(header(5).await, json!({}));
    // Followers get it with the event.
    let mut events = Events::open(&server, "/v1/log/follow", None).await;
    let followed: Value = serde_json::from_str(&events.next().await.data).expect("JSON");
    assert_eq!(followed["header"], json!({ "traceparent": TRACE }));
}

#[tokio::test(flavor = "multi_thread")]
async fn metadata_that_is_no_object_of_strings_and_numbers_is_refused_with_its_path() {
    let server = Running::start().await;
    let many: serde_json::Map<_, _> = (0..65).map(|n| (n.to_string(), json!(n))).collect();
    for wrong in [json!({"a": null}), json!({"a": [1]}), json!(7), json!({"a": "x".repeat(20_000)}), json!(many)] {
        let mut body = opened();
        body["events"][0]["metadata"] = wrong.clone();
        let problem = server.post(body.to_string()).await.problem(Code::InvalidMetadata);
        assert_eq!(problem["path"], "events[0].metadata", "{wrong}");
    }
    let mut empty = opened();
    empty["events"][0]["metadata"] = json!({});
    server.commit(&empty).await;
    assert_eq!(server.get("/v1/log/0").await.json().get("metadata"), None, "an empty object is none");
}

#[tokio::test(flavor = "multi_thread")]
async fn data_is_read_back_as_it_was_written() {
    let server = Running::start().await;
    for data in [
        r#"{"z":1,"a":{"$date":2.5},"ž":[null,true,{}],"b":[]}"#,
        r#"{"least":-9223372036854775808,"most":9223372036854775807,"whole":1.0,"small":1e-300}"#,
        r#"{"text":"\"\\ \n \u0000 \u2028 😀","":"empty key","a.b":1,"$c":2}"#,
    ] {
        let body = opened().to_string().replace(r#"{"by":"Eva"}"#, data);
        let answer = server.post(body).await.json();
        let event = server.get(&format!("/v1/log/{}", answer["events"][0]["sequence_number"])).await;
        let data = data.replace("\\u2028", "\u{2028}");
        assert!(event.text().contains(&format!(r#""data":{data},"tags""#)), "{data} {}", event.text());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_given_has_its_default() {
    let server = Running::start().await;
    server.commit(&opened()).await;
    let event = server.get("/v1/log/0").await.json();
    assert_eq!((&event["generation"], &event["tags"], &event["header"]), (&json!(1), &json!([]), &json!({})));
    assert!(event["request_id"].is_string() && event.get("tenant_id").is_none() && event.get("public").is_none());
    assert!(Timestamp::parse(event["time"].as_str().expect("text")).is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_request_is_answered_200_with_the_first_outcome() {
    let server = Running::start().await;
    let mut body = opened();
    body["request_id"] = json!("r-1");
    let first = server.commit(&body).await;
    server.commit(&opened()).await;
    body["expected_version"] = json!(77);
    let again = server.post(body.to_string()).await;
    assert_eq!(again.status, 200);
    let again = again.json();
    assert_eq!(again["duplicate"], true);
    assert_eq!(
        (&again["commit_id"], &again["version"], &again["events"]),
        (&first["commit_id"], &json!(1), &first["events"])
    );
    assert_eq!(server.head().await, 2);

    body["events"][0]["data"] = json!({"by": "Adam"});
    let reused = server.post(body.to_string()).await.problem(Code::RequestIdReused);
    assert_eq!(reused["request_id"], "r-1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_is_not_the_actual_one_is_a_conflict_that_names_it() {
    let server = Running::start().await;
    server.commit(&opened()).await;
    server.commit(&opened()).await;
    for expected in [json!(0), json!("empty"), json!(1), json!(3), json!(u64::from(u32::MAX))] {
        let mut body = opened();
        body["expected_version"] = expected;
        let problem = server.post(body.to_string()).await.problem(Code::VersionConflict);
        assert_eq!(problem["actual_version"], 2);
    }
    let mut absent = opened();
    absent["aggregate"]["id"] = json!("8");
    absent["expected_version"] = json!("exists");
    assert_eq!(server.post(absent.to_string()).await.problem(Code::VersionConflict)["actual_version"], 0);
    for expected in [json!("any"), json!("exists"), json!(4)] {
        let mut body = opened();
        body["expected_version"] = expected;
        server.commit(&body).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_aggregate_of_another_tenant_id_is_a_conflict_that_names_it() {
    let server = Running::start().await;
    let mut body = opened();
    body["tenant_id"] = json!("north");
    server.commit(&body).await;
    body["tenant_id"] = json!("south");
    let problem = server.post(body.to_string()).await.problem(Code::AggregateOfOtherTenant);
    assert_eq!(problem["tenant_id"], "north");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_content_type_is_json_or_absent() {
    let server = Running::start().await;
    let send = async |content_type: &str| {
        let request = server.request(Method::POST, "/v1/commits").header("content-type", content_type);
        server.send(request.body(opened().to_string())).await
    };
    for good in ["application/json", "Application/JSON; charset=utf-8"] {
        assert_eq!(send(good).await.status, 201, "{good}");
    }
    for bad in ["text/plain", "application/ejson", "application/x-www-form-urlencoded", "application/jsonp", ""] {
        send(bad).await.problem(Code::UnsupportedMediaType);
    }
    let page = server.request(Method::POST, "/v1/commits").header("origin", "http://example.org");
    server.send(page.body(opened().to_string())).await.problem(Code::UnsupportedMediaType);
    let packed = server.request(Method::POST, "/v1/commits").header("content-encoding", "gzip").body("x");
    server.send(packed).await.problem(Code::UnsupportedMediaType);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_of_many_megabytes_is_committed() {
    let server = Running::start().await;
    let text = "x".repeat(7 * 1024 * 1024);
    let body = json!({"aggregate": {"name": "file", "id": "1"}, "events": [
        {"type": "part", "data": {"text": text}}, {"type": "part", "data": {"text": text}}]});
    server.commit(&body).await;
    assert_eq!(server.get("/v1/log/1").await.json()["data"]["text"], text);
    let page = server.get("/v1/log").await.json();
    assert_eq!(page["head"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_writers_at_once_all_get_their_own_place() {
    let server = std::sync::Arc::new(Running::start().await);
    let writers = (0..64).map(|n| {
        let server = std::sync::Arc::clone(&server);
        tokio::spawn(async move {
            let body = door(json!({"type": "opened", "data": {"by": n}}));
            server.commit(&body).await["events"][0]["sequence_number"].as_u64().expect("a number")
        })
    });
    let mut places = Vec::new();
    for writer in writers.collect::<Vec<_>>() {
        places.push(writer.await.expect("no panic"));
    }
    places.sort_unstable();
    assert_eq!(places, (0..64).collect::<Vec<_>>());
}
