//! Two servers with a network between them: either is killed, and the network is cut and slow, at random moments. What the consumer has
//! received is always the beginning of what the producer offers, each event once.

use annals::filters::{FilterDefinition, Filters};
use annals::horizon::{Consent, Horizon, IntakeState, SubscriptionDefinition};
use annals::{Client, Data, EventLog, LogQuery, NewCommit, NewEvent, limits};
use fastrand::Rng;

use crate::process::{Server, annals};
use crate::proxy::{Network, Proxy};
use crate::{LIMIT, ShownOnFailure, number};

/// How often something fails.
const CYCLES: usize = 12;
const STREAM: &str = "public-orders";
const SCOPE: &str = "inbox";

#[test]
fn each_event_crosses_the_horizon_once_whichever_server_is_killed_and_whatever_the_network_does() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let seed = number("ANNALS_KILL_SEED").unwrap_or_else(|| fastrand::u64(..));
        let _seed = ShownOnFailure(seed);
        tokio::time::timeout(LIMIT, run(Rng::with_seed(seed))).await.expect("the run ends in time");
    });
}

async fn run(mut rng: Rng) {
    let folders = [(); 2].map(|()| tempfile::tempdir().expect("a temporary folder"));
    let start = async |which: usize| start(folders[which].path(), ["orders", "shipping"][which]).await;
    let mut producer = start(0).await;
    let mut consumer = start(1).await;
    let proxy = Proxy::to(port(&producer.url)).await;
    define(&producer.url, &consumer.url, &proxy).await;
    let mut next = 0;
    for cycle in 0..CYCLES {
        let began = received(&consumer.url).await;
        next = produce(&producer.url, next, rng.u64(20..200)).await;
        let enough = began + rng.u64(0..=(next - began));
        if cycle % 4 == 3 {
            proxy.set(Network::Slow);
        }
        while received(&consumer.url).await < enough {
            tokio::task::yield_now().await;
        }
        match cycle % 4 {
            0 => {
                kill(producer).await;
                producer = start(0).await;
                proxy.lead_to(port(&producer.url));
            }
            1 => {
                kill(consumer).await;
                consumer = start(1).await;
            }
            2 => {
                proxy.set(Network::Cut);
                next = produce(&producer.url, next, 20).await;
                kill(consumer).await;
                consumer = start(1).await;
            }
            _ => {}
        }
        proxy.set(Network::Whole);
        received(&consumer.url).await;
    }
    while received(&consumer.url).await < next {
        tokio::task::yield_now().await;
    }
    let status = client(&consumer.url, SCOPE).horizon().subscription("s").await.expect("defined");
    assert_eq!((status.position, status.state), (next, IntakeState::Running), "{status:?}");
    for server in [producer, consumer] {
        let exit = tokio::task::spawn_blocking(|| server.terminate()).await.expect("it is stopped");
        assert_eq!(exit, Some(0));
    }
}

async fn start(folder: &std::path::Path, microservice: &'static str) -> Server {
    let folder = folder.to_owned();
    let start = move || {
        let mut command = annals(&folder);
        command.args(["serve", "--dev", "--listen", "127.0.0.1:0", "--microservice", microservice]);
        command.env("ANNALS__TENANTS__SCOPES", SCOPE);
        Server::of(command)
    };
    tokio::task::spawn_blocking(start).await.expect("the server starts")
}

async fn kill(server: Server) {
    tokio::task::spawn_blocking(|| server.kill()).await.expect("it is killed");
}

fn port(url: &str) -> u16 {
    url.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).expect("a port")
}

fn client(url: &str, scope: &str) -> Client {
    Client::new(url, annals::DEFAULT_TENANT, scope).expect("an address")
}

async fn define(producer: &str, consumer: &str, proxy: &Proxy) {
    let offers = client(producer, annals::DEFAULT_SCOPE);
    offers.filters().put(FilterDefinition::new(STREAM).public()).await.expect("defined");
    let consent = Consent::new("shipping", STREAM).to("shipping", annals::DEFAULT_TENANT);
    offers.horizon().put_consent(consent).await.expect("given");
    let url = format!("http://{}", proxy.address);
    let subscription = SubscriptionDefinition::new("s", url, STREAM, SCOPE);
    client(consumer, SCOPE).horizon().put_subscription(subscription).await.expect("defined");
}

/// Commits so many events, each with its number.
async fn produce(url: &str, next: u64, count: u64) -> u64 {
    let client = client(url, annals::DEFAULT_SCOPE);
    for n in next..next + count {
        let data = Data::from_value(&serde_json::json!({ "n": n, "note": "x".repeat(200) })).expect("a document");
        let event = NewEvent { public: true, ..NewEvent::new("placed", data) };
        client.commit(NewCommit::new("order", format!("o-{}", n % 7)).event(event)).await.expect("committed");
    }
    next + count
}

/// Checks that the consumer has the beginning of what was offered, and returns how much.
async fn received(url: &str) -> u64 {
    let log = client(url, SCOPE);
    let mut next = 0;
    loop {
        let query = LogQuery { from: Some(next), limit: limits::PAGE_MAX, ..LogQuery::default() };
        let page = log.read(query).await.expect("reads");
        for event in &page.events {
            let from = event.commit.received.as_ref().expect("received");
            let n = event.data.as_raw().get_i64("n").expect("a number").cast_unsigned();
            assert_eq!((event.sequence_number, from.sequence_number, from.position, n), (next, next, next, next));
            next += 1;
        }
        if page.events.is_empty() {
            return next;
        }
    }
}
