//! Operations on whole stores: check, repair, pack, back up and restore.
//!
//! [`check()`], [`repair()`], [`reindex()`] and [`pack()`] work on the files of a store that no process has open. A backup is taken from
//! an open store ([`annals_core::Store::backup`]), and [`restore()`] creates a new store from it.

mod backup;
mod check;
mod copy;
mod cut;
mod pack;
mod reindex;
mod repair;
mod survey;

use std::io;

use annals_core::{Code, OpenError, StoreError};

use crate::refused::cannot_open;

pub(crate) use backup::{INTERRUPTED, MapImage, Taking, TenantImage, is_interrupted};
pub use backup::{
    Leftovers, LogManifest, Manifest, Receiver, Restore, Restored, RestoredLog, RestoredMap, SegmentManifest, Source,
    StoredFile, TenantManifest, restore,
};
pub use check::{CheckReport, CheckedLog, CheckedMap, Finding, check};
pub use pack::{PackReport, PackedLog, RecoveredLog, pack};
pub use reindex::{Reindexed, reindex};
pub use repair::{Cut, CutStream, Repair, repair};

/// Why an operation ended early.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperationError {
    /// The stable code.
    pub code: Code,
    /// What is wrong and what to do, in one sentence.
    pub message: String,
    /// What to do about this occurrence, in one sentence; `None` if the code's advice fits.
    pub advice: Option<&'static str>,
}

/// Receives the progress of an operation: how much is done, and how much there is in total, in bytes or events.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64);

type Outcome<T> = Result<T, OperationError>;

impl OperationError {
    /// Creates an error.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), advice: None }
    }

    /// Adds advice for this occurrence, where the code's advice does not fit.
    #[must_use]
    pub fn advise(self, advice: &'static str) -> Self {
        Self { advice: Some(advice), ..self }
    }
}

impl std::fmt::Display for OperationError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for OperationError {}

impl From<OpenError> for OperationError {
    fn from(error: OpenError) -> Self {
        Self::new(error.code, error.message)
    }
}

impl From<StoreError> for OperationError {
    fn from(error: StoreError) -> Self {
        Self::new(error.code(), error.to_string())
    }
}

/// Converts an I/O error of a file that was being written.
fn unwritable(path: &str, error: &io::Error) -> OperationError {
    cannot_open(path, error).into()
}

/// Converts an I/O error of a file that was being read.
fn unreadable(path: &str, error: &io::Error) -> OperationError {
    let refusal = OperationError::new(Code::ReadFailed, format!("{path} cannot be read: {error}"));
    match error.kind() {
        io::ErrorKind::PermissionDenied => refusal
            .advise("Run the command as a user who may read the files of the store; this does not indicate damage."),
        _ => refusal,
    }
}

/// Returns every log in a store's folder, as tenant and scope.
pub(crate) fn logs_on_disk(disk: &dyn crate::disk::Disk) -> Outcome<Vec<(String, String)>> {
    let tenants = survey::tenants(disk)?;
    let logs = tenants.into_iter().flat_map(|tenant| {
        let name = tenant.name;
        tenant.scopes.into_iter().map(move |scope| (name.clone(), scope))
    });
    Ok(logs.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_permission_is_not_blamed_on_the_disk() {
        let denied = unreadable("00.seg", &io::Error::from(io::ErrorKind::PermissionDenied));
        assert_eq!(denied.code, Code::ReadFailed);
        assert!(denied.advice.is_some_and(|advice| advice.contains("user")), "{denied:?}");
        assert_eq!(unreadable("00.seg", &io::Error::other("EIO")).advice, None, "the code's own says it");
    }
}
