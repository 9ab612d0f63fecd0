//! Scans the ranges of a plan, a piece at a time.

use std::collections::{HashSet, VecDeque};
use std::ops::{Bound, ControlFlow};

use annals_core::StoreError;

use super::documents::Documents;
use super::entries;
use super::plan::Plan;
use crate::engine::{Range, View};
use crate::turn::Turn;

/// The number of places visited before other tasks may run, however fast that was.
const PLACES_AT_ONCE: usize = 1_000;

/// A record that may match.
pub(super) struct Candidate {
    /// The encoding of its id.
    pub(super) id: Vec<u8>,
    /// The stored document.
    pub(super) stored: Vec<u8>,
    /// Where it was found: the key of the document or of the entry.
    pub(super) place: Vec<u8>,
}

/// A scan of the ranges of a plan.
pub(super) struct Scan {
    plan: Plan,
    collection: u32,
    places: Places,
    /// Records that were already found, if a record may have several places.
    seen: HashSet<Vec<u8>>,
    examined: Examined,
}

/// The remaining places of a plan.
struct Places {
    ranges: VecDeque<Range>,
    descending: bool,
}

/// How much was read.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Examined {
    pub(super) entries: u64,
    pub(super) documents: u64,
}

impl Scan {
    pub(super) fn new(plan: Plan, collection: u32) -> Self {
        let places = Places { ranges: plan.ranges.iter().cloned().collect(), descending: plan.descending };
        Self { plan, collection, places, seen: HashSet::new(), examined: Examined::default() }
    }

    /// Resumes after a place in an ordered plan.
    pub(super) fn go_on_after(&mut self, place: &[u8]) {
        while let Some(range) = self.places.ranges.front_mut() {
            if is_within(range, place) {
                narrow(range, place, self.plan.descending);
                return;
            }
            // The place is in a later range, so this range is done.
            self.places.ranges.pop_front();
        }
    }

    /// Resumes with the first place that has this prefix.
    pub(super) fn go_on_with(&mut self, beginning: &[u8]) {
        let places = Range::prefix(beginning);
        for range in &mut self.places.ranges {
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

    /// Visits places for a while. Returns whether none are left or the visitor broke off.
    pub(super) fn step<E: From<StoreError>>(
        &mut self,
        view: &dyn View,
        visit: &mut dyn FnMut(Candidate) -> Result<ControlFlow<()>, E>,
    ) -> Result<bool, E> {
        let Self { plan, collection, places, seen, examined } = self;
        let mut documents = Documents::new(view, *collection);
        places.step(view, &mut |place: Vec<u8>, value: Vec<u8>| {
            examined.entries += u64::from(plan.index.is_some());
            match candidate(plan, seen, &mut documents, place, value)? {
                Some(candidate) => {
                    examined.documents += 1;
                    visit(candidate)
                }
                None => Ok(ControlFlow::Continue(())),
            }
        })
    }

    /// Counts places for a while, up to `at_most`. Returns whether none are left or the limit is reached.
    pub(super) fn count(&mut self, view: &dyn View, count: &mut u64, at_most: u64) -> Result<bool, StoreError> {
        self.places.step(view, &mut |_: Vec<u8>, _: Vec<u8>| {
            *count += 1;
            Ok(if *count >= at_most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })
    }
}

impl Places {
    /// Visits places for a while. Returns whether none are left or the visitor broke off.
    fn step<E: From<StoreError>>(
        &mut self,
        view: &dyn View,
        visit: &mut dyn FnMut(Vec<u8>, Vec<u8>) -> Result<ControlFlow<()>, E>,
    ) -> Result<bool, E> {
        let turn = Turn::begin();
        let mut left = PLACES_AT_ONCE;
        while let Some(range) = self.ranges.front() {
            let found = if self.descending { view.descending(range)? } else { view.ascending(range)? };
            let mut last = None;
            for entry in found {
                let (place, value) = entry?;
                left = if turn.is_over() { 0 } else { left - 1 };
                if left == 0 {
                    last = Some(place.clone());
                }
                if visit(place, value)?.is_break() {
                    return Ok(true);
                }
                if left == 0 {
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
    seen: &mut HashSet<Vec<u8>>,
    documents: &mut Documents<'_>,
    place: Vec<u8>,
    value: Vec<u8>,
) -> Result<Option<Candidate>, StoreError> {
    let Some(known) = &plan.index else {
        let id = place[plan.prefix.len()..].to_vec();
        return Ok(Some(Candidate { id, stored: value, place }));
    };
    let damaged = || StoreError::RecordsDamaged(format!("an entry of index {} is damaged", known.index.name()));
    let id = entries::id_of(known, &place, &value).ok_or_else(damaged)?;
    if known.several_entries && !seen.insert(id.clone()) {
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

fn narrow(range: &mut Range, done: &[u8], descending: bool) {
    let end = if descending { &mut range.to } else { &mut range.from };
    *end = Bound::Excluded(done.to_vec());
}
