//! kill -9 under projections: every event is folded exactly once, also where a changed definition was being built.

use std::collections::BTreeMap;

use annals::projections::{ProjectionAct, ProjectionDefinition, Projections};
use annals::{Client, Data, EventLog, NewCommit, NewEvent, RecordQuery};
use fastrand::Rng;

use crate::process::Server;
use crate::{LIMIT, ShownOnFailure, number};

/// How often the server is killed.
const CYCLES: usize = 10;
const KEYS: u64 = 5;

const COUNTS: &str =
    r#"{"on": {"counted": {"increment": {"count": 1, "sum": "$data.n"}, "push": {"all": "$data.n"}}}}"#;
const OTHER: &str = r#"{"on": {"counted": {"increment": {"count": 1, "sum": "$data.n"}, "push": {"all": "$data.n"}, "set": {"other": true}}}}"#;

#[test]
fn what_a_projection_folds_is_folded_exactly_once_over_kill_9() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let seed = number("ANNALS_KILL_SEED").unwrap_or_else(|| fastrand::u64(..));
        let _seed = ShownOnFailure(seed);
        tokio::time::timeout(LIMIT, run(Rng::with_seed(seed))).await.expect("the run ends in time");
    });
}

async fn run(mut rng: Rng) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut server = start(&folder).await;
    define(&server.url, COUNTS).await;
    let mut next = 0;
    for cycle in 0..CYCLES {
        let client = client(&server.url);
        for _ in 0..rng.u64(1..60) {
            commit(&client, next).await;
            next += 1;
        }
        match cycle % 3 {
            0 => {}
            1 => define(&server.url, if cycle % 2 == 0 { COUNTS } else { OTHER }).await,
            // It may be building already.
            _ => _ = client.projections().act("counts", ProjectionAct::Rebuild, "a test".into()).await,
        }
        tokio::task::spawn_blocking(|| server.kill()).await.expect("it is killed");
        server = start(&folder).await;
        check(&server.url, next, rng.bool()).await;
    }
    check(&server.url, next, true).await;
    let exit = tokio::task::spawn_blocking(|| server.terminate()).await.expect("it is stopped");
    assert_eq!(exit, Some(0));
}

async fn start(folder: &tempfile::TempDir) -> Server {
    let folder = folder.path().to_owned();
    tokio::task::spawn_blocking(move || Server::start(&folder)).await.expect("the server starts")
}

fn client(url: &str) -> Client {
    Client::new(url, annals::DEFAULT_TENANT, annals::DEFAULT_SCOPE).expect("an address")
}

async fn define(url: &str, definition: &str) {
    let definition = ProjectionDefinition::read("counts", definition.as_bytes()).expect("a definition");
    client(url).projections().put(definition).await.expect("defined");
}

async fn commit(client: &Client, n: u64) {
    let data = Data::from_value(&serde_json::json!({ "n": n })).expect("a document");
    let commit = NewCommit::new("counter", format!("c-{}", n % KEYS)).event(NewEvent::new("counted", data));
    client.commit(commit).await.expect("committed");
}

/// Waits until everything is folded, with the next build or without, and compares the records with the events.
async fn check(url: &str, events: u64, and_built: bool) {
    let projections = client(url).projections();
    loop {
        let status = projections.get("counts").await.expect("defined");
        if status.position == events && (!and_built || status.building.is_none()) {
            break;
        }
        tokio::task::yield_now().await;
    }
    let page = projections.find("counts", RecordQuery::new("")).await.expect("found");
    let mut due: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for n in 0..events {
        due.entry(format!("c-{}", n % KEYS)).or_default().push(n.cast_signed());
    }
    let number = |record: &annals::Record, field: &str| record.document.get_i64(field).unwrap_or(-1);
    for record in &page.records {
        let key = record.document.get_str("_id").expect("a key");
        let due = due.remove(key).expect("known");
        let all: Vec<i64> =
            record.document.get_array("all").expect("there").into_iter().flatten().filter_map(|n| n.as_i64()).collect();
        assert_eq!(all, due, "{key}");
        assert_eq!((number(record, "count"), number(record, "sum")), (due.len() as i64, due.iter().sum()), "{key}");
    }
    assert!(due.is_empty(), "{due:?}");
}
