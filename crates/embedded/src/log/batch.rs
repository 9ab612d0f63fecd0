//! A batch: requests that are accepted together, written at once and made durable by one sync.

use annals_core::{EventRef, SequenceNumber, StoreError, Version};

use super::conditions::{Asked, BATCH_STEPS, Listing, Look, Stop};
use super::keys::Changed;
use super::queue::{Encoded, Request, Verdict, Versions, Waiting};
use crate::format::{FRAME_HEADER, FrameHeader};
use crate::index::{Entry, Head, IndexedCommit, TermMap};
use crate::record;
use crate::terms::{ExactTerm, Term};

/// Frames to be written, the callers that wait for them, and the changes they make.
pub(super) struct Batch {
    pub(super) bytes: Vec<u8>,
    pub(super) events: u64,
    /// The accepted commits, in log order.
    placed: Vec<Placed>,
    accepted: Vec<Waiting>,
    pub(super) refused: Vec<(Waiting, Verdict)>,
    /// Requests whose append conditions their callers must search further first.
    pub(super) later: Vec<Waiting>,
    /// Steps that append conditions may still spend in this batch.
    pub(super) steps_left: u64,
    /// The heads of aggregates after the accepted commits.
    pub(super) heads: TermMap<ExactTerm, Head>,
    /// The request ids of the accepted commits.
    pub(super) requests: TermMap<ExactTerm, Entry>,
    /// The holders of prepare keys after the accepted commits.
    pub(super) keys: Changed,
    postings: Postings,
}

/// A commit whose frame is in the batch.
struct Placed {
    /// The index of its request in `accepted`; `commit` is its index within that request.
    request: u32,
    commit: u32,
    entry: Entry,
    version: Version,
}

/// Where a batch is written.
#[derive(Clone, Copy)]
pub(super) struct Origin {
    pub(super) salt: u64,
    /// The offset in the segment; everything below is durable.
    pub(super) offset: u64,
    /// The sequence number of its first event.
    pub(super) next: SequenceNumber,
}

impl Batch {
    /// Assigns positions to the commits of a request and appends their frames.
    pub(super) fn append(&mut self, origin: Origin, waiting: Waiting, versions: Versions) {
        let request = self.accepted.len() as u32;
        for (place, (commit, version)) in waiting.request.commits().zip(versions.iter()).enumerate() {
            let entry = self.frame(origin, commit, version);
            if commit.events > 0 {
                self.heads.insert(commit.aggregate_term, Head { version, tenant_id: commit.tenant_id.clone() });
                self.requests.insert(commit.request_term, entry);
            }
            self.placed.push(Placed { request, commit: place as u32, entry, version });
        }
        self.accepted.push(waiting);
    }

    fn frame(&mut self, origin: Origin, commit: &Encoded, version: Version) -> Entry {
        let offset = origin.offset + self.bytes.len() as u64;
        let sequence_number = origin.next + self.events;
        let header = FrameHeader {
            payload_length: commit.payload.len() as u32,
            sequence_number,
            version,
            durable_to: origin.offset,
            payload_crc: commit.payload_crc,
        };
        self.bytes.extend_from_slice(&header.encode(origin.salt, offset));
        self.bytes.extend_from_slice(&commit.payload);
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        self.events += u64::from(commit.events);
        Entry { sequence_number, offset, length: (FRAME_HEADER + commit.payload.len()) as u32 }
    }

    fn commit(&self, placed: &Placed) -> &Encoded {
        self.accepted[placed.request as usize].request.commit(placed.commit as usize)
    }

    /// Shows a look those events of the batch that may match its live patterns. Each commit is decoded at most once.
    pub(super) fn show(&mut self, look: &mut Look<'_>) -> Result<(), Stop> {
        if look.is_decided() || self.placed.is_empty() {
            return Ok(());
        }
        self.list_new();
        let patterns = look.patterns;
        let (mut listing, mut asked) = (Listing::new(0..self.postings.listed, patterns), Asked::default());
        asked.begin(self.placed.len(), patterns.columns(), look.work)?;
        let mut next = 0;
        while let Some(pattern) = look.next_live(next) {
            let look_up = |term: Term| Ok(self.postings.of.get(&term).cloned().unwrap_or_default());
            if let Some(found) = listing.commits(patterns, pattern, look.work, look_up)? {
                asked.put(pattern, &found, look.work)?;
                next = pattern + 1;
            }
        }
        // The types and tags of a commit may belong to different events, so each event is checked.
        for (n, placed) in self.placed.iter().enumerate() {
            let asked = asked.of(n);
            if !look.wants(asked) {
                continue;
            }
            let (payload, first) = (&self.commit(placed).payload, placed.entry.sequence_number);
            look.work.decode(1, payload.len() as u64)?;
            let show = |event: EventRef<'_>| look.show(asked, &event);
            let visited = record::visit(payload, first, placed.version, &record::unknown_origin, show);
            look.work.spend(0)?;
            if visited.is_some_and(|visited| visited.is_break()) {
                break;
            }
        }
        Ok(())
    }

    fn list_new(&mut self) {
        while let Some(placed) = self.placed.get(self.postings.listed as usize) {
            let terms = &self.accepted[placed.request as usize].request.commit(placed.commit as usize).terms;
            self.postings.list(terms);
        }
    }

    /// Returns the accepted commits for the index.
    pub(super) fn indexed(&self) -> impl Iterator<Item = IndexedCommit<'_>> {
        self.placed.iter().map(|placed| {
            let commit = self.commit(placed);
            IndexedCommit {
                entry: placed.entry,
                events: commit.events,
                version: placed.version,
                aggregate: &commit.aggregate,
                aggregate_term: commit.aggregate_term,
                request_term: commit.request_term,
                terms: &commit.terms,
                tenant_id: &commit.tenant_id,
            }
        })
    }

    pub(super) fn commits(&self) -> u64 {
        self.placed.iter().filter(|placed| self.commit(placed).events > 0).count() as u64
    }

    /// Answers all callers once the batch is durable.
    pub(super) fn answer(&mut self) {
        let mut placed = self.placed.drain(..);
        for waiting in self.accepted.drain(..) {
            let mut versions = Versions::default();
            let mut sequence_number = None;
            for placed in placed.by_ref().take(waiting.request.commits().count()) {
                sequence_number.get_or_insert(placed.entry.sequence_number);
                versions.push(placed.version);
            }
            let sequence_number = sequence_number.unwrap_or_default();
            answer(waiting, Ok(Some(Verdict::Committed { sequence_number, versions })));
        }
        self.refused.drain(..).for_each(|(waiting, verdict)| answer(waiting, Ok(Some(verdict))));
        self.later.drain(..).for_each(|waiting| answer(waiting, Ok(None)));
    }

    /// Reports the failure of the batch to all callers.
    pub(super) fn fail(&mut self, why: &StoreError) {
        let refused = self.refused.drain(..).map(|(waiting, _)| waiting);
        self.accepted
            .drain(..)
            .chain(refused)
            .chain(self.later.drain(..))
            .for_each(|waiting| answer(waiting, Err(why.clone())));
    }

    /// Empties the batch. It keeps its memory, up to twice `bytes_max`.
    pub(super) fn clear(&mut self, bytes_max: usize) {
        self.bytes.clear();
        self.bytes.shrink_to(2 * bytes_max);
        self.events = 0;
        self.placed.clear();
        self.heads.clear();
        self.requests.clear();
        self.keys.clear();
        self.postings = Postings::default();
        self.steps_left = BATCH_STEPS;
    }
}

impl Default for Batch {
    fn default() -> Self {
        Self {
            bytes: Vec::new(),
            events: 0,
            placed: Vec::new(),
            accepted: Vec::new(),
            refused: Vec::new(),
            later: Vec::new(),
            steps_left: BATCH_STEPS,
            heads: TermMap::default(),
            requests: TermMap::default(),
            keys: Changed::default(),
            postings: Postings::default(),
        }
    }
}

pub(super) fn answer(waiting: Waiting, verdict: Result<Option<Verdict>, StoreError>) {
    // A caller that stopped waiting has dropped its receiver; the commit stands regardless.
    let _ = waiting.answer.send((verdict, waiting.request));
}

/// Maps terms to the commits of the batch that contain them. Built only when a condition needs it, so that other requests do not pay for
/// it.
#[derive(Default)]
struct Postings {
    listed: u32,
    of: TermMap<Term, Vec<u32>>,
}

impl Postings {
    fn list(&mut self, terms: &[Term]) {
        terms.iter().for_each(|term| self.of.entry(*term).or_default().push(self.listed));
        self.listed += 1;
    }
}

/// Returns the total length in bytes of a request's frames.
pub(super) fn frames_length(request: &Request) -> u64 {
    request.commits().map(|commit| FrameHeader::frame_length(commit.payload.len()) as u64).sum()
}
