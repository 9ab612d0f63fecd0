//! The archive of the browse view: how long events are kept, where they go before they are deleted, and what must not be deleted.
//!
//! ```text
//!                        no archive: expires after its days
//!  event ─▶ browse view ─┬──────────────────────────────────────────────────────▶ deleted from the view
//!              ▲         │ archive: after its days                                     ▲
//!              │         ├─▶ copy in `events_archive` or a file ─▶ expires, same batch ┘
//!              │         │ a person deletes it: copy and deletion in one batch
//!              │ restore └─▶ `events_archive`
//!              └────────────────┘                       a hold that matches: neither expires nor can be deleted
//! ```
//!
//! The log is not affected: it keeps every event.

mod body;
mod document;
mod error;
mod file;
mod files;
mod plan;
mod status;
mod stored;
#[cfg(test)]
mod tests;

use async_trait::async_trait;

use crate::browse::BrowseQuery;
use crate::handlers::Reason;

pub use body::{HoldBody, RULES_MAX, RetentionBody};
pub use document::{
    ARCHIVED_MARK, ArchiveReason, archive_collection, archived_document, is_deleted_by_hand, restored_document,
    shown_archived,
};
pub use error::ArchiveError;
pub use file::{ARCHIVE_FILES, ArchiveFileRecord, file_path, numbers_of, packed_numbers};
pub use files::{ArchiveFiles, FileError};
pub use plan::{DueGroup, ExpiryChange, HOLD_PARTS_MAX, Retention, RetentionPlan, hold_parts};
pub use status::{
    ArchiveFailure, ArchiveFile, ArchiveFilePage, ArchivePage, ArchiveStatus, DeletedEvent, HoldPage, HoldStatus,
    PutRetention, RetentionDefault, RetentionPage, RetentionStatus,
};
pub use stored::{
    ARCHIVE_STATE, ArchiveStateRecord, ArchiveTarget, HoldRecord, RuleKind, RuleRecord, SettledRecord, TypeCategory,
};

/// The collection of archived events, in the layout of Integr8sCode's `EventArchiveDocument`.
pub const EVENTS_ARCHIVE: &str = "events_archive";

/// The archive of one tenant.
///
/// - **Nothing expires before it is archived.** If a rule names an archive, the view's expiry date is written in the same batch as the
///   record of the copy, never earlier. If the archive cannot be written, events stay.
/// - **Both or neither.** An event is deleted and archived in one batch, so a crash cannot separate the two.
/// - **A hold wins.** Once a response says `in_force`, no event that the hold's filter selects expires or can be deleted.
#[async_trait]
pub trait Archive: Send + Sync + 'static {
    /// Sets how long events of a category or a type are kept, including those that are already in the view. With `dry_run`, changes
    /// nothing and counts the events that the rule would remove from the view now.
    ///
    /// # Errors
    /// `invalid_body`; see [`ArchiveError`].
    async fn put_rule(&self, name: &str, body: RetentionBody) -> Result<PutRetention, ArchiveError>;

    /// Removes the rule of a category or a type.
    ///
    /// # Errors
    /// [`ArchiveError::UnknownRule`]; see [`ArchiveError`].
    async fn remove_rule(&self, name: &str, reason: Reason) -> Result<(), ArchiveError>;

    /// Lists the rules, by name, with the state of the archive.
    ///
    /// # Errors
    /// See [`ArchiveError`].
    async fn rules(&self, after: Option<&str>, limit: usize) -> Result<RetentionPage, ArchiveError>;

    /// Protects the events that a filter selects. Returns whether the hold is new. Waits a few seconds for the hold to be in force.
    ///
    /// # Errors
    /// `invalid_body`; see [`ArchiveError`].
    async fn put_hold(&self, name: &str, body: HoldBody) -> Result<(HoldStatus, bool), ArchiveError>;

    /// Removes a hold. Events that no other hold selects expire as their rules say.
    ///
    /// # Errors
    /// [`ArchiveError::UnknownHold`]; see [`ArchiveError`].
    async fn remove_hold(&self, name: &str, reason: Reason) -> Result<(), ArchiveError>;

    /// Lists the holds, by name.
    ///
    /// # Errors
    /// See [`ArchiveError`].
    async fn holds(&self, after: Option<&str>, limit: usize) -> Result<HoldPage, ArchiveError>;

    /// Returns a hold.
    ///
    /// # Errors
    /// [`ArchiveError::UnknownHold`]; see [`ArchiveError`].
    async fn hold(&self, name: &str) -> Result<HoldStatus, ArchiveError>;

    /// Moves an event from the view into `events_archive`, in one batch. The event stays deleted when the view is rebuilt.
    ///
    /// # Errors
    /// [`ArchiveError::UnknownEvent`]; [`ArchiveError::NotAllowed`] if a hold protects it; see [`ArchiveError`].
    async fn delete(&self, event_id: &str, reason: Reason) -> Result<DeletedEvent, ArchiveError>;

    /// Puts an archived event back into the view, where its retention starts again. Returns its JSON form.
    ///
    /// # Errors
    /// [`ArchiveError::NotArchived`]; see [`ArchiveError`].
    async fn restore(&self, event_id: &str, reason: Reason) -> Result<serde_json::Value, ArchiveError>;

    /// Returns one page of `events_archive`.
    ///
    /// # Errors
    /// `invalid_query` or `invalid_condition`; see [`ArchiveError`].
    async fn page(&self, query: BrowseQuery) -> Result<ArchivePage, ArchiveError>;

    /// Lists the files of the archive, in the order of their paths.
    ///
    /// # Errors
    /// See [`ArchiveError`].
    async fn files(&self, after: Option<&str>, limit: usize) -> Result<ArchiveFilePage, ArchiveError>;
}
