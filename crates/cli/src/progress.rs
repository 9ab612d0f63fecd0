//! A bar on standard error while something long is done, if that is a terminal.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar, or nothing.
pub struct Progress(ProgressBar);

impl Progress {
    /// A bar over bytes.
    pub fn of_bytes() -> Self {
        Self::new("{bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta} left")
    }

    /// A bar over events.
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

    /// So much of all is done.
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
