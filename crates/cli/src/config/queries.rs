//! What queries over HTTP may ask for.

use annals::QueryGuard;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueriesSection {
    /// Filter documents of MongoDB (RAW). `--dev` allows them, too; those that run code are never allowed.
    pub allow_raw: bool,
    /// Operators that no index serves, and conditions on commits that do not say where to look.
    pub allow_expensive: bool,
    /// Pages and counts of every document.
    pub allow_everything: bool,
    /// Most conditions inside one another.
    pub depth_max: usize,
    /// Most parts of a condition.
    pub parts_max: usize,
    /// Most values of one operator.
    pub values_max: usize,
    /// Most documents of a list.
    pub list_max: u64,
    /// Most documents of a page.
    pub page_max: u64,
    /// How far pages reach: page number times documents of a page.
    pub reach_max: u64,
    /// Most bytes of documents that are answered at once, or held to be sorted.
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
    /// The guard of a server; `dev` is whether it is for development, where only the bytes of an answer have a limit.
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
