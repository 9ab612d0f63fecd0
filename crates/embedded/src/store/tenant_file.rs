//! `tenant.json`: the identity of a tenant's store, and which of its parts must exist.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use annals_core::{DEFAULT_SCOPE, Identity, Uuid};
use serde::{Deserialize, Serialize};

use super::{ENGINE_DIR, TENANT_FILE, make_durable_again};
use crate::disk::Disk;
use crate::engine::{Known, Marks};
use crate::terms::TermKey;
use crate::whole::{seal, write_whole};

/// The content of `tenant.json`.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct TenantFile {
    pub(crate) store_id: Uuid,
    pub(crate) incarnation: u32,
    /// The first sequence number of the incarnation in the default scope.
    pub(crate) incarnation_start: u64,
    /// Where each incarnation after the first begins, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) forks: Vec<Fork>,
    /// The secret key of hashes and digests. It is stored in the form of a UUID.
    pub(crate) key: Uuid,
    /// The folders whose first file was durably created: those of scopes, and the engine's. If such a file is missing later, that is a
    /// loss.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) begun: BTreeSet<String>,
    /// The generation of the engine's map (see `engine/generation.rs`), or `None` if it was never recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) map_generation: Option<u64>,
}

/// Where an incarnation begins.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Fork {
    incarnation: u32,
    /// The first sequence number by scope; 0 for a scope that is not named.
    starts: BTreeMap<String, u64>,
}

impl TenantFile {
    pub(crate) fn term_key(&self) -> TermKey {
        TermKey(self.key.into_bytes())
    }

    /// Returns whether the first file of this folder was created.
    pub(crate) fn has_begun(&self, folder: &str) -> bool {
        self.begun.contains(folder)
    }

    /// Returns the scopes whose first segment was created.
    pub(crate) fn begun_scopes(&self) -> impl Iterator<Item = &String> {
        self.begun.iter().filter(|folder| *folder != ENGINE_DIR)
    }

    /// Returns the marks that this tenant's map must carry.
    pub(crate) fn map_marks(&self) -> Marks {
        Marks { owner: Some(self.term_key().owner(ENGINE_DIR)), generation: self.map_generation }
    }

    /// Returns the file as a backup stores it. What a restored store begins with is recorded when it is opened.
    pub(super) fn backed_up(&self) -> Self {
        Self { begun: BTreeSet::new(), map_generation: None, ..self.clone() }
    }

    /// Returns the file of the next incarnation, which begins at these sequence numbers by scope. What it has begun with is recorded when
    /// it is opened.
    pub(crate) fn reborn(&self, starts: BTreeMap<String, u64>) -> Self {
        let mut next = self.clone();
        next.begun.clear();
        next.map_generation = None;
        next.incarnation += 1;
        next.incarnation_start = starts.get(DEFAULT_SCOPE).copied().unwrap_or(0);
        next.forks.push(Fork { incarnation: next.incarnation, starts });
        next
    }

    /// Returns the same file with these folders marked as begun.
    pub(crate) fn with_begun(mut self, folders: impl IntoIterator<Item = String>) -> Self {
        self.begun.extend(folders);
        self
    }

    /// Returns the identity of a scope for a reader that last saw incarnation `seen`. The start covers every incarnation that began
    /// since.
    pub(super) fn identity(&self, scope: &str, seen: u32) -> Identity {
        let since = if seen < self.incarnation { seen } else { self.incarnation.saturating_sub(1) };
        let later = self.forks.iter().filter(|fork| fork.incarnation > since);
        let starts = later.map(|fork| fork.starts.get(scope).copied().unwrap_or(0));
        // Without recorded forks, the start in the default scope still says where the last incarnation began.
        let last = if scope == DEFAULT_SCOPE { self.incarnation_start } else { 0 };
        Identity {
            store_id: self.store_id,
            incarnation: self.incarnation,
            incarnation_start: starts.min().unwrap_or(last),
        }
    }
}

/// `tenant.json` of an open tenant. The store and the engine both change it, so a single value owns it.
pub(crate) struct TenantNotes {
    disk: Arc<dyn Disk>,
    dir: String,
    file: Mutex<TenantFile>,
}

impl TenantNotes {
    /// Wraps the current content of the file in this folder.
    pub(crate) fn new(disk: &Arc<dyn Disk>, dir: &str, file: &TenantFile) -> Arc<Self> {
        Arc::new(Self { disk: disk.clone(), dir: dir.to_owned(), file: Mutex::new(file.clone()) })
    }

    /// Returns what the engine needs to know about the tenant's map in order to open it.
    pub(crate) fn of_map(self: &Arc<Self>) -> Known {
        let file = self.file();
        let notes = self.clone();
        let note = move |generation| {
            notes.change(write, |file| {
                file.begun.insert(ENGINE_DIR.to_owned());
                file.map_generation = Some(generation);
            })
        };
        Known { made: file.has_begun(ENGINE_DIR), marks: file.map_marks(), note: Some(Box::new(note)) }
    }

    /// Durably records the folders whose first file was created. If the disk is full, the next opening does it.
    pub(super) fn note_begun(&self, folders: impl Iterator<Item = String>) -> io::Result<()> {
        self.change(make_durable_again, |file| file.begun.extend(folders))
    }

    /// Returns the current content of the file.
    pub(super) fn file(&self) -> TenantFile {
        self.file.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn change(
        &self,
        write: impl FnOnce(&dyn Disk, &str, &str, &[u8]) -> io::Result<()>,
        change: impl FnOnce(&mut TenantFile),
    ) -> io::Result<()> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = file.clone();
        change(&mut next);
        if next == *file {
            return Ok(());
        }
        let path = format!("{}/{TENANT_FILE}", self.dir);
        write(&*self.disk, &self.dir, &path, &seal(&next)?)?;
        *file = next;
        Ok(())
    }
}

/// No write is answered until the generation is recorded, so a full disk is an error here.
fn write(disk: &dyn Disk, dir: &str, path: &str, bytes: &[u8]) -> io::Result<()> {
    write_whole(disk, dir, path, bytes).map(|_| ())
}
