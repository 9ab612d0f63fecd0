//! Taking, renewing and releasing leases. The rules are those of [`Lease`].

use std::sync::Arc;
use std::time::Duration;

use annals_core::{Condition, Expected, Lease, RecordError, Records, Timestamp, TypedRecords};

use super::spread::Spread;
use super::{Shared, beside};

/// How often a lease is looked at that changes between the look and the write.
const TRIES: usize = 5;

/// The lease of one task of a tenant, for as long as a process runs the task or stands by for it.
pub(crate) struct Leases {
    records: Arc<dyn Records>,
    shared: Arc<Shared>,
    task: String,
    /// The tasks among which it is spread over processes; none for a task that follows its workers.
    spread: Option<Arc<Spread>>,
}

/// A lease that this process holds.
pub(crate) struct Held {
    lease: Lease,
    renewed: Timestamp,
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
    /// The lease of a task that only some processes can run: those whose workers it follows.
    pub fn new(shared: &Arc<Shared>, records: Arc<dyn Records>, task: String) -> Self {
        Self { records, shared: Arc::clone(shared), task, spread: None }
    }

    /// Spreads the task evenly over all processes that stand by for it.
    #[must_use]
    pub fn spread(mut self, tenant: &str) -> Self {
        self.spread = Some(Spread::of(&self.shared, tenant, &self.records));
        self
    }

    fn time(&self) -> Duration {
        self.shared.options.lease
    }

    fn now(&self) -> Timestamp {
        self.shared.options.clock.now()
    }

    /// Takes the lease of a task, unless another process holds it.
    pub async fn ask(&self) -> Result<Asked, RecordError> {
        let asked = self.ask_until_known().await?;
        if let Some(spread) = &self.spread {
            match &asked {
                Asked::Taken(_) => spread.holds(&self.task),
                Asked::Elsewhere { owner } => spread.stands_by(&self.task, owner),
            }
        }
        Ok(asked)
    }

    async fn ask_until_known(&self) -> Result<Asked, RecordError> {
        for _ in 0..TRIES {
            // If it was renewed, released or taken since it was read, the next look tells.
            if let Some(asked) = self.try_ask(&self.task).await? {
                return Ok(asked);
            }
        }
        Ok(Asked::Elsewhere { owner: "another process".to_owned() })
    }

    /// The less busy process that the task is to be given to.
    pub fn given_to(&self) -> Option<String> {
        self.spread.as_ref()?.given_to(&self.task)
    }

    /// Waits until the task is to be given to another process.
    pub async fn until_given(&self) {
        match &self.spread {
            Some(spread) => spread.until_given(&self.task).await,
            None => std::future::pending().await,
        }
    }

    /// Gives the lease to another process, which stands by for it.
    pub async fn give(&self, held: &Held, to: &str) {
        let now = self.now();
        match self.write_if(&held.lease.given(to, now, self.time()), &held.lease).await {
            Ok(_) => tracing::info!(task = held.lease.task, to, "the task moves to a less busy process"),
            Err(error) => tracing::debug!(task = held.lease.task, %error, "a lease was not given and ends by itself"),
        }
    }

    /// None when the lease changed between the look and the write.
    async fn try_ask(&self, task: &str) -> Result<Option<Asked>, RecordError> {
        let leases = TypedRecords::<Lease>::declared(Arc::clone(&self.records));
        let found = leases.get(task).await?;
        let (now, shared) = (self.now(), self.shared.store.is_shared());
        let lease = found.as_ref().map(|found| &found.value);
        // Where no other process can be, a lease is not renewed: it lasts as long as the host that holds it.
        if let Some(lease) = lease
            && !shared
            && lease.holder != self.shared.process
            && !lease.is_released()
            && beside::is_running(&lease.holder)
        {
            return Ok(Some(Asked::Elsewhere { owner: lease.holder.clone() }));
        }
        let Some(lease) = Lease::takeover(lease, task, &self.shared.process, now, self.time(), shared) else {
            let owner = lease.map(|lease| lease.holder.clone()).unwrap_or_default();
            return Ok(Some(Asked::Elsewhere { owner }));
        };
        let written = match found {
            None => leases.insert(&lease).await,
            Some(found) => {
                // Not if it was renewed since it was read.
                let same = [Condition::eq("epoch", found.value.epoch), Condition::eq("until", found.value.until)];
                leases.replace_if(&lease, Expected::Matching(Condition::and(same))).await
            }
        };
        match written {
            Ok(_) => Ok(Some(Asked::Taken(Held { lease, renewed: now }))),
            Err(RecordError::NotAsExpected { .. } | RecordError::DuplicateKey { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// When the lease is to be renewed; none where no other process can want it.
    pub fn renew_at(&self, held: &Held) -> Option<Timestamp> {
        self.shared.store.is_shared().then(|| held.renewed.plus(self.time() / 4))
    }

    /// Renews the lease; false when another process has it.
    pub async fn renew(&self, held: &mut Held) -> Result<bool, RecordError> {
        let now = self.now();
        let lease = held.lease.renewed(now, self.time());
        let kept = self.write(&lease).await?;
        *held = Held { lease, renewed: now };
        Ok(kept)
    }

    /// Gives the lease back, so that another process need not wait until it ends.
    pub async fn release(&self, held: &Held) {
        if !self.shared.may_share() {
            return;
        }
        if let Err(error) = self.write(&held.lease.released()).await {
            tracing::debug!(task = held.lease.task, %error, "a lease was not released and ends by itself");
        }
    }

    async fn write(&self, lease: &Lease) -> Result<bool, RecordError> {
        self.write_if(lease, lease).await
    }

    /// Writes a lease; false when another process than the holder of `known` has it.
    async fn write_if(&self, lease: &Lease, known: &Lease) -> Result<bool, RecordError> {
        let expected = Expected::Matching(Condition::and([
            Condition::eq("epoch", known.epoch),
            Condition::eq("holder", known.holder.as_str()),
        ]));
        let change = TypedRecords::replacement(lease, expected)?;
        match self.records.write(vec![change]).await {
            Ok(_) => Ok(true),
            Err(RecordError::NotAsExpected { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Leases {
    fn drop(&mut self) {
        if let Some(spread) = &self.spread {
            spread.forget(&self.task);
        }
    }
}
