//! Sagas: long-running work across services that survives crashes and compensates its steps if it does not complete.

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
/// A definition has steps. An event starts a saga; there is one saga for each name and correlation. A step publishes commands and awaits
/// events. If a step fails or exceeds its time limit, or the saga is cancelled, the compensations of the steps taken so far run in reverse
/// order. The guarantees:
///
/// - **Resumes where it was.** After a restart at any moment, a saga continues at its current step.
/// - **Once.** A command is committed once, whatever crashes: it is stored with the saga before it is committed, under a request id
///   derived from saga, step and attempt.
/// - **No silent failures.** The cause of a failure is kept. A compensation that fails is retried according to its policy, and is then
///   parked for an operator.
/// - **Timers fire once**, even after downtime. A waiting saga costs nothing: due sagas are found by an index.
/// - **Versions coexist.** A saga keeps the version with which it began.
/// - **One owner.** Of several processes on one store, one at a time runs the sagas of a definition.
/// - **Reported.** `saga_started`, `saga_compensating`, `saga_compensated`, `saga_completed`, `saga_failed` and `saga_cancelled` are
///   committed to the aggregate `saga`/ID.
#[async_trait]
pub trait Sagas: Send + Sync + 'static {
    /// Defines sagas, or adds a version, with which new sagas begin. Putting the same definition again does nothing.
    ///
    /// # Errors
    /// [`SagaError::NotAllowed`] if the definition differs and its version is not greater than the newest one; otherwise see
    /// [`SagaError`].
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

    /// Deletes a definition. Sagas that have ended are kept.
    ///
    /// # Errors
    /// [`SagaError::NotAllowed`] while one of its sagas has not ended; otherwise see [`SagaError`].
    async fn delete_definition(&self, name: &str, reason: Reason) -> Result<(), SagaError>;

    /// Lists sagas, newest first.
    ///
    /// # Errors
    /// See [`SagaError`].
    async fn list(&self, query: SagaQuery) -> Result<SagaPage, SagaError>;

    /// Returns a saga with the timeline of its steps.
    ///
    /// # Errors
    /// See [`SagaError`].
    async fn get(&self, id: &str) -> Result<SagaStatus, SagaError>;

    /// Cancels a saga, so that its steps are compensated. Returns once the request is stored; compensations follow.
    ///
    /// # Errors
    /// [`SagaError::NotAllowed`] if it has ended or is already compensating; otherwise see [`SagaError`].
    async fn cancel(&self, id: &str, reason: Reason) -> Result<SagaStatus, SagaError>;

    /// Immediately retries the step or compensation that is parked, or paused before its next attempt.
    ///
    /// # Errors
    /// [`SagaError::NotAllowed`] if none is; otherwise see [`SagaError`].
    async fn retry(&self, id: &str, reason: Reason) -> Result<SagaStatus, SagaError>;

    /// Counts the sagas of a definition, or all sagas.
    ///
    /// # Errors
    /// See [`SagaError`].
    async fn statistics(&self, name: Option<&str>) -> Result<SagaStatistics, SagaError>;
}

/// The outcome of defining sagas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutSaga {
    /// There was no definition of this name.
    Created,
    /// It was added as a new version.
    Changed,
    /// The same definition already exists.
    Unchanged,
}
