//! `tenant.json`: who a tenant's store is, and what of it must be there.

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

/// What `tenant.json` says.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
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
    /// The generation of the engine's map, as `engine/generation.rs` says. None where it was never noted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) map_generation: Option<u64>,
}

/// Where an incarnation starts.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
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

    /// What the engine's map of this tenant must hold.
    pub(crate) fn map_marks(&self) -> Marks {
        Marks { owner: Some(self.term_key().owner(ENGINE_DIR)), generation: self.map_generation }
    }

    /// As it stands in a backup: what a restored store begins with is noted when it is opened.
    pub(super) fn backed_up(&self) -> Self {
        Self { begun: BTreeSet::new(), map_generation: None, ..self.clone() }
    }

    /// The next incarnation, which starts at these numbers of its scopes. What it has begun with is noted when it is opened.
    pub(crate) fn reborn(&self, starts: BTreeMap<String, u64>) -> Self {
        let mut next = self.clone();
        next.begun.clear();
        next.map_generation = None;
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

/// `tenant.json` of an open tenant. The store and the engine change it, so it is kept in one place.
pub(crate) struct TenantNotes {
    disk: Arc<dyn Disk>,
    dir: String,
    file: Mutex<TenantFile>,
}

impl TenantNotes {
    /// The file in this folder, as it stands there.
    pub(crate) fn new(disk: &Arc<dyn Disk>, dir: &str, file: &TenantFile) -> Arc<Self> {
        Arc::new(Self { disk: disk.clone(), dir: dir.to_owned(), file: Mutex::new(file.clone()) })
    }

    /// What is known of the tenant's map, for the engine that opens it.
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

    /// Notes, durably, the folders in which a first file was made. Where the disk is full, the next opening does it.
    pub(super) fn note_begun(&self, folders: impl Iterator<Item = String>) -> io::Result<()> {
        self.change(make_durable_again, |file| file.begun.extend(folders))
    }

    /// The file as it is now.
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

/// Without a note nothing is answered, so a full disk is an error here.
fn write(disk: &dyn Disk, dir: &str, path: &str, bytes: &[u8]) -> io::Result<()> {
    write_whole(disk, dir, path, bytes).map(|_| ())
}
