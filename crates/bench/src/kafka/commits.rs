//! Measures the cost of a registry and a relay for commits.

use std::sync::Arc;
use std::time::Instant;

use annals_core::relay::RelayTopics;
use annals_core::types::TypeDefinition;
use annals_core::{Broker, DEFAULT_SCOPE, DEFAULT_TENANT, EventLog, NewCommit, Store};
use annals_runtime::types::TypedStore;
use annals_runtime::{Host, HostOptions, RelayOptions};
use annals_system::SystemClock;

use super::{Arguments, broker, median, new_event, opened, settings, text};
use crate::row::{self, Target};

/// Commits in one round, and how many are in flight.
const COMMITS: (u64, u64) = (40_000, 64);

/// Measures commits per second of one event each, with a registered type and a relay, and without both.
pub async fn with_and_without(arguments: &Arguments) -> Result<(), String> {
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for round in 0..arguments.rounds {
        let (_folder, store) = opened()?;
        without.push(rate(&*store).await?);
        store.close().await;
        let (_folder, store) = opened()?;
        let store: Arc<dyn Store> = Arc::new(TypedStore::new(store, Arc::new(SystemClock)));
        let schema = serde_json::json!({
            "type": "object",
            "required": ["customer", "total"],
            "properties": { "customer": { "type": "string" }, "total": { "type": "integer", "minimum": 0 }, "note": { "type": "string" } },
        });
        let types = store.event_types(DEFAULT_TENANT).map_err(text)?;
        types.put(TypeDefinition::new("order_placed", schema)).await.map_err(text)?;
        let settings = settings(&format!("commits-{round}"));
        let host = Host::start(Arc::clone(&store), HostOptions::default());
        let options = RelayOptions { topics: RelayTopics::all(settings.clone()), ..RelayOptions::default() };
        host.relay(DEFAULT_TENANT, broker(arguments, &settings)? as Arc<dyn Broker>, options).map_err(text)?;
        with.push(rate(&*store).await?);
        host.drain().await;
        store.close().await;
    }
    let (with, without) = (median(with), median(without));
    let row = "kafka: commits of one event with relay and registry ÷ without";
    row::ratio(row, "per second", with, without, Target::AtLeast(0.85));
    Ok(())
}

async fn rate(store: &dyn Store) -> Result<f64, String> {
    let log: Arc<dyn EventLog> = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).map_err(text)?;
    let began = Instant::now();
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..COMMITS.1 {
        let log = Arc::clone(&log);
        writers.spawn(async move {
            for n in (writer..COMMITS.0).step_by(COMMITS.1 as usize) {
                let commit = NewCommit::new("order", format!("o-{n}")).event(new_event(n)?);
                log.commit(commit).await.map_err(text)?;
            }
            Ok::<_, String>(())
        });
    }
    while let Some(written) = writers.join_next().await {
        written.map_err(text)??;
    }
    Ok(COMMITS.0 as f64 / began.elapsed().as_secs_f64())
}
