//! The port of an open store: its declared tenants, each with a log per scope.

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use crate::doctor::Diagnosis;
use crate::receiving::NoReceiving;
use crate::sequencing::NoSequencer;
use crate::stream_definitions::RecordStreamDefinitions;
use crate::types::{EventTypes, NoTypes};
use crate::{
    Code, EventLog, PrepareKeys, Queries, Receiving, Records, SequenceNumber, SequencerStatus, Sequencing, Snapshots,
    StoreError, StreamDefinitions, Streams, SyncTimes, Uuid,
};

/// An open store. Tenants are declared when it is opened; each is a separate store, with one log per scope.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Returns the log of a tenant's scope.
    ///
    /// # Errors
    /// [`UnknownLog`] when the tenant is not declared or has no such scope. The default scope always exists.
    fn log(&self, tenant: &str, scope: &str) -> Result<Arc<dyn EventLog>, UnknownLog>;

    /// Returns the records of a tenant.
    ///
    /// # Errors
    /// [`UnknownLog::Tenant`] when the tenant is not declared.
    fn records(&self, tenant: &str) -> Result<Arc<dyn Records>, UnknownLog>;

    /// Returns the snapshots of a tenant's aggregates.
    ///
    /// # Errors
    /// [`UnknownLog::Tenant`] when the tenant is not declared.
    fn snapshots(&self, tenant: &str) -> Result<Arc<dyn Snapshots>, UnknownLog>;

    /// Returns the queries on a tenant's snapshots and on the commits of its default scope.
    ///
    /// # Errors
    /// [`UnknownLog::Tenant`] when the tenant is not declared.
    fn queries(&self, tenant: &str) -> Result<Arc<dyn Queries>, UnknownLog>;

    /// Returns the prepare keys of a tenant, the same ones that commits reserve and release.
    ///
    /// # Errors
    /// [`UnknownLog::Tenant`] when the tenant is not declared.
    fn prepare_keys(&self, tenant: &str) -> Result<Arc<dyn PrepareKeys>, UnknownLog>;

    /// Returns the streams of a tenant's scope.
    ///
    /// # Errors
    /// As [`log`](Self::log).
    fn streams(&self, tenant: &str, scope: &str) -> Result<Arc<dyn Streams>, UnknownLog>;

    /// Returns the definitions of the streams of a tenant's scope, in the Dolittle Runtime's shape. They are records, unless the store
    /// keeps them in that layout itself.
    ///
    /// # Errors
    /// As [`log`](Self::log).
    fn stream_definitions(&self, tenant: &str, scope: &str) -> Result<Arc<dyn StreamDefinitions>, UnknownLog> {
        self.streams(tenant, scope)?;
        Ok(Arc::new(RecordStreamDefinitions::new(self.records(tenant)?, &self.scope_name(scope))))
    }

    /// Returns the port that stores events of other microservices in a tenant's scope. In a store that cannot receive events, every call
    /// on it is [`StoreError::NotSupported`].
    ///
    /// # Errors
    /// As [`log`](Self::log), and [`UnknownLog::Scope`] for the default scope, which cannot receive events.
    fn receiving(&self, tenant: &str, scope: &str) -> Result<Arc<dyn Receiving>, UnknownLog> {
        self.log(tenant, scope)?;
        if scope == crate::DEFAULT_SCOPE {
            return Err(UnknownLog::Scope { tenant: tenant.to_owned(), scope: scope.to_owned() });
        }
        Ok(Arc::new(NoReceiving))
    }

    /// Returns the registry of a tenant's event types. A store that was opened through the facade has one; on a bare adapter, every call
    /// on it is [`StoreError::NotSupported`].
    ///
    /// # Errors
    /// [`UnknownLog::Tenant`] when the tenant is not declared.
    fn event_types(&self, tenant: &str) -> Result<Arc<dyn EventTypes>, UnknownLog> {
        self.log(tenant, crate::DEFAULT_SCOPE).map(|_| Arc::new(NoTypes) as Arc<dyn EventTypes>)
    }

    /// Returns the sequencer of a tenant's log. In a store whose own writer assigns the sequence numbers, every call on it is
    /// [`StoreError::NotSupported`].
    ///
    /// # Errors
    /// [`UnknownLog::Tenant`] when the tenant is not declared.
    fn sequencing(&self, tenant: &str) -> Result<Arc<dyn Sequencing>, UnknownLog> {
        self.log(tenant, crate::DEFAULT_SCOPE).map(|_| Arc::new(NoSequencer) as Arc<dyn Sequencing>)
    }

    /// Returns the canonical name of a scope whose name can be written in several ways: a UUID.
    fn scope_name<'a>(&self, scope: &'a str) -> Cow<'a, str> {
        Cow::Borrowed(scope)
    }

    /// Returns whether other processes may have this store open at the same time, so that work is assigned by leases. A store that only
    /// one process can open needs no leases.
    fn is_shared(&self) -> bool {
        false
    }

    /// Returns the declared tenants, sorted by name.
    fn tenants(&self) -> Vec<String>;

    /// Returns the logs that are stored but not open, because their tenant or scope is not declared, each as tenant and scope. The list is
    /// empty if the store cannot find such logs.
    ///
    /// # Errors
    /// [`StoreError::Io`] when the store's folder cannot be read.
    fn undeclared_logs(&self) -> Result<Vec<(String, String)>, StoreError> {
        Ok(Vec::new())
    }

    /// Returns the identity of this tenant's store for its default scope, or `None` if the tenant is not declared.
    fn identity(&self, tenant: &str) -> Option<Identity>;

    /// Returns the identity of this tenant's store for a reader of this scope that last saw incarnation `seen`: `incarnation_start` is
    /// the number up to which that incarnation's log and the current one agree. Scopes may have been cut at different numbers, and more
    /// than once.
    fn identity_since(&self, tenant: &str, scope: &str, seen: u32) -> Option<Identity> {
        let _ = (scope, seen);
        self.identity(tenant)
    }

    /// Reports the status of every open log.
    fn status(&self) -> Vec<LogStatus>;

    /// Examines what the store depends on: its disk, or the deployment that holds it. Reasons for which the store refuses calls are in
    /// [`status`](Self::status) and are not repeated here. Anything that may not be inspected is left out.
    async fn examine(&self) -> Diagnosis {
        Diagnosis::default()
    }

    /// Begins a backup of the whole store, with every log up to its current durable head, while commits continue. The result is an
    /// archive that the same backend can restore.
    ///
    /// `earlier` is the manifest of a backup that the caller still has: data that cannot have changed since is omitted. A manifest that
    /// does not match is ignored.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when a log is damaged, because a part must not be mistaken for the whole; [`StoreError::NotSupported`] if
    /// Annals does not back up this backend.
    fn backup(&self, earlier: Option<&[u8]>) -> Result<Box<dyn Backup>, StoreError> {
        let _ = earlier;
        Err(StoreError::NotSupported("a backup by Annals (use the database's own backup tools)".to_owned()))
    }

    /// Begins a full backup without records and streams, never based on an earlier one, to save the logs of a store whose records are
    /// damaged. The manifest says what was left out.
    ///
    /// # Errors
    /// As for [`backup`](Self::backup).
    fn backup_without_records(&self) -> Result<Box<dyn Backup>, StoreError> {
        Err(StoreError::NotSupported("a backup by Annals (use the database's own backup tools)".to_owned()))
    }

    /// Stops accepting commits, lets those in flight finish, and releases the store. Followers get [`StoreError::Closed`]. Calling it
    /// again does nothing.
    async fn close(&self);
}

/// A backup in progress: an archive produced in chunks. Dropping it ends the backup.
pub trait Backup: Send {
    /// Estimates the size of the archive in bytes.
    fn total_bytes(&self) -> u64;

    /// Returns the next chunk, or `None` at the end. Blocks while reading, and holds at most a few MiB in memory.
    ///
    /// # Errors
    /// [`StoreError::Damaged`], [`StoreError::Io`]. The chunks returned so far are then useless.
    fn next(&mut self) -> Result<Option<Bytes>, StoreError>;
}

/// The identity of a tenant's store. A position is only valid for the store and incarnation it was read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// Generated when the store was created.
    pub store_id: Uuid,
    /// 0 at first; each restore begins the next one.
    pub incarnation: u32,
    /// The first sequence number of this incarnation.
    pub incarnation_start: SequenceNumber,
}

/// The state of one log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogStatus {
    /// Its tenant.
    pub tenant: String,
    /// Its scope.
    pub scope: String,
    /// The number of its events.
    pub head: SequenceNumber,
    /// Why commits are refused, or `None` if they are accepted.
    pub refusing: Option<StoreError>,
    /// Why records and streams of its tenant are refused, if they are stored apart from the log, or `None` if they are accepted.
    pub records_refusing: Option<StoreError>,
    /// Commits made durable since it was opened.
    pub commits: u64,
    /// Batches written and synced since it was opened. Commits divided by this is the average batch size.
    pub syncs: u64,
    /// The durations of its syncs. Failed syncs count with the time until they failed.
    pub sync_times: SyncTimes,
    /// Bytes appended since it was opened.
    pub bytes: u64,
    /// A readable description of what recovery did when it was opened; empty after a clean shutdown.
    pub recovery: Vec<String>,
    /// The sequencer's status; `None` if the log's own writer assigns the sequence numbers.
    pub sequencer: Option<SequencerStatus>,
}

/// The log does not exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnknownLog {
    /// The tenant is not declared.
    #[error("tenant {0:?} is not declared; add it to the configuration under [tenants], or correct the name")]
    Tenant(String),
    /// The tenant has no such scope.
    #[error("tenant {tenant:?} has no scope {scope:?}; leave the scope out for the default one")]
    Scope {
        /// The tenant.
        tenant: String,
        /// The requested scope.
        scope: String,
    },
}

impl UnknownLog {
    /// Returns the stable code of this error.
    pub fn code(&self) -> Code {
        match self {
            Self::Tenant(_) => Code::UnknownTenant,
            Self::Scope { .. } => Code::UnknownScope,
        }
    }
}

/// Why a store could not be opened. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct OpenError {
    /// The stable code.
    pub code: Code,
    /// What is wrong and what to do, in one sentence.
    pub message: String,
}

impl OpenError {
    /// Creates an error with this message.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// Returns advice on what to do, in one sentence. It is the advice for readers, because nothing was to be stored.
    pub fn advice(&self) -> &'static str {
        self.code.advice_to_readers()
    }
}
