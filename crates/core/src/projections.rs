//! Projections: records derived from the events of the log, kept up to date by rules or by a program.

mod definition;
mod error;
mod expression;
mod fold;
mod number;
mod rule;
mod status;
mod stored;
#[cfg(test)]
mod tests;

use async_trait::async_trait;

use crate::handlers::{ActPage, Reason};
use crate::{Record, RecordPage, RecordQuery};

pub use definition::ProjectionDefinition;
pub use error::ProjectionError;
pub use fold::{Changed, Folded, Misfit, Projector, Reducer, Unfolded, Working};
pub use status::{BuildStatus, ProjectionPage, ProjectionState, ProjectionStatus};
pub use stored::{BuildRecord, DroppedRecord, PROJECTIONS, ProjectionRecord};

pub(crate) use fold::key_bytes;

/// The projections of one tenant.
///
/// A projection folds the events of the log, in order, into records: one for each key. Its guarantees:
///
/// - **Exactly once.** Record changes and the position up to which events are folded are one batch. A restart resumes from there.
/// - **Never half.** An event that does not fit (a sum with a text, for example) stops the projection before it, with a reason that names
///   the event and the field. Nothing of that event is written.
/// - **A changed definition is built beside the live records**, in another collection. Once it has caught up, it replaces them in one
///   batch. Reads follow the live records and never see a mixture. The replaced records are removed afterwards.
/// - **One owner.** If several processes share a store, only one at a time writes the records of a build.
#[async_trait]
pub trait Projections: Send + Sync + 'static {
    /// Defines a projection, or starts to build a changed definition beside the live records. Putting the same definition again does
    /// nothing.
    ///
    /// # Errors
    /// [`ProjectionError::NotAllowed`] if the version is lower than the stored one; otherwise see [`ProjectionError`].
    async fn put(&self, definition: ProjectionDefinition) -> Result<PutProjection, ProjectionError>;

    /// Lists projections by name: those after `after`, at most `limit`.
    ///
    /// # Errors
    /// See [`ProjectionError`].
    async fn list(&self, after: Option<&str>, limit: usize) -> Result<ProjectionPage, ProjectionError>;

    /// Returns the state of a projection.
    ///
    /// # Errors
    /// See [`ProjectionError`].
    async fn get(&self, name: &str) -> Result<ProjectionStatus, ProjectionError>;

    /// Deletes a projection. Its records can no longer be read, and are removed afterwards.
    ///
    /// # Errors
    /// See [`ProjectionError`].
    async fn delete(&self, name: &str, reason: Reason) -> Result<(), ProjectionError>;

    /// Applies an operator's act, and records it in the same batch.
    ///
    /// # Errors
    /// See [`ProjectionError`]; in that case nothing was changed or recorded.
    async fn act(&self, name: &str, act: ProjectionAct, reason: Reason) -> Result<(), ProjectionError>;

    /// Lists the acts on a projection, newest first: those before `after`, at most `limit`. Acts on a deleted projection stay.
    ///
    /// # Errors
    /// See [`ProjectionError`].
    async fn acts(&self, name: &str, after: Option<&str>, limit: usize) -> Result<ActPage, ProjectionError>;

    /// Returns one page of the live records that match a query, whose collection is ignored. A cursor stays valid when a changed
    /// definition takes over.
    ///
    /// # Errors
    /// See [`ProjectionError`].
    async fn find(&self, name: &str, query: RecordQuery) -> Result<RecordPage, ProjectionError>;

    /// Returns the live record of a key.
    ///
    /// # Errors
    /// See [`ProjectionError`].
    async fn record(&self, name: &str, key: &bson::Bson) -> Result<Option<Record>, ProjectionError>;
}

/// The effect of putting a definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutProjection {
    /// There was no projection of this name.
    Created,
    /// It is built beside the live records of the earlier definition.
    Changed,
    /// The same definition was already stored.
    Unchanged,
}

/// An act of an operator on a projection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProjectionAct {
    /// Stops folding events.
    Pause,
    /// Resumes folding events, including the one that stopped it.
    Resume,
    /// Rebuilds the records from the first event, beside the live ones.
    Rebuild,
}

impl ProjectionAct {
    /// Returns its name in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Rebuild => "rebuild",
        }
    }
}
