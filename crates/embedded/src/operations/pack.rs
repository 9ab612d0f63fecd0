//! Packs all closed segments of a store that no process has open.

use std::sync::Arc;

use annals_core::{Code, Store};
use serde::Serialize;

use super::survey::{self, TenantFolder};
use super::{OperationError, Outcome, Progress};
use crate::disk::Disk;
use crate::options::Packing;
use crate::{EmbeddedStore, Options};

/// The result of packing a store.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct PackReport {
    /// Its logs, including those of undeclared tenants.
    pub logs: Vec<PackedLog>,
    /// What opening the logs repaired, as notes for operators; empty after a clean shutdown.
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
    /// The notes for operators.
    pub lines: Vec<String>,
}

/// The result of packing a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PackedLog {
    /// Its tenant.
    pub tenant: String,
    /// Its scope.
    pub scope: String,
    /// The number of segments that were packed.
    pub segments: u64,
    /// The size of their commits before, in bytes.
    pub bytes_before: u64,
    /// Their size after, in bytes.
    pub bytes_after: u64,
    /// The number of closed segments left as they are, because too little would be saved.
    pub left: u64,
}

/// Packs every closed segment that becomes sufficiently smaller. `progress` counts the bytes of a log's segments.
///
/// If it ends early, segments packed so far stay packed.
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
        // The background packer must not interfere.
        packing: Packing { behind: usize::MAX, ..options.packing },
        ..options.clone()
    };
    // A process that was killed may have left closed segments without an index file. Closing the store writes them.
    let store = EmbeddedStore::open(disk.clone(), options.clone())?;
    // Recorded here, because the next opening finds nothing left to repair.
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
