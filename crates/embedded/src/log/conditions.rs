//! Append conditions: does the log hold an event that it must not hold?
//!
//! Every event before the commit in the log counts. Each part of the log is searched where the search delays nobody else. The caller
//! searches what is durable, up to a head that it notes. The log writer searches what became durable since, and what precedes the commit
//! in its batch.
//!
//! ```text
//!   caller   search: durable events up to the head, again while much was added meanwhile  ─▶ queue
//!   writer   judge:  the events after that head · the commits of the batch                ─▶ refuse, accept, or back to the caller
//! ```
//!
//! All patterns of all conditions of a request are searched for in one pass, in windows of commits:
//!
//! ```text
//!   patterns.rs   once           number the types and tags; equal patterns are one, with one bit
//!   listing.rs    each window    look up each term once · combine the postings ─▶ for each commit, the patterns that it may match
//!   pass.rs       each commit    decode it once, if it may match any
//!   patterns.rs   each event     find the numbers of its texts once ─▶ the patterns that it matches, 64 at a time
//! ```
//!
//! So the work of a pass grows with the terms of a request and with what the index names for them, but hardly with the number of patterns.
//!
//! INVARIANT: the work that conditions cost the log writer is bounded per batch ([`BATCH_STEPS`]), however many patterns they have and
//! however much was added. Work is counted before it is done, except for the few ordinals of one look-up, and never as less than it is. A
//! request that would cost more goes back to its caller, which searches what was added and queues it again.

mod listing;
mod pass;
mod patterns;
#[cfg(test)]
mod tests;

use std::ops::ControlFlow;

use annals_core::{AppendCondition, EventRef, SequenceNumber, StoreError, limits};

use self::pass::Pass;
use self::patterns::{Place, Scratch};
use super::batch::Batch;
use super::core::Core;
use super::queue::Request;
use super::turns::Turns;
use crate::index::IndexFault;
use crate::options::SeededBug;
use crate::terms::TermKey;

pub(super) use self::listing::{Asked, Listing};
pub(super) use self::patterns::Patterns;

/// Steps that the conditions of a batch may cost the log writer in total: a few milliseconds. A step is a term looked up, a text compared,
/// some ordinals copied, some words of bits combined, or `BYTES_OF_A_STEP` bytes of a frame decoded or of a text hashed.
pub(super) const BATCH_STEPS: u64 = 500_000;
/// Steps that one request may always cost, however much the rest of its batch has used: more than a usual condition needs.
const REQUEST_STEPS: u64 = 2_000;
const BYTES_OF_A_STEP: u64 = 16;
/// The most commits that the writer searches after the caller's search. If more than this many events were added, the caller searches
/// again.
const ADDED_MAX: u64 = 4_096;

/// Each pattern is one bit of a `u64`.
const _: () = assert!(limits::PATTERNS_MAX == u64::BITS as usize);

/// An append condition on its way to the log writer.
pub(super) struct Condition {
    condition: AppendCondition,
    /// Everything durable below this number has been searched.
    searched_to: SequenceNumber,
    found: Option<Match>,
}

/// An event that matches a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Match {
    pub(super) pattern: usize,
    pub(super) sequence_number: SequenceNumber,
}

impl Condition {
    /// Creates a condition for which nothing has been searched yet.
    pub(super) fn new(condition: AppendCondition) -> Self {
        Self { searched_to: condition.from(), condition, found: None }
    }

    /// Returns the match that was found first.
    pub(super) fn found(&self) -> Option<Match> {
        self.found
    }

    fn every_pattern(&self) -> u64 {
        self.condition.fail_if.iter().fold(0, |bits, _| bits << 1 | 1)
    }

    /// Returns the number of its patterns together with their types and tags.
    fn size(&self) -> usize {
        self.condition.fail_if.iter().map(|pattern| 1 + pattern.types.len() + pattern.tags.len()).sum()
    }
}

/// Searches the durable events on the caller's task, yielding to other tasks. This is the caller's part.
///
/// # Errors
/// Why the log cannot be read.
pub(super) async fn search(core: &Core, request: &mut Request) -> Result<(), StoreError> {
    let mut turns = Turns::of_search(core);
    prepare(core.key, request, &mut turns).await;
    loop {
        let head = core.head();
        let mut work = Work::without_limit();
        let look = Look::new(request, &mut work);
        if look.searched_to() >= head {
            return Ok(());
        }
        let mut pass = Pass::new(core, look, head);
        while pass.step()? {
            turns.give_way().await;
        }
        request.conditions_mut().for_each(|it| it.searched_to = it.searched_to.max(head));
        if core.head() - head <= ADDED_MAX {
            return Ok(());
        }
    }
}

/// Numbers the patterns of a request, unless that was done before.
async fn prepare(key: TermKey, request: &mut Request, turns: &mut Turns<'_>) {
    if !request.patterns.is_empty() {
        return;
    }
    let mut patterns = Patterns::of_size(request.conditions_mut().map(|condition| condition.size()).sum());
    for (n, condition) in request.conditions_mut().enumerate() {
        for (m, pattern) in condition.condition.fail_if.iter().enumerate() {
            patterns.add(key, (n, m), pattern);
            turns.give_way().await;
        }
    }
    request.patterns = patterns;
}

/// Checks the log writer's part: the events that became durable below `next` since the caller's search, and the commits of `batch`.
/// Returns the first commit of the request whose condition fails.
///
/// # Errors
/// [`Stop::Later`] if that would cost the writer too much; otherwise why the log cannot be read.
pub(super) fn judge(
    core: &Core,
    request: &mut Request,
    next: SequenceNumber,
    batch: &mut Batch,
) -> Result<Option<(usize, Match)>, Stop> {
    let mut work = Work::at_most(batch.steps_left.max(REQUEST_STEPS));
    let judged = look_on(core, request, next, batch, &mut work);
    batch.steps_left = batch.steps_left.saturating_sub(work.spent());
    judged?;
    let found = |(place, condition): (usize, Option<&Condition>)| Some((place, condition?.found()?));
    Ok(request.commits().map(|commit| commit.condition.as_deref()).enumerate().find_map(found))
}

fn look_on(
    core: &Core,
    request: &mut Request,
    next: SequenceNumber,
    batch: &mut Batch,
    work: &mut Work,
) -> Result<(), Stop> {
    if !core.options.has(SeededBug::IgnoreEventsSinceSearch) {
        let mut pass = Pass::new(core, Look::new(request, work), next);
        while pass.step()? {}
    }
    if !core.options.has(SeededBug::IgnoreCommitsOfSameBatch) {
        batch.show(&mut Look::new(request, work))?;
    }
    Ok(())
}

/// Why a search ended early.
#[derive(Debug)]
pub(super) enum Stop {
    /// It would cost the log writer too much.
    Later,
    Store(StoreError),
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<IndexFault> for Stop {
    fn from(fault: IndexFault) -> Self {
        Self::Store(fault.into())
    }
}

impl From<Stop> for StoreError {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Later => Self::Overloaded,
            Stop::Store(error) => error,
        }
    }
}

/// What a search has cost so far, and its limit.
#[derive(Debug, Default)]
pub(super) struct Work {
    steps: u64,
    most: Option<u64>,
    /// The number of frames decoded.
    #[cfg(test)]
    frames: u64,
    /// The number of terms looked up in an index.
    #[cfg(test)]
    looked_up: u64,
}

impl Work {
    fn without_limit() -> Self {
        Self::default()
    }

    fn at_most(steps: u64) -> Self {
        Self { most: Some(steps), ..Self::without_limit() }
    }

    fn spent(&self) -> u64 {
        self.steps
    }

    fn is_limited(&self) -> bool {
        self.most.is_some()
    }

    fn is_over(&self) -> bool {
        self.most.is_some_and(|most| self.steps > most)
    }

    /// Counts steps that are about to be taken.
    ///
    /// # Errors
    /// [`Stop::Later`] if the limit is exceeded.
    pub(super) fn spend(&mut self, steps: u64) -> Result<(), Stop> {
        self.steps = self.steps.saturating_add(steps);
        if self.is_over() { Err(Stop::Later) } else { Ok(()) }
    }

    /// Counts a term that is about to be looked up.
    fn look_up(&mut self) -> Result<(), Stop> {
        #[cfg(test)]
        {
            self.looked_up += 1;
        }
        self.spend(1)
    }

    /// Counts frames that are about to be decoded, and their total size in bytes.
    ///
    /// # Errors
    /// [`Stop::Later`] if the limit is exceeded.
    pub(super) fn decode(&mut self, frames: usize, bytes: u64) -> Result<(), Stop> {
        self.spend(frames as u64 + bytes / BYTES_OF_A_STEP)?;
        #[cfg(test)]
        {
            self.frames += frames as u64;
        }
        Ok(())
    }
}

/// One pass over events for all conditions of a request.
pub(super) struct Look<'l> {
    conditions: Vec<&'l mut Condition>,
    /// For each condition, a bit for each pattern whose match would still change the answer. A condition that already fails has none, nor
    /// have the conditions after it.
    open: Vec<u64>,
    pub(super) patterns: &'l Patterns,
    /// A bit for each distinct pattern that is open in any condition.
    live: Vec<u64>,
    /// The patterns that an event may match, then those that it does match.
    matches: Vec<u64>,
    scratch: Scratch,
    pub(super) work: &'l mut Work,
}

impl<'l> Look<'l> {
    fn new(request: &'l mut Request, work: &'l mut Work) -> Self {
        let Request { first, others, patterns, .. } = request;
        let commits = std::iter::once(first).chain(others);
        let conditions: Vec<_> = commits.filter_map(|commit| commit.condition.as_deref_mut()).collect();
        let mut fails = false;
        let open = conditions.iter().map(|condition| {
            fails |= condition.found.is_some();
            if fails { 0 } else { condition.every_pattern() }
        });
        let open: Vec<u64> = open.collect();
        let (live, matches, scratch) = (Vec::new(), Vec::new(), Scratch::default());
        let mut look = Self { open, conditions, patterns, live, matches, scratch, work };
        look.note_live();
        look
    }

    /// Notes which patterns are still open. Each place of a pattern is visited; if that is too much, the next steps are refused.
    fn note_live(&mut self) {
        let places: usize = self.conditions.iter().map(|it| it.condition.fail_if.len()).sum();
        self.work.steps = self.work.steps.saturating_add(places as u64);
        self.live = self.patterns.live(&self.open);
    }

    /// Returns whether no event can change the answer any more.
    pub(super) fn is_decided(&self) -> bool {
        self.open.iter().all(|open| *open == 0)
    }

    /// Returns the sequence number below which nothing needs to be searched.
    fn searched_to(&self) -> SequenceNumber {
        let open = self.conditions.iter().zip(&self.open).filter(|(_, open)| **open > 0);
        open.map(|(condition, _)| condition.searched_to).min().unwrap_or(SequenceNumber::MAX)
    }

    /// Returns the next live pattern at or after `from`. A distinct pattern is live while a match would change the answer.
    pub(super) fn next_live(&self, from: usize) -> Option<usize> {
        let bits = u64::BITS as usize;
        (from..self.patterns.count()).find(|at| self.live[at / bits] >> (at % bits) & 1 == 1)
    }

    /// Returns whether a commit that may match these patterns can change the answer.
    pub(super) fn wants(&self, asked: &[u64]) -> bool {
        asked.iter().zip(&self.live).any(|(asked, live)| asked & live != 0)
    }

    /// Compares an event with the distinct patterns that are asked for; breaks once nothing is left to find, or it has cost too much.
    pub(super) fn show(&mut self, asked: &[u64], event: &EventRef<'_>) -> ControlFlow<()> {
        let Ok(first) = self.first_match(asked, event) else { return ControlFlow::Break(()) };
        if let Some((n, pattern)) = first {
            self.conditions[n].found = Some(Match { pattern, sequence_number: event.sequence_number });
            self.open[n] &= (1 << pattern) - 1;
            self.open[n + 1..].fill(0);
            self.note_live();
        }
        if self.is_decided() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Returns the first condition that the event fails, and the first of its patterns that the event matches.
    fn first_match(&mut self, asked: &[u64], event: &EventRef<'_>) -> Result<Option<Place>, Stop> {
        self.matches.clear();
        self.matches.extend(asked.iter().zip(&self.live).map(|(asked, live)| asked & live));
        if self.matches.iter().all(|matches| *matches == 0) {
            return Ok(None);
        }
        let text = |(n, pattern): Place| &self.conditions[n].condition.fail_if[pattern];
        self.patterns.retain_matching(&mut self.matches, event, &mut self.scratch, self.work, text)?;
        let bits = u64::BITS as usize;
        let mut first: Option<Place> = None;
        for (word, matches) in self.matches.iter().enumerate() {
            let mut rest = *matches;
            while rest != 0 {
                let places = self.patterns.places(word * bits + rest.trailing_zeros() as usize);
                rest &= rest - 1;
                self.work.spend(places.len() as u64)?;
                let counts = |(n, pattern): &Place| {
                    let is_open = self.open[*n] >> pattern & 1 == 1;
                    is_open && event.sequence_number >= self.conditions[*n].condition.from()
                };
                first = first.into_iter().chain(places.iter().copied().find(counts)).min();
            }
        }
        Ok(first)
    }
}
