//! The table for people and the raw figures for programs.

use std::path::Path;

use serde_json::{Value, json};

use crate::System;
use crate::arguments::Arguments;
use crate::cell::{Cell, Measured};
use crate::follow::{self, Reads};
use crate::pushed::Pushed;
use crate::workload::Row;

/// One cell of one round.
pub struct Entry {
    round: usize,
    row: Row,
    system: System,
    events_per_second: f64,
    p50_us: f64,
    p99_us: f64,
    p999_us: f64,
}

impl Entry {
    pub fn new(round: usize, row: Row, system: System, measured: &Measured, cell: &Cell) -> Self {
        Self {
            round,
            row,
            system,
            events_per_second: measured.events_per_second(&row, cell),
            p50_us: measured.latency_us(0.5),
            p99_us: measured.latency_us(0.99),
            p999_us: measured.latency_us(0.999),
        }
    }
}

/// The tables, the machine and how it was measured.
pub fn markdown(machine: &str, arguments: &Arguments, entries: &[Entry], reads: Option<&Reads>) -> String {
    let mut text = format!(
        "Measured on {machine}; {} rounds of {} s a cell, systems in turn; medians, in brackets the lowest and highest.\n\n",
        arguments.rounds, arguments.seconds
    );
    let rate = |row: &Row, system| spread(&of(entries, row, system, |entry| entry.events_per_second), thousands);
    text.push_str(&table("events/s, writers x events of a commit", arguments, entries, rate));
    let latency = |row: &Row, system| {
        let median = |pick: fn(&Entry) -> f64| median(&of(entries, row, system, pick));
        format!("{:.0} / {:.0} / {:.0}", median(|e| e.p50_us), median(|e| e.p99_us), median(|e| e.p999_us))
    };
    text.push_str(&table("p50 / p99 / p99.9 in µs", arguments, entries, latency));
    for base in [System::Probe, System::BareLog, System::Empty].into_iter().filter(|base| measured(entries, *base)) {
        let share = |row: &Row, system| spread(&ratios(entries, row, system, base), |ratio| format!("{ratio:.2}"));
        text.push_str(&table(&format!("rate ÷ that of the {base}"), arguments, entries, share));
    }
    if let Some(reads) = reads {
        text.push_str(&reads_table(reads));
    }
    text
}

fn measured(entries: &[Entry], system: System) -> bool {
    entries.iter().any(|entry| entry.system == system)
}

/// A table with a line for each system and a column for each row of the workload.
fn table(title: &str, arguments: &Arguments, entries: &[Entry], show: impl Fn(&Row, System) -> String) -> String {
    let mut text = format!("| {title} |");
    arguments.rows.iter().for_each(|row| text.push_str(&format!(" {row} |")));
    text.push_str(&format!("\n|{}\n", "---|".repeat(arguments.rows.len() + 1)));
    for system in System::ALL.into_iter().filter(|system| measured(entries, *system)) {
        text.push_str(&format!("| {system} |"));
        arguments.rows.iter().for_each(|row| text.push_str(&format!(" {} |", show(row, system))));
        text.push('\n');
    }
    text.push('\n');
    text
}

fn reads_table(reads: &Reads) -> String {
    format!(
        "A log of {} events in commits of {}, once:\n\n| measure | library |\n|---|---|\n\
         | open after an ordinary close | {:.1} ms |\n\
         | read the whole log, decoded | {} events/s |\n\
         | read one aggregate of 100 events, p50 / p99 | {:.0} / {:.0} µs |\n\
         | from handing over a commit to a follower's having it, p50 / p99 | {:.0} / {:.0} µs |\n\
         | log bytes of an event of 250 | {:.0} |\n",
        thousands(follow::EVENTS as f64),
        follow::COMMIT_EVENTS,
        reads.open_ms,
        thousands(reads.replay_events_per_second),
        reads.aggregate_p50_us,
        reads.aggregate_p99_us,
        reads.follow_p50_us,
        reads.follow_p99_us,
        reads.bytes_per_event,
    )
}

/// How soon followers of a server have an event.
pub fn pushed_table(pushed: &[Pushed; 2]) -> String {
    let mut text = String::from(
        "\n| from handing a commit to the server, p50 / p99 µs | until it is acknowledged | until a follower has its event |\n|---|---|---|\n",
    );
    for (name, pushed) in ["server-sent events, a connection each", "the Rust client, for both"].iter().zip(pushed) {
        let Pushed { acknowledged_p50, acknowledged_p99, followed_p50, followed_p99 } = pushed;
        text.push_str(&format!(
            "| {name} | {acknowledged_p50:.0} / {acknowledged_p99:.0} | {followed_p50:.0} / {followed_p99:.0} |\n"
        ));
    }
    text
}

fn of(entries: &[Entry], row: &Row, system: System, pick: impl Fn(&Entry) -> f64) -> Vec<f64> {
    entries.iter().filter(|entry| entry.row == *row && entry.system == system).map(pick).collect()
}

/// The system's rate divided by the base's of the same round, so that what slows a whole round down cancels out.
fn ratios(entries: &[Entry], row: &Row, system: System, base: System) -> Vec<f64> {
    let find = |round: usize, system| {
        let found = entries.iter().find(|e| e.round == round && e.row == *row && e.system == system);
        found.map(|entry| entry.events_per_second)
    };
    let rounds = entries.iter().map(|entry| entry.round + 1).max().unwrap_or_default();
    (0..rounds).filter_map(|round| Some(find(round, system)? / find(round, base)?)).collect()
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => sorted[count / 2],
        count => f64::midpoint(sorted[count / 2 - 1], sorted[count / 2]),
    }
}

fn spread(values: &[f64], show: impl Fn(f64) -> String) -> String {
    let lowest = values.iter().copied().fold(f64::INFINITY, f64::min);
    let highest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    format!("{} ({}–{})", show(median(values)), show(lowest), show(highest))
}

/// A number with its thousands set apart.
fn thousands(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Writes every cell of every round.
pub fn write_json(
    file: &Path,
    machine: &str,
    arguments: &Arguments,
    entries: &[Entry],
    reads: Option<&Reads>,
) -> Result<(), String> {
    let cell = |entry: &Entry| {
        json!({
            "round": entry.round + 1, "writers": entry.row.writers, "events": entry.row.events, "system": entry.system.to_string(),
            "events_per_second": entry.events_per_second, "p50_us": entry.p50_us, "p99_us": entry.p99_us, "p999_us": entry.p999_us,
        })
    };
    let reads = reads.map_or(Value::Null, |reads| {
        json!({
            "events": follow::EVENTS, "open_ms": reads.open_ms, "replay_events_per_second": reads.replay_events_per_second,
            "aggregate_p50_us": reads.aggregate_p50_us, "aggregate_p99_us": reads.aggregate_p99_us,
            "follow_p50_us": reads.follow_p50_us, "follow_p99_us": reads.follow_p99_us, "bytes_per_event": reads.bytes_per_event,
        })
    });
    let cells: Vec<Value> = entries.iter().map(cell).collect();
    let all = json!({ "machine": machine, "seconds": arguments.seconds, "cells": cells, "reads": reads });
    std::fs::write(file, format!("{all:#}\n")).map_err(|error| format!("{}: {error}", file.display()))
}
