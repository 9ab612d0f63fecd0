//! The entries of several words as one sequence: in the order of the ids of their records, each id once.
//!
//! Under one word, entries stand in the order of the ids. Several words are merged, a piece of each at a time, so neither the records nor
//! the ids that were already found are held.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::{Bound, ControlFlow};

use annals_core::StoreError;

use super::catalog::KnownIndex;
use super::entries;
use super::scan::{PLACES_AT_ONCE, narrow};
use crate::engine::{Range, View};
use crate::turn::Turn;

/// The number of entries of one word that are read together.
const PIECE: usize = 64;

/// The remaining ids of the records that have an entry in one of several ranges, each of them the range of one word.
pub(super) struct Merged {
    known: KnownIndex,
    words: Vec<Word>,
    /// The number of words whose first id was read.
    begun: usize,
    /// The next id of each word that has one.
    next: BinaryHeap<Next>,
    descending: bool,
    /// The number of entries that were read.
    entries: u64,
}

/// The remaining entries of a word.
struct Word {
    /// The entries that are not read yet, or `None` if all are.
    range: Option<Range>,
    /// The ids of entries that were read.
    ids: VecDeque<Vec<u8>>,
}

/// The next id of a word. The greatest of several is the one that comes first.
#[derive(PartialEq, Eq)]
struct Next {
    id: Vec<u8>,
    word: usize,
    descending: bool,
}

impl Ord for Next {
    fn cmp(&self, other: &Self) -> Ordering {
        let order = (&self.id, self.word).cmp(&(&other.id, other.word));
        if self.descending { order } else { order.reverse() }
    }
}

impl PartialOrd for Next {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Merged {
    /// Merges the ranges of words in a text index.
    pub(super) fn new(known: KnownIndex, ranges: &[Range], descending: bool) -> Self {
        let words = ranges.iter().map(|range| Word { range: Some(range.clone()), ids: VecDeque::new() }).collect();
        Self { known, words, begun: 0, next: BinaryHeap::new(), descending, entries: 0 }
    }

    /// Resumes after an id. Nothing may have been read.
    pub(super) fn go_on_after(&mut self, id: &[u8]) {
        for range in self.words.iter_mut().filter_map(|word| word.range.as_mut()) {
            if let Bound::Included(word) = &range.from {
                let last = [word.as_slice(), id].concat();
                narrow(range, &last, self.descending);
            }
        }
    }

    /// Returns the number of entries that were read so far.
    pub(super) fn entries(&self) -> u64 {
        self.entries
    }

    /// Visits ids for a while, at most `left` of them, which it counts down. Returns whether none are left or the visitor broke off.
    pub(super) fn step<E: From<StoreError>>(
        &mut self,
        view: &dyn View,
        left: &mut u64,
        visit: &mut dyn FnMut(Vec<u8>) -> Result<ControlFlow<()>, E>,
    ) -> Result<bool, E> {
        let turn = Turn::begin();
        let mut at_once = PLACES_AT_ONCE.min(*left);
        while at_once > 0 && !turn.is_over() {
            if self.begun < self.words.len() {
                self.advance(view, self.begun)?;
                self.begun += 1;
                continue;
            }
            let Some(id) = self.following(view)? else { return Ok(true) };
            at_once -= 1;
            *left -= 1;
            if visit(id)?.is_break() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Takes the next id from all words that have it.
    fn following(&mut self, view: &dyn View) -> Result<Option<Vec<u8>>, StoreError> {
        let Some(Next { id, word, .. }) = self.next.pop() else { return Ok(None) };
        self.advance(view, word)?;
        while let Some(same) = self.next.peek().filter(|next| next.id == id).map(|next| next.word) {
            self.next.pop();
            self.advance(view, same)?;
        }
        Ok(Some(id))
    }

    /// Adds the next id of a word, if it has one.
    fn advance(&mut self, view: &dyn View, number: usize) -> Result<(), StoreError> {
        let Self { known, words, next, descending, entries, .. } = self;
        let word = &mut words[number];
        if word.ids.is_empty() {
            word.read(view, known, *descending)?;
            *entries += word.ids.len() as u64;
        }
        let id = word.ids.pop_front();
        next.extend(id.map(|id| Next { id, word: number, descending: *descending }));
        Ok(())
    }
}

impl Word {
    /// Reads the next piece of the entries.
    fn read(&mut self, view: &dyn View, known: &KnownIndex, descending: bool) -> Result<(), StoreError> {
        let Some(range) = &mut self.range else { return Ok(()) };
        let found = if descending { view.descending(range)? } else { view.ascending(range)? };
        let mut last = None;
        for entry in found.take(PIECE) {
            let (key, value) = entry?;
            let id = entries::id_of(known, &key, &value).ok_or_else(|| entries::damaged(known.index.name()))?;
            self.ids.push_back(id);
            last = Some(key);
        }
        match last {
            Some(last) if self.ids.len() == PIECE => narrow(range, &last, descending),
            _ => self.range = None,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use annals_core::{Index, text_entry};

    use super::super::catalog::Catalog;
    use super::super::keys;
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

    /// The ids of the records with one of these words, of which there are those from 0 to 999 that each word divides, and the number of
    /// entries that were read.
    fn merged(words: &[u16], descending: bool, after: Option<u16>, at_most: u64) -> (Vec<u16>, u64) {
        let known = Catalog::default().add_index("c", Index::text(["t"]).into());
        let entry = |word: u16, id: u16| {
            let (key, value) = entries::stored(&known, &text_entry(&word.to_string()), &id.to_be_bytes());
            (key, value.to_vec())
        };
        let all = (1..=300_u16).flat_map(|word| (0..1_000_u16).step_by(word.into()).map(move |id| (word, id)));
        let map = Map(all.map(|(word, id)| entry(word, id)).collect());
        let range = |word: &u16| Range::prefix(&keys::entry(known.id, &text_entry(&word.to_string()), &[]));
        let ranges: Vec<_> = words.iter().map(range).collect();
        let mut merged = Merged::new(known.clone(), &ranges, descending);
        if let Some(after) = after {
            merged.go_on_after(&after.to_be_bytes());
        }
        let (mut found, mut left) = (Vec::new(), at_most);
        let mut visit = |id: Vec<u8>| {
            let id: [u8; 2] = id.try_into().expect("two bytes");
            found.push(u16::from_be_bytes(id));
            Ok::<_, StoreError>(ControlFlow::Continue(()))
        };
        while left > 0 && !merged.step(&map, &mut left, &mut visit).expect("it is read") {}
        (found, merged.entries())
    }

    #[test]
    fn the_ids_of_several_words_come_once_each_and_in_order() {
        let due: Vec<u16> = (0..1_000).filter(|id| id % 3 == 0 || id % 5 == 0 || id % 300 == 0).collect();
        let entries = 334 + 200 + 4;
        assert_eq!(merged(&[3, 5, 300], false, None, u64::MAX), (due.clone(), entries));
        let down: Vec<u16> = due.iter().rev().copied().collect();
        assert_eq!(merged(&[300, 5, 3], true, None, u64::MAX), (down.clone(), entries));
        for after in [0, 1, 500, 999] {
            let rest: Vec<u16> = due.iter().copied().filter(|id| *id > after).collect();
            assert_eq!(merged(&[3, 5, 300], false, Some(after), u64::MAX).0, rest);
            let rest: Vec<u16> = down.iter().copied().filter(|id| *id < after).collect();
            assert_eq!(merged(&[3, 5, 300], true, Some(after), u64::MAX).0, rest);
        }
        assert_eq!(merged(&[], false, None, u64::MAX), (Vec::new(), 0));
        assert_eq!(merged(&[7_000], true, None, u64::MAX), (Vec::new(), 0));
    }

    #[test]
    fn of_frequent_words_a_piece_of_each_is_read() {
        let (found, entries) = merged(&[1, 2], false, None, 10);
        assert_eq!(found, (0..10).collect::<Vec<_>>());
        assert_eq!(entries, 2 * PIECE as u64);
    }
}
