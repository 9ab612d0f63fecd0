//! `GET /v1/streams/…`.

use std::sync::Arc;

use annals_core::{Code, DEFAULT_SCOPE, DEFAULT_TENANT, Included, Store, Verdicts};
use annals_embedded::disk::MemoryDisk;
use annals_server::Options;
use reqwest::Method;
use serde_json::{Value, json};

use crate::running::{Answer, Running, store_on};

/// A server with ten events, of which the stream "s" holds the even ones, in turn in no partition, in "a" and in "b/1".
async fn serving() -> Running {
    let store: Arc<dyn Store> = store_on(Arc::new(MemoryDisk::default()), annals_embedded::Options::default());
    let streams = store.streams(DEFAULT_TENANT, DEFAULT_SCOPE).expect("there");
    let server = Running::over(store, Options::default()).await;
    for n in 0..10 {
        server
            .commit(&json!({"aggregate": {"name": "order", "id": "o-1"}, "events": [{"type": "t", "data": {"n": n}}]}))
            .await;
    }
    let all = Verdicts::new("s", 0..9)
        .include(Included::new(0))
        .include(Included::of(2, "a"))
        .include(Included::of(4, "b/1"))
        .include(Included::new(6))
        .include(Included::of(8, "a"));
    streams.append(all).await.expect("they are appended");
    streams.append(Verdicts::new("empty", 0..3)).await.expect("they are appended");
    server
}

fn of(answer: &Value, list: &str, field: &str) -> Vec<Value> {
    answer[list].as_array().expect("a list").iter().map(|entry| entry[field].clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_read_by_position_and_partition() {
    let server = serving().await;
    for (query, positions, next) in [
        ("", &[0, 1, 2, 3, 4][..], 5),
        ("?from=3", &[3, 4], 5),
        ("?from=1&to=3", &[1, 2], 3),
        ("?limit=2", &[0, 1], 2),
        ("?partition=a", &[1, 4], 5),
        ("?partition=a&limit=1", &[1], 2),
        ("?partition=b%2F1&from=1", &[2], 5),
        ("?without_partition", &[0, 3], 5),
        ("?without_partition=false&from=4", &[4], 5),
        ("?partition=never", &[], 5),
        ("?from=77", &[], 5),
    ] {
        let events = server.get(&format!("/v1/streams/s{query}")).await.json();
        assert_eq!(of(&events, "events", "position"), positions, "{query}");
        assert_eq!((&events["next"], &events["head"]), (&json!(next), &json!(5)), "{query}");
        let entries = server.get(&format!("/v1/streams/s/entries{query}")).await.json();
        assert_eq!(of(&entries, "entries", "position"), positions, "{query}");
        let numbers: Vec<_> = positions.iter().map(|position| position * 2).collect();
        assert_eq!(of(&entries, "entries", "sequence_number"), numbers, "{query}");
        assert_eq!((&entries["next"], &entries["head"]), (&events["next"], &events["head"]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_comes_with_its_event_as_the_log_has_it() {
    let server = serving().await;
    let page = server.get("/v1/streams/s?from=2&limit=1").await.json();
    let event = server.get("/v1/log/4").await.json();
    assert_eq!(page["events"], json!([{"position": 2, "partition": "b/1", "event": event}]));
    let page = server.get("/v1/streams/s?limit=1").await.json();
    assert_eq!(page["events"][0]["partition"], Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_are_listed_with_how_they_are() {
    let server = serving().await;
    let s = json!({"name": "s", "head": 5, "progress": 9, "incarnation_start": 0});
    let empty = json!({"name": "empty", "head": 0, "progress": 3, "incarnation_start": 0});
    let list = |query: &'static str| server.get(query);
    assert_eq!(list("/v1/streams").await.json(), json!({"streams": [empty, s], "next": "s"}));
    assert_eq!(list("/v1/streams?limit=1").await.json(), json!({"streams": [empty], "next": "empty"}));
    assert_eq!(list("/v1/streams?after=empty").await.json(), json!({"streams": [s], "next": "s"}));
    assert_eq!(list("/v1/streams?after=s").await.json(), json!({"streams": [], "next": null}));
    assert_eq!(list("/v1/streams/s/state").await.json(), s);
    let unknown = json!({"name": "never", "head": 0, "progress": 0, "incarnation_start": 0});
    assert_eq!(list("/v1/streams/never/state").await.json(), unknown);
    assert_eq!(list("/v1/streams/never").await.json(), json!({"events": [], "next": 0, "head": 0}));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_meant_is_refused_with_its_path() {
    let server = serving().await;
    for (path, code, at) in [
        ("/v1/streams/s?limit=0", Code::InvalidQuery, "limit"),
        ("/v1/streams/s?limit=1001", Code::InvalidQuery, "limit"),
        ("/v1/streams/s?from=-1", Code::InvalidQuery, "from"),
        ("/v1/streams/s?from=3&to=2", Code::InvalidRange, "from"),
        ("/v1/streams/s?partition=", Code::InvalidId, "partition"),
        ("/v1/streams/s?partition=a&without_partition", Code::InvalidQuery, "partition"),
        ("/v1/streams/s?color=1", Code::InvalidQuery, "color"),
        ("/v1/streams/a%20b", Code::InvalidName, "stream"),
        ("/v1/streams/a%20b/entries", Code::InvalidName, "stream"),
        ("/v1/streams/a%20b/state", Code::InvalidName, "stream"),
        ("/v1/streams/s/state?from=1", Code::InvalidQuery, "from"),
        ("/v1/streams/a%20b/positions/1", Code::InvalidName, "stream"),
        ("/v1/streams?limit=0", Code::InvalidQuery, "limit"),
    ] {
        let problem = server.get(path).await.problem(code);
        assert_eq!(problem["path"], at, "{path}");
    }
    server.get("/v1/streams?scope=nowhere").await.problem(Code::UnknownScope);
}

async fn append(server: &Running, path: &str, body: impl Into<Vec<u8>>) -> Answer {
    server.send(server.request(Method::POST, path).body(body.into())).await
}

#[tokio::test(flavor = "multi_thread")]
async fn verdicts_are_appended_once() {
    let server = serving().await;
    let run =
        json!({"from": 0, "to": 4, "included": [{"sequence_number": 1}, {"sequence_number": 3, "partition": "p/ž"}]});
    let answer = append(&server, "/v1/streams/new/verdicts", run.to_string()).await;
    assert_eq!(answer.status, 201);
    assert_eq!(answer.json(), json!({"positions": {"from": 0, "to": 2}, "duplicate": false}));
    let again = append(&server, "/v1/streams/new/verdicts", run.to_string()).await;
    assert_eq!(again.status, 200);
    assert_eq!(again.json(), json!({"positions": {"from": 0, "to": 2}, "duplicate": true}));
    let entries = server.get("/v1/streams/new/entries").await.json();
    let expected = json!([{"position": 0, "sequence_number": 1, "partition": null},
        {"position": 1, "sequence_number": 3, "partition": "p/ž"}]);
    assert_eq!(entries["entries"], expected);
    let none = json!({"from": 4, "to": 9, "included": []}).to_string();
    let answer = append(&server, "/v1/streams/new/verdicts", none).await;
    assert_eq!((answer.status.as_u16(), answer.json()["positions"].clone()), (201, json!({"from": 2, "to": 2})));
    assert_eq!(server.get("/v1/streams/new/state").await.json()["progress"], 9);
}

#[tokio::test(flavor = "multi_thread")]
async fn verdicts_that_do_not_fit_are_refused_with_what_helps() {
    let server = serving().await;
    let refused = async |from: u64, to: u64, included: Value, code: Code| {
        let body = json!({"from": from, "to": to, "included": included});
        append(&server, "/v1/streams/s/verdicts", body.to_string()).await.problem(code)
    };
    let moved = refused(7, 10, json!([]), Code::StreamMoved).await;
    assert_eq!(moved["progress"], 9);
    let differ = refused(0, 3, json!([{"sequence_number": 0}]), Code::VerdictsDiffer).await;
    assert_eq!(differ["sequence_number"], 2);
    let beyond = refused(9, 11, json!([]), Code::UnknownEvent).await;
    assert_eq!(beyond["head"], 10);
    let order = refused(9, 10, json!([{"sequence_number": 9}, {"sequence_number": 9}]), Code::InvalidVerdicts).await;
    assert_eq!(order["path"], "included[1].sequence_number");
    let range = refused(9, 9, json!([]), Code::InvalidRange).await;
    assert_eq!(range["path"], "to");
    for (body, code, path) in [
        ("{", Code::NotJson, Value::Null),
        (r#"{"from":0,"to":1}"#, Code::InvalidBody, json!("")),
        (r#"{"from":-1,"to":1,"included":[]}"#, Code::InvalidBody, json!("from")),
        (r#"{"from":0,"to":9223372036854775808,"included":[]}"#, Code::InvalidInteger, json!("to")),
        (r#"{"from":0,"to":1,"included":[{"n":0}]}"#, Code::InvalidBody, json!("included[0].n")),
        (r#"{"from":0,"to":1,"included":[],"stream":"s"}"#, Code::InvalidBody, json!("stream")),
    ] {
        let problem = append(&server, "/v1/streams/s/verdicts", body).await.problem(code);
        assert_eq!(problem["path"], path, "{body}");
    }
    let good = json!({"from": 9, "to": 10, "included": []}).to_string();
    append(&server, "/v1/streams/a%20b/verdicts", good.clone()).await.problem(Code::InvalidName);
    append(&server, "/v1/streams/s/verdicts?scope=nowhere", good.clone()).await.problem(Code::UnknownScope);
    append(&server, "/v1/streams/s/verdicts?from=1", good.clone()).await.problem(Code::InvalidQuery);
    assert_eq!(server.get("/v1/streams/s/state").await.json()["progress"], 9);
    assert_eq!(append(&server, "/v1/streams/s/verdicts", good).await.status, 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_for_more_is_answered_when_there_is_more() {
    let mut server = serving().await;
    let head = |answer: Answer| answer.json()["head"].clone();
    assert_eq!(head(server.get("/v1/streams/s/state?past=4").await), 5);
    assert_eq!(head(server.get("/v1/streams/s/state?past=5&timeout_ms=1").await), 5);
    let body = json!({"from": 9, "to": 10, "included": [{"sequence_number": 9}]}).to_string();
    let waiting = server.get("/v1/streams/s/state?past=5&timeout_ms=50000");
    let (waited, appended) = tokio::join!(waiting, append(&server, "/v1/streams/s/verdicts", body));
    assert_eq!((head(waited), appended.status.as_u16()), (json!(6), 201));
    for query in ["timeout_ms=5", "past=1&timeout_ms=50001", "past=x"] {
        server.get(&format!("/v1/streams/s/state?{query}")).await.problem(Code::InvalidQuery);
    }
    let waiting = server.request(Method::GET, "/v1/streams/s/state?past=6&timeout_ms=50000").send();
    let waiting = tokio::spawn(waiting);
    // The question is there once the server counts it beside the one that asks for the count.
    while !server.get("/metrics").await.text().contains("annals_http_requests_in_flight 2") {
        tokio::task::yield_now().await;
    }
    server.begin_stop();
    let answer = waiting.await.expect("it ends well").expect("an answer");
    Answer::of(answer).await.problem(Code::Closing);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_position_of_a_sequence_number_is_told() {
    let server = serving().await;
    for (number, position) in [("0", 0), ("1", 1), ("8", 4), ("9", 5), ("18446744073709551615", 5)] {
        let answer = server.get(&format!("/v1/streams/s/positions/{number}")).await.json();
        assert_eq!(answer, json!({ "position": position }));
    }
    server.get("/v1/streams/s/positions/x").await.problem(Code::InvalidQuery);
}
