//! The port of an open store: its declared tenants, each with its scopes' logs.

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use crate::receiving::NoReceiving;
use crate::sequencing::NoSequencer;
use crate::{
    Code, EventLog, PrepareKeys, Queries, Receiving, Records, SequenceNumber, SequencerStatus, Sequencing, Snapshots,
    StoreError, Streams, Uuid,
};

/// An open store. Tenants are declared when it is opened; each is a whole store of its own, with its own log per scope.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// The log of a tenant's scope.
    ///
    /// # Errors
    /// [`UnknownLog`] when the tenant is not declared or has no such scope. The default scope always exists.
    fn log(&self, tenant: &str, scope: &str) -> Result<Arc<dyn EventLog>, UnknownLog>;

    /// The records of a tenant.
    ///
    /// # Errors
    /// [`UnknownLog::Tenant`] when the tenant is not declared.
    fn records(&self, tenant: &str) -> Result<Arc<dyn Records>, UnknownLog>;

    /// The snapshots of a tenant's aggregates.
    ///
    /// # Errors
    /// [`UnknownLog::Tenant`] when the tenant is not declared.
    fn snapshots(&self, tenant: &str) -> Result<Arc<dyn Snapshots>, UnknownLog>;

    /// The queries of a tenant's snapshots, and of the commits of its default scope.
    ///
    /// # Errors
    /// [`UnknownLog::Tenant`] when the tenant is not declared.
    fn queries(&self, tenant: &str) -> Result<Arc<dyn Queries>, UnknownLog>;

    /// The prepare keys of a tenant: those that commits reserve and release.
    ///
    /// # Errors
    /// [`UnknownLog::Tenant`] when the tenant is not declared.
    fn prepare_keys(&self, tenant: &str) -> Result<Arc<dyn PrepareKeys>, UnknownLog>;

    /// The streams of a tenant's scope.
    ///
    /// # Errors
    /// As [`log`](Self::log).
    fn streams(&self, tenant: &str, scope: &str) -> Result<Arc<dyn Streams>, UnknownLog>;

    /// Returns what receives events of other microservices into a tenant's scope. A store that receives nothing refuses every call of it
    /// with [`StoreError::NotSupported`].
    ///
    /// # Errors
    /// As [`log`](Self::log), and [`UnknownLog::Scope`] for the default scope, which receives nothing.
    fn receiving(&self, tenant: &str, scope: &str) -> Result<Arc<dyn Receiving>, UnknownLog> {
        self.log(tenant, scope)?;
        if scope == crate::DEFAULT_SCOPE {
            return Err(UnknownLog::Scope { tenant: tenant.to_owned(), scope: scope.to_owned() });
        }
        Ok(Arc::new(NoReceiving))
    }

    /// What gives the commits of a tenant's log their numbers, where that is not the log's own writer; there everything that is asked
    /// is [`StoreError::NotSupported`].
    ///
    /// # Errors
    /// [`UnknownLog::Tenant`] when the tenant is not declared.
    fn sequencing(&self, tenant: &str) -> Result<Arc<dyn Sequencing>, UnknownLog> {
        self.log(tenant, crate::DEFAULT_SCOPE).map(|_| Arc::new(NoSequencer) as Arc<dyn Sequencing>)
    }

    /// The one name of what may be written in several ways: a scope that is called by a UUID.
    fn scope_name<'a>(&self, scope: &'a str) -> Cow<'a, str> {
        Cow::Borrowed(scope)
    }

    /// Whether other processes may have this store open at the same time, so that who does what is decided by leases. A store that is
    /// open in one process at a time has none to wait for.
    fn is_shared(&self) -> bool {
        false
    }

    /// The declared tenants, in order of their names.
    fn tenants(&self) -> Vec<String>;

    /// Returns the logs that are stored and not open, because their tenant or scope is not declared, each as tenant and scope. None where
    /// the store cannot know of any.
    ///
    /// # Errors
    /// [`StoreError::Io`] when the store's folder cannot be read.
    fn undeclared_logs(&self) -> Result<Vec<(String, String)>, StoreError> {
        Ok(Vec::new())
    }

    /// Who this tenant's store is, for its default scope; none when it is not declared.
    fn identity(&self, tenant: &str) -> Option<Identity>;

    /// Who this tenant's store is for a reader of this scope who comes from incarnation `seen`: `incarnation_start` is the number up
    /// to which that incarnation's log is this one's. Scopes may have been cut at different numbers, and more than once.
    fn identity_since(&self, tenant: &str, scope: &str, seen: u32) -> Option<Identity> {
        let _ = (scope, seen);
        self.identity(tenant)
    }

    /// How every open log is.
    fn status(&self) -> Vec<LogStatus>;

    /// Begins a backup: the whole store, every log up to the durable head that it has now, while commits go on. It comes as an archive
    /// that the same backend can restore.
    ///
    /// `earlier` is the manifest of a backup that whoever asks has still: what cannot have changed since is then left out. One that
    /// does not fit is as none.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when a log is damaged, because a part must not be taken for the whole; [`StoreError::NotSupported`]
    /// when this backend is not backed up by Annals.
    fn backup(&self, earlier: Option<&[u8]>) -> Result<Box<dyn Backup>, StoreError> {
        let _ = earlier;
        Err(StoreError::NotSupported("a backup by Annals (use the tools of its own)".to_owned()))
    }

    /// The same without records and streams, whole and never upon an earlier one: what is left of a store whose records are damaged. The
    /// manifest says what was left out.
    ///
    /// # Errors
    /// As for [`backup`](Self::backup).
    fn backup_without_records(&self) -> Result<Box<dyn Backup>, StoreError> {
        Err(StoreError::NotSupported("a backup by Annals (use the tools of its own)".to_owned()))
    }

    /// Stops taking commits, lets those under way finish, and releases the store. Followers get
    /// [`StoreError::Closed`]. Calling it again does nothing.
    async fn close(&self);
}

/// A backup under way: an archive that comes piece by piece. Dropping it ends it.
pub trait Backup: Send {
    /// How many bytes there are to be read for it; a little more or less comes out.
    fn total_bytes(&self) -> u64;

    /// The next bytes; none at the end. It blocks for as long as reading them takes, and holds at most a few MiB.
    ///
    /// # Errors
    /// [`StoreError::Damaged`], [`StoreError::Io`]. What came so far is then of no use.
    fn next(&mut self) -> Result<Option<Bytes>, StoreError>;
}

/// Who a tenant's store is. A position is only good for the store and incarnation it was read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// Made when the store was created.
    pub store_id: Uuid,
    /// 0 at first; each restore begins the next.
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
    /// Why commits are refused; none when they are taken.
    pub refusing: Option<StoreError>,
    /// Why records and streams of its tenant are refused, where they are kept apart from the log; none when they are taken.
    pub records_refusing: Option<StoreError>,
    /// Commits made durable since it was opened.
    pub commits: u64,
    /// Batches written and synced since it was opened: commits divided by this is how well commits group.
    pub syncs: u64,
    /// Bytes appended since it was opened.
    pub bytes: u64,
    /// What recovery did when it was opened, for people; empty after an ordinary close.
    pub recovery: Vec<String>,
    /// What gives its commits their numbers; none where its own writer does.
    pub sequencer: Option<SequencerStatus>,
}

/// There is no such log.
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
        /// The scope that was asked for.
        scope: String,
    },
}

impl UnknownLog {
    /// The stable code of this error.
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
    /// What is wrong and what to do, as one sentence.
    pub message: String,
}

impl OpenError {
    /// A refusal with its sentence.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// What to do about it, as one sentence: nothing was to be stored.
    pub fn advice(&self) -> &'static str {
        self.code.advice_to_readers()
    }
}
