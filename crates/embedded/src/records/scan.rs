//! Scans the ranges of a plan, a piece at a time.

use std::collections::{HashSet, VecDeque};
use std::ops::{Bound, ControlFlow};

use annals_core::StoreError;

use super::documents::Documents;
use super::entries;
use super::merged::Merged;
use super::plan::Plan;
use crate::engine::{Range, View};
use crate::turn::Turn;

/// The number of places visited before other tasks may run, however fast that was.
pub(super) const PLACES_AT_ONCE: u64 = 1_000;

/// A record that may match.
pub(super) struct Candidate {
    /// The encoding of its id.
    pub(super) id: Vec<u8>,
    /// The stored document.
    pub(super) stored: Vec<u8>,
    /// Where it was found: the key of the document or of the entry. Of merged ranges it is the rest of the key, after the beginning.
    pub(super) place: Vec<u8>,
}

/// A scan of the ranges of a plan, and of the plans united with it.
pub(super) struct Scan {
    plan: Plan,
    collection: u32,
    places: Places,
    /// The plans that are read after this one.
    united: Vec<Plan>,
    /// Records that were already found, if a record may have several places.
    seen: HashSet<Vec<u8>>,
    /// Whether it may have places in several plans.
    is_union: bool,
    examined: Examined,
}

/// The remaining places of a plan.
enum Places {
    /// Those of one range after the other.
    Ranges(Ranges),
    /// Those of all ranges, in their common order.
    Merged(Merged),
}

/// The ranges that are left, the current one first.
struct Ranges {
    ranges: VecDeque<Range>,
    descending: bool,
}

/// How much was read.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Examined {
    pub(super) entries: u64,
    pub(super) documents: u64,
}

impl Examined {
    /// Returns both together.
    pub(super) fn and(self, other: Self) -> Self {
        Self { entries: self.entries + other.entries, documents: self.documents + other.documents }
    }
}

impl Scan {
    pub(super) fn new(mut plan: Plan, collection: u32) -> Self {
        let united = std::mem::take(&mut plan.united);
        let (places, is_union) = (Places::of(&plan), !united.is_empty());
        let (seen, examined) = (HashSet::new(), Examined::default());
        Self { plan, collection, places, united, seen, is_union, examined }
    }

    /// Moves on to the next plan of the union. Returns whether there is one.
    fn begin_next(&mut self) -> bool {
        let Some(next) = self.united.pop() else { return false };
        self.places = Places::of(&next);
        self.plan = next;
        true
    }

    /// Resumes after a place in an ordered plan.
    pub(super) fn go_on_after(&mut self, place: &[u8]) {
        match &mut self.places {
            Places::Ranges(ranges) => ranges.go_on_after(place),
            Places::Merged(merged) => merged.go_on_after(place),
        }
    }

    /// Resumes with the first place that has this prefix.
    pub(super) fn go_on_with(&mut self, beginning: &[u8]) {
        let Places::Ranges(Ranges { ranges, .. }) = &mut self.places else { return };
        let places = Range::prefix(beginning);
        for range in ranges {
            match (&range.from, &range.to, &places.to) {
                (Bound::Included(from), ..) if !self.plan.descending && from.as_slice() < beginning => {
                    range.from = places.from.clone();
                }
                (_, Bound::Excluded(to), Bound::Excluded(last)) if self.plan.descending && to > last => {
                    range.to = places.to.clone();
                }
                (_, Bound::Unbounded, _) if self.plan.descending => range.to = places.to.clone(),
                _ => {}
            }
        }
    }

    /// Returns how much was read so far.
    pub(super) fn examined(&self) -> Examined {
        self.examined
    }

    /// Visits places for a while, at most `left` of them, which it counts down. Returns whether none are left or the visitor broke off.
    pub(super) fn step<E: From<StoreError>>(
        &mut self,
        view: &dyn View,
        left: &mut u64,
        visit: &mut dyn FnMut(Candidate) -> Result<ControlFlow<()>, E>,
    ) -> Result<bool, E> {
        let Self { plan, collection, places, seen, is_union, examined, .. } = self;
        let mut documents = Documents::new(view, *collection);
        let (mut read, mut broke_off) = (0, false);
        let mut visit = |place: Vec<u8>, value: Vec<u8>| {
            let Some(candidate) = candidate(plan, *is_union, seen, &mut documents, place, value)? else {
                return Ok(ControlFlow::Continue(()));
            };
            examined.documents += 1;
            let flow = visit(candidate)?;
            broke_off = flow.is_break();
            Ok::<_, E>(flow)
        };
        let is_over = places.step::<E>(view, left, &mut read, &mut visit)?;
        self.examined.entries += if self.plan.index.is_some() { read } else { 0 };
        Ok(is_over && (broke_off || !self.begin_next()))
    }

    /// Counts places for a while, up to `at_most` in all. Returns whether none are left or the limit is reached; after a higher limit,
    /// counting resumes.
    pub(super) fn count(&mut self, view: &dyn View, count: &mut u64, at_most: u64) -> Result<bool, StoreError> {
        let room = at_most.saturating_sub(*count);
        let (mut left, mut read) = (room, 0);
        let mut visit = |_: Vec<u8>, _: Vec<u8>| Ok::<_, StoreError>(ControlFlow::Continue(()));
        let is_over = self.places.step(view, &mut left, &mut read, &mut visit)?;
        *count += room - left;
        self.examined.entries += if self.plan.index.is_some() { read } else { 0 };
        Ok(is_over && !self.begin_next() || *count >= at_most)
    }
}

impl Places {
    fn of(plan: &Plan) -> Self {
        match &plan.merged {
            Some(beginnings) => Self::Merged(Merged::new(&plan.ranges, beginnings, plan.descending)),
            None => Self::Ranges(Ranges { ranges: plan.ranges.iter().cloned().collect(), descending: plan.descending }),
        }
    }

    /// Visits places for a while, at most `left` of them, and adds how many were read. Returns whether none are left or the visitor broke
    /// off.
    fn step<E: From<StoreError>>(
        &mut self,
        view: &dyn View,
        left: &mut u64,
        read: &mut u64,
        visit: &mut dyn FnMut(Vec<u8>, Vec<u8>) -> Result<ControlFlow<()>, E>,
    ) -> Result<bool, E> {
        match self {
            Self::Ranges(ranges) => {
                let before = *left;
                let is_over = ranges.step::<E>(view, left, visit)?;
                *read += before - *left;
                Ok(is_over)
            }
            Self::Merged(merged) => {
                let before = merged.entries();
                let is_over = merged.step::<E>(view, left, visit)?;
                *read += merged.entries() - before;
                Ok(is_over)
            }
        }
    }
}

impl Ranges {
    fn go_on_after(&mut self, place: &[u8]) {
        while let Some(range) = self.ranges.front_mut() {
            if is_within(range, place) {
                narrow(range, place, self.descending);
                return;
            }
            // The place is in a later range, so this range is done.
            self.ranges.pop_front();
        }
    }

    /// Visits places for a while, at most `left` of them. Returns whether none are left or the visitor broke off.
    fn step<E: From<StoreError>>(
        &mut self,
        view: &dyn View,
        left: &mut u64,
        visit: &mut dyn FnMut(Vec<u8>, Vec<u8>) -> Result<ControlFlow<()>, E>,
    ) -> Result<bool, E> {
        let turn = Turn::begin();
        let mut at_once = PLACES_AT_ONCE.min(*left);
        if at_once == 0 {
            return Ok(false);
        }
        while let Some(range) = self.ranges.front() {
            let found = if self.descending { view.descending(range)? } else { view.ascending(range)? };
            let mut last = None;
            for entry in found {
                let (place, value) = entry?;
                *left -= 1;
                at_once = if turn.is_over() { 0 } else { at_once - 1 };
                if at_once == 0 {
                    last = Some(place.clone());
                }
                if visit(place, value)?.is_break() {
                    return Ok(true);
                }
                if at_once == 0 {
                    break;
                }
            }
            match last {
                Some(last) => {
                    if let Some(range) = self.ranges.front_mut() {
                        narrow(range, &last, self.descending);
                    }
                    return Ok(false);
                }
                None => self.ranges.pop_front(),
            };
        }
        Ok(true)
    }
}

/// Reads the record at a place, or returns `None` if it was already found.
fn candidate(
    plan: &Plan,
    is_union: bool,
    seen: &mut HashSet<Vec<u8>>,
    documents: &mut Documents<'_>,
    place: Vec<u8>,
    value: Vec<u8>,
) -> Result<Option<Candidate>, StoreError> {
    let Some(known) = &plan.index else {
        let id = place[plan.prefix.len()..].to_vec();
        let is_new = !is_union || seen.insert(id.clone());
        return Ok(is_new.then_some(Candidate { id, stored: value, place }));
    };
    let damaged = || StoreError::RecordsDamaged(format!("an entry of index {} is damaged", known.index.name()));
    let id = entries::id_of(known, &place, &value).ok_or_else(damaged)?;
    let may_come_again = is_union || known.several_entries && plan.merged.is_none();
    if may_come_again && !seen.insert(id.clone()) {
        return Ok(None);
    }
    let stored = documents.get(&id)?.ok_or_else(damaged)?;
    Ok(Some(Candidate { id, stored, place }))
}

fn is_within(range: &Range, place: &[u8]) -> bool {
    let from = match &range.from {
        Bound::Included(from) => from.as_slice() <= place,
        Bound::Excluded(from) => from.as_slice() < place,
        Bound::Unbounded => true,
    };
    let to = match &range.to {
        Bound::Included(to) => place <= to.as_slice(),
        Bound::Excluded(to) => place < to.as_slice(),
        Bound::Unbounded => true,
    };
    from && to
}

pub(super) fn narrow(range: &mut Range, done: &[u8], descending: bool) {
    let end = if descending { &mut range.to } else { &mut range.from };
    *end = Bound::Excluded(done.to_vec());
}
