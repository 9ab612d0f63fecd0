//! One pass over a range of durable events for all conditions of a request, in small steps.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use annals_core::SequenceNumber;

use super::{ADDED_MAX, Look, Stop};
use crate::log::core::Core;
use crate::log::read::{GROUP, commits_with};
use crate::log::segment::{Segment, View, runs};

/// The most numbers held at once, one for each commit and condition.
const NUMBERS_MAX: usize = 512 * 1024;
/// Comparisons in one step of a caller's pass. The step reads as many commits as this allows, and at least one.
const COMPARED: usize = 4_000;
/// A caller's step also ends within a commit after this many steps of work.
const WITHIN_A_COMMIT: u64 = 400_000;

/// A pass in progress.
pub(super) struct Pass<'l> {
    look: Look<'l>,
    view: Arc<View>,
    to: SequenceNumber,
    from: SequenceNumber,
    /// The index of the segment after the current one.
    behind: usize,
    /// The commits of the current segment that have not been searched yet.
    rest: Range<u32>,
    /// The commits being searched. `asked` has, for each of them and each condition, the patterns that it may match.
    window: Range<u32>,
    asked: Vec<u64>,
    /// Events below this number have been checked.
    shown_to: SequenceNumber,
    stage: Stage,
}

/// What the next step does.
enum Stage {
    /// Take the next commits.
    Take,
    /// Look up in the index which commits may match a pattern, from this pattern on.
    List(usize),
    /// Read the commits that may match, from this ordinal on.
    Read(u32),
}

impl<'l> Pass<'l> {
    /// Creates a pass over the events below `to` that have not been searched.
    pub(super) fn new(core: &Core, look: Look<'l>, to: SequenceNumber) -> Self {
        // The view is taken after the head was read, so it holds at least as much.
        let (view, from) = (core.view(), look.searched_to());
        let behind = view.position_of(from).unwrap_or(0);
        Self {
            look,
            view,
            to,
            from,
            behind,
            rest: 0..0,
            window: 0..0,
            asked: Vec::new(),
            shown_to: from,
            stage: Stage::Take,
        }
    }

    /// Takes one short step; returns whether there is another.
    ///
    /// # Errors
    /// Why the log cannot be read; [`Stop::Later`] if it costs too much.
    pub(super) fn step(&mut self) -> Result<bool, Stop> {
        if self.from >= self.to || self.look.is_decided() {
            return Ok(false);
        }
        match self.stage {
            Stage::Take => return self.take(),
            Stage::List(from) => self.list(from)?,
            Stage::Read(from) => self.read(from)?,
        }
        Ok(true)
    }

    fn take(&mut self) -> Result<bool, Stop> {
        if self.rest.is_empty() {
            let Some(segment) = self.view.segments.get(self.behind).filter(|segment| segment.first < self.to) else {
                return Ok(false);
            };
            self.rest = segment.index.ordinal_of(self.from)?.unwrap_or(0)..segment.index.commits();
            self.behind += 1;
            let many = self.rest.len() as u64 > ADDED_MAX;
            if self.look.work.is_limited() && (many || segment.memory().is_none()) {
                return Err(Stop::Later);
            }
        }
        // A term's postings in a file are decoded from the beginning on each look-up, so the window is as wide as memory allows.
        let count = (NUMBERS_MAX / self.look.conditions()).min(self.segment().index.stride() as usize);
        let count = count.min(self.rest.len()) as u32;
        self.window = self.rest.start..self.rest.start + count;
        self.rest.start = self.window.end;
        self.asked.clear();
        self.asked.resize(self.window.len() * self.look.conditions(), 0);
        self.stage = Stage::List(0);
        Ok(true)
    }

    fn segment(&self) -> Arc<Segment> {
        self.view.segments[self.behind - 1].clone()
    }

    fn list(&mut self, from: usize) -> Result<(), Stop> {
        let Some(at) = self.look.next_open(from) else {
            self.stage = Stage::Read(self.window.start);
            return Ok(());
        };
        let steps = self.look.terms(at).steps();
        self.look.work.spend(steps)?;
        let terms = self.look.terms(at);
        let mut listed = 0;
        let found = commits_with(&self.segment().index, &terms.tags, &terms.types, self.window.clone(), &mut listed)?;
        self.look.work.spend(listed)?;
        let (condition, pattern) = at;
        for ordinal in found {
            let row = (ordinal - self.window.start) as usize * self.look.conditions();
            self.asked[row + condition] |= 1 << pattern;
        }
        self.stage = Stage::List(condition * u64::BITS as usize + pattern + 1);
        Ok(())
    }

    /// Reads the next run of adjacent commits among those that may match.
    fn read(&mut self, from: u32) -> Result<(), Stop> {
        let columns = self.look.conditions();
        let row = |ordinal: u32| (ordinal - self.window.start) as usize * columns;
        let may_match = |ordinal: &u32| self.asked[row(*ordinal)..][..columns].iter().any(|asked| *asked != 0);
        let many = (COMPARED / self.look.patterns().max(1)).clamp(1, GROUP);
        let ordinals: Vec<u32> = (from..self.window.end).filter(may_match).take(many).collect();
        let segment = self.segment();
        let mut entries = segment.index.entries(&ordinals)?;
        entries.truncate(entries.partition_point(|entry| entry.sequence_number < self.to));
        let Some(run) = runs(&entries).next().filter(|run| !run.is_empty()) else {
            self.stage = Stage::Take;
            return Ok(());
        };
        self.look.work.decode(run.len(), run.iter().map(|entry| u64::from(entry.length)).sum())?;
        let begun = self.look.work.spent();
        let (mut at, mut next) = (0, ordinals[run.len() - 1] + 1);
        let _ = segment.visit(run, |event, _| {
            let number = event.sequence_number;
            if number >= self.to {
                return ControlFlow::Break(());
            }
            while run.get(at + 1).is_some_and(|next| next.sequence_number <= number) {
                at += 1;
            }
            if number < self.shown_to {
                return ControlFlow::Continue(());
            }
            if !self.look.work.is_limited() && self.look.work.spent() - begun > WITHIN_A_COMMIT {
                next = ordinals[at];
                return ControlFlow::Break(());
            }
            self.shown_to = number + 1;
            self.look.show(&self.asked[row(ordinals[at])..][..columns], &event)
        })?;
        self.stage = Stage::Read(next);
        if self.look.work.is_over() { Err(Stop::Later) } else { Ok(()) }
    }
}
