//! Looking through the ranges of a plan, a piece at a time.

use std::collections::{HashSet, VecDeque};
use std::ops::{Bound, ControlFlow};

use annals_core::StoreError;

use super::plan::Plan;
use super::{entries, keys};
use crate::engine::{Range, View};

/// A record that may match.
pub(super) struct Candidate {
    /// The encoding of its id.
    pub(super) id: Vec<u8>,
    /// The stored document.
    pub(super) stored: Vec<u8>,
    /// Where it was found: the key of the document or of the entry.
    pub(super) place: Vec<u8>,
}

/// A look through the ranges of a plan.
pub(super) struct Scan {
    plan: Plan,
    collection: u32,
    ranges: VecDeque<Range>,
    /// Records that were found already, where one may stand in several places.
    seen: HashSet<Vec<u8>>,
}

impl Scan {
    pub(super) fn new(plan: Plan, collection: u32) -> Self {
        let ranges = plan.ranges.iter().cloned().collect();
        Self { plan, collection, ranges, seen: HashSet::new() }
    }

    /// Goes on behind a place in an ordered plan.
    pub(super) fn go_on_after(&mut self, place: &[u8]) {
        while let Some(range) = self.ranges.front_mut() {
            if is_within(range, place) {
                narrow(range, place, self.plan.descending);
                return;
            }
            // The place is in a later range; all of this one is done.
            self.ranges.pop_front();
        }
    }

    /// Visits up to so many places. Answers whether there are none left or the visitor has enough.
    pub(super) fn step<E: From<StoreError>>(
        &mut self,
        view: &dyn View,
        places: usize,
        visit: &mut dyn FnMut(Candidate) -> Result<ControlFlow<()>, E>,
    ) -> Result<bool, E> {
        let mut left = places;
        while let Some(range) = self.ranges.front() {
            let found = if self.plan.descending { view.descending(range)? } else { view.ascending(range)? };
            let mut last = None;
            for entry in found {
                if left == 0 {
                    break;
                }
                left -= 1;
                let (place, value) = entry?;
                last = Some(place.clone());
                let Some(candidate) = candidate(&self.plan, self.collection, &mut self.seen, view, place, value)?
                else {
                    continue;
                };
                if visit(candidate)?.is_break() {
                    return Ok(true);
                }
            }
            match last.filter(|_| left == 0) {
                Some(last) => {
                    if let Some(range) = self.ranges.front_mut() {
                        narrow(range, &last, self.plan.descending);
                    }
                    return Ok(false);
                }
                None if left == 0 => return Ok(false),
                None => self.ranges.pop_front(),
            };
        }
        Ok(true)
    }
}

/// What stands at a place; none when the record was found already.
fn candidate(
    plan: &Plan,
    collection: u32,
    seen: &mut HashSet<Vec<u8>>,
    view: &dyn View,
    place: Vec<u8>,
    value: Vec<u8>,
) -> Result<Option<Candidate>, StoreError> {
    let Some(known) = &plan.index else {
        let id = place[plan.prefix.len()..].to_vec();
        return Ok(Some(Candidate { id, stored: value, place }));
    };
    let damaged = || StoreError::Damaged(format!("an entry of index {} is not what was written", known.index.name));
    let id = entries::id_of(known, &place, &value).ok_or_else(damaged)?;
    if known.several_entries && !seen.insert(id.clone()) {
        return Ok(None);
    }
    let stored = view.get(&keys::document(collection, &id))?.ok_or_else(damaged)?;
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
