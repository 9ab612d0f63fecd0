//! Stores a backup that arrives as an archive, either as a single file or unpacked in a folder, to which the next backup adds only what
//! has grown.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use annals_core::{Code, Uuid};
use sha2::{Digest, Sha256};

use super::archive::{Sink, Unpack};
use super::invalid;
use super::leftovers::{self, Leftovers};
use super::manifest::{MANIFEST, MANIFEST_BYTES_MAX, Manifest, StoredFile, hex, valid_path};
use crate::disk::{Disk, DiskFile, Open};
use crate::operations::copy::{create, read_to};
use crate::operations::{OperationError, Outcome, survey, unreadable, unwritable};
use crate::store::TenantFile;
use crate::whole::{UNFINISHED, read_whole, unseal, write_whole};

/// Receives a backup, and keeps it once it is complete and matches its manifest.
pub struct Receiver {
    unpack: Unpack,
    files: Files,
    /// The archive itself, if it is stored as one file.
    archive: Option<Growing>,
    earlier: Option<Vec<u8>>,
    /// The files of the earlier backup in the folder.
    replaced: BTreeSet<String>,
    /// The lock of the folder, if its file system can lock folders: two backups would remove each other's unfinished files.
    lock: Option<Box<dyn Send + Sync>>,
}

/// A file that is being written from its beginning.
struct Growing {
    name: String,
    file: Arc<dyn DiskFile>,
    bytes: u64,
}

/// The files of a backup as they arrive.
struct Files {
    disk: Arc<dyn Disk>,
    /// Whether files are written, rather than only counted and hashed.
    kept: bool,
    found: BTreeMap<String, StoredFile>,
    folders: BTreeSet<String>,
    current: Option<(String, Sha256, u64, Option<Growing>)>,
    manifest: Vec<u8>,
    /// The store id of each tenant that the earlier backup in the folder contains.
    stores: BTreeMap<String, Uuid>,
}

impl Receiver {
    /// Stores the backup unpacked in a folder: a new or empty one, or one that holds an earlier backup.
    ///
    /// # Errors
    /// `folder_not_empty`, `newer_format`, `invalid_backup` if the earlier backup is damaged; `store_locked` if another backup is being
    /// written there; `read_failed`, `store_read_only`.
    pub fn into_folder(disk: Arc<dyn Disk>) -> Outcome<Self> {
        disk.create_dir("").map_err(|error| unwritable("the folder", &error))?;
        let mut receiver = Self::new(disk.clone(), true, None);
        receiver.lock = lock(&*disk)?;
        let names = survey::sorted(&*disk, "")?;
        if names.iter().any(|name| name == MANIFEST) {
            receiver.look_at_earlier(&*disk)?;
        } else if names.iter().any(|name| is_of_others(name)) {
            let message =
                "the folder holds other files and no manifest.json; name a new or empty folder, or an earlier backup";
            return Err(OperationError::new(Code::FolderNotEmpty, message));
        }
        Ok(receiver)
    }

    /// Stores the backup as one file, which must not exist yet.
    ///
    /// # Errors
    /// `folder_not_empty` if the file exists; `store_read_only`, `disk_full`, `read_failed`.
    pub fn into_file(disk: Arc<dyn Disk>, name: &str) -> Outcome<Self> {
        disk.create_dir("").map_err(|error| unwritable("the folder", &error))?;
        if disk.open(name, Open::Read).is_ok() {
            return Err(OperationError::new(Code::FolderNotEmpty, format!("{name} already exists; name a new file")));
        }
        let unfinished = format!("{name}{UNFINISHED}");
        let file = create(&*disk, &unfinished).map_err(|error| unwritable(&unfinished, &error))?;
        Ok(Self::new(disk, false, Some(Growing { name: name.to_owned(), file, bytes: 0 })))
    }

    fn new(disk: Arc<dyn Disk>, kept: bool, archive: Option<Growing>) -> Self {
        let (found, folders) = (BTreeMap::new(), BTreeSet::new());
        let files = Files { disk, kept, found, folders, current: None, manifest: Vec::new(), stores: BTreeMap::new() };
        Self { unpack: Unpack::default(), files, archive, earlier: None, replaced: BTreeSet::new(), lock: None }
    }

    /// Reads the files of the earlier backup, which need not be sent again.
    fn look_at_earlier(&mut self, disk: &dyn Disk) -> Outcome<()> {
        let bytes = read_whole(disk, MANIFEST, MANIFEST_BYTES_MAX).map_err(|error| unreadable(MANIFEST, &error))?;
        let manifest = Manifest::read(&bytes)?;
        for file in manifest.files() {
            let found = hashed(disk, &file.name)?;
            found.into_iter().for_each(|found| {
                self.files.found.insert(file.name.clone(), found);
            });
            self.replaced.insert(file.name.clone());
        }
        manifest.compare(&self.files.found)?;
        self.files.stores = manifest.tenants.iter().map(|tenant| (tenant.tenant.clone(), tenant.store_id)).collect();
        self.earlier = Some(bytes);
        Ok(())
    }

    /// Returns the manifest of the earlier backup, to be passed when the next one is taken; see [`annals_core::Store::backup`].
    pub fn earlier(&self) -> Option<&[u8]> {
        self.earlier.as_deref()
    }

    /// Receives the next bytes of the archive.
    ///
    /// # Errors
    /// `invalid_backup` if the bytes are not an archive; `disk_full`, `store_read_only`, `read_failed`.
    pub fn push(&mut self, bytes: &[u8]) -> Outcome<()> {
        if let Some(archive) = &mut self.archive {
            archive.write(bytes)?;
        }
        self.unpack.push(bytes, &mut self.files)
    }

    /// Keeps the backup once it is complete and matches its manifest. Until then an earlier backup in the folder remains valid.
    ///
    /// # Errors
    /// `invalid_backup`, naming the file that is missing or altered; `disk_full`, `store_read_only`, `read_failed`.
    pub fn finish(self) -> Outcome<Manifest> {
        self.finish_and_clear().map(|(manifest, _)| manifest)
    }

    /// Does the same, and returns what it found in the folder beside the backup. Unfinished files of interrupted backups are removed.
    ///
    /// # Errors
    /// As for [`finish`](Self::finish).
    pub fn finish_and_clear(self) -> Outcome<(Manifest, Leftovers)> {
        let _lock = self.lock;
        self.unpack.finish()?;
        let files = self.files;
        if files.manifest.is_empty() {
            return Err(invalid("manifest.json is missing, so the backup is truncated"));
        }
        let manifest = Manifest::read(&files.manifest)?;
        manifest.compare(&files.found)?;
        let disk = &*files.disk;
        if let Some(archive) = self.archive {
            let unfinished = format!("{}{UNFINISHED}", archive.name);
            let kept = archive.file.sync().and_then(|()| disk.rename(&unfinished, &archive.name));
            kept.and_then(|()| disk.sync_dir("")).map_err(|error| unwritable(&archive.name, &error))?;
            return Ok((manifest, Leftovers::default()));
        }
        replaced_by_nothing(&self.replaced, &manifest)?;
        for folder in &files.folders {
            disk.sync_dir(folder).map_err(|error| unwritable(folder, &error))?;
        }
        write_whole(disk, "", MANIFEST, &files.manifest).map_err(|error| unwritable(MANIFEST, &error))?;
        // Files that only the earlier backup needed.
        let due: BTreeSet<&str> = manifest.files().map(|file| file.name.as_str()).collect();
        for name in self.replaced.iter().filter(|name| !due.contains(name.as_str())) {
            disk.remove(name).map_err(|error| unwritable(name, &error))?;
        }
        let leftovers = leftovers::clear(disk, &manifest);
        Ok((manifest, leftovers))
    }
}

/// Locks the folder itself, if its file system can.
fn lock(disk: &dyn Disk) -> Outcome<Option<Box<dyn Send + Sync>>> {
    disk.lock_dir("").map_err(|error| match error.kind() {
        std::io::ErrorKind::WouldBlock => {
            let message = "another process uses the folder; two backups cannot be written into one folder at once";
            let refusal = OperationError::new(Code::StoreLocked, message);
            refusal.advise("Wait until the other backup has ended, or name another folder.")
        }
        _ => unwritable("the folder", &error),
    })
}

/// Returns whether a file or folder beside no manifest comes from something other than a backup that was interrupted.
fn is_of_others(name: &str) -> bool {
    let unfinished = name.strip_suffix(UNFINISHED) == Some(MANIFEST);
    !name.starts_with('.') && name != "lost+found" && name != survey::TENANTS && !unfinished
}

/// Refuses a backup that leaves out a part of the earlier one in the folder: keeping it would delete the only copy of that part.
fn replaced_by_nothing(replaced: &BTreeSet<String>, manifest: &Manifest) -> Outcome<()> {
    let has = |left_out: &&String| replaced.iter().any(|name| name.starts_with(&format!("{left_out}/")));
    let Some(lost) = manifest.left_out.iter().find(has) else { return Ok(()) };
    let message =
        format!("the folder holds an earlier backup with {lost}, which this backup leaves out; nothing was replaced");
    let refusal = OperationError::new(Code::FolderNotEmpty, message);
    Err(refusal.advise("Declare the tenant and its scope under [tenants], or name a new folder."))
}

impl Growing {
    fn write(&mut self, bytes: &[u8]) -> Outcome<()> {
        self.file.write_at(bytes, self.bytes).map_err(|error| unwritable(&self.name, &error))?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }
}

impl Files {
    /// Refuses to replace a backup with one of another store. The tenant's file arrives before its segments.
    fn check_store(&self, name: &str, file: &dyn DiskFile, bytes: u64) -> Outcome<()> {
        let tenant = name.strip_prefix("tenants/").and_then(|rest| rest.split_once("/tenant-"));
        let Some(known) = tenant.and_then(|(tenant, _)| self.stores.get(tenant)) else { return Ok(()) };
        let mut content = vec![0; bytes as usize];
        file.read_at(&mut content, 0).map_err(|error| unreadable(name, &error))?;
        match unseal::<TenantFile>(&content) {
            Some(file) if file.store_id == *known => Ok(()),
            _ => {
                let message = "the folder holds the backup of another store; name a new or empty folder";
                Err(OperationError::new(Code::FolderNotEmpty, message))
            }
        }
    }
}

impl Sink for Files {
    fn begin(&mut self, name: &str, bytes: u64) -> Outcome<()> {
        valid_path(name)?;
        let kept = self.kept && name != MANIFEST;
        if name == MANIFEST && bytes > MANIFEST_BYTES_MAX {
            return Err(invalid("manifest.json of the backup is larger than any manifest"));
        }
        let mut growing = None;
        if kept {
            let dir = name.rsplit_once('/').map_or("", |(dir, _)| dir);
            if self.folders.insert(dir.to_owned()) {
                self.disk.create_dir(dir).map_err(|error| unwritable(dir, &error))?;
            }
            let unfinished = format!("{name}{UNFINISHED}");
            let file = create(&*self.disk, &unfinished).map_err(|error| unwritable(&unfinished, &error))?;
            growing = Some(Growing { name: unfinished, file, bytes: 0 });
        }
        self.current = Some((name.to_owned(), Sha256::new(), 0, growing));
        Ok(())
    }

    fn data(&mut self, bytes: &[u8]) -> Outcome<()> {
        let Some((name, hasher, length, growing)) = &mut self.current else { return Ok(()) };
        hasher.update(bytes);
        *length += bytes.len() as u64;
        if name == MANIFEST {
            self.manifest.extend_from_slice(bytes);
        }
        growing.as_mut().map_or(Ok(()), |growing| growing.write(bytes))
    }

    fn end(&mut self) -> Outcome<()> {
        let Some((name, hasher, bytes, growing)) = self.current.take() else { return Ok(()) };
        if let Some(growing) = growing {
            self.check_store(&name, &*growing.file, bytes)?;
            let kept = growing.file.sync().and_then(|()| self.disk.rename(&growing.name, &name));
            kept.map_err(|error| unwritable(&name, &error))?;
        }
        let sha256 = hex(&hasher.finalize());
        self.found.insert(name.clone(), StoredFile { name, bytes, sha256 });
        Ok(())
    }
}

/// Hashes a file of a backup. Returns `None` if it is missing.
pub(super) fn hashed(disk: &dyn Disk, name: &str) -> Outcome<Option<StoredFile>> {
    let file = match disk.open(name, Open::Read) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(name, &error)),
    };
    let mut hasher = Sha256::new();
    let bytes = file.length().map_err(|error| unreadable(name, &error))?;
    let read = read_to(&*file, bytes, |part| {
        hasher.update(part);
        Ok(())
    });
    read.map_err(|error| unreadable(name, &error))?;
    Ok(Some(StoredFile { name: name.to_owned(), bytes, sha256: hex(&hasher.finalize()) }))
}
