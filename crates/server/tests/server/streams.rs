//! `GET /v1/streams/…`.

use std::sync::Arc;

use annals_core::{Code, DEFAULT_SCOPE, DEFAULT_TENANT, Included, Store, Verdicts};
use annals_embedded::disk::MemoryDisk;
use annals_server::Options;
use serde_json::{Value, json};

use crate::running::{Running, store_on};

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
        ("/v1/streams?limit=0", Code::InvalidQuery, "limit"),
    ] {
        let problem = server.get(path).await.problem(code);
        assert_eq!(problem["path"], at, "{path}");
    }
    server.get("/v1/streams?scope=nowhere").await.problem(Code::UnknownScope);
}
