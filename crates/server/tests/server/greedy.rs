//! Queries that take long: they have their own threads, an end, and nobody else waits for them.

use std::time::Duration;

use annals_core::bson::rawdoc;
use annals_core::{Code, Collection, RecordChange};
use annals_server::Options;
use reqwest::Method;
use serde_json::{Value, json};

use crate::running::{Running, opened, soon};

/// A server with records whose texts take long to search.
async fn with_records(options: Options) -> Running {
    let server = Running::start_with(options).await;
    let records = server.store.records("default").expect("the tenant");
    records.declare(Collection::new("things")).await.expect("declared");
    let change = |id: i32| RecordChange::insert("things", rawdoc! { "_id": id, "text": "y".repeat(2_000) });
    records.write((0..3_000).map(change).collect()).await.expect("written");
    server
}

/// Searches every text for hundreds of others, which takes minutes here.
fn greedy() -> Value {
    let contains = |n| json!({"field": "text", "operator": "CONTAINS", "value": format!("y{n}")});
    json!({"condition": {"operator": "OR", "children": (0..900).map(contains).collect::<Vec<_>>()}})
}

fn open() -> Options {
    let mut options = Options::default();
    options.query_guard = annals_core::QueryGuard::open();
    options
}

const FIND: &str = "/v1/records/collections/things/find";
const COUNT: &str = "/v1/records/collections/things/count";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_that_takes_too_long_ends() {
    let mut options = open();
    options.query_time_max = Duration::from_millis(300);
    let server = with_records(options).await;
    for path in [FIND, COUNT, "/v1/records/collections/things/explain"] {
        let asked = server.request(Method::POST, path).body(greedy().to_string());
        server.send(asked).await.problem(Code::QueryTookTooLong);
    }
    let short = server.request(Method::POST, FIND).body(json!({"limit": 1}).to_string());
    assert_eq!(server.send(short).await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_do_not_wait_for_greedy_clients() {
    let mut options = open();
    options.query_time_max = Duration::from_secs(600);
    let server = with_records(options).await;
    let greedy: Vec<_> = (0..32)
        .map(|_| {
            let asked = server.request(Method::POST, COUNT).body(greedy().to_string());
            tokio::spawn(async move { asked.send().await.map(|answer| answer.status()) })
        })
        .collect();
    for _ in 0..20 {
        let answer = tokio::time::timeout(Duration::from_secs(2), server.post(opened().to_string())).await;
        assert_eq!(answer.expect("a commit is answered at once").status, 201);
    }
    assert!(greedy.iter().all(|asked| !asked.is_finished()), "they are at work all the time");
    greedy.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_stops_in_time_although_queries_run() {
    let mut options = open();
    options.query_time_max = Duration::from_secs(600);
    options.stop_wait_max = Duration::from_millis(300);
    let mut server = with_records(options).await;
    let asked = server.request(Method::POST, COUNT).body(greedy().to_string());
    let asked = tokio::spawn(async move { asked.send().await.map(|answer| answer.status()) });
    while server.get("/metrics").await.text().lines().any(|line| line == "annals_http_requests_in_flight 1") {}
    server.begin_stop();
    tokio::time::timeout(Duration::from_secs(5), server.stopped()).await.expect("stopped in time");
    assert!(soon("the end of the query", asked).await.expect("no panic").is_err(), "it was cut");
}
