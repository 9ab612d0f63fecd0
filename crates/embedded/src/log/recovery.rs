//! Opening a log: which segments exist, which of their frames count, and what is incomplete at the end.
//!
//! Closed segments with an index file are trusted. The others are read frame by frame. The first position without a valid frame is one of
//! two things: the end, perhaps followed by the torn rest of a batch whose sync never returned, or damage. It is damage if anything
//! proves that data after it had been synced: a valid frame whose batch starts later, a later segment with commits, or the checkpoint of
//! a clean shutdown. A damaged log is opened read-only up to the damage and nothing is changed.
//!
//! The last batch is known to be written, but not to be synced: after `kill -9`, or after a failed sync in an earlier process, the page
//! cache shows frames that the disk may not hold. It is therefore rewritten in place and synced before anything is served. All batches
//! before it were synced, or it would not have been started. Everything after it is overwritten with zeros, so that no frame of a cut
//! batch can ever be taken for one that follows.

use std::io;
use std::sync::Arc;

use annals_core::{KeyChanges, OpenError, SequenceNumber, StoreError};

use super::core::Core;
use super::keeper::{self, Checkpoint, Keeper};
use super::remake::{Notes, sealed};
use super::scan::{Rest, search};
use super::segment::{Segment, SegmentFile, View};
use super::writer::{BATCH_SPAN_MAX, Writer};
use super::{How, Place, Scan, Step, Walk, names, scan};
use crate::Options;
use crate::disk::{DiskFile, Open};
use crate::format::{SEGMENT_HEADER, SegmentHeader, SegmentHeaderFault};
use crate::index::{Entry, FileIndex, Index, IndexedCommit, MemoryIndex};
use crate::options::SeededBug;
use crate::packed::Packed;
use crate::record::Record;
use crate::refused::{cannot_open, newer_format};
use crate::terms::TermKey;
use crate::whole::{SEALED_BYTES_MAX, UNFINISHED, read_whole, unseal, write_whole};

type Threads = Option<(Writer, Keeper)>;

/// Recovers the log at `place`. Returns no threads if the log is damaged.
pub(super) fn open(place: Place, options: &Options) -> Result<(Arc<Core>, Threads), OpenError> {
    let mut recovery = Recovery { place: &place, options, segments: Vec::new(), next: 0, notes: Notes::default() };
    let found = recovery.read().map_err(|fault| fault.explained(&place.dir))?;
    let tail = match found {
        Found::Damage(what) => {
            tracing::error!(dir = place.dir, what, "the log is damaged and opens read-only");
            let (segments, next, notes) = recovery.parts();
            let refusal = StoreError::Damaged(what);
            return Ok((Arc::new(Core::new(place, options, View { segments }, next, Some(refusal), notes)), None));
        }
        Found::Tail(tail) => recovery.settle(tail).map_err(|fault| fault.explained(&place.dir))?,
    };
    let (segments, next, notes) = recovery.parts();
    let unindexed: Vec<_> = segments.iter().filter(|segment| segment.memory().is_some()).cloned().collect();
    let core = Arc::new(Core::new(place, options, View { segments }, next, None, notes));
    let (keeper, preparation) = Keeper::new(core.clone(), tail.active.at.number + 1);
    for segment in unindexed.iter().filter(|segment| segment.at.number != tail.active.at.number) {
        preparation.index(segment.clone());
    }
    let Tail { active, end, capacity } = tail;
    Ok((
        core.clone(),
        Some((Writer { core, preparation, active, end, capacity, next, spare: Default::default() }, keeper)),
    ))
}

/// Why a log could not be opened.
enum Fault {
    Io(io::Error),
    Newer(String, u32),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Fault {
    fn explained(self, dir: &str) -> OpenError {
        match self {
            Self::Newer(name, format) => newer_format(&name, format),
            Self::Io(error) => cannot_open(dir, &error),
        }
    }
}

enum Found {
    Tail(Option<Last>),
    Damage(String),
}

/// The last segment with commits, if it was read frame by frame.
struct Last {
    scan: Scan,
    /// The offset after the last byte that is not zero.
    dirty_to: u64,
}

/// Where writing continues.
struct Tail {
    active: Arc<Segment>,
    end: u64,
    capacity: u64,
}

struct Recovery<'a> {
    place: &'a Place,
    options: &'a Options,
    segments: Vec<Arc<Segment>>,
    next: SequenceNumber,
    notes: Notes,
}

impl Recovery<'_> {
    fn parts(self) -> (Vec<Arc<Segment>>, SequenceNumber, Notes) {
        (self.segments, self.next, self.notes)
    }

    /// Reads all segments with commits, in order, up to the end or the damage.
    fn read(&mut self) -> Result<Found, Fault> {
        let numbers = self.numbers()?;
        if let Some(first) = numbers.first().filter(|first| **first > 1) {
            return Ok(Found::Damage(format!(
                "the segments before {} are missing",
                names::segment(&self.place.dir, *first)
            )));
        }
        if numbers.is_empty() && self.place.begun {
            return Ok(Found::Damage(format!(
                "the segments of {} are missing, and tenant.json says that the first was created; put them back or restore a backup",
                self.place.dir
            )));
        }
        let mut last = None;
        for (n, &number) in numbers.iter().enumerate() {
            if let Some(previous) = n.checked_sub(1).map(|n| numbers[n]).filter(|previous| previous + 1 != number) {
                let [before, after] = [previous, number].map(|number| names::segment(&self.place.dir, number));
                return Ok(Found::Damage(format!("the segments between {before} and {after} are missing")));
            }
            let name = names::segment(&self.place.dir, number);
            let file = self.place.disk.open(&name, Open::Read)?;
            let mut header = [0; SEGMENT_HEADER as usize];
            file.read_at(&mut header, 0)?;
            let (at, capacity) = match SegmentHeader::decode(&header) {
                Ok(header) if header.number == number && header.is_foreign(self.place.owner()) => {
                    return Ok(Found::Damage(format!(
                        "{name} is a segment of another store or another scope; put the right one in its place, or restore a backup"
                    )));
                }
                Ok(header) if header.number == number => {
                    let Some(packed) = self.packed(&*file, &header)? else {
                        return Ok(Found::Damage(self.unreadable_from(&name)));
                    };
                    (SegmentFile { number, salt: header.salt, name, file, packed }, header.capacity)
                }
                Err(SegmentHeaderFault::Newer(format)) => return Err(Fault::Newer(name, format)),
                _ => {
                    // A segment that was being created when power failed has no content after its header.
                    let blank = SegmentFile { number, salt: 0, name, file, packed: None };
                    let empty = search(&blank, SEGMENT_HEADER, u64::MAX)?.end == SEGMENT_HEADER;
                    let first_of_all = n == 0 && self.place.begun;
                    if empty && n + 1 == numbers.len() && !first_of_all {
                        break;
                    }
                    return Ok(Found::Damage(format!("the header of {} is damaged", blank.name)));
                }
            };
            if let Some(index) = self.index_of(&at)? {
                let first = std::mem::replace(&mut self.next, index.next_sequence_number());
                let index = sealed(self.place, &self.notes, index, &at, first);
                self.segments.push(Arc::new(Segment { at, first, index }));
                last = None;
                continue;
            }
            if at.packed.is_some() {
                if let Some(damage) = self.read_packed(at)? {
                    return Ok(Found::Damage(damage));
                }
                last = None;
                continue;
            }
            let (segment, scan) = self.scan(at)?;
            let length = segment.at.file.length()?;
            if length < capacity {
                let cut =
                    format!("{} is {length} bytes long but should have {capacity}; copy it again", segment.at.name);
                self.adopt(segment, &scan);
                return Ok(Found::Damage(cut));
            }
            let rest = self.rest_of(&segment.at, &scan)?;
            if scan.foreign || rest.durable_to.is_some_and(|synced| synced > scan.end) {
                self.adopt(segment, &scan);
                return Ok(Found::Damage(self.damage_at(scan.end)));
            }
            if scan.end > SEGMENT_HEADER {
                self.adopt(segment, &scan);
                last = Some(Last { dirty_to: rest.end, scan });
            } else if let Some(fault) = self.behind_the_end(last.as_ref(), &segment.at, &scan, &rest)? {
                return Ok(Found::Damage(fault));
            }
        }
        Ok(self.checkpoint_fault(last.as_ref())?.map_or(Found::Tail(last), Found::Damage))
    }

    fn numbers(&self) -> Result<Vec<u64>, Fault> {
        let names = self.place.disk.list(&self.place.dir)?;
        for name in names.iter().filter(|name| name.ends_with(UNFINISHED)) {
            self.place.disk.remove(&format!("{}/{name}", self.place.dir))?;
        }
        let mut numbers: Vec<u64> = names.iter().filter_map(|name| names::segment_number(name)).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Returns the index file of a closed segment if it is intact and fits the segments before it.
    fn index_of(&mut self, at: &SegmentFile) -> Result<Option<FileIndex>, Fault> {
        let name = names::index(&self.place.dir, at.number);
        let file = match self.place.disk.open(&name, Open::Read) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let why = match FileIndex::open(file, name.clone()) {
            Ok(index) => {
                let extent = index.extent();
                let fits = (extent.number, extent.salt, extent.first) == (at.number, at.salt, self.next);
                if fits && at.file.length()? >= extent.end {
                    return Ok(Some(index));
                }
                format!("{name} does not belong to its segment")
            }
            Err(fault) => fault.0,
        };
        self.notes.add(format!("{why}; the index is rebuilt from the segment"));
        Ok(None)
    }

    fn scan(&mut self, at: SegmentFile) -> Result<(Segment, Scan), Fault> {
        let mut index = MemoryIndex::new(self.next);
        let key = self.place.key;
        let how = How {
            checked: !self.options.has(SeededBug::SkipChecksumOnRecovery),
            whole: !self.options.has(SeededBug::RecoverPartOfTransaction),
        };
        let forget_keys = self.options.has(SeededBug::ForgetKeysOnRecovery);
        let scan = scan(&at, self.next, how, |offset, length, mut record| {
            if forget_keys {
                record.keys = KeyChanges::default();
            }
            index_record(&mut index, key, offset, length, &record);
        })?;
        Ok((Segment { at, first: self.next, index: Index::memory(index) }, scan))
    }

    /// Opens what is needed to read a packed segment. The inner `None` means a segment of plain frames, the outer one that the segment is
    /// not as written.
    fn packed(&self, file: &dyn DiskFile, header: &SegmentHeader) -> Result<Option<Option<Arc<Packed>>>, Fault> {
        let Some(first) = header.packed_from else { return Ok(Some(None)) };
        let packed = Packed::open(file, header, first)?.filter(|packed| packed.first == self.next);
        Ok(packed.map(|packed| Some(Arc::new(packed))))
    }

    fn unreadable_from(&self, name: &str) -> String {
        let next = self.next;
        format!("the beginning of {name} is damaged; events from sequence number {next} on cannot be read")
    }

    /// Indexes a packed segment in memory and returns its damage, if any. Nothing in it can be a torn tail, because it was synced as a
    /// whole.
    fn read_packed(&mut self, at: SegmentFile) -> Result<Option<String>, Fault> {
        let (mut index, mut fault) = (MemoryIndex::new(self.next), None);
        let mut walk = Walk::new(&at, u64::MAX)?;
        loop {
            match walk.step()? {
                Step::End => break,
                Step::Fault { offset, .. } => {
                    fault = Some(offset);
                    break;
                }
                Step::Commit(placed) if placed.first() == self.next => {
                    index_record(&mut index, self.place.key, placed.offset, placed.length, &placed.record);
                    self.next = placed.next();
                }
                Step::Commit(placed) => {
                    fault = Some(placed.offset);
                    break;
                }
            }
        }
        self.segments.push(Arc::new(Segment { at, first: index.first(), index: Index::memory(index) }));
        Ok(fault.map(|offset| self.damage_at(offset)))
    }

    fn adopt(&mut self, segment: Segment, scan: &Scan) {
        self.next = scan.next;
        self.segments.push(Arc::new(segment));
    }

    /// Examines what follows the valid frames. If the bytes after them are zero as far as a batch can reach, no batch wrote anything
    /// further on.
    fn rest_of(&self, at: &SegmentFile, scan: &Scan) -> Result<Rest, Fault> {
        let near = search(at, scan.end, scan.end + BATCH_SPAN_MAX)?;
        Ok(if near.end == scan.end { near } else { search(at, scan.end, u64::MAX)? })
    }

    fn damage_at(&self, offset: u64) -> String {
        let place = self.segments.last().map_or("the log", |segment| segment.at.name.as_str());
        format!(
            "{place} from offset {offset} on is damaged; events from sequence number {} on cannot be read",
            self.next
        )
    }

    /// Checks a segment without a complete first commit. Only the torn first batch of a new segment may be there, after a clean end.
    fn behind_the_end(
        &self,
        last: Option<&Last>,
        at: &SegmentFile,
        scan: &Scan,
        rest: &Rest,
    ) -> Result<Option<String>, Fault> {
        if rest.durable_to.is_none() {
            return Ok(None);
        }
        let torn_first_batch = rest.durable_to == Some(SEGMENT_HEADER);
        let first_is_good = !scan.begun && scan::starts_with_a_frame(at)?;
        let clean = last.is_none_or(|last| last.dirty_to == last.scan.end);
        if torn_first_batch && !first_is_good && clean {
            return Ok(None);
        }
        Ok(Some(match last {
            Some(last) => self.damage_at(last.scan.end),
            None => format!("{} does not follow on from sequence number {}", at.name, self.next),
        }))
    }

    /// Compares the log with the checkpoint of a clean shutdown: if the log ends earlier, it is damaged.
    fn checkpoint_fault(&self, last: Option<&Last>) -> Result<Option<String>, Fault> {
        let name = format!("{}/{}", self.place.dir, names::CHECKPOINT);
        let bytes = match read_whole(&*self.place.disk, &name, SEALED_BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let Some(checkpoint) = unseal::<Checkpoint>(&bytes) else {
            return Ok(Some(format!("{name} is damaged")));
        };
        if checkpoint.is_foreign(self.place.owner()) {
            // Its head says nothing about this log, and the right checkpoint is lost.
            return Ok(Some(format!(
                "{name} is of another store or another scope; put the right one in its place, or restore a backup"
            )));
        }
        if self.next >= checkpoint.head {
            return Ok(None);
        }
        let reached = format!("it reached {} in segment {} when it was closed", checkpoint.head, checkpoint.segment);
        Ok(Some(match (last, self.segments.last()) {
            (Some(last), _) => format!("{}; {reached}", self.damage_at(last.scan.end)),
            (None, Some(segment)) => format!("everything after {} is missing; {reached}", segment.at.name),
            (None, None) => format!("the segments of {} are missing; {reached}", self.place.dir),
        }))
    }

    /// Removes what follows the last commit, makes the last batch durable, and returns where writing continues.
    fn settle(&mut self, last: Option<Last>) -> Result<Tail, Fault> {
        let disk = &self.place.disk;
        let last_number = self.segments.last().map_or(0, |segment| segment.at.number);
        // The segment after the last is replaced, not removed: once its first segment was created, a log is never without one.
        let replaced = if last.is_none() { last_number + 1 } else { last_number };
        for number in self.numbers()?.into_iter().filter(|number| *number > replaced) {
            disk.remove(&names::segment(&self.place.dir, number))?;
        }
        if !self.options.has(SeededBug::ForgetDirectorySync) {
            disk.sync_dir(&self.place.dir)?;
        }
        if last.is_some()
            && let Some(active) = self.segments.last_mut().and_then(Arc::get_mut)
        {
            // No other segment is written again, so the others may be files that hard links share with a copy of the store.
            active.at.file = disk.open(&active.at.name, Open::Write)?;
        }
        match (last, self.segments.last().cloned()) {
            (Some(last), Some(active)) => {
                self.settle_batch(&active.at, &last)?;
                let capacity = active.at.file.length()?;
                Ok(Tail { active, end: last.scan.end, capacity })
            }
            _ => {
                let capacity = self.options.segment_bytes_first.max(SEGMENT_HEADER + 8);
                let ready = keeper::create(self.place, self.options, last_number + 1, capacity)?;
                let active = super::writer::segment(ready.at, self.next);
                self.segments.push(active.clone());
                Ok(Tail { active, end: SEGMENT_HEADER, capacity: ready.capacity })
            }
        }
    }

    /// Keeps the cut bytes in a file beside the log for inspection. Opening does not depend on it, because the disk may be full.
    fn keep_cut(&self, at: &SegmentFile, offset: u64, length: u64) -> String {
        let name = names::cut(&at.name, offset);
        let mut bytes = vec![0; length as usize];
        let kept = at.file.read_at(&mut bytes, offset);
        match kept.and_then(|_| write_whole(&*self.place.disk, &self.place.dir, &name, &bytes)) {
            Ok(_) => format!("they are kept in {name}"),
            Err(error) => format!("they could not be kept ({error})"),
        }
    }

    fn settle_batch(&mut self, at: &SegmentFile, last: &Last) -> Result<(), Fault> {
        let scan = &last.scan;
        if last.dirty_to > scan.end {
            let cut = last.dirty_to - scan.end;
            let kept = self.keep_cut(at, scan.end, cut);
            self.notes.add(format!(
                "truncated {cut} bytes after the last complete batch of {} at offset {}; they were never \
                 acknowledged unless the disk lost synced data; {kept}",
                at.name, scan.end
            ));
            if !self.options.has(SeededBug::LeaveTornTailInPlace) {
                at.file.write_at(&vec![0; cut as usize], scan.end)?;
            }
        }
        if !self.options.has(SeededBug::KeepUnsyncedTailOnRecovery) {
            let mut batch = vec![0; (scan.end - scan.durable_to) as usize];
            at.file.read_at(&mut batch, scan.durable_to)?;
            at.file.write_at(&batch, scan.durable_to)?;
            at.file.sync()?;
        }
        Ok(())
    }
}

/// Indexes a commit that was read back.
pub(crate) fn index_record(index: &mut MemoryIndex, key: TermKey, offset: u64, length: u32, record: &Record) {
    let info = &record.commit.info;
    let events = &record.commit.events;
    let aggregate = record.filed_under();
    let terms = events.iter().map(|event| (&*event.event_type, &event.tags[..]));
    index.push(&IndexedCommit {
        entry: Entry { sequence_number: record.first, offset, length },
        events: events.len() as u32,
        version: record.version,
        aggregate: &aggregate,
        aggregate_term: key.aggregate(&aggregate),
        request_term: key.request(&aggregate, &record.request()),
        terms: &key.filterable(&info.aggregate.name, terms, &record.keys),
        tenant_id: &info.tenant_id,
    });
}
