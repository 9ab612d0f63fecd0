//! The log writer: the only thread that appends to a log.
//!
//! Invariants:
//! - A batch lies in one segment, is written by one write and made durable by one sync. Its frames carry the offset at which the batch
//!   starts; everything below that offset had been synced before. Recovery relies on this.
//! - Nothing is published and no caller is answered before the batch in which the request was checked has been synced.
//! - After a failed write or sync nothing more is written: the content of the file is unknown until it is reopened.
//! - No commit is acknowledged unless this process still held the store's lock after the sync of its batch.

use std::collections::VecDeque;
use std::sync::Arc;

use annals_core::{Aggregate, SequenceNumber, StoreError};
use annals_system::Instant;

use super::batch::{Batch, Origin, answer, frames_length};
use super::conditions::{self, Stop};
use super::core::Core;
use super::heads::Generations;
use super::keeper::Preparation;
use super::keys::{self, Change, Changed};
use super::lookup::{self, Found};
use super::queue::{Part, ProbedHead, Refusal, Request, Verdict, Versions, Waiting};
use super::segment::{Segment, SegmentFile, View};
use crate::format::SEGMENT_HEADER;
use crate::index::{Head, Index, MemoryIndex};
use crate::options::SeededBug;
use crate::terms::ExactTerm;

/// A batch closes at this size in bytes: a larger one would not make a sync cheaper per commit.
const BATCH_BYTES_MAX: usize = 4 * 1024 * 1024;
/// The furthest that one batch can reach past the durable end of a segment, in bytes.
pub(super) const BATCH_SPAN_MAX: u64 = BATCH_BYTES_MAX as u64 + crate::format::PAYLOAD_MAX as u64 + 64;
/// The next segment is prepared once the current one is filled to one part in this many.
const PREPARE_AT: u64 = 4;

pub(super) struct Writer {
    pub(super) core: Arc<Core>,
    pub(super) preparation: Arc<Preparation>,
    pub(super) active: Arc<Segment>,
    /// The offset at which the next batch starts; everything below is durable.
    pub(super) end: u64,
    /// The number of zero-filled bytes in the active segment.
    pub(super) capacity: u64,
    pub(super) next: SequenceNumber,
    /// An empty batch whose memory is reused.
    pub(super) spare: Batch,
}

enum Judgement {
    Accept(Versions, Changed),
    Refuse(Verdict),
    /// Its append conditions must be searched further by the caller first.
    Later,
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

    /// Processes one batch from the front of the waiting requests.
    fn turn(&mut self, waiting: &mut VecDeque<Waiting>) {
        if let Some(refusal) = self.core.refusal() {
            waiting.drain(..).for_each(|waiting| answer(waiting, Err(refusal.clone())));
            return;
        }
        let mut batch = std::mem::take(&mut self.spare);
        self.gather(&mut batch, waiting);
        self.make_durable(&mut batch);
        batch.clear(BATCH_BYTES_MAX);
        self.spare = batch;
    }

    /// Checks the waiting requests and appends the frames of the accepted ones, until the batch or the segment is full.
    fn gather(&mut self, batch: &mut Batch, waiting: &mut VecDeque<Waiting>) {
        let core = self.core.clone();
        let (view, known) = (core.view(), core.known.read());
        while let Some(mut next) = waiting.pop_front() {
            match self.judge(&view, &known, batch, &mut next.request) {
                Err(error) => answer(next, Err(error)),
                Ok(Judgement::Refuse(verdict)) if self.core.options.has(SeededBug::AnswerRepeatsBeforeSync) => {
                    answer(next, Ok(Some(verdict)));
                }
                Ok(Judgement::Later) => batch.later.push(next),
                Ok(Judgement::Refuse(verdict)) => batch.refused.push((next, verdict)),
                Ok(Judgement::Accept(versions, changed)) => {
                    let length = frames_length(&next.request);
                    if self.end + batch.bytes.len() as u64 + length > self.capacity {
                        return self.make_room(batch, next, length, waiting);
                    }
                    let origin = Origin { salt: self.active.at.salt, offset: self.end, next: self.next };
                    batch.append(origin, next, versions);
                    batch.keys.extend(changed);
                    if batch.bytes.len() >= BATCH_BYTES_MAX {
                        return;
                    }
                }
            }
        }
    }

    /// Handles a request that does not fit into the segment. A batch with frames is written first; only an empty batch continues in the
    /// next segment.
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

    /// Checks tenantId, request id, append conditions, prepare keys, expectations and versions, in the order that the port specifies.
    fn judge(
        &self,
        view: &View,
        known: &Generations,
        batch: &mut Batch,
        request: &mut Request,
    ) -> Result<Judgement, StoreError> {
        let refuse = |part, refusal| Ok(Judgement::Refuse(Verdict::Refused(part, refusal)));
        let mut versions = Versions::default();
        if request.first.events == 0 {
            versions.push(0);
            return Ok(match self.change_keys(view, batch, request)? {
                Ok(changed) => Judgement::Accept(versions, changed),
                Err((place, refusal)) => Judgement::Refuse(Verdict::Refused(Part::Commit(place), refusal)),
            });
        }
        for (place, commit) in request.commits().enumerate() {
            let head = self.head(view, known, batch, &commit.aggregate, commit.aggregate_term, &commit.probed)?;
            if let Some(other) = head.as_ref().filter(|head| head.tenant_id != commit.tenant_id) {
                let tenant_id = other.tenant_id.clone();
                return refuse(Part::Commit(place), Refusal::OtherTenant { tenant_id });
            }
            versions.push(head.map_or(0, |head| head.version));
        }
        if let Some(first) = self.first_of(view, batch, request)? {
            return Ok(Judgement::Refuse(Verdict::Repeat(first)));
        }
        if request.conditions_mut().next().is_some() {
            match conditions::judge(&self.core, request, self.next, batch) {
                Ok(None) => {}
                Ok(Some((place, found))) => return refuse(Part::Commit(place), Refusal::Condition(found)),
                Err(Stop::Later) => return Ok(Judgement::Later),
                Err(Stop::Store(error)) => return Err(error),
            }
        }
        let changed = match self.change_keys(view, batch, request)? {
            Ok(changed) => changed,
            Err((place, refusal)) => return refuse(Part::Commit(place), refusal),
        };
        if self.core.options.has(SeededBug::KeepKeysOfRefused) {
            batch.keys.extend(changed.clone());
        }
        let minds_expectations = !self.core.options.has(SeededBug::ForgetExpectations);
        for (place, it) in request.expect.iter().enumerate().filter(|_| minds_expectations) {
            let head = self.head(view, known, batch, &it.aggregate, it.aggregate_term, &it.probed)?;
            let (expected, actual) = (it.version, head.map_or(0, |head| head.version));
            if !expected.admits(actual) {
                return refuse(Part::Expectation(place), Refusal::Conflict { expected, actual });
            }
        }
        for (place, (commit, actual)) in request.commits().zip(versions.iter_mut()).enumerate() {
            let expected = commit.expected;
            if !expected.admits(*actual) {
                return refuse(Part::Commit(place), Refusal::Conflict { expected, actual: *actual });
            }
            // Several commits of one aggregate occur only when a batch of received events is stored.
            let same = place > 0 && commit.aggregate_term == request.first.aggregate_term;
            *actual += if same { place as u64 + 1 } else { 1 };
        }
        let next = self.next + batch.events;
        if let Some(expected) = request.copied_to.filter(|due| *due != next) {
            return refuse(Part::Commit(0), Refusal::OtherNumber { expected, actual: next });
        }
        Ok(Judgement::Accept(versions, changed))
    }

    /// Returns the head of an aggregate after the commits that are already in the batch.
    fn head(
        &self,
        view: &View,
        known: &Generations,
        batch: &Batch,
        aggregate: &Aggregate,
        term: ExactTerm,
        probed: &ProbedHead,
    ) -> Result<Option<Head>, StoreError> {
        let in_batch = batch.heads.get(&term).filter(|_| self.minds_the_batch());
        match in_batch.or_else(|| known.get(term)) {
            Some(head) => Ok(Some(head.clone())),
            // The head was evicted after the caller saw it, or was never probed: the segments decide.
            None => Ok(lookup::head(view, probed.below.., aggregate, term)?.or_else(|| probed.head.clone())),
        }
    }

    /// Returns the first commit of this request, if it was committed before.
    fn first_of(&self, view: &View, batch: &Batch, request: &Request) -> Result<Option<Found>, StoreError> {
        let Some(request_id) = &request.request_id else { return Ok(None) };
        if let Some(found) = &request.repeats {
            return Ok(Some(found.clone()));
        }
        let term = request.first.request_term;
        if let Some(entry) = batch.requests.get(&term).filter(|_| self.minds_the_batch()) {
            return Ok(Some(Found { segment: self.active.clone(), entry: *entry }));
        }
        lookup::request(view, request.request_probed_below.., &request.first.aggregate, request_id, term)
    }

    /// Returns the request's changes of prepare keys, or the place of the commit that may not make its change and why.
    fn change_keys(
        &self,
        view: &View,
        batch: &Batch,
        request: &Request,
    ) -> Result<Result<Changed, (usize, Refusal)>, StoreError> {
        let minds_batch = self.minds_the_batch() && !self.core.options.has(SeededBug::IgnoreKeysOfSameBatch);
        let mut changed = Changed::default();
        for (place, commit) in request.commits().enumerate() {
            for change in &commit.keys {
                let Change { name, key, term, .. } = change;
                if request.copied_to.is_some() {
                    changed.insert(*term, change.made());
                    continue;
                }
                let in_batch = batch.keys.get(term).filter(|_| minds_batch);
                let known = match changed.get(term).or(in_batch) {
                    Some(holder) => Some(holder.clone()),
                    None => {
                        keys::look_up(view, change.probed_below.., name, key, *term)?.or_else(|| change.probed.clone())
                    }
                };
                match change.apply(&known, request.now) {
                    Ok(holder) => changed.insert(*term, holder),
                    Err(fault) => {
                        let (name, key) = (name.clone(), key.clone());
                        return Ok(Err((place, Refusal::Key { fault, name, key })));
                    }
                };
            }
        }
        Ok(Ok(changed))
    }

    /// Whether earlier commits of the batch are taken into account. Always true unless a seeded bug is active.
    fn minds_the_batch(&self) -> bool {
        !self.core.options.has(SeededBug::IgnoreCommitsOfSameBatch)
    }

    /// Writes and syncs the batch, and only then publishes it and answers.
    fn make_durable(&mut self, batch: &mut Batch) {
        if batch.bytes.is_empty() {
            batch.answer();
            return;
        }
        let file = &self.active.at.file;
        let written = file.write_at(&batch.bytes, self.end);
        let published_early = written.is_ok() && self.defect_before_sync(batch);
        let sync = || {
            let began = Instant::now();
            let synced = file.sync();
            self.core.sync_times.synced(began.elapsed());
            synced
        };
        // The lock is checked last: a commit that another process could not see is not acknowledged.
        let lock = || self.core.place.disk.check_lock();
        if let Err(error) = written.and_then(|()| sync()).and_then(|()| lock())
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

    /// Publishes or answers before the sync, if a seeded bug asks for that defect.
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

    /// Makes durable commits visible to readers and followers.
    fn publish(&self, batch: &Batch) {
        let head = self.next + batch.events;
        self.active.publish(batch.indexed(), || self.core.advance(head, batch.commits(), batch.bytes.len() as u64));
    }

    /// Switches to the next segment, which has room for a frame of this length.
    fn roll(&mut self, frame_length: u64) -> Result<(), StoreError> {
        let least = SEGMENT_HEADER + frame_length;
        let ready = self.preparation.take(least, self.next_capacity(least))?;
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

/// Creates a segment that has no commits yet.
pub(super) fn segment(at: SegmentFile, first: SequenceNumber) -> Arc<Segment> {
    Arc::new(Segment { at, first, index: Index::memory(MemoryIndex::new(first)) })
}
