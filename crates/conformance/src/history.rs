//! Records the answers that clients of a log get, over any number of crashes, and checks them against the log's guarantees.
//!
//! Give each client a log that is [watched](History::watch). Report when everything in flight has [ended](History::restarted). At the
//! end, [check](History::check) it against the final log. The check needs to know neither the order in which the log worked nor the
//! outcome of commits whose callers got no answer. It only rejects what no correct log could have answered.
//!
//! - Atomic: each commit in the log is complete, was sent by a client, and has adjacent events. A commit of a transaction is adjacent to
//!   the others of it. No reported head lies inside a commit or transaction.
//! - One winner, once per request: versions and request ids occur once. Each success, duplicate, conflict and refusal is the one that the
//!   order of checks requires.
//! - One order, durable: what was reported before a call began is below what that call reports, and is in the final log.
//! - Prepare keys: one commit at a time holds each key, in the order of the log. A commit is refused because of a key only if the log can
//!   have been in a state that requires it.
//! - Immutable: an event that was returned once is the same in every other answer and in the final log.
//! - Reads return exactly what the log holds in the range that they cover.

mod check_commits;
mod check_reads;
mod check_refusals;
mod final_log;
mod keys;
mod real_time;
mod record;
mod sent;
mod watch;

#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use annals_core::{EventLog, LogQuery, ReadError, RecordedEvent, limits};

use check_commits::Knowledge;
use final_log::FinalLog;
use keys::KeyLog;
use real_time::RealTime;
use record::Record;

/// Records the answers that clients get. All clients of one log share it.
#[derive(Default)]
pub struct History {
    record: Mutex<Record>,
}

/// The size of a checked history, so that a test can see that it tested something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Checked {
    /// Commits in the log.
    pub commits: usize,
    /// Commits that were acknowledged as new.
    pub acknowledged: usize,
    /// Transactions that were acknowledged as new. Their commits are in `acknowledged` too.
    pub transactions: usize,
    /// Repeats that were recognised.
    pub duplicates: usize,
    /// Commits and transactions refused because of a version, append condition, prepare key, request id or tenantId.
    pub refusals: usize,
    /// The refusals because of a prepare key.
    pub key_refusals: usize,
    /// Commits and transactions whose outcome is unknown.
    pub unknown: usize,
    /// Answered reads of all kinds.
    pub reads: usize,
}

impl History {
    /// Returns an empty history.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Returns the same log, with all requests and answers of `client` recorded.
    pub fn watch(self: &Arc<Self>, client: &str, log: Arc<dyn EventLog>) -> Arc<dyn EventLog> {
        Arc::new(watch::Watched { history: self.clone(), client: client.into(), log })
    }

    /// Notes that the store was stopped, by whatever means, and that nothing that was in flight can take effect any more.
    pub fn restarted(&self) {
        self.record().restarted();
    }

    /// Reads the whole log and checks the history against it.
    ///
    /// # Errors
    /// Each broken guarantee, one per line.
    pub async fn check(&self, log: &Arc<dyn EventLog>) -> Result<Checked, String> {
        let events = read_all(log).await.map_err(|error| format!("the log cannot be read: {error}"))?;
        self.check_events(&events)
    }

    /// Checks the history against all of the log's events, in order.
    ///
    /// # Errors
    /// Each broken guarantee, one per line.
    pub fn check_events(&self, events: &[RecordedEvent]) -> Result<Checked, String> {
        let record = self.record();
        let mut broken = record.broken.clone();
        let log = FinalLog::new(events, &mut broken);
        record.check_shown(events, &mut broken);
        let time = RealTime::new(&record, &log, &mut broken);
        let keys = KeyLog::new(&log, &time, &mut broken);
        check_commits::check(&record, Knowledge { log: &log, time: &time, keys: &keys }, &mut broken);
        check_reads::check(&record, &log, &time, &mut broken);
        if broken.is_empty() { Ok(record.summary(&log)) } else { Err(broken.into_text()) }
    }

    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns every event of a log, in order.
///
/// # Errors
/// The error of a read that was refused.
pub async fn read_all(log: &Arc<dyn EventLog>) -> Result<Vec<RecordedEvent>, ReadError> {
    let mut query = LogQuery { from: Some(0), limit: limits::PAGE_MAX, ..LogQuery::default() };
    let mut events = Vec::new();
    loop {
        let page = log.read(query.clone()).await?;
        if page.events.is_empty() {
            return Ok(events);
        }
        events.extend(page.events);
        query.from = Some(page.next);
    }
}

/// The broken guarantees found so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Broken(Vec<String>);

impl Broken {
    pub(crate) fn note(&mut self, promise: impl Into<String>) {
        self.0.push(promise.into());
    }

    pub(crate) fn note_unless(&mut self, holds: bool, promise: impl FnOnce() -> String) {
        if !holds {
            self.0.push(promise());
        }
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the first of them as text: one cause often breaks hundreds.
    fn into_text(self) -> String {
        const SHOWN_MAX: usize = 20;
        let more = self.0.len().saturating_sub(SHOWN_MAX);
        let mut text = self.0.into_iter().take(SHOWN_MAX).collect::<Vec<_>>().join("\n");
        if more > 0 {
            text.push_str(&format!("\nand {more} more"));
        }
        text
    }
}
