//! Running every defined subscription, and following definitions that another process on the same store changes.

use std::sync::Arc;

use annals_core::horizon::{HorizonError, SUBSCRIPTIONS};
use annals_core::{ChangeFollower, ChangesError, StoreError};

use super::TenantHorizon;
use crate::host::{Ended, Supervised, is_set, locked, supervise};

/// Starts the owners of subscriptions.
struct Watch {
    horizon: Arc<TenantHorizon>,
}

impl TenantHorizon {
    /// Starts running the subscriptions.
    pub(super) fn watch(&self) {
        if std::mem::replace(&mut *locked(&self.watching), true) {
            return;
        }
        if let Some(horizon) = self.me.upgrade() {
            supervise(&self.shared, format!("subscriptions/{}", self.tenant), Watch { horizon });
        }
    }

    async fn start_all(&self) -> Result<(), String> {
        let names = self.defined().await.map_err(|error: HorizonError| error.to_string())?;
        names.iter().for_each(|name| self.start(name));
        Ok(())
    }
}

impl Watch {
    async fn follow(&self) -> Result<(), String> {
        let horizon = &self.horizon;
        if !horizon.shared.may_share() {
            return horizon.start_all().await;
        }
        horizon.declare().await.map_err(|error| error.to_string())?;
        let last = horizon.records.last_change(SUBSCRIPTIONS).await.map_err(|error| error.to_string())?;
        horizon.start_all().await?;
        let mut follower = ChangeFollower::new(Arc::clone(&horizon.records), SUBSCRIPTIONS, last);
        loop {
            let changes = match follower.next_page().await {
                Ok(changes) => changes,
                Err(ChangesError::Store(StoreError::Closed)) => return Ok(()),
                // A follower that is too far behind starts over and reads all definitions again.
                Err(error) => return Err(error.to_string()),
            };
            for name in changes.iter().filter_map(|change| change.id.as_str()) {
                // An owner that finds no definition ends.
                horizon.slot(name).changed.send_modify(|count| *count += 1);
                horizon.start(name);
            }
        }
    }
}

impl Supervised for Watch {
    async fn run(&mut self) -> Ended {
        let mut stop = self.horizon.shared.stop.subscribe();
        tokio::select! {
            () = is_set(&mut stop) => Ended::Done,
            followed = self.follow() => followed.map_or_else(Ended::Failed, |()| Ended::Done),
        }
    }
}
