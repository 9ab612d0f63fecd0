//! kill -9 under sagas: every command is committed once, and every saga ends.

use std::collections::BTreeMap;

use annals::sagas::{SagaDefinition, SagaQuery, SagaState, Sagas};
use annals::{Client, Data, EventLog, LogQuery, NewCommit, NewEvent};
use fastrand::Rng;

use crate::process::Server;
use crate::{LIMIT, ShownOnFailure, number};

/// How often the server is killed.
const CYCLES: usize = 8;

const DEFINITION: &str = r#"{"start": {"on": ["placed"]}, "steps": [
    {"name": "reserve", "publish": {"type": "reserve"}, "compensation": {"name": "release", "publish": {"type": "release"}}},
    {"name": "pay", "publish": {"type": "pay"}, "await": {"on": ["paid"], "fail_on": ["declined"]},
     "compensation": {"name": "refund", "publish": {"type": "refund"}}},
    {"name": "ship", "publish": {"type": "ship"}}
]}"#;

#[test]
fn commands_of_sagas_are_committed_once_over_kill_9() {
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
    let definition = SagaDefinition::read("order", DEFINITION.as_bytes()).expect("a definition");
    client(&server.url).sagas().define(definition).await.expect("defined");
    let mut orders = Vec::new();
    for _ in 0..CYCLES {
        let client = client(&server.url);
        for _ in 0..rng.u64(1..20) {
            let (order, declined) = (format!("o-{}", orders.len()), rng.bool());
            commit(&client, &order, "placed").await;
            commit(&client, &order, if declined { "declined" } else { "paid" }).await;
            orders.push(declined);
        }
        tokio::task::spawn_blocking(|| server.kill()).await.expect("it is killed");
        server = start(&folder).await;
    }
    check(&client(&server.url), &orders).await;
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

async fn commit(client: &Client, order: &str, event_type: &str) {
    let event = NewEvent::new(event_type, Data::empty());
    client.commit(NewCommit::new("order", order).event(event)).await.expect("committed");
}

/// Waits until every saga has ended and told so, and compares what was committed with what is due.
async fn check(client: &Client, orders: &[bool]) {
    let sagas = client.sagas();
    loop {
        let statistics = sagas.statistics(None).await.expect("counted");
        let ended: u64 = ["completed", "failed"].iter().filter_map(|state| statistics.by_state.get(*state)).sum();
        let told = [
            ("saga_completed", orders.iter().filter(|declined| !**declined).count()),
            ("saga_failed", orders.iter().filter(|declined| **declined).count()),
        ];
        let mut is_told = true;
        for (event_type, due) in told {
            is_told &= events(client, Some(event_type)).await.len() == due;
        }
        if ended == orders.len() as u64 && is_told {
            break;
        }
        tokio::task::yield_now().await;
    }
    let mut published: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (order, event_type) in events(client, None).await {
        published.entry(order).or_default().push(event_type);
    }
    for (n, declined) in orders.iter().enumerate() {
        let due: &[&str] = if *declined {
            &[
                "saga_started",
                "reserve",
                "pay",
                "saga_compensating",
                "refund",
                "saga_compensating",
                "release",
                "saga_compensated",
                "saga_failed",
            ]
        } else {
            &["saga_started", "reserve", "pay", "ship", "saga_completed"]
        };
        assert_eq!(published[&format!("o-{n}")], due, "o-{n}");
    }
    let query = SagaQuery { state: Some(SagaState::Failed), limit: 1_000, ..SagaQuery::default() };
    let failed = sagas.list(query).await.expect("listed").items;
    assert!(failed.iter().all(|saga| saga.cause.as_deref() == Some("declined came") && saga.retry_count == 0));
}

/// The events of sagas, each with its correlation.
async fn events(client: &Client, event_type: Option<&str>) -> Vec<(String, String)> {
    let mut query = LogQuery { limit: 1_000, ..LogQuery::default() };
    query.filter.types = event_type.map(Into::into).into_iter().collect();
    let mut found = Vec::new();
    loop {
        let page = client.read(query.clone()).await.expect("read");
        for event in &page.events {
            if let Some(order) = &event.commit.correlation_id {
                found.push((order.to_string(), event.event_type.to_string()));
            }
        }
        if page.events.is_empty() {
            return found;
        }
        query.from = Some(page.next);
    }
}
