//! Finds repeated requests of a log in bounded memory: the hashes of one range of requests are kept and sorted, and the log is walked
//! again for each further range.

use std::collections::{HashMap, HashSet};

use annals_core::SequenceNumber;

use crate::terms::{ExactTerm, Term, short};

/// The most hashes held at once: 128 MiB.
pub(super) const TERMS_MAX: usize = 16 * 1024 * 1024;

/// The hashes of one range.
pub(super) struct Requests {
    /// The range. Its end is lowered when more hashes fall into it than can be held.
    from: Term,
    to: Term,
    terms: Vec<Term>,
    most: usize,
    /// Hashes that occurred more than once.
    suspects: HashSet<Term>,
}

impl Requests {
    pub(super) fn new(most: usize) -> Self {
        Self { from: 0, to: Term::MAX, terms: Vec::new(), most: most.max(2), suspects: HashSet::new() }
    }

    pub(super) fn add(&mut self, request: ExactTerm) {
        let term = short(request);
        if term < self.from || term > self.to {
            return;
        }
        self.terms.push(term);
        if self.terms.len() >= self.most {
            self.shrink();
        }
    }

    /// Keeps the lower half of the range, and leaves the rest to the next walk.
    fn shrink(&mut self) {
        self.find_suspects();
        let middle = self.terms[self.terms.len() / 2];
        if middle > self.from {
            self.to = middle - 1;
            let keep = self.terms.partition_point(|term| *term < middle);
            self.terms.truncate(keep);
        }
    }

    fn find_suspects(&mut self) {
        self.terms.sort_unstable();
        let twice = self.terms.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]);
        self.suspects.extend(twice);
        self.terms.dedup();
    }

    /// Ends a walk. Returns whether another one is needed.
    pub(super) fn go_on(&mut self) -> bool {
        self.find_suspects();
        self.terms.clear();
        if self.to == Term::MAX {
            return false;
        }
        (self.from, self.to) = (self.to + 1, Term::MAX);
        true
    }

    /// Returns the hashes that must be checked again, by the whole hash.
    pub(super) fn suspects(self) -> Option<Suspects> {
        (!self.suspects.is_empty()).then(|| Suspects { terms: self.suspects, first: HashMap::new() })
    }
}

/// Requests of which half the hash occurred more than once.
pub(super) struct Suspects {
    terms: HashSet<Term>,
    first: HashMap<ExactTerm, SequenceNumber>,
}

impl Suspects {
    /// Returns the sequence number at which this request occurred before, if it did.
    pub(super) fn seen(&mut self, request: ExactTerm, sequence_number: SequenceNumber) -> Option<SequenceNumber> {
        if !self.terms.contains(&short(request)) {
            return None;
        }
        match self.first.entry(request) {
            std::collections::hash_map::Entry::Occupied(first) => Some(*first.get()),
            std::collections::hash_map::Entry::Vacant(free) => {
                free.insert(sequence_number);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_there_twice_is_found_in_any_number_of_walks() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut all: Vec<ExactTerm> = (0..500).map(|_| random.u128(..)).collect();
        let twice = [all[3], all[77], all[499]];
        all.extend(twice);
        for most in [2, 3, 10, 100, 1_000] {
            let mut requests = Requests::new(most);
            let mut walks = 0;
            loop {
                all.iter().for_each(|term| requests.add(*term));
                walks += 1;
                if !requests.go_on() {
                    break;
                }
            }
            assert_eq!(walks > 1, most <= 100, "{most}: {walks} walks");
            let mut suspects = requests.suspects().expect("there are some");
            let found: Vec<_> = (0..).zip(&all).filter_map(|(n, term)| suspects.seen(*term, n)).collect();
            assert_eq!(found, [3, 77, 499]);
        }
    }
}
