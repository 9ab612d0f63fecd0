//! What a process does to the disk, and what goes wrong with it.

use std::collections::BTreeMap;
use std::io;

use super::tree::{Fate, FileId, NameFate, Tree};

/// What goes wrong with an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It fails with an error. A write may have written its first bytes; a sync may have written any part, and the rest stays
    /// readable but will never be written.
    Error,
    /// The process ends in the middle of it: this and all later operations fail.
    End,
    /// If it is a sync, or else the next sync, it does not return before it is released or the process ends.
    Hold,
}

pub struct State {
    pub tree: Tree,
    random: fastrand::Rng,
    faults: BTreeMap<u64, Fault>,
    pub operations: u64,
    pub room: Option<u64>,
    pub locked: bool,
    pub holding: bool,
    pub fired: Vec<String>,
    ended: bool,
}

fn failed() -> io::Error {
    io::Error::other("the disk failed, as planned")
}

fn ended() -> io::Error {
    io::Error::other("the process has ended")
}

impl State {
    pub fn new(seed: u64) -> Self {
        Self::with(Tree::default(), fastrand::Rng::with_seed(seed))
    }

    fn with(tree: Tree, random: fastrand::Rng) -> Self {
        Self {
            tree,
            random,
            faults: BTreeMap::new(),
            operations: 0,
            room: None,
            locked: false,
            holding: false,
            fired: Vec::new(),
            ended: false,
        }
    }

    pub fn plan(&mut self, operation: u64, fault: Fault) {
        self.faults.insert(self.operations + operation, fault);
    }

    pub fn alive(&self) -> io::Result<()> {
        if self.ended { Err(ended()) } else { Ok(()) }
    }

    pub fn killed(&mut self) -> Self {
        self.ended = true;
        Self::with(self.tree.clone(), self.random.fork())
    }

    pub fn without_power(&mut self) -> Self {
        self.ended = true;
        // Each power loss has a temper of its own: from losing nearly everything to keeping nearly everything.
        let keep = [0, 20, 50, 80, 100][self.random.usize(0..5)];
        let keep_names = [0, 50, 100][self.random.usize(0..3)];
        let mut fates = self.random.fork();
        let mut names = self.random.fork();
        let tree =
            self.tree.without_power(|| any_fate(&mut fates, keep), || names.u8(0..100) < keep_names, &mut self.random);
        Self::with(tree, self.random.fork())
    }

    /// Counts an operation, and says whether it is to fail.
    fn begin(&mut self, what: &str) -> io::Result<bool> {
        self.alive()?;
        let number = self.operations;
        self.operations += 1;
        let Some(fault) = self.faults.remove(&number) else { return Ok(false) };
        match fault {
            Fault::Error => {
                self.fired.push(format!("operation {number}, {what}, failed"));
                Ok(true)
            }
            Fault::End => {
                self.fired.push(format!("the process ended at operation {number}, {what}"));
                self.ended = true;
                Ok(true)
            }
            Fault::Hold => {
                // Only a sync can be held; it looks for this before it begins.
                self.faults.entry(number + 1).or_insert(Fault::Hold);
                Ok(false)
            }
        }
    }

    pub fn hold_if_planned(&mut self, what: &str) -> io::Result<()> {
        self.alive()?;
        if self.faults.get(&self.operations) == Some(&Fault::Hold) {
            self.faults.remove(&self.operations);
            self.fired.push(format!("operation {}, {what}, was held", self.operations));
            self.holding = true;
        }
        Ok(())
    }

    pub fn release(&mut self) {
        self.holding = false;
        self.faults.retain(|_, fault| *fault != Fault::Hold);
    }

    /// The error of an operation that was chosen to fail.
    fn error(&self) -> io::Error {
        if self.ended { ended() } else { failed() }
    }

    pub fn create(&mut self, path: &str) -> io::Result<FileId> {
        if self.begin(&format!("creation of {path}"))? {
            return Err(self.error());
        }
        Ok(self.tree.create(path))
    }

    pub fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.alive()?;
        let id = self.tree.find(from).ok_or(io::ErrorKind::NotFound)?;
        let fails = self.begin(&format!("renaming of {from}"))?;
        // Whether a call that failed or never returned has done its work is anybody's guess.
        if !fails || self.random.bool() {
            self.tree.rename(from, to, id);
        }
        if fails { Err(self.error()) } else { Ok(()) }
    }

    pub fn remove(&mut self, path: &str) -> io::Result<()> {
        self.alive()?;
        self.tree.find(path).ok_or(io::ErrorKind::NotFound)?;
        let fails = self.begin(&format!("removal of {path}"))?;
        if !fails || self.random.bool() {
            self.tree.remove(path);
        }
        if fails { Err(self.error()) } else { Ok(()) }
    }

    pub fn write(&mut self, id: FileId, bytes: &[u8], offset: u64) -> io::Result<()> {
        let fails = self.begin(&format!("write of {} bytes at {offset}", bytes.len()))?;
        if fails {
            let written = self.random.usize(0..=bytes.len());
            self.tree.write(id, offset, &bytes[..written]);
            return Err(self.error());
        }
        let growth = (offset + bytes.len() as u64).saturating_sub(self.tree.length(id));
        let free = self.room.map_or(u64::MAX, |room| room.saturating_sub(self.tree.used()));
        if growth > free {
            let fits = bytes.len() as u64 - (growth - free).min(bytes.len() as u64);
            self.tree.write(id, offset, &bytes[..fits as usize]);
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.tree.write(id, offset, bytes);
        Ok(())
    }

    pub fn truncate(&mut self, id: FileId, length: u64) -> io::Result<()> {
        if self.begin(&format!("truncation to {length}"))? {
            return Err(self.error());
        }
        self.tree.truncate(id, length);
        Ok(())
    }

    pub fn sync(&mut self, id: FileId) -> io::Result<()> {
        if !self.begin("sync of a file")? {
            self.tree.sync(id);
            return Ok(());
        }
        // A process that ended during a sync loses nothing that it had written; power loss is asked for on its own.
        if !self.ended && self.random.u8(0..4) > 0 {
            let keep = [0, 0, 50, 100][self.random.usize(0..4)];
            let mut fates = self.random.fork();
            self.tree.sync_in_part(id, || any_fate(&mut fates, keep), &mut self.random);
        }
        Err(self.error())
    }

    pub fn sync_dir(&mut self, dir: &str) -> io::Result<()> {
        if !self.begin(&format!("sync of folder {dir:?}"))? {
            self.tree.sync_dir(dir);
            return Ok(());
        }
        if !self.ended {
            let mut fates = self.random.fork();
            self.tree.sync_dir_in_part(dir, || match fates.u8(0..3) {
                0 => NameFate::Synced,
                1 => NameFate::Unsynced,
                _ => NameFate::Forgotten,
            });
        }
        Err(self.error())
    }
}

/// What becomes of a change, kept whole with odds of `keep` percent.
fn any_fate(random: &mut fastrand::Rng, keep: u8) -> Fate {
    if random.u8(0..100) < keep {
        return Fate::Kept;
    }
    match random.u8(0..6) {
        0 | 1 => Fate::Gone,
        2 => Fate::Torn(512),
        3 => Fate::Torn([8, 64, 4096][random.usize(0..3)]),
        4 => Fate::Hole,
        _ => Fate::Cut,
    }
}
