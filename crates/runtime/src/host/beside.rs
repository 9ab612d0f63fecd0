//! The hosts of this process. Two of them on one store, which only this process has open, take no lease from each other.

use std::sync::{Arc, LazyLock, Mutex};

use annals_core::Store;
use tokio::sync::watch;

use super::locked;

/// A host that is not drained.
struct Running {
    process: String,
    /// Where its store is in memory, which tells stores apart.
    store: usize,
}

static RUNNING: Mutex<Vec<Running>> = Mutex::new(Vec::new());

/// Counts the hosts that were started.
static STARTED: LazyLock<watch::Sender<u64>> = LazyLock::new(|| watch::Sender::new(0));

fn place_of(store: &Arc<dyn Store>) -> usize {
    Arc::as_ptr(store).cast::<()>().addr()
}

/// A host runs from now on.
pub(super) fn entered(store: &Arc<dyn Store>, process: &str) {
    locked(&RUNNING).push(Running { process: process.to_owned(), store: place_of(store) });
    STARTED.send_modify(|count| *count += 1);
}

/// Tells of each host that starts from now on.
pub(super) fn changes() -> watch::Receiver<u64> {
    STARTED.subscribe()
}

/// A host runs no more. Saying it again does nothing.
pub(super) fn left(process: &str) {
    locked(&RUNNING).retain(|running| running.process != process);
}

/// Whether a host of this name runs in this process.
pub(super) fn is_running(process: &str) -> bool {
    locked(&RUNNING).iter().any(|running| running.process == process)
}

/// Whether more than one host runs on this store.
pub(super) fn is_shared(store: &Arc<dyn Store>) -> bool {
    let place = place_of(store);
    locked(&RUNNING).iter().filter(|running| running.store == place).count() > 1
}
