//! The policies that the letters of a topic follow.

use std::sync::Arc;

use annals_core::dead_letters::{LetterPolicy, PolicyRecord, PolicyStatus};
use annals_core::types::{EventTypes, TypeError};
use annals_core::{DEFAULT_CATEGORY, RecordError, Records, StoreError, Timestamp, TypedRecords, UnknownLog};

use crate::host::Shared;

/// The policies of a tenant: those stored for topics, and those of categories.
#[derive(Clone)]
pub(crate) struct Policies {
    records: Arc<dyn Records>,
    types: Arc<dyn EventTypes>,
}

impl Policies {
    pub fn of_tenant(shared: &Shared, tenant: &str) -> Result<Self, UnknownLog> {
        Ok(Self { records: shared.store.records(tenant)?, types: shared.store.event_types(tenant)? })
    }

    /// Returns the policy of a topic that carries events of this type.
    pub async fn of(&self, topic: &str, event_type: &str) -> Result<PolicyStatus, RecordError> {
        let category = match self.types.get(event_type).await {
            Ok(known) => known.category,
            // An adapter by itself has no registry.
            Err(TypeError::Unknown(_) | TypeError::Store(StoreError::NotSupported(_))) => DEFAULT_CATEGORY.into(),
            Err(TypeError::Store(error)) => return Err(error.into()),
            Err(_) => DEFAULT_CATEGORY.into(),
        };
        let policies = TypedRecords::<PolicyRecord>::declared(Arc::clone(&self.records));
        let stored = match policies.get(topic).await {
            Err(RecordError::UnknownCollection(_)) => None,
            stored => stored?.map(|stored| stored.value),
        };
        let policy = LetterPolicy::of_category(&category);
        let shown = PolicyStatus {
            topic: topic.into(),
            is_override: false,
            policy,
            category,
            reason: None,
            by: None,
            at: None,
        };
        Ok(match stored {
            Some(PolicyRecord { policy: Some(own), reason, by, at, .. }) => PolicyStatus {
                is_override: true,
                policy: own,
                reason: Some(reason),
                by,
                at: Some(Timestamp::from_millis(at.timestamp_millis())),
                ..shown
            },
            _ => shown,
        })
    }
}
