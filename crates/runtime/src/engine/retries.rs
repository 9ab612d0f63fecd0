//! Counters of the retries of handlers and groups in this process.

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::host::{Host, locked};

/// The retries of a handler or group in this process since it started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryMetrics {
    /// The tenant.
    pub tenant: String,
    /// `handler` or `group`.
    pub kind: &'static str,
    /// The name of the handler or group.
    pub processor: String,
    /// Attempts of events after their first one, except for dead letters.
    pub events: u64,
    /// Attempts of dead letters after their first one.
    pub letters: u64,
}

impl Host {
    /// Returns the counters of each handler and group that this process has owned.
    pub fn retry_metrics(&self) -> Vec<RetryMetrics> {
        self.0.shared.retries.counted()
    }
}

/// The number of retries of events, and of dead letters.
pub(crate) type Retried = (u64, u64);

/// The retries of handlers and groups, by tenant, kind and name.
#[derive(Default)]
pub(crate) struct RetryCounts(Mutex<BTreeMap<(String, &'static str, String), Retried>>);

impl RetryCounts {
    /// Counts retries that are handed out. A handler or group without retries is listed with 0.
    pub fn handed_out(&self, tenant: &str, kind: &'static str, processor: &str, (events, letters): Retried) {
        let mut counts = locked(&self.0);
        let counted = counts.entry((tenant.to_owned(), kind, processor.to_owned())).or_default();
        counted.0 += events;
        counted.1 += letters;
    }

    fn counted(&self) -> Vec<RetryMetrics> {
        let counts = locked(&self.0);
        let metrics = counts.iter().map(|((tenant, kind, processor), (events, letters))| RetryMetrics {
            tenant: tenant.clone(),
            kind,
            processor: processor.clone(),
            events: *events,
            letters: *letters,
        });
        metrics.collect()
    }
}
