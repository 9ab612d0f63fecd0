//! Limits of queries over HTTP.

use annals::QueryGuard;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueriesSection {
    /// Allows filter documents of MongoDB (RAW), as does `--dev`. Operators that run code are never allowed.
    pub allow_raw: bool,
    /// Allows operators without index support, and conditions on commits that read all of them.
    pub allow_expensive: bool,
    /// Allows pages and counts of every document.
    pub allow_everything: bool,
    /// The deepest nesting of a condition.
    pub depth_max: usize,
    /// The most parts of a condition.
    pub parts_max: usize,
    /// The most values of one operator.
    pub values_max: usize,
    /// The most documents of a list.
    pub list_max: u64,
    /// The most documents of a page.
    pub page_max: u64,
    /// The deepest page: page number times page size.
    pub reach_max: u64,
    /// The most bytes of documents in one response, or held for sorting.
    pub answer_bytes_max: usize,
}

impl Default for QueriesSection {
    fn default() -> Self {
        let guard = QueryGuard::default();
        Self {
            allow_raw: guard.raw,
            allow_expensive: guard.expensive,
            allow_everything: guard.everything,
            depth_max: guard.depth_max,
            parts_max: guard.nodes_max,
            values_max: guard.values_max,
            list_max: guard.list_max,
            page_max: guard.page_max,
            reach_max: guard.reach_max,
            answer_bytes_max: guard.answer_bytes_max,
        }
    }
}

impl QueriesSection {
    /// Returns the guard of a server. In development (`dev`) only the bytes of a response are limited.
    pub fn guard(&self, dev: bool) -> QueryGuard {
        let mut guard = if dev { QueryGuard::open() } else { QueryGuard::default() };
        guard.answer_bytes_max = self.answer_bytes_max;
        if !dev {
            guard.raw = self.allow_raw;
            guard.expensive = self.allow_expensive;
            guard.everything = self.allow_everything;
            guard.depth_max = self.depth_max;
            guard.nodes_max = self.parts_max;
            guard.values_max = self.values_max;
            guard.list_max = self.list_max;
            guard.page_max = self.page_max;
            guard.reach_max = self.reach_max;
        }
        guard
    }
}
