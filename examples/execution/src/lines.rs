//! Prints the lines of the service: one for each event.

use std::collections::VecDeque;
use std::io::Write;
use std::sync::Arc;

use annals::{EventLog, Filter, Follower, ReadError, RecordedEvent, SequenceNumber, StoreError};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Duration, sleep, timeout};

use crate::events::{self, Completed, Failed, Requested, ResourceUsage, Started, Timeout, short_id};

/// The destination of lines. A thread of its own writes them, so that a slow reader delays nothing else.
#[derive(Clone)]
pub(crate) struct Lines(mpsc::Sender<Order>);

enum Order {
    Print(String),
    /// Replies once everything before it has been flushed.
    Tell(oneshot::Sender<()>),
}

impl Lines {
    /// Writes lines to this output, each with a flush.
    pub(crate) fn to(mut output: Box<dyn Write + Send>) -> std::io::Result<Self> {
        const WAITING_MAX: usize = 1_024;
        let (lines, mut waiting) = mpsc::channel(WAITING_MAX);
        std::thread::Builder::new().name("lines".to_owned()).spawn(move || {
            while let Some(order) = waiting.blocking_recv() {
                match order {
                    Order::Print(line) => {
                        if output.write_all(line.as_bytes()).and_then(|()| output.flush()).is_err() {
                            return;
                        }
                    }
                    // The caller may have given up.
                    Order::Tell(flushed) => drop(flushed.send(())),
                }
            }
        })?;
        Ok(Self(lines))
    }

    /// Queues a line. Waits while too many lines are queued; does nothing once the output is closed.
    pub(crate) async fn print(&self, line: impl Into<String>) {
        let mut line = line.into();
        line.push('\n');
        let _ = self.0.send(Order::Print(line)).await;
    }

    /// Waits until the output is closed.
    pub(crate) async fn closed(&self) {
        self.0.closed().await;
    }

    /// Waits until every line has been written, for at most a second.
    pub(crate) async fn drained(&self) {
        const WAIT_MAX: Duration = Duration::from_secs(1);
        let (flushed, all_flushed) = oneshot::channel();
        let asked = async {
            let _ = self.0.send(Order::Tell(flushed)).await;
            let _ = all_flushed.await;
        };
        let _ = timeout(WAIT_MAX, asked).await;
    }
}

/// Follows a log and prints its events. It stores no position: each run begins at the log's head.
pub(crate) struct Printer {
    log: Arc<dyn EventLog>,
    follower: Follower,
    /// Events that were read and are not printed yet.
    read: VecDeque<RecordedEvent>,
    lines: Lines,
}

impl Printer {
    /// Prints the events of `log` from a sequence number on.
    pub(crate) fn new(log: Arc<dyn EventLog>, from: SequenceNumber, lines: Lines) -> Self {
        let follower = Follower::new(Arc::clone(&log), from, Filter::default());
        Self { log, follower, read: VecDeque::new(), lines }
    }

    /// Prints events until `stop` is sent, then those up to the head, for at most a second.
    pub(crate) async fn run(mut self, stop: oneshot::Receiver<()>) {
        const REST_WAIT_MAX: Duration = Duration::from_secs(1);
        tokio::select! {
            _ = stop => {}
            () = self.print_all() => return,
        }
        let rest = async {
            let head = self.log.head().await?;
            while !self.read.is_empty() || self.follower.position() < head {
                self.print_next().await?;
            }
            Ok::<(), ReadError>(())
        };
        // What is not printed by then is still in the log.
        let _ = timeout(REST_WAIT_MAX, rest).await;
    }

    /// Prints events until the store is closed.
    async fn print_all(&mut self) {
        const RETRY_AFTER: Duration = Duration::from_secs(1);
        loop {
            match self.print_next().await {
                Ok(()) => {}
                Err(ReadError::Store(StoreError::Closed)) => return,
                Err(error) => {
                    self.lines.print(format!("! the log cannot be read; retrying: {error}")).await;
                    sleep(RETRY_AFTER).await;
                }
            }
        }
    }

    /// Waits for the next events and prints them. Cancelling it loses none and prints none twice.
    async fn print_next(&mut self) -> Result<(), ReadError> {
        if self.read.is_empty() {
            self.read = self.follower.next_page().await?.into();
        }
        while let Some(event) = self.read.front() {
            self.lines.print(line(event)).await;
            self.read.pop_front();
        }
        Ok(())
    }
}

/// Returns a line such as `#12 execution_completed 3f2a9c01… exit 0 · 41 ms wall · 9.8 MiB peak`.
fn line(event: &RecordedEvent) -> String {
    let aggregate = &event.commit.aggregate;
    let head = format!("#{} {} {}", event.sequence_number, event.event_type, short_id(&aggregate.id));
    // An event that another program committed may have any data.
    let rest = if &*aggregate.name == events::AGGREGATE { summary(event) } else { None };
    match rest {
        Some(rest) => format!("{head} {}", printable(&rest)),
        None => head,
    }
}

fn summary(event: &RecordedEvent) -> Option<String> {
    let data = &event.data;
    Some(match &*event.event_type {
        events::REQUESTED => {
            let requested: Requested = data.decode().ok()?;
            format!("{} · {}", requested.language, first_line(&requested.script))
        }
        events::STARTED => format!("by {}", data.decode::<Started>().ok()?.pod_name),
        events::COMPLETED => {
            let completed: Completed = data.decode().ok()?;
            format!("exit {} · {}", completed.exit_code, used(&completed.resource_usage))
        }
        events::FAILED => {
            let failed: Failed = data.decode().ok()?;
            let used = failed.resource_usage.map(|usage| format!(" · {}", used(&usage))).unwrap_or_default();
            format!("exit {} · {}{used}", failed.exit_code, failed.reason)
        }
        events::CANCELLED => format!("by {}", data.decode::<serde_json::Value>().ok()?["cancelled_by"].as_str()?),
        events::TIMEOUT => {
            let timeout: Timeout = data.decode().ok()?;
            format!("killed after {} s · {}", timeout.timeout_seconds, used(&timeout.resource_usage))
        }
        _ => return None,
    })
}

fn used(usage: &ResourceUsage) -> String {
    let seconds = usage.execution_time_wall_seconds;
    let wall = if seconds < 1.0 { format!("{:.0} ms", seconds * 1e3) } else { format!("{seconds:.2} s") };
    format!("{wall} wall · {:.1} MiB peak", usage.peak_memory_kb as f64 / 1024.0)
}

/// Returns the first non-empty line of a script, shortened to fit.
fn first_line(script: &str) -> String {
    const SHOWN_MAX: usize = 48;
    let line =
        script.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with("#!")).unwrap_or_default();
    match line.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

/// Removes characters that would control a terminal.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || is_direction(c) { '\u{fffd}' } else { c }).collect()
}

/// Returns whether a character changes the direction in which text is shown.
fn is_direction(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_shown_in_units_that_fit() {
        let usage = |seconds, peak_memory_kb| ResourceUsage {
            execution_time_wall_seconds: seconds,
            peak_memory_kb,
            ..ResourceUsage::default()
        };
        assert_eq!(used(&usage(0.0412, 10_035)), "41 ms wall · 9.8 MiB peak");
        assert_eq!(used(&usage(2.004, 1_024)), "2.00 s wall · 1.0 MiB peak");
    }

    #[test]
    fn a_script_is_named_by_its_first_line_that_says_something() {
        assert_eq!(first_line("#!/bin/sh\n\n  echo hello\n"), "echo hello");
        assert_eq!(first_line(&"é".repeat(49)), format!("{}…", "é".repeat(48)));
    }

    #[test]
    fn nothing_that_steers_a_terminal_is_printed() {
        assert_eq!(printable("a\u{1b}[2Jb\u{202e}c\r"), "a\u{fffd}[2Jb\u{fffd}c\u{fffd}");
    }
}
