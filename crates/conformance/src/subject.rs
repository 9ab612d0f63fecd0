//! What a backend gives to be tested.

use std::sync::Arc;
use std::time::Duration;

use annals_core::{Broker, Store, TopicSettings};
use async_trait::async_trait;

use crate::ManualClock;

/// The second tenant that every [`Subject`] declares, beside [`annals_core::DEFAULT_TENANT`].
pub const OTHER_TENANT: &str = "other";

/// How long one case may take before it counts as stuck.
const CASE_SECONDS_MAX: u64 = 300;

/// One store under test. Each value of it is a new, empty store.
///
/// Its smallest unit of storage (segment, file, page) should be tiny, so that a few hundred commits cross many of them.
#[async_trait]
pub trait Subject: Send + Sync {
    /// Opens the store with the tenants `default` and [`OTHER_TENANT`]. Opening it again after [`Store::close`] gives what it held.
    async fn open(&self) -> Arc<dyn Store>;

    /// Opens the same store again as another process would, where several may have it open. Otherwise it is the same one.
    async fn open_beside(&self, store: &Arc<dyn Store>) -> Arc<dyn Store> {
        store.clone()
    }

    /// The broker that the events of its default tenant are published to, with the names of its topics; none where topics are views of the
    /// log.
    fn broker(&self) -> Option<(Arc<dyn Broker>, TopicSettings)> {
        None
    }

    /// The clock that the store reads. It stands still until a case moves it on.
    fn clock(&self) -> Arc<ManualClock>;
}

/// Passes the time between two looks at a store. A store that is another process would answer nothing but looks if there were none.
pub(crate) async fn between_looks() {
    // tidy: allow(pause) between two looks at the store
    tokio::time::sleep(Duration::from_millis(1)).await;
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
