//! Groups of consumers: programs that process the messages of topics, in order per key. Groups do not affect each other.

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

/// The collection of group definitions.
pub const GROUPS: &str = "annals-groups";

/// The groups of one tenant.
///
/// A group is defined once; its consumers then *pull* deliveries and *settle* each one, as workers of a handler do. The guarantees are
/// those of [`Handlers`](crate::handlers::Handlers), in the terms of groups:
///
/// - **Independent groups.** Every group gets every message of its topics, whatever other groups do.
/// - **In order per key.** The key of a message is the id of its aggregate, and partitions are aggregates. Up to `in_flight` of them are
///   processed at a time, across all topics of the group.
/// - **At least once.** A message is delivered until its success is acknowledged. A failing key keeps its position, and delays no other
///   key.
/// - **From the earliest message**, unless the definition says something else.
#[async_trait]
pub trait Groups: Send + Sync + 'static {
    /// Defines a group, or changes how an existing one hands out messages. Missing topics are created. Returns true if the group did not
    /// exist before.
    ///
    /// # Errors
    /// [`GroupError::Changed`] if its topics or start differ; otherwise see [`GroupError`].
    async fn put(&self, definition: GroupDefinition) -> Result<bool, GroupError>;

    /// Lists groups by name: at most `limit` of those after `after`.
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

    /// Takes deliveries, and waits for the first one as long as the request says. Dropping the future before it returns takes none.
    ///
    /// # Errors
    /// See [`GroupError`].
    async fn pull(&self, name: &str, pull: PullBody) -> Result<Vec<Delivery>, GroupError>;

    /// Settles deliveries in the order given, and returns the results once they are stored.
    ///
    /// # Errors
    /// See [`GroupError`]. No delivery is then known to be settled, and settling again is safe.
    async fn settle(&self, name: &str, settle: SettleBody) -> Result<Vec<SettleResult>, GroupError>;

    /// Lists failing keys by name: at most `limit` of those after `after`.
    ///
    /// # Errors
    /// See [`GroupError`].
    async fn partitions(&self, name: &str, after: Option<&str>, limit: usize) -> Result<PartitionPage, GroupError>;

    /// Performs an operator's act, records it in the same batch, and returns once both are stored.
    ///
    /// # Errors
    /// See [`GroupError`]; nothing was changed or recorded in that case.
    async fn act(&self, name: &str, act: Act, reason: Reason) -> Result<(), GroupError>;
}
