//! Watching the definitions of handlers, which other processes on the same store may change or delete.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use annals_core::handlers::{DefinitionRecord, HandlerError};
use annals_core::{ChangeFollower, ChangesError, StoreError, TypedRecords};
use tokio::sync::oneshot;

use super::TenantHandlers;
use crate::engine::owner::Command;
use crate::host::{Ended, Supervised, locked, supervise};

/// Follows the changes of definitions, and notifies the owners in this process.
struct Watch {
    handlers: Arc<TenantHandlers>,
}

impl TenantHandlers {
    /// Starts watching the definitions, if other processes may change them.
    pub(super) fn watch_definitions(&self) {
        if !self.shared.may_share() || self.watched.swap(true, Ordering::Relaxed) {
            return;
        }
        if let Some(handlers) = self.me.upgrade() {
            supervise(
                &self.shared,
                format!("definitions/{}/{}", self.kind.definitions(), self.tenant),
                Watch { handlers },
            );
        }
    }

    /// Sends the current definition to the owner in this process, if there is one.
    async fn read_again(&self, name: &str) -> Result<(), HandlerError> {
        let Some(owner) = self.running(name) else { return Ok(()) };
        let command = match self.definition(name).await {
            Ok(definition) => Command::Redefine { definition: Box::new(definition) },
            Err(HandlerError::Unknown(_)) => Command::Delete { answer: oneshot::channel().0 },
            Err(error) => return Err(error),
        };
        // An owner that has ended reads the definition when it starts again.
        let _ = owner.send(command).await;
        Ok(())
    }

    async fn read_all_again(&self) -> Result<(), HandlerError> {
        let names: Vec<String> = locked(&self.owners).keys().cloned().collect();
        for name in names {
            self.read_again(&name).await?;
        }
        Ok(())
    }
}

impl Watch {
    /// Follows changes from now on, after reading all definitions once.
    async fn follow(&self) -> Result<(), String> {
        let handlers = &self.handlers;
        // Collections of an earlier version of Annals have no feed yet.
        let (records, collection) = (Arc::clone(&handlers.records), handlers.kind.definitions());
        let declared = TypedRecords::<DefinitionRecord>::declare_as(records, collection).await;
        declared.map_err(|error| error.to_string())?;
        let last = handlers.records.last_change(collection).await.map_err(|error| error.to_string())?;
        handlers.read_all_again().await.map_err(|error| error.to_string())?;
        let mut follower = ChangeFollower::new(Arc::clone(&handlers.records), collection, last);
        loop {
            let changes = match follower.next_page().await {
                Ok(changes) => changes,
                Err(ChangesError::Store(StoreError::Closed)) => return Ok(()),
                // A follower that is too far behind starts over and reads all definitions again.
                Err(error) => return Err(error.to_string()),
            };
            for change in &changes {
                if let Some(name) = change.id.as_str() {
                    handlers.read_again(name).await.map_err(|error| error.to_string())?;
                }
            }
        }
    }
}

impl Supervised for Watch {
    async fn run(&mut self) -> Ended {
        let stop = self.handlers.stop();
        tokio::select! {
            () = stop.stopped() => Ended::Done,
            followed = self.follow() => followed.map_or_else(Ended::Failed, |()| Ended::Done),
        }
    }
}
