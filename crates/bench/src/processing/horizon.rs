//! Measures the event horizon between two servers, beside reading the same log over HTTP.
//!
//! Both servers are on this machine and its disk, each in a process of its own. One side is the time from the subscription until the last
//! event is in the consumer's scope: the producer reads, the consumer writes. The other side reads the producer's log page by page
//! through the same client.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use annals::filters::{FilterDefinition, Filters};
use annals::horizon::{Consent, Horizon, SubscriptionDefinition};
use annals::{Client, DEFAULT_SCOPE, DEFAULT_TENANT, Data, EventLog, LogQuery, NewCommit, NewEvent, limits};
use tokio::process::Command;

use crate::row::{self, Target};
use crate::served::Served;

const STREAM: &str = "public-orders";
const SCOPE: &str = "inbox";
/// Events in one commit while the log is filled.
const FILL: u64 = 100;

/// Measures `rounds` times, and prints the medians and their ratio.
pub async fn measure(program: &Path, events: u64, rounds: usize) -> Result<(), String> {
    let folder = tempfile::tempdir_in(".").map_err(text)?;
    let producer = serve(program, folder.path(), "producer").await?;
    let offers = client(&producer, DEFAULT_SCOPE)?;
    fill(&offers, events).await?;
    offers.filters().put(FilterDefinition::new(STREAM).public()).await.map_err(text)?;
    offers.horizon().put_consent(Consent::new("c", STREAM)).await.map_err(text)?;
    while offers.filters().get(&annals::filters::FilterName::new(STREAM)).await.map_err(text)?.entries < events {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (mut received, mut read) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let consumer = serve(program, folder.path(), &format!("consumer-{round}")).await?;
        let url = format!("http://{}", producer.address);
        let horizon = client(&consumer, SCOPE)?.horizon();
        let began = Instant::now();
        horizon.put_subscription(SubscriptionDefinition::new("s", url, STREAM, SCOPE)).await.map_err(text)?;
        loop {
            let status = horizon.subscription("s").await.map_err(text)?;
            if status.position >= events {
                break;
            }
            if let Some(reason) = status.last_reason {
                return Err(reason);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        received.push(events as f64 / began.elapsed().as_secs_f64());
        let began = Instant::now();
        let mut next = 0;
        while next < events {
            let query = LogQuery { from: Some(next), limit: limits::PAGE_MAX, ..LogQuery::default() };
            next = offers.read(query).await.map_err(text)?.next;
        }
        read.push(events as f64 / began.elapsed().as_secs_f64());
    }
    let (received, read) = (super::median(received), super::median(read));
    let row = "horizon between two servers ÷ reading the log over HTTP";
    row::ratio(row, "events/s", received, read, Target::AtLeast(0.3));
    Ok(())
}

async fn serve(program: &Path, folder: &Path, name: &str) -> Result<Served, String> {
    let store = format!("embedded:{}", folder.join(name).display());
    let serve = |address: std::net::SocketAddr| {
        let mut command = Command::new(program);
        command.args(["serve", "--dev", "--store", &store, "--listen", &address.to_string()]);
        command.env("ANNALS__LOG__LEVEL", "warn").env("ANNALS__TENANTS__SCOPES", SCOPE);
        command
    };
    Served::start(Path::new("."), serve).await
}

fn client(server: &Served, scope: &str) -> Result<Client, String> {
    Client::new(&format!("http://{}", server.address), DEFAULT_TENANT, scope).map_err(text)
}

async fn fill(log: &Client, events: u64) -> Result<(), String> {
    let data = serde_json::json!({ "customer": "c-0000001", "total": 12.5, "note": "leave it at the door, please" });
    let data = Data::from_value(&data)?;
    let log = Arc::new(log.clone());
    for first in (0..events).step_by(FILL as usize) {
        let placed = NewEvent { public: true, ..NewEvent::new("placed", data.clone()) };
        let count = FILL.min(events - first) as usize;
        let commit = NewCommit { events: vec![placed; count], ..NewCommit::new("order", format!("o-{first}")) };
        log.commit(commit).await.map_err(text)?;
    }
    Ok(())
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
