//! One pass over a range of durable events for all conditions of a request, in small steps.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use annals_core::SequenceNumber;

use super::{ADDED_MAX, Asked, Listing, Look, Stop};
use crate::log::core::Core;
use crate::log::read::GROUP;
use crate::log::segment::{Segment, View, runs};

/// The most words held at once, each of which has one bit for each of 64 patterns and one commit.
const WORDS_MAX: usize = 512 * 1024;
/// Words of patterns compared in one step of a caller's pass. The step reads as many commits as this allows, and at least one.
const COMPARED: usize = 256;
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
    /// The commits being searched.
    window: Range<u32>,
    listing: Listing,
    asked: Asked,
    /// The most words that `asked` may hold.
    pub(super) words_max: usize,
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
            listing: Listing::default(),
            asked: Asked::default(),
            words_max: WORDS_MAX,
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
        let columns = self.look.patterns.columns();
        let count = (self.words_max / columns.max(1)).max(1).min(self.segment().index.stride() as usize);
        let count = count.min(self.rest.len()) as u32;
        self.window = self.rest.start..self.rest.start + count;
        self.rest.start = self.window.end;
        self.asked.begin(self.window.len(), columns, self.look.work)?;
        self.listing = Listing::new(self.window.clone(), self.look.patterns);
        self.stage = Stage::List(0);
        Ok(true)
    }

    fn segment(&self) -> Arc<Segment> {
        self.view.segments[self.behind - 1].clone()
    }

    fn list(&mut self, from: usize) -> Result<(), Stop> {
        let Some(pattern) = self.look.next_live(from) else {
            self.listing = Listing::default();
            self.stage = Stage::Read(self.window.start);
            return Ok(());
        };
        let segment = self.segment();
        let look_up = |term| segment.index.postings(term, self.window.clone());
        if let Some(found) = self.listing.commits(self.look.patterns, pattern, self.look.work, look_up)? {
            self.asked.put(pattern, &found, self.look.work)?;
            self.stage = Stage::List(pattern + 1);
        }
        Ok(())
    }

    /// Reads the next run of adjacent commits among those that may match.
    fn read(&mut self, from: u32) -> Result<(), Stop> {
        let start = self.window.start;
        let may_match = |ordinal: &u32| self.look.wants(self.asked.of((*ordinal - start) as usize));
        let many = (COMPARED / self.look.patterns.columns().max(1)).clamp(1, GROUP);
        // Commits behind a gap are in another run, and would be looked for again in each step until it is their turn.
        let Some(first) = (from..self.window.end).find(may_match) else {
            self.stage = Stage::Take;
            return Ok(());
        };
        let ordinals: Vec<u32> = (first..self.window.end).take_while(may_match).take(many).collect();
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
            self.look.show(self.asked.of((ordinals[at] - start) as usize), &event)
        })?;
        self.stage = Stage::Read(next);
        if self.look.work.is_over() { Err(Stop::Later) } else { Ok(()) }
    }
}
