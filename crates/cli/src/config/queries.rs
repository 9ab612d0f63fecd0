//! What queries over HTTP may ask for.

use annals::QueryGuard;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueriesSection {
    /// Filter documents of MongoDB (RAW). `--dev` allows them, too; those that run code are never allowed.
    pub allow_raw: bool,
    /// Operators that no index serves. `--dev` allows them, too.
    pub allow_expensive: bool,
    /// Pages and counts of everything. `--dev` allows them, too.
    pub allow_everything: bool,
    pub depth_max: usize,
    pub nodes_max: usize,
    pub values_max: usize,
    pub list_max: u64,
    pub page_max: u64,
    pub reach_max: u64,
}

impl Default for QueriesSection {
    fn default() -> Self {
        let usual = QueryGuard::default();
        Self {
            allow_raw: usual.raw,
            allow_expensive: usual.expensive,
            allow_everything: usual.everything,
            depth_max: usual.depth_max,
            nodes_max: usual.nodes_max,
            values_max: usual.values_max,
            list_max: usual.list_max,
            page_max: usual.page_max,
            reach_max: usual.reach_max,
        }
    }
}

impl QueriesSection {
    /// The guard of a server; `dev` is whether it is for development.
    pub fn guard(&self, dev: bool) -> QueryGuard {
        let mut guard = if dev { QueryGuard::open() } else { QueryGuard::default() };
        guard.raw |= self.allow_raw;
        guard.expensive |= self.allow_expensive;
        guard.everything |= self.allow_everything;
        guard.depth_max = self.depth_max;
        guard.nodes_max = self.nodes_max;
        guard.values_max = self.values_max;
        guard.list_max = self.list_max;
        guard.page_max = self.page_max;
        guard.reach_max = self.reach_max;
        guard
    }
}
