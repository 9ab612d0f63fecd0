//! Sagas: long-running work over many services, which survives crashes and undoes itself when it must.

mod definition;
mod error;
mod expression;
mod locate;
mod machine;
mod status;
mod step;
mod stored;
#[cfg(test)]
mod tests;

use async_trait::async_trait;

use crate::handlers::Reason;

pub use definition::{SagaDefinition, SagaStart};
pub use error::SagaError;
pub use machine::{SAGA_AGGREGATE, SagaActed, SagaFailure, SagaInput, SagaMachine, SagaWork};
pub use status::{
    SagaDefinitionPage, SagaDefinitionStatus, SagaPage, SagaQuery, SagaStatistics, SagaStatus, SagaStepStatus,
};
pub use step::SagaCommand;
pub use stored::{
    OutboxEntry, SAGA_DEFINITIONS, SAGA_REQUESTS, SAGAS, SagaAsked, SagaDefinitionRecord, SagaEnding, SagaInner,
    SagaPhase, SagaRecord, SagaRequestRecord, SagaState, SagaVersion, TimelineEntry, saga_id,
};

/// The sagas of one tenant.
///
/// A definition has steps. An event starts a saga, of which there is one for each name and correlation. A step publishes commands and
/// awaits events; when one fails, takes too long or the saga is cancelled, the compensations of what was done are carried out in reverse
/// order. What is promised:
///
/// - **Resumed where it was.** A restart, at any moment, continues at the step that was under way.
/// - **Once.** A command is committed once, whatever crashes: it is stored with the saga before it is committed, under a request id that
///   follows from saga, step and attempt.
/// - **Nothing is lost quietly.** The cause of a failure is kept. A compensation that fails is attempted again as its policy says, and then
///   waits visibly for an operator.
/// - **Timers fire once**, also after the process was down. What waits costs nothing: what is due is found by an index.
/// - **Versions live side by side.** A saga keeps the version that it began with.
/// - **One owner.** Of several processes on one store, one at a time carries out the sagas of a definition.
/// - **Told.** `saga_started`, `saga_compensating`, `saga_compensated`, `saga_completed`, `saga_failed` and `saga_cancelled` are committed
///   to the aggregate `saga`/ID.
#[async_trait]
pub trait Sagas: Send + Sync + 'static {
    /// Defines sagas, or adds a version, with which new sagas begin. The same definition again does nothing.
    ///
    /// # Errors
    /// [`SagaError::NotAllowed`] when the version is not greater than the newest one and the definition differs; else see [`SagaError`].
    async fn define(&self, definition: SagaDefinition) -> Result<PutSaga, SagaError>;

    /// Lists definitions by name: those after `after`, at most `limit`.
    ///
    /// # Errors
    /// See [`SagaError`].
    async fn definitions(&self, after: Option<&str>, limit: usize) -> Result<SagaDefinitionPage, SagaError>;

    /// Returns a definition.
    ///
    /// # Errors
    /// See [`SagaError`].
    async fn definition(&self, name: &str) -> Result<SagaDefinitionStatus, SagaError>;

    /// Deletes a definition. Sagas that are over stay.
    ///
    /// # Errors
    /// [`SagaError::NotAllowed`] while a saga of it is not over; else see [`SagaError`].
    async fn delete_definition(&self, name: &str, reason: Reason) -> Result<(), SagaError>;

    /// Lists sagas, the newest first.
    ///
    /// # Errors
    /// See [`SagaError`].
    async fn list(&self, query: SagaQuery) -> Result<SagaPage, SagaError>;

    /// Returns a saga with the timeline of its steps.
    ///
    /// # Errors
    /// See [`SagaError`].
    async fn get(&self, id: &str) -> Result<SagaStatus, SagaError>;

    /// Cancels a saga: what it did is undone. Answers once that is stored; compensations follow.
    ///
    /// # Errors
    /// [`SagaError::NotAllowed`] when it is over or undoes itself already; else see [`SagaError`].
    async fn cancel(&self, id: &str, reason: Reason) -> Result<SagaStatus, SagaError>;

    /// Attempts the step or compensation at once that is parked, or pauses before its next attempt.
    ///
    /// # Errors
    /// [`SagaError::NotAllowed`] when none is; else see [`SagaError`].
    async fn retry(&self, id: &str, reason: Reason) -> Result<SagaStatus, SagaError>;

    /// Counts the sagas of a definition, or all.
    ///
    /// # Errors
    /// See [`SagaError`].
    async fn statistics(&self, name: Option<&str>) -> Result<SagaStatistics, SagaError>;
}

/// What became of a definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutSaga {
    /// There was none of this name.
    Created,
    /// It is a further version.
    Changed,
    /// It is defined so already.
    Unchanged,
}
