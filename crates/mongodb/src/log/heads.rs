//! A cache of the heads of aggregates that this process committed to or read lately.
//!
//! INVARIANT: every cached head was acknowledged or read at majority. Other processes commit too, so a head may be stale but never ahead.
//! A refusal based on it is first looked up again, and an admission is checked by the unique index.
//!
//! INVARIANT: the indexes of a collection that replaced another do not refuse the versions of the old one. So all heads of its aggregates
//! are forgotten before the first insert, and heads read or stored earlier are no longer cached: see [`Epoch`].

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use annals_core::{Aggregate, ByteString, Version};

/// Aggregates in a generation. Two full generations take about 20 MB.
const GENERATION: usize = 64 * 1024;

/// An aggregate's version and tenantId.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) version: Version,
    /// Empty while the version is 0, and if other software deleted the aggregate's commits.
    pub(crate) tenant_id: ByteString,
}

impl Head {
    pub(crate) const NONE: Self = Self { version: 0, tenant_id: ByteString::from_static("") };
}

#[derive(Default)]
pub(crate) struct Heads {
    known: Mutex<Generations>,
}

/// The period between two replacements of collections of commits. A head is cached only in the epoch in which its read began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Epoch(u64);

/// The aggregates used since the last rotation, and in the generation before. If an aggregate is in both, `young` is right.
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

    /// Caches a head, unless a collection was replaced since this epoch or a later version is cached.
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
