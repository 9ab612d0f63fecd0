//! Following the definitions of sagas and the requests of operators, which may also come from other processes on the same store.

use std::sync::Arc;

use annals_core::sagas::{SAGA_DEFINITIONS, SAGA_REQUESTS, SagaDefinitionRecord, SagaError, SagaRequestRecord};
use annals_core::{ChangeFollower, ChangesError, RecordedChange, StoreError};

use super::HostSagas;
use crate::definitions::readable;
use crate::host::{Ended, Supervised, hosts_started, is_set, supervise};

/// Starts the owners of a tenant, and follows the changes of definitions.
struct Follow {
    sagas: Arc<HostSagas>,
}

impl HostSagas {
    pub(super) fn follow_definitions(&self) {
        if let Some(sagas) = self.me.upgrade() {
            supervise(&self.shared, format!("sagas/{}", self.tenant), Follow { sagas });
        }
    }

    async fn sync_all(&self) -> Result<(), SagaError> {
        for found in readable(&self.typed::<SagaDefinitionRecord>()).await? {
            let name = found.value.name.clone();
            self.arrange(&name, (found.revision, Arc::new(found.value)));
        }
        Ok(())
    }
}

/// Returns the next changes; `None` once the store is closing.
async fn next(follower: &mut ChangeFollower) -> Result<Option<Vec<RecordedChange>>, String> {
    match follower.next_page().await {
        Ok(changes) => Ok(Some(changes)),
        Err(ChangesError::Store(StoreError::Closed)) => Ok(None),
        // A follower that is too far behind starts over and reads everything again.
        Err(error) => Err(error.to_string()),
    }
}

impl Follow {
    /// Starts the defined sagas, and follows definitions and requests if other processes may write them.
    async fn follow(&self) -> Result<(), String> {
        let sagas = &self.sagas;
        let text = |error: SagaError| error.to_string();
        let mut hosts = hosts_started();
        if !sagas.shared.may_share() {
            sagas.sync_all().await.map_err(text)?;
        }
        while !sagas.shared.may_share() {
            // Another host of this process may start on the same store.
            let _ = hosts.changed().await;
        }
        sagas.declare().await.map_err(text)?;
        let mut followers = Vec::new();
        for collection in [SAGA_DEFINITIONS, SAGA_REQUESTS] {
            let last = sagas.records.last_change(collection).await.map_err(|error| error.to_string())?;
            followers.push(ChangeFollower::new(Arc::clone(&sagas.records), collection, last));
        }
        sagas.sync_all().await.map_err(text)?;
        let [definitions, requests] = &mut followers[..] else { return Ok(()) };
        let defined = async {
            while let Some(changes) = next(definitions).await? {
                for name in changes.iter().filter_map(|change| change.id.as_str()) {
                    sagas.sync(name).await.map_err(text)?;
                }
            }
            Ok::<_, String>(())
        };
        let asked = async {
            while let Some(changes) = next(requests).await? {
                for id in changes.iter().filter_map(|change| change.id.as_str()) {
                    let found = sagas.typed::<SagaRequestRecord>().get(id).await.map_err(|error| error.to_string())?;
                    if let Some(found) = found {
                        sagas.wake(&found.value.saga_name);
                    }
                }
            }
            Ok::<_, String>(())
        };
        tokio::try_join!(defined, asked).map(|_| ())
    }
}

impl Supervised for Follow {
    async fn run(&mut self) -> Ended {
        let mut stop = self.sagas.shared.stop.subscribe();
        tokio::select! {
            () = is_set(&mut stop) => Ended::Done,
            followed = self.follow() => followed.map_or_else(Ended::Failed, |()| Ended::Done),
        }
    }
}
