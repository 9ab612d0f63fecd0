//! State that a log's threads and its callers share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use annals_core::{LogStatus, SequenceNumber, StoreError, SyncCounter, Timestamp};
use tokio::sync::{Semaphore, watch};

use super::Place;
use super::heads::Heads;
use super::packer::Signal;
use super::queue::Queue;
use super::remake::Notes;
use super::segment::View;
use crate::Options;
use crate::floor::Floor;
use crate::terms::TermKey;

/// Limit on encoded commits queued for the writer, in KiB; further callers wait for room.
const WAITING_KIB_MAX: usize = 64 * 1024;

pub(super) struct Core {
    pub(super) place: Place,
    pub(super) key: TermKey,
    pub(super) options: Options,
    pub(super) queue: Queue,
    pub(super) floor: Floor,
    pub(super) packing: Signal,
    pub(super) room: Arc<Semaphore>,
    /// Permits for long searches of append conditions.
    pub(super) searches: Semaphore,
    /// Permits for long reads.
    pub(super) reads: Semaphore,
    view: RwLock<Arc<View>>,
    state: watch::Sender<HeadState>,
    pub(super) known: Heads,
    refusal: OnceLock<StoreError>,
    /// Why the log cannot be read past its readable end, if it was opened damaged.
    cut_short: Option<StoreError>,
    commits: AtomicU64,
    syncs: AtomicU64,
    pub(super) sync_times: SyncCounter,
    bytes: AtomicU64,
    notes: Notes,
}

/// The durable head, for readers that wait for it to move.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeadState {
    pub(super) head: SequenceNumber,
    pub(super) closed: bool,
}

impl Core {
    pub(super) fn new(
        place: Place,
        options: &Options,
        view: View,
        head: SequenceNumber,
        refusal: Option<StoreError>,
        notes: Notes,
    ) -> Self {
        Self {
            key: place.key,
            place,
            options: options.clone(),
            queue: Queue::default(),
            floor: Floor::new(options),
            packing: Signal::default(),
            room: Arc::new(Semaphore::new(WAITING_KIB_MAX)),
            searches: Semaphore::new(half_of_the_cores()),
            reads: Semaphore::new(half_of_the_cores()),
            view: RwLock::new(Arc::new(view)),
            state: watch::Sender::new(HeadState { head, closed: false }),
            cut_short: refusal.clone(),
            known: Heads::default(),
            refusal: refusal.map_or_else(OnceLock::new, OnceLock::from),
            commits: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
            sync_times: SyncCounter::default(),
            bytes: AtomicU64::new(0),
            notes,
        }
    }

    /// Returns what was found and repaired, as notes for operators.
    pub(super) fn notes(&self) -> &Notes {
        &self.notes
    }

    pub(super) fn view(&self) -> Arc<View> {
        self.view.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the list of segments. The writer adds a segment; the keeper replaces one by its indexed form, the packer by its packed
    /// form. `change` receives the current list.
    pub(super) fn change_view(&self, change: impl FnOnce(&mut Vec<Arc<super::segment::Segment>>)) {
        let mut view = self.view.write().unwrap_or_else(PoisonError::into_inner);
        let mut segments = view.segments.clone();
        change(&mut segments);
        *view = Arc::new(View { segments });
    }

    /// Returns the number of durable events.
    pub(super) fn head(&self) -> SequenceNumber {
        self.state.borrow().head
    }

    pub(super) fn heads(&self) -> watch::Receiver<HeadState> {
        self.state.subscribe()
    }

    /// Moves the durable head and wakes its waiters.
    pub(super) fn advance(&self, head: SequenceNumber, commits: u64, bytes: u64) {
        self.commits.fetch_add(commits, Ordering::Relaxed);
        self.syncs.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.state.send_modify(|state| state.head = head);
    }

    /// Returns why commits are refused, or `None` if they are accepted.
    pub(super) fn refusal(&self) -> Option<StoreError> {
        self.refusal.get().cloned()
    }

    /// Refuses a commit if the disk is full, and all further commits once the store's lock is lost.
    pub(super) fn check_disk(&self, now: Timestamp) -> Result<(), StoreError> {
        let looked = self.floor.check(&*self.place.disk, now);
        if let Err(lost @ StoreError::Failed(_)) = &looked {
            self.refuse(lost.clone());
        }
        looked
    }

    /// Returns the answer unless it depends on the end of the log. Nobody knows what follows the readable part of a damaged log, so "no
    /// more" or "none" would be a guess.
    pub(super) fn unless_about_the_end<T>(&self, answer: T, about_the_end: bool) -> Result<T, StoreError> {
        match &self.cut_short {
            Some(damage) if about_the_end => Err(damage.clone()),
            _ => Ok(answer),
        }
    }

    /// Refuses commits from now on. The first reason is kept.
    pub(super) fn refuse(&self, why: StoreError) {
        tracing::error!(tenant = self.place.tenant, scope = self.place.scope, %why, "the log refuses commits");
        self.refuse_with(why);
    }

    /// Refuses commits from now on, without logging an error: the reason is not a fault of the log.
    pub(super) fn refuse_with(&self, why: StoreError) {
        self.refusal.get_or_init(|| why);
    }

    /// Returns a reader's result unchanged. If the reader found damage, commits are refused from now on, so that nothing is built on it.
    pub(super) fn noticed<T>(&self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        if let Err(damage @ StoreError::Damaged(_)) = &result
            && self.refusal().is_none()
        {
            self.refuse(damage.clone());
        }
        result
    }

    pub(super) fn close(&self) {
        self.queue.close();
        self.packing.close();
        self.state.send_modify(|state| state.closed = true);
    }

    pub(super) fn status(&self) -> LogStatus {
        LogStatus {
            tenant: self.place.tenant.clone(),
            scope: self.place.scope.clone(),
            head: self.head(),
            refusing: self.refusal(),
            records_refusing: None,
            commits: self.commits.load(Ordering::Relaxed),
            syncs: self.syncs.load(Ordering::Relaxed),
            sync_times: self.sync_times.times(),
            bytes: self.bytes.load(Ordering::Relaxed),
            recovery: self.notes.all(),
            sequencer: None,
        }
    }
}

/// Returns how many threads of the runtime long work may occupy, so that some are left for all other tasks.
fn half_of_the_cores() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| (cores.get() / 2).max(1))
}
