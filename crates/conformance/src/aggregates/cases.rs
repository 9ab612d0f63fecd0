//! The cases of aggregates, by subject. Those of Wow's kit are among them.

pub mod handling;
pub mod kept;
pub mod known;
pub mod loading;

use std::sync::Arc;

use annals_core::{EventLog, Loaded, Store};
use annals_runtime::Aggregates;

use super::counter::Counter;
use crate::{Subject, sample};

/// An open store and the counters in its log, without snapshots.
struct Opened {
    _store: Arc<dyn Store>,
    log: Arc<dyn EventLog>,
    counters: Aggregates<Counter>,
}

impl Opened {
    async fn of(subject: &dyn Subject) -> Self {
        let (_store, log) = sample::open(subject).await;
        let counters = Aggregates::new(log.clone());
        Self { _store, log, counters }
    }

    async fn load(&self, id: &str) -> Loaded<Counter> {
        self.counters.load(id).await.expect("loads")
    }
}
