//! What a backup says it is.

use std::collections::BTreeMap;

use annals_core::{EventsHash, SequenceNumber, Timestamp, Uuid};
use serde::{Deserialize, Serialize};

use super::invalid;
use crate::format::FORMAT;
use crate::operations::Outcome;
use crate::refused::newer_format;
use crate::whole::{format_of, unseal};

/// The name of the manifest in a backup.
pub(super) const MANIFEST: &str = "manifest.json";

/// What a backup holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// When it was begun.
    pub began: Timestamp,
    /// The tenants, in order of their names.
    pub tenants: Vec<TenantManifest>,
    /// Folders that are in the store's folder and not in the backup: tenants and scopes that were not open. In a backup
    /// without records, and in one of a version that left records and streams out, their folders too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
}

/// A tenant of a backup.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TenantManifest {
    /// Its name.
    pub tenant: String,
    /// Who its store is.
    pub store_id: Uuid,
    /// Its incarnation.
    pub incarnation: u32,
    /// Its own file.
    pub file: StoredFile,
    /// Its records and streams, as they were before the heads of its logs; none where nothing was ever written, and in a backup
    /// without records or of a version that left them out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub map: Option<StoredFile>,
    /// Its logs.
    pub logs: Vec<LogManifest>,
}

/// A log of a backup.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LogManifest {
    /// Its scope.
    pub scope: String,
    /// The number of its events.
    pub head: SequenceNumber,
    /// Their hash.
    pub events_hash: EventsHash,
    /// Its segments, in order.
    pub segments: Vec<SegmentManifest>,
}

/// A segment of a backup.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SegmentManifest {
    /// Its number in the log.
    pub number: u64,
    /// What tells it from every other segment of this number.
    pub salt: u64,
    /// The sequence number of its first event.
    pub first: SequenceNumber,
    /// The hash of its events.
    pub events_hash: EventsHash,
    /// Whether it never changes again.
    pub closed: bool,
    /// Its bytes up to the head.
    pub file: StoredFile,
    /// Its index, if it had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<StoredFile>,
}

/// A file of a backup.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct StoredFile {
    /// Its path in the backup.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// Its SHA-256, in hexadecimal.
    pub sha256: String,
}

impl Manifest {
    /// Reads a manifest; `newer_format` when a newer version wrote it, else `invalid_backup` when it is not what was written.
    pub(super) fn read(bytes: &[u8]) -> Outcome<Self> {
        if let Some(newer) = format_of(bytes).filter(|format| *format > FORMAT) {
            return Err(newer_format("the backup's manifest.json", newer).into());
        }
        let manifest: Self =
            unseal(bytes).ok_or_else(|| invalid("manifest.json of the backup is not what was written"))?;
        for file in manifest.files() {
            valid_path(&file.name)?;
        }
        Ok(manifest)
    }

    /// Every file of the backup but the manifest.
    pub fn files(&self) -> impl Iterator<Item = &StoredFile> {
        self.tenants.iter().flat_map(|tenant| {
            let segments = tenant.logs.iter().flat_map(|log| &log.segments);
            let files = segments.flat_map(|segment| std::iter::once(&segment.file).chain(&segment.index));
            std::iter::once(&tenant.file).chain(&tenant.map).chain(files)
        })
    }

    /// Compares what is there with what must be, and names the first file that differs.
    pub(super) fn compare(&self, found: &BTreeMap<String, StoredFile>) -> Outcome<()> {
        for due in self.files() {
            match found.get(&due.name) {
                None => return Err(invalid(format!("{} is missing in the backup", due.name))),
                Some(file) if file.bytes != due.bytes => {
                    let message = format!("{} of the backup has {} bytes and had {}", due.name, file.bytes, due.bytes);
                    return Err(invalid(message));
                }
                Some(file) if file.sha256 != due.sha256 => {
                    return Err(invalid(format!("{} of the backup is not what was written", due.name)));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}

/// A path in a backup leads nowhere else.
pub(super) fn valid_path(path: &str) -> Outcome<()> {
    let plain = |part: &str| !part.is_empty() && !part.starts_with('.') && !part.contains(['\\', '\0']);
    match path == MANIFEST || (path.starts_with("tenants/") && path.split('/').all(plain)) {
        true => Ok(()),
        false => Err(invalid(format!("{path:?} is no file of a backup"))),
    }
}

/// A SHA-256 in hexadecimal.
pub(super) fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
