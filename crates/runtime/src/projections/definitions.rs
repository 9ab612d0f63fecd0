//! Following the definitions of projections, which other processes on the same store may change or delete.

use std::sync::Arc;

use annals_core::projections::{PROJECTIONS, ProjectionError};
use annals_core::{ChangeFollower, ChangesError, StoreError};

use super::TenantProjections;
use crate::definitions::readable;
use crate::host::{Ended, Supervised, is_set, supervise};

/// Starts the builds of a tenant, and follows the changes of definitions.
struct Follow {
    projections: Arc<TenantProjections>,
}

impl TenantProjections {
    pub(super) fn follow_definitions(&self) {
        if let Some(projections) = self.me.upgrade() {
            supervise(&self.shared, format!("projections/{}", self.tenant), Follow { projections });
        }
    }

    async fn sync_all(&self) -> Result<(), ProjectionError> {
        for found in readable(&self.typed()).await? {
            let name = found.value.name.clone();
            self.arrange(&name, &(found.revision, Arc::new(found.value)));
        }
        Ok(())
    }
}

impl Follow {
    /// Starts the defined projections, and follows the definitions if other processes may change them.
    async fn follow(&self) -> Result<(), String> {
        let projections = &self.projections;
        let text = |error: ProjectionError| error.to_string();
        if !projections.shared.may_share() {
            return projections.sync_all().await.map_err(text);
        }
        projections.declare().await.map_err(text)?;
        let last = projections.records.last_change(PROJECTIONS).await.map_err(|error| error.to_string())?;
        projections.sync_all().await.map_err(text)?;
        let mut follower = ChangeFollower::new(Arc::clone(&projections.records), PROJECTIONS, last);
        loop {
            let changes = match follower.next_page().await {
                Ok(changes) => changes,
                Err(ChangesError::Store(StoreError::Closed)) => return Ok(()),
                // A follower that is too far behind starts over and reads all definitions again.
                Err(error) => return Err(error.to_string()),
            };
            for change in &changes {
                if let Some(name) = change.id.as_str() {
                    projections.sync(name).await.map_err(text)?;
                }
            }
        }
    }
}

impl Supervised for Follow {
    async fn run(&mut self) -> Ended {
        let mut stop = self.projections.shared.stop.subscribe();
        tokio::select! {
            () = is_set(&mut stop) => Ended::Done,
            followed = self.follow() => followed.map_or_else(Ended::Failed, |()| Ended::Done),
        }
    }
}
