//! Append conditions: does the log hold an event that it must not?
//!
//! Everything before the commit in the log counts, and each part is searched where it delays nobody: what is durable, by the caller, up
//! to a head that it notes; what became durable since, and what stands before the commit in its batch, by the log writer.
//!
//! ```text
//!   caller   search: durable events up to the head, again while much was added meanwhile  ─▶ queue
//!   writer   judge:  the events after that head · the commits of the batch                ─▶ refuse, accept, or back to the caller
//! ```
//!
//! All patterns of all conditions of a request are looked for at once: postings say which of them a frame may match, and such a frame is
//! decoded once.
//!
//! INVARIANT: what conditions cost the log writer is bounded for a batch ([`BATCH_STEPS`]), however many patterns they have and however
//! much was added. A request that would cost more goes back to its caller, who searches what was added and queues it again.

mod pass;
#[cfg(test)]
mod tests;

use std::ops::ControlFlow;

use annals_core::{AppendCondition, EventRef, SequenceNumber, StoreError, limits};
use tokio::sync::SemaphorePermit;

use self::pass::Pass;
use super::batch::Batch;
use super::core::Core;
use super::queue::Request;
use super::stats::give_way;
use crate::index::IndexFault;
use crate::options::SeededBug;
use crate::terms::{Term, TermKey};
use crate::turn::Turn;

/// Steps that the conditions of a batch may cost the log writer together: some milliseconds. A step is a term looked up, a text
/// compared, or so many bytes of a frame decoded.
pub(super) const BATCH_STEPS: u64 = 500_000;
/// Steps that a request may cost it however much others of its batch did: more than a usual condition takes.
const REQUEST_STEPS: u64 = 2_000;
const BYTES_OF_A_STEP: u64 = 16;
/// The writer looks for what was added since the caller's search among so many commits at most; the caller searches again while more
/// events were.
const ADDED_MAX: u64 = 4_096;

/// A pattern has a bit of a number.
const _: () = assert!(limits::PATTERNS_MAX == u64::BITS as usize);

/// An append condition on its way to the log writer.
pub(super) struct Condition {
    condition: AppendCondition,
    /// None before the first search.
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
    /// A condition of which nothing was searched yet.
    pub(super) fn new(condition: AppendCondition) -> Self {
        Self { searched_to: condition.from(), patterns: Vec::new(), condition, found: None }
    }

    /// The event that was found first.
    pub(super) fn found(&self) -> Option<Match> {
        self.found
    }

    fn every_pattern(&self) -> u64 {
        self.condition.fail_if.iter().fold(0, |bits, _| bits << 1 | 1)
    }
}

impl PatternTerms {
    /// Whether a commit with these terms, in ascending order, may hold an event that matches.
    pub(super) fn may_match(&self, terms: &[Term]) -> bool {
        let has = |term: &Term| terms.binary_search(term).is_ok();
        (self.types.is_empty() || self.types.iter().any(has)) && self.tags.iter().all(has)
    }

    /// How many terms it has, and one for itself.
    pub(super) fn steps(&self) -> u64 {
        1 + self.types.len() as u64 + self.tags.len() as u64
    }
}

/// The caller's part: searches what is durable, on the caller's task, and lets others have their turn.
///
/// # Errors
/// Why the log cannot be read.
pub(super) async fn search(core: &Core, request: &mut Request) -> Result<(), StoreError> {
    let mut turns = Turns { core, turn: Turn::begin(), permit: None };
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

/// Works out the terms of a condition, unless that was done.
async fn prepare(key: TermKey, condition: &mut Condition, turns: &mut Turns<'_>) {
    for pattern in condition.condition.fail_if.iter().skip(condition.patterns.len()) {
        condition.patterns.push(PatternTerms {
            types: pattern.types.iter().map(|name| key.event_type(name)).collect(),
            tags: pattern.tags.iter().map(|tag| key.tag(tag)).collect(),
        });
        turns.give_way().await;
    }
}

/// The log writer's part: the first commit of a request whose condition fails, after what became durable below `next` since the
/// caller's search, and after the commits of `batch`.
///
/// # Errors
/// [`Stop::Later`] when that would cost the writer too much; why the log cannot be read.
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

/// What a search has cost, and may cost.
#[derive(Debug)]
pub(super) struct Work {
    steps: u64,
    most: Option<u64>,
    /// Frames decoded.
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

    /// Counts steps that are to be taken.
    ///
    /// # Errors
    /// [`Stop::Later`] when they are too many.
    pub(super) fn spend(&mut self, steps: u64) -> Result<(), Stop> {
        self.steps = self.steps.saturating_add(steps);
        if self.is_over() { Err(Stop::Later) } else { Ok(()) }
    }

    /// Counts frames of so many bytes together that are to be decoded.
    ///
    /// # Errors
    /// As above.
    pub(super) fn decode(&mut self, frames: usize, bytes: u64) -> Result<(), Stop> {
        self.spend(frames as u64 + bytes / BYTES_OF_A_STEP)?;
        self.frames += frames as u64;
        Ok(())
    }
}

/// One look at events for all conditions of a request.
pub(super) struct Look<'l> {
    conditions: Vec<&'l mut Condition>,
    /// By condition, the patterns of which a match would change the answer, a bit for each. A condition that fails already, and those
    /// behind it, have none.
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

    /// Whether no event can change the answer any more.
    pub(super) fn is_decided(&self) -> bool {
        self.open.iter().all(|open| *open == 0)
    }

    /// How many conditions there are.
    pub(super) fn conditions(&self) -> usize {
        self.conditions.len()
    }

    /// How many patterns there are of which a match would change the answer.
    fn patterns(&self) -> usize {
        self.open.iter().map(|open| open.count_ones() as usize).sum()
    }

    /// The number below which nothing is to be looked for.
    fn searched_to(&self) -> SequenceNumber {
        let open = self.conditions.iter().zip(&self.open).filter(|(_, open)| **open > 0);
        open.map(|(condition, _)| condition.searched_to).min().unwrap_or(SequenceNumber::MAX)
    }

    /// The next pattern from `from` on of which a match would change the answer: its condition, and its place in it.
    pub(super) fn next_open(&self, from: usize) -> Option<(usize, usize)> {
        let bits = u64::BITS as usize;
        let is_open = |at: &usize| self.open[at / bits] & 1 << (at % bits) != 0;
        (from..self.open.len() * bits).find(is_open).map(|at| (at / bits, at % bits))
    }

    pub(super) fn terms(&self, (condition, pattern): (usize, usize)) -> &PatternTerms {
        &self.conditions[condition].patterns[pattern]
    }

    /// Looks at an event for the patterns that `asked` has for each condition; breaks off when there is no more to look for.
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

/// The turns of a search on its caller's task. A search that takes longer than one waits for a place among the few that may, so that
/// many of them leave the threads of the runtime to others.
struct Turns<'c> {
    core: &'c Core,
    turn: Turn,
    permit: Option<SemaphorePermit<'c>>,
}

impl Turns<'_> {
    /// Lets others have their turn, when it is time.
    async fn give_way(&mut self) {
        if !self.turn.is_over() {
            return;
        }
        if self.permit.is_none() {
            self.permit = self.core.searches.acquire().await.ok();
        }
        give_way().await;
        self.turn = Turn::begin();
    }
}
