//! The archive of a tenant: rules and holds, the task that archives due events, and acts of people on single events. The contract is
//! [`Archive`].
//!
//! ```text
//!  PUT rule, PUT hold ─▶ settings.rs ─▶ ViewRecord: every batch below expects its revision
//!  keeper.rs: lease ─┬─▶ settle.rs    documents of the view expire as the settings say
//!                    ├─▶ collect.rs   due documents ─▶ one batch: copy in `events_archive`, expiry date
//!                    └─▶ files.rs     due documents ─▶ file, read back ─▶ one batch: record of the file, expiry dates ─▶ renamed
//!  DELETE, restore ─▶ removal.rs      one batch
//! ```
//!
//! INVARIANT: if a document must be archived, its expiry date is written in the batch that records its copy.
//!
//! INVARIANT: a batch that writes or keeps an expiry date expects the settings from which the date was derived. So a batch that is based
//! on older settings cannot follow a new hold.

mod collect;
mod durable;
mod files;
mod folder;
mod guard;
mod health;
mod keeper;
mod parquet;
mod reading;
mod removal;
mod settings;
mod settle;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use annals_core::archive::{
    Archive, ArchiveError, ArchiveFilePage, ArchivePage, ArchiveStateRecord, DeletedEvent, HoldBody, HoldPage,
    HoldStatus, PutRetention, RetentionBody, RetentionPage,
};
use annals_core::browse::{BROWSE_VIEW, BrowseQuery};
use annals_core::handlers::Reason;
use annals_core::types::EventTypes;
use annals_core::{
    Clock, DEFAULT_SCOPE, EventLog, RecordError, Records, StoreError, Timestamp, TypedRecords, UnknownLog,
};
use async_trait::async_trait;

use crate::browse::TenantBrowse;
use crate::host::{Host, Shared, locked, supervise};
use crate::projections::TenantProjections;
pub use folder::ArchiveFolder;
pub(crate) use settings::Loaded;

/// The error if files are archived and no place for them is configured.
const NO_PLACE: &str = "this process has no folder or bucket for archive files; set server.archive";

/// The archive of one tenant in this process.
pub(crate) struct TenantArchive {
    shared: Arc<Shared>,
    tenant: String,
    records: Arc<dyn Records>,
    log: Arc<dyn EventLog>,
    browse: Arc<TenantBrowse>,
    projections: Arc<TenantProjections>,
    types: Arc<dyn EventTypes>,
    started: AtomicBool,
    me: Weak<Self>,
}

impl Host {
    /// Returns the archive of a tenant.
    ///
    /// # Errors
    /// [`UnknownLog::Tenant`] if the tenant is not declared.
    pub fn archive(&self, tenant: &str) -> Result<Arc<dyn Archive>, UnknownLog> {
        Ok(self.archive_of(tenant)?)
    }

    pub(crate) fn archive_of(&self, tenant: &str) -> Result<Arc<TenantArchive>, UnknownLog> {
        let mut tenants = locked(&self.0.archives);
        if let Some(known) = tenants.get(tenant) {
            return Ok(Arc::clone(known));
        }
        let shared = Arc::clone(&self.0.shared);
        let records = shared.store.records(tenant)?;
        let log = shared.store.log(tenant, DEFAULT_SCOPE)?;
        let types = shared.store.event_types(tenant)?;
        let (browse, projections) = (self.browse_of(tenant)?, self.projections_of(tenant)?);
        let archive = Arc::new_cyclic(|me| TenantArchive {
            shared,
            tenant: tenant.to_owned(),
            records,
            log,
            browse,
            projections,
            types,
            started: AtomicBool::new(false),
            me: Weak::clone(me),
        });
        tenants.insert(tenant.to_owned(), Arc::clone(&archive));
        Ok(archive)
    }

    pub(crate) fn start_archives(&self) {
        for tenant in self.0.shared.store.tenants() {
            if let Ok(archive) = self.archive_of(&tenant) {
                archive.start();
            }
        }
    }
}

impl TenantArchive {
    fn clock(&self) -> &dyn Clock {
        &*self.shared.options.clock
    }

    fn now(&self) -> Timestamp {
        self.clock().now()
    }

    fn open(&self) -> Result<(), ArchiveError> {
        if *self.shared.stop.borrow() { Err(StoreError::Closed.into()) } else { Ok(()) }
    }

    /// Starts the task that archives due events, unless it was started before.
    fn start(&self) {
        let Some(archive) = self.me.upgrade() else { return };
        if !self.started.swap(true, Ordering::Relaxed) {
            supervise(&self.shared, format!("archive/{}", self.tenant), keeper::Keeper { archive });
        }
    }

    /// Wakes the task.
    fn wake(&self) {
        self.shared.archive_of(&self.tenant).notify_one();
    }

    /// Returns the numbers and collections of the browse view's builds, the live one first; empty if there is no view.
    async fn builds(&self) -> Result<Vec<(i64, String)>, ArchiveError> {
        let builds = self.projections.builds_of(BROWSE_VIEW).await;
        builds.map_err(|error| annals_core::browse::BrowseError::from(error).into())
    }

    /// Reads the state of the archive.
    pub(crate) async fn state(&self) -> Result<ArchiveStateRecord, RecordError> {
        let typed = TypedRecords::<ArchiveStateRecord>::declared(Arc::clone(&self.records));
        let none = || ArchiveStateRecord { id: ArchiveStateRecord::ID.to_owned(), ..ArchiveStateRecord::default() };
        match typed.get(ArchiveStateRecord::ID).await {
            Err(RecordError::UnknownCollection(_)) => Ok(none()),
            found => Ok(found?.map_or_else(none, |found| found.value)),
        }
    }
}

#[async_trait]
impl Archive for TenantArchive {
    async fn put_rule(&self, name: &str, body: RetentionBody) -> Result<PutRetention, ArchiveError> {
        self.open()?;
        self.changed_rule(name, body).await
    }

    async fn remove_rule(&self, name: &str, reason: Reason) -> Result<(), ArchiveError> {
        self.open()?;
        self.removed_rule(name, reason).await
    }

    async fn rules(&self, after: Option<&str>, limit: usize) -> Result<RetentionPage, ArchiveError> {
        self.open()?;
        self.listed_rules(after, limit).await
    }

    async fn put_hold(&self, name: &str, body: HoldBody) -> Result<(HoldStatus, bool), ArchiveError> {
        self.open()?;
        self.changed_hold(name, body).await
    }

    async fn remove_hold(&self, name: &str, reason: Reason) -> Result<(), ArchiveError> {
        self.open()?;
        self.removed_hold(name, reason).await
    }

    async fn holds(&self, after: Option<&str>, limit: usize) -> Result<HoldPage, ArchiveError> {
        self.open()?;
        self.listed_holds(after, limit).await
    }

    async fn hold(&self, name: &str) -> Result<HoldStatus, ArchiveError> {
        self.open()?;
        self.known_hold(name).await
    }

    async fn delete(&self, event_id: &str, reason: Reason) -> Result<DeletedEvent, ArchiveError> {
        self.open()?;
        self.moved_out(event_id, reason).await
    }

    async fn restore(&self, event_id: &str, reason: Reason) -> Result<serde_json::Value, ArchiveError> {
        self.open()?;
        self.moved_back(event_id, reason).await
    }

    async fn page(&self, query: BrowseQuery) -> Result<ArchivePage, ArchiveError> {
        self.open()?;
        self.archived_page(query).await
    }

    async fn files(&self, after: Option<&str>, limit: usize) -> Result<ArchiveFilePage, ArchiveError> {
        self.open()?;
        self.listed_files(after, limit).await
    }
}
