//! How the tests open stores.

use std::sync::Arc;

use annals_conformance::SeededRandomness;
use annals_core::{DEFAULT_SCOPE, DEFAULT_TENANT, EventLog, LogStatus, OpenError, Store};
use annals_embedded::disk::Disk;
use annals_embedded::{EmbeddedStore, Options, Packing};

/// Packs every segment as soon as it has its index, also where nothing is saved.
pub const PACK_ALWAYS: Packing = Packing { behind: 0, bytes_per_second: u64::MAX, least_saving_percent: -1_000 };
pub const PACK_NEVER: Packing = Packing { behind: usize::MAX, ..PACK_ALWAYS };

/// Segments so small that a few commits fill one, and a journal that is moved after a few records.
pub fn tiny_segments() -> Options {
    Options {
        segment_bytes_first: 1_500,
        segment_bytes_max: 6_000,
        journal_bytes_max: 20_000,
        min_free_disk_bytes: 0,
        packing: PACK_NEVER,
        ..Options::default()
    }
}

/// Segments that hold some thousand commits, and do not take long to make.
pub fn roomy_segments() -> Options {
    Options { segment_bytes_first: 1024 * 1024, min_free_disk_bytes: 0, ..Options::default() }
}

/// Tiny segments, and ids that follow from the seed.
pub fn repeatable(seed: u64) -> Options {
    Options { random: Arc::new(SeededRandomness::new(seed)), ..tiny_segments() }
}

/// An open store and its default log.
pub struct Opened {
    pub store: EmbeddedStore,
    pub log: Arc<dyn EventLog>,
}

pub fn open(disk: Arc<dyn Disk>, options: Options) -> Result<Opened, OpenError> {
    let store = EmbeddedStore::open(disk, options)?;
    let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("the default log exists");
    Ok(Opened { store, log })
}

impl Opened {
    pub fn status(&self) -> LogStatus {
        self.store.status().into_iter().find(|log| log.tenant == DEFAULT_TENANT).expect("the log has a status")
    }
}

/// Runs a test that waits, on two threads.
pub fn block_on<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build();
    runtime.expect("a runtime can be built").block_on(test)
}
