//! Groups of consumers: programs that process the messages of topics, in order per key, each group on its own.

mod definition;
mod error;
mod guard;
mod status;

use async_trait::async_trait;

use crate::handlers::{Act, Delivery, PartitionPage, PullBody, Reason, SettleBody, SettleResult};

pub use definition::GroupDefinition;
pub use error::GroupError;
pub use guard::{GUARD_SECONDS, GUARDED, Guard, GuardRecord, GuardSettings};
pub use status::{GroupLag, GroupPage, GroupStatus};

/// The collection of definitions of groups.
pub const GROUPS: &str = "annals-groups";

/// The groups of one tenant.
///
/// A group is defined once; its consumers then *pull* deliveries and *settle* each, as workers of a handler do. What is promised is what
/// [`Handlers`](crate::handlers::Handlers) promises, with these words:
///
/// - **Each group on its own.** Every group gets every message of its topics, whatever other groups do.
/// - **In order per key.** The key of a message is the id of its aggregate; partitions are aggregates. Up to `in_flight` of them are
///   processed at a time, across all topics of the group.
/// - **Only what is done counts.** A message is delivered until its success was answered. A failing key keeps its place, and holds up no
///   other.
/// - **From the earliest** message on, unless the definition says otherwise.
#[async_trait]
pub trait Groups: Send + Sync + 'static {
    /// Defines a group, or changes how an existing one hands messages out. Topics that are missing are created. Returns true when the group
    /// did not exist before.
    ///
    /// # Errors
    /// [`GroupError::Changed`] when its topics or start differ; else see [`GroupError`].
    async fn put(&self, definition: GroupDefinition) -> Result<bool, GroupError>;

    /// Lists groups by name: those after `after`, at most `limit`.
    ///
    /// # Errors
    /// See [`GroupError`].
    async fn list(&self, after: Option<&str>, limit: usize) -> Result<GroupPage, GroupError>;

    /// Returns the state of a group.
    ///
    /// # Errors
    /// See [`GroupError`].
    async fn get(&self, name: &str) -> Result<GroupStatus, GroupError>;

    /// Deletes a group with its offsets.
    ///
    /// # Errors
    /// See [`GroupError`].
    async fn delete(&self, name: &str, reason: Reason) -> Result<(), GroupError>;

    /// Takes deliveries; waits for the first as long as the request says. Dropping the future before it returns takes none.
    ///
    /// # Errors
    /// See [`GroupError`].
    async fn pull(&self, name: &str, pull: PullBody) -> Result<Vec<Delivery>, GroupError>;

    /// Settles deliveries in the order given, and answers each once that is stored.
    ///
    /// # Errors
    /// See [`GroupError`]; then nothing is known to be settled, and it is safe to settle again.
    async fn settle(&self, name: &str, settle: SettleBody) -> Result<Vec<SettleResult>, GroupError>;

    /// Lists failing keys by name: those after `after`, at most `limit`.
    ///
    /// # Errors
    /// See [`GroupError`].
    async fn partitions(&self, name: &str, after: Option<&str>, limit: usize) -> Result<PartitionPage, GroupError>;

    /// Does what an operator asks for, records it in the same batch, and answers once both are stored.
    ///
    /// # Errors
    /// See [`GroupError`]; nothing was changed or recorded then.
    async fn act(&self, name: &str, act: Act, reason: Reason) -> Result<(), GroupError>;
}
