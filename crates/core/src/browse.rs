//! The browse view: a flat, indexed, expiring copy of each event, for people who look for events.

mod answer;
mod document;
mod error;
mod export;
mod filter;
mod query;
mod shown;
mod statistics;
#[cfg(test)]
mod tests;
mod view;

use async_trait::async_trait;

use crate::handlers::Reason;

pub use answer::{BrowsePage, EventDetail, EventSummary, ViewPosition};
pub use document::{browse_document, browse_id, browse_indexes, number_of, stored_browse_document};
pub use error::BrowseError;
pub use export::{CSV_HEADER, ExportFormat, csv_line, json_line};
pub use filter::ReplayFilter;
pub use query::{BrowseQuery, BrowseSort};
pub use shown::{ShownDocument, shown};
pub use statistics::{
    EventStatistics, FAILURE_TYPES, HOURS_MAX, HourCount, StatisticsQuery, TypeCount, UserCount, percent,
};
pub use view::{BROWSE_SETTINGS, ViewBody, ViewRecord, ViewStatus, ViewSwitch};

/// The name of the projection that fills the view.
pub const BROWSE_VIEW: &str = "annals.events";
/// The collection of the view. A build beside it has this name followed by a number.
pub const EVENTS: &str = "events";
/// The default retention of the view, in days.
pub const RETENTION_DAYS: u32 = 90;

/// The browse view of one tenant.
///
/// The view follows the log. Each event is one document, with its event-specific fields next to the base fields. Of several events with
/// the same id, the view holds the log's first one. The view expires; the log never does, and the view can be rebuilt from it.
///
/// Unless it is switched on or off explicitly, the view is built on the first read and kept up to date from then on. A read waits a few
/// seconds for the view to catch up with the log, and reports the view's progress in [`ViewPosition`].
#[async_trait]
pub trait Browse: Send + Sync + 'static {
    /// Returns one page of events.
    ///
    /// # Errors
    /// [`BrowseError::Off`]; `invalid_query` or `invalid_condition`.
    async fn page(&self, query: BrowseQuery) -> Result<BrowsePage, BrowseError>;

    /// Returns one page of stored documents, without counting: an export reads many pages. The cursor is `None` at the end.
    ///
    /// # Errors
    /// As [`page`](Self::page).
    async fn rows(&self, query: BrowseQuery) -> Result<(Vec<bson::RawDocumentBuf>, Option<String>), BrowseError>;

    /// Returns an event and other events of its aggregate.
    ///
    /// # Errors
    /// [`BrowseError::UnknownEvent`], and as [`page`](Self::page).
    async fn event(&self, event_id: &str) -> Result<EventDetail, BrowseError>;

    /// Counts the events of the last hours.
    ///
    /// # Errors
    /// As [`page`](Self::page).
    async fn statistics(&self, query: StatisticsQuery) -> Result<EventStatistics, BrowseError>;

    /// Returns the state of the view.
    ///
    /// # Errors
    /// See [`BrowseError`].
    async fn view(&self) -> Result<ViewStatus, BrowseError>;

    /// Switches the view on or off, or changes how long it keeps events and which types it leaves out.
    ///
    /// # Errors
    /// See [`BrowseError`].
    async fn set_view(&self, body: ViewBody) -> Result<ViewStatus, BrowseError>;

    /// Rebuilds the view from the log, next to the live one.
    ///
    /// # Errors
    /// [`BrowseError::Off`], or `state_conflict` while another build runs.
    async fn rebuild(&self, reason: Reason) -> Result<ViewStatus, BrowseError>;
}
