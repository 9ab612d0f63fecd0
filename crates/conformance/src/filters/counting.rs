//! A store that counts the events that are read from its log.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use annals_core::{
    EventLog, Identity, LogPage, LogQuery, LogStatus, PrepareKeys, Queries, ReadError, Records, Snapshots, Store,
    StreamDefinitions, Streams, UnknownLog,
};
use async_trait::async_trait;

use crate::tap::{Tap, Tapped};

/// Counts events that are read.
#[derive(Default)]
pub(super) struct Count(AtomicUsize);

impl Count {
    pub fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Tap for Count {
    async fn read(&self, log: &dyn EventLog, query: LogQuery) -> Result<LogPage, ReadError> {
        let page = log.read(query).await?;
        self.0.fetch_add(page.events.len(), Ordering::SeqCst);
        Ok(page)
    }
}

/// A store whose log is read through a count.
pub(super) struct Counting {
    pub inner: Arc<dyn Store>,
    pub count: Arc<Count>,
}

#[async_trait]
impl Store for Counting {
    fn log(&self, tenant: &str, scope: &str) -> Result<Arc<dyn EventLog>, UnknownLog> {
        Ok(Tapped::new(self.inner.log(tenant, scope)?, Arc::clone(&self.count)))
    }

    fn records(&self, tenant: &str) -> Result<Arc<dyn Records>, UnknownLog> {
        self.inner.records(tenant)
    }

    fn snapshots(&self, tenant: &str) -> Result<Arc<dyn Snapshots>, UnknownLog> {
        self.inner.snapshots(tenant)
    }

    fn queries(&self, tenant: &str) -> Result<Arc<dyn Queries>, UnknownLog> {
        self.inner.queries(tenant)
    }

    fn prepare_keys(&self, tenant: &str) -> Result<Arc<dyn PrepareKeys>, UnknownLog> {
        self.inner.prepare_keys(tenant)
    }

    fn streams(&self, tenant: &str, scope: &str) -> Result<Arc<dyn Streams>, UnknownLog> {
        self.inner.streams(tenant, scope)
    }

    fn stream_definitions(&self, tenant: &str, scope: &str) -> Result<Arc<dyn StreamDefinitions>, UnknownLog> {
        self.inner.stream_definitions(tenant, scope)
    }

    fn is_shared(&self) -> bool {
        self.inner.is_shared()
    }

    fn tenants(&self) -> Vec<String> {
        self.inner.tenants()
    }

    fn identity(&self, tenant: &str) -> Option<Identity> {
        self.inner.identity(tenant)
    }

    fn status(&self) -> Vec<LogStatus> {
        self.inner.status()
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}
