//! Filters: each fills a stream with the events of a log, or of another stream, that it includes.

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
/// A filter is defined once. From then on the task host evaluates the events of its source in order and appends those it includes to its
/// stream. What is promised:
///
/// - **Exactly once, in order.** INVARIANT: a stream's entries and the position of its filter move in one write, which expects the position
///   at which the evaluation began. A crash at any point therefore neither skips an event nor includes one twice.
/// - **A stream has one meaning.** A definition that would have included other events so far is refused before it is registered, and the
///   refusal names the first event that differs.
/// - **Only what can match is read.** Types, tags and aggregates that the definition requires are looked up in the log's indexes.
#[async_trait]
pub trait Filters: Send + Sync + 'static {
    /// Defines a filter, or changes the definition of an existing one. Returns true when it did not exist before.
    ///
    /// # Errors
    /// [`FilterError::Changed`] when the new definition would have filled the stream with other entries; else see [`FilterError`].
    async fn put(&self, definition: FilterDefinition) -> Result<bool, FilterError>;

    /// Lists filters by key: those after `after`, at most `limit`.
    ///
    /// # Errors
    /// See [`FilterError`].
    async fn list(&self, after: Option<&str>, limit: usize) -> Result<FilterPage, FilterError>;

    /// Returns the state of a filter.
    ///
    /// # Errors
    /// See [`FilterError`].
    async fn get(&self, name: &FilterName) -> Result<FilterStatus, FilterError>;

    /// Deletes a filter. Its stream keeps its entries and gets no more.
    ///
    /// # Errors
    /// See [`FilterError`].
    async fn delete(&self, name: &FilterName, reason: Reason) -> Result<(), FilterError>;

    /// Takes events that a remote filter evaluates next, and waits for the first as long as the request says. One batch of a filter is in
    /// flight at a time, so that its events are evaluated in order.
    ///
    /// # Errors
    /// See [`FilterError`]; [`FilterError::NotAllowed`] for a filter that is not remote.
    async fn pull(&self, name: &FilterName, pull: PullBody) -> Result<Vec<Delivery>, FilterError>;

    /// Stores the verdicts of a remote filter, in the order of the deliveries, and answers each once it is stored.
    ///
    /// # Errors
    /// See [`FilterError`]; it is then unknown which verdicts are stored, and the events that have none are delivered again.
    async fn settle(&self, name: &FilterName, settle: FilterSettleBody) -> Result<Vec<SettleResult>, FilterError>;

    /// Lists what operators did to a filter, the newest first: the acts before `after`, at most `limit`. Those of a filter that was deleted
    /// stay.
    ///
    /// # Errors
    /// See [`FilterError`]; [`FilterError::Unknown`] where there is neither a filter nor an act.
    async fn acts(&self, name: &FilterName, after: Option<&str>, limit: usize) -> Result<ActPage, FilterError>;
}
