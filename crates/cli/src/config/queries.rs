//! What queries over HTTP may ask for.

use annals::QueryGuard;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueriesSection {
    /// Filter documents of MongoDB (RAW). `--dev` allows them, too; those that run code are never allowed.
    pub allow_raw: bool,
}

impl QueriesSection {
    /// The guard of a server; `dev` is whether it is for development.
    pub fn guard(&self, dev: bool) -> QueryGuard {
        let mut guard = if dev { QueryGuard::open() } else { QueryGuard::default() };
        guard.raw |= self.allow_raw;
        guard
    }
}
