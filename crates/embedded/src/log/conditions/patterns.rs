//! The distinct patterns of a request, and which of them an event matches.
//!
//! Equal patterns are one pattern, however many conditions have them. Types and tags are numbered, each text once, so an event's texts are
//! looked up once for all patterns. From then on one bit stands for each pattern, and 64 patterns are handled at once:
//!
//! ```text
//!   the event's type   ─▶ the patterns with that type, and those without types                    ─┐
//!   the event's tags   ─▶ for each tag, the patterns with it: added up, one binary digit a word   ─┴▶ patterns with a type that fits
//!                         and as many tags of the event as they have tags
//! ```

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use annals_core::{ByteString, EventPattern, EventRef, limits};

use super::{BYTES_OF_A_STEP, Stop, Work};
use crate::terms::{Term, TermKey};

/// Patterns, types and tags, all in all, up to which texts are compared one by one: numbering them would take longer.
const FEW: usize = 8;
pub(super) const BITS: usize = u64::BITS as usize;
/// Binary digits of the number of tags of a pattern.
const DIGITS: usize = limits::TAGS_MAX.ilog2() as usize + 1;
/// Steps for finding the number of a text, beside those for its bytes.
const NUMBERED: u64 = 4;

/// A pattern as its condition and its place in that condition.
pub(super) type Place = (usize, usize);

/// The distinct patterns of a request.
#[derive(Default)]
pub(in crate::log) struct Patterns {
    /// The term of each numbered type and tag.
    terms: Vec<Term>,
    distinct: Vec<Distinct>,
    /// `None` if there are few texts.
    numbered: Option<Box<Numbered>>,
}

/// Equal patterns of any conditions.
struct Distinct {
    types: Vec<u32>,
    tags: Vec<u32>,
    /// Where they are, ascending.
    places: Vec<Place>,
}

#[derive(Default)]
struct Numbered {
    types: HashMap<ByteString, u32>,
    tags: HashMap<ByteString, u32>,
    /// The distinct pattern with these types and tags.
    known: HashMap<(Vec<u32>, Vec<u32>), usize>,
    /// For each number the last of its `users`.
    last: Vec<u32>,
    users: Vec<Users>,
    columns: Vec<Column>,
}

/// What is known of 64 patterns.
#[derive(Clone, Copy, Default)]
struct Column {
    /// Those without types.
    untyped: u64,
    /// The number of their tags: the first word has its lowest digits.
    tags: Digits,
}

type Digits = [u64; DIGITS];

/// The patterns of a column that have a type or tag. `before` is the place of the next ones with the same text, if any.
struct Users {
    column: u32,
    before: u32,
    patterns: u64,
}

/// Memory for comparisons, which is reused.
#[derive(Default)]
pub(super) struct Scratch {
    numbers: Vec<u32>,
    counts: Vec<Digits>,
}

impl Patterns {
    /// Prepares for patterns that number this many together with their types and tags.
    pub(super) fn of_size(size: usize) -> Self {
        Self { numbered: (size > FEW).then(Box::default), ..Self::default() }
    }

    /// Adds the next pattern, in the order of the places.
    pub(super) fn add(&mut self, key: TermKey, place: Place, pattern: &EventPattern) {
        let types = self.numbers(&pattern.types, |it| &mut it.types, |text| key.event_type(text));
        let tags = self.numbers(&pattern.tags, |it| &mut it.tags, |text| key.tag(text));
        let next = self.distinct.len();
        let (types, tags) = match &mut self.numbered {
            None => (types, tags),
            Some(numbered) => match numbered.known.entry((types, tags)) {
                Entry::Occupied(known) => return self.distinct[*known.get()].places.push(place),
                Entry::Vacant(new) => {
                    let (types, tags) = new.key().clone();
                    new.insert(next);
                    numbered.add(next, &types, &tags);
                    (types, tags)
                }
            },
        };
        self.distinct.push(Distinct { types, tags, places: vec![place] });
    }

    /// Returns the numbers of these texts, each once, ascending.
    fn numbers(
        &mut self,
        texts: &[ByteString],
        kind: impl Fn(&mut Numbered) -> &mut HashMap<ByteString, u32>,
        term: impl Fn(&str) -> Term,
    ) -> Vec<u32> {
        let mut numbers = Vec::with_capacity(texts.len());
        for text in texts {
            let next = self.terms.len() as u32;
            let number = match self.numbered.as_deref_mut() {
                None => {
                    let term = term(text);
                    let known = self.terms.iter().position(|known| *known == term).map(|known| known as u32);
                    if known.is_none() {
                        self.terms.push(term);
                    }
                    known.unwrap_or(next)
                }
                Some(numbered) => {
                    let number = *kind(&mut *numbered).entry(text.clone()).or_insert(next);
                    if number == next {
                        self.terms.push(term(text));
                        numbered.last.push(u32::MAX);
                    }
                    number
                }
            };
            numbers.push(number);
        }
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }

    pub(super) fn is_empty(&self) -> bool {
        self.distinct.is_empty()
    }

    /// Returns the number of distinct patterns.
    pub(super) fn count(&self) -> usize {
        self.distinct.len()
    }

    /// Returns the number of words that have a bit for each distinct pattern.
    pub(in crate::log) fn columns(&self) -> usize {
        self.distinct.len().div_ceil(BITS)
    }

    /// Returns the terms of all types and tags, by number.
    pub(in crate::log) fn terms(&self) -> &[Term] {
        &self.terms
    }

    pub(super) fn types(&self, pattern: usize) -> &[u32] {
        &self.distinct[pattern].types
    }

    pub(super) fn tags(&self, pattern: usize) -> &[u32] {
        &self.distinct[pattern].tags
    }

    /// Returns the places of a distinct pattern, ascending.
    pub(super) fn places(&self, pattern: usize) -> &[Place] {
        &self.distinct[pattern].places
    }

    /// Returns a bit for each distinct pattern that is open at any of its places.
    pub(super) fn live(&self, open: &[u64]) -> Vec<u64> {
        let mut live = vec![0; self.columns()];
        for (n, distinct) in self.distinct.iter().enumerate() {
            if distinct.places.iter().any(|(condition, pattern)| open[*condition] >> pattern & 1 == 1) {
                live[n / BITS] |= 1 << (n % BITS);
            }
        }
        live
    }

    /// Clears the bits of the patterns that the event does not match. `text` returns the pattern at a place.
    ///
    /// # Errors
    /// [`Stop::Later`] if that costs too much.
    pub(super) fn retain_matching<'p>(
        &self,
        bits: &mut [u64],
        event: &EventRef<'_>,
        scratch: &mut Scratch,
        work: &mut Work,
        text: impl Fn(Place) -> &'p EventPattern,
    ) -> Result<(), Stop> {
        if let Some(numbered) = &self.numbered {
            return numbered.retain_matching(bits, event, scratch, work);
        }
        for (n, distinct) in self.distinct.iter().enumerate() {
            let (word, bit) = (&mut bits[n / BITS], 1 << (n % BITS));
            if *word & bit == 0 {
                continue;
            }
            let wanted = text(distinct.places[0]);
            work.spend((1 + wanted.types.len() + wanted.tags.len() * event.tags.len()) as u64)?;
            if !wanted.matches_ref(event) {
                *word &= !bit;
            }
        }
        Ok(())
    }
}

impl Numbered {
    /// Adds the pattern with this number.
    fn add(&mut self, pattern: usize, types: &[u32], tags: &[u32]) {
        let (at, bit) = (pattern / BITS, 1 << (pattern % BITS));
        if at == self.columns.len() {
            self.columns.push(Column::default());
        }
        let column = &mut self.columns[at];
        if types.is_empty() {
            column.untyped |= bit;
        }
        raise(&mut column.tags, tags.len() as u64, bit);
        for number in types.iter().chain(tags) {
            let last = &mut self.last[*number as usize];
            let same = self.users.get_mut(*last as usize).filter(|users| users.column == at as u32);
            if let Some(users) = same {
                users.patterns |= bit;
                continue;
            }
            let next = self.users.len() as u32;
            self.users.push(Users { column: at as u32, before: *last, patterns: bit });
            *last = next;
        }
    }

    /// Returns the patterns with a type or tag, by column.
    fn users(&self, number: u32) -> impl Iterator<Item = &Users> {
        let last = self.users.get(self.last[number as usize] as usize);
        std::iter::successors(last, |users| self.users.get(users.before as usize))
    }

    fn retain_matching(
        &self,
        bits: &mut [u64],
        event: &EventRef<'_>,
        scratch: &mut Scratch,
        work: &mut Work,
    ) -> Result<(), Stop> {
        let columns = self.columns.len() as u64;
        work.spend(NUMBERED + event.event_type.len() as u64 / BYTES_OF_A_STEP + columns)?;
        let typed = self.types.get(event.event_type).map(|number| self.users(*number));
        let mut typed = typed.into_iter().flatten().peekable();
        // Users are in descending order of their columns.
        for (n, (bits, column)) in bits.iter_mut().zip(&self.columns).enumerate().rev() {
            let typed = typed.next_if(|users| users.column as usize == n).map_or(0, |users| users.patterns);
            *bits &= column.untyped | typed;
        }
        if bits.iter().all(|bits| *bits == 0) {
            return Ok(());
        }
        let bytes: usize = event.tags.iter().map(|tag| tag.len()).sum();
        work.spend(NUMBERED * event.tags.len() as u64 + bytes as u64 / BYTES_OF_A_STEP)?;
        let Scratch { numbers, counts } = scratch;
        numbers.clear();
        numbers.extend(event.tags.iter().filter_map(|tag| self.tags.get(*tag)));
        // A tag that an event has twice counts once.
        numbers.sort_unstable();
        numbers.dedup();
        work.spend((numbers.len() as u64 + 1) * columns)?;
        counts.clear();
        counts.resize(self.columns.len(), [0; DIGITS]);
        for users in numbers.iter().flat_map(|number| self.users(*number)) {
            raise(&mut counts[users.column as usize], 1, users.patterns);
        }
        for ((bits, column), counts) in bits.iter_mut().zip(&self.columns).zip(counts) {
            let differs = column.tags.iter().zip(counts).fold(0, |differs, (tags, count)| differs | (tags ^ *count));
            *bits &= !differs;
        }
        Ok(())
    }
}

/// Adds a number to those of some patterns.
fn raise(digits: &mut Digits, number: u64, patterns: u64) {
    let mut carry = 0;
    for (n, digit) in digits.iter_mut().enumerate() {
        let added = if number >> n & 1 == 1 { patterns } else { 0 };
        (*digit, carry) = (*digit ^ added ^ carry, (*digit & added) | (*digit & carry) | (added & carry));
        if carry == 0 && number >> n <= 1 {
            return;
        }
    }
}
