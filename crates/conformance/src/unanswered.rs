//! A caller that goes away while it is served: after its first write, and before it gets the answer.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use annals_core::{RecordChange, RecordError, Records, Revision, Store};
use async_trait::async_trait;
use tokio::sync::watch;

use crate::tap::{TapRecords, TappedStore};

/// Stores one batch that changes a collection, and does not answer it before its caller has gone.
pub(crate) struct Unanswered {
    collection: &'static str,
    /// Whether the next batch is the one to hold.
    holds: AtomicBool,
    stored: watch::Sender<bool>,
    gone: watch::Sender<bool>,
}

impl Unanswered {
    /// Puts it in front of the records of a store.
    pub fn before(store: Arc<dyn Store>, collection: &'static str) -> (Arc<dyn Store>, Arc<Self>) {
        let (stored, gone) = (watch::Sender::new(false), watch::Sender::new(false));
        let unanswered = Arc::new(Self { collection, holds: AtomicBool::new(false), stored, gone });
        let store: Arc<dyn Store> = Arc::new(TappedStore::new(store).with_records(&unanswered));
        (store, unanswered)
    }

    /// Begins a call, and drops it once it has changed the collection. Works once only.
    pub async fn abandon<T: Debug>(&self, call: impl Future<Output = T>) {
        self.holds.store(true, Ordering::SeqCst);
        let stored = async {
            let _ = self.stored.subscribe().wait_for(|stored| *stored).await;
        };
        tokio::select! {
            ended = call => panic!("it ended without a change: {ended:?}"),
            () = stored => {}
        }
        self.gone.send_replace(true);
    }
}

#[async_trait]
impl TapRecords for Unanswered {
    async fn write(&self, records: &dyn Records, changes: Vec<RecordChange>) -> Result<Vec<Revision>, RecordError> {
        let is_its = changes.iter().any(|change| change.collection() == self.collection);
        let held = is_its && self.holds.swap(false, Ordering::SeqCst);
        let written = records.write(changes).await;
        if held {
            self.stored.send_replace(true);
            let _ = self.gone.subscribe().wait_for(|gone| *gone).await;
        }
        written
    }
}
