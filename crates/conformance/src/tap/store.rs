//! A store whose ports are behind taps.

use std::borrow::Cow;
use std::sync::Arc;

use annals_core::doctor::Diagnosis;
use annals_core::types::EventTypes;
use annals_core::{
    Backup, EventLog, Identity, LogStatus, PrepareKeys, Queries, Receiving, Records, Sequencing, Snapshots, Store,
    StoreError, StreamDefinitions, Streams, UnknownLog,
};
use async_trait::async_trait;

use super::{
    Tap, TapDefinitions, TapReceiving, TapRecords, TapStreams, Tapped, TappedDefinitions, TappedReceiving,
    TappedRecords, TappedStreams,
};

type Before<Port> = Box<dyn Fn(Arc<Port>) -> Arc<Port> + Send + Sync>;
type Reports = Box<dyn Fn(Identity) -> Identity + Send + Sync>;

/// A store in front of another. Calls without a tap are forwarded.
pub struct TappedStore {
    inner: Arc<dyn Store>,
    log: Before<dyn EventLog>,
    records: Before<dyn Records>,
    types: Before<dyn EventTypes>,
    streams: Before<dyn Streams>,
    definitions: Before<dyn StreamDefinitions>,
    receiving: Before<dyn Receiving>,
    identity: Reports,
}

impl TappedStore {
    /// Returns a store that forwards everything.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self {
            inner,
            log: Box::new(|log| log),
            records: Box::new(|records| records),
            types: Box::new(|types| types),
            streams: Box::new(|streams| streams),
            definitions: Box::new(|definitions| definitions),
            receiving: Box::new(|receiving| receiving),
            identity: Box::new(|identity| identity),
        }
    }

    /// Puts `tap` in front of every log.
    #[must_use]
    pub fn with_log<T: Tap>(self, tap: &Arc<T>) -> Self {
        let tap = Arc::clone(tap);
        let log = move |log: Arc<dyn EventLog>| -> Arc<dyn EventLog> { Tapped::new(log, Arc::clone(&tap)) };
        Self { log: Box::new(log), ..self }
    }

    /// Puts `tap` in front of the records of every tenant.
    #[must_use]
    pub fn with_records<T: TapRecords>(self, tap: &Arc<T>) -> Self {
        let tap = Arc::clone(tap);
        let records = move |it: Arc<dyn Records>| -> Arc<dyn Records> { TappedRecords::new(it, Arc::clone(&tap)) };
        Self { records: Box::new(records), ..self }
    }

    /// Puts `tap` in front of the streams of every scope.
    #[must_use]
    pub fn with_streams<T: TapStreams>(self, tap: &Arc<T>) -> Self {
        let tap = Arc::clone(tap);
        let streams = move |it: Arc<dyn Streams>| -> Arc<dyn Streams> { TappedStreams::new(it, Arc::clone(&tap)) };
        Self { streams: Box::new(streams), ..self }
    }

    /// Puts `tap` in front of the definitions of the streams of every scope.
    #[must_use]
    pub fn with_definitions<T: TapDefinitions>(self, tap: &Arc<T>) -> Self {
        let tap = Arc::clone(tap);
        let definitions = move |it: Arc<dyn StreamDefinitions>| -> Arc<dyn StreamDefinitions> {
            TappedDefinitions::new(it, Arc::clone(&tap))
        };
        Self { definitions: Box::new(definitions), ..self }
    }

    /// Puts `tap` in front of the receiving port of every scope.
    #[must_use]
    pub fn with_receiving<T: TapReceiving>(self, tap: &Arc<T>) -> Self {
        let tap = Arc::clone(tap);
        let receiving =
            move |it: Arc<dyn Receiving>| -> Arc<dyn Receiving> { TappedReceiving::new(it, Arc::clone(&tap)) };
        Self { receiving: Box::new(receiving), ..self }
    }

    /// Replaces the registry of every tenant with what `types` makes of it.
    #[must_use]
    pub fn with_types(
        self,
        types: impl Fn(Arc<dyn EventTypes>) -> Arc<dyn EventTypes> + Send + Sync + 'static,
    ) -> Self {
        Self { types: Box::new(types), ..self }
    }

    /// Replaces the identity of every tenant with what `identity` makes of it.
    #[must_use]
    pub fn with_identity(self, identity: impl Fn(Identity) -> Identity + Send + Sync + 'static) -> Self {
        Self { identity: Box::new(identity), ..self }
    }
}

#[async_trait]
impl Store for TappedStore {
    fn log(&self, tenant: &str, scope: &str) -> Result<Arc<dyn EventLog>, UnknownLog> {
        Ok((self.log)(self.inner.log(tenant, scope)?))
    }

    fn records(&self, tenant: &str) -> Result<Arc<dyn Records>, UnknownLog> {
        Ok((self.records)(self.inner.records(tenant)?))
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
        Ok((self.streams)(self.inner.streams(tenant, scope)?))
    }

    fn stream_definitions(&self, tenant: &str, scope: &str) -> Result<Arc<dyn StreamDefinitions>, UnknownLog> {
        Ok((self.definitions)(self.inner.stream_definitions(tenant, scope)?))
    }

    fn receiving(&self, tenant: &str, scope: &str) -> Result<Arc<dyn Receiving>, UnknownLog> {
        Ok((self.receiving)(self.inner.receiving(tenant, scope)?))
    }

    fn event_types(&self, tenant: &str) -> Result<Arc<dyn EventTypes>, UnknownLog> {
        Ok((self.types)(self.inner.event_types(tenant)?))
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
        self.inner.identity(tenant).map(&self.identity)
    }

    fn identity_since(&self, tenant: &str, scope: &str, seen: u32) -> Option<Identity> {
        self.inner.identity_since(tenant, scope, seen).map(&self.identity)
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
