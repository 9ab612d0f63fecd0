//! The suite of work queues, with definitions in a store in memory and items in Redis.

use std::sync::Arc;

use annals_conformance::queue::Holding;
use annals_conformance::{ManualClock, OTHER_TENANT, Subject};
use annals_core::queue::QueueBackend;
use annals_core::{DEFAULT_TENANT, Store, Timestamp};
use annals_embedded::disk::{Disk, MemoryDisk};
use annals_embedded::{EmbeddedStore, Options};
use annals_redis::RedisQueues;
use async_trait::async_trait;

/// A store in memory, whose id is its own: so are its keys in Redis.
pub struct Defined {
    disk: Arc<dyn Disk>,
    clock: Arc<ManualClock>,
}

impl Defined {
    pub fn new() -> Self {
        let clock = ManualClock::at(Timestamp::from_millis(1_800_000_000_000));
        Self { disk: Arc::new(MemoryDisk::default()), clock: Arc::new(clock) }
    }
}

#[async_trait]
impl Subject for Defined {
    async fn open(&self) -> Arc<dyn Store> {
        let tenants = [DEFAULT_TENANT, OTHER_TENANT].map(str::to_owned).to_vec();
        let options = Options { tenants, clock: self.clock.clone(), ..Options::default() };
        Arc::new(EmbeddedStore::open(Arc::clone(&self.disk), options).expect("the store opens"))
    }

    fn clock(&self) -> Arc<ManualClock> {
        Arc::clone(&self.clock)
    }
}

/// The items are in the Redis at this URL.
pub struct InRedis(pub String);

impl InRedis {
    pub fn shared() -> Self {
        Self(std::env::var("ANNALS_TEST_REDIS").expect("`cargo xtask services redis` prints ANNALS_TEST_REDIS"))
    }
}

#[async_trait]
impl Holding for InRedis {
    fn backend(&self, clock: &Arc<ManualClock>) -> Option<Arc<dyn QueueBackend>> {
        let clock = Arc::clone(clock);
        Some(Arc::new(RedisQueues::open(&self.0, clock).expect("a URL")))
    }

    async fn lose_payload(&self, store: &dyn Store, queue: &str, id: &str) {
        let store_id = store.identity(DEFAULT_TENANT).expect("declared").store_id;
        let key = format!("annals:{{{store_id}/{DEFAULT_TENANT}/{queue}}}:payloads");
        let client = redis::Client::open(&*self.0).expect("a URL");
        let mut connection = client.get_multiplexed_async_connection().await.expect("connected");
        let removed: u64 = redis::cmd("HDEL").arg(key).arg(id).query_async(&mut connection).await.expect("removed");
        assert_eq!(removed, 1, "it was there");
    }
}

mod on_redis {
    use super::*;
    annals_conformance::queue!(Defined::new(), InRedis::shared());
}
