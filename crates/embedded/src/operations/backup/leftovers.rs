//! Files in the folder of a backup that no manifest names: what an interrupted backup left there, or other software.

use std::collections::BTreeSet;
use std::io;

use super::manifest::Manifest;
use crate::disk::Disk;
use crate::store::TENANTS;
use crate::whole::UNFINISHED;

/// What a backup found in its folder beside its own files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Leftovers {
    /// Unfinished files of interrupted backups, which were removed.
    pub removed: Vec<String>,
    /// Everything else, which was left alone. A complete file of an interrupted backup cannot be told from one that a person put there.
    pub unnamed: Vec<String>,
}

/// Removes the unfinished files of interrupted backups, and lists what else the manifest does not name. The backup is complete by now, so
/// what cannot be listed or removed is not an error.
pub(super) fn clear(disk: &dyn Disk, manifest: &Manifest) -> Leftovers {
    let due: BTreeSet<&str> = manifest.files().map(|file| file.name.as_str()).collect();
    let mut found = Leftovers::default();
    for tenant in below(disk, TENANTS).unwrap_or_default() {
        match below(disk, &tenant) {
            None => found.unnamed.push(tenant),
            Some(paths) => paths.into_iter().for_each(|path| look(disk, path, &due, &mut found)),
        }
    }
    found.removed.sort_unstable();
    found.unnamed.sort_unstable();
    found
}

/// Looks at a file of a tenant, or at the folder of one of its parts.
fn look(disk: &dyn Disk, path: String, due: &BTreeSet<&str>, found: &mut Leftovers) {
    let is_file = due.contains(path.as_str()) || is_of_backup(path.strip_suffix(UNFINISHED).unwrap_or(&path));
    let paths = match below(disk, &path).filter(|_| !is_file) {
        None => vec![path],
        Some(paths) => paths,
    };
    for path in paths.into_iter().filter(|path| !due.contains(path.as_str())) {
        let unfinished = path.strip_suffix(UNFINISHED).is_some_and(is_of_backup);
        match unfinished && disk.remove(&path).is_ok() {
            true => found.removed.push(path),
            false => found.unnamed.push(path),
        }
    }
}

/// Returns the paths in a folder; `None` if it is a file.
fn below(disk: &dyn Disk, dir: &str) -> Option<Vec<String>> {
    match disk.list(dir) {
        Ok(names) => Some(names.into_iter().map(|name| format!("{dir}/{name}")).collect()),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => None,
        Err(_) => Some(Vec::new()),
    }
}

/// Returns whether a backup gives such a name to a file; see the names in `backup.rs`.
fn is_of_backup(path: &str) -> bool {
    let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
    let Some((stem, kind)) = name.rsplit_once('.') else { return false };
    let parts: Vec<&str> = stem.split('-').collect();
    match (kind, &parts[..]) {
        ("json", ["tenant", incarnation]) => is_number(incarnation),
        ("entries", ["map", hash, bytes]) => hash.bytes().all(|byte| byte.is_ascii_hexdigit()) && is_number(bytes),
        ("segment" | "index", [number, incarnation, bytes] | [number, incarnation, bytes, "packed"]) => {
            number.len() >= 10 && is_number(number) && is_number(incarnation) && is_number(bytes)
        }
        _ => false,
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_a_backup_are_known_and_no_others() {
        for name in [
            "tenants/t/tenant-3.json",
            "tenants/t/_engine/map-0a1b-77.entries",
            "tenants/t/s/0000000009-0-4711.segment",
            "0000000009-2-4711-packed.index",
        ] {
            assert!(is_of_backup(name), "{name}");
        }
        for name in ["tenant.json", "tenant-x.json", "map-7.entries", "0000000009.segment", "9-0-1.segment", "a", ""] {
            assert!(!is_of_backup(name), "{name}");
        }
    }
}
