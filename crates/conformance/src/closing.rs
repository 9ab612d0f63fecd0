//! A store that is being closed: it accepts no verdicts and no received events, and everything can still be read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use annals_core::{
    Appended, ReceiveError, Received, ReceivedBatch, Receiving, Store, StoreError, StreamError, Streams, Verdicts,
};
use async_trait::async_trait;

use crate::handlers::opened::Opened;
use crate::tap::{TapReceiving, TapStreams, TappedStore};

/// More refusals than a task meets if it pauses after each.
const REFUSED_MAX: usize = 20;

/// Refuses writes until it is over.
#[derive(Default)]
pub(crate) struct Closing {
    refused: AtomicUsize,
    is_over: AtomicBool,
}

impl Closing {
    /// Puts it in front of the streams and the receiving side of a store.
    pub fn before(store: Arc<dyn Store>) -> (Arc<dyn Store>, Arc<Self>) {
        let closing = Arc::new(Self::default());
        let store: Arc<dyn Store> = Arc::new(TappedStore::new(store).with_streams(&closing).with_receiving(&closing));
        (store, closing)
    }

    /// Waits until a task of this host pauses before its restart, and then lets writes through. Checks that the task does not restart
    /// repeatedly without a pause. Time passes meanwhile.
    pub async fn until_paused(&self, it: &Opened, task: &str) {
        let is_paused = || it.host.tasks().iter().any(|running| running.name == task && running.restarts > 0);
        loop {
            let refused = self.refused.load(Ordering::SeqCst);
            if refused > 0 && is_paused() {
                break;
            }
            assert!(refused < REFUSED_MAX, "{task} was refused {refused} times, and begins again at once");
            it.advance(1);
            crate::between_looks().await;
        }
        assert_eq!(self.refused.load(Ordering::SeqCst), 1, "it pauses after the first refusal");
        self.is_over.store(true, Ordering::SeqCst);
    }

    /// Returns whether a write is refused, and counts it if it is.
    fn refuses(&self) -> bool {
        let refuses = !self.is_over.load(Ordering::SeqCst);
        if refuses {
            self.refused.fetch_add(1, Ordering::SeqCst);
        }
        refuses
    }
}

#[async_trait]
impl TapStreams for Closing {
    async fn append(&self, streams: &dyn Streams, verdicts: Verdicts) -> Result<Appended, StreamError> {
        if self.refuses() { Err(StreamError::Store(StoreError::Closed)) } else { streams.append(verdicts).await }
    }
}

#[async_trait]
impl TapReceiving for Closing {
    async fn receive(&self, receiving: &dyn Receiving, batch: ReceivedBatch) -> Result<Received, ReceiveError> {
        if self.refuses() { Err(ReceiveError::Store(StoreError::Closed)) } else { receiving.receive(batch).await }
    }
}
