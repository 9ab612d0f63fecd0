//! The handlers of a tenant with their dead letters. Deleting a handler discards its open letters.

use std::sync::Arc;

use annals_core::bson::Document;
use annals_core::handlers::{
    Act, ActPage, Delivery, HandlerDefinition, HandlerError, HandlerPage, HandlerStatus, Handlers, PartitionPage,
    PullBody, Reason, SettleBody, SettleResult,
};
use async_trait::async_trait;

use super::TenantHandlers;
use crate::dead_letters::TenantDeadLetters;
use crate::host::detached;

/// The handlers of a tenant, and the service that manages their letters.
pub(crate) struct LetteredHandlers {
    pub handlers: Arc<TenantHandlers>,
    pub letters: Arc<TenantDeadLetters>,
}

#[async_trait]
impl Handlers for LetteredHandlers {
    async fn put(&self, definition: HandlerDefinition) -> Result<bool, HandlerError> {
        self.letters.start();
        self.handlers.put(definition).await
    }

    async fn list(&self, after: Option<&str>, limit: usize) -> Result<HandlerPage, HandlerError> {
        self.handlers.list(after, limit).await
    }

    async fn get(&self, name: &str) -> Result<HandlerStatus, HandlerError> {
        self.handlers.get(name).await
    }

    async fn delete(&self, name: &str, reason: Reason) -> Result<(), HandlerError> {
        let (handlers, letters) = (Arc::clone(&self.handlers), Arc::clone(&self.letters));
        let name = name.to_owned();
        let deleting = async move {
            handlers.delete(&name, reason.clone()).await?;
            letters.give_up(&handlers.processor_of(&name), reason).await
        };
        detached(deleting).await
    }

    async fn pull(&self, name: &str, pull: PullBody) -> Result<Vec<Delivery>, HandlerError> {
        self.handlers.pull(name, pull).await
    }

    async fn settle(&self, name: &str, settle: SettleBody) -> Result<Vec<SettleResult>, HandlerError> {
        self.handlers.settle(name, settle).await
    }

    async fn partitions(&self, name: &str, after: Option<&str>, limit: usize) -> Result<PartitionPage, HandlerError> {
        self.handlers.partitions(name, after, limit).await
    }

    async fn act(&self, name: &str, act: Act, reason: Reason) -> Result<(), HandlerError> {
        self.handlers.act(name, act, reason).await
    }

    async fn acts(&self, name: &str, after: Option<&str>, limit: usize) -> Result<ActPage, HandlerError> {
        self.handlers.acts(name, after, limit).await
    }

    async fn states(&self, scope: &str) -> Result<Vec<Document>, HandlerError> {
        self.handlers.states(scope).await
    }
}
