//! The handlers of a tenant that a caller may see.

use std::sync::Arc;

use annals_core::handlers::{
    Act, ActPage, Delivery, HandlerDefinition, HandlerError, HandlerPage, HandlerStatus, Handlers, PartitionPage,
    PullBody, Reason, SettleBody, SettleResult,
};

use super::Scopes;
use super::visible::Visible;
use crate::caller::Caller;
use crate::problem::Problem;
use crate::state::Server;

/// The handlers of a tenant that a caller may see. The methods are those of [`Handlers`].
pub(crate) struct ScopedHandlers {
    handlers: Arc<dyn Handlers>,
    scopes: Scopes,
}

impl ScopedHandlers {
    pub fn of(server: &Server, caller: &Caller) -> Result<Self, Problem> {
        Ok(Self { handlers: server.host.handlers(&caller.tenant)?, scopes: Scopes::of(server, caller) })
    }

    /// Checks that the caller may see a handler; if not, the handler is reported as unknown.
    pub async fn check(&self, name: &str) -> Result<(), HandlerError> {
        match self.scopes.has_handler(name).await? {
            true => Ok(()),
            false => Err(HandlerError::Unknown(name.into())),
        }
    }

    pub async fn put(&self, definition: HandlerDefinition) -> Result<bool, HandlerError> {
        // A handler of the same name in another scope is not affected, because the scope of a handler cannot be changed.
        self.scopes.check(&definition.scope)?;
        self.handlers.put(definition).await
    }

    pub async fn list(&self, after: Option<&str>, limit: usize) -> Result<HandlerPage, HandlerError> {
        let Some(seen) = self.scopes.handlers().await? else { return self.handlers.list(after, limit).await };
        let mut visible = Visible::new(after, limit);
        while let Some((after, limit)) = visible.wanted() {
            let page = self.handlers.list(after, limit).await?;
            visible.add(page.items, page.cursor, |handler| seen.iter().any(|name| **name == *handler.name));
        }
        let (items, cursor) = visible.into_page();
        Ok(HandlerPage { items, cursor })
    }

    pub async fn get(&self, name: &str) -> Result<HandlerStatus, HandlerError> {
        self.check(name).await?;
        self.handlers.get(name).await
    }

    pub async fn delete(&self, name: &str, reason: Reason) -> Result<(), HandlerError> {
        self.check(name).await?;
        self.handlers.delete(name, reason).await
    }

    pub async fn pull(&self, name: &str, pull: PullBody) -> Result<Vec<Delivery>, HandlerError> {
        self.check(name).await?;
        self.handlers.pull(name, pull).await
    }

    pub async fn settle(&self, name: &str, settle: SettleBody) -> Result<Vec<SettleResult>, HandlerError> {
        self.check(name).await?;
        self.handlers.settle(name, settle).await
    }

    pub async fn partitions(
        &self,
        name: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<PartitionPage, HandlerError> {
        self.check(name).await?;
        self.handlers.partitions(name, after, limit).await
    }

    pub async fn act(&self, name: &str, act: Act, reason: Reason) -> Result<(), HandlerError> {
        self.check(name).await?;
        self.handlers.act(name, act, reason).await
    }

    pub async fn acts(&self, name: &str, after: Option<&str>, limit: usize) -> Result<ActPage, HandlerError> {
        self.check(name).await?;
        self.handlers.acts(name, after, limit).await
    }
}
