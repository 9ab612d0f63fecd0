//! Running every defined filter, and following definitions that another process on the same store changes.

use std::sync::Arc;

use annals_core::filters::{FILTERS, FilterKind};
use annals_core::{ChangeFollower, ChangesError, StoreError};

use super::TenantFilters;
use crate::host::{Ended, Supervised, is_set, locked, supervise};

/// Starts the owners of declared filters.
struct Watch {
    filters: Arc<TenantFilters>,
}

impl TenantFilters {
    /// Starts running the filters.
    pub(super) fn watch(&self) {
        if std::mem::replace(&mut *locked(&self.watching), true) {
            return;
        }
        if let Some(filters) = self.me.upgrade() {
            supervise(&self.shared, format!("filters/{}", self.tenant), Watch { filters });
        }
    }

    /// Starts the owner of a filter, or notifies it that the definition changed.
    async fn read_again(&self, key: &str) -> Result<(), String> {
        let found = self.record(key).await.map_err(|error| error.to_string())?;
        self.slot(key).changed.send_modify(|change| *change += 1);
        let kind = found.and_then(|found| found.value.read().ok()).map(|definition| definition.kind);
        if kind == Some(FilterKind::Declared) {
            self.start(key);
        }
        Ok(())
    }

    async fn start_all(&self) -> Result<(), String> {
        let keys = self.declared().await.map_err(|error| error.to_string())?;
        for key in keys {
            self.start(&key);
        }
        Ok(())
    }
}

impl Watch {
    async fn follow(&self) -> Result<(), String> {
        let filters = &self.filters;
        if !filters.shared.may_share() {
            return filters.start_all().await;
        }
        filters.declare().await.map_err(|error| error.to_string())?;
        let last = filters.records.last_change(FILTERS).await.map_err(|error| error.to_string())?;
        filters.start_all().await?;
        let mut follower = ChangeFollower::new(Arc::clone(&filters.records), FILTERS, last);
        loop {
            let changes = match follower.next_page().await {
                Ok(changes) => changes,
                Err(ChangesError::Store(StoreError::Closed)) => return Ok(()),
                // A follower that is too far behind starts over and reads all definitions again.
                Err(error) => return Err(error.to_string()),
            };
            for change in &changes {
                if let Some(key) = change.id.as_str() {
                    filters.read_again(key).await?;
                }
            }
        }
    }
}

impl Supervised for Watch {
    async fn run(&mut self) -> Ended {
        let mut stop = self.filters.shared.stop.subscribe();
        tokio::select! {
            () = is_set(&mut stop) => Ended::Done,
            followed = self.follow() => match followed {
                Ok(()) => Ended::Done,
                // If the store is closed there is nothing to follow; other failures are retried.
                Err(error) => Ended::Failed(error),
            },
        }
    }
}
