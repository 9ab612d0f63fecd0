//! Queries that take long: they have their own threads, an end, and nobody else waits for them.

use std::time::Duration;

use annals_core::bson::rawdoc;
use annals_core::{Code, Collection, RecordChange};
use annals_server::Options;
use annals_system::Instant;
use reqwest::Method;
use serde_json::{Value, json};

use crate::running::{Running, opened, soon};
use crate::tapped::Tap;

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
const GROUP: &str = "/v1/records/collections/things/group";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_that_takes_too_long_ends() {
    let mut options = open();
    options.query_time_max = Duration::from_millis(300);
    let server = with_records(options).await;
    for path in [FIND, COUNT, GROUP, "/v1/records/collections/things/explain"] {
        let asked = server.request(Method::POST, path).body(greedy().to_string());
        server.send(asked).await.problem(Code::QueryTookTooLong);
    }
    let short = server.request(Method::POST, FIND).body(json!({"limit": 1}).to_string());
    assert_eq!(server.send(short).await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statistics_that_take_too_long_end() {
    let mut options = open();
    options.query_time_max = Duration::from_millis(100);
    let (store, tap) = Tap::store();
    let server = Running::over(store, options).await;
    tap.stats_held.send_replace(true);
    server.get("/v1/stats").await.problem(Code::QueryTookTooLong);
    tap.stats_held.send_replace(false);
    assert_eq!(server.get("/v1/stats").await.status, 200);
}

/// The whole log is read for it: there is no table of keys.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_of_keys_that_takes_too_long_ends() {
    let mut options = Options::default();
    // What is not finished in its first turn has no time left.
    options.query_time_max = Duration::ZERO;
    let server = Running::start_with(options).await;
    server.commit_batches(8).await;
    server.get("/v1/keys/user").await.problem(Code::QueryTookTooLong);
    assert_eq!(server.post(opened().to_string()).await.status, 201);
}

/// Commits of a measurement.
const COMMITS: usize = 200;
/// How many times longer the slowest commits may take beside greedy clients.
const LONGER: u32 = 5;
/// Measurements before a machine that is busy with other things is no excuse any more.
const ROUNDS: usize = 6;

/// The time that 99 of 100 commits take at most, one after the other.
async fn p99(server: &Running) -> Duration {
    let mut took = Vec::new();
    for _ in 0..COMMITS {
        let begun = Instant::now();
        let answer = tokio::time::timeout(Duration::from_secs(5), server.post(opened().to_string())).await;
        assert_eq!(answer.expect("a commit is answered at once").status, 201);
        took.push(begun.elapsed());
    }
    took.sort_unstable();
    took[COMMITS * 99 / 100 - 1]
}

async fn until_in_flight(server: &Running, number: usize) {
    let line = format!("annals_http_requests_in_flight {number}");
    let reached = async { while !server.get("/metrics").await.text().lines().any(|one| one == line) {} };
    soon(&line, reached).await;
}

/// Other programs of this machine delay a round, and none makes it faster: one that is fast enough shows that nothing of ours waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_slowest_commits_take_at_most_five_times_as_long_beside_greedy_clients() {
    const GREEDY: usize = 32;
    let mut options = open();
    options.query_time_max = Duration::from_secs(600);
    let server = with_records(options).await;
    let mut measured = Vec::new();
    for _ in 0..ROUNDS {
        let idle = p99(&server).await;
        let ask = || {
            let asked = server.request(Method::POST, COUNT).body(greedy().to_string());
            tokio::spawn(async move { asked.send().await.map(|answer| answer.status()) })
        };
        let greedy: Vec<_> = std::iter::repeat_with(ask).take(GREEDY).collect();
        // With the one that asks.
        until_in_flight(&server, GREEDY + 1).await;
        let beside = p99(&server).await;
        assert!(greedy.iter().all(|asked| !asked.is_finished()), "they are at work all the time");
        greedy.iter().for_each(tokio::task::JoinHandle::abort);
        // Their queries end with them.
        until_in_flight(&server, 1).await;
        measured.push((idle, beside));
        if beside <= idle * LONGER {
            return;
        }
    }
    panic!("p99 without and beside {GREEDY} greedy clients: {measured:?}");
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
