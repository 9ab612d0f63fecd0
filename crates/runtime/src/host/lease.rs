//! Taking, giving and releasing leases. The rules are those of [`Lease`].

use std::sync::Arc;

use annals_core::spread::ProcessRecord;
use annals_core::{Condition, Expected, Lease, RecordChange, RecordError, Records, Timestamp, TypedRecords};

use super::heartbeat::Heartbeat;
use super::spread::Spread;
use super::{Shared, beside};

/// The number of attempts to take a lease that changes between the read and the write.
const TRIES: usize = 5;

/// The lease of one task of a tenant, for as long as a process runs the task or stands by for it.
pub(crate) struct Leases {
    records: Arc<dyn Records>,
    shared: Arc<Shared>,
    task: String,
    /// The tasks of this process in the tenant, and the heartbeat on which their leases rest.
    tasks: Arc<Spread>,
    /// Whether the task is spread over processes; false if it follows its workers.
    is_spread: bool,
    /// Whether this part of the process has claimed the task.
    is_claimed: bool,
}

/// A lease that this process holds.
pub(crate) struct Held {
    lease: Lease,
}

/// The result of asking for a lease.
pub(crate) enum Asked {
    Taken(Held),
    /// Another process holds the lease.
    Elsewhere {
        owner: String,
    },
}

impl Held {
    /// Returns the epoch of this ownership of the task.
    pub fn epoch(&self) -> i64 {
        self.lease.epoch
    }
}

impl Leases {
    /// Creates the lease of a task that only the processes with its workers can run.
    pub fn new(shared: &Arc<Shared>, tenant: &str, records: Arc<dyn Records>, task: String) -> Self {
        let tasks = Spread::of(shared, tenant, &records);
        tasks.heartbeat().enter();
        Self { records, shared: Arc::clone(shared), task, tasks, is_spread: false, is_claimed: false }
    }

    /// Spreads the task evenly over all processes that stand by for it.
    #[must_use]
    pub fn spread(mut self) -> Self {
        self.is_spread = true;
        self
    }

    /// Claims the task for this value, because several parts of a process may ask for the same lease and a lease belongs to the whole
    /// process. Returns false while another part holds the claim. The claim ends when this value is dropped.
    pub fn claim(&mut self) -> bool {
        self.is_claimed = self.is_claimed || self.tasks.claim(&self.task);
        self.is_claimed
    }

    fn heartbeat(&self) -> &Heartbeat {
        self.tasks.heartbeat()
    }

    /// Returns the end of a lease that starts now and does not rest on a life.
    fn until(&self) -> Timestamp {
        self.now().plus(self.shared.options.lease)
    }

    fn now(&self) -> Timestamp {
        self.shared.options.clock.now()
    }

    /// Takes the lease of a task, unless another process holds it.
    pub async fn ask(&self) -> Result<Asked, RecordError> {
        let asked = self.ask_until_known().await?;
        if self.is_spread {
            match &asked {
                Asked::Taken(_) => self.tasks.holds(&self.task),
                Asked::Elsewhere { owner } => self.tasks.stands_by(&self.task, owner),
            }
        }
        Ok(asked)
    }

    async fn ask_until_known(&self) -> Result<Asked, RecordError> {
        for _ in 0..TRIES {
            // If the record was written since it was read, read it again.
            match self.try_ask().await {
                Err(RecordError::NotAsExpected { .. } | RecordError::DuplicateKey { .. }) => {}
                asked => return asked,
            }
        }
        Ok(Asked::Elsewhere { owner: "another process".to_owned() })
    }

    /// Returns whether another process holds the lease.
    pub async fn is_elsewhere(&self) -> Result<bool, RecordError> {
        let Some(found) = self.found().await?.filter(|lease| lease.holder != self.shared.process) else {
            return Ok(false);
        };
        match self.shared.store.is_shared() {
            true => Ok(self.is_free(&found).await?.is_none()),
            false => Ok(!found.is_released() && beside::is_running(&found.holder)),
        }
    }

    /// Returns the less busy process to which the task is to be given, if any.
    pub fn given_to(&self) -> Option<String> {
        if self.is_spread { self.tasks.given_to(&self.task) } else { None }
    }

    /// Returns whether this process still holds the lease. A deposed process has lost all its leases.
    pub async fn keeps(&self, held: &Held) -> Result<bool, RecordError> {
        let Some(life) = held.lease.life else { return Ok(true) };
        if self.heartbeat().has_lost(&held.lease, life) {
            return Ok(false);
        }
        self.heartbeat().beat_again().await?;
        Ok(!self.heartbeat().has_lost(&held.lease, life))
    }

    /// Waits until the task is to be given to another process or this process is deposed.
    pub async fn until_called_off(&self, held: &Held) {
        let given = async {
            match self.is_spread {
                true => self.tasks.until_given(&self.task).await,
                false => std::future::pending().await,
            }
        };
        let over = async {
            match held.lease.life {
                Some(life) => self.heartbeat().until_over(life).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = given => {}
            () = over => {}
        }
    }

    /// Transfers the lease to another process that stands by for it.
    pub async fn give(&self, held: &Held, to: &str) {
        match self.write(&held.lease.given(to, self.until()), &held.lease).await {
            Ok(()) => tracing::info!(task = held.lease.task, to, "moved a task to a less busy process"),
            Err(RecordError::NotAsExpected { .. }) => {}
            Err(error) => {
                tracing::debug!(task = held.lease.task, %error, "could not transfer a lease to another process")
            }
        }
    }

    /// Releases the lease, so that another process need not wait until it expires.
    pub async fn release(&self, held: &Held) {
        if !self.shared.may_share() {
            return;
        }
        match self.write(&held.lease.released(), &held.lease).await {
            Ok(()) | Err(RecordError::NotAsExpected { .. }) => {}
            Err(error) => tracing::debug!(task = held.lease.task, %error, "could not release a lease"),
        }
    }

    /// Writes a lease, unless the stored one is no longer that of `known`'s epoch and holder.
    async fn write(&self, lease: &Lease, known: &Lease) -> Result<(), RecordError> {
        let same = [Condition::eq("epoch", known.epoch), Condition::eq("holder", known.holder.as_str())];
        let change = TypedRecords::replacement(lease, Expected::Matching(Condition::and(same)))?;
        self.records.write(vec![change]).await.map(drop)
    }

    /// Reads the lease once, and takes it unless another process holds it.
    async fn try_ask(&self) -> Result<Asked, RecordError> {
        match self.shared.store.is_shared() {
            true => self.ask_shared().await,
            false => self.ask_alone().await,
        }
    }

    /// Asks for the lease on a shared store, which other processes may have open.
    async fn ask_shared(&self) -> Result<Asked, RecordError> {
        let life = self.heartbeat().alive().await?;
        let found = self.found().await?;
        let mut deposing = None;
        if let Some(other) = found.as_ref().filter(|lease| lease.holder != self.shared.process) {
            match self.is_free(other).await? {
                Some(heartbeat) => deposing = other.deposing(heartbeat.as_ref()),
                None => return Ok(Asked::Elsewhere { owner: other.holder.clone() }),
            }
        }
        let lease = Lease::resting_on(life, &self.task, &self.shared.process, found.as_ref());
        let mut changes = Vec::from_iter(deposing);
        changes.push(taking(&lease, found.as_ref())?);
        let deposes = changes.len() > 1;
        self.records.write(changes).await?;
        if let Some(from) = found.filter(|_| deposes).map(|found| found.holder) {
            self.heartbeat().forget(&from);
            tracing::info!(task = self.task, from, "took over from a process that no longer renews its heartbeat");
        }
        self.heartbeat().took(&lease);
        Ok(Asked::Taken(Held { lease }))
    }

    /// Returns whether a lease of another process can be taken: if so, with the heartbeat of that process, if it has one.
    async fn is_free(&self, other: &Lease) -> Result<Option<Option<ProcessRecord>>, RecordError> {
        match other.life {
            Some(life) => self.heartbeat().after_life(&other.holder, life).await,
            None => Ok(if other.is_in_force(None, self.now()) { None } else { Some(None) }),
        }
    }

    /// Asks for the lease on a store that no other process can have open. Leases are not renewed there: each lasts as long as the host
    /// that holds it.
    async fn ask_alone(&self) -> Result<Asked, RecordError> {
        let found = self.found().await?;
        let is_elsewhere = |lease: &&Lease| {
            lease.holder != self.shared.process && !lease.is_released() && beside::is_running(&lease.holder)
        };
        if let Some(other) = found.as_ref().filter(is_elsewhere) {
            return Ok(Asked::Elsewhere { owner: other.holder.clone() });
        }
        let lease = Lease::ending(self.until(), &self.task, &self.shared.process, found.as_ref());
        self.records.write(vec![taking(&lease, found.as_ref())?]).await?;
        Ok(Asked::Taken(Held { lease }))
    }

    async fn found(&self) -> Result<Option<Lease>, RecordError> {
        let found = TypedRecords::<Lease>::declared(Arc::clone(&self.records)).get(self.task.as_str()).await?;
        Ok(found.map(|found| found.value))
    }
}

/// Builds the change that replaces the lease that was found, unless that was released, given or taken since it was read.
fn taking(lease: &Lease, found: Option<&Lease>) -> Result<RecordChange, RecordError> {
    let expected = found.map_or(Expected::Absent, |found| {
        Expected::Matching(Condition::and([
            Condition::eq("epoch", found.epoch),
            Condition::eq("holder", found.holder.as_str()),
            Condition::eq("until", found.until),
        ]))
    });
    TypedRecords::replacement(lease, expected)
}

impl Drop for Leases {
    fn drop(&mut self) {
        if self.is_spread {
            self.tasks.forget(&self.task);
        }
        if self.is_claimed {
            self.tasks.unclaim(&self.task);
        }
        self.heartbeat().leave();
    }
}
