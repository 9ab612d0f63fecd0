//! Takes a backup of an open store while commits continue.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use annals_core::{Backup, EventsHash, StoreError, Timestamp, Uuid};
use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::archive;
use super::manifest::{LogManifest, MANIFEST, Manifest, SegmentManifest, StoredFile, TenantManifest, hex};
use super::map::{CurrentMap, MapImage};
use crate::disk::{Disk, DiskFile, Open};
use crate::format::SEGMENT_HEADER;
use crate::index::{FileIndex, PAGE, page_is_whole};
use crate::log::{LogImage, SegmentImage, Step, Walk, names};
use crate::operations::copy::STEP;
use crate::store::TenantFile;
use crate::whole::seal;

/// A tenant and its logs at the moment a backup begins.
pub(crate) struct TenantImage {
    pub(crate) name: String,
    pub(crate) file: TenantFile,
    /// Held before the heads of the logs were read; `None` if records are left out.
    pub(crate) map: Option<MapImage>,
    pub(crate) logs: Vec<LogImage>,
}

/// A part that is still to be written.
enum Piece {
    Tenant { tenant: usize },
    Map { tenant: usize, image: MapImage },
    Segment { tenant: usize, log: usize, image: SegmentImage },
    Index { tenant: usize, log: usize, number: u64, name: String },
    Manifest,
}

/// The part that is being written.
enum Current {
    Map(CurrentMap),
    File(CurrentFile),
}

/// A file that is being written.
struct CurrentFile {
    name: String,
    file: Arc<dyn DiskFile>,
    offset: u64,
    to: u64,
    hasher: Sha256,
    /// The tenant, log and kind of the manifest entry that receives its hash.
    tenant: usize,
    log: usize,
    is_index: bool,
}

/// A backup in progress.
pub(crate) struct Taking {
    disk: Arc<dyn Disk>,
    pieces: VecDeque<Piece>,
    current: Option<Current>,
    manifest: Manifest,
    files: Vec<TenantFile>,
    /// What an earlier backup of the caller already holds.
    earlier: Earlier,
    total: u64,
}

/// The parts of an earlier backup that need not be sent again.
#[derive(Default)]
struct Earlier {
    segments: BTreeMap<SegmentKey, SegmentManifest>,
    maps: BTreeSet<(Uuid, StoredFile)>,
}

/// Store id, incarnation, scope, number, salt and length. Segments that agree in all of them hold the same bytes.
type SegmentKey = (Uuid, u32, String, u64, u64, u64);

impl Taking {
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        began: Timestamp,
        tenants: Vec<TenantImage>,
        left_out: Vec<String>,
        earlier: Option<&[u8]>,
    ) -> Self {
        let mut taking = Self {
            disk,
            pieces: VecDeque::new(),
            current: None,
            manifest: Manifest { began, tenants: Vec::new(), left_out },
            files: Vec::new(),
            earlier: earlier.and_then(|bytes| Manifest::read(bytes).ok()).map(known).unwrap_or_default(),
            total: 0,
        };
        for image in tenants {
            taking.add_tenant(image);
        }
        taking.pieces.push_back(Piece::Manifest);
        taking
    }

    fn add_tenant(&mut self, image: TenantImage) {
        let tenant = self.manifest.tenants.len();
        self.pieces.push_back(Piece::Tenant { tenant });
        // A map is read twice, and its file has more bytes than its entries. It comes first, so that its state is not held for long.
        if let Some(image) = image.map {
            self.total += self.disk.open(&image.path, Open::Read).and_then(|file| file.length()).unwrap_or(0);
            self.pieces.push_back(Piece::Map { tenant, image });
        }
        let mut logs = Vec::new();
        for (log, image) in image.logs.into_iter().enumerate() {
            for segment in image.segments {
                self.total += segment.end;
                let (number, closed) = (segment.at.number, segment.closed);
                self.pieces.push_back(Piece::Segment { tenant, log, image: segment });
                if closed {
                    let name = names::index(&image.dir, number);
                    self.pieces.push_back(Piece::Index { tenant, log, number, name });
                }
            }
            let (scope, head) = (image.scope, image.head);
            logs.push(LogManifest { scope, head, events_hash: EventsHash::default(), segments: Vec::new() });
        }
        let file = StoredFile { name: String::new(), bytes: 0, sha256: String::new() };
        let (store_id, incarnation) = (image.file.store_id, image.file.incarnation);
        self.manifest.tenants.push(TenantManifest { tenant: image.name, store_id, incarnation, file, map: None, logs });
        self.files.push(image.file);
    }

    /// Begins the next file, or returns `None` at the end.
    fn begin(&mut self) -> Result<Option<Bytes>, StoreError> {
        loop {
            let begun = match self.pieces.pop_front() {
                None => return Ok(None),
                Some(Piece::Tenant { tenant }) => Some(self.tenant_file(tenant)?),
                Some(Piece::Map { tenant, image }) => self.map(tenant, image)?,
                Some(Piece::Segment { tenant, log, image }) => self.segment(tenant, log, image)?,
                Some(Piece::Index { tenant, log, number, name }) => self.index(tenant, log, number, &name)?,
                Some(Piece::Manifest) => {
                    let content = seal(&self.manifest).map_err(|error| StoreError::Io(error.to_string()))?;
                    let mut out = self.whole(MANIFEST, &content);
                    out.extend_from_slice(&archive::END);
                    Some(out.into())
                }
            };
            if begun.is_some() {
                return Ok(begun);
            }
        }
    }

    fn whole(&self, name: &str, content: &[u8]) -> Vec<u8> {
        let mut out = self.header(name, content.len() as u64);
        out.extend_from_slice(content);
        out.extend_from_slice(archive::padding(content.len() as u64));
        out
    }

    fn header(&self, name: &str, bytes: u64) -> Vec<u8> {
        archive::header(name, bytes, (self.manifest.began.as_millis() / 1_000).max(0) as u64)
    }

    fn tenant_file(&mut self, tenant: usize) -> Result<Bytes, StoreError> {
        let content = seal(&self.files[tenant]).map_err(|error| StoreError::Io(error.to_string()))?;
        let entry = &mut self.manifest.tenants[tenant];
        let name = format!("tenants/{}/tenant-{}.json", entry.tenant, entry.incarnation);
        let sha256 = hex(&Sha256::digest(&content));
        entry.file = StoredFile { name: name.clone(), bytes: content.len() as u64, sha256 };
        Ok(self.whole(&name, &content).into())
    }

    /// Begins the file of a map's entries. Returns `None` if there is no map, or if an earlier backup holds the same file.
    fn map(&mut self, tenant: usize, image: MapImage) -> Result<Option<Bytes>, StoreError> {
        let owner = &mut self.manifest.tenants[tenant];
        let Some(map) = image.begin(&owner.tenant)? else { return Ok(None) };
        owner.map = Some(map.file.clone());
        if self.earlier.maps.contains(&(owner.store_id, map.file.clone())) {
            return Ok(None);
        }
        let header = self.header(&map.file.name, map.file.bytes);
        self.current = Some(Current::Map(map));
        Ok(Some(header.into()))
    }

    /// Returns the next bytes of a map's entries.
    fn map_goes_on(&mut self, mut map: CurrentMap) -> Result<Bytes, StoreError> {
        match map.dump.next()? {
            Some(piece) => {
                self.current = Some(Current::Map(map));
                Ok(piece.into())
            }
            None => Ok(Bytes::from_static(archive::padding(map.file.bytes))),
        }
    }

    fn segment(&mut self, tenant: usize, log: usize, image: SegmentImage) -> Result<Option<Bytes>, StoreError> {
        let owner = &mut self.manifest.tenants[tenant];
        let SegmentImage { at, first, end, closed } = image;
        let scope = owner.logs[log].scope.clone();
        let key = (owner.store_id, owner.incarnation, scope.clone(), at.number, at.salt, end);
        if let Some(known) = closed.then(|| self.earlier.segments.get(&key)).flatten() {
            owner.logs[log].events_hash.join(&known.events_hash);
            let due = Piece::Index { tenant, log, number: at.number, name: String::new() };
            owner.logs[log].segments.push(known.clone());
            // The next piece is its index, which is known as well.
            if known.index.is_some() && self.pieces.front().is_some_and(|next| next.is_the_same(&due)) {
                self.pieces.pop_front();
            }
            return Ok(None);
        }
        let events_hash = hash_of(&at, first, end)?;
        // The name is marked, because an earlier backup may hold the unpacked segment with the same length.
        let form = if at.packed.is_some() { "-packed" } else { "" };
        let (owner_name, number, incarnation) = (&owner.tenant, at.number, owner.incarnation);
        let name = format!("tenants/{owner_name}/{scope}/{number:010}-{incarnation}-{end}{form}.segment");
        let file = StoredFile { name: name.clone(), bytes: end, sha256: String::new() };
        owner.logs[log].events_hash.join(&events_hash);
        let (number, salt) = (at.number, at.salt);
        owner.logs[log].segments.push(SegmentManifest { number, salt, first, events_hash, closed, file, index: None });
        let header = self.header(&name, end);
        let hasher = Sha256::new();
        let file = CurrentFile { name, file: at.file, offset: 0, to: end, hasher, tenant, log, is_index: false };
        self.current = Some(Current::File(file));
        Ok(Some(header.into()))
    }

    /// Begins the index file of the previous segment. An index that is damaged or missing is left out, because it can be rebuilt.
    fn index(&mut self, tenant: usize, log: usize, number: u64, path: &str) -> Result<Option<Bytes>, StoreError> {
        let Ok(file) = self.disk.open(path, Open::Read) else { return Ok(None) };
        let fail = |error: std::io::Error| StoreError::Io(format!("{path}: {error}"));
        let bytes = file.length().map_err(fail)?;
        if !pages_are_whole(&*file, bytes).map_err(fail)? {
            tracing::warn!(path, "the index is damaged and left out of the backup");
            return Ok(None);
        }
        let owner = &mut self.manifest.tenants[tenant];
        let entry = &mut owner.logs[log];
        let (packed, salt) =
            entry.segments.last().map_or((false, 0), |it| (it.file.name.contains("-packed."), it.salt));
        let extent = FileIndex::open(file.clone(), path.to_owned()).map(|index| index.extent());
        if !extent.is_ok_and(|extent| (extent.number, extent.salt) == (number, salt)) {
            // The segment was packed since, and this is the index of its packed form.
            return Ok(None);
        }
        let form = if packed { "-packed" } else { "" };
        let (owner_name, scope, incarnation) = (&owner.tenant, &entry.scope, owner.incarnation);
        let name = format!("tenants/{owner_name}/{scope}/{number:010}-{incarnation}-{bytes}{form}.index");
        if let Some(segment) = entry.segments.last_mut() {
            segment.index = Some(StoredFile { name: name.clone(), bytes, sha256: String::new() });
        }
        let header = self.header(&name, bytes);
        let hasher = Sha256::new();
        let file = CurrentFile { name, file, offset: 0, to: bytes, hasher, tenant, log, is_index: true };
        self.current = Some(Current::File(file));
        Ok(Some(header.into()))
    }

    /// Returns the next bytes of the current file.
    fn go_on(&mut self, mut current: CurrentFile) -> Result<Bytes, StoreError> {
        let step = STEP.min(current.to - current.offset) as usize;
        let mut buffer = vec![0; step];
        let fail = |why: String| StoreError::Io(format!("{}: {why}", current.name));
        let got = current.file.read_at(&mut buffer, current.offset).map_err(|error| fail(error.to_string()))?;
        if got < step {
            return Err(fail("the file ends early".to_owned()));
        }
        current.hasher.update(&buffer);
        current.offset += step as u64;
        if current.offset < current.to {
            self.current = Some(Current::File(current));
            return Ok(buffer.into());
        }
        let sha256 = hex(&current.hasher.finalize());
        let segment = self.manifest.tenants[current.tenant].logs[current.log].segments.last_mut();
        if let Some(segment) = segment {
            match (current.is_index, &mut segment.index) {
                (true, Some(index)) => index.sha256 = sha256,
                _ => segment.file.sha256 = sha256,
            }
        }
        buffer.extend_from_slice(archive::padding(current.to));
        Ok(buffer.into())
    }
}

impl Piece {
    fn is_the_same(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Index { tenant, log, number, .. },
                Self::Index { tenant: of_tenant, log: of_log, number: of_number, .. },
            ) => (tenant, log, number) == (of_tenant, of_log, of_number),
            _ => false,
        }
    }
}

impl Backup for Taking {
    fn total_bytes(&self) -> u64 {
        self.total
    }

    fn next(&mut self) -> Result<Option<Bytes>, StoreError> {
        match self.current.take() {
            Some(Current::Map(map)) => self.map_goes_on(map).map(Some),
            Some(Current::File(file)) => self.go_on(file).map(Some),
            None => self.begin(),
        }
    }
}

fn known(manifest: Manifest) -> Earlier {
    let mut known = Earlier::default();
    for tenant in manifest.tenants {
        known.maps.extend(tenant.map.map(|map| (tenant.store_id, map)));
        for log in tenant.logs {
            for segment in log.segments.into_iter().filter(|segment| segment.closed) {
                let scope = log.scope.clone();
                let key =
                    (tenant.store_id, tenant.incarnation, scope, segment.number, segment.salt, segment.file.bytes);
                known.segments.insert(key, segment);
            }
        }
    }
    known
}

/// Verifies the commits of a segment, so that no damage gets into a backup, and hashes their events.
fn hash_of(at: &crate::log::SegmentFile, first: u64, end: u64) -> Result<EventsHash, StoreError> {
    let fail = |error: std::io::Error| StoreError::Io(format!("{}: {error}", at.name));
    let mut walk = Walk::new(at, end).map_err(fail)?;
    let (mut hash, mut next, mut reached) = (EventsHash::default(), first, SEGMENT_HEADER);
    loop {
        match walk.step().map_err(fail)? {
            // The last frame of a packed segment is followed by padding.
            Step::End if reached.next_multiple_of(8) == end => return Ok(hash),
            Step::End => return Err(at.damage(reached, "commits are missing")),
            Step::Fault { offset, what, .. } => return Err(at.damage(offset, what)),
            Step::Commit(placed) if placed.first() == next => {
                placed.record.add_to(&mut hash);
                (next, reached) = (placed.next(), placed.end);
            }
            Step::Commit(placed) => return Err(at.damage(placed.offset, "a commit does not follow the previous one")),
        }
    }
}

fn pages_are_whole(file: &dyn DiskFile, bytes: u64) -> std::io::Result<bool> {
    let mut page = vec![0; PAGE];
    for (number, offset) in (0u32..).zip((0..bytes).step_by(PAGE)) {
        let got = file.read_at(&mut page, offset)?;
        if !page_is_whole(number, &page[..got]) {
            return Ok(false);
        }
    }
    Ok(bytes.is_multiple_of(PAGE as u64))
}
