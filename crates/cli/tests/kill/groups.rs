//! kill -9 under consumers of two groups: what a group settled never comes again, keys stay in order, and nothing is left out.

use std::collections::BTreeMap;

use annals::groups::{GroupDefinition, Groups};
use annals::handlers::{PullBody, SettleBody, Settlement};
use annals::processing::ProcessingRetry;
use annals::{Client, Data, EventLog, GroupsClient, NewCommit, NewEvent};
use fastrand::Rng;

use crate::process::Server;
use crate::{LIMIT, ShownOnFailure, number};

/// How often the server is killed.
const CYCLES: usize = 5;
const EVENTS: u64 = 120;
const KEYS: u64 = 5;
const GROUPS: [&str; 2] = ["one", "two"];

/// What was settled of each key, by group, in order.
type Settled = BTreeMap<(String, String), Vec<u64>>;

#[test]
fn what_a_group_settled_survives_kill_9_in_order_and_nothing_is_left_out() {
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
    begin(&server.url).await;
    let mut settled = Settled::new();
    for _ in 0..CYCLES {
        for group in GROUPS {
            let count = rng.usize(1..12);
            consume(&client(&server.url).groups(), group, count, &mut settled).await;
        }
        // Deliveries that nobody settled are lost with the server, and come again.
        let pull = PullBody { max: 3, worker: "lost".to_owned(), ..PullBody::default() };
        client(&server.url).groups().pull(GROUPS[0], pull).await.expect("pulled");
        tokio::task::spawn_blocking(|| server.kill()).await.expect("it is killed");
        server = start(&folder).await;
    }
    for group in GROUPS {
        consume(&client(&server.url).groups(), group, usize::MAX, &mut settled).await;
    }
    for ((group, key), numbers) in &settled {
        let expected = (0..EVENTS).filter(|n| format!("order/o-{}", n % KEYS) == *key);
        assert_eq!(*numbers, expected.collect::<Vec<_>>(), "{key} of {group}");
    }
    assert_eq!(settled.len() as u64, KEYS * GROUPS.len() as u64);
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

/// Defines the groups, and commits event n to aggregate n modulo the number of keys.
async fn begin(url: &str) {
    let client = client(url);
    let retry = ProcessingRetry { first_ms: 1, max_ms: 5, ..ProcessingRetry::default() };
    for group in GROUPS {
        let definition = GroupDefinition { retry, in_flight: 4, ..GroupDefinition::new(group, ["placed", "paid"]) };
        client.groups().put(definition).await.expect("defined");
    }
    for n in 0..EVENTS {
        let commit = NewCommit::new("order", format!("o-{}", n % KEYS));
        let event_type = if n % 3 == 0 { "paid" } else { "placed" };
        client.commit(commit.event(NewEvent::new(event_type, Data::empty()))).await.expect("committed");
    }
}

/// Settles so many messages of a group, some only at the second attempt; or all of them.
async fn consume(groups: &GroupsClient, group: &str, count: usize, settled: &mut Settled) {
    let mut done = 0;
    while done < count && groups.get(group).await.expect("defined").processor.lag > 0 {
        let pull = PullBody { max: 4, wait_ms: 100, worker: "w".to_owned(), ..PullBody::default() };
        for delivery in groups.pull(group, pull).await.expect("pulled") {
            let fails = delivery.attempt == 1 && delivery.position % 7 == 0;
            let settlement = match fails {
                true => Settlement::failed(delivery.token, "not this time"),
                false => Settlement::done(delivery.token),
            };
            let results = groups.settle(group, SettleBody { results: vec![settlement] }).await.expect("settled");
            assert!(results[0].settled, "{results:?}");
            if !fails {
                let key = delivery.partition.expect("a key").to_string();
                settled.entry((group.to_owned(), key)).or_default().push(delivery.position);
                done += 1;
            }
        }
    }
}
