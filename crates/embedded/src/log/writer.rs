//! The log writer: the one thread that appends to a log.
//!
//! Invariants:
//! - A batch stands in one segment and is written by one write and made durable by one sync. Its frames carry the offset at which it
//!   starts, below which everything was synced before; recovery relies on that.
//! - Nothing is published and nobody is answered before the sync of the batch in which it was judged.
//! - After a failed write or sync nothing is written any more: what the file holds is unknown until it is opened again.

use std::collections::VecDeque;
use std::sync::Arc;

use annals_core::{SequenceNumber, StoreError, Version};

use super::core::Core;
use super::heads::Generations;
use super::keeper::Preparation;
use super::lookup::{self, Found};
use super::queue::{Encoded, Verdict, Waiting};
use super::segment::{Segment, SegmentFile, View};
use crate::format::{FRAME_HEADER, FrameHeader, SEGMENT_HEADER};
use crate::index::{Entry, Head, Index, IndexedCommit, MemoryIndex, TermMap};
use crate::options::SeededBug;
use crate::terms::ExactTerm;

/// A batch closes at this many bytes: more would not make a sync cheaper per commit.
const BATCH_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Most bytes that one batch can have put behind the durable end of a segment.
pub(super) const BATCH_SPAN_MAX: u64 = BATCH_BYTES_MAX as u64 + crate::format::PAYLOAD_MAX as u64 + 64;
/// The next segment is made ready once this share of the current one is used.
const PREPARE_AT: u64 = 4;

pub(super) struct Writer {
    pub(super) core: Arc<Core>,
    pub(super) preparation: Arc<Preparation>,
    pub(super) active: Arc<Segment>,
    /// Where the next batch starts; everything below is durable.
    pub(super) end: u64,
    /// Bytes zero-filled in the active segment.
    pub(super) capacity: u64,
    pub(super) next: SequenceNumber,
    /// An empty batch whose memory is used again.
    pub(super) spare: Batch,
}

/// Commits judged together, and their frames.
#[derive(Default)]
pub(super) struct Batch {
    bytes: Vec<u8>,
    events: u64,
    accepted: Vec<Accepted>,
    refused: Vec<(Waiting, Verdict)>,
    /// Where aggregates stand after the accepted ones.
    heads: TermMap<ExactTerm, Head>,
    /// The requests of the accepted ones.
    requests: TermMap<ExactTerm, Entry>,
}

/// A commit whose frame is in the batch.
struct Accepted {
    waiting: Waiting,
    entry: Entry,
    version: Version,
}

enum Judgement {
    Accept { version: Version },
    Refuse(Verdict),
}

impl Writer {
    pub(super) fn run(mut self) {
        while let Some(waiting) = self.core.queue.take() {
            let mut waiting = VecDeque::from(waiting);
            while !waiting.is_empty() {
                self.turn(&mut waiting);
            }
        }
        self.preparation.stop(self.core.refusal().is_none().then_some((&*self.active, self.end, self.next)));
    }

    /// One batch, from the front of what waits.
    fn turn(&mut self, waiting: &mut VecDeque<Waiting>) {
        if let Some(refusal) = self.core.refusal() {
            waiting.drain(..).for_each(|waiting| answer(waiting, Err(refusal.clone())));
            return;
        }
        let mut batch = std::mem::take(&mut self.spare);
        self.gather(&mut batch, waiting);
        self.make_durable(&mut batch);
        batch.clear();
        self.spare = batch;
    }

    /// Judges what waits and adds the frames of what is accepted, until the batch or the segment is full.
    fn gather(&mut self, batch: &mut Batch, waiting: &mut VecDeque<Waiting>) {
        let core = self.core.clone();
        let (view, known) = (core.view(), core.known.read());
        while let Some(next) = waiting.pop_front() {
            match self.judge(&view, &known, batch, &next.commit) {
                Err(error) => answer(next, Err(error)),
                Ok(Judgement::Refuse(verdict)) if self.core.options.has(SeededBug::AnswerRepeatsBeforeSync) => {
                    answer(next, Ok(verdict));
                }
                Ok(Judgement::Refuse(verdict)) => batch.refused.push((next, verdict)),
                Ok(Judgement::Accept { version }) => {
                    let length = FrameHeader::frame_length(next.commit.payload.len()) as u64;
                    if self.end + batch.bytes.len() as u64 + length > self.capacity {
                        return self.make_room(batch, next, length, waiting);
                    }
                    self.append(batch, next, version);
                    if batch.bytes.len() >= BATCH_BYTES_MAX {
                        return;
                    }
                }
            }
        }
    }

    /// The frame does not fit: what is gathered is written first, and only an empty batch goes on in the next segment.
    fn make_room(&mut self, batch: &Batch, next: Waiting, length: u64, waiting: &mut VecDeque<Waiting>) {
        if !batch.bytes.is_empty() {
            waiting.push_front(next);
            return;
        }
        match self.roll(length) {
            Ok(()) => waiting.push_front(next),
            Err(error) => answer(next, Err(error)),
        }
    }

    /// tenantId, then request id, then version: see the port.
    fn judge(
        &self,
        view: &View,
        known: &Generations,
        batch: &Batch,
        commit: &Encoded,
    ) -> Result<Judgement, StoreError> {
        let same_batch = !self.core.options.has(SeededBug::IgnoreCommitsOfSameBatch);
        let term = commit.aggregate_term;
        let in_batch = batch.heads.get(&term).filter(|_| same_batch);
        let head = match in_batch.or_else(|| known.get(term)) {
            Some(head) => Some(head.clone()),
            // Forgotten since the caller looked it up, or never probed: whatever the segments say.
            None => lookup::head(view, commit.head_probed_below.., &commit.aggregate, term)?
                .or_else(|| commit.probed_head.clone()),
        };
        if let Some(head) = &head
            && head.tenant_id != commit.tenant_id
        {
            return Ok(Judgement::Refuse(Verdict::OtherTenant { tenant_id: head.tenant_id.clone() }));
        }
        if let Some(request_id) = &commit.request_id {
            let repeat = match batch.requests.get(&commit.request_term).filter(|_| same_batch) {
                Some(entry) => Some(Found { segment: self.active.clone(), entry: *entry }),
                None => {
                    let unprobed = commit.request_probed_below..;
                    lookup::request(view, unprobed, &commit.aggregate, request_id, commit.request_term)?
                }
            };
            if let Some(found) = repeat {
                return Ok(Judgement::Refuse(Verdict::Repeat(found)));
            }
        }
        let actual = head.map_or(0, |head| head.version);
        if !commit.expected.admits(actual) {
            return Ok(Judgement::Refuse(Verdict::Conflict { actual }));
        }
        Ok(Judgement::Accept { version: actual + 1 })
    }

    /// Gives the commit its place and adds its frame to the batch.
    fn append(&self, batch: &mut Batch, waiting: Waiting, version: Version) {
        let commit = &*waiting.commit;
        let offset = self.end + batch.bytes.len() as u64;
        let sequence_number = self.next + batch.events;
        let header = FrameHeader {
            payload_length: commit.payload.len() as u32,
            sequence_number,
            version,
            durable_to: self.end,
            payload_crc: commit.payload_crc,
        };
        batch.bytes.extend_from_slice(&header.encode(self.active.at.salt, offset));
        batch.bytes.extend_from_slice(&commit.payload);
        batch.bytes.resize(batch.bytes.len().next_multiple_of(8), 0);
        let entry = Entry { sequence_number, offset, length: (FRAME_HEADER + commit.payload.len()) as u32 };
        batch.heads.insert(commit.aggregate_term, Head { version, tenant_id: commit.tenant_id.clone() });
        batch.requests.insert(commit.request_term, entry);
        batch.events += u64::from(commit.events);
        batch.accepted.push(Accepted { waiting, entry, version });
    }

    /// Writes the batch, syncs it, and only then publishes it and answers.
    fn make_durable(&mut self, batch: &mut Batch) {
        if batch.bytes.is_empty() {
            batch.answer();
            return;
        }
        let file = &self.active.at.file;
        let written = file.write_at(&batch.bytes, self.end);
        let published_early = written.is_ok() && self.defect_before_sync(batch);
        if let Err(error) = written.and_then(|()| file.sync())
            && !self.core.options.has(SeededBug::GoOnAfterFailedSync)
        {
            let failed = StoreError::Failed(format!("{}: {error}", self.active.at.name));
            self.core.refuse(failed.clone());
            batch.fail(&failed);
            return;
        }
        if !published_early {
            self.publish(batch);
        }
        self.core.known.learn(&mut batch.heads);
        self.end += batch.bytes.len() as u64;
        self.next += batch.events;
        batch.answer();
        if self.end > self.capacity / PREPARE_AT {
            self.preparation.prepare(self.next_capacity(0));
        }
    }

    /// Does what must wait for the sync before it, if the store was asked to have that defect.
    fn defect_before_sync(&self, batch: &mut Batch) -> bool {
        let acknowledge = self.core.options.has(SeededBug::AcknowledgeBeforeSync);
        let publish = acknowledge || self.core.options.has(SeededBug::PublishBeforeSync);
        if publish {
            self.publish(batch);
        }
        if acknowledge {
            batch.answer();
        }
        publish
    }

    /// Shows durable commits to readers and followers.
    fn publish(&self, batch: &Batch) {
        let commits = batch.accepted.iter().map(|accepted| {
            let commit = &*accepted.waiting.commit;
            IndexedCommit {
                entry: accepted.entry,
                events: commit.events,
                version: accepted.version,
                aggregate: &commit.aggregate,
                aggregate_term: commit.aggregate_term,
                request_term: commit.request_term,
                terms: &commit.terms,
                tenant_id: &commit.tenant_id,
            }
        });
        let (head, count) = (self.next + batch.events, batch.accepted.len() as u64);
        self.active.publish(commits, || self.core.advance(head, count, batch.bytes.len() as u64));
    }

    /// Goes on in the next segment, which has room for a frame of this length.
    fn roll(&mut self, frame_length: u64) -> Result<(), StoreError> {
        let least = SEGMENT_HEADER + frame_length;
        let ready = self.preparation.take(least, self.next_capacity(least)).map_err(StoreError::DiskFull)?;
        let closed = std::mem::replace(&mut self.active, segment(ready.at, self.next));
        self.end = SEGMENT_HEADER;
        self.capacity = ready.capacity;
        self.core.change_view(|segments| segments.push(self.active.clone()));
        self.preparation.index(closed);
        Ok(())
    }

    fn next_capacity(&self, least: u64) -> u64 {
        (self.capacity * 2).min(self.core.options.segment_bytes_max).max(least)
    }
}

/// A segment without commits yet.
pub(super) fn segment(at: SegmentFile, first: SequenceNumber) -> Arc<Segment> {
    Arc::new(Segment { at, first, index: Index::memory(MemoryIndex::new(first)) })
}

impl Batch {
    fn answer(&mut self) {
        for Accepted { waiting, entry, version } in self.accepted.drain(..) {
            answer(waiting, Ok(Verdict::Committed { sequence_number: entry.sequence_number, version }));
        }
        self.refused.drain(..).for_each(|(waiting, verdict)| answer(waiting, Ok(verdict)));
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(2 * BATCH_BYTES_MAX);
        self.events = 0;
        self.heads.clear();
        self.requests.clear();
    }

    fn fail(&mut self, why: &StoreError) {
        let accepted = self.accepted.drain(..).map(|accepted| accepted.waiting);
        let refused = self.refused.drain(..).map(|(waiting, _)| waiting);
        accepted.chain(refused).for_each(|waiting| answer(waiting, Err(why.clone())));
    }
}

fn answer(waiting: Waiting, verdict: Result<Verdict, StoreError>) {
    // A caller that no longer waits has dropped its end; the commit stands all the same.
    let _ = waiting.answer.send((verdict, waiting.commit));
}
