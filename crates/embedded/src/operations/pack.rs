//! Packing the closed segments of a store that no process has open, all of them and at once.

use std::sync::Arc;

use annals_core::{Code, Store};
use serde::Serialize;

use super::survey::{self, TenantFolder};
use super::{OperationError, Outcome, Progress};
use crate::disk::Disk;
use crate::options::Packing;
use crate::{EmbeddedStore, Options};

/// What packing did to a store.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct PackReport {
    /// Its logs, also those of tenants that are not declared.
    pub logs: Vec<PackedLog>,
    /// What opening the logs repaired, for people; empty after an ordinary close.
    #[serde(skip)]
    pub recovery: Vec<RecoveredLog>,
}

/// What opening a log repaired before it was packed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecoveredLog {
    /// Its tenant.
    pub tenant: String,
    /// Its scope.
    pub scope: String,
    /// What was done, for people.
    pub lines: Vec<String>,
}

/// What packing did to a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PackedLog {
    /// Its tenant.
    pub tenant: String,
    /// Its scope.
    pub scope: String,
    /// Segments that were packed now.
    pub segments: u64,
    /// Bytes of the commits in those, as they were.
    pub bytes_before: u64,
    /// Bytes of those, as they are.
    pub bytes_after: u64,
    /// Closed segments that stay as they are, because too little would be saved.
    pub left: u64,
}

/// Packs every closed segment that becomes smaller by enough. `progress` counts the bytes of a log's segments.
///
/// What was packed stays so when it ends early.
///
/// # Errors
/// `not_a_store`, `store_locked`, `newer_format`, `store_damaged`, `read_failed`, `disk_full`, `store_read_only`.
pub fn pack(disk: &Arc<dyn Disk>, options: &Options, progress: Progress<'_>) -> Outcome<PackReport> {
    let tenants = {
        let _lock = survey::lock(&**disk)?;
        survey::tenants(&**disk)?
    };
    let mut report = PackReport::default();
    for tenant in tenants {
        pack_tenant(disk, &tenant, options, &mut report, progress)?;
    }
    Ok(report)
}

fn pack_tenant(
    disk: &Arc<dyn Disk>,
    tenant: &TenantFolder,
    options: &Options,
    report: &mut PackReport,
    progress: Progress<'_>,
) -> Outcome<()> {
    let options = Options {
        tenants: vec![tenant.name.clone()],
        scopes: tenant.scopes.iter().filter(|scope| *scope != annals_core::DEFAULT_SCOPE).cloned().collect(),
        // Nobody else is to pack meanwhile.
        packing: Packing { behind: usize::MAX, ..options.packing },
        ..options.clone()
    };
    // A process that was killed may have left closed segments without an index file; a store that closes has written them.
    let store = EmbeddedStore::open(disk.clone(), options.clone())?;
    // The next opening finds nothing to repair any more.
    let recovered = store.status().into_iter().filter(|status| !status.recovery.is_empty());
    report.recovery.extend(recovered.map(|status| RecoveredLog {
        tenant: status.tenant,
        scope: status.scope,
        lines: status.recovery,
    }));
    drop(store);
    let store = EmbeddedStore::open(disk.clone(), options)?;
    for status in store.status() {
        if let Some(refusing) = status.refusing {
            let message = format!("{}/{}: {refusing}; see `annals check`", status.tenant, status.scope);
            return Err(OperationError::new(Code::StoreDamaged, message));
        }
        let packed = store.pack(&status.tenant, &status.scope, progress)?;
        report.logs.push(PackedLog {
            tenant: status.tenant,
            scope: status.scope,
            segments: packed.segments,
            bytes_before: packed.from,
            bytes_after: packed.to,
            left: packed.left,
        });
    }
    Ok(())
}
