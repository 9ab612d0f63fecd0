//! Which commits of a window may match which patterns.
//!
//! The postings of a term are looked up once for all patterns that have it. They are kept as sets, which are combined without looking at
//! each commit: a word of bits is 64 commits.

use std::ops::Range;

use super::patterns::{BITS, Patterns};
use super::{Stop, Work};
use crate::index::Answer;
use crate::terms::Term;

/// Words of bits that are combined in one step.
const WORDS_OF_A_STEP: usize = 16;
/// Ordinals that are copied in one step.
const ORDINALS_OF_A_STEP: usize = 4;
/// A call ends once it has listed this many ordinals, so that it does not take long.
const LISTED: usize = 16 * 1024;
const BYTES_KEPT: usize = 8 * 1024 * 1024;

/// Some commits of a window, counted from its start.
pub(in crate::log) enum Set {
    /// Fewer than one in [`BITS`], ascending.
    Few(Vec<u32>),
    Many {
        count: usize,
        words: Vec<u64>,
    },
}

/// The postings of the terms of a request in a window.
#[derive(Default)]
pub(in crate::log) struct Listing {
    window: Range<u32>,
    /// For each number of a term, 0 before it is looked up, then one more than the place of its set.
    known: Vec<u32>,
    /// The first one is empty, and that of all terms that no commit has.
    sets: Vec<Set>,
    bytes: usize,
    /// Sets are forgotten after a pattern if they take more than this many bytes. Those of one pattern may be on top.
    bytes_kept: usize,
}

/// For each commit of a window the patterns that it may match.
#[derive(Default)]
pub(in crate::log) struct Asked {
    columns: usize,
    words: Vec<u64>,
}

impl Asked {
    /// Forgets everything and begins a window of this many commits.
    ///
    /// # Errors
    /// [`Stop::Later`] if that costs too much.
    pub(in crate::log) fn begin(&mut self, commits: usize, columns: usize, work: &mut Work) -> Result<(), Stop> {
        work.spend((commits * columns / WORDS_OF_A_STEP) as u64)?;
        self.columns = columns;
        self.words.clear();
        self.words.resize(commits * columns, 0);
        Ok(())
    }

    /// Returns a bit for each distinct pattern that the commit may match.
    pub(in crate::log) fn of(&self, commit: usize) -> &[u64] {
        &self.words[commit * self.columns..][..self.columns]
    }

    /// Notes the commits that may match a pattern.
    ///
    /// # Errors
    /// [`Stop::Later`] if that costs too much.
    pub(in crate::log) fn put(&mut self, pattern: usize, commits: &Set, work: &mut Work) -> Result<(), Stop> {
        work.spend(commits.steps_of_all())?;
        let (column, bit) = (pattern / BITS, 1 << (pattern % BITS));
        commits.each(|commit| self.words[commit as usize * self.columns + column] |= bit);
        Ok(())
    }
}

impl Listing {
    pub(in crate::log) fn new(window: Range<u32>, patterns: &Patterns) -> Self {
        let (known, sets) = (vec![0; patterns.terms().len()], vec![Set::Few(Vec::new())]);
        Self { window, known, sets, bytes: 0, bytes_kept: BYTES_KEPT }
    }

    /// Keeps nothing from one pattern to the next.
    #[cfg(test)]
    pub(super) fn forget_everything(&mut self) {
        self.bytes_kept = 0;
    }

    /// Returns the commits that may match a pattern, or `None` if it has taken long already and must be called again. `look_up` returns the
    /// postings of a term in the window.
    ///
    /// # Errors
    /// [`Stop::Later`] if that costs too much; otherwise why the index cannot be read.
    pub(in crate::log) fn commits(
        &mut self,
        patterns: &Patterns,
        pattern: usize,
        work: &mut Work,
        look_up: impl Fn(Term) -> Answer<Vec<u32>>,
    ) -> Result<Option<Set>, Stop> {
        let found = self.look_on(patterns, pattern, work, look_up)?;
        if found.is_some() && self.bytes > self.bytes_kept {
            self.known.fill(0);
            self.sets.truncate(1);
            self.bytes = 0;
        }
        Ok(found)
    }

    fn look_on(
        &mut self,
        patterns: &Patterns,
        pattern: usize,
        work: &mut Work,
        look_up: impl Fn(Term) -> Answer<Vec<u32>>,
    ) -> Result<Option<Set>, Stop> {
        let (types, tags) = (patterns.types(pattern), patterns.tags(pattern));
        work.spend(1 + (types.len() + tags.len()) as u64)?;
        if tags.iter().any(|tag| self.set(*tag).is_some_and(|set| set.count() == 0)) {
            return Ok(Some(Set::Few(Vec::new())));
        }
        let mut listed = 0;
        for (n, number) in tags.iter().chain(types).enumerate() {
            if self.set(*number).is_some() {
                continue;
            }
            if listed >= LISTED {
                return Ok(None);
            }
            work.look_up()?;
            let ordinals = look_up(patterns.terms()[*number as usize])?;
            work.spend((ordinals.len() / ORDINALS_OF_A_STEP) as u64)?;
            listed += ordinals.len();
            self.keep(*number, ordinals);
            if n < tags.len() && self.set(*number).is_some_and(|set| set.count() == 0) {
                return Ok(Some(Set::Few(Vec::new())));
            }
        }
        self.combined(types, tags, work).map(Some)
    }

    fn set(&self, number: u32) -> Option<&Set> {
        self.sets.get((self.known[number as usize] as usize).checked_sub(1)?)
    }

    fn keep(&mut self, number: u32, mut ordinals: Vec<u32>) {
        let place = &mut self.known[number as usize];
        if ordinals.is_empty() {
            *place = 1;
            return;
        }
        *place = self.sets.len() as u32 + 1;
        ordinals.iter_mut().for_each(|ordinal| *ordinal -= self.window.start);
        let set = if self.is_few(ordinals.len()) {
            // The list may have been cut from a longer one.
            ordinals.shrink_to(self.window.len().div_ceil(BITS));
            Set::Few(ordinals)
        } else {
            let mut words = self.no_words();
            ordinals.iter().for_each(|ordinal| words[*ordinal as usize / BITS] |= 1 << (*ordinal as usize % BITS));
            Set::of(words)
        };
        self.bytes += set.bytes();
        self.sets.push(set);
    }

    fn is_few(&self, count: usize) -> bool {
        count * BITS < self.window.len()
    }

    fn no_words(&self) -> Vec<u64> {
        vec![0; self.window.len().div_ceil(BITS)]
    }

    /// Returns the commits with one of the types, if there are any, and all of the tags.
    fn combined(&self, types: &[u32], tags: &[u32], work: &mut Work) -> Result<Set, Stop> {
        let one_of_them;
        let mut sets: Vec<&Set> = tags.iter().filter_map(|tag| self.set(*tag)).collect();
        match types {
            [] => {}
            [only] => sets.extend(self.set(*only)),
            types => {
                one_of_them = self.union(types, work)?;
                sets.push(&one_of_them);
            }
        }
        self.intersection(sets, work)
    }

    fn union(&self, numbers: &[u32], work: &mut Work) -> Result<Set, Stop> {
        let sets: Vec<&Set> = numbers.iter().filter_map(|number| self.set(*number)).collect();
        work.spend(sets.iter().map(|set| set.steps()).sum())?;
        if self.is_few(sets.iter().map(|set| set.count()).sum()) {
            let mut all = Vec::new();
            sets.iter().for_each(|set| set.each(|commit| all.push(commit)));
            all.sort_unstable();
            all.dedup();
            return Ok(Set::Few(all));
        }
        work.spend(self.steps_of_words())?;
        let mut words = self.no_words();
        for set in sets {
            match set {
                Set::Few(some) => some.iter().for_each(|it| words[*it as usize / BITS] |= 1 << (*it as usize % BITS)),
                Set::Many { words: some, .. } => words.iter_mut().zip(some).for_each(|(word, some)| *word |= some),
            }
        }
        Ok(Set::of(words))
    }

    fn intersection(&self, mut sets: Vec<&Set>, work: &mut Work) -> Result<Set, Stop> {
        // The rarest first. Behind the first that are many, all are.
        sets.sort_unstable_by_key(|set| (set.words().is_some(), set.count()));
        let Some((first, others)) = sets.split_first() else {
            work.spend(self.steps_of_words())?;
            let mut all = vec![u64::MAX; self.window.len().div_ceil(BITS)];
            if let (Some(last), rest @ 1..) = (all.last_mut(), self.window.len() % BITS) {
                *last = (1 << rest) - 1;
            }
            return Ok(Set::of(all));
        };
        work.spend(first.steps() * sets.len() as u64)?;
        Ok(match first {
            Set::Few(few) => {
                let mut common = few.clone();
                others.iter().for_each(|other| common.retain(|commit| other.has(*commit)));
                Set::Few(common)
            }
            Set::Many { words, .. } => {
                let mut common = words.clone();
                for other in others.iter().filter_map(|other| other.words()) {
                    common.iter_mut().zip(other).for_each(|(word, other)| *word &= other);
                }
                Set::of(common)
            }
        })
    }

    fn steps_of_words(&self) -> u64 {
        (self.window.len().div_ceil(BITS * WORDS_OF_A_STEP)) as u64
    }
}

impl Set {
    fn of(words: Vec<u64>) -> Self {
        Self::Many { count: words.iter().map(|word| word.count_ones() as usize).sum(), words }
    }

    fn count(&self) -> usize {
        match self {
            Self::Few(some) => some.len(),
            Self::Many { count, .. } => *count,
        }
    }

    fn words(&self) -> Option<&[u64]> {
        match self {
            Self::Few(_) => None,
            Self::Many { words, .. } => Some(words),
        }
    }

    fn has(&self, commit: u32) -> bool {
        match self {
            Self::Few(some) => some.binary_search(&commit).is_ok(),
            Self::Many { words, .. } => words[commit as usize / BITS] >> (commit as usize % BITS) & 1 == 1,
        }
    }

    fn each(&self, mut take: impl FnMut(u32)) {
        match self {
            Self::Few(some) => some.iter().copied().for_each(take),
            Self::Many { words, .. } => {
                for (n, word) in words.iter().enumerate() {
                    let mut rest = *word;
                    while rest != 0 {
                        take((n * BITS) as u32 + rest.trailing_zeros());
                        rest &= rest - 1;
                    }
                }
            }
        }
    }

    /// Returns the steps that combining it with another set takes at most.
    fn steps(&self) -> u64 {
        match self {
            Self::Few(some) => 1 + 2 * some.len() as u64,
            Self::Many { words, .. } => 1 + (words.len() / WORDS_OF_A_STEP) as u64,
        }
    }

    /// Returns the steps that visiting each of its commits takes at most.
    fn steps_of_all(&self) -> u64 {
        let words = self.words().map_or(0, |words| words.len() / WORDS_OF_A_STEP);
        (1 + self.count() / ORDINALS_OF_A_STEP + words) as u64
    }

    fn bytes(&self) -> usize {
        let list = match self {
            Self::Few(some) => some.capacity() * size_of::<u32>(),
            Self::Many { words, .. } => words.capacity() * size_of::<u64>(),
        };
        size_of::<Self>() + list
    }
}
