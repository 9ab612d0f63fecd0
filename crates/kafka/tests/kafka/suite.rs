//! The suite of brokers, and that of guards, with the log in a store in memory and the topics on Kafka.

use std::sync::Arc;

use annals_conformance::{ManualClock, OTHER_TENANT, Subject};
use annals_core::{Broker, Clock, DEFAULT_TENANT, Store, TopicSettings};
use annals_embedded::disk::{Disk, MemoryDisk};
use annals_embedded::{EmbeddedStore, Options};
use annals_system::SystemClock;
use async_trait::async_trait;

use crate::support::{address, broker_at, settings};

/// A store in memory whose events are published to the Kafka of the run, on topics that no other test has.
struct Published {
    disk: Arc<dyn Disk>,
    clock: Arc<ManualClock>,
    settings: TopicSettings,
}

impl Published {
    fn new() -> Self {
        // Kafka deletes what is older than the retention of its topic, by its own clock.
        let clock = Arc::new(ManualClock::at(SystemClock.now()));
        Self { disk: Arc::new(MemoryDisk::default()), clock, settings: settings() }
    }
}

#[async_trait]
impl Subject for Published {
    async fn open(&self) -> Arc<dyn Store> {
        let tenants = [DEFAULT_TENANT, OTHER_TENANT].map(str::to_owned).to_vec();
        let options = Options { tenants, clock: self.clock.clone(), ..Options::default() };
        Arc::new(EmbeddedStore::open(Arc::clone(&self.disk), options).expect("the store opens"))
    }

    fn broker(&self) -> Option<(Arc<dyn Broker>, TopicSettings)> {
        Some((broker_at(&address(), &self.settings), self.settings.clone()))
    }

    fn clock(&self) -> Arc<ManualClock> {
        Arc::clone(&self.clock)
    }
}

annals_conformance::broker!(copies: Published::new());
annals_conformance::groups!(copies: Published::new());
