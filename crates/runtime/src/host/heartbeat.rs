//! The heartbeat of this process in a tenant: one record, on which the leases of all of the process's tasks there rest. The rules are
//! those of [`Lease`].

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use annals_core::spread::ProcessRecord;
use annals_core::{Clock, Condition, Expected, Lease, RecordError, Records, Timestamp, TypedRecords};
use tokio::sync::watch;

use super::locked;
use super::watched::Watched;

/// The heartbeat of this process in one tenant of a shared store.
pub(super) struct Heartbeat {
    process: String,
    records: Arc<dyn Records>,
    clock: Arc<dyn Clock>,
    /// How long a heartbeat remains valid without being renewed.
    time: Duration,
    /// What was written last. Locked by the task that writes.
    written: tokio::sync::Mutex<Written>,
    /// When the record expires, as last written, in milliseconds.
    expires: AtomicI64,
    /// The number of the current life; 0 if there is none.
    life: watch::Sender<i64>,
    /// The number of tasks that hold a lease or ask for one.
    users: watch::Sender<usize>,
    /// The epoch with which this process last took each task.
    taken: Mutex<BTreeMap<String, i64>>,
    /// The observed heartbeats of other processes.
    others: Mutex<Watched>,
}

#[derive(Default)]
struct Written {
    /// The number of the last life, which may be over.
    last: i64,
    /// The tasks that this process wants from other processes.
    wants: Vec<String>,
}

impl Heartbeat {
    /// Creates a heartbeat without a life.
    pub fn new(process: &str, records: Arc<dyn Records>, clock: Arc<dyn Clock>, time: Duration) -> Self {
        Self {
            process: process.to_owned(),
            records,
            clock,
            time,
            written: tokio::sync::Mutex::default(),
            expires: AtomicI64::new(0),
            life: watch::Sender::new(0),
            users: watch::Sender::new(0),
            taken: Mutex::default(),
            others: Mutex::default(),
        }
    }

    fn record(&self, life: i64, wants: &[String]) -> ProcessRecord {
        ProcessRecord::new(&self.process, self.clock.now().plus(self.time), life, wants.to_vec()).lasting(self.time)
    }

    /// Returns whether other processes may take over by now, as far as this process knows: because it was suspended or cannot write.
    fn has_expired(&self) -> bool {
        self.clock.now().as_millis() >= self.expires.load(Ordering::Relaxed)
    }

    fn was_written(&self, record: &ProcessRecord) {
        self.expires.store(record.until().as_millis(), Ordering::Relaxed);
    }

    /// Returns the number of the life that leases rest on, and begins one if there is none.
    pub async fn alive(&self) -> Result<i64, RecordError> {
        let life = *self.life.borrow();
        if life > 0 {
            return Ok(life);
        }
        let mut written = self.written.lock().await;
        let life = *self.life.borrow();
        if life > 0 {
            return Ok(life);
        }
        let processes = TypedRecords::<ProcessRecord>::declare(Arc::clone(&self.records)).await?;
        let found = processes.get(self.process.as_str()).await?;
        let before = found.as_ref().map_or(0, |found| found.value.life);
        let record = self.record(written.last.max(before) + 1, &[]);
        let expected = found.map_or(Expected::Absent, |found| Expected::Revision(found.revision));
        processes.replace_if(&record, expected).await?;
        *written = Written { last: record.life, wants: Vec::new() };
        self.was_written(&record);
        self.life.send_replace(record.life);
        Ok(record.life)
    }

    /// Renews the record if a life has begun. If the record is not as this process wrote it, the process was deposed and has lost its
    /// leases.
    pub async fn beat(&self, wants: Vec<String>) -> Result<(), RecordError> {
        let mut written = self.written.lock().await;
        written.wants = wants;
        self.renew(&written).await
    }

    /// Renews the record if it has expired. A process that was suspended thereby learns whether it was deposed before it does anything
    /// else.
    pub async fn beat_again(&self) -> Result<(), RecordError> {
        if !self.has_expired() {
            return Ok(());
        }
        let written = self.written.lock().await;
        // Another task may have renewed it meanwhile.
        if self.has_expired() { self.renew(&written).await } else { Ok(()) }
    }

    async fn renew(&self, written: &Written) -> Result<(), RecordError> {
        let life = *self.life.borrow();
        if life == 0 {
            return Ok(());
        }
        let record = self.record(life, &written.wants);
        let same = Expected::Matching(Condition::eq("life", life));
        let processes = TypedRecords::<ProcessRecord>::declared(Arc::clone(&self.records));
        match processes.replace_if(&record, same).await {
            Ok(_) => self.was_written(&record),
            Err(RecordError::NotAsExpected { .. }) => {
                tracing::warn!(process = self.process, "another process took over from this one; giving up all tasks");
                self.life.send_replace(0);
            }
            Err(error) => {
                // Another process may take over by now, so start nothing more until the store is writable again.
                if self.has_expired() {
                    self.life.send_replace(0);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Ends the life and deletes the record, unless a task needs it.
    pub async fn end_unused(&self) {
        let _written = self.written.lock().await;
        let life = *self.life.borrow();
        if life == 0 || self.is_used() {
            return;
        }
        self.life.send_replace(0);
        let same = Expected::Matching(Condition::eq("life", life));
        let processes = TypedRecords::<ProcessRecord>::declared(Arc::clone(&self.records));
        // If the delete fails, the record expires.
        let _ = processes.delete_if(self.process.as_str(), same).await;
    }

    /// Registers a task that holds a lease or asks for one, until [`leave`](Self::leave).
    pub fn enter(&self) {
        self.users.send_modify(|users| *users += 1);
    }

    /// Unregisters a task that no longer needs a lease.
    pub fn leave(&self) {
        self.users.send_modify(|users| *users = users.saturating_sub(1));
    }

    /// Returns whether a task holds a lease or asks for one.
    pub fn is_used(&self) -> bool {
        *self.users.borrow() > 0
    }

    /// Waits until a task needs a lease.
    pub async fn until_used(&self) {
        // `self` owns the sender, so waiting cannot fail.
        let _ = self.users.subscribe().wait_for(|users| *users > 0).await;
    }

    /// Waits until no task needs a lease.
    pub async fn until_unused(&self) {
        let _ = self.users.subscribe().wait_for(|users| *users == 0).await;
    }

    /// Records that this process took a task.
    pub fn took(&self, lease: &Lease) {
        locked(&self.taken).insert(lease.task.clone(), lease.epoch);
    }

    /// Returns whether a lease that rests on this life is lost: the life is over, or the task was taken again in this process.
    pub fn has_lost(&self, lease: &Lease, life: i64) -> bool {
        *self.life.borrow() != life || locked(&self.taken).get(&lease.task).is_some_and(|epoch| *epoch > lease.epoch)
    }

    /// Waits until this life is over.
    pub async fn until_over(&self, life: i64) {
        let _ = self.life.subscribe().wait_for(|now| *now != life).await;
    }

    /// Returns the heartbeat of another process, if it has one, once this life of it counts as over; the outer `None` while it is alive.
    pub async fn after_life(&self, process: &str, life: i64) -> Result<Option<Option<ProcessRecord>>, RecordError> {
        let now = self.clock.now();
        // A recent observation suffices.
        if self.is_fresh(process, life) {
            return Ok(None);
        }
        let Some(found) = heartbeat_of(&self.records, process).await? else { return Ok(Some(None)) };
        let is_over = found.life != life || self.look(&found, now);
        Ok(is_over.then_some(Some(found)))
    }

    /// Records an observation of another process's heartbeat, read at this time or later. Returns whether that process is alive.
    pub fn lives(&self, found: &ProcessRecord, now: Timestamp) -> bool {
        locked(&self.others).lives(found, now, self.time)
    }

    /// Returns whether the heartbeat of another process has been unchanged for so long that it can be deleted.
    pub fn is_long_gone(&self, process: &str) -> bool {
        locked(&self.others).is_long_gone(process, self.time)
    }

    /// Records an observation of another process's heartbeat, read at this time or later. Returns whether that process counts as gone.
    fn look(&self, found: &ProcessRecord, now: Timestamp) -> bool {
        locked(&self.others).look(found, now, self.time)
    }

    /// Returns whether this life of another process was observed so recently that another read would not add anything.
    fn is_fresh(&self, process: &str, life: i64) -> bool {
        locked(&self.others).is_fresh(process, life, self.clock.now(), self.time)
    }

    /// Forgets another process whose life this process has ended.
    pub fn forget(&self, process: &str) {
        locked(&self.others).forget(process);
    }
}

/// Reads the heartbeat of a process.
pub(super) async fn heartbeat_of(
    records: &Arc<dyn Records>,
    process: &str,
) -> Result<Option<ProcessRecord>, RecordError> {
    match TypedRecords::<ProcessRecord>::declared(Arc::clone(records)).get(process).await {
        Err(RecordError::UnknownCollection(_)) => Ok(None),
        found => Ok(found?.map(|found| found.value)),
    }
}
