//! The suite of the port, on a disk in memory and on a real one, with segments so small that every case crosses many of them, and with
//! such that hold a whole case.

use std::sync::Arc;

use annals_conformance::model::EPOCH;
use annals_conformance::{ManualClock, OTHER_TENANT, Subject};
use annals_core::{DEFAULT_TENANT, Store};
use annals_embedded::disk::{Disk, MemoryDisk, RealDisk};
use annals_embedded::{EmbeddedStore, Options};
use async_trait::async_trait;

use crate::stores::{roomy_segments, tiny_segments};

pub struct Embedded {
    disk: Arc<dyn Disk>,
    options: Options,
    clock: Arc<ManualClock>,
    _folder: Option<tempfile::TempDir>,
}

impl Embedded {
    pub fn in_memory(options: Options) -> Self {
        Self::on(Arc::new(MemoryDisk::default()), options, None)
    }

    pub fn in_a_folder(options: Options) -> Self {
        let folder = tempfile::tempdir().expect("a folder can be made");
        Self::on(Arc::new(RealDisk::new(folder.path().join("store"))), options, Some(folder))
    }

    fn on(disk: Arc<dyn Disk>, options: Options, folder: Option<tempfile::TempDir>) -> Self {
        let clock = Arc::new(ManualClock::at(EPOCH));
        Self { disk, options: Options { clock: clock.clone(), ..options }, clock, _folder: folder }
    }
}

#[async_trait]
impl Subject for Embedded {
    async fn open(&self) -> Arc<dyn Store> {
        let tenants = [DEFAULT_TENANT, OTHER_TENANT].map(str::to_owned).to_vec();
        let options = Options { tenants, ..self.options.clone() };
        Arc::new(EmbeddedStore::open(self.disk.clone(), options).expect("the store opens"))
    }

    fn clock(&self) -> Arc<ManualClock> {
        self.clock.clone()
    }
}

mod memory {
    use super::*;
    annals_conformance::event_log!(Embedded::in_memory(roomy_segments()));
    annals_conformance::prepare!(Embedded::in_memory(roomy_segments()));
}

mod memory_with_tiny_segments {
    use super::*;
    annals_conformance::event_log!(Embedded::in_memory(tiny_segments()));
    annals_conformance::prepare!(Embedded::in_memory(tiny_segments()));
}

mod real_disk {
    use super::*;
    annals_conformance::event_log!(Embedded::in_a_folder(roomy_segments()));
    annals_conformance::prepare!(Embedded::in_a_folder(roomy_segments()));
}

mod real_disk_with_tiny_segments {
    use super::*;
    annals_conformance::event_log!(Embedded::in_a_folder(tiny_segments()));
    annals_conformance::prepare!(Embedded::in_a_folder(tiny_segments()));
}
