//! A store whose commits are checked against the registry.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use annals_core::doctor::Diagnosis;
use annals_core::types::EventTypes;
use annals_core::{
    Backup, Clock, DEFAULT_SCOPE, EventLog, Identity, LogStatus, PrepareKeys, Queries, Receiving, Records, Sequencing,
    Snapshots, Store, StoreError, StreamDefinitions, Streams, UnknownLog,
};
use async_trait::async_trait;

use super::log::TypedLog;
use super::registry::Registry;
use crate::host::locked;

/// A store that checks commits against its registry of event types, and delegates everything else to the inner store.
///
/// `annals::open` returns one.
pub struct TypedStore {
    inner: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    registries: Mutex<BTreeMap<String, Arc<Registry>>>,
}

impl TypedStore {
    /// Creates a store that checks the commits to `inner`.
    pub fn new(inner: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Self {
        Self { inner, clock, registries: Mutex::default() }
    }

    fn registry(&self, tenant: &str) -> Result<Arc<Registry>, UnknownLog> {
        let mut registries = locked(&self.registries);
        if let Some(known) = registries.get(tenant) {
            return Ok(Arc::clone(known));
        }
        let records = self.inner.records(tenant)?;
        let registry = Arc::new(Registry::new(records, Arc::clone(&self.clock), self.inner.is_shared()));
        registries.insert(tenant.to_owned(), Arc::clone(&registry));
        Ok(registry)
    }
}

#[async_trait]
impl Store for TypedStore {
    fn log(&self, tenant: &str, scope: &str) -> Result<Arc<dyn EventLog>, UnknownLog> {
        let log = self.inner.log(tenant, scope)?;
        // Other scopes do not take commits.
        match self.inner.scope_name(scope) == DEFAULT_SCOPE {
            true => Ok(Arc::new(TypedLog { inner: log, registry: self.registry(tenant)? })),
            false => Ok(log),
        }
    }

    fn event_types(&self, tenant: &str) -> Result<Arc<dyn EventTypes>, UnknownLog> {
        Ok(self.registry(tenant)?)
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

    fn receiving(&self, tenant: &str, scope: &str) -> Result<Arc<dyn Receiving>, UnknownLog> {
        self.inner.receiving(tenant, scope)
    }

    fn sequencing(&self, tenant: &str) -> Result<Arc<dyn Sequencing>, UnknownLog> {
        self.inner.sequencing(tenant)
    }

    fn scope_name<'a>(&self, scope: &'a str) -> Cow<'a, str> {
        self.inner.scope_name(scope)
    }

    fn is_shared(&self) -> bool {
        self.inner.is_shared()
    }

    fn tenants(&self) -> Vec<String> {
        self.inner.tenants()
    }

    fn undeclared_logs(&self) -> Result<Vec<(String, String)>, StoreError> {
        self.inner.undeclared_logs()
    }

    fn identity(&self, tenant: &str) -> Option<Identity> {
        self.inner.identity(tenant)
    }

    fn identity_since(&self, tenant: &str, scope: &str, seen: u32) -> Option<Identity> {
        self.inner.identity_since(tenant, scope, seen)
    }

    fn status(&self) -> Vec<LogStatus> {
        self.inner.status()
    }

    async fn examine(&self) -> Diagnosis {
        self.inner.examine().await
    }

    fn backup(&self, earlier: Option<&[u8]>) -> Result<Box<dyn Backup>, StoreError> {
        self.inner.backup(earlier)
    }

    fn backup_without_records(&self) -> Result<Box<dyn Backup>, StoreError> {
        self.inner.backup_without_records()
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}
