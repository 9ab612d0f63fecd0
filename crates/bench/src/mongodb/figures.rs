//! The measurements: figures by name, one for each round, and the tables of their medians.

use std::path::Path;

use serde_json::json;

use super::Arguments;
use super::backends::Backend;
use super::queries::{Asked, COMPILER, Side};
use super::{processes, snapshots};

/// Every figure of every round, in the order of the first round.
#[derive(Default)]
pub struct Figures(Vec<(String, Vec<f64>)>);

/// A ratio of two figures, round by round, and its target.
struct Ratio {
    name: String,
    of: String,
    to: String,
    meant: String,
}

impl Figures {
    pub fn add(&mut self, name: &str, value: f64) {
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, values)) => values.push(value),
            None => self.0.push((name.to_owned(), vec![value])),
        }
    }

    fn of(&self, name: &str) -> Option<&[f64]> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, values)| &**values)
    }

    /// Returns the tables as Markdown.
    pub fn markdown(&self, machine: &str, arguments: &Arguments) -> String {
        let mut text = format!(
            "Measured on {machine}; {} rounds of {} s a cell, both sides in turn on one mongod; medians, in brackets the lowest and \
             highest.\n\n| ratio | measured | meant |\n|---|---|---|\n",
            arguments.rounds, arguments.seconds
        );
        for Ratio { name, of, to, meant } in ratios(&arguments.callers) {
            let (Some(of), Some(to)) = (self.of(&of), self.of(&to)) else { continue };
            let base = median(to);
            // Rounds are compared pairwise if both sides have the same number of them. A percentile beside another covers all rounds.
            let each: Vec<f64> = if of.len() == to.len() {
                of.iter().zip(to).map(|(of, to)| of / to).collect()
            } else {
                of.iter().map(|of| of / base).collect()
            };
            text.push_str(&format!("| {name} | {} | {meant} |\n", spread(&each)));
        }
        text.push_str("\n| figure | measured |\n|---|---|\n");
        for (name, values) in &self.0 {
            text.push_str(&format!("| {name} | {} |\n", spread(values)));
        }
        text
    }

    pub fn write_json(&self, file: &Path, machine: &str) -> Result<(), String> {
        let figures: serde_json::Map<_, _> =
            self.0.iter().map(|(name, values)| (name.clone(), json!(values))).collect();
        let text = serde_json::to_string_pretty(&json!({ "machine": machine, "figures": figures }));
        let written = text.map_err(|error| error.to_string())?;
        std::fs::write(file, written + "\n").map_err(|error| format!("{}: {error}", file.display()))
    }
}

fn ratios(callers: &[usize]) -> Vec<Ratio> {
    let ratio = |name: &str, of: &str, to: &str, meant: &str| Ratio {
        name: name.to_owned(),
        of: of.to_owned(),
        to: to.to_owned(),
        meant: meant.to_owned(),
    };
    let mut ratios = Vec::new();
    for callers in callers {
        let meant = match callers {
            8 => "≥ 1.0",
            64 => "≥ 2.2",
            256 => "≥ 3.0",
            _ => "",
        };
        let to = format!("bare insert/s, {callers} callers");
        let of = format!("commit/s, {callers} callers");
        ratios.push(ratio(&format!("commits/s with the log ÷ bare inserts, {callers} callers"), &of, &to, meant));
        let of = format!("commit until logged/s, {callers} callers");
        ratios.push(ratio(&format!("commits/s until logged ÷ bare inserts, {callers} callers"), &of, &to, ""));
    }
    let lag = "start of the insert to logged at 1,000/s";
    let base = "bare insert at 1,000/s, p50 ms";
    ratios.extend([
        ratio(
            "p50 of a commit ÷ that of a bare insert, 1 caller",
            "commit p50 ms, 1 callers",
            "bare insert p50 ms, 1 callers",
            "≤ 1.15",
        ),
        ratio("log lag p50 ÷ bare insert p50, 1,000/s", &format!("{lag}, p50 ms"), base, "≤ 2.5"),
        ratio("log lag p99 ÷ bare insert p50, 1,000/s", &format!("{lag}, p99 ms"), base, "≤ 10"),
        ratio("follower later p50 ÷ bare insert p50", "logged to follower at 1,000/s, p50 ms", base, "≤ 1.0"),
        ratio("pages of the log ÷ typed find", "log in pages, events/s", "typed find of event-log/s", "≥ 0.8"),
        ratio("scan of the log ÷ raw find", "log by scan, events/s", "raw find of event-log/s", "≥ 0.8"),
        ratio("replay to a follower ÷ raw find", "log to a follower, events/s", "raw find of event-log/s", "≥ 0.6"),
        ratio("pages of the log ÷ typed find of the commits", "log in pages, events/s", "typed find of commits/s", ""),
        ratio("scan of the log ÷ raw find of the commits", "log by scan, events/s", "raw find of commits/s", ""),
        ratio("an aggregate of 100 commits ÷ typed find", "aggregates/s", "typed find of an aggregate/s", "≥ 0.8"),
        ratio("an aggregate of 100 commits ÷ raw find", "aggregates/s", "raw find of an aggregate/s", ""),
        ratio(
            "record puts ÷ bare inserts, 1 caller",
            "record put/s, 1 callers",
            "bare insert of a record/s, 1 callers",
            "",
        ),
        ratio(
            "record puts ÷ bare inserts, 64 callers",
            "record put/s, 64 callers",
            "bare insert of a record/s, 64 callers",
            "",
        ),
    ]);
    for callers in processes::CALLERS {
        let name = format!("record puts by 2 processes ÷ by 1, {callers} callers each");
        let meant = if callers == 8 { "≥ 1.6" } else { "" };
        ratios.push(ratio(&name, &processes::figure(2, callers), &processes::figure(1, callers), meant));
    }
    for backend in Backend::in_turn(0) {
        let name = backend.name();
        let (through, replay) = (snapshots::through_a_snapshot(backend), snapshots::by_replay(backend));
        ratios.push(ratio(&format!("{name}: loads through a snapshot ÷ by replay"), &through, &replay, "≥ 50"));
        let (saves, commits) = (snapshots::saves(backend), snapshots::commits(backend));
        ratios.push(ratio(&format!("{name}: snapshot saves ÷ commits, 64 callers"), &saves, &commits, "≥ 0.8"));
    }
    for asked in Asked::ALL {
        let bare = Side::Bare.figure(asked);
        for backend in Backend::in_turn(0) {
            let meant = if backend == Backend::Embedded { "≤ 2" } else { "" };
            let name = format!("{}: {} ÷ bare driver on the mongod, p50", backend.name(), asked.name());
            ratios.push(ratio(&name, &Side::Store(backend).figure(asked), &bare, meant));
        }
    }
    let bare = Side::Bare.figure(Asked::Equality);
    ratios.push(ratio("condition to filter ÷ bare query by it, p50", COMPILER, &bare, "< 0.02"));
    ratios
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

fn spread(values: &[f64]) -> String {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let show = |value: f64| if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") };
    format!("{} ({}–{})", show(median(values)), show(least), show(most))
}
