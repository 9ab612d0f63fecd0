//! Checks one log, segment by segment.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use annals_core::{EventsHash, SequenceNumber, Version};

use super::index::{self, Found};
use super::requests::{Requests, Suspects};
use super::{CheckReport, CheckedLog, Finding};
use crate::disk::Disk;
use crate::format::SEGMENT_HEADER;
use crate::index::{MemoryIndex, TermMap};
use crate::log::{Checkpoint, Placed, SegmentFile, Step, Walk, index_record, names};
use crate::operations::survey::{self, OpenSegment, Small};
use crate::operations::{Outcome, unreadable};
use crate::store::TenantFile;
use crate::terms::{ExactTerm, TermKey};
use crate::whole::UNFINISHED;

const RESTORE: &str = "restore a backup, or cut the log there with `annals repair --cut-at`";
const COPY: &str = "copy it again from its source, or restore a backup";

/// The log that is checked.
pub(super) struct Place<'a> {
    pub(super) tenant: &'a str,
    pub(super) scope: &'a str,
    pub(super) dir: String,
    pub(super) file: Option<&'a TenantFile>,
}

/// A position without a valid frame, as long as it is unknown whether it had been synced.
struct Pending {
    segment: u64,
    offset: u64,
    finding: Finding,
}

/// The last known version and tenantId of an aggregate.
#[derive(Clone, Copy)]
struct Stand {
    version: Version,
    tenant_id: u64,
}

struct LogCheck<'a> {
    place: &'a Place<'a>,
    report: &'a mut CheckReport,
    key: TermKey,
    /// The number that the next commit must have; `None` after a segment that could not be walked.
    next: Option<SequenceNumber>,
    aggregates: HashMap<ExactTerm, Stand, std::hash::BuildHasherDefault<crate::index::AsItIs>>,
    /// How many of these represent subscriptions.
    subscriptions: u64,
    hasher: RandomState,
    requests: Requests,
    pending: Option<Pending>,
    /// Whether commits are missing, so that versions may skip.
    lossy: bool,
    hash: EventsHash,
    log: CheckedLog,
}

/// Checks the log at `place` and adds it to the report. `progress` counts the bytes of its segments.
pub(super) fn check(
    disk: &dyn Disk,
    place: &Place<'_>,
    request_terms_max: usize,
    report: &mut CheckReport,
    progress: &mut dyn FnMut(u64),
) -> Outcome<()> {
    let log = CheckedLog {
        tenant: place.tenant.to_owned(),
        scope: place.scope.to_owned(),
        segments: 0,
        indexes: 0,
        commits: 0,
        events: 0,
        aggregates: 0,
        bytes: 0,
        head: 0,
        events_hash: None,
    };
    let mut check = LogCheck {
        place,
        report,
        // Any key distinguishes aggregates. Only the right one fits the indexes, which are not checked without it.
        key: place.file.map_or(TermKey([0; 16]), TenantFile::term_key),
        next: Some(0),
        aggregates: TermMap::default(),
        subscriptions: 0,
        hasher: RandomState::new(),
        requests: Requests::new(request_terms_max),
        pending: None,
        lossy: false,
        hash: EventsHash::default(),
        log,
    };
    let names = survey::sorted(disk, &place.dir)?;
    let numbers = survey::segment_numbers(&names);
    check.look_for_missing_segments(&numbers);
    let mut before = 0;
    for number in &numbers {
        let last = numbers.last() == Some(number);
        before += check.segment(disk, *number, last, &mut |part| progress(before + part))?;
    }
    check.checkpoint(disk)?;
    check.settle_the_end();
    check.repeated_requests(disk, &numbers)?;
    check.other_files(&names, &numbers);
    check.finish();
    Ok(())
}

impl LogCheck<'_> {
    fn finding(&self, kind: &'static str, file: &str, what: String, advice: &str) -> Finding {
        Finding {
            kind,
            tenant: Some(self.place.tenant.to_owned()),
            scope: Some(self.place.scope.to_owned()),
            file: file.to_owned(),
            offset: None,
            sequence_number: self.next,
            what,
            advice: advice.to_owned(),
        }
    }

    fn damaged(&mut self, finding: Finding) {
        self.lossy = true;
        self.report.damaged(finding);
    }

    fn has_begun(&self) -> bool {
        self.place.file.is_some_and(|file| file.has_begun(self.place.scope))
    }

    fn look_for_missing_segments(&mut self, numbers: &[u64]) {
        if numbers.is_empty() && self.has_begun() {
            let name = names::segment(&self.place.dir, 1);
            let what = format!("{name} and all others are missing, and tenant.json says that the first was created");
            self.damaged(Finding { sequence_number: None, ..self.finding("segment_missing", &name, what, COPY) });
        }
        let mut due = 1;
        for number in numbers {
            if *number != due {
                let name = names::segment(&self.place.dir, due);
                let what = format!("{name} is missing, but {} exists", names::segment(&self.place.dir, *number));
                self.damaged(Finding { sequence_number: None, ..self.finding("segment_missing", &name, what, COPY) });
            }
            due = number + 1;
        }
    }

    /// Checks one segment and returns its length in bytes.
    fn segment(&mut self, disk: &dyn Disk, number: u64, last: bool, progress: &mut dyn FnMut(u64)) -> Outcome<u64> {
        let name = names::segment(&self.place.dir, number);
        let open = match survey::segment(disk, &self.place.dir, number)? {
            Ok(open) => open,
            Err(file) => {
                let length = file.length().map_err(|error| unreadable(&name, &error))?;
                let blank = SegmentFile { number, salt: 0, name: name.clone(), file, packed: None };
                let empty = matches!(step(&mut walk(&blank, u64::MAX)?, &name)?, Step::End);
                let what = format!("the header of {name} is damaged or belongs to another segment");
                let first_of_all = number == 1 && self.has_begun();
                if last && empty && !first_of_all {
                    let note = "it was being created when the process ended; the next opening creates it again";
                    self.report.notes.push(self.finding("unfinished_segment", &name, what, note));
                } else {
                    self.damaged(self.finding("segment_header", &name, what, COPY));
                    self.next = None;
                }
                return Ok(length);
            }
        };
        let OpenSegment { at, capacity, length, owner } = open;
        // Without the tenant's key the owner is unknown; the missing key is already reported as damage.
        let due = self.place.file.map(|file| file.term_key().owner(self.place.scope));
        if due.is_some_and(|due| owner != 0 && owner != due) {
            let what = format!("{name} is a segment of another store or another scope");
            self.damaged(self.finding("segment_foreign", &name, what, COPY));
        }
        if length < capacity {
            let what = format!("{name} is {length} bytes long but should have {capacity}");
            self.damaged(Finding { offset: Some(length), ..self.finding("segment_cut", &name, what, COPY) });
        }
        let collected = self.walk(&at, length, progress)?;
        if at.packed.is_some() || length < capacity {
            // Nothing in a packed segment can be a torn tail, because it was synced as a whole before it got its name. A segment that was
            // cut opens read-only, so nothing after its last commit is truncated.
            self.settle_damage();
        }
        if let Some(collected) = collected
            && self.place.file.is_some()
        {
            self.index(disk, &at, &collected)?;
        }
        Ok(length)
    }

    /// Walks a segment. Returns its rebuilt index if it holds commits and none of it is damaged.
    fn walk(&mut self, at: &SegmentFile, length: u64, progress: &mut dyn FnMut(u64)) -> Outcome<Option<MemoryIndex>> {
        let mut walk = walk(at, length)?;
        let mut index: Option<MemoryIndex> = None;
        let mut sound = true;
        loop {
            match step(&mut walk, &at.name)? {
                Step::End => break,
                Step::Fault { offset, what, sequence_number } => {
                    sound = false;
                    self.fault(at, offset, what, sequence_number);
                }
                Step::Commit(placed) => {
                    progress(placed.offset);
                    if !self.follows(at, &placed) {
                        continue;
                    }
                    let collected = index.get_or_insert_with(|| MemoryIndex::new(placed.first()));
                    sound &= collected.next_sequence_number() == placed.first();
                    if sound {
                        index_record(collected, self.key, placed.offset, placed.length, &placed.record);
                    }
                    self.commit(at, &placed);
                }
            }
        }
        self.log.segments += u64::from(index.is_some());
        Ok(index.filter(|_| sound))
    }

    fn fault(&mut self, at: &SegmentFile, offset: u64, what: &str, sequence_number: Option<SequenceNumber>) {
        if self.pending.is_some() {
            return;
        }
        let kind = if sequence_number.is_some() { "payload" } else { "frame_header" };
        let from = sequence_number.or(self.next);
        let events = from.map_or(String::new(), |from| format!("; events from sequence number {from} on"));
        let what = format!("{} at offset {offset}: {what}{events}", at.name);
        let finding =
            Finding { offset: Some(offset), sequence_number: from, ..self.finding(kind, &at.name, what, RESTORE) };
        self.pending = Some(Pending { segment: at.number, offset, finding });
    }

    /// Returns whether the commit counts. A commit after a position without a valid frame proves that this position had been synced,
    /// unless it belongs to the same batch: then it is the remainder of a batch that was never acknowledged.
    fn follows(&mut self, at: &SegmentFile, placed: &Placed) -> bool {
        let synced = |pending: &Pending| pending.segment != at.number || placed.durable_to > pending.offset;
        match &self.pending {
            None => true,
            Some(pending) if !synced(pending) => false,
            Some(_) => {
                self.settle_damage();
                true
            }
        }
    }

    fn settle_damage(&mut self) {
        if let Some(Pending { finding, .. }) = self.pending.take() {
            self.damaged(finding);
            // What is missing is part of that damage.
            self.next = None;
        }
    }

    fn commit(&mut self, at: &SegmentFile, placed: &Placed) {
        let first = placed.first();
        let here = |finding: Finding| Finding { offset: Some(placed.offset), sequence_number: Some(first), ..finding };
        if let Some(due) = self.next.filter(|due| *due != first) {
            let what =
                format!("{} at offset {}: found sequence number {first}, expected {due}", at.name, placed.offset);
            let finding = here(self.finding("sequence_number", &at.name, what, RESTORE));
            self.damaged(finding);
        }
        if placed.durable_to > placed.offset {
            let what = format!(
                "{} at offset {}: a frame that says it was synced before it was written",
                at.name, placed.offset
            );
            let finding = here(self.finding("frame_header", &at.name, what, RESTORE));
            self.damaged(finding);
        }
        self.log.bytes += placed.end - placed.offset;
        self.next = Some(placed.next());
        if placed.record.is_commit() {
            self.commit_of_aggregate(at, placed);
        }
    }

    /// Checks the version, the tenantId and the request of a commit.
    fn commit_of_aggregate(&mut self, at: &SegmentFile, placed: &Placed) {
        let (first, record) = (placed.first(), &placed.record);
        let (version, aggregate) = (record.version, record.filed_under());
        let here = |finding: Finding| Finding { offset: Some(placed.offset), sequence_number: Some(first), ..finding };
        let stand = Stand { version, tenant_id: self.hasher.hash_one(&*record.commit.info.tenant_id) };
        let before = self.aggregates.insert(self.key.aggregate(&aggregate), stand);
        let due = before.map_or(1, |before| before.version + 1);
        // After a loss, versions may be missing, but none may occur again.
        if version != due && (!self.lossy || version < due) {
            let what = format!(
                "{} at offset {}: {} has version {}, expected {due}",
                at.name, placed.offset, aggregate, version
            );
            let finding = here(self.finding("version", &at.name, what, RESTORE));
            self.report.damaged(finding);
        }
        if before.is_some_and(|before| before.tenant_id != stand.tenant_id) {
            let what = format!("{} at offset {}: {} changes its tenant_id", at.name, placed.offset, aggregate);
            let finding = here(self.finding("tenant_id", &at.name, what, RESTORE));
            self.report.damaged(finding);
        }
        self.requests.add(request_of(self.key, placed));
        self.subscriptions += u64::from(record.commit.info.received.is_some() && before.is_none());
        placed.record.add_to(&mut self.hash);
        self.log.commits += 1;
        self.log.events += placed.record.commit.events.len() as u64;
    }

    fn index(&mut self, disk: &dyn Disk, at: &SegmentFile, collected: &MemoryIndex) -> Outcome<()> {
        match index::compare(disk, &self.place.dir, at, collected)? {
            Found::None => {}
            Found::Agrees => self.log.indexes += 1,
            Found::OfEarlierForm => {
                let name = names::index(&self.place.dir, at.number);
                let what = format!("{name} is of the form that its segment had before it was packed");
                let advice = "nothing: packing ended early, and the next opening rebuilds the index";
                self.report.notes.push(self.finding("old_index", &name, what, advice));
            }
            Found::Differs { offset, what } => {
                let name = names::index(&self.place.dir, at.number);
                let advice = "nothing: the store rebuilds the index from the segment when it reads the damaged part, or when the index file is removed";
                let finding = Finding { offset, ..self.finding("index", &name, what, advice) };
                self.report.damaged(finding);
            }
        }
        Ok(())
    }

    fn checkpoint(&mut self, disk: &dyn Disk) -> Outcome<()> {
        let name = format!("{}/{}", self.place.dir, names::CHECKPOINT);
        let checkpoint = match survey::small::<Checkpoint>(disk, &name)? {
            Small::Missing => return Ok(()),
            Small::Whole(checkpoint) => checkpoint,
            Small::Damaged => {
                let what = format!("{name} is damaged");
                let advice = "restore a backup; or remove the file, after which a log that lost its end looks whole";
                self.report
                    .damaged(Finding { sequence_number: None, ..self.finding("checkpoint", &name, what, advice) });
                return Ok(());
            }
        };
        let owner = self.place.file.map(|file| file.term_key().owner(self.place.scope));
        if owner.is_some_and(|owner| checkpoint.is_foreign(owner)) {
            let what = format!("{name} is of another store or another scope");
            let advice = "put the right one in its place, or restore a backup; or remove the file, after which a log that lost its \
                          end looks whole";
            self.report.damaged(Finding { sequence_number: None, ..self.finding("checkpoint", &name, what, advice) });
            return Ok(());
        }
        if self.next.is_some_and(|next| next < checkpoint.head) {
            self.settle_damage();
            let what = format!(
                "the log reached {} in segment {} when it was closed, and ends at {}",
                checkpoint.head, checkpoint.segment, self.log.events
            );
            self.damaged(self.finding("end_missing", &name, what, RESTORE));
        }
        Ok(())
    }

    /// Reports what is left at the end as a torn tail: nothing proves that it was synced, so the batch was never acknowledged.
    fn settle_the_end(&mut self) {
        if let Some(Pending { finding, .. }) = self.pending.take() {
            let said = "it is incomplete; it was never acknowledged unless the disk lost synced data";
            let (what, advice) =
                (format!("{}: {said}", finding.what), "nothing: the next opening truncates it".to_owned());
            self.report.notes.push(Finding { kind: "torn_tail", what, advice, ..finding });
        }
    }

    fn repeated_requests(&mut self, disk: &dyn Disk, numbers: &[u64]) -> Outcome<()> {
        while self.requests.go_on() {
            let key = self.key;
            let requests = &mut self.requests;
            each_commit(disk, &self.place.dir, numbers, &mut |_, placed| requests.add(request_of(key, placed)))?;
        }
        let requests = std::mem::replace(&mut self.requests, Requests::new(0));
        let Some(mut suspects) = requests.suspects() else { return Ok(()) };
        let found = self.confirmed(disk, numbers, &mut suspects)?;
        found.into_iter().for_each(|finding| self.report.damaged(finding));
        Ok(())
    }

    fn confirmed(&self, disk: &dyn Disk, numbers: &[u64], suspects: &mut Suspects) -> Outcome<Vec<Finding>> {
        let mut found = Vec::new();
        each_commit(disk, &self.place.dir, numbers, &mut |at, placed| {
            let first = placed.first();
            if let Some(before) = suspects.seen(request_of(self.key, placed), first) {
                let (aggregate, request) = (placed.record.filed_under(), placed.record.request());
                let what = format!(
                    "{} at offset {}: request {request:?} of {} was already committed at {before}",
                    at.name, placed.offset, aggregate
                );
                let finding = self.finding("request_id", &at.name, what, RESTORE);
                found.push(Finding { offset: Some(placed.offset), sequence_number: Some(first), ..finding });
            }
        })?;
        Ok(found)
    }

    fn other_files(&mut self, names: &[String], numbers: &[u64]) {
        for name in names {
            let file = format!("{}/{name}", self.place.dir);
            let known = names::segment_number(name).is_some()
                || names::index_number(name).is_some_and(|number| numbers.contains(&number))
                || name == names::CHECKPOINT;
            if known {
                continue;
            }
            let (kind, advice) = if name.ends_with(UNFINISHED) {
                ("unfinished_file", "nothing: the next opening removes it")
            } else {
                ("foreign_file", "move it elsewhere if you know what it is; the store does not use it")
            };
            let what = format!("{file} is not a file of this log");
            self.report.notes.push(Finding { sequence_number: None, ..self.finding(kind, &file, what, advice) });
        }
    }

    fn finish(mut self) {
        self.log.aggregates = self.aggregates.len() as u64 - self.subscriptions;
        self.log.head = self.next.unwrap_or(self.log.events);
        self.log.events_hash = (!self.lossy).then_some(self.hash);
        self.report.logs.push(self.log);
    }
}

fn request_of(key: TermKey, placed: &Placed) -> ExactTerm {
    key.request(&placed.record.filed_under(), &placed.record.request())
}

/// Passes every readable commit to `visit`.
fn each_commit(
    disk: &dyn Disk,
    dir: &str,
    numbers: &[u64],
    visit: &mut dyn FnMut(&SegmentFile, &Placed),
) -> Outcome<()> {
    for number in numbers {
        let Ok(open) = survey::segment(disk, dir, *number)? else { continue };
        let mut walk = walk(&open.at, open.length)?;
        loop {
            match step(&mut walk, &open.at.name)? {
                Step::Commit(placed) => visit(&open.at, &placed),
                Step::Fault { .. } => {}
                Step::End => break,
            }
        }
    }
    Ok(())
}

fn walk(at: &SegmentFile, to: u64) -> Outcome<Walk<'_>> {
    debug_assert!(to >= SEGMENT_HEADER || to == 0);
    Walk::new(at, to).map_err(|error| unreadable(&at.name, &error))
}

fn step(walk: &mut Walk<'_>, name: &str) -> Outcome<Step> {
    walk.step().map_err(|error| unreadable(name, &error))
}
