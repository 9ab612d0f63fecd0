//! What a backend provides to be tested.

use std::sync::Arc;
use std::time::Duration;

use annals_core::{Broker, Store, TopicSettings};
use async_trait::async_trait;

use crate::ManualClock;

/// The second tenant that every [`Subject`] has, beside [`annals_core::DEFAULT_TENANT`].
pub const OTHER_TENANT: &str = "other";

/// The time limit for a case, after which it counts as stuck.
const CASE_SECONDS_MAX: u64 = 300;

/// A store under test. Each value is a new, empty store.
///
/// Its smallest unit of storage (segment, file, page) should be tiny, so that a few hundred commits fill many of them.
#[async_trait]
pub trait Subject: Send + Sync {
    /// Opens the store with the tenant `default` at least. Opening it again after [`Store::close`] returns its previous content.
    async fn open(&self) -> Arc<dyn Store>;

    /// Opens the store with the tenants `default` and [`OTHER_TENANT`]. By default, every store has both. A subject for which tenants are
    /// expensive opens the second one only here.
    async fn open_with_other(&self) -> Arc<dyn Store> {
        self.open().await
    }

    /// Opens the same store again as another process would, if several processes can have it open. By default it returns the same one.
    async fn open_beside(&self, store: &Arc<dyn Store>) -> Arc<dyn Store> {
        store.clone()
    }

    /// Returns the broker to which the events of its default tenant are published, with the settings of its topics; `None` if topics are
    /// views of the log.
    fn broker(&self) -> Option<(Arc<dyn Broker>, TopicSettings)> {
        None
    }

    /// Returns the clock that the store reads. It stands still until a case advances it.
    fn clock(&self) -> Arc<ManualClock>;
}

/// A subject for a case that uses [`OTHER_TENANT`] too.
pub(crate) struct WithOther<'a>(pub(crate) &'a dyn Subject);

#[async_trait]
impl Subject for WithOther<'_> {
    async fn open(&self) -> Arc<dyn Store> {
        self.0.open_with_other().await
    }

    async fn open_beside(&self, store: &Arc<dyn Store>) -> Arc<dyn Store> {
        self.0.open_beside(store).await
    }

    fn broker(&self) -> Option<(Arc<dyn Broker>, TopicSettings)> {
        self.0.broker()
    }

    fn clock(&self) -> Arc<ManualClock> {
        self.0.clock()
    }
}

/// Pauses between two looks at a store. With a shorter pause, a store in another process is busy with looks only.
pub(crate) async fn between_looks() {
    // tidy: allow(pause) between two looks at the store
    tokio::time::sleep(Duration::from_millis(4)).await;
}

/// Runs one case to its end, on a runtime with two threads.
///
/// # Panics
/// When the case fails or is stuck.
pub fn run(subject: impl Subject, case: impl AsyncFn(&dyn Subject)) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime can be built").block_on(async {
        let limit = Duration::from_secs(CASE_SECONDS_MAX);
        tokio::time::timeout(limit, case(&subject)).await.expect("the case ends in time");
    });
}
