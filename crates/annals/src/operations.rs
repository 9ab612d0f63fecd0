//! Operator's tools for a store: check it, cut off damage, pack it, take backups and restore them.
//!
//! ```no_run
//! use annals::operations::{Restore, check, restore};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let report = check("embedded:./data", &mut |_done, _all| {})?;
//! assert!(report.is_sound(), "{:?}", report.damage);
//! restore("backup.tar".as_ref(), "embedded:./restored", &Restore::default(), &mut |_done, _all| {})?;
//! # Ok(())
//! # }
//! ```

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

use annals_core::Code;
use annals_embedded::Options;
use annals_embedded::disk::{Disk, RealDisk};
use annals_embedded::operations::{self, Source};

pub use annals_embedded::operations::{
    CheckReport, CheckedLog, CheckedMap, Cut, CutStream, Finding, Leftovers, LogManifest, Manifest, OperationError,
    PackReport, PackedLog, Progress, Receiver, RecoveredLog, Reindexed, Repair, Restore, Restored, RestoredLog,
    RestoredMap, SegmentManifest, StoredFile, TenantManifest,
};

use crate::compose::folder;
pub use crate::transfer::{
    EXPORT_VERSION, ExportReader, Moved, MovedCollection, MovedKeys, MovedLog, MovedStream, export,
    export_without_records,
};

/// Verifies every checksum of the store at `url`, and every guarantee that can be verified from its bytes. Writes nothing. No process may
/// have the store open. `progress` counts bytes. Damage is reported, not returned as an error.
///
/// # Errors
/// `invalid_config`, `not_a_store`, `store_locked`, `newer_format`, `read_failed`.
pub fn check(url: &str, progress: Progress<'_>) -> Result<CheckReport, OperationError> {
    operations::check(&*folder(url)?, progress)
}

/// Cuts a log of the store at `url`, which no process may have open. The removed part is kept aside. `progress` counts the events that
/// remain.
///
/// # Errors
/// `invalid_range` if no commit ends at the number, naming the nearest border; `invalid_config`, `unknown_tenant`, `unknown_scope`,
/// `store_damaged`, `not_a_store`, `store_locked`, `newer_format`, `read_failed`, `disk_full`, `store_read_only`.
pub fn repair(url: &str, cut: &Cut, progress: Progress<'_>) -> Result<Repair, OperationError> {
    operations::repair(&*folder(url)?, cut, &Options::default(), progress)
}

/// Rebuilds the indexes of a tenant's records in the store at `url`, which no process may have open. Records, the notes of their changes
/// and streams are not touched. Without `confirmed`, only reports what is wrong.
///
/// # Errors
/// `invalid_config`, `unknown_tenant`; `store_damaged` if records or their map are damaged, `duplicate_key` if two records have the same
/// unique entry; `not_a_store`, `store_locked`, `newer_format`, `read_failed`, `disk_full`, `store_read_only`.
pub fn reindex(url: &str, tenant: &str, confirmed: bool) -> Result<Reindexed, OperationError> {
    operations::reindex(&folder(url)?, tenant, confirmed, &Options::default())
}

/// Packs every closed segment that becomes sufficiently smaller, in the store at `url`, which no process may have open. An open store
/// packs its segments itself, slowly and in the background. `progress` counts the bytes of a log's segments.
///
/// # Errors
/// `invalid_config`, `not_a_store`, `store_locked`, `newer_format`, `store_damaged`, `read_failed`, `disk_full`, `store_read_only`.
/// Segments that were packed before the error stay packed.
pub fn pack(url: &str, progress: Progress<'_>) -> Result<PackReport, OperationError> {
    operations::pack(&folder(url)?, &Options::default(), progress)
}

/// Opens the destination of a backup: one file if `to` ends in `.tar`, otherwise a folder, in which a later backup adds only what has
/// grown.
///
/// # Errors
/// `folder_not_empty`, `newer_format`, `invalid_backup`, `disk_full`, `store_read_only`, `read_failed`.
pub fn keep_backup(to: &Path) -> Result<Receiver, OperationError> {
    match (to.extension() == Some(OsStr::new("tar")), to.file_name().and_then(OsStr::to_str)) {
        (true, Some(name)) => Receiver::into_file(folder_of(to), name),
        (true, None) => Err(OperationError::new(Code::InvalidConfig, format!("{} is not UTF-8", to.display()))),
        (false, _) => Receiver::into_folder(Arc::new(RealDisk::for_backup(to))),
    }
}

/// Creates a new store at `url` from the backup at `from`, a folder or a file. It begins a new incarnation. `progress` counts bytes, each
/// of which is written once and read back once.
///
/// # Errors
/// `folder_not_empty`; `invalid_backup`, naming what is missing or altered; `newer_format`; `invalid_range`, `unknown_tenant`,
/// `unknown_scope` for a number that is not a border; `unreadable_input` if nothing exists at `from`; `invalid_config`, `disk_full`,
/// `store_read_only`, `read_failed`. After an error there is no store.
pub fn restore(from: &Path, url: &str, what: &Restore, progress: Progress<'_>) -> Result<Restored, OperationError> {
    let source = match (from.is_dir(), from.file_name().and_then(OsStr::to_str)) {
        (true, _) => Source::Folder(Arc::new(RealDisk::new(from))),
        (false, Some(name)) if from.exists() => Source::File(folder_of(from), name.to_owned()),
        _ => {
            let message = format!("{}: there is no such file or folder", from.display());
            return Err(OperationError::new(Code::UnreadableInput, message));
        }
    };
    operations::restore(&source, &folder(url)?, what, &Options::default(), progress)
}

fn folder_of(file: &Path) -> Arc<dyn Disk> {
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Arc::new(RealDisk::for_backup(parent))
}
