//! Several ranges of an index as one sequence, if each of them is in the requested order.
//!
//! ```text
//!   one of two types, by time        word a or b, by id
//!   type a: 09:00 09:02 09:07        a: 1 4 5
//!   type b: 09:01 09:07 09:09        b: 2 4 9
//!   merged: a b a a b b              merged: 1 2 4 5 9
//! ```
//!
//! Entries are compared by what follows the beginning that a range has in common. What is the same in several ranges comes once: a record
//! with several words. A piece of each range is read at a time, a smaller one of many ranges.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::{Bound, ControlFlow};

use annals_core::StoreError;

use super::scan::{PLACES_AT_ONCE, narrow};
use crate::engine::{Range, View};
use crate::turn::Turn;

/// The most entries of one range that are read together.
const PIECE: usize = 64;
/// The most entries of all ranges that memory holds. A search may have two thousand words.
const ENTRIES_MAX: usize = 256 * PIECE;

/// The key of an entry without the beginning that all keys of its range have, and its value.
type Entry = (Vec<u8>, Vec<u8>);

/// What remains of several ranges.
pub(super) struct Merged {
    parts: Vec<Part>,
    /// The number of ranges of which the first entry was read.
    begun: usize,
    /// The next entry of each range that has one.
    next: BinaryHeap<Next>,
    descending: bool,
    /// How many entries of a range are read together.
    piece: usize,
    /// The number of entries that were read.
    entries: u64,
}

/// What remains of a range.
struct Part {
    /// What is not read yet, or `None` if everything is.
    range: Option<Range>,
    /// The length of the beginning that all keys have in common.
    beginning: usize,
    /// Entries that were read, without that beginning.
    read: VecDeque<Entry>,
}

/// The next entry of a range. The greatest of several is the one that comes first.
#[derive(PartialEq, Eq)]
struct Next {
    rest: Vec<u8>,
    value: Vec<u8>,
    part: usize,
    descending: bool,
}

impl Ord for Next {
    fn cmp(&self, other: &Self) -> Ordering {
        let order = (&self.rest, self.part).cmp(&(&other.rest, other.part));
        if self.descending { order } else { order.reverse() }
    }
}

impl PartialOrd for Next {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Merged {
    /// Merges ranges, each with the length of the beginning that does not count for the order.
    pub(super) fn new(ranges: &[Range], beginnings: &[usize], descending: bool) -> Self {
        let part = |(range, beginning): (&Range, &usize)| Part {
            range: Some(range.clone()),
            beginning: *beginning,
            read: VecDeque::new(),
        };
        let parts = ranges.iter().zip(beginnings).map(part).collect();
        let piece = (ENTRIES_MAX / ranges.len().max(1)).clamp(1, PIECE);
        Self { parts, begun: 0, next: BinaryHeap::new(), descending, piece, entries: 0 }
    }

    /// Resumes after an entry without its beginning. Nothing may have been read.
    pub(super) fn go_on_after(&mut self, rest: &[u8]) {
        for part in &mut self.parts {
            let Some(range) = &mut part.range else { continue };
            if let Bound::Included(low) = &range.from {
                let last = [low.get(..part.beginning).unwrap_or_default(), rest].concat();
                narrow(range, &last, self.descending);
            }
        }
    }

    /// Returns the number of entries that were read so far.
    pub(super) fn entries(&self) -> u64 {
        self.entries
    }

    /// Visits entries without their beginnings for a while, at most `left` of them, which it counts down. Returns whether none are left or
    /// the visitor broke off.
    pub(super) fn step<E: From<StoreError>>(
        &mut self,
        view: &dyn View,
        left: &mut u64,
        visit: &mut dyn FnMut(Vec<u8>, Vec<u8>) -> Result<ControlFlow<()>, E>,
    ) -> Result<bool, E> {
        let turn = Turn::begin();
        let mut at_once = PLACES_AT_ONCE.min(*left);
        while at_once > 0 && !turn.is_over() {
            if self.begun < self.parts.len() {
                self.advance(view, self.begun)?;
                self.begun += 1;
                continue;
            }
            let Some((rest, value)) = self.following(view)? else { return Ok(true) };
            at_once -= 1;
            *left -= 1;
            if visit(rest, value)?.is_break() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Takes the next entry from all ranges that have it.
    fn following(&mut self, view: &dyn View) -> Result<Option<Entry>, StoreError> {
        let Some(Next { rest, value, part, .. }) = self.next.pop() else { return Ok(None) };
        self.advance(view, part)?;
        while let Some(same) = self.next.peek().filter(|next| next.rest == rest).map(|next| next.part) {
            self.next.pop();
            self.advance(view, same)?;
        }
        Ok(Some((rest, value)))
    }

    /// Adds the next entry of a range, if it has one.
    fn advance(&mut self, view: &dyn View, number: usize) -> Result<(), StoreError> {
        let Self { parts, next, descending, piece, entries, .. } = self;
        let part = &mut parts[number];
        if part.read.is_empty() {
            part.read_on(view, *descending, *piece)?;
            *entries += part.read.len() as u64;
        }
        if let Some((rest, value)) = part.read.pop_front() {
            next.push(Next { rest, value, part: number, descending: *descending });
        }
        Ok(())
    }
}

impl Part {
    /// Reads the next piece.
    fn read_on(&mut self, view: &dyn View, descending: bool, piece: usize) -> Result<(), StoreError> {
        let Some(range) = &mut self.range else { return Ok(()) };
        let found = if descending { view.descending(range)? } else { view.ascending(range)? };
        let mut beginning = Vec::new();
        for entry in found.take(piece) {
            let (mut key, value) = entry?;
            let rest = key.split_off(self.beginning.min(key.len()));
            beginning = key;
            self.read.push_back((rest, value));
        }
        match self.read.back() {
            Some((rest, _)) if self.read.len() == piece => {
                beginning.extend_from_slice(rest);
                narrow(range, &beginning, descending);
            }
            _ => self.range = None,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::engine::ViewEntries;

    /// A state of the map.
    struct Map(BTreeMap<Vec<u8>, Vec<u8>>);

    impl View for Map {
        fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
            Ok(self.0.get(key).cloned())
        }

        fn ascending(&self, range: &Range) -> Result<ViewEntries<'_>, StoreError> {
            let found = self.0.range((range.from.clone(), range.to.clone()));
            Ok(Box::new(found.map(|(key, value)| Ok((key.clone(), value.clone())))))
        }

        fn descending(&self, range: &Range) -> Result<ViewEntries<'_>, StoreError> {
            let found = self.0.range((range.from.clone(), range.to.clone())).rev();
            Ok(Box::new(found.map(|(key, value)| Ok((key.clone(), value.clone())))))
        }
    }

    /// What all keys of a number begin with: of numbers below 256 it is shorter.
    fn beginning(number: u16) -> Vec<u8> {
        let bytes = number.to_be_bytes();
        if number < 256 { vec![1, bytes[1]] } else { vec![2, bytes[0], bytes[1]] }
    }

    /// Returns which of the numbers below 1,000 any of `of` divides, and the number of entries that were read. Each number up to 300 has
    /// an entry for each that it divides.
    fn merged(of: &[u16], descending: bool, after: Option<u16>, at_most: u64) -> (Vec<u16>, u64) {
        let key = |number: u16, other: u16| [beginning(number), other.to_be_bytes().to_vec()].concat();
        let all = (1..=300_u16).flat_map(|number| (0..1_000_u16).step_by(number.into()).map(move |it| (number, it)));
        let map = Map(all.map(|(number, it)| (key(number, it), vec![9])).collect());
        let ranges: Vec<_> = of.iter().map(|number| Range::prefix(&beginning(*number))).collect();
        let beginnings: Vec<_> = of.iter().map(|number| beginning(*number).len()).collect();
        let mut merged = Merged::new(&ranges, &beginnings, descending);
        if let Some(after) = after {
            merged.go_on_after(&after.to_be_bytes());
        }
        let (mut found, mut left) = (Vec::new(), at_most);
        let mut visit = |rest: Vec<u8>, value: Vec<u8>| {
            let rest: [u8; 2] = rest.try_into().expect("two bytes");
            found.push(u16::from_be_bytes(rest));
            assert_eq!(value, [9]);
            Ok::<_, StoreError>(ControlFlow::Continue(()))
        };
        while left > 0 && !merged.step(&map, &mut left, &mut visit).expect("it is read") {}
        (found, merged.entries())
    }

    #[test]
    fn what_is_in_several_ranges_comes_once_and_in_order() {
        let due: Vec<u16> = (0..1_000).filter(|it| it % 3 == 0 || it % 5 == 0 || it % 300 == 0).collect();
        let entries = 334 + 200 + 4;
        assert_eq!(merged(&[3, 5, 300], false, None, u64::MAX), (due.clone(), entries));
        let down: Vec<u16> = due.iter().rev().copied().collect();
        assert_eq!(merged(&[300, 5, 3], true, None, u64::MAX), (down.clone(), entries));
        for after in [0, 1, 500, 999] {
            let rest: Vec<u16> = due.iter().copied().filter(|it| *it > after).collect();
            assert_eq!(merged(&[3, 5, 300], false, Some(after), u64::MAX).0, rest);
            let rest: Vec<u16> = down.iter().copied().filter(|it| *it < after).collect();
            assert_eq!(merged(&[3, 5, 300], true, Some(after), u64::MAX).0, rest);
        }
        assert_eq!(merged(&[], false, None, u64::MAX), (Vec::new(), 0));
        assert_eq!(merged(&[301], true, None, u64::MAX), (Vec::new(), 0));
    }

    #[test]
    fn of_long_ranges_a_piece_of_each_is_read() {
        let (found, entries) = merged(&[1, 2], false, None, 10);
        assert_eq!(found, (0..10).collect::<Vec<_>>());
        assert_eq!(entries, 2 * PIECE as u64);
        // Of many ranges, a smaller piece of each.
        let many: Vec<u16> = std::iter::repeat_n(1, 2 * ENTRIES_MAX / PIECE).collect();
        let (found, entries) = merged(&many, true, None, 1);
        assert_eq!((found, entries), (vec![999], ENTRIES_MAX as u64));
    }
}
