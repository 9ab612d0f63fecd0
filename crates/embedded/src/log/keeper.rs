//! The keeper: the thread that does beside the log writer what would make it pause. It zero-fills the next segment and writes the
//! index files of closed ones.
//!
//! Zeros written ahead spare the file system's journal at each sync: 1.7 times the syncs per second at 4 KiB, 8 times at 1 MiB, as
//! measured on ext4 (docs/decisions/0001-segmented-log.md).

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};

use annals_core::SequenceNumber;

use super::Place;
use super::core::Core;
use super::names;
use super::segment::{Segment, SegmentFile};
use crate::Options;
use crate::disk::Open;
use crate::format::{SEGMENT_HEADER, SegmentHeader};
use crate::index::{FileIndex, Index, MemoryIndex, read};
use crate::options::SeededBug;
use crate::whole::{seal, write_whole};

/// Zeros are synced after so many bytes, so that they never pile up in front of the writer's own sync.
const ZERO_STEP: u64 = 2 * 1024 * 1024;
/// Zeros are written so many bytes at once. The page cache keeps what one call wrote as one folio where it can, and each later write
/// and sync looks at every block of the folios that it touches: in folios of 2 MiB a small commit took a third longer, and twice the CPU.
const ZERO_WRITE: u64 = 64 * 1024;

/// A segment that is ready to be written to: named, zero-filled and synced.
pub(super) struct Ready {
    pub(super) at: SegmentFile,
    pub(super) capacity: u64,
}

enum State {
    /// Not asked for. The writer has gone on from this place in the current segment, if it was heard of.
    Idle(Option<u64>),
    Preparing(Pace),
    Ready(Ready),
    Failed(String),
    /// Nobody will take it.
    Stopped,
}

/// How far the zeros of the next segment may reach.
///
/// Written at full speed they would double the time of each sync of the writer meanwhile (90 against 220 µs a commit, as measured), so they
/// keep pace with it: all are there when half of what was free is used.
struct Pace {
    begun: u64,
    allowed: u64,
    /// What the keeper waits for.
    wanted: u64,
}

impl Pace {
    /// No longer than somebody waits.
    const AT_ONCE: Self = Self { begun: 0, allowed: u64::MAX, wanted: 0 };

    /// How far zeros of a segment of `next_capacity` may reach when of the current one of `capacity` what stands from `begun` to `end` is used.
    fn share(begun: u64, end: u64, capacity: u64, next_capacity: u64) -> u64 {
        let used = u128::from(end.saturating_sub(begun)) * 2 * u128::from(next_capacity);
        u64::try_from(used / u128::from(capacity.saturating_sub(begun).max(1))).unwrap_or(u64::MAX)
    }
}

enum Job {
    /// Make a segment of this capacity ready, from the one given if it is too small.
    Prepare(Option<Ready>, u64),
    /// Write the index file of a closed segment.
    Index(Arc<Segment>),
    /// Note how far the log reaches, and end.
    Stop(Option<Checkpoint>),
}

/// How far a log reached when it was closed in an orderly way. Less than that found later is damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Checkpoint {
    pub(crate) segment: u64,
    pub(crate) end: u64,
    pub(crate) head: SequenceNumber,
}

/// Where the writer asks the keeper for what it needs next.
pub(super) struct Preparation {
    state: Mutex<State>,
    changed: Condvar,
    jobs: mpsc::Sender<Job>,
}

impl Preparation {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, job: Job) {
        // The keeper only ends after Stop; one that panicked leaves the state as it is and the writer reports it.
        let _ = self.jobs.send(job);
    }

    /// Tells that the current segment is used up to `end` of its `capacity`, so that the next one, of `next_capacity`, is made at the pace
    /// at which it will be needed. One that could not be made is tried again by [`take`](Self::take), and not every batch until then.
    pub(super) fn used(&self, end: u64, capacity: u64, next_capacity: u64) {
        let mut state = self.state();
        match &mut *state {
            State::Idle(begun) => {
                let begun = *begun.get_or_insert(end);
                let allowed = Pace::share(begun, end, capacity, next_capacity);
                if allowed >= ZERO_STEP.min(next_capacity) {
                    *state = State::Preparing(Pace { begun, allowed, wanted: 0 });
                    self.send(Job::Prepare(None, next_capacity));
                }
            }
            State::Preparing(pace) => {
                let share = Pace::share(pace.begun, end, capacity, next_capacity);
                if pace.allowed < pace.wanted && pace.wanted <= share {
                    self.changed.notify_all();
                }
                pace.allowed = pace.allowed.max(share);
            }
            State::Ready(_) | State::Failed(_) | State::Stopped => {}
        }
    }

    /// Takes the next segment, with room for `least` bytes. Waits for it if need be, and tries once more after a failure.
    pub(super) fn take(&self, least: u64, capacity: u64) -> Result<Ready, String> {
        let mut state = self.state();
        let mut asked = false;
        loop {
            *state = match std::mem::replace(&mut *state, State::Preparing(Pace::AT_ONCE)) {
                State::Ready(ready) if ready.capacity >= least => {
                    *state = State::Idle(None);
                    return Ok(ready);
                }
                State::Ready(small) => {
                    self.send(Job::Prepare(Some(small), capacity));
                    State::Preparing(Pace::AT_ONCE)
                }
                State::Failed(why) if asked => {
                    *state = State::Failed(why.clone());
                    return Err(why);
                }
                State::Idle(_) | State::Failed(_) => {
                    self.send(Job::Prepare(None, capacity));
                    State::Preparing(Pace::AT_ONCE)
                }
                State::Preparing(_) => {
                    self.changed.notify_all();
                    State::Preparing(Pace::AT_ONCE)
                }
                State::Stopped => {
                    *state = State::Stopped;
                    return Err("the log is closed".to_owned());
                }
            };
            asked = true;
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until zeros may reach `end`.
    ///
    /// # Errors
    /// When nobody will take the segment any more.
    fn keep_pace(&self, end: u64) -> io::Result<()> {
        let mut state = self.state();
        loop {
            match &mut *state {
                State::Preparing(pace) if pace.allowed < end => pace.wanted = end,
                State::Stopped => return Err(io::Error::other("the log is closed")),
                _ => return Ok(()),
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(super) fn index(&self, closed: Arc<Segment>) {
        self.send(Job::Index(closed));
    }

    /// Ends the keeper once it has written the index files that it was asked for. A segment that is on its way is not needed any more.
    pub(super) fn stop(&self, reached: Option<(&Segment, u64, SequenceNumber)>) {
        *self.state() = State::Stopped;
        self.changed.notify_all();
        let checkpoint = reached.map(|(active, end, head)| Checkpoint { segment: active.at.number, end, head });
        self.send(Job::Stop(checkpoint));
    }
}

/// The keeper's side.
pub(super) struct Keeper {
    core: Arc<Core>,
    preparation: Arc<Preparation>,
    jobs: mpsc::Receiver<Job>,
    next_number: u64,
}

impl Keeper {
    /// A keeper whose next segment gets this number.
    pub(super) fn new(core: Arc<Core>, next_number: u64) -> (Self, Arc<Preparation>) {
        let (sender, jobs) = mpsc::channel();
        let preparation =
            Arc::new(Preparation { state: Mutex::new(State::Idle(None)), changed: Condvar::new(), jobs: sender });
        (Self { core, preparation: preparation.clone(), jobs, next_number }, preparation)
    }

    pub(super) fn run(mut self) {
        while let Ok(job) = self.jobs.recv() {
            match job {
                Job::Prepare(small, capacity) => self.prepare(small, capacity),
                Job::Index(closed) => {
                    match write_index(&self.core, &closed) {
                        Ok(()) => self.core.packing.wake(),
                        // The segment stays indexed in memory; the next opening tries again.
                        Err(error) => {
                            tracing::warn!(segment = closed.at.name, %error, "no index file could be written");
                        }
                    }
                }
                Job::Stop(checkpoint) => {
                    let written =
                        checkpoint.map_or(Ok(()), |checkpoint| write_checkpoint(&self.core.place, checkpoint));
                    if let Err(error) = written {
                        tracing::warn!(%error, "no checkpoint could be written");
                    }
                    return;
                }
            }
        }
    }

    fn prepare(&mut self, small: Option<Ready>, capacity: u64) {
        let made = match small {
            Some(small) => {
                // Should it fail, the next try makes this very segment anew: a number left out would be a segment that is missing.
                self.next_number = small.at.number;
                let more = capacity.saturating_sub(small.capacity);
                let room = self.core.floor.leaves_room(&*self.core.place.disk, more);
                room.and_then(|()| grow(small, capacity, &at_once))
            }
            None => {
                let pace = |end| self.preparation.keep_pace(end);
                create_what_fits(&self.core, self.next_number, capacity, &pace)
            }
        };
        let mut state = self.preparation.state();
        if matches!(*state, State::Stopped) {
            return;
        }
        *state = match made {
            Ok(ready) => {
                self.next_number = ready.at.number + 1;
                State::Ready(ready)
            }
            Err(error) => State::Failed(format!("{error}; a new segment needs up to {capacity} bytes")),
        };
        self.preparation.changed.notify_all();
    }
}

/// Makes a segment of this capacity, or of half of it, and so on, while there is no room: the last of a disk is of use too.
fn create_what_fits(core: &Core, number: u64, mut capacity: u64, pace: &Until<'_>) -> io::Result<Ready> {
    let (place, options) = (&core.place, &core.options);
    loop {
        let room = core.floor.leaves_room(&*place.disk, capacity);
        match room.and_then(|()| create(place, options, number, capacity, pace)) {
            Err(error) if error.kind() == io::ErrorKind::StorageFull && capacity / 2 >= options.segment_bytes_first => {
                capacity /= 2;
            }
            made => return made,
        }
    }
}

/// Returns when zeros may reach a place.
type Until<'a> = dyn Fn(u64) -> io::Result<()> + 'a;

/// The pace of zeros that somebody waits for.
pub(super) fn at_once(_end: u64) -> io::Result<()> {
    Ok(())
}

/// Makes a new segment: header and zeros synced under a name that is synced.
pub(super) fn create(
    place: &Place,
    options: &Options,
    number: u64,
    capacity: u64,
    pace: &Until<'_>,
) -> io::Result<Ready> {
    let name = names::segment(&place.dir, number);
    // One that an earlier failure left behind has never held a commit.
    match place.disk.remove(&name) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let made = fill(place, options, number, capacity, &name, pace);
    if made.is_err() {
        // What is there is no segment yet; the room it takes is needed.
        let _ = place.disk.remove(&name);
    }
    made
}

fn fill(
    place: &Place,
    options: &Options,
    number: u64,
    capacity: u64,
    name: &str,
    pace: &Until<'_>,
) -> io::Result<Ready> {
    let salt = options.random.bits() as u64;
    let file = place.disk.open(name, Open::Create)?;
    let at = SegmentFile { number, salt, name: name.to_owned(), file, packed: None };
    let ready = grow(Ready { at, capacity: SEGMENT_HEADER }, capacity, pace)?;
    if !options.has(SeededBug::ForgetDirectorySync) {
        place.disk.sync_dir(&place.dir)?;
    }
    Ok(ready)
}

/// Adds zeros up to this capacity. The header comes last, when all that it says is there is synced.
fn grow(mut ready: Ready, capacity: u64, pace: &Until<'_>) -> io::Result<Ready> {
    let zeros = vec![0; ZERO_WRITE.min(capacity.saturating_sub(ready.capacity)) as usize];
    while ready.capacity < capacity {
        let synced_to = capacity.min(ready.capacity + ZERO_STEP);
        pace(synced_to)?;
        while ready.capacity < synced_to {
            let length = ZERO_WRITE.min(synced_to - ready.capacity);
            ready.at.file.write_at(&zeros[..length as usize], ready.capacity)?;
            ready.capacity += length;
        }
        ready.at.file.sync()?;
    }
    let header =
        SegmentHeader { number: ready.at.number, salt: ready.at.salt, capacity: ready.capacity, packed_from: None };
    ready.at.file.write_at(&header.encode(), 0)?;
    ready.at.file.sync()?;
    Ok(ready)
}

/// Writes the index of a closed segment to its file and lets readers use that instead of the memory.
fn write_index(core: &Core, closed: &Segment) -> io::Result<()> {
    let Some(memory) = closed.memory() else { return Ok(()) };
    let at = &closed.at;
    let name = names::index(&core.place.dir, at.number);
    let bytes = encode_index(&read(memory), &core.options, at);
    let file = write_whole(&*core.place.disk, &core.place.dir, &name, &bytes)?;
    let index = FileIndex::open(file, name).map_err(|fault| io::Error::other(fault.0))?;
    let indexed = Arc::new(Segment { at: at.clone(), first: closed.first, index: Index::File(index) });
    core.change_view(|segments| {
        segments.iter_mut().filter(|segment| segment.at.number == indexed.at.number).for_each(|s| *s = indexed.clone());
    });
    Ok(())
}

fn encode_index(memory: &MemoryIndex, options: &Options, at: &SegmentFile) -> Vec<u8> {
    crate::index::encode(memory, at.number, at.salt, !options.has(SeededBug::ForgetSealedRequestIds))
}

fn write_checkpoint(place: &Place, checkpoint: Checkpoint) -> io::Result<()> {
    let bytes = seal(&checkpoint)?;
    write_whole(&*place.disk, &place.dir, &format!("{}/{}", place.dir, names::CHECKPOINT), &bytes).map(|_| ())
}
