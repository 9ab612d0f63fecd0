//! The status of subscriptions, from stored data.

use std::sync::Arc;

use annals_core::horizon::{
    HorizonError, IntakeState, Progress, ProgressRecord, SubscriptionDefinition, SubscriptionRecord, SubscriptionStatus,
};
use annals_core::{Lease, ReadError, ReceiveError, StoreError, SubscriptionState, Timestamp, TypedRecords};

use super::{TenantHorizon, absent};
use crate::health::{ProcessorHealth, all};
use crate::host::locked;

impl TenantHorizon {
    pub(super) async fn noted(&self, definition: &SubscriptionDefinition) -> Result<Progress, HorizonError> {
        let notes = TypedRecords::<ProgressRecord>::declared(Arc::clone(&self.records));
        let found = absent(notes.get(&*definition.name).await)?;
        Ok(found.map(|found| found.value.read(definition)).unwrap_or_default())
    }

    pub(super) async fn status(&self, definition: SubscriptionDefinition) -> Result<SubscriptionStatus, HorizonError> {
        let mut progress = self.noted(&definition).await?;
        let owner = self.owner_of(&definition.name).await?;
        // If the owner runs here, it knows more than it has noted.
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

    /// Returns the process that follows the producer now.
    async fn owner_of(&self, name: &str) -> Result<Option<String>, HorizonError> {
        let leases = TypedRecords::<Lease>::declared(Arc::clone(&self.records));
        let lease = absent(leases.get(format!("subscription/{name}")).await)?.map(|lease| lease.value);
        let Some(lease) = lease else { return Ok(None) };
        let holds = match lease.holder == self.shared.process {
            true => *locked(&self.slot(name).runs),
            false => self.shared.holds(&self.tenant, &self.records, &lease).await?,
        };
        Ok(holds.then_some(lease.holder))
    }

    /// Returns the health of every subscription.
    pub(crate) async fn health(&self) -> Result<Vec<ProcessorHealth>, ReadError> {
        let mut health = Vec::new();
        for record in all::<SubscriptionRecord>(&self.records).await? {
            let status = match record.read() {
                Ok(definition) => self.status(definition).await.map_err(|error| error.to_string()),
                Err(why) => Err(why.to_string()),
            };
            health.push(self.health_of(&record, status));
        }
        Ok(health)
    }

    /// Returns the health of one subscription. One whose state cannot be read is degraded and does not hide the others.
    fn health_of(&self, record: &SubscriptionRecord, status: Result<SubscriptionStatus, String>) -> ProcessorHealth {
        let defined = Timestamp::from_millis(record.defined.timestamp_millis());
        let since_defined = self.clock().now().since(defined).as_secs();
        let known = status.as_ref().ok();
        let state = known.map(|status| status.state);
        let degraded = match &status {
            Err(why) => Some(why.clone()),
            Ok(SubscriptionStatus { state: IntakeState::Connecting | IntakeState::Running, .. }) => None,
            Ok(SubscriptionStatus { state: IntakeState::Stopped, .. }) => {
                Some("no process receives from the producer".to_owned())
            }
            Ok(status) => Some(status.last_reason.clone().unwrap_or_default()),
        };
        ProcessorHealth {
            tenant: self.tenant.clone(),
            kind: "subscription",
            name: record.name.clone(),
            position: known.map_or(0, |status| status.head.saturating_sub(status.lag)),
            head: known.map_or(0, |status| status.head),
            // The age of the producer's events that were not received is not known here.
            lag_seconds: 0,
            seconds_since_progress: known.and_then(|status| status.seconds_since_progress).unwrap_or(since_defined),
            failing: u64::from(matches!(state, Some(IntakeState::Failing | IntakeState::Refused))),
            letters: 0,
            blocked: u64::from(state == Some(IntakeState::Blocked)),
            owner: known.and_then(|status| status.owner.clone()),
            degraded,
        }
    }
}

fn not_read(error: ReceiveError) -> HorizonError {
    match error {
        ReceiveError::Invalid(invalid) => invalid.into(),
        ReceiveError::Store(error) => error.into(),
        other => StoreError::Unreachable(other.to_string()).into(),
    }
}
