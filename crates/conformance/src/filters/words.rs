//! Shorthands for the steps of the cases.

use std::sync::Arc;

use annals_core::filters::{
    FilterDefinition, FilterError, FilterName, FilterSettleBody, FilterSettlement, FilterStatus, Filters,
};
use annals_core::handlers::{Delivery, PullBody, SettleResult};
use annals_core::{ByteString, DEFAULT_SCOPE, DEFAULT_TENANT, StreamEntry, StreamQuery, Streams, limits};

use crate::Subject;
use crate::handlers::opened::Opened;

/// A store with a host on it.
pub(super) struct Filtered {
    pub it: Opened,
    pub filters: Arc<dyn Filters>,
    pub streams: Arc<dyn Streams>,
}

/// An entry as the cases write it: its sequence number and its partition.
pub(super) type Entry = (u64, Option<&'static str>);

impl Filtered {
    pub async fn of(subject: &dyn Subject) -> Self {
        Self::on(Opened::of(subject).await)
    }

    pub fn on(it: Opened) -> Self {
        let filters = it.host.filters(DEFAULT_TENANT).expect("declared");
        let streams = it.store.streams(DEFAULT_TENANT, DEFAULT_SCOPE).expect("always there");
        Self { it, filters, streams }
    }

    /// Continues on the same store with a new host that runs the filters, as after a restart.
    pub async fn restarted(self) -> Self {
        let Self { it, filters, streams } = self;
        drop((filters, streams));
        let restarted = Self::on(it.restarted().await);
        restarted.it.host.start_defined();
        restarted
    }

    pub async fn define(&self, definition: FilterDefinition) {
        assert!(self.filters.put(definition).await.expect("defined"), "it is new");
    }

    /// Puts a definition that must be refused. Returns the setting and the event that differ.
    pub async fn refused(&self, definition: FilterDefinition) -> (String, Option<u64>) {
        match self.filters.put(definition).await {
            Err(FilterError::Changed { setting, first_difference, .. }) => (setting, first_difference),
            other => panic!("{other:?}"),
        }
    }

    /// Waits until all events below this number are evaluated. Returns the entries of the stream. Time passes meanwhile.
    pub async fn filled(&self, stream: &str, progress: u64) -> Vec<StreamEntry> {
        loop {
            let info = self.streams.stream(stream).await.expect("reads");
            if info.progress >= progress {
                let query = StreamQuery { limit: limits::PAGE_MAX, ..StreamQuery::new(stream.to_owned()) };
                return self.streams.read(query).await.expect("reads").entries;
            }
            self.it.advance(5);
            tokio::task::yield_now().await;
        }
    }

    /// Waits until all events below this number are evaluated, and compares the entries of the stream.
    pub async fn holds(&self, stream: &str, progress: u64, expected: &[Entry]) {
        let entries = self.filled(stream, progress).await;
        let expected = expected.iter().zip(0..).map(|((sequence_number, partition), position)| StreamEntry {
            position,
            sequence_number: *sequence_number,
            partition: partition.map(ByteString::from_static),
        });
        assert_eq!(entries, expected.collect::<Vec<_>>(), "{stream}");
    }

    pub async fn status(&self, stream: &str) -> FilterStatus {
        self.filters.get(&FilterName::new(stream)).await.expect("defined")
    }

    /// Waits until the status of a filter satisfies `is`. Time passes meanwhile if `passes` is set.
    pub async fn until(&self, stream: &str, passes: bool, is: impl Fn(&FilterStatus) -> bool) -> FilterStatus {
        loop {
            let status = self.status(stream).await;
            if is(&status) {
                return status;
            }
            if passes {
                self.it.advance(5);
            }
            tokio::task::yield_now().await;
        }
    }

    /// Pulls the available events, and waits for the first one.
    pub async fn pull(&self, stream: &str, max: usize) -> Vec<Delivery> {
        let pull = PullBody { max, wait_ms: 50_000, worker: "w".to_owned(), ..PullBody::default() };
        self.filters.pull(&FilterName::new(stream), pull).await.expect("pulled")
    }

    /// Pulls the events that are available now, possibly none.
    pub async fn pull_now(&self, stream: &str) -> Vec<Delivery> {
        let pull = PullBody { max: 100, worker: "w".to_owned(), ..PullBody::default() };
        self.filters.pull(&FilterName::new(stream), pull).await.expect("pulled")
    }

    pub async fn settle(&self, stream: &str, results: Vec<FilterSettlement>) -> Vec<SettleResult> {
        self.filters.settle(&FilterName::new(stream), FilterSettleBody { results }).await.expect("settled")
    }
}
