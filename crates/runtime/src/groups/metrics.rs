//! Counters of groups in this process.

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::host::{Host, locked};

/// Counters of a group with a guard since the process started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupMetrics {
    /// The tenant.
    pub tenant: String,
    /// The group.
    pub group: String,
    /// The number of messages that the guard passed as duplicates.
    pub duplicates: u64,
}

impl Host {
    /// Returns the counters of each group with a guard that this process has owned.
    pub fn group_metrics(&self) -> Vec<GroupMetrics> {
        self.0.shared.duplicates.counted()
    }
}

/// The duplicates that guards passed, by tenant and group.
#[derive(Default)]
pub(crate) struct Duplicates(Mutex<BTreeMap<(String, String), u64>>);

impl Duplicates {
    /// Counts duplicates that were stored as passed. A group without duplicates is listed with 0.
    pub fn passed(&self, tenant: &str, group: &str, count: u64) {
        *locked(&self.0).entry((tenant.to_owned(), group.to_owned())).or_default() += count;
    }

    fn counted(&self) -> Vec<GroupMetrics> {
        let of = |((tenant, group), duplicates): (&(String, String), &u64)| GroupMetrics {
            tenant: tenant.clone(),
            group: group.clone(),
            duplicates: *duplicates,
        };
        locked(&self.0).iter().map(of).collect()
    }
}
