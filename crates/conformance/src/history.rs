//! What clients of a log were told, over any number of crashes, and whether it keeps the log's promises.
//!
//! Give each client a log that is [watched](History::watch); say when everything under way has [ended](History::restarted); at the
//! end [check](History::check) against the log as it is then. The check needs to know neither the order in which the log worked nor
//! what it did with commits whose outcome nobody learnt: it only rejects what no correct log could have said.
//!
//! - Atomic: each commit in the log is one that somebody sent, whole, its events standing together; a commit of a transaction stands
//!   between the others of it, and no head was told that lies inside of a commit or transaction.
//! - One winner, once per request: versions and request ids occur once; each success, duplicate, conflict and refusal is the one
//!   that the order of judgement gives.
//! - One order, durable: what was told before a call began is below what that call is told, and is in the log in the end.
//! - Prepare keys: each is held by one commit at a time in the order of the log, and a commit is refused because of a key only when
//!   the log, as it can have been then, says so.
//! - Immutable: an event once shown is the same in every other answer and in the end.
//! - Reads return exactly what the log holds in the range they cover.

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

/// Records what clients are told. Shared by all clients of one log.
#[derive(Default)]
pub struct History {
    record: Mutex<Record>,
}

/// How much a checked history holds, so that a test can see that it tested something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Checked {
    /// Commits in the log.
    pub commits: usize,
    /// Commits that were acknowledged as new.
    pub acknowledged: usize,
    /// Transactions that were acknowledged as new; their commits are in `acknowledged` too.
    pub transactions: usize,
    /// Repeats that were recognised.
    pub duplicates: usize,
    /// Commits and transactions refused because of a version, append condition, prepare key, request id or tenantId.
    pub refusals: usize,
    /// Of these, because of a prepare key.
    pub key_refusals: usize,
    /// Commits and transactions whose outcome nobody learnt.
    pub unknown: usize,
    /// Answered reads of all kinds.
    pub reads: usize,
}

impl History {
    /// An empty history.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// The same log, with everything that `client` asks and is told recorded.
    pub fn watch(self: &Arc<Self>, client: &str, log: Arc<dyn EventLog>) -> Arc<dyn EventLog> {
        Arc::new(watch::Watched { history: self.clone(), client: client.into(), log })
    }

    /// Says that the store was stopped, however, and that nothing which was under way can take effect any more.
    pub fn restarted(&self) {
        self.record().restarted();
    }

    /// Reads the whole log and checks the history against it.
    ///
    /// # Errors
    /// Each broken promise, one a line.
    pub async fn check(&self, log: &Arc<dyn EventLog>) -> Result<Checked, String> {
        let events = read_all(log).await.map_err(|error| format!("the log cannot be read: {error}"))?;
        self.check_events(&events)
    }

    /// Checks the history against the log's events, all of them, in order.
    ///
    /// # Errors
    /// Each broken promise, one a line.
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

/// Every event of a log, in order.
///
/// # Errors
/// What a read was refused with.
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

/// Broken promises, found so far.
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

    /// The first of them: one cause often breaks hundreds.
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
