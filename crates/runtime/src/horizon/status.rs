//! The state of subscriptions: from what is stored for callers, and from the owners of this process for metrics.

use std::sync::Arc;

use annals_core::horizon::{
    HorizonError, IntakeState, Progress, ProgressRecord, SubscriptionDefinition, SubscriptionStatus,
};
use annals_core::{Lease, ReceiveError, StoreError, SubscriptionState, TypedRecords};

use super::{TenantHorizon, absent};
use crate::host::locked;

/// What the owner of a subscription in this process knows of it.
#[derive(Debug, Clone, PartialEq)]
pub struct SubscriptionGauge {
    /// Its tenant.
    pub tenant: String,
    /// Its name.
    pub name: String,
    /// What is known of it.
    pub progress: Progress,
}

impl SubscriptionGauge {
    /// Why it does not receive, if that is so: the last reason.
    pub fn degraded(&self) -> Option<&str> {
        match self.progress.state {
            IntakeState::Failing | IntakeState::Refused | IntakeState::Blocked => {
                Some(self.progress.last_reason.as_deref().unwrap_or_default())
            }
            _ => None,
        }
    }
}

impl TenantHorizon {
    pub(super) async fn noted(&self, definition: &SubscriptionDefinition) -> Result<Progress, HorizonError> {
        let notes = TypedRecords::<ProgressRecord>::declared(Arc::clone(&self.records));
        let found = absent(notes.get(&*definition.name).await)?;
        Ok(found.map(|found| found.value.read(definition)).unwrap_or_default())
    }

    pub(super) async fn status(&self, definition: SubscriptionDefinition) -> Result<SubscriptionStatus, HorizonError> {
        let mut progress = self.noted(&definition).await?;
        let owner = self.owner_of(&definition.name).await?;
        // Where the owner is here, it knows more than it has noted.
        if owner.as_ref() == Some(&self.shared.process)
            && let Some(known) = locked(&self.slot(&definition.name).known).clone()
        {
            progress = known;
        }
        let stored = match &progress.microservice {
            Some(microservice) => {
                let receiving = self.store().receiving(&self.tenant, &definition.scope)?;
                receiving.state(&definition.subscription(microservice)).await.map_err(not_read)?
            }
            None => SubscriptionState::default(),
        };
        Ok(SubscriptionStatus::of(definition, progress, stored, owner, self.clock().now()))
    }

    /// The process that follows the producer now.
    async fn owner_of(&self, name: &str) -> Result<Option<String>, HorizonError> {
        let leases = TypedRecords::<Lease>::declared(Arc::clone(&self.records));
        let lease = absent(leases.get(format!("subscription/{name}")).await)?.map(|lease| lease.value);
        let (here, now) = (&self.shared.process, self.clock().now());
        let holds = |lease: &Lease| match lease.holder == *here {
            true => *locked(&self.slot(name).runs),
            false => self.shared.holds(lease, now),
        };
        Ok(lease.filter(holds).map(|lease| lease.holder))
    }

    pub(super) fn gauges(&self) -> Vec<SubscriptionGauge> {
        let slots: Vec<_> = locked(&self.slots).iter().map(|(name, slot)| (name.clone(), Arc::clone(slot))).collect();
        let known = slots.into_iter().filter_map(|(name, slot)| Some((name, locked(&slot.known).clone()?)));
        known.map(|(name, progress)| SubscriptionGauge { tenant: self.tenant.clone(), name, progress }).collect()
    }
}

fn not_read(error: ReceiveError) -> HorizonError {
    match error {
        ReceiveError::Invalid(invalid) => invalid.into(),
        ReceiveError::Store(error) => error.into(),
        other => StoreError::Unreachable(other.to_string()).into(),
    }
}
