//! A cache of the heads of aggregates that were recently committed to, so that neither a caller nor the log writer reads a file for them.
//!
//! INVARIANT: only the log writer changes the cache, with every commit that became durable, before any caller is answered. A head in the
//! cache is therefore current; one that is not in the cache may still be in a segment.

use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use crate::index::{Head, TermMap};
use crate::terms::ExactTerm;

/// The number of aggregates in one generation. Both generations together take about 16 MiB when full.
const GENERATION: usize = 64 * 1024;

pub(super) struct Heads {
    generation: usize,
    known: RwLock<Generations>,
}

/// Heads learned since the last rotation, and those of the rotation before it. If both contain an aggregate, `young` is current.
#[derive(Default)]
pub(super) struct Generations {
    young: TermMap<ExactTerm, Head>,
    old: TermMap<ExactTerm, Head>,
}

impl Default for Heads {
    fn default() -> Self {
        Self::of(GENERATION)
    }
}

impl Heads {
    fn of(generation: usize) -> Self {
        Self { generation, known: RwLock::default() }
    }

    pub(super) fn read(&self) -> RwLockReadGuard<'_, Generations> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the current heads of aggregates, and empties `moved`.
    pub(super) fn learn(&self, moved: &mut TermMap<ExactTerm, Head>) {
        let mut heads = self.known.write().unwrap_or_else(PoisonError::into_inner);
        heads.young.extend(moved.drain());
        if heads.young.len() >= self.generation {
            heads.old = std::mem::take(&mut heads.young);
        }
    }
}

impl Generations {
    pub(super) fn get(&self, aggregate: ExactTerm) -> Option<&Head> {
        self.young.get(&aggregate).or_else(|| self.old.get(&aggregate))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_stays_known_and_what_is_not_is_forgotten_never_wrong() {
        let heads = Heads::of(4);
        let mut truth = TermMap::<ExactTerm, Head>::default();
        for turn in 0..100_u64 {
            // One aggregate in every turn, one in a turn of its own.
            let mut moved = TermMap::default();
            for aggregate in [1, u128::from(turn) + 10] {
                let version = truth.get(&aggregate).map_or(0, |head| head.version) + 1;
                moved.insert(aggregate, Head { version, tenant_id: "(0)".into() });
            }
            truth.extend(moved.clone());
            heads.learn(&mut moved);
            assert!(moved.is_empty());
            let known = heads.read();
            assert_eq!(known.get(1), truth.get(&1));
            for (aggregate, head) in &truth {
                assert!(known.get(*aggregate).is_none_or(|found| found == head));
            }
        }
        assert!(heads.read().get(10).is_none());
    }
}
