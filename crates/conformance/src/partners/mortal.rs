//! The life of a process that is killed at one of its writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use annals_core::{
    CommitError, CommitOutcome, EventLog, NewCommit, RecordChange, RecordError, Records, Revision, StoreError,
};
use async_trait::async_trait;

use crate::tap::{Tap, TapRecords};

/// How long a process lives: for so many writes of partners and of the log.
pub(super) struct Life {
    left: AtomicI64,
    /// Whether its last write reaches the store, whose answer it never sees.
    applied: bool,
    over: AtomicBool,
}

enum Write {
    Goes,
    Last,
    Never,
}

impl Life {
    /// Ends at the write after this many. That write is applied without an answer, or not at all.
    pub fn of(writes: i64, applied: bool) -> Arc<Self> {
        Arc::new(Self { left: AtomicI64::new(writes), applied, over: AtomicBool::default() })
    }

    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    fn next(&self) -> Write {
        match self.left.fetch_sub(1, Ordering::SeqCst) {
            1.. => Write::Goes,
            0 => Write::Last,
            _ => Write::Never,
        }
    }

    /// Makes a write, if the process lives. None once it does not.
    async fn step<T>(&self, write: impl Future<Output = T>) -> Option<T> {
        match self.next() {
            Write::Goes => Some(write.await),
            Write::Never => None,
            Write::Last => {
                if self.applied {
                    write.await;
                }
                self.over.store(true, Ordering::SeqCst);
                None
            }
        }
    }
}

#[async_trait]
impl Tap for Life {
    async fn commit(&self, log: &dyn EventLog, commit: NewCommit) -> Result<CommitOutcome, CommitError> {
        self.step(log.commit(commit)).await.unwrap_or(Err(CommitError::Store(StoreError::Closed)))
    }
}

fn is_of_partners(collection: &str) -> bool {
    ["partner_events", "annals-partner"].iter().any(|beginning| collection.starts_with(beginning))
}

#[async_trait]
impl TapRecords for Life {
    async fn write(&self, records: &dyn Records, changes: Vec<RecordChange>) -> Result<Vec<Revision>, RecordError> {
        let closed = || Err(StoreError::Closed.into());
        if changes.iter().any(|change| is_of_partners(change.collection())) {
            return self.step(records.write(changes)).await.unwrap_or_else(closed);
        }
        // Leases and what other features keep go on while the process lives, and are no steps.
        if self.is_over() { closed() } else { records.write(changes).await }
    }
}
