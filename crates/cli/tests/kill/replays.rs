//! kill -9 of the server in the middle of a replay into a file: every event is in the file once, in order.

use std::path::{Path, PathBuf};

use annals::browse::ReplayFilter;
use annals::replays::{ReplayAct, ReplayBody, ReplayState, ReplayTarget, Replays};
use annals::{Client, Data, EventLog, NewCommit, NewEvent, Reached};
use fastrand::Rng;

use crate::process::{Server, annals};
use crate::{LIMIT, ShownOnFailure, number};

/// How often the server is killed.
const CYCLES: usize = 6;
const EVENTS: u64 = 300;

#[test]
fn a_replay_continues_with_the_next_event_over_kill_9() {
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
    let sent = client(&server.url);
    for n in 0..EVENTS {
        let data = Data::from_value(&serde_json::json!({ "n": n })).expect("a document");
        let commit = NewCommit::new("counter", format!("c-{}", n % 9)).event(NewEvent::new("counted", data));
        sent.commit(commit.wait_until(Reached::Logged)).await.expect("committed");
    }
    let filter = ReplayFilter { event_types: Some(vec!["counted".to_owned()]), ..ReplayFilter::default() };
    let target = ReplayTarget::File { name: "events.jsonl".to_owned() };
    let body = ReplayBody { batch_size: 3, rate: Some(400.0), ..ReplayBody::new(filter, target) };
    let id = sent.replays().create(body).await.expect("created").session_id;
    sent.replays().act(&id, ReplayAct::Start, "a test".into()).await.expect("started");
    for cycle in 1..=CYCLES as u64 {
        let replays = client(&server.url).replays();
        let mut seen = replays.get(&id).await.expect("known");
        let least = (cycle * EVENTS / (CYCLES as u64 + 2)).saturating_sub(rng.u64(0..20));
        while seen.replayed < least && !seen.status.is_terminal() {
            seen = replays.get(&id).await.expect("known");
        }
        tokio::task::spawn_blocking(|| server.kill()).await.expect("it is killed");
        server = start(&folder).await;
        let after = client(&server.url).replays().get(&id).await.expect("known");
        assert!(after.replayed >= seen.replayed, "{} after {}", after.replayed, seen.replayed);
    }
    let replays = client(&server.url).replays();
    let mut status = replays.get(&id).await.expect("known");
    while !status.status.is_terminal() {
        status = replays.changed(&id, Some(&status)).await.expect("known");
    }
    assert_eq!((status.status, status.replayed, status.failed), (ReplayState::Completed, EVENTS, 0));
    let file = exports(folder.path()).join(annals::DEFAULT_TENANT).join("events.jsonl");
    let text = std::fs::read_to_string(file).expect("a file");
    let numbers: Vec<u64> = text
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON")["n"].as_u64().expect("a number"))
        .collect();
    assert_eq!(numbers, (0..EVENTS).collect::<Vec<_>>());
    let exit = tokio::task::spawn_blocking(|| server.terminate()).await.expect("it is stopped");
    assert_eq!(exit, Some(0));
}

fn exports(folder: &Path) -> PathBuf {
    folder.join("exports")
}

async fn start(folder: &tempfile::TempDir) -> Server {
    let folder = folder.path().to_owned();
    let started = tokio::task::spawn_blocking(move || {
        let mut command = annals(&folder);
        command.args(["serve", "--dev", "--listen", "127.0.0.1:0"]).env("ANNALS__SERVER__EXPORTS", exports(&folder));
        Server::of(command)
    });
    started.await.expect("the server starts")
}

fn client(url: &str) -> Client {
    Client::new(url, annals::DEFAULT_TENANT, annals::DEFAULT_SCOPE).expect("an address")
}
