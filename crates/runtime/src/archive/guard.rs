//! The conditions of every batch of the archive's task: its lease, and the settings.

use annals_core::archive::{ArchiveError, FileError};
use annals_core::{Condition, Expected, Lease, RecordChange, RecordError, RecordType, StoreError};

use super::{Loaded, TenantArchive};
use crate::host::{Held, Leases};

/// The task's name for its lease.
pub(super) const TASK: &str = "archive";

/// The lease that the task holds.
pub(super) struct Guard<'a> {
    pub archive: &'a TenantArchive,
    pub leases: &'a Leases,
    pub held: &'a Held,
}

/// Why the task stops its current work.
pub(super) enum Stop {
    /// The host is drained.
    Done,
    /// Another process holds the lease.
    Lost,
    /// The settings have changed.
    Again,
    /// The archive cannot be written, for this reason. Events stay in the view.
    Unwritable(String),
    /// The store refused a document because of its content.
    Refused(RecordError),
    /// The store failed.
    Failed(String),
}

impl Guard<'_> {
    /// Returns the checks with which every batch begins.
    pub fn checks(&self, loaded: &Loaded) -> [RecordChange; 2] {
        let epoch = Expected::Matching(Condition::eq("epoch", self.held.epoch()));
        [RecordChange::check(Lease::COLLECTION, TASK, epoch), loaded.check()]
    }

    /// Checks that no other process may archive by now, and that the host is not being drained.
    pub async fn keep_lease(&self) -> Result<(), Stop> {
        if *self.archive.shared.stop.borrow() {
            return Err(Stop::Done);
        }
        if self.leases.keeps(self.held).await? { Ok(()) } else { Err(Stop::Lost) }
    }

    /// Converts the error of a batch to a stop. Returns `Ok` if a document has changed since it was read.
    pub fn stop_of(&self, error: RecordError) -> Result<(), Stop> {
        match error {
            RecordError::NotAsExpected { change: 0, .. } => Err(Stop::Lost),
            RecordError::NotAsExpected { change: 1, .. } => Err(Stop::Again),
            RecordError::NotAsExpected { .. } => Ok(()),
            other => Err(other.into()),
        }
    }
}

impl From<RecordError> for Stop {
    fn from(error: RecordError) -> Self {
        match error {
            RecordError::Store(StoreError::Closed) => Self::Done,
            RecordError::Store(error) => Self::Failed(error.to_string()),
            // The view was removed meanwhile.
            RecordError::UnknownCollection(_) => Self::Again,
            other => Self::Refused(other),
        }
    }
}

impl From<ArchiveError> for Stop {
    fn from(error: ArchiveError) -> Self {
        match error {
            ArchiveError::Store(StoreError::Closed) => Self::Done,
            error => Self::Failed(error.to_string()),
        }
    }
}

impl From<FileError> for Stop {
    fn from(error: FileError) -> Self {
        Self::Unwritable(error.to_string())
    }
}
