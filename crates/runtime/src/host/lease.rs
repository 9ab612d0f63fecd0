//! Taking, giving and releasing leases. The rules are those of [`Lease`].

use std::sync::Arc;

use annals_core::spread::ProcessRecord;
use annals_core::{Condition, Expected, Lease, RecordChange, RecordError, Records, Timestamp, TypedRecords};

use super::heartbeat::Heartbeat;
use super::spread::Spread;
use super::{Shared, beside};

/// How often a lease is looked at that changes between the look and the write.
const TRIES: usize = 5;

/// The lease of one task of a tenant, for as long as a process runs the task or stands by for it.
pub(crate) struct Leases {
    records: Arc<dyn Records>,
    shared: Arc<Shared>,
    task: String,
    /// The tasks of this process in the tenant, and the heartbeat that their leases rest on.
    tasks: Arc<Spread>,
    /// Whether the task is spread over processes; not where it follows its workers.
    is_spread: bool,
    /// Whether this part of the process has claimed the task.
    is_claimed: bool,
}

/// A lease that this process holds.
pub(crate) struct Held {
    lease: Lease,
}

/// What became of asking for a lease.
pub(crate) enum Asked {
    Taken(Held),
    /// Another process holds it.
    Elsewhere {
        owner: String,
    },
}

impl Held {
    /// Counts the ownerships of the task.
    pub fn epoch(&self) -> i64 {
        self.lease.epoch
    }
}

impl Leases {
    /// The lease of a task of a tenant that only some processes can run: those whose workers it follows.
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

    /// Claims the task for the part of the process that has this value, where several parts ask for one lease: a lease belongs to the
    /// process as a whole. False while another part has claimed it. The claim ends with this value.
    pub fn claim(&mut self) -> bool {
        self.is_claimed = self.is_claimed || self.tasks.claim(&self.task);
        self.is_claimed
    }

    fn heartbeat(&self) -> &Heartbeat {
        self.tasks.heartbeat()
    }

    /// When a lease ends that begins now and ends by itself.
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
            // If something was written since it was read, the next look tells.
            match self.try_ask().await {
                Err(RecordError::NotAsExpected { .. } | RecordError::DuplicateKey { .. }) => {}
                asked => return asked,
            }
        }
        Ok(Asked::Elsewhere { owner: "another process".to_owned() })
    }

    /// Whether another process holds the lease.
    pub async fn is_elsewhere(&self) -> Result<bool, RecordError> {
        let Some(found) = self.found().await?.filter(|lease| lease.holder != self.shared.process) else {
            return Ok(false);
        };
        match self.shared.store.is_shared() {
            true => Ok(self.is_free(&found).await?.is_none()),
            false => Ok(!found.is_released() && beside::is_running(&found.holder)),
        }
    }

    /// The less busy process that the task is to be given to.
    pub fn given_to(&self) -> Option<String> {
        if self.is_spread { self.tasks.given_to(&self.task) } else { None }
    }

    /// Whether this process still has the lease. It has lost all leases once it was deposed.
    pub async fn keeps(&self, held: &Held) -> Result<bool, RecordError> {
        let Some(life) = held.lease.life else { return Ok(true) };
        if self.heartbeat().has_lost(&held.lease, life) {
            return Ok(false);
        }
        self.heartbeat().beat_again().await?;
        Ok(!self.heartbeat().has_lost(&held.lease, life))
    }

    /// Waits until the task is to be given to another process, or this one was deposed.
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

    /// Gives the lease to another process, which stands by for it.
    pub async fn give(&self, held: &Held, to: &str) {
        match self.write(&held.lease.given(to, self.until()), &held.lease).await {
            Ok(()) => tracing::info!(task = held.lease.task, to, "the task moves to a less busy process"),
            Err(RecordError::NotAsExpected { .. }) => {}
            Err(error) => tracing::debug!(task = held.lease.task, %error, "a lease was not given to another process"),
        }
    }

    /// Gives the lease back, so that another process need not wait until it ends.
    pub async fn release(&self, held: &Held) {
        if !self.shared.may_share() {
            return;
        }
        match self.write(&held.lease.released(), &held.lease).await {
            Ok(()) | Err(RecordError::NotAsExpected { .. }) => {}
            Err(error) => tracing::debug!(task = held.lease.task, %error, "a lease was not released"),
        }
    }

    /// Writes a lease, unless another one has it than the holder of `known`.
    async fn write(&self, lease: &Lease, known: &Lease) -> Result<(), RecordError> {
        let same = [Condition::eq("epoch", known.epoch), Condition::eq("holder", known.holder.as_str())];
        let change = TypedRecords::replacement(lease, Expected::Matching(Condition::and(same)))?;
        self.records.write(vec![change]).await.map(drop)
    }

    /// Looks at the lease once, and takes it unless another process holds it.
    async fn try_ask(&self) -> Result<Asked, RecordError> {
        match self.shared.store.is_shared() {
            true => self.ask_shared().await,
            false => self.ask_alone().await,
        }
    }

    /// Asks where other processes may have the store open.
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

    /// Whether a lease of another process can be taken: then the heartbeat of that process, if there is one.
    async fn is_free(&self, other: &Lease) -> Result<Option<Option<ProcessRecord>>, RecordError> {
        match other.life {
            Some(life) => self.heartbeat().after_life(&other.holder, life).await,
            None => Ok(if other.is_in_force(None, self.now()) { None } else { Some(None) }),
        }
    }

    /// Asks where no other process can be. A lease is not renewed there: it lasts as long as the host that holds it.
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

/// Puts a lease in the place of the one that was found, unless that was released, given or taken since it was read.
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
