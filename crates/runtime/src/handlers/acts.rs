//! Acts of operators.

use annals_core::handlers::{Act, ActBody, HandlerError};

use annals_core::StoreError;
use tokio::sync::oneshot;

use super::TenantHandlers;
use crate::engine::owner::Command;

impl TenantHandlers {
    pub(super) async fn carry_out(&self, name: &str, act: Act, reason: &str) -> Result<(), HandlerError> {
        ActBody { reason: reason.to_owned() }.validate()?;
        let owner = self.owner(name).await?;
        let (answer, answered) = oneshot::channel();
        // Asked once: a second skip would be of the next event.
        let unknown = || StoreError::Unreachable("the handler was restarted meanwhile; look at its state".to_owned());
        owner.send(Command::Act { act, reason: reason.to_owned(), answer }).await.map_err(|_| unknown())?;
        answered.await.map_err(|_| unknown())?
    }
}
