//! Where aggregates stand, as far as this process knows: of those that it committed to or read lately.
//!
//! Invariant: every head in it was acknowledged or read at majority. Other processes commit too, so it may be behind, never ahead: what it
//! refuses is looked up again first, and what it admits is checked by the unique index.
//!
//! Invariant: the index of a collection that took the place of another one refuses none of that one's versions. So all heads of its
//! aggregates are forgotten before it is inserted into, and what was read or stored before that is not learned any more: see [`Epoch`].

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use annals_core::{Aggregate, ByteString, Version};

/// Aggregates of a generation; the two together take about 20 MB when they are full.
const GENERATION: usize = 64 * 1024;

/// An aggregate's version and tenantId.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) version: Version,
    /// Empty while the version is 0, and where its commits were deleted by other software.
    pub(crate) tenant_id: ByteString,
}

impl Head {
    pub(crate) const NONE: Self = Self { version: 0, tenant_id: ByteString::from_static("") };
}

#[derive(Default)]
pub(crate) struct Heads {
    known: Mutex<Generations>,
}

/// The time between two collections of commits that took the place of others. A head is learned in the epoch in which its reading began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Epoch(u64);

/// What was used since the last turn, and in the turn before it. What stands in both is right in `young`.
#[derive(Default)]
struct Generations {
    epoch: Epoch,
    young: HashMap<Aggregate, Head>,
    old: HashMap<Aggregate, Head>,
}

impl Heads {
    pub(crate) fn epoch(&self) -> Epoch {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).epoch
    }

    pub(crate) fn get(&self, aggregate: &Aggregate) -> Option<Head> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.young.get(aggregate).or_else(|| known.old.get(aggregate)).cloned()
    }

    /// Forgets the aggregates of this name: their collection was dropped, and other processes may have committed to them since.
    pub(crate) fn forget(&self, name: &str) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let Generations { epoch, young, old } = &mut *known;
        epoch.0 += 1;
        [young, old].into_iter().for_each(|heads| heads.retain(|aggregate, _| *aggregate.name != *name));
    }

    /// Takes note of where an aggregate stands, unless a collection was replaced since this epoch. What is known to be further on stays.
    pub(crate) fn learn(&self, aggregate: &Aggregate, head: Head, since: Epoch) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.epoch != since {
            return;
        }
        let newest = known.young.get(aggregate).or_else(|| known.old.get(aggregate));
        if head.version == 0 || newest.is_some_and(|newest| newest.version >= head.version) {
            return;
        }
        known.young.insert(aggregate.clone(), head);
        if known.young.len() >= GENERATION {
            known.old = std::mem::take(&mut known.young);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_before_a_collection_was_replaced_is_not_learned() {
        let (heads, aggregate) = (Heads::default(), Aggregate::new("order", "a"));
        let head = |version| Head { version, tenant_id: "(0)".into() };
        let before = heads.epoch();
        heads.learn(&aggregate, head(1), before);
        assert_eq!(heads.get(&aggregate), Some(head(1)));
        heads.forget("other");
        assert_eq!(heads.get(&aggregate), Some(head(1)));
        heads.forget("order");
        heads.learn(&aggregate, head(2), before);
        assert_eq!(heads.get(&aggregate), None);
        heads.learn(&aggregate, head(3), heads.epoch());
        assert_eq!(heads.get(&aggregate), Some(head(3)));
    }
}
