//! Measures commits in a closed loop, and how long the log needs afterwards until it holds them all.

use std::sync::Arc;
use std::time::Instant;

use annals_core::{EventLog, Reached};

use super::figures::Figures;
use super::{Arguments, Opened, Place, bare, sample, text};
use crate::cell::{self, Cell, Commits, Measured};
use crate::workload::Row;

/// A caller that commits.
pub struct Caller {
    log: Arc<dyn EventLog>,
    turns: sample::Turns,
    until: Reached,
    made: u64,
}

impl Caller {
    /// Returns one of several callers, which waits until each of its commits has reached a stage.
    pub fn new(log: &Arc<dyn EventLog>, number: usize, until: Reached) -> Self {
        Self { log: log.clone(), turns: sample::Turns::new(number), until, made: 0 }
    }
}

impl Commits for Caller {
    async fn commit(&mut self) -> Result<(), String> {
        let (aggregate, version) = self.turns.next();
        self.made += 1;
        let commit = sample::commit(&aggregate, version, self.made).wait_until(self.until.clone());
        self.log.commit(commit).await.map(|_| ()).map_err(text)
    }
}

/// The system that writes.
enum Side {
    Bare,
    Ours(Reached),
}

const SIDES: [Side; 3] = [Side::Bare, Side::Ours(Reached::Committed), Side::Ours(Reached::Logged)];

/// Measures all sides for every number of callers, in an order that alternates with the round.
pub async fn measure(place: &Place, round: usize, arguments: &Arguments, figures: &mut Figures) -> Result<(), String> {
    for &callers in &arguments.callers {
        for turn in 0..SIDES.len() {
            match &SIDES[(round + turn) % SIDES.len()] {
                Side::Bare => bare(place, callers, arguments, figures).await?,
                Side::Ours(until) => ours(place, callers, until, arguments, figures).await?,
            }
        }
    }
    Ok(())
}

async fn bare(place: &Place, callers: usize, arguments: &Arguments, figures: &mut Figures) -> Result<(), String> {
    let collection = bare::collection(place).await?;
    let cell = Cell::new(arguments.seconds);
    let measured = cell::run(&cell, (0..callers).map(|n| bare::Caller::new(&collection, n)).collect()).await?;
    let rate = measured.events_per_second(&Row { writers: callers, events: 1 }, &cell);
    add(figures, "bare insert", callers, rate, &measured);
    place.client.database(bare::DATABASE).drop().await.map_err(text)
}

async fn ours(
    place: &Place,
    callers: usize,
    until: &Reached,
    arguments: &Arguments,
    figures: &mut Figures,
) -> Result<(), String> {
    let opened = place.store("annals_bench_ours").await?;
    let cell = Cell::new(arguments.seconds);
    let made = (0..callers).map(|number| Caller::new(&opened.log, number, until.clone())).collect();
    let measured = cell::run(&cell, made).await?;
    let ended = Instant::now();
    opened.drained().await?;
    let drained = ended.elapsed().as_secs_f64();
    // The remaining time to drain is charged to the measured commits.
    let rate = measured.events_per_second(&Row { writers: callers, events: 1 }, &cell);
    let rate = rate * arguments.seconds / (arguments.seconds + drained);
    let name = if *until == Reached::Logged { "commit until logged" } else { "commit" };
    add(figures, name, callers, rate, &measured);
    figures.add(&format!("{name}, left to drain ms, {callers} callers"), drained * 1e3);
    place.close(opened).await
}

fn add(figures: &mut Figures, name: &str, callers: usize, rate: f64, measured: &Measured) {
    figures.add(&format!("{name}/s, {callers} callers"), rate);
    figures.add(&format!("{name} p50 ms, {callers} callers"), measured.latency_us(0.5) / 1e3);
    figures.add(&format!("{name} p99 ms, {callers} callers"), measured.latency_us(0.99) / 1e3);
}

impl Opened {
    /// Waits until every stored commit is in the log. Each has one event.
    pub async fn drained(&self) -> Result<(), String> {
        let stored: u64 = annals_core::Store::status(&self.store).iter().map(|log| log.commits).sum();
        let mut head = self.log.head().await.map_err(text)?;
        while head < stored {
            head = self.log.wait_past(head).await.map_err(text)?;
        }
        Ok(())
    }
}
