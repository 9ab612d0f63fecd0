//! The life of a process that is killed at one of its writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use annals_core::{
    Appended, CommitError, CommitOutcome, EventLog, NewCommit, ReceiveError, Received, ReceivedBatch, Receiving,
    RecordChange, RecordError, Records, Revision, Store, StoreError, StreamDefinition, StreamDefinitions, StreamError,
    Streams, Verdicts,
};
use async_trait::async_trait;

use crate::tap::{Tap, TapDefinitions, TapReceiving, TapRecords, TapStreams, TappedStore};

/// The life of a process: it ends at one of its writes.
pub(crate) struct Life {
    /// The prefixes of the names of collections whose batches are steps.
    steps: &'static [&'static str],
    left: AtomicI64,
    /// Whether its last write reaches the store. The process never gets the answer.
    applied: bool,
    over: AtomicBool,
}

enum Write {
    Goes,
    Last,
    Never,
}

impl Life {
    /// Returns a life that ends at the write after this many. That write is applied without an answer, or not at all. Steps are its
    /// commits, appends to streams, definitions and received batches, and its batches of records of `steps`.
    pub fn of(steps: &'static [&'static str], writes: i64, applied: bool) -> Arc<Self> {
        Arc::new(Self { steps, left: AtomicI64::new(writes), applied, over: AtomicBool::default() })
    }

    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// Returns a store as this process has it open.
    pub fn store(self: &Arc<Self>, store: &Arc<dyn Store>) -> Arc<dyn Store> {
        let store = TappedStore::new(Arc::clone(store)).with_log(self).with_records(self);
        Arc::new(store.with_streams(self).with_definitions(self).with_receiving(self))
    }

    fn next(&self) -> Write {
        match self.left.fetch_sub(1, Ordering::SeqCst) {
            1.. => Write::Goes,
            0 => Write::Last,
            _ => Write::Never,
        }
    }

    /// Performs a write if the process is alive; returns `None` if it is not.
    pub async fn step<T>(&self, write: impl Future<Output = T>) -> Option<T> {
        match self.next() {
            Write::Goes => Some(write.await),
            // The last write may still be in progress, but a caller whose write fails must already see the process as dead.
            Write::Never => {
                self.over.store(true, Ordering::SeqCst);
                None
            }
            Write::Last => {
                if self.applied {
                    write.await;
                }
                self.over.store(true, Ordering::SeqCst);
                None
            }
        }
    }

    fn is_step(&self, change: &RecordChange) -> bool {
        self.steps.iter().any(|beginning| change.collection().starts_with(beginning))
    }
}

/// Calls `run` for every possible life of a process: one that ends at the first write, at the second, and so on, until the process
/// survives. It does so with the last write lost, and then with it applied. `run` gets a number, unique to the call, and returns whether
/// the process was killed. Returns how often it was.
pub(crate) async fn at_each_write(
    steps: &'static [&'static str],
    run: impl AsyncFn(Arc<Life>, usize) -> bool,
) -> usize {
    let (mut runs, mut kills) = (0, 0);
    for applied in [false, true] {
        for writes in 0.. {
            runs += 1;
            if !run(Life::of(steps, writes, applied), runs).await {
                break;
            }
            kills += 1;
        }
    }
    kills
}

#[async_trait]
impl Tap for Life {
    async fn commit(&self, log: &dyn EventLog, commit: NewCommit) -> Result<CommitOutcome, CommitError> {
        self.step(log.commit(commit)).await.unwrap_or(Err(CommitError::Store(StoreError::Closed)))
    }
}

#[async_trait]
impl TapRecords for Life {
    async fn write(&self, records: &dyn Records, changes: Vec<RecordChange>) -> Result<Vec<Revision>, RecordError> {
        let closed = || Err(StoreError::Closed.into());
        if changes.iter().any(|change| self.is_step(change)) {
            return self.step(records.write(changes)).await.unwrap_or_else(closed);
        }
        // Writes of leases and of other features are not steps. They succeed while the process is alive.
        if self.is_over() { closed() } else { records.write(changes).await }
    }
}

#[async_trait]
impl TapStreams for Life {
    async fn append(&self, streams: &dyn Streams, verdicts: Verdicts) -> Result<Appended, StreamError> {
        self.step(streams.append(verdicts)).await.unwrap_or(Err(StreamError::Store(StoreError::Closed)))
    }
}

#[async_trait]
impl TapDefinitions for Life {
    async fn put(
        &self,
        definitions: &dyn StreamDefinitions,
        stream: &str,
        definition: StreamDefinition,
    ) -> Result<(), StoreError> {
        self.step(definitions.put(stream, definition)).await.unwrap_or(Err(StoreError::Closed))
    }
}

#[async_trait]
impl TapReceiving for Life {
    async fn receive(&self, receiving: &dyn Receiving, batch: ReceivedBatch) -> Result<Received, ReceiveError> {
        self.step(receiving.receive(batch)).await.unwrap_or(Err(ReceiveError::Store(StoreError::Closed)))
    }
}
