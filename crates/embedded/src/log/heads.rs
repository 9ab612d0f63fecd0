//! Where the aggregates stand that were committed to lately, so that neither a caller nor the log writer reads a file for them.
//!
//! Invariant: the log writer alone changes it, with every commit that became durable, before anyone is answered. So what it knows
//! is what holds; what it does not know may still be in a segment.

use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use crate::index::{Head, TermMap};
use crate::terms::ExactTerm;

/// Aggregates of a generation; the two together take about 16 MiB when they are full.
const GENERATION: usize = 64 * 1024;

pub(super) struct Heads {
    generation: usize,
    known: RwLock<Generations>,
}

/// What was used since the last turn, and in the turn before it. What stands in both is right in `young`.
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

    /// Takes note of where aggregates stand now, and empties `moved`.
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
