//! Creates a new store from a backup.
//!
//! `store.json` is written last, once everything else exists and is verified and synced. A folder without it is not a store, so an
//! interrupted restore never leaves anything that could be mistaken for one.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use annals_core::{Code, EventsHash, SequenceNumber, UnknownLog};
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::archive::{Sink, Unpack};
use super::invalid;
use super::manifest::{
    LogManifest, MANIFEST, MANIFEST_BYTES_MAX, Manifest, StoredFile, TenantManifest, hex, valid_path,
};
use super::map::{self, RestoredMap};
use crate::Options;
use crate::disk::{Disk, DiskFile, Open};
use crate::engine;
use crate::format::{SEGMENT_HEADER, SegmentHeader};
use crate::log::{Step, Walk, names};
use crate::operations::copy::{STEP, create, fill, read_to};
use crate::operations::survey::{self, Small};
use crate::operations::{OperationError, Outcome, Progress, cut, unreadable, unwritable};
use crate::options::SeededBug;
use crate::store::{ENGINE_DIR, LOCK_FILE, SEGMENT_BYTES_CEILING, STORE_FILE, StoreFile, TENANT_FILE, TenantFile};
use crate::whole::{UNFINISHED, read_whole, seal, write_whole};

/// Where a backup is read from.
pub enum Source {
    /// A folder that holds the unpacked backup.
    Folder(Arc<dyn Disk>),
    /// A file with this name in a folder.
    File(Arc<dyn Disk>, String),
}

/// What to restore.
#[derive(Debug, Clone, Default)]
pub struct Restore {
    /// Omits the events of one log from a sequence number on: tenant, scope, number.
    pub cut: Option<(String, String, SequenceNumber)>,
}

/// What was restored.
#[derive(Debug, Clone, Serialize)]
pub struct Restored {
    /// The restored logs.
    pub logs: Vec<RestoredLog>,
    /// The records and streams of the tenants, as of the start of the backup. Records are not cut even if a log is, because they are not
    /// derived from events. Streams are cut with their log when the store is opened.
    pub maps: Vec<RestoredMap>,
}

/// A restored log.
#[derive(Debug, Clone, Serialize)]
pub struct RestoredLog {
    /// Its tenant.
    pub tenant: String,
    /// Its scope.
    pub scope: String,
    /// The number of its events, which is where the new incarnation begins.
    pub head: SequenceNumber,
    /// The new incarnation.
    pub incarnation: u32,
    /// The hash of its events as they were read back.
    pub events_hash: EventsHash,
}

/// The file that exists while a store is being restored. Without `store.json` beside it, the rest of the folder is of no use.
const RESTORING: &str = "restore.unfinished";
pub(crate) const INTERRUPTED: &str =
    "a restore into this folder was interrupted, so it holds no store; delete its content and restore the backup again";

/// Returns whether a folder with these names was left by a restore that was interrupted.
pub(crate) fn is_interrupted(names: &[String]) -> bool {
    let has = |due: &str| names.iter().any(|name| name == due);
    has(RESTORING) && !has(STORE_FILE)
}

/// Creates a store in a new or empty folder. `progress` counts bytes: each is written once and read back once.
///
/// # Errors
/// `folder_not_empty`; `invalid_backup`, naming what is missing or altered; `newer_format`; `invalid_range` if no commit ends at the
/// number, `unknown_tenant`, `unknown_scope`; `disk_full`, `store_read_only`, `read_failed`. No store exists after an error.
pub fn restore(
    source: &Source,
    target: &Arc<dyn Disk>,
    what: &Restore,
    options: &Options,
    progress: Progress<'_>,
) -> Outcome<Restored> {
    target.create_dir("").map_err(|error| unwritable("the folder", &error))?;
    let ours = |name: &String| name == LOCK_FILE || name == "lost+found" || name.starts_with('.');
    let names = survey::sorted(&**target, "")?;
    if is_interrupted(&names) {
        return Err(OperationError::new(Code::FolderNotEmpty, INTERRUPTED));
    }
    if !names.iter().all(ours) {
        let message = "the folder is not empty; a backup is restored into a new or empty folder only";
        return Err(OperationError::new(Code::FolderNotEmpty, message));
    }
    let _lock = target.lock().map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => OperationError::new(Code::StoreLocked, "another process is using this folder"),
        _ => unwritable("the folder", &error),
    })?;
    let mut writing = Writing::new(target.clone());
    writing.written.push(RESTORING.to_owned());
    let begun =
        create(&**target, RESTORING).and_then(|_| target.sync_dir("")).map_err(|error| unwritable(RESTORING, &error));
    let restored = begun.and_then(|()| run(source, &mut writing, what, options, progress));
    if restored.is_ok() {
        // Beside store.json it has no meaning, so it may stay.
        let _ = target.remove(RESTORING);
    } else {
        // What exists so far is not a store. If a file cannot be removed, the next restore refuses the folder. The first file goes last,
        // because it explains the others.
        for name in writing.written.iter().rev() {
            let _ = target.remove(name);
        }
        // Deepest folders first.
        for dir in writing.dirs.iter().rev() {
            let _ = target.remove_dir(dir);
        }
    }
    restored
}

fn run(
    source: &Source,
    writing: &mut Writing,
    what: &Restore,
    options: &Options,
    progress: Progress<'_>,
) -> Outcome<Restored> {
    let verified = !options.has(SeededBug::SkipBackupVerification);
    let manifest = writing.read(source, verified, progress)?;
    check_cut(&manifest, what)?;
    let disk = writing.disk.clone();
    let bytes: u64 = manifest.files().map(|file| file.bytes).sum();
    let mut done = bytes;
    let mut restored = Restored { logs: Vec::new(), maps: Vec::new() };
    for tenant in &manifest.tenants {
        let mut starts = BTreeMap::new();
        for log in &tenant.logs {
            // A log without events has no files in the backup.
            writing.create_dir(&format!("{}/{}/{}", survey::TENANTS, tenant.tenant, log.scope))?;
            let read_back = Place { disk: &*disk, tenant, log, what }.settle(verified, &mut |part| {
                progress((done + part).min(2 * bytes), 2 * bytes);
            })?;
            done += log.segments.iter().map(|segment| segment.file.bytes).sum::<u64>();
            starts.insert(log.scope.clone(), read_back.head);
            restored.logs.push(read_back);
        }
        if let Some(due) = &tenant.map {
            writing.map_is_made_in(&tenant.tenant);
            restored.maps.push(map::settle(&disk, &tenant.tenant, due, verified, options)?);
            done += due.bytes;
            progress(done.min(2 * bytes), 2 * bytes);
        }
        let dir = format!("{}/{}", survey::TENANTS, tenant.tenant);
        begin_incarnation(&*disk, &dir, starts, options)?;
        let logs = tenant.logs.iter().map(|log| format!("{dir}/{}", log.scope));
        for dir in logs.chain([dir.clone(), survey::TENANTS.to_owned()]) {
            disk.sync_dir(&dir).map_err(|error| unwritable(&dir, &error))?;
        }
    }
    let tenants = manifest.tenants.iter().map(|tenant| tenant.tenant.clone()).collect();
    writing.written.push(STORE_FILE.to_owned());
    let sealed = seal(&StoreFile::of(tenants)).and_then(|bytes| write_whole(&*disk, "", STORE_FILE, &bytes));
    sealed.map_err(|error| unwritable(STORE_FILE, &error))?;
    Ok(restored)
}

fn check_cut(manifest: &Manifest, what: &Restore) -> Outcome<()> {
    let Some((tenant, scope, at)) = &what.cut else { return Ok(()) };
    let unknown =
        |error: UnknownLog| OperationError::new(error.code(), format!("the backup holds no such log: {error}"));
    let found = manifest.tenants.iter().find(|found| found.tenant == *tenant);
    let found = found.ok_or_else(|| unknown(UnknownLog::Tenant(tenant.clone())))?;
    let log = found.logs.iter().find(|log| log.scope == *scope);
    let log = log.ok_or_else(|| unknown(UnknownLog::Scope { tenant: tenant.clone(), scope: scope.clone() }))?;
    if *at > log.head {
        let message = format!("the backup ends at {}, so the log cannot be restored to {at}", log.head);
        return Err(OperationError::new(Code::InvalidRange, message));
    }
    Ok(())
}

/// The files of a new store as they are written.
struct Writing {
    disk: Arc<dyn Disk>,
    found: BTreeMap<String, StoredFile>,
    manifest: Vec<u8>,
    written: Vec<String>,
    current: Option<File>,
    /// The folders that were created, including their parents.
    dirs: BTreeSet<String>,
}

struct File {
    /// Its name in the backup.
    name: String,
    to: String,
    file: Option<Arc<dyn DiskFile>>,
    hasher: Sha256,
    bytes: u64,
    /// Its first bytes, which contain the capacity of a segment.
    head: Vec<u8>,
}

impl Writing {
    fn new(disk: Arc<dyn Disk>) -> Self {
        let (manifest, written, dirs) = (Vec::new(), Vec::new(), BTreeSet::new());
        Self { disk, found: BTreeMap::new(), manifest, written, current: None, dirs }
    }

    fn create_dir(&mut self, dir: &str) -> Outcome<()> {
        if self.dirs.contains(dir) {
            return Ok(());
        }
        self.disk.create_dir(dir).map_err(|error| unwritable(dir, &error))?;
        self.dirs.extend(dir.match_indices('/').map(|(at, _)| dir[..at].to_owned()));
        self.dirs.insert(dir.to_owned());
        Ok(())
    }

    /// Registers files that are written although they are not in the backup.
    fn map_is_made_in(&mut self, tenant: &str) {
        let path = format!("{}/{tenant}/{ENGINE_DIR}/{}", survey::TENANTS, engine::FILE);
        self.written.extend([format!("{path}{UNFINISHED}"), path]);
    }

    fn read(&mut self, source: &Source, verified: bool, progress: Progress<'_>) -> Outcome<Manifest> {
        match source {
            Source::Folder(disk) => self.folder(&**disk, progress)?,
            Source::File(disk, name) => self.file(&**disk, name, progress)?,
        }
        if self.manifest.is_empty() {
            return Err(invalid("manifest.json is missing, so the backup is truncated, or this is not a backup"));
        }
        let manifest = Manifest::read(&self.manifest)?;
        if verified {
            manifest.compare(&self.found)?;
            manifest.lists(&self.found)?;
        }
        Ok(manifest)
    }

    fn folder(&mut self, disk: &dyn Disk, progress: Progress<'_>) -> Outcome<()> {
        self.manifest = match read_whole(disk, MANIFEST, MANIFEST_BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(unreadable(MANIFEST, &error)),
        };
        let manifest = Manifest::read(&self.manifest)?;
        let total: u64 = manifest.files().map(|file| file.bytes).sum();
        let mut done = 0;
        for due in manifest.files() {
            let name = &due.name;
            let file = match disk.open(name, Open::Read) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(unreadable(name, &error)),
            };
            let bytes = file.length().map_err(|error| unreadable(name, &error))?;
            self.begin(name, bytes)?;
            let mut refused = Ok(());
            let read = read_to(&*file, bytes, |part| {
                refused = self.data(part);
                done += part.len() as u64;
                progress(done.min(total), 2 * total);
                if refused.is_ok() { Ok(()) } else { Err(io::ErrorKind::Other.into()) }
            });
            refused?;
            read.map_err(|error| unreadable(name, &error))?;
            self.end()?;
        }
        Ok(())
    }

    fn file(&mut self, disk: &dyn Disk, name: &str, progress: Progress<'_>) -> Outcome<()> {
        let fail = |error: io::Error| unreadable(name, &error);
        let file = disk.open(name, Open::Read).map_err(fail)?;
        let bytes = file.length().map_err(fail)?;
        let mut unpack = Unpack::default();
        let mut buffer = vec![0; STEP as usize];
        let mut offset = 0;
        loop {
            let got = file.read_at(&mut buffer, offset).map_err(fail)?;
            if got == 0 {
                return unpack.finish();
            }
            unpack.push(&buffer[..got], self)?;
            offset += got as u64;
            progress(offset, 2 * bytes);
        }
    }
}

impl Sink for Writing {
    fn begin(&mut self, name: &str, bytes: u64) -> Outcome<()> {
        valid_path(name)?;
        if name == MANIFEST && bytes > MANIFEST_BYTES_MAX {
            return Err(invalid("manifest.json of the backup is larger than any manifest"));
        }
        let to = place_of(name)?;
        let mut file = None;
        if name != MANIFEST {
            let dir = to.rsplit_once('/').map_or("", |(dir, _)| dir).to_owned();
            self.create_dir(&dir)?;
            self.written.push(to.clone());
            file = Some(create(&*self.disk, &to).map_err(|error| unwritable(&to, &error))?);
        }
        let (name, hasher) = (name.to_owned(), Sha256::new());
        self.current = Some(File { name, to, file, hasher, bytes: 0, head: Vec::new() });
        Ok(())
    }

    fn data(&mut self, bytes: &[u8]) -> Outcome<()> {
        let Some(current) = &mut self.current else { return Ok(()) };
        current.hasher.update(bytes);
        match &current.file {
            Some(file) => file.write_at(bytes, current.bytes).map_err(|error| unwritable(&current.to, &error))?,
            None => self.manifest.extend_from_slice(bytes),
        }
        let missing = (SEGMENT_HEADER as usize).saturating_sub(current.head.len());
        current.head.extend_from_slice(&bytes[..missing.min(bytes.len())]);
        current.bytes += bytes.len() as u64;
        Ok(())
    }

    fn end(&mut self) -> Outcome<()> {
        let Some(File { name, to, file, hasher, bytes, head }) = self.current.take() else { return Ok(()) };
        if let Some(file) = file {
            let fail = |error: io::Error| unwritable(&to, &error);
            if let Ok(header) = SegmentHeader::decode(&head)
                && header.capacity > bytes
            {
                if header.capacity > SEGMENT_BYTES_CEILING {
                    return Err(invalid(format!(
                        "{name} states a size of {} bytes, which no segment has",
                        header.capacity
                    )));
                }
                // Restores the preallocated zeros, which a backup leaves out.
                fill(&*file, bytes, header.capacity).map_err(fail)?;
            }
            file.sync().map_err(fail)?;
        }
        let sha256 = hex(&hasher.finalize());
        self.found.insert(name.clone(), StoredFile { name, bytes, sha256 });
        Ok(())
    }
}

/// Returns the path of a backup's file in a store, where names contain neither lengths nor incarnations.
fn place_of(name: &str) -> Outcome<String> {
    if name == MANIFEST {
        return Ok(name.to_owned());
    }
    let wrong = || invalid(format!("{name:?} is not a file of a backup"));
    let (dir, file) = name.rsplit_once('/').ok_or_else(wrong)?;
    let (stem, kind) = file.rsplit_once('.').ok_or_else(wrong)?;
    let (stem, _) = stem.split_once('-').ok_or_else(wrong)?;
    match kind {
        "entries" if stem == "map" && dir.ends_with(&format!("/{ENGINE_DIR}")) => Ok(format!("{dir}/{}", map::ENTRIES)),
        "segment" | "index" => Ok(format!("{dir}/{stem}.{kind}")),
        "json" if format!("{stem}.{kind}") == TENANT_FILE => Ok(format!("{dir}/{TENANT_FILE}")),
        _ => Err(wrong()),
    }
}

/// A log whose files are in place.
struct Place<'a> {
    disk: &'a dyn Disk,
    tenant: &'a TenantManifest,
    log: &'a LogManifest,
    what: &'a Restore,
}

impl Place<'_> {
    /// Cuts the log if requested, and reads back what remains.
    fn settle(&self, verified: bool, progress: &mut dyn FnMut(u64)) -> Outcome<RestoredLog> {
        let (tenant, scope) = (&self.tenant.tenant, &self.log.scope);
        let dir = format!("{}/{tenant}/{scope}", survey::TENANTS);
        let cut = self.what.cut.as_ref().filter(|(of, within, _)| (of, within) == (tenant, scope));
        if let Some((.., at)) = cut {
            self.cut(&dir, *at)?;
        }
        let (head, events_hash) = read_back(self.disk, &dir, progress)?;
        let due = cut.map_or(self.log.head, |(.., at)| *at);
        let same = head == due && (cut.is_some() || events_hash == self.log.events_hash);
        if verified && !same {
            let message =
                format!("the restored log of {dir} has {head} events, and its hash differs from the backup's {due}");
            return Err(invalid(message));
        }
        let (tenant, scope, incarnation) = (tenant.clone(), scope.clone(), self.tenant.incarnation + 1);
        Ok(RestoredLog { tenant, scope, head, incarnation, events_hash })
    }

    fn cut(&self, dir: &str, at: SequenceNumber) -> Outcome<()> {
        let border = cut::find(self.disk, dir, at, &mut |_| {})?;
        let within = border.within.as_ref().map(|open| open.at.number);
        for name in survey::sorted(self.disk, dir)? {
            let segment = names::segment_number(&name).is_some_and(|number| number >= border.beyond);
            let index =
                names::index_number(&name).is_some_and(|number| number >= border.beyond || Some(number) == within);
            if segment || index {
                let path = format!("{dir}/{name}");
                self.disk.remove(&path).map_err(|error| unwritable(&path, &error))?;
            }
        }
        let Some(open) = border.within else { return Ok(()) };
        let name = &open.at.name;
        let unfinished = format!("{name}{UNFINISHED}");
        let done = cut::keep_to(self.disk, &open, border.offset, &unfinished);
        done.and_then(|()| self.disk.rename(&unfinished, name)).map_err(|error| unwritable(name, &error))
    }
}

/// Reads every commit of a log. Returns its head and the hash of its events.
fn read_back(disk: &dyn Disk, dir: &str, progress: &mut dyn FnMut(u64)) -> Outcome<(SequenceNumber, EventsHash)> {
    let (mut head, mut hash, mut done) = (0, EventsHash::default(), 0);
    for number in survey::segment_numbers(&survey::sorted(disk, dir)?) {
        let Ok(open) = survey::segment(disk, dir, number)? else {
            let name = names::segment(dir, number);
            return Err(invalid(format!("the header of {name} is damaged or belongs to another segment")));
        };
        let fail = |error: io::Error| unreadable(&open.at.name, &error);
        let mut walk = Walk::new(&open.at, open.length).map_err(fail)?;
        loop {
            match walk.step().map_err(fail)? {
                Step::End => break,
                Step::Commit(placed) if placed.first() == head => {
                    placed.record.add_to(&mut hash);
                    head = placed.next();
                    progress(done + placed.end);
                }
                Step::Commit(placed) => {
                    let (name, offset) = (&open.at.name, placed.offset);
                    return Err(invalid(format!(
                        "{name} at offset {offset}: a commit does not follow the previous one"
                    )));
                }
                Step::Fault { offset, what, .. } => {
                    return Err(invalid(format!("{} at offset {offset}: {what}", open.at.name)));
                }
            }
        }
        done += open.length;
    }
    Ok((head, hash))
}

fn begin_incarnation(disk: &dyn Disk, dir: &str, starts: BTreeMap<String, u64>, options: &Options) -> Outcome<()> {
    let path = format!("{dir}/{TENANT_FILE}");
    let file: TenantFile = match survey::small(disk, &path)? {
        Small::Whole(file) => file,
        _ => return Err(invalid(format!("{path} of the backup is damaged"))),
    };
    let mut begun = Vec::new();
    for scope in starts.keys() {
        if !survey::segment_numbers(&survey::sorted(disk, &format!("{dir}/{scope}"))?).is_empty() {
            begun.push(scope.clone());
        }
    }
    if survey::sorted(disk, &format!("{dir}/{ENGINE_DIR}"))?.iter().any(|name| name == engine::FILE) {
        begun.push(ENGINE_DIR.to_owned());
    }
    let next = if options.has(SeededBug::KeepIncarnation) { file } else { file.reborn(starts) };
    // Recorded now rather than at the first opening, so that a loss in between is noticed.
    let next = next.with_begun(begun);
    let written = seal(&next).and_then(|bytes| write_whole(disk, dir, &path, &bytes));
    written.map(|_| ()).map_err(|error| unwritable(&path, &error))
}
