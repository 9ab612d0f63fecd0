//! A progress bar on standard error, for long work, if that is a terminal.

use indicatif::{ProgressBar, ProgressStyle};

/// A progress bar, or nothing.
pub struct Progress(ProgressBar);

impl Progress {
    /// Returns a bar over bytes.
    pub fn of_bytes() -> Self {
        Self::new("{bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta} left")
    }

    /// Returns a bar over events.
    pub fn of_events() -> Self {
        Self::new("{bar:30} {human_pos}/{human_len} events {per_sec} {eta} left")
    }

    fn new(template: &str) -> Self {
        let bar = ProgressBar::new(0);
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Self(bar)
    }

    /// Advances the bar to `done` of `all`.
    pub fn reach(&self, done: u64, all: u64) {
        self.0.set_length(all);
        self.0.set_position(done);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
