//! `tenant.json`: who a tenant's store is, and what of it must be there.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use annals_core::{DEFAULT_SCOPE, Identity, Uuid};
use serde::{Deserialize, Serialize};

use super::{ENGINE_DIR, TENANT_FILE, make_durable_again};
use crate::disk::Disk;
use crate::terms::TermKey;
use crate::whole::seal;

/// What `tenant.json` says.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct TenantFile {
    pub(crate) store_id: Uuid,
    pub(crate) incarnation: u32,
    /// Where the incarnation starts in the default scope.
    pub(crate) incarnation_start: u64,
    /// Where each incarnation but the first starts, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) forks: Vec<Fork>,
    /// The key of hashes and digests, as a UUID only for its spelling.
    pub(crate) key: Uuid,
    /// The folders in which the first file was made, durably: scopes, and the engine's. One that has none later has lost it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) begun: BTreeSet<String>,
}

/// Where an incarnation starts.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Fork {
    incarnation: u32,
    /// By scope; 0 in one that is not named.
    starts: BTreeMap<String, u64>,
}

impl TenantFile {
    pub(crate) fn term_key(&self) -> TermKey {
        TermKey(self.key.into_bytes())
    }

    /// Whether the first file of this folder was made.
    pub(crate) fn has_begun(&self, folder: &str) -> bool {
        self.begun.contains(folder)
    }

    /// The scopes whose first segment was made.
    pub(crate) fn begun_scopes(&self) -> impl Iterator<Item = &String> {
        self.begun.iter().filter(|folder| *folder != ENGINE_DIR)
    }

    /// As it stands in a backup: what a restored store begins with is noted when it is opened.
    pub(super) fn backed_up(&self) -> Self {
        Self { begun: BTreeSet::new(), ..self.clone() }
    }

    /// The next incarnation, which starts at these numbers of its scopes. What it has begun with is noted when it is opened.
    pub(crate) fn reborn(&self, starts: BTreeMap<String, u64>) -> Self {
        let mut next = self.clone();
        next.begun.clear();
        next.incarnation += 1;
        next.incarnation_start = starts.get(DEFAULT_SCOPE).copied().unwrap_or(0);
        next.forks.push(Fork { incarnation: next.incarnation, starts });
        next
    }

    /// The same tenant, in which the first files of these folders are there.
    pub(crate) fn with_begun(mut self, folders: impl IntoIterator<Item = String>) -> Self {
        self.begun.extend(folders);
        self
    }

    /// The identity of a scope for a reader who comes from incarnation `seen`: all that started since took something back.
    pub(super) fn identity(&self, scope: &str, seen: u32) -> Identity {
        let since = if seen < self.incarnation { seen } else { self.incarnation.saturating_sub(1) };
        let later = self.forks.iter().filter(|fork| fork.incarnation > since);
        let starts = later.map(|fork| fork.starts.get(scope).copied().unwrap_or(0));
        // Without a fork on record the default scope's start still says where the last incarnation began.
        let last = if scope == DEFAULT_SCOPE { self.incarnation_start } else { 0 };
        Identity {
            store_id: self.store_id,
            incarnation: self.incarnation,
            incarnation_start: starts.min().unwrap_or(last),
        }
    }
}

/// Writes it anew, durably, with what has begun since.
pub(super) fn note_begun(disk: &dyn Disk, dir: &str, file: &TenantFile) -> io::Result<()> {
    let path = format!("{dir}/{TENANT_FILE}");
    make_durable_again(disk, dir, &path, &seal(file)?)
}
