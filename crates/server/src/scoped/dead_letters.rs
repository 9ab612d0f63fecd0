//! The dead letters of a tenant that a caller may see: those of groups and partners, whose events belong to the default scope, and those
//! of handlers that the caller may see.

use std::sync::Arc;

use annals_core::dead_letters::{
    BulkAct, BulkBody, BulkOutcome, DeadLetterError, DeadLetters, LetterPage, LetterPolicy, LetterQuery, LetterView,
    PolicyPage, PolicyStatus, Statistics,
};
use annals_core::handlers::{HandlerError, Reason};
use annals_core::{ByteString, Condition};

use super::Scopes;
use crate::caller::Caller;
use crate::problem::Problem;
use crate::state::Server;

/// The dead letters of a tenant that a caller may see. The methods are those of [`DeadLetters`].
pub(crate) struct ScopedDeadLetters {
    letters: Arc<dyn DeadLetters>,
    scopes: Scopes,
}

impl ScopedDeadLetters {
    pub fn of(server: &Server, caller: &Caller) -> Result<Self, Problem> {
        Ok(Self { letters: server.host.dead_letters(&caller.tenant)?, scopes: Scopes::of(server, caller) })
    }

    pub async fn list(&self, query: LetterQuery) -> Result<LetterPage, DeadLetterError> {
        match self.scopes.handlers().await.map_err(failed)? {
            None => self.letters.list(query).await,
            Some(seen) => self.scopes.host.list_dead_letters(&self.scopes.tenant, &query, those_of(&seen)).await,
        }
    }

    pub async fn get(&self, id: &str) -> Result<LetterView, DeadLetterError> {
        let letter = self.letters.get(id).await?;
        if let Some(handler) = &letter.handler
            && !self.scopes.has_handler(handler).await.map_err(failed)?
        {
            return Err(DeadLetterError::Unknown(id.into()));
        }
        Ok(letter)
    }

    pub async fn retry(&self, id: &str, reason: Reason) -> Result<LetterView, DeadLetterError> {
        if !self.scopes.are_all() {
            self.get(id).await?;
        }
        self.letters.retry(id, reason).await
    }

    pub async fn discard(&self, id: &str, reason: Reason) -> Result<LetterView, DeadLetterError> {
        if !self.scopes.are_all() {
            self.get(id).await?;
        }
        self.letters.discard(id, reason).await
    }

    /// Acts on letters as [`DeadLetters::bulk`] does, restricted to those that the caller may see. An id of another letter is refused
    /// before anything is changed.
    pub async fn bulk(&self, act: BulkAct, mut body: BulkBody) -> Result<BulkOutcome, DeadLetterError> {
        if let Some(seen) = self.scopes.handlers().await.map_err(failed)? {
            for id in body.ids.iter().flatten() {
                match self.letters.get(id).await {
                    Ok(letter) if !of_one(&letter, &seen) => return Err(DeadLetterError::Unknown(id.clone())),
                    Ok(_) | Err(DeadLetterError::Unknown(_)) => {}
                    Err(error) => return Err(error),
                }
            }
            if let Some(condition) = body.condition.take() {
                body.condition = Some(Condition::and([condition, those_of(&seen)]));
            }
        }
        self.letters.bulk(act, body).await
    }

    pub async fn statistics(&self) -> Result<Statistics, DeadLetterError> {
        match self.scopes.handlers().await.map_err(failed)? {
            None => self.letters.statistics().await,
            Some(seen) => self.scopes.host.count_dead_letters(&self.scopes.tenant, &those_of(&seen)).await,
        }
    }

    pub async fn policies(&self, after: Option<&str>, limit: usize) -> Result<PolicyPage, DeadLetterError> {
        self.letters.policies(after, limit).await
    }

    pub async fn policy(&self, topic: &str) -> Result<PolicyStatus, DeadLetterError> {
        self.letters.policy(topic).await
    }

    pub async fn put_policy(
        &self,
        topic: ByteString,
        policy: LetterPolicy,
        reason: Reason,
    ) -> Result<PolicyStatus, DeadLetterError> {
        self.letters.put_policy(topic, policy, reason).await
    }

    pub async fn delete_policy(&self, topic: &str, reason: Reason) -> Result<PolicyStatus, DeadLetterError> {
        self.letters.delete_policy(topic, reason).await
    }
}

/// Returns whether a letter belongs to no handler or to one of these.
fn of_one(letter: &LetterView, handlers: &[String]) -> bool {
    letter.handler.as_ref().is_none_or(|handler| handlers.iter().any(|name| **name == **handler))
}

/// Returns the condition that matches letters of no handler or of one of these.
fn those_of(handlers: &[String]) -> Condition {
    let mut either = vec![Condition::nor([Condition::starts_with("processor", "handler/")])];
    if !handlers.is_empty() {
        let processors: Vec<String> = handlers.iter().map(|name| format!("handler/{name}")).collect();
        either.push(Condition::is_in("processor", processors));
    }
    Condition::or(either)
}

fn failed(error: HandlerError) -> DeadLetterError {
    match error {
        HandlerError::Invalid(invalid) => invalid.into(),
        HandlerError::Store(error) => error.into(),
        other => annals_core::StoreError::Unreachable(other.to_string()).into(),
    }
}
