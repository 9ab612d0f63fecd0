//! A store that several processes share, as they share a database. A store on a disk or in memory is open in one process at a time, and
//! the engine relies on it: whoever else is named as the owner of a handler there is gone.

use std::sync::Arc;

use annals::types::EventTypes;
use annals::{EventLog, Identity, LogStatus, PrepareKeys, Queries, Records, Snapshots, Store, Streams, UnknownLog};
use async_trait::async_trait;

use crate::service::memory;

struct Shared(Arc<dyn Store>);

/// An empty store in memory that services may share.
pub async fn shared_memory() -> Arc<dyn Store> {
    Arc::new(Shared(memory().await))
}

#[async_trait]
impl Store for Shared {
    fn is_shared(&self) -> bool {
        true
    }

    fn log(&self, tenant: &str, scope: &str) -> Result<Arc<dyn EventLog>, UnknownLog> {
        self.0.log(tenant, scope)
    }

    fn records(&self, tenant: &str) -> Result<Arc<dyn Records>, UnknownLog> {
        self.0.records(tenant)
    }

    fn snapshots(&self, tenant: &str) -> Result<Arc<dyn Snapshots>, UnknownLog> {
        self.0.snapshots(tenant)
    }

    fn queries(&self, tenant: &str) -> Result<Arc<dyn Queries>, UnknownLog> {
        self.0.queries(tenant)
    }

    fn prepare_keys(&self, tenant: &str) -> Result<Arc<dyn PrepareKeys>, UnknownLog> {
        self.0.prepare_keys(tenant)
    }

    fn streams(&self, tenant: &str, scope: &str) -> Result<Arc<dyn Streams>, UnknownLog> {
        self.0.streams(tenant, scope)
    }

    fn event_types(&self, tenant: &str) -> Result<Arc<dyn EventTypes>, UnknownLog> {
        self.0.event_types(tenant)
    }

    fn tenants(&self) -> Vec<String> {
        self.0.tenants()
    }

    fn identity(&self, tenant: &str) -> Option<Identity> {
        self.0.identity(tenant)
    }

    fn status(&self) -> Vec<LogStatus> {
        self.0.status()
    }

    async fn close(&self) {
        self.0.close().await;
    }
}
