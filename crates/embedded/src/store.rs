//! The store: a folder with a lock, and a folder for each tenant in it.
//!
//! ```text
//! lock                                          taken by the process that has the store open
//! store.json                                    what this folder is, its format, and the tenants that were begun
//! tenants/{tenant}/tenant.json                  the tenant's store id, incarnation and secret key, and its map's generation
//! tenants/{tenant}/_engine/map.redb             records and streams; no scope can be called _engine
//! tenants/{tenant}/{scope}/0000000001.segment   the log, one file after another
//! tenants/{tenant}/{scope}/0000000001.index     the index of a closed segment
//! tenants/{tenant}/{scope}/checkpoint.json      how far the log reached when it was last closed
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use annals_core::doctor::Diagnosis;
use annals_core::{
    Backup, Code, DEFAULT_SCOPE, DocumentQueries, EventLog, Identity, LogStatus, OpenError, PrepareKeys, Queries,
    Receiving, RecordSnapshots, Records, Snapshots, Store, StoreDocuments, StoreError, Streams, UnknownLog, Uuid,
    limits, new_uuid,
};
use async_trait::async_trait;
use serde::{Serialize, de::DeserializeOwned};

use crate::disk::{Disk, Overlay};
use crate::engine::Engine;
use crate::examine::examine;
use crate::format::FORMAT;
use crate::log::{Log, Packed, Place};
use crate::operations::{INTERRUPTED, MapImage, Taking, TenantImage, is_interrupted};
use crate::records::TenantRecords;
use crate::refused::{cannot_open, newer_format};
use crate::streams::LogStreams;
use crate::whole::{SEALED_BYTES_MAX, format_of, read_whole, seal, unseal, write_whole};
use crate::{Options, Packing};

mod store_file;
mod tenant_file;

pub(crate) use self::store_file::{StoreFile, TENANTS};
pub(crate) use self::tenant_file::{TenantFile, TenantNotes};

/// The file that marks a folder as a store.
pub const STORE_FILE: &str = "store.json";
pub(crate) const TENANT_FILE: &str = "tenant.json";
const FIRST_SEGMENT: &str = "0000000001.segment";
/// No scope can have this name, because names begin with a letter or digit.
pub(crate) const ENGINE_DIR: &str = "_engine";
pub(crate) const LOCK_FILE: &str = "lock";
/// Offsets in a segment have 32 bits.
pub(crate) const SEGMENT_BYTES_CEILING: u64 = 2 * 1024 * 1024 * 1024;

/// The size of the in-memory segment after the last commit of a store that is opened read-only.
const READ_ONLY_SEGMENT_BYTES: u64 = 64 * 1024;

/// An open embedded store.
pub struct EmbeddedStore {
    disk: Arc<dyn Disk>,
    options: Options,
    tenants: BTreeMap<String, Tenant>,
    /// Held until the logs are closed.
    locks: Arc<Mutex<Locks>>,
}

/// The locks of the folders that another store may contain by a link or a mount, and of the store itself.
type Locks = Vec<Box<dyn Send + Sync>>;

struct Tenant {
    file: TenantFile,
    logs: BTreeMap<String, Arc<Log>>,
    streams: BTreeMap<String, Arc<LogStreams>>,
    engine: Arc<Engine>,
    records: Arc<TenantRecords>,
}

impl EmbeddedStore {
    /// Opens the store in this folder, or creates one if the folder is empty.
    ///
    /// # Errors
    /// `store_locked`, `store_read_only`, `newer_format`, `not_a_store`, `store_damaged` (only if not even its identity can be read; a
    /// damaged log opens read-only), `invalid_config`, `disk_full`, `read_failed`. Nothing has been changed then.
    pub fn open(disk: Arc<dyn Disk>, options: Options) -> Result<Self, OpenError> {
        let options = checked(options)?;
        let fail = |error: &io::Error| cannot_open("the store", error);
        disk.create_dir("").map_err(|error| fail(&error))?;
        check_folder(&*disk)?;
        let lock = disk.lock().map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => OpenError::new(
                Code::StoreLocked,
                "another process has this store open; stop it, or connect to it with --server",
            ),
            _ => fail(&error),
        })?;
        let mut file: StoreFile = file_or(&*disk, "", STORE_FILE, StoreFile::default)?;
        file.check_begun(&*disk, &options.tenants)?;
        let (mut tenants, mut locks) = (BTreeMap::new(), Locks::new());
        for name in &options.tenants {
            tenants.insert(name.clone(), open_tenant(&disk, name, &options, &mut locks)?);
        }
        // The tenants' folders exist by now, so `store.json` never names a tenant without one.
        file.note(&*disk, tenants.keys().cloned())?;
        // Released last, so that a process that gets the store's lock finds the folders unlocked.
        locks.push(lock);
        Ok(Self { disk, options, tenants, locks: Arc::new(Mutex::new(locks)) })
    }

    /// Opens the store in this folder for reading and writes nothing to it: repairs made on opening are kept in memory. Writes are
    /// refused with `store_read_only` and `why`. Other readers may have the store open at the same time.
    ///
    /// # Errors
    /// As for [`open`](Self::open); `not_a_store` if there is none.
    pub fn open_to_read(disk: Arc<dyn Disk>, options: Options, why: &str) -> Result<Self, OpenError> {
        let names = disk.list("").map_err(|error| cannot_open("the store", &error))?;
        if !names.iter().any(|name| name == STORE_FILE) {
            let message = format!("there is no store to read, and none can be created: {why}");
            return Err(OpenError::new(Code::NotAStore, message));
        }
        // A read-only store needs neither room for commits nor packed segments.
        let packing = Packing { behind: usize::MAX, ..options.packing };
        let (first, most) = (READ_ONLY_SEGMENT_BYTES, READ_ONLY_SEGMENT_BYTES);
        let options = Options { packing, segment_bytes_first: first, segment_bytes_max: most, ..options };
        let store = Self::open(Arc::new(Overlay::new(disk)), options)?;
        tracing::warn!(why, "the store is open read-only and accepts no writes");
        let refusal = StoreError::ReadOnly(why.to_owned());
        store.logs().for_each(|log| log.refuse(refusal.clone()));
        store.engines().for_each(|(_, engine)| engine.refuse(refusal.clone()));
        Ok(store)
    }

    /// Packs the closed segments of a log that are worth packing, immediately. `progress` counts bytes of segments.
    pub(crate) fn pack(
        &self,
        tenant: &str,
        scope: &str,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Packed, StoreError> {
        let log = self.tenants.get(tenant).and_then(|tenant| tenant.logs.get(scope));
        log.map_or(Ok(Packed::default()), |log| log.pack(progress))
    }

    /// Prepares a backup, with the image that `map` returns of each tenant's records and streams.
    fn taking(
        &self,
        earlier: Option<&[u8]>,
        map: impl Fn(&Tenant) -> Result<Option<MapImage>, StoreError>,
    ) -> Result<Box<dyn Backup>, StoreError> {
        let undeclared = self.undeclared()?.into_iter().map(|(tenant, scope)| format!("tenants/{tenant}/{scope}"));
        let (mut images, mut left_out) = (Vec::new(), undeclared.collect::<Vec<_>>());
        for (name, tenant) in &self.tenants {
            let map = map(tenant)?;
            let logs = tenant.logs.values().map(|log| log.image()).collect::<Result<_, _>>()?;
            if map.is_none() {
                left_out.push(format!("tenants/{name}/{ENGINE_DIR}"));
            }
            images.push(TenantImage { name: name.clone(), file: tenant.file.backed_up(), map, logs });
        }
        Ok(Box::new(Taking::new(self.disk.clone(), self.options.clock.now(), images, left_out, earlier)))
    }

    /// Returns the logs in the folder that are not declared, and so not open.
    fn undeclared(&self) -> Result<Vec<(String, String)>, StoreError> {
        let on_disk = crate::operations::logs_on_disk(&*self.disk).map_err(|error| StoreError::Io(error.message))?;
        let open = |tenant: &str, scope: &str| self.tenants.get(tenant).is_some_and(|t| t.logs.contains_key(scope));
        Ok(on_disk.into_iter().filter(|(tenant, scope)| !open(tenant, scope)).collect())
    }

    /// Checks everything that is stored about a scope's streams, and returns the faults. The list is empty if there are none.
    ///
    /// # Errors
    /// [`UnknownLog`] if there is no such tenant or scope.
    pub fn check_streams(&self, tenant: &str, scope: &str) -> Result<Vec<StoreError>, UnknownLog> {
        Ok(self.streams_of(tenant, scope)?.faults())
    }

    fn streams_of(&self, tenant: &str, scope: &str) -> Result<&Arc<LogStreams>, UnknownLog> {
        let found = self.tenants.get(tenant).ok_or_else(|| UnknownLog::Tenant(tenant.to_owned()))?;
        let unknown = || UnknownLog::Scope { tenant: tenant.to_owned(), scope: scope.to_owned() };
        found.streams.get(scope).ok_or_else(unknown)
    }

    fn logs(&self) -> impl Iterator<Item = &Arc<Log>> {
        self.tenants.values().flat_map(|tenant| tenant.logs.values())
    }

    fn engines(&self) -> impl Iterator<Item = (&Arc<TenantRecords>, &Arc<Engine>)> {
        self.tenants.values().map(|tenant| (&tenant.records, &tenant.engine))
    }

    fn streams_of_all(&self) -> impl Iterator<Item = &Arc<LogStreams>> {
        self.tenants.values().flat_map(|tenant| tenant.streams.values())
    }
}

fn checked(mut options: Options) -> Result<Options, OpenError> {
    let invalid = |message: String| OpenError::new(Code::InvalidConfig, message);
    for (what, name) in
        options.tenants.iter().map(|name| ("tenant", name)).chain(options.scopes.iter().map(|name| ("scope", name)))
    {
        let first = name.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
        let rest = name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'));
        if !first || !rest || name.len() > limits::NAME_BYTES_MAX {
            let rule = "1 to 100 bytes of A-Z a-z 0-9 _ . - and begins with a letter or digit";
            return Err(invalid(format!("{what} {name:?} is not a name; a name has {rule}")));
        }
    }
    if options.tenants.is_empty() {
        return Err(invalid("no tenant is declared; declare at least one under [tenants]".to_owned()));
    }
    options.segment_bytes_first = options.segment_bytes_first.clamp(1, SEGMENT_BYTES_CEILING);
    options.segment_bytes_max = options.segment_bytes_max.clamp(options.segment_bytes_first, SEGMENT_BYTES_CEILING);
    Ok(options)
}

/// Refuses a folder that contains anything other than a store.
fn check_folder(disk: &dyn Disk) -> Result<(), OpenError> {
    let names = disk.list("").map_err(|error| cannot_open("the store", &error))?;
    // Files that file systems and desktops put into an empty folder are not user data.
    let ours = |name: &String| {
        name == LOCK_FILE || name == "lost+found" || name.starts_with(STORE_FILE) || name.starts_with('.')
    };
    if names.iter().any(|name| name == STORE_FILE) || names.iter().all(ours) {
        return Ok(());
    }
    let has = |due: &str| names.iter().any(|name| name == due);
    let message = if is_interrupted(&names) {
        INTERRUPTED
    } else if has(TENANTS) && has(LOCK_FILE) {
        "the folder holds tenants and no store.json; restore a backup, or, if only that file was lost, copy the one of a new store here"
    } else {
        "the folder holds other files and no store.json; name an empty or new folder, or the folder of a store"
    };
    Err(OpenError::new(Code::NotAStore, message))
}

fn open_tenant(disk: &Arc<dyn Disk>, name: &str, options: &Options, locks: &mut Locks) -> Result<Tenant, OpenError> {
    let dir = format!("{TENANTS}/{name}");
    lock_dir(&**disk, &dir, locks)?;
    let fresh = || TenantFile {
        store_id: new_uuid(options.clock.now(), &*options.random),
        incarnation: 0,
        incarnation_start: 0,
        forks: Vec::new(),
        key: Uuid::from_u128(options.random.bits()),
        begun: BTreeSet::new(),
        map_generation: None,
    };
    if !has(&**disk, &dir, TENANT_FILE)? && has(&**disk, &format!("{dir}/{DEFAULT_SCOPE}"), FIRST_SEGMENT)? {
        let message = format!(
            "{dir}/{TENANT_FILE} is missing although there is a log that belongs to it; restore the file from a backup"
        );
        return Err(OpenError::new(Code::StoreDamaged, message));
    }
    let mut file: TenantFile = file_or(&**disk, &dir, TENANT_FILE, fresh)?;
    let mut logs = BTreeMap::new();
    for scope in std::iter::once(DEFAULT_SCOPE).chain(options.scopes.iter().map(String::as_str)) {
        let place = Place {
            tenant: name.to_owned(),
            scope: scope.to_owned(),
            disk: disk.clone(),
            dir: format!("{dir}/{scope}"),
            key: file.term_key(),
            begun: file.has_begun(scope),
        };
        lock_dir(&**disk, &place.dir, locks)?;
        logs.insert(scope.to_owned(), Arc::new(Log::open(place, options)?));
    }
    let engine = open_engine(disk, &dir, &mut file, &logs, options)?;
    let mut streams = BTreeMap::new();
    for (scope, log) in &logs {
        let of_log =
            LogStreams::open(engine.clone(), log.clone(), scope, &file.identity(scope, file.incarnation), options)
                .map_err(|error| OpenError::new(error.code(), format!("{dir}/{ENGINE_DIR}: {error}")))?;
        streams.insert(scope.clone(), Arc::new(of_log));
    }
    let records = TenantRecords::new(engine.clone(), options);
    Ok(Tenant { file, logs, streams, engine, records })
}

/// Creates a folder unless it exists, and locks it. Another store may contain it by a symbolic link or a mount, with a lock of its own.
fn lock_dir(disk: &dyn Disk, dir: &str, locks: &mut Locks) -> Result<(), OpenError> {
    disk.create_dir(dir).map_err(|error| cannot_open(dir, &error))?;
    match disk.lock_dir(dir) {
        Ok(lock) => locks.extend(lock),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            let message = format!(
                "another process has {dir} open by another path; stop it, or give each store folders of its own"
            );
            return Err(OpenError::new(Code::StoreLocked, message));
        }
        Err(error) => return Err(cannot_open(dir, &error)),
    }
    Ok(())
}

/// Opens the engine below records and streams, and records in `tenant.json` which parts the tenant now has.
fn open_engine(
    disk: &Arc<dyn Disk>,
    dir: &str,
    file: &mut TenantFile,
    logs: &BTreeMap<String, Arc<Log>>,
    options: &Options,
) -> Result<Arc<Engine>, OpenError> {
    let notes = TenantNotes::new(disk, dir, file);
    let engine = Engine::open(disk.clone(), format!("{dir}/{ENGINE_DIR}"), notes.of_map(), options)?;
    // By the time they are open, the logs and the map are durable under durable names.
    let map = engine.has_map().then(|| ENGINE_DIR.to_owned());
    notes.note_begun(logs.keys().cloned().chain(map)).map_err(|error| cannot_open(dir, &error))?;
    *file = notes.file();
    Ok(Arc::new(engine))
}

fn close_engine(records: &TenantRecords, engine: &Engine) {
    records.close();
    engine.close();
}

fn has(disk: &dyn Disk, dir: &str, name: &str) -> Result<bool, OpenError> {
    let names = disk.list(dir).map_err(|error| cannot_open(dir, &error))?;
    Ok(names.iter().any(|there| there == name))
}

/// Reads a small JSON file, or writes it durably if it does not exist.
fn file_or<T: Serialize + DeserializeOwned>(
    disk: &dyn Disk,
    dir: &str,
    name: &str,
    make: impl FnOnce() -> T,
) -> Result<T, OpenError> {
    let path = if dir.is_empty() { name.to_owned() } else { format!("{dir}/{name}") };
    let fail = |error: &io::Error| cannot_open(&path, error);
    match read_whole(disk, &path, SEALED_BYTES_MAX) {
        Ok(bytes) => {
            if let Some(newer) = format_of(&bytes).filter(|format| *format > FORMAT) {
                return Err(newer_format(&path, newer));
            }
            let known = unseal(&bytes).ok_or_else(|| {
                let message = format!("{path} is damaged; restore it from a backup");
                OpenError::new(Code::StoreDamaged, message)
            })?;
            make_durable_again(disk, dir, &path, &bytes).map_err(|error| fail(&error))?;
            Ok(known)
        }
        // A name without a file is a symbolic link whose target is missing, perhaps on a disk that is not mounted.
        Err(error) if error.kind() == io::ErrorKind::NotFound && !has(disk, dir, name)? => {
            let made = make();
            let bytes = seal(&made).map_err(|error| fail(&error))?;
            write_whole(disk, dir, &path, &bytes).map_err(|error| fail(&error))?;
            Ok(made)
        }
        Err(error) => Err(fail(&error)),
    }
}

/// Rewrites a file that everything else depends on. The process that created it may have been killed before its name was durable. If the
/// disk is full, at least its name is synced, because reads must continue.
fn make_durable_again(disk: &dyn Disk, dir: &str, path: &str, bytes: &[u8]) -> io::Result<()> {
    match write_whole(disk, dir, path, bytes) {
        Err(error) if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => {
            disk.sync_dir(dir)
        }
        written => written.map(|_| ()),
    }
}

/// The bounded context recorded in snapshots and commits. A folder holds only one, and no other software reads it.
const CONTEXT: &str = "annals";

#[async_trait]
impl Store for EmbeddedStore {
    fn log(&self, tenant: &str, scope: &str) -> Result<Arc<dyn EventLog>, UnknownLog> {
        let found = self.tenants.get(tenant).ok_or_else(|| UnknownLog::Tenant(tenant.to_owned()))?;
        match found.logs.get(scope) {
            Some(log) => Ok(log.clone()),
            None => Err(UnknownLog::Scope { tenant: tenant.to_owned(), scope: scope.to_owned() }),
        }
    }

    fn records(&self, tenant: &str) -> Result<Arc<dyn Records>, UnknownLog> {
        let found = self.tenants.get(tenant).ok_or_else(|| UnknownLog::Tenant(tenant.to_owned()))?;
        Ok(found.records.clone())
    }

    fn snapshots(&self, tenant: &str) -> Result<Arc<dyn Snapshots>, UnknownLog> {
        let found = self.tenants.get(tenant).ok_or_else(|| UnknownLog::Tenant(tenant.to_owned()))?;
        Ok(Arc::new(RecordSnapshots::new(found.records.clone(), CONTEXT, self.options.clock.clone())))
    }

    fn queries(&self, tenant: &str) -> Result<Arc<dyn Queries>, UnknownLog> {
        let documents = StoreDocuments::new(self.records(tenant)?, self.log(tenant, DEFAULT_SCOPE)?, CONTEXT);
        Ok(Arc::new(DocumentQueries::new(documents, self.options.clock.clone())))
    }

    fn prepare_keys(&self, tenant: &str) -> Result<Arc<dyn PrepareKeys>, UnknownLog> {
        let log = self.tenants.get(tenant).and_then(|tenant| tenant.logs.get(DEFAULT_SCOPE));
        log.map(|log| Arc::clone(log) as _).ok_or_else(|| UnknownLog::Tenant(tenant.to_owned()))
    }

    fn receiving(&self, tenant: &str, scope: &str) -> Result<Arc<dyn Receiving>, UnknownLog> {
        let found = self.tenants.get(tenant).ok_or_else(|| UnknownLog::Tenant(tenant.to_owned()))?;
        match found.logs.get(scope).filter(|_| scope != DEFAULT_SCOPE) {
            Some(log) => Ok(log.clone()),
            None => Err(UnknownLog::Scope { tenant: tenant.to_owned(), scope: scope.to_owned() }),
        }
    }

    fn streams(&self, tenant: &str, scope: &str) -> Result<Arc<dyn Streams>, UnknownLog> {
        Ok(self.streams_of(tenant, scope)?.clone())
    }

    fn undeclared_logs(&self) -> Result<Vec<(String, String)>, StoreError> {
        self.undeclared()
    }

    fn tenants(&self) -> Vec<String> {
        self.tenants.keys().cloned().collect()
    }

    fn identity(&self, tenant: &str) -> Option<Identity> {
        let file = &self.tenants.get(tenant)?.file;
        Some(file.identity(DEFAULT_SCOPE, file.incarnation))
    }

    fn identity_since(&self, tenant: &str, scope: &str, seen: u32) -> Option<Identity> {
        self.tenants.get(tenant).map(|tenant| tenant.file.identity(scope, seen))
    }

    async fn examine(&self) -> Diagnosis {
        examine(&*self.disk, &self.options)
    }

    fn status(&self) -> Vec<LogStatus> {
        let of = |tenant: &Tenant| {
            let records_refusing = tenant.engine.refusal();
            let status = |(scope, log): (&String, &Arc<Log>)| {
                let mut status = LogStatus { records_refusing: records_refusing.clone(), ..log.status() };
                // The engine belongs to the tenant, so its notes are reported only once.
                let of_engine = if *scope == DEFAULT_SCOPE { tenant.engine.recovery() } else { &[] };
                status.recovery.extend_from_slice(of_engine);
                status
            };
            tenant.logs.iter().map(status).collect::<Vec<_>>()
        };
        self.tenants.values().flat_map(of).collect()
    }

    fn backup(&self, earlier: Option<&[u8]>) -> Result<Box<dyn Backup>, StoreError> {
        // Taken before the heads of the logs are read; see backup/map.rs for the reason.
        self.taking(earlier, |tenant| MapImage::take(&tenant.engine, &self.options).map(Some))
    }

    fn backup_without_records(&self) -> Result<Box<dyn Backup>, StoreError> {
        self.taking(None, |_| Ok(None))
    }

    async fn close(&self) {
        let logs: Vec<_> = self.logs().cloned().collect();
        let engines: Vec<_> = self.engines().map(|(records, engine)| (records.clone(), engine.clone())).collect();
        let streams: Vec<_> = self.streams_of_all().cloned().collect();
        let locks = self.locks.clone();
        let (closed, wait) = tokio::sync::oneshot::channel();
        // Joining the logs' threads blocks, so a separate thread does it. This works under any runtime.
        let close = move || {
            logs.iter().for_each(|log| log.close());
            engines.iter().for_each(|(records, engine)| close_engine(records, engine));
            streams.iter().for_each(|streams| streams.close());
            locks.lock().unwrap_or_else(PoisonError::into_inner).clear();
            let _ = closed.send(());
        };
        match std::thread::Builder::new().name("annals-close".to_owned()).spawn(close) {
            Ok(_) => drop(wait.await),
            Err(error) => {
                tracing::error!(%error, "cannot start a thread to close the store; it closes when it is dropped")
            }
        }
    }
}

impl Drop for EmbeddedStore {
    fn drop(&mut self) {
        // Handles to logs may outlive the store, so their writers must end before the lock is released.
        self.logs().for_each(|log| log.close());
        self.engines().for_each(|(records, engine)| close_engine(records, engine));
        self.streams_of_all().for_each(|streams| streams.close());
    }
}

#[cfg(test)]
mod tests;
