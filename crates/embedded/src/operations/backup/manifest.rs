//! The manifest, which describes a backup.

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

/// The content of a backup.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// When the backup was started.
    pub began: Timestamp,
    /// The tenants, ordered by name.
    pub tenants: Vec<TenantManifest>,
    /// Folders of the store that are not in the backup: tenants and scopes that were not open. If the backup was taken without records,
    /// or by a version that left records and streams out, their folders as well.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
}

/// A tenant in a backup.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TenantManifest {
    /// The name of the tenant.
    pub tenant: String,
    /// The id of its store.
    pub store_id: Uuid,
    /// Its incarnation.
    pub incarnation: u32,
    /// Its `tenant.json`.
    pub file: StoredFile,
    /// Its records and streams, as of before the heads of its logs. `None` if nothing was ever written, if the backup was taken without
    /// records, or if its version left them out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub map: Option<StoredFile>,
    /// Its logs.
    pub logs: Vec<LogManifest>,
}

/// A log in a backup.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LogManifest {
    /// Its scope.
    pub scope: String,
    /// The number of its events.
    pub head: SequenceNumber,
    /// The hash of its events.
    pub events_hash: EventsHash,
    /// Its segments, in order.
    pub segments: Vec<SegmentManifest>,
}

/// A segment in a backup.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SegmentManifest {
    /// Its number in the log.
    pub number: u64,
    /// The random value that distinguishes it from any other segment with this number.
    pub salt: u64,
    /// The sequence number of its first event.
    pub first: SequenceNumber,
    /// The hash of its events.
    pub events_hash: EventsHash,
    /// Whether it was closed and never changes again.
    pub closed: bool,
    /// The file with its bytes up to the head.
    pub file: StoredFile,
    /// Its index, if it had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<StoredFile>,
}

/// A file in a backup.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct StoredFile {
    /// Its path in the backup.
    pub name: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// Its SHA-256, in hexadecimal.
    pub sha256: String,
}

impl Manifest {
    /// Decodes a manifest. Fails with `newer_format` if a newer version wrote it, or with `invalid_backup` if it is not as written.
    pub(super) fn read(bytes: &[u8]) -> Outcome<Self> {
        if let Some(newer) = format_of(bytes).filter(|format| *format > FORMAT) {
            return Err(newer_format("the backup's manifest.json", newer).into());
        }
        let manifest: Self = unseal(bytes).ok_or_else(|| invalid("manifest.json of the backup is damaged"))?;
        for file in manifest.files() {
            valid_path(&file.name)?;
        }
        Ok(manifest)
    }

    /// Returns every file of the backup except the manifest.
    pub fn files(&self) -> impl Iterator<Item = &StoredFile> {
        self.tenants.iter().flat_map(|tenant| {
            let segments = tenant.logs.iter().flat_map(|log| &log.segments);
            let files = segments.flat_map(|segment| std::iter::once(&segment.file).chain(&segment.index));
            std::iter::once(&tenant.file).chain(&tenant.map).chain(files)
        })
    }

    /// Compares the files found with those required, and reports the first that differs.
    pub(super) fn compare(&self, found: &BTreeMap<String, StoredFile>) -> Outcome<()> {
        for due in self.files() {
            match found.get(&due.name) {
                None => return Err(invalid(format!("{} is missing in the backup", due.name))),
                Some(file) if file.bytes != due.bytes => {
                    let message =
                        format!("{} of the backup has {} bytes but should have {}", due.name, file.bytes, due.bytes);
                    return Err(invalid(message));
                }
                Some(file) if file.sha256 != due.sha256 => {
                    return Err(invalid(format!("{} of the backup is damaged", due.name)));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}

/// Checks that a path in a backup stays inside the backup.
pub(super) fn valid_path(path: &str) -> Outcome<()> {
    let plain = |part: &str| !part.is_empty() && !part.starts_with('.') && !part.contains(['\\', '\0']);
    match path == MANIFEST || (path.starts_with("tenants/") && path.split('/').all(plain)) {
        true => Ok(()),
        false => Err(invalid(format!("{path:?} is not a file of a backup"))),
    }
}

/// Formats a SHA-256 in hexadecimal.
pub(super) fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
