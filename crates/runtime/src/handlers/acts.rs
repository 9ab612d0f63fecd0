//! Acts of operators.

use annals_core::handlers::{Act, ActBody, HandlerError};

use super::TenantHandlers;
use crate::engine::owner::Command;

impl TenantHandlers {
    pub(super) async fn carry_out(&self, name: &str, act: Act, reason: &str) -> Result<(), HandlerError> {
        ActBody { reason: reason.to_owned() }.validate()?;
        let asked = self.ask(name, |answer| Command::Act { act: act.clone(), reason: reason.to_owned(), answer });
        asked.await
    }
}
