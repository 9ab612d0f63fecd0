//! The packer: rewrites closed segments in their compact form (`packed.rs`), in the background and at a limited rate.
//!
//! Invariants:
//! - A packed segment gets its name only once all of it is synced, by one rename that replaces the original segment. The name therefore
//!   refers to one complete file of the two at every moment, whatever ends the process.
//! - It has a salt of its own: the index of the original form does not fit it, and is rebuilt if the process ends between the two steps.
//! - Readers switch to it once it and its index exist under synced names. Until then they read the file they have open.
//! - Any failure leaves the segment as it is. It is retried with the next segment that closes, or when the store opens.

use std::collections::HashSet;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use annals_core::StoreError;

use super::core::Core;
use super::names;
use super::repack::{Repacked, repack};
use super::segment::Segment;
use crate::index::Index;
use crate::options::SeededBug;

/// Wakes the packer, and ends it.
#[derive(Default)]
pub(super) struct Signal {
    state: Mutex<State>,
    changed: Condvar,
    /// Held while a segment is packed: only one is packed at a time.
    working: Mutex<()>,
}

#[derive(Default)]
struct State {
    due: bool,
    closing: bool,
}

impl Signal {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports that there may be something to pack.
    pub(super) fn wake(&self) {
        self.state().due = true;
        self.changed.notify_all();
    }

    pub(super) fn close(&self) {
        self.state().closing = true;
        self.changed.notify_all();
    }

    /// Waits until there may be something to pack; returns false when the log closes.
    fn wait(&self) -> bool {
        let mut state = self.state();
        while !state.due && !state.closing {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.due = false;
        !state.closing
    }

    /// Waits for the time that this many bytes take at the given rate; returns false when the log closes.
    pub(super) fn pace(&self, bytes: u64, per_second: u64) -> bool {
        let state = self.state();
        if per_second == u64::MAX || state.closing {
            return !state.closing;
        }
        let pause = Duration::from_secs_f64(bytes as f64 / per_second.max(1) as f64);
        let waited = self.changed.wait_timeout_while(state, pause, |state| !state.closing);
        !waited.unwrap_or_else(PoisonError::into_inner).0.closing
    }
}

/// The outcome for one segment.
enum Outcome {
    Done {
        to: u64,
    },
    /// The packed form would not be sufficiently smaller.
    NotWorthIt,
    Closing,
}

/// The result of packing a log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Packed {
    /// The number of segments that were packed.
    pub(crate) segments: u64,
    /// The size of their frames before, in bytes.
    pub(crate) from: u64,
    /// Their size now, in bytes.
    pub(crate) to: u64,
    /// The number of closed segments left as they are, because little would be saved.
    pub(crate) left: u64,
}

/// The thread's side.
pub(super) struct Packer {
    core: Arc<Core>,
    /// The numbers of segments that were found not worth packing.
    left: HashSet<u64>,
}

impl Packer {
    pub(super) fn new(core: Arc<Core>) -> Self {
        // Segments that an earlier process left unpacked.
        core.packing.wake();
        Self { core, left: HashSet::new() }
    }

    pub(super) fn run(mut self) {
        while self.core.packing.wait() {
            let packing = self.core.options.packing;
            for segment in candidates(&self.core, packing.behind) {
                if self.left.contains(&segment.at.number) {
                    continue;
                }
                match pack(&self.core, &segment, packing.bytes_per_second) {
                    Ok(Outcome::Closing) => return,
                    Ok(Outcome::NotWorthIt) => drop(self.left.insert(segment.at.number)),
                    Ok(Outcome::Done { .. }) => {}
                    Err(error) => {
                        tracing::warn!(segment = segment.at.name, %error, "the segment could not be packed and stays as it is");
                        break;
                    }
                }
            }
        }
    }
}

/// Returns the closed, unpacked segments that have an index file, oldest first, without the newest `behind` closed ones.
fn candidates(core: &Core, behind: usize) -> Vec<Arc<Segment>> {
    let view = core.view();
    // The last segment is the active one.
    let closed = view.segments.len().saturating_sub(1);
    let old = view.segments[..closed.saturating_sub(behind)].iter();
    old.filter(|segment| segment.at.packed.is_none() && segment.memory().is_none()).cloned().collect()
}

/// Packs every closed segment that is worth packing, without pausing.
pub(super) fn pack_all(core: &Core, progress: &mut dyn FnMut(u64, u64)) -> Result<Packed, StoreError> {
    let segments = candidates(core, 0);
    let end = |segment: &Segment| if let Index::File(index) = &segment.index { index.file().extent().end } else { 0 };
    let total = segments.iter().map(|segment| end(segment)).sum();
    let (mut done, mut report) = (0, Packed::default());
    for segment in segments {
        let from = end(&segment);
        let failed = |error: io::Error| {
            if let Some(damage) = error.get_ref().and_then(|inner| inner.downcast_ref::<StoreError>()) {
                return damage.clone();
            }
            let why = format!("{} could not be packed: {error}", segment.at.name);
            match error.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StoreError::DiskFull(why),
                _ => StoreError::Io(why),
            }
        };
        match pack(core, &segment, u64::MAX).map_err(failed)? {
            Outcome::Done { to } => {
                report.segments += 1;
                report.from += from;
                report.to += to;
            }
            Outcome::NotWorthIt => report.left += 1,
            Outcome::Closing => return Err(StoreError::Closed),
        }
        done += from;
        progress(done, total);
    }
    Ok(report)
}

fn pack(core: &Core, segment: &Arc<Segment>, bytes_per_second: u64) -> io::Result<Outcome> {
    let _one = core.packing.working.lock().unwrap_or_else(PoisonError::into_inner);
    let current = core.view().segments.iter().any(|now| Arc::ptr_eq(now, segment));
    let (true, Index::File(index)) = (current, &segment.index) else { return Ok(Outcome::NotWorthIt) };
    let unfinished = names::packing(&core.place.dir, segment.at.number);
    let mut pace = |bytes| core.packing.pace(bytes, bytes_per_second);
    let written = repack(core, segment, index, &unfinished, &mut pace);
    let repacked = match written {
        Ok(Repacked::Whole(repacked)) => repacked,
        other => {
            // Whatever exists is not a segment, and the space it takes is needed. It may not exist at all.
            let _ = core.place.disk.remove(&unfinished);
            return match other {
                Ok(Repacked::Closing) => Ok(Outcome::Closing),
                Ok(_) => Ok(Outcome::NotWorthIt),
                Err(error) => Err(error),
            };
        }
    };
    let to = repacked.at.file.length()?;
    let disk = &core.place.disk;
    if core.options.has(SeededBug::RemoveBeforeRenaming) {
        disk.remove(&segment.at.name)?;
        disk.sync_dir(&core.place.dir)?;
    }
    disk.rename(&unfinished, &segment.at.name)?;
    if core.options.has(SeededBug::RenamePackedBeforeSync) {
        repacked.at.file.sync()?;
    }
    disk.sync_dir(&core.place.dir)?;
    let packed = Arc::new(repacked.with_index(core, segment.first)?);
    core.change_view(|segments| {
        segments.iter_mut().filter(|now| Arc::ptr_eq(now, segment)).for_each(|now| *now = packed.clone());
    });
    Ok(Outcome::Done { to })
}
