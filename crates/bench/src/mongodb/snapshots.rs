//! Measures snapshots on both backends: loading an aggregate of many commits through its snapshot beside replaying it, and saves by 64
//! callers beside commits by 64 callers.

use std::sync::Arc;

use annals_core::{Aggregate, AggregateType, DEFAULT_SCOPE, DEFAULT_TENANT, Data, EventLog, Snapshot, Snapshots};
use annals_runtime::{Aggregates, SnapshotStrategy};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use super::backends::{Backed, Backend};
use super::figures::Figures;
use super::{Arguments, Place, sample, text, writes};
use crate::cell::{self, Cell, Commits};
use crate::workload::Row;

/// Callers that save or commit.
pub const CALLERS: usize = 64;
/// Aggregates that are loaded in turn.
const LOADED: u64 = 4;

/// The state that results from the events of the sample.
#[derive(Default, Serialize, Deserialize)]
struct Order {
    changes: i64,
    customer: String,
    total: f64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum OrderEvent {
    OrderChanged { n: i64, customer: String, total: f64, currency: String, note: String },
}

impl AggregateType for Order {
    const NAME: &'static str = sample::NAME;
    type Event = OrderEvent;

    fn evolve(&mut self, event: OrderEvent) {
        let OrderEvent::OrderChanged { n, customer, total, .. } = event;
        self.changes = n;
        self.customer = customer;
        self.total += total;
    }
}

/// Returns the name of the figure for loads through snapshots.
pub fn through_a_snapshot(backend: Backend) -> String {
    format!("{}: loads through a snapshot/s", backend.name())
}

/// Returns the name of the figure for loads of all commits.
pub fn by_replay(backend: Backend) -> String {
    format!("{}: loads by replay/s", backend.name())
}

/// Returns the name of the figure for saves.
pub fn saves(backend: Backend) -> String {
    format!("{}: snapshot saves/s, {CALLERS} callers", backend.name())
}

/// Returns the name of the figure for commits.
pub fn commits(backend: Backend) -> String {
    format!("{}: commits beside them/s, {CALLERS} callers", backend.name())
}

pub async fn measure(place: &Place, round: usize, arguments: &Arguments, figures: &mut Figures) -> Result<(), String> {
    for backend in Backend::in_turn(round) {
        let backed = backend.open(place).await?;
        loads(&backed, backend, arguments, figures).await?;
        backed.close(place).await?;
        for turn in 0..2 {
            let backed = backend.open(place).await?;
            match (round + turn) % 2 {
                0 => save(&backed, backend, arguments, figures).await?,
                _ => commit(&backed, backend, arguments, figures).await?,
            }
            backed.close(place).await?;
        }
    }
    Ok(())
}

async fn loads(backed: &Backed, backend: Backend, arguments: &Arguments, figures: &mut Figures) -> Result<(), String> {
    let log = backed.store().log(DEFAULT_TENANT, DEFAULT_SCOPE).map_err(text)?;
    let snapshots = backed.store().snapshots(DEFAULT_TENANT).map_err(text)?;
    fill(&log, arguments.history).await?;
    let replayed = Aggregates::<Order>::new(log.clone());
    let latest = Aggregates::<Order>::new(log).snapshots(snapshots, SnapshotStrategy::Every);
    for number in 0..LOADED {
        latest.regenerate(id(number)).await.map_err(text)?;
    }
    let cell = Cell::new(arguments.seconds);
    for (name, aggregates) in [(through_a_snapshot(backend), latest), (by_replay(backend), replayed)] {
        let loads = Loads { aggregates, history: arguments.history, made: 0 };
        let measured = cell::run(&cell, vec![loads]).await?;
        figures.add(&name, measured.events_per_second(&Row { writers: 1, events: 1 }, &cell));
    }
    Ok(())
}

/// Fills the aggregates, each by a caller of its own, one commit after the other.
async fn fill(log: &Arc<dyn EventLog>, history: u64) -> Result<(), String> {
    let mut tasks = JoinSet::new();
    for number in 0..LOADED {
        let log = log.clone();
        tasks.spawn(async move {
            for version in 0..history {
                log.commit(sample::commit(&id(number), version, version)).await.map_err(text)?;
            }
            Ok::<_, String>(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.map_err(text)??;
    }
    Ok(())
}

fn id(number: u64) -> String {
    format!("loaded-{number}")
}

struct Loads {
    aggregates: Aggregates<Order>,
    history: u64,
    made: u64,
}

impl Commits for Loads {
    async fn commit(&mut self) -> Result<(), String> {
        self.made += 1;
        let loaded = self.aggregates.load(id(self.made % LOADED)).await.map_err(text)?;
        match loaded.info.version == self.history && loaded.state.changes as u64 + 1 == self.history {
            true => Ok(()),
            false => Err(format!("version {} was loaded instead of {}", loaded.info.version, self.history)),
        }
    }
}

async fn save(backed: &Backed, backend: Backend, arguments: &Arguments, figures: &mut Figures) -> Result<(), String> {
    let snapshots = backed.store().snapshots(DEFAULT_TENANT).map_err(text)?;
    snapshots.declare(sample::NAME, Vec::new()).await.map_err(text)?;
    let saves: Vec<_> =
        (0..CALLERS).map(|number| Saves { snapshots: snapshots.clone(), turns: sample::Turns::new(number) }).collect();
    rate(&self::saves(backend), saves, arguments, figures).await
}

/// A caller that saves the snapshot that follows each of the commits that the other side makes.
struct Saves {
    snapshots: Arc<dyn Snapshots>,
    turns: sample::Turns,
}

impl Commits for Saves {
    async fn commit(&mut self) -> Result<(), String> {
        let (aggregate, version) = self.turns.next();
        let snapshot = Snapshot::new(Aggregate::new(sample::NAME, aggregate.as_str()), version + 1, state(version));
        match self.snapshots.save(&snapshot).await.map_err(text)? {
            true => Ok(()),
            false => Err(format!("the snapshot of version {} was not saved", version + 1)),
        }
    }
}

/// Returns a state as large as an event.
fn state(n: u64) -> Data {
    sample::data(n)
}

async fn commit(backed: &Backed, backend: Backend, arguments: &Arguments, figures: &mut Figures) -> Result<(), String> {
    let log = backed.store().log(DEFAULT_TENANT, DEFAULT_SCOPE).map_err(text)?;
    let callers =
        (0..CALLERS).map(|number| writes::Caller::new(&log, number, annals_core::Reached::Committed)).collect();
    rate(&commits(backend), callers, arguments, figures).await
}

async fn rate<C: Commits>(
    name: &str,
    callers: Vec<C>,
    arguments: &Arguments,
    figures: &mut Figures,
) -> Result<(), String> {
    let cell = Cell::new(arguments.seconds);
    let measured = cell::run(&cell, callers).await?;
    figures.add(name, measured.events_per_second(&Row { writers: CALLERS, events: 1 }, &cell));
    Ok(())
}
