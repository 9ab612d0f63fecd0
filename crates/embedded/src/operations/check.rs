//! Checks a store: every checksum, and every guarantee that can be verified from its bytes.
//!
//! Records and streams are checked as well: each page of their map, each record with its index entries, and each stream against its log.
//!
//! Memory: 40 bytes per aggregate of the log being checked, the index of one segment, and at most 128 MiB of request ids. A log with more
//! than 16 million commits is read again for each further 16 million.

mod index;
mod log;
mod map;
mod requests;

use std::collections::BTreeSet;

use annals_core::{Code, EventsHash};
use serde::Serialize;

use super::survey::{self, Small};
use super::{OperationError, Outcome, Progress};
use crate::disk::Disk;
use crate::store::{STORE_FILE, TenantFile};

/// Findings beyond this number are only counted.
const FINDINGS_MAX: usize = 1_000;

/// The result of a check.
#[derive(Debug, Clone, Default, Serialize)]
pub struct CheckReport {
    /// Every log in the folder, including those of undeclared tenants.
    pub logs: Vec<CheckedLog>,
    /// The records and streams of every tenant that has any.
    pub maps: Vec<CheckedMap>,
    /// Everything that is damaged.
    pub damage: Vec<Finding>,
    /// Observations for operators that are not damage.
    pub notes: Vec<Finding>,
    /// The number of further damages that are not listed, because the list is full.
    pub more_damage: u64,
}

/// A log that was checked.
#[derive(Debug, Clone, Serialize)]
pub struct CheckedLog {
    /// Its tenant.
    pub tenant: String,
    /// Its scope.
    pub scope: String,
    /// The number of segments with commits.
    pub segments: u64,
    /// The number of index files that agree with their segment.
    pub indexes: u64,
    /// The number of intact commits.
    pub commits: u64,
    /// The number of their events.
    pub events: u64,
    /// The number of distinct aggregates.
    pub aggregates: u64,
    /// The size of the frames in bytes.
    pub bytes: u64,
    /// The sequence number after the last commit that was found.
    pub head: u64,
    /// The hash of its events; `None` if some of them are damaged.
    pub events_hash: Option<EventsHash>,
}

/// The records and streams of a tenant that were checked.
#[derive(Debug, Clone, Serialize)]
pub struct CheckedMap {
    /// The tenant.
    pub tenant: String,
    /// The size of the map's file in bytes.
    pub bytes: u64,
    /// The number of declared collections.
    pub collections: u64,
    /// The number of records.
    pub records: u64,
    /// The number of index entries.
    pub index_entries: u64,
    /// The number of noted changes.
    pub changes: u64,
    /// The number of streams in all scopes.
    pub streams: u64,
    /// The number of their entries.
    pub stream_entries: u64,
}

/// A single finding and its location.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// A word for programs, such as `payload` or `index`.
    pub kind: &'static str,
    /// The tenant, if it concerns one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The scope, if it concerns one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// The file, relative to the store's folder.
    pub file: String,
    /// The offset in the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// The first sequence number affected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sequence_number: Option<u64>,
    /// What is wrong, in one sentence.
    pub what: String,
    /// What to do about it.
    pub advice: String,
}

impl CheckReport {
    /// Returns whether nothing is damaged.
    pub fn is_sound(&self) -> bool {
        self.damage.is_empty()
    }

    fn damaged(&mut self, finding: Finding) {
        if self.damage.len() < FINDINGS_MAX {
            self.damage.push(finding);
        } else {
            self.more_damage += 1;
        }
    }
}

/// Checks the store in this folder. Nothing is written, and no process may have the store open.
///
/// `progress` counts bytes. Damage is listed in the report and is not an error.
///
/// # Errors
/// `not_a_store`, `store_locked`, `newer_format`, `read_failed`.
pub fn check(disk: &dyn Disk, progress: Progress<'_>) -> Outcome<CheckReport> {
    check_with(disk, requests::TERMS_MAX, progress)
}

fn check_with(disk: &dyn Disk, request_terms_max: usize, progress: Progress<'_>) -> Outcome<CheckReport> {
    let _lock = survey::lock(disk)?;
    let mut report = CheckReport::default();
    let (mut begun, mut what) = (BTreeSet::new(), None);
    match survey::store_file(disk)? {
        Small::Whole(file) => begun = file.tenants,
        _ => {
            what = Some(Finding {
                kind: "store_file",
                file: STORE_FILE.to_owned(),
                what: "store.json is damaged".to_owned(),
                advice: "take it from a backup, or from any other store of this format".to_owned(),
                ..Finding::default()
            })
        }
    }
    what.into_iter().for_each(|finding| report.damaged(finding));
    let mut tenants = survey::tenants(disk)?;
    survey::add_lost(&mut tenants, &begun);
    let mut total = 0;
    for tenant in &mut tenants {
        tenant.add_begun(disk)?;
        for scope in &tenant.scopes {
            total += bytes_of(disk, &tenant.log_dir(scope))?;
        }
        total += map::bytes_of(disk, tenant);
    }
    let mut done = 0;
    for tenant in &tenants {
        let file = tenant_file(disk, tenant, begun.contains(&tenant.name), &mut report)?;
        for scope in &tenant.scopes {
            let place = log::Place { tenant: &tenant.name, scope, dir: tenant.log_dir(scope), file: file.as_ref() };
            let bytes = bytes_of(disk, &place.dir)?;
            log::check(disk, &place, request_terms_max, &mut report, &mut |part| progress(done + part, total))?;
            done += bytes;
            progress(done, total);
        }
        map::check(disk, &map::Place::new(tenant, file.as_ref()), &mut report)?;
        done += map::bytes_of(disk, tenant);
        progress(done, total);
    }
    Ok(report)
}

fn tenant_file(
    disk: &dyn Disk,
    tenant: &survey::TenantFolder,
    begun: bool,
    report: &mut CheckReport,
) -> Outcome<Option<TenantFile>> {
    let (kind, what) = match tenant.file(disk)? {
        Small::Whole(file) => return Ok(Some(file)),
        Small::Missing if tenant.scopes.is_empty() && begun => {
            report.damaged(Finding {
                kind: "tenant",
                tenant: Some(tenant.name.clone()),
                file: tenant.dir.clone(),
                what: format!("{} is missing, or empty, and {STORE_FILE} says that the tenant was begun", tenant.dir),
                advice: "restore the folder from a backup; nothing else holds its events".to_owned(),
                ..Finding::default()
            });
            return Ok(None);
        }
        Small::Missing if tenant.scopes.is_empty() => return Ok(None),
        Small::Missing => ("tenant_file", "is missing although there is a log"),
        Small::Damaged => ("tenant_file", "is damaged"),
    };
    report.damaged(Finding {
        kind,
        tenant: Some(tenant.name.clone()),
        file: tenant.file_path(),
        what: format!("{} {what}; it holds the key by which requests and aggregates are found", tenant.file_path()),
        advice: "take it from a backup of this store; with another key the indexes do not fit".to_owned(),
        ..Finding::default()
    });
    Ok(None)
}

/// Returns the total size of a log's segments in bytes.
fn bytes_of(disk: &dyn Disk, dir: &str) -> Outcome<u64> {
    let mut bytes = 0;
    for number in survey::segment_numbers(&survey::sorted(disk, dir)?) {
        let name = crate::log::names::segment(dir, number);
        let file = disk.open(&name, crate::disk::Open::Read).and_then(|file| file.length());
        bytes += file.map_err(|error| super::unreadable(&name, &error))?;
    }
    Ok(bytes)
}

impl From<&CheckReport> for Result<(), OperationError> {
    fn from(report: &CheckReport) -> Self {
        let Some(first) = report.damage.first() else { return Ok(()) };
        let count = report.damage.len() as u64 + report.more_damage;
        let more = if count > 1 { format!(" ({} more)", count - 1) } else { String::new() };
        Err(OperationError::new(Code::StoreDamaged, format!("{}{more}", first.what)))
    }
}
