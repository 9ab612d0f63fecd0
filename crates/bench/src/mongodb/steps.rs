//! Measures the sequencer's time between its steps.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use annals_mongodb::Step;

use super::figures::Figures;

/// The previous step, and the microseconds that each step took, by its name.
struct Taken {
    before: Option<Instant>,
    micros: BTreeMap<&'static str, Vec<u64>>,
}

static TAKEN: Mutex<Taken> = Mutex::new(Taken { before: None, micros: BTreeMap::new() });

/// Notes a step. The sequencer calls it at each step.
pub fn note(step: Step) {
    let now = Instant::now();
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    let name = match step {
        Step::CommitsTaken => "waiting for commits",
        Step::OffsetMoved => "moving the offset",
        Step::EventsWritten => "writing events and entries",
        Step::BatchWritten => "writing aggregates and the rest",
        Step::BatchCommitted => "committing",
        _ => "",
    };
    if let (Some(before), false) = (taken.before, name.is_empty()) {
        taken.micros.entry(name).or_default().push((now - before).as_micros() as u64);
    }
    taken.before = Some(now);
}

/// Discards the measurements so far.
pub fn forget() {
    TAKEN.lock().unwrap_or_else(PoisonError::into_inner).micros.clear();
}

/// Adds the median of each step since the measurements were last discarded or added.
pub fn add(figures: &mut Figures) {
    let micros = std::mem::take(&mut TAKEN.lock().unwrap_or_else(PoisonError::into_inner).micros);
    for (name, mut all) in micros {
        all.sort_unstable();
        figures.add(&format!("sequencer, {name} p50 ms"), all[all.len() / 2] as f64 / 1e3);
        figures.add(&format!("sequencer, {name}, times"), all.len() as f64);
    }
}
