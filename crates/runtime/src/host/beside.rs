//! The hosts of this process. Two of them on the same unshared store must not take leases from each other.

use std::sync::{Arc, LazyLock, Mutex};

use annals_core::Store;
use tokio::sync::watch;

use super::locked;

/// A host that has not been drained.
struct Running {
    process: String,
    /// The address of its store in memory, which identifies the store.
    store: usize,
}

static RUNNING: Mutex<Vec<Running>> = Mutex::new(Vec::new());

/// Counts the hosts that have started.
static STARTED: LazyLock<watch::Sender<u64>> = LazyLock::new(|| watch::Sender::new(0));

fn place_of(store: &Arc<dyn Store>) -> usize {
    Arc::as_ptr(store).cast::<()>().addr()
}

/// Registers a host that starts.
pub(super) fn entered(store: &Arc<dyn Store>, process: &str) {
    locked(&RUNNING).push(Running { process: process.to_owned(), store: place_of(store) });
    STARTED.send_modify(|count| *count += 1);
}

/// Subscribes to the starts of further hosts.
pub(super) fn changes() -> watch::Receiver<u64> {
    STARTED.subscribe()
}

/// Removes a host that has ended. Idempotent.
pub(super) fn left(process: &str) {
    locked(&RUNNING).retain(|running| running.process != process);
}

/// Returns whether a host of this name runs in this process.
pub(super) fn is_running(process: &str) -> bool {
    locked(&RUNNING).iter().any(|running| running.process == process)
}

/// Returns whether more than one host of this process runs on this store.
pub(super) fn is_shared(store: &Arc<dyn Store>) -> bool {
    let place = place_of(store);
    locked(&RUNNING).iter().filter(|running| running.store == place).count() > 1
}
