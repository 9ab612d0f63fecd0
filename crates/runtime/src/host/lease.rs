//! Taking, renewing and releasing leases. The rules are those of [`Lease`].

use std::sync::Arc;
use std::time::Duration;

use annals_core::{Condition, Expected, Lease, RecordError, Records, Timestamp, TypedRecords};

use super::{Shared, beside};

/// How often a lease is looked at that changes between the look and the write.
const TRIES: usize = 5;

/// The leases of one tenant's tasks.
pub(crate) struct Leases {
    records: Arc<dyn Records>,
    shared: Arc<Shared>,
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
    pub fn new(shared: &Arc<Shared>, records: Arc<dyn Records>) -> Self {
        Self { records, shared: Arc::clone(shared) }
    }

    fn time(&self) -> Duration {
        self.shared.options.lease
    }

    fn now(&self) -> Timestamp {
        self.shared.options.clock.now()
    }

    /// Takes the lease of a task, unless another process holds it.
    pub async fn ask(&self, task: &str) -> Result<Asked, RecordError> {
        let mut asked = self.try_ask(task).await?;
        for _ in 1..TRIES {
            match asked {
                Some(asked) => return Ok(asked),
                // It was renewed, released or taken since it was read, so the next look tells.
                None => asked = self.try_ask(task).await?,
            }
        }
        Ok(asked.unwrap_or(Asked::Elsewhere { owner: "another process".to_owned() }))
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
        let expected = Expected::Matching(Condition::and([
            Condition::eq("epoch", lease.epoch),
            Condition::eq("holder", lease.holder.as_str()),
        ]));
        let change = TypedRecords::replacement(lease, expected)?;
        match self.records.write(vec![change]).await {
            Ok(_) => Ok(true),
            Err(RecordError::NotAsExpected { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
