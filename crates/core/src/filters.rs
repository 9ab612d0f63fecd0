//! Filters: each one fills a stream with the events of a log, or of another stream, that it includes.

mod definition;
mod error;
mod evaluator;
mod pushdown;
mod status;
mod stored;
mod wire;

use async_trait::async_trait;

use crate::handlers::{ActPage, Delivery, PullBody, Reason, SettleResult};

pub use definition::{FilterDefinition, FilterKind, FilterName};
pub use error::FilterError;
pub use evaluator::{Evaluator, Verdict};
pub use status::{FilterPage, FilterState, FilterStatus};
pub use stored::{FILTER_FAILURES, FILTER_PROGRESS, FILTERS, FilterFailureRecord, FilterProgressRecord, FilterRecord};
pub use wire::{FilterSettleBody, FilterSettlement};

/// The filters of one tenant.
///
/// A filter is defined once. From then on the task host evaluates the events of its source in order, and appends the included ones to its
/// stream. The guarantees:
///
/// - **Exactly once, in order.** INVARIANT: a stream's entries and the position of its filter move in one write, which expects the position
///   at which the evaluation began. A crash at any point therefore neither skips an event nor includes one twice.
/// - **A stream has one meaning.** A definition that would have included other events so far is refused before it is registered, and the
///   error names the first event that differs.
/// - **Only events that can match are read.** Types, tags and aggregates that the definition requires are looked up in the log's indexes.
#[async_trait]
pub trait Filters: Send + Sync + 'static {
    /// Defines a filter, or changes the definition of an existing one. Returns true if it did not exist before.
    ///
    /// # Errors
    /// [`FilterError::Changed`] if the new definition would have filled the stream with other entries; otherwise see [`FilterError`].
    async fn put(&self, definition: FilterDefinition) -> Result<bool, FilterError>;

    /// Lists filters by key: at most `limit` of those after `after`.
    ///
    /// # Errors
    /// See [`FilterError`].
    async fn list(&self, after: Option<&str>, limit: usize) -> Result<FilterPage, FilterError>;

    /// Returns the state of a filter.
    ///
    /// # Errors
    /// See [`FilterError`].
    async fn get(&self, name: &FilterName) -> Result<FilterStatus, FilterError>;

    /// Deletes a filter. Its stream keeps its entries and receives no more.
    ///
    /// # Errors
    /// See [`FilterError`].
    async fn delete(&self, name: &FilterName, reason: Reason) -> Result<(), FilterError>;

    /// Takes the next events for a remote filter to evaluate, and waits for the first one as long as the request says. Only one batch of a
    /// filter is in flight at a time, so its events are evaluated in order.
    ///
    /// # Errors
    /// See [`FilterError`]; [`FilterError::NotAllowed`] for a filter that is not remote.
    async fn pull(&self, name: &FilterName, pull: PullBody) -> Result<Vec<Delivery>, FilterError>;

    /// Stores the verdicts of a remote filter, in the order of the deliveries, and returns the results once they are stored.
    ///
    /// # Errors
    /// See [`FilterError`]. It is then unknown which verdicts are stored; events without one are delivered again.
    async fn settle(&self, name: &FilterName, settle: FilterSettleBody) -> Result<Vec<SettleResult>, FilterError>;

    /// Lists the acts of operators on a filter, newest first: at most `limit` of those before the cursor `after`. The acts of a deleted
    /// filter remain listed.
    ///
    /// # Errors
    /// See [`FilterError`]; [`FilterError::Unknown`] if there is neither a filter nor an act of that name.
    async fn acts(&self, name: &FilterName, after: Option<&str>, limit: usize) -> Result<ActPage, FilterError>;
}
