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
//! All patterns of all conditions of a request are searched for in one pass: postings tell which patterns a frame may match, and such a
//! frame is decoded once.
//!
//! INVARIANT: the work that conditions cost the log writer is bounded per batch ([`BATCH_STEPS`]), however many patterns they have and
//! however much was added. A request that would cost more goes back to its caller, which searches what was added and queues it again.

mod pass;
#[cfg(test)]
mod tests;

use std::ops::ControlFlow;

use annals_core::{AppendCondition, EventRef, SequenceNumber, StoreError, limits};

use self::pass::Pass;
use super::batch::Batch;
use super::core::Core;
use super::queue::Request;
use super::turns::Turns;
use crate::index::IndexFault;
use crate::options::SeededBug;
use crate::terms::{Term, TermKey};

/// Steps that the conditions of a batch may cost the log writer in total: a few milliseconds. A step is a term looked up, a text
/// compared, or `BYTES_OF_A_STEP` bytes of a frame decoded.
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
    /// Empty before the first search.
    patterns: Vec<PatternTerms>,
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

/// The index terms of a pattern.
pub(super) struct PatternTerms {
    pub(super) types: Vec<Term>,
    pub(super) tags: Vec<Term>,
}

impl Condition {
    /// Creates a condition for which nothing has been searched yet.
    pub(super) fn new(condition: AppendCondition) -> Self {
        Self { searched_to: condition.from(), patterns: Vec::new(), condition, found: None }
    }

    /// Returns the match that was found first.
    pub(super) fn found(&self) -> Option<Match> {
        self.found
    }

    fn every_pattern(&self) -> u64 {
        self.condition.fail_if.iter().fold(0, |bits, _| bits << 1 | 1)
    }
}

impl PatternTerms {
    /// Returns whether a commit with these terms, sorted ascending, may hold a matching event.
    pub(super) fn may_match(&self, terms: &[Term]) -> bool {
        let has = |term: &Term| terms.binary_search(term).is_ok();
        (self.types.is_empty() || self.types.iter().any(has)) && self.tags.iter().all(has)
    }

    /// Returns the cost of the pattern in steps: one for itself and one for each term.
    pub(super) fn steps(&self) -> u64 {
        1 + self.types.len() as u64 + self.tags.len() as u64
    }
}

/// Searches the durable events on the caller's task, yielding to other tasks. This is the caller's part.
///
/// # Errors
/// Why the log cannot be read.
pub(super) async fn search(core: &Core, request: &mut Request) -> Result<(), StoreError> {
    let mut turns = Turns::of_search(core);
    for condition in request.conditions_mut() {
        prepare(core.key, condition, &mut turns).await;
    }
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

/// Computes the terms of a condition, unless they are already known.
async fn prepare(key: TermKey, condition: &mut Condition, turns: &mut Turns<'_>) {
    for pattern in condition.condition.fail_if.iter().skip(condition.patterns.len()) {
        condition.patterns.push(PatternTerms {
            types: pattern.types.iter().map(|name| key.event_type(name)).collect(),
            tags: pattern.tags.iter().map(|tag| key.tag(tag)).collect(),
        });
        turns.give_way().await;
    }
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
#[derive(Debug)]
pub(super) struct Work {
    steps: u64,
    most: Option<u64>,
    /// The number of frames decoded.
    frames: u64,
}

impl Work {
    fn without_limit() -> Self {
        Self { steps: 0, most: None, frames: 0 }
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

    /// Counts frames that are about to be decoded, and their total size in bytes.
    ///
    /// # Errors
    /// [`Stop::Later`] if the limit is exceeded.
    pub(super) fn decode(&mut self, frames: usize, bytes: u64) -> Result<(), Stop> {
        self.spend(frames as u64 + bytes / BYTES_OF_A_STEP)?;
        self.frames += frames as u64;
        Ok(())
    }
}

/// One pass over events for all conditions of a request.
pub(super) struct Look<'l> {
    conditions: Vec<&'l mut Condition>,
    /// For each condition, a bit for each pattern whose match would still change the answer. A condition that already fails has none, nor
    /// have the conditions after it.
    open: Vec<u64>,
    pub(super) work: &'l mut Work,
}

impl<'l> Look<'l> {
    fn new(request: &'l mut Request, work: &'l mut Work) -> Self {
        let conditions: Vec<_> = request.conditions_mut().collect();
        let mut fails = false;
        let open = conditions.iter().map(|condition| {
            fails |= condition.found.is_some();
            if fails { 0 } else { condition.every_pattern() }
        });
        Self { open: open.collect(), conditions, work }
    }

    /// Returns whether no event can change the answer any more.
    pub(super) fn is_decided(&self) -> bool {
        self.open.iter().all(|open| *open == 0)
    }

    /// Returns the number of conditions.
    pub(super) fn conditions(&self) -> usize {
        self.conditions.len()
    }

    /// Returns the number of patterns whose match would still change the answer.
    fn patterns(&self) -> usize {
        self.open.iter().map(|open| open.count_ones() as usize).sum()
    }

    /// Returns the sequence number below which nothing needs to be searched.
    fn searched_to(&self) -> SequenceNumber {
        let open = self.conditions.iter().zip(&self.open).filter(|(_, open)| **open > 0);
        open.map(|(condition, _)| condition.searched_to).min().unwrap_or(SequenceNumber::MAX)
    }

    /// Returns the next open pattern at or after `from`, as its condition and its place in that condition. A pattern is open while a
    /// match would change the answer.
    pub(super) fn next_open(&self, from: usize) -> Option<(usize, usize)> {
        let bits = u64::BITS as usize;
        let is_open = |at: &usize| self.open[at / bits] & 1 << (at % bits) != 0;
        (from..self.open.len() * bits).find(is_open).map(|at| (at / bits, at % bits))
    }

    pub(super) fn terms(&self, (condition, pattern): (usize, usize)) -> &PatternTerms {
        &self.conditions[condition].patterns[pattern]
    }

    /// Compares an event with the patterns that `asked` has for each condition; breaks once nothing is left to find.
    pub(super) fn show(&mut self, asked: &[u64], event: &EventRef<'_>) -> ControlFlow<()> {
        for (n, asked) in asked.iter().enumerate() {
            let condition = &mut *self.conditions[n];
            let mut patterns = asked & self.open[n];
            if event.sequence_number < condition.condition.from() {
                continue;
            }
            while patterns != 0 {
                let pattern = patterns.trailing_zeros() as usize;
                patterns &= patterns - 1;
                let wanted = &condition.condition.fail_if[pattern];
                let steps = 1 + wanted.types.len() + wanted.tags.len() * event.tags.len();
                if self.work.spend(steps as u64).is_err() {
                    return ControlFlow::Break(());
                }
                if wanted.matches_ref(event) {
                    condition.found = Some(Match { pattern, sequence_number: event.sequence_number });
                    self.open[n] &= (1 << pattern) - 1;
                    self.open[n + 1..].fill(0);
                    break;
                }
            }
        }
        if self.is_decided() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}
