//! The tables for people, and the raw figures for programs.

use std::path::Path;

use serde_json::{Value, json};

use crate::System;
use crate::arguments::Arguments;
use crate::cell::{Cell, Measured};
use crate::corpus::COMMIT_EVENTS;
use crate::disk::{self, Place};
use crate::pushed::Pushed;
use crate::reads::Found;
use crate::rivals::Rival;
use crate::stored::{FIGURES, Figure, Kind, MEMORY, OPEN};
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

/// All measurements.
pub struct Report<'a> {
    pub machine: String,
    pub arguments: &'a Arguments,
    pub disk: Vec<disk::Figure>,
    pub cells: Vec<Entry>,
    pub reads: Vec<Found>,
    pub opened: Vec<Found>,
    /// Over server-sent events, and through the Rust client.
    pub pushed: Option<[Pushed; 2]>,
}

/// The systems by whose rates the others are divided, where they were measured.
const BASES: [System; 9] = [
    System::Probe,
    System::BareLog,
    System::Library,
    System::Empty,
    System::Server,
    System::Client,
    System::Rival(Rival::Tephra),
    System::Rival(Rival::TephraServer),
    System::Rival(Rival::TephraShared),
];

/// Returns what is compared with a base: everything with the disk, and ours with the rest.
fn beside(base: System) -> Vec<System> {
    match base {
        System::Rival(_) => vec![System::Library, System::Server, System::Client],
        System::Library => vec![System::Grown],
        System::Empty => vec![System::Server, System::Client],
        System::Server => vec![System::Keyed],
        System::Client => vec![System::Tls],
        _ => System::all(),
    }
}

impl Report<'_> {
    /// Returns the tables, the machine and the method of measurement.
    pub fn markdown(&self) -> String {
        let mut text = format!(
            "Measured on {}; {} rounds of {} s a cell, systems in turn; medians, in brackets the lowest and highest.\n\n",
            self.machine, self.arguments.rounds, self.arguments.seconds
        );
        text.push_str(&self.disk_table());
        let rate =
            |row: &Row, system| spread(&self.of(row, system, |entry| entry.events_per_second), |rate| number(rate, 0));
        text.push_str(&self.table_of(System::all(), "events/s, writers x events of a commit", rate));
        let latency = |row: &Row, system| {
            let median = |pick: fn(&Entry) -> f64| median(&self.of(row, system, pick));
            format!("{:.0} / {:.0} / {:.0}", median(|e| e.p50_us), median(|e| e.p99_us), median(|e| e.p999_us))
        };
        text.push_str(&self.table_of(System::all(), "p50 / p99 / p99.9 in µs", latency));
        let compared =
            |base: &System| self.measured(*base) && beside(*base).iter().any(|system| self.measured(*system));
        for base in BASES.into_iter().filter(compared) {
            let share = |row: &Row, system| spread(&self.ratios(row, system, base), |ratio| format!("{ratio:.2}"));
            text.push_str(&self.table_of(beside(base), &format!("rate ÷ that of {base}"), share));
        }
        [false, true].iter().for_each(|served| text.push_str(&self.reads_table(*served)));
        text.push_str(&self.opened_table());
        text.push_str(&self.pushed_table());
        text
    }

    fn measured(&self, system: System) -> bool {
        self.cells.iter().any(|entry| entry.system == system)
    }

    /// Returns a table with a line for each of these systems and a column for each row of the workload.
    fn table_of(&self, systems: Vec<System>, title: &str, show: impl Fn(&Row, System) -> String) -> String {
        let rows = &self.arguments.rows;
        let mut text = format!("| {title} |");
        rows.iter().for_each(|row| text.push_str(&format!(" {row} |")));
        text.push_str(&format!("\n|{}\n", "---|".repeat(rows.len() + 1)));
        for system in systems.into_iter().filter(|system| self.measured(*system)) {
            text.push_str(&format!("| {system} |"));
            rows.iter().for_each(|row| text.push_str(&format!(" {} |", show(row, system))));
            text.push('\n');
        }
        text.push('\n');
        text
    }

    fn disk_table(&self) -> String {
        let mut text = "| the disk, write + fdatasync | writes/s | p50 / p99 µs |\n|---|---|---|\n".to_owned();
        for (place, bytes) in disk::kinds() {
            let of = |pick: fn(&disk::Figure) -> f64| -> Vec<f64> {
                self.disk.iter().filter(|f| (f.place, f.bytes) == (place, bytes)).map(pick).collect()
            };
            text.push_str(&format!(
                "| {place}, {} KiB | {} | {:.0} / {:.0} |\n",
                bytes / 1024,
                spread(&of(|f| f.per_second), |rate| number(rate, 0)),
                median(&of(|f| f.p50_us)),
                median(&of(|f| f.p99_us))
            ));
        }
        text.push('\n');
        text
    }

    /// Returns a table with a line for each figure and a column for each store, and the ratio of ours to each rival.
    fn reads_table(&self, served: bool) -> String {
        let here = |kind: &Kind| self.reads.iter().any(|found| (found.kind, found.served) == (*kind, served));
        let kinds: Vec<Kind> = Kind::ALL.into_iter().filter(here).collect();
        if kinds.is_empty() {
            return String::new();
        }
        let place = if served { "servers, over loopback" } else { "libraries" };
        let mut text =
            format!("| {} events in commits of {COMMIT_EVENTS}; {place} |", number(self.arguments.corpus as f64, 0));
        kinds.iter().for_each(|kind| text.push_str(&format!(" {kind} |")));
        kinds[1..].iter().for_each(|rival| text.push_str(&format!(" {} ÷ {rival} |", kinds[0])));
        text.push_str(&format!("\n|{}\n", "---|".repeat(2 * kinds.len())));
        for figure in &FIGURES {
            let found = |kind| self.found(figure, kind, served);
            if kinds.iter().all(|kind| found(*kind).next().is_none()) {
                continue;
            }
            text.push_str(&format!("| {} |", figure.label));
            for kind in &kinds {
                let values: Vec<f64> = found(*kind).map(|(_, value)| value).collect();
                text.push_str(&format!(" {} |", spread(&values, |value| number(value, figure.decimals))));
            }
            for rival in &kinds[1..] {
                let ours = |round| found(kinds[0]).find(|(of, _)| *of == round).map(|(_, value)| value);
                let ratios = found(*rival).filter_map(|(round, theirs)| Some(ours(round)? / theirs));
                text.push_str(&format!(" {} |", spread(&ratios.collect::<Vec<_>>(), |ratio| format!("{ratio:.2}"))));
            }
            text.push('\n');
        }
        text + "\n"
    }

    /// Returns a table of the times to open stores of several sizes.
    fn opened_table(&self) -> String {
        if self.opened.is_empty() {
            return String::new();
        }
        let mut text = "| events, in commits of 10 | store | open after kill -9, warm, ms | memory after opening, MiB |\n|---|---|---|---|\n"
            .to_owned();
        for events in &self.arguments.opened {
            for kind in Kind::ALL {
                let of = |name: &str| -> Vec<f64> {
                    let found = self.opened.iter().filter(|found| (found.kind, found.events) == (kind, *events));
                    found.filter_map(|found| found.figures.get(name).copied()).collect()
                };
                let [open, memory] = [OPEN, MEMORY].map(of);
                if !open.is_empty() {
                    let show = |values: &[f64]| spread(values, |value| number(value, 1));
                    let events = number(*events as f64, 0);
                    text.push_str(&format!("| {events} | {kind} | {} | {} |\n", show(&open), show(&memory)));
                }
            }
        }
        text + "\n"
    }

    /// Returns a table of how soon followers of a server have an event.
    fn pushed_table(&self) -> String {
        let Some(pushed) = &self.pushed else { return String::new() };
        let mut text = String::from(
            "| from sending a commit to the server, p50 / p99 µs | until it is acknowledged | until a follower has its event |\n|---|---|---|\n",
        );
        for (name, pushed) in ["server-sent events, a connection each", "the Rust client, for both"].iter().zip(pushed)
        {
            let Pushed { acknowledged_p50, acknowledged_p99, followed_p50, followed_p99 } = pushed;
            text.push_str(&format!(
                "| {name} | {acknowledged_p50:.0} / {acknowledged_p99:.0} | {followed_p50:.0} / {followed_p99:.0} |\n"
            ));
        }
        text
    }

    /// Returns the values of a figure with their rounds.
    fn found(&self, figure: &Figure, kind: Kind, served: bool) -> impl Iterator<Item = (usize, f64)> {
        let of_kind = self.reads.iter().filter(move |found| (found.kind, found.served) == (kind, served));
        of_kind.filter_map(|found| Some((found.round, *found.figures.get(figure.name)?)))
    }

    fn of(&self, row: &Row, system: System, pick: impl Fn(&Entry) -> f64) -> Vec<f64> {
        self.cells.iter().filter(|entry| entry.row == *row && entry.system == system).map(pick).collect()
    }

    /// Returns the system's rate divided by the base's of the same round, so that what slows a whole round cancels out.
    fn ratios(&self, row: &Row, system: System, base: System) -> Vec<f64> {
        let find = |round: usize, system| {
            let found = self.cells.iter().find(|e| e.round == round && e.row == *row && e.system == system);
            found.map(|entry| entry.events_per_second)
        };
        (0..self.arguments.rounds).filter_map(|round| Some(find(round, system)? / find(round, base)?)).collect()
    }

    /// Writes every cell of every round.
    pub fn write_json(&self, file: &Path) -> Result<(), String> {
        let cell = |entry: &Entry| {
            json!({
                "round": entry.round + 1, "writers": entry.row.writers, "events": entry.row.events, "system": entry.system.to_string(),
                "events_per_second": entry.events_per_second, "p50_us": entry.p50_us, "p99_us": entry.p99_us, "p999_us": entry.p999_us,
            })
        };
        let disk = |figure: &disk::Figure| {
            json!({
                "round": figure.round + 1, "zero_filled": figure.place == Place::ZeroFilled, "bytes": figure.bytes,
                "per_second": figure.per_second, "p50_us": figure.p50_us, "p99_us": figure.p99_us,
            })
        };
        let read = |found: &Found| json!({ "round": found.round + 1, "store": found.kind.to_string(), "served": found.served, "events": found.events, "figures": found.figures });
        let all = json!({
            "machine": self.machine, "seconds": self.arguments.seconds, "corpus": self.arguments.corpus,
            "disk": self.disk.iter().map(disk).collect::<Vec<Value>>(),
            "cells": self.cells.iter().map(cell).collect::<Vec<Value>>(),
            "reads": self.reads.iter().map(read).collect::<Vec<Value>>(),
            "opened": self.opened.iter().map(read).collect::<Vec<Value>>(),
        });
        std::fs::write(file, format!("{all:#}\n")).map_err(|error| format!("{}: {error}", file.display()))
    }
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

/// Returns the median, with the lowest and highest if there are several.
fn spread(values: &[f64], show: impl Fn(f64) -> String) -> String {
    let lowest = values.iter().copied().fold(f64::INFINITY, f64::min);
    let highest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    match values {
        [] => "–".to_owned(),
        [value] => show(*value),
        _ => format!("{} ({}–{})", show(median(values)), show(lowest), show(highest)),
    }
}

/// Formats a number with groups of thousands.
fn number(number: f64, decimals: usize) -> String {
    let digits = format!("{number:.decimals$}");
    let (whole, rest) = digits.split_at(digits.find('.').unwrap_or(digits.len()));
    let mut text = String::new();
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text + rest
}
