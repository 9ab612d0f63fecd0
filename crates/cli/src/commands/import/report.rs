//! Reports the course of an import: a progress bar while it runs, and a summary at its end.

use std::path::Path;
use std::time::Instant;

use annals::{Code, CommitOutcome};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::cli::Format;
use crate::failure::Stop;
use crate::output::Output;

/// A progress bar on standard error if that is a terminal, else nothing.
pub struct Progress(ProgressBar);

impl Progress {
    /// Returns a bar over the bytes of a file. An input without a length gets a count of its bytes.
    pub fn new(path: &Path) -> Self {
        let length = path.metadata().ok().filter(std::fs::Metadata::is_file).map(|file| file.len());
        let (bar, template) = match length {
            Some(length) => (ProgressBar::new(length), "{bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta} left"),
            None => (ProgressBar::new_spinner(), "{spinner} {bytes} {bytes_per_sec}"),
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Self(bar)
    }

    /// Advances the bar: all input up to this byte has an outcome.
    pub fn reach(&self, byte: u64) {
        self.0.set_position(byte);
    }

    /// Hides the bar while something else is printed.
    pub fn pause(&self, print: impl FnOnce()) {
        self.0.suspend(print);
    }

    pub fn finish(&self) {
        self.0.finish_and_clear();
    }
}

/// The outcomes of the lines.
pub struct Count {
    committed: u64,
    duplicates: u64,
    refused: u64,
    unanswered: u64,
    pub held_back: u64,
    events: u64,
    pub first_failure: Option<Code>,
    began: Instant,
}

/// The summary in machine-readable form.
#[derive(Serialize)]
struct Summary {
    /// Lines that were read and are not blank: the sum of the next five.
    lines: u64,
    /// Lines that this import committed.
    committed: u64,
    /// Lines that were already in the log.
    duplicates: u64,
    /// Lines that broke a rule.
    refused: u64,
    /// Lines whose outcome is unknown.
    unanswered: u64,
    /// Lines that were not attempted, because an earlier one of their aggregate is not in the log.
    held_back: u64,
    /// Events of the committed lines.
    events: u64,
    seconds: f64,
    events_per_second: u64,
}

impl Default for Count {
    #[expect(clippy::disallowed_methods, reason = "the duration is only shown")]
    fn default() -> Self {
        let began = Instant::now();
        Self {
            committed: 0,
            duplicates: 0,
            refused: 0,
            unanswered: 0,
            held_back: 0,
            events: 0,
            first_failure: None,
            began,
        }
    }
}

impl Count {
    pub fn stored(&mut self, outcome: &CommitOutcome) {
        if outcome.duplicate {
            self.duplicates += 1;
        } else {
            self.committed += 1;
            self.events += outcome.event_ids.len() as u64;
        }
    }

    pub fn refused(&mut self, code: Code) {
        self.refused += 1;
        self.first_failure.get_or_insert(code);
    }

    pub fn has_refused(&self) -> bool {
        self.refused > 0
    }

    /// Counts a line whose outcome is unknown. Returns whether it is the first.
    pub fn unanswered(&mut self, code: Code) -> bool {
        self.unanswered += 1;
        self.first_failure.get_or_insert(code);
        self.unanswered == 1
    }

    pub fn print(&self, output: &mut Output) -> Result<(), Stop> {
        let seconds = self.began.elapsed().as_secs_f64();
        let lines = self.committed + self.duplicates + self.refused + self.unanswered + self.held_back;
        let rate = if seconds > 0.0 { (self.events as f64 / seconds).round() as u64 } else { 0 };
        match output.format() {
            Format::Json => output.json(&Summary {
                lines,
                committed: self.committed,
                duplicates: self.duplicates,
                refused: self.refused,
                unanswered: self.unanswered,
                held_back: self.held_back,
                events: self.events,
                seconds: (seconds * 1000.0).round() / 1000.0,
                events_per_second: rate,
            })?,
            Format::Table => {
                let numbers = [
                    ("lines", lines),
                    ("committed", self.committed),
                    ("duplicates", self.duplicates),
                    ("refused", self.refused),
                    ("unanswered", self.unanswered),
                    ("held back", self.held_back),
                    ("events", self.events),
                    ("events/s", rate),
                ];
                for (name, number) in numbers {
                    output.text(format_args!("{name:<10}  {number:>12}"))?;
                }
            }
        }
        output.flush()
    }
}
