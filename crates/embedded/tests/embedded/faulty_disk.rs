//! A disk in memory that fails, tears, reorders and forgets, as the documentation of [`Disk`] allows.
//!
//! A value of it is the disk as one process sees it. When that process dies, [`FaultyDisk::after_kill`] is what the next process finds:
//! everything written, synced or not, because the page cache survives. [`FaultyDisk::after_power_loss`] is what a machine finds
//! that was switched off: what was synced, and any part of the rest. Either way the dead process can do nothing any more, however
//! many of its threads still try.
//!
//! A failed sync may leave behind bytes that reads still show and that no later sync will write: the page is marked clean.

mod state;
mod tree;

#[cfg(test)]
mod tests;

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use annals_embedded::disk::{Disk, DiskFile, Open};

pub use state::Fault;
use state::State;
use tree::FileId;

pub struct FaultyDisk(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// Signalled when a held sync may end.
    released: Condvar,
}

/// An open file of a [`FaultyDisk`].
struct FaultyFile {
    disk: Arc<Shared>,
    id: FileId,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FaultyDisk {
    /// An empty disk without faults. The same seed and calls give the same disk.
    pub fn new(seed: u64) -> Arc<Self> {
        Self::from_state(State::new(seed))
    }

    fn from_state(state: State) -> Arc<Self> {
        Arc::new(Self(Arc::new(Shared { state: Mutex::new(state), released: Condvar::new() })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state()
    }

    /// Lets the operation of this number fail, counted from now and from 0, among those that change something.
    pub fn plan(&self, operation: u64, fault: Fault) {
        self.state().plan(operation, fault);
    }

    /// Lets the disk hold this many bytes; none is no limit.
    pub fn set_room(&self, bytes: Option<u64>) {
        self.state().room = bytes;
    }

    /// The bytes of all files.
    pub fn used(&self) -> u64 {
        self.state().tree.used()
    }

    /// What went wrong so far, for messages.
    pub fn fired(&self) -> Vec<String> {
        self.state().fired.clone()
    }

    /// Whether a sync is being held.
    pub fn holds(&self) -> bool {
        self.state().holding
    }

    /// Lets a held sync go on, and holds none that was planned.
    pub fn release(&self) {
        self.state().release();
        self.0.released.notify_all();
    }

    /// Ends the process that uses this disk, and gives what the next process on the same machine finds.
    pub fn after_kill(&self) -> Arc<Self> {
        self.end(State::killed)
    }

    /// Ends everything, and gives what the machine finds when it has power again.
    pub fn after_power_loss(&self) -> Arc<Self> {
        self.end(State::without_power)
    }

    fn end(&self, next: impl FnOnce(&mut State) -> State) -> Arc<Self> {
        let mut state = self.state();
        let next = next(&mut state);
        state.holding = false;
        self.0.released.notify_all();
        Self::from_state(next)
    }

    /// The bytes of every file as a process sees them, by path.
    pub fn files(&self) -> Vec<(String, Vec<u8>)> {
        self.state().tree.files()
    }

    /// Changes what a file holds, seen and synced, behind everybody's back.
    pub fn damage(&self, path: &str, change: impl FnOnce(&mut Vec<u8>)) {
        self.state().tree.damage(path, change);
    }
}

impl Disk for FaultyDisk {
    fn create_dir(&self, _dir: &str) -> io::Result<()> {
        self.state().alive()
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let state = self.state();
        state.alive()?;
        Ok(state.tree.list(dir))
    }

    fn open(&self, path: &str, open: Open) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.state();
        state.alive()?;
        let id = match (state.tree.find(path), open) {
            (Some(_), Open::Create) => return Err(io::ErrorKind::AlreadyExists.into()),
            (Some(id), _) => id,
            (None, Open::Create) => state.create(path)?,
            (None, _) => return Err(io::ErrorKind::NotFound.into()),
        };
        Ok(Arc::new(FaultyFile { disk: self.0.clone(), id }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.state().rename(from, to)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.state().remove(path)
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        let state = self.wait_while_held(&format!("sync of folder {dir:?}"))?;
        { state }.sync_dir(dir)
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let state = self.state();
        state.alive()?;
        Ok(state.room.map_or(u64::MAX, |room| room.saturating_sub(state.tree.used())))
    }

    fn lock(&self) -> io::Result<Box<dyn Send + Sync>> {
        let mut state = self.state();
        state.alive()?;
        if std::mem::replace(&mut state.locked, true) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(Unlock(self.0.clone())))
    }
}

impl FaultyDisk {
    fn wait_while_held(&self, what: &str) -> io::Result<MutexGuard<'_, State>> {
        wait_while_held(&self.0, what)
    }
}

/// Waits where a sync is planned to be held.
fn wait_while_held<'a>(shared: &'a Shared, what: &str) -> io::Result<MutexGuard<'a, State>> {
    let mut state = shared.state();
    state.hold_if_planned(what)?;
    let state = shared.released.wait_while(state, |state| state.holding).unwrap_or_else(PoisonError::into_inner);
    state.alive()?;
    Ok(state)
}

struct Unlock(Arc<Shared>);

impl Drop for Unlock {
    fn drop(&mut self) {
        self.0.state().locked = false;
    }
}

impl DiskFile for FaultyFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let state = self.disk.state();
        state.alive()?;
        Ok(state.tree.read(self.id, buffer, offset))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.disk.state().write(self.id, bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        let state = wait_while_held(&self.disk, "sync of a file")?;
        { state }.sync(self.id)
    }

    fn length(&self) -> io::Result<u64> {
        let state = self.disk.state();
        state.alive()?;
        Ok(state.tree.length(self.id))
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.disk.state().truncate(self.id, length)
    }
}
