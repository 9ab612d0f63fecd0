//! The manifest, which describes a backup.

use std::collections::{BTreeMap, BTreeSet};

use annals_core::{EventsHash, SequenceNumber, Timestamp, Uuid};
use serde::{Deserialize, Serialize};

use super::invalid;
use crate::format::FORMAT;
use crate::operations::Outcome;
use crate::refused::newer_format;
use crate::store::{ENGINE_DIR, TENANTS};
use crate::whole::{format_of, unseal};

/// The name of the manifest in a backup.
pub(super) const MANIFEST: &str = "manifest.json";
/// The largest manifest that is accepted, in bytes.
pub(super) const MANIFEST_BYTES_MAX: u64 = 1024 * 1024 * 1024;

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
        manifest.check_places()?;
        Ok(manifest)
    }

    /// Checks that each file is in the folder of its tenant or log, and that these folders are inside the store. The folders are created
    /// and written by the names in the manifest, whatever the names of the files are.
    fn check_places(&self) -> Outcome<()> {
        for tenant in &self.tenants {
            let dir = folder_below(TENANTS, &tenant.tenant)?;
            is_in(&dir, &tenant.file)?;
            if let Some(map) = &tenant.map {
                is_in(&format!("{dir}/{ENGINE_DIR}"), map)?;
            }
            for log in &tenant.logs {
                let dir = folder_below(&dir, &log.scope)?;
                log.segments.iter().try_for_each(|it| is_in(&dir, &it.file))?;
                log.segments.iter().filter_map(|it| it.index.as_ref()).try_for_each(|index| is_in(&dir, index))?;
            }
        }
        Ok(())
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

    /// Checks that every file found is listed. Nothing has verified the content of any other file.
    pub(super) fn lists(&self, found: &BTreeMap<String, StoredFile>) -> Outcome<()> {
        let listed: BTreeSet<&str> = self.files().map(|file| file.name.as_str()).collect();
        match found.keys().find(|name| *name != MANIFEST && !listed.contains(name.as_str())) {
            Some(name) => Err(invalid(format!("{name} is not listed in manifest.json of the backup"))),
            None => Ok(()),
        }
    }
}

/// Returns the path of a tenant's or a log's folder.
fn folder_below(dir: &str, name: &str) -> Outcome<String> {
    let path = format!("{dir}/{name}");
    if name.contains('/') {
        return Err(invalid(format!("manifest.json of the backup names {name:?}, which is no name of a folder")));
    }
    valid_path(&path)?;
    Ok(path)
}

fn is_in(dir: &str, file: &StoredFile) -> Outcome<()> {
    valid_path(&file.name)?;
    match file.name.rsplit_once('/') {
        Some((folder, _)) if folder == dir => Ok(()),
        _ => Err(invalid(format!("manifest.json of the backup lists {:?} as a file of {dir}", file.name))),
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
