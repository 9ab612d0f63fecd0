//! Dead letters: events that a consumer could not process, kept with their history until they are processed or discarded.
//!
//! ```text
//!                       policy allows a retry                    the consumer's success
//!  received ─▶ pending ─────────────────────▶ scheduled ────────────────────────────────▶ retried
//!                 │ ▲                          │  ▲   │ failed: counted, planned again
//!                 │ └── manual: waits ─────────┘  └───┘
//!                 │                              │ no retry left, or a person decides
//!                 └──────────────────────────────┴──────────────────────────────────────▶ discarded
//! ```
//!
//! A consumer is a group, a handler, or the delivery to a partner. A letter belongs to one consumer: if another one cannot process the
//! same event, it has a letter of its own.
//!
//! INVARIANTS
//! - The letter is written in the same batch in which the consumer passes the event.
//! - Of the open letters of a key that hold it, only the first is retried; the others follow it.
//! - A letter in a final state changes only if the consumer fails with the same event again, which reopens it with its history.

mod archived;
mod error;
mod letter;
mod partner;
mod policy;
mod received;
mod settings;
mod stored;
mod threshold;
mod wire;

use async_trait::async_trait;

use crate::ByteString;
use crate::handlers::Reason;

pub use archived::{ARCHIVED_LETTERS, ArchivedLetter};
pub use error::DeadLetterError;
pub use letter::{
    Announcement, DEAD_LETTERS, DeadLetter, HISTORY_MAX, HistoryEntry, INLINE_BYTES_MAX, LetterStatus, MAX_RETRIES,
    Terminal,
};
pub use partner::PartnerStep;
pub use policy::{LetterPolicy, Plan, Strategy};
pub use received::{Place, Received};
pub use settings::{LetterOrder, LetterSettings};
pub use stored::{BULK_ACTS, BulkRecord, POLICIES, PolicyRecord, THRESHOLDS, ThresholdRecord};
pub use threshold::{CRITICAL_ABOVE, Level, WARNING_ABOVE};
pub use wire::{
    BulkAct, BulkBody, BulkDetail, BulkOutcome, HistoryView, LetterPage, LetterQuery, LetterView, PolicyBody,
    PolicyPage, PolicyStatus, Selection, Statistics, TopicStatistics,
};

/// The type of the event that announces a new letter.
pub const RECEIVED: &str = "dlq_message_received";
/// The type of the event that announces that a letter's consumer has processed its event.
pub const RETRIED: &str = "dlq_message_retried";
/// The type of the event that announces that a letter was discarded.
pub const DISCARDED: &str = "dlq_message_discarded";
/// The type of the event that announces that the number of open letters has crossed a threshold.
pub const THRESHOLD_CROSSED: &str = "dlq_threshold_crossed";
/// The aggregate of the events that announce letters.
pub const LETTER_AGGREGATE: &str = "dead_letter";

/// Returns whether events of this type announce changes of letters. Letters of such events are not announced, so that a consumer that
/// cannot process announcements does not cause an endless series of them.
pub fn is_announcement(event_type: &str) -> bool {
    [RECEIVED, RETRIED, DISCARDED, THRESHOLD_CROSSED].contains(&event_type)
}

/// The dead letters of one tenant.
///
/// - **Never lost, never twice.** A consumer passes an event only in the batch that stores its letter. A letter is identified by its
///   consumer and position; on an external broker, by consumer, topic, partition and offset.
/// - **For one consumer.** A retry delivers the event to the consumer that failed, and to no other.
/// - **In order per key.** Letters of a key are retried in the order of their events, each once the one before it is closed. If the
///   consumer keeps order, later events of the key also wait as letters.
/// - **Announced.** Every change of state is announced by exactly one event in the log.
/// - **Kept.** A letter is deleted only once the archive holds it.
#[async_trait]
pub trait DeadLetters: Send + Sync + 'static {
    /// Lists letters, the most recent failures first.
    ///
    /// # Errors
    /// See [`DeadLetterError`].
    async fn list(&self, query: LetterQuery) -> Result<LetterPage, DeadLetterError>;

    /// Returns a letter with its event and its history.
    ///
    /// # Errors
    /// See [`DeadLetterError`].
    async fn get(&self, id: &str) -> Result<LetterView, DeadLetterError>;

    /// Makes a letter due now, whatever its policy says. A letter that follows another one of its key keeps its place.
    ///
    /// # Errors
    /// [`DeadLetterError::Terminal`] if it is closed; otherwise see [`DeadLetterError`].
    async fn retry(&self, id: &str, reason: Reason) -> Result<LetterView, DeadLetterError>;

    /// Discards a letter. The next one of its key is scheduled.
    ///
    /// # Errors
    /// [`DeadLetterError::Terminal`] if it is closed; otherwise see [`DeadLetterError`].
    async fn discard(&self, id: &str, reason: Reason) -> Result<LetterView, DeadLetterError>;

    /// Retries or discards all letters of a selection, in constant memory. Progress is stored page by page, so that the next host completes
    /// the act after a crash. A dry run counts the letters and changes nothing.
    ///
    /// # Errors
    /// See [`DeadLetterError`]. Closed or unknown letters are counted as failed; they are not an error.
    async fn bulk(&self, act: BulkAct, body: BulkBody) -> Result<BulkOutcome, DeadLetterError>;

    /// Counts letters by topic and status.
    ///
    /// # Errors
    /// See [`DeadLetterError`].
    async fn statistics(&self) -> Result<Statistics, DeadLetterError>;

    /// Lists the policies that are stored for topics, by name.
    ///
    /// # Errors
    /// See [`DeadLetterError`].
    async fn policies(&self, after: Option<&str>, limit: usize) -> Result<PolicyPage, DeadLetterError>;

    /// Returns the policy that a topic's letters follow: its own, or that of the category of its event type.
    ///
    /// # Errors
    /// See [`DeadLetterError`].
    async fn policy(&self, topic: &str) -> Result<PolicyStatus, DeadLetterError>;

    /// Stores a policy for a topic. It applies from the next failure or retry of a letter on.
    ///
    /// # Errors
    /// `invalid_policy` for invalid numbers; otherwise see [`DeadLetterError`].
    async fn put_policy(
        &self,
        topic: ByteString,
        policy: LetterPolicy,
        reason: Reason,
    ) -> Result<PolicyStatus, DeadLetterError>;

    /// Deletes the policy of a topic. Its letters follow the policy of its category again.
    ///
    /// # Errors
    /// See [`DeadLetterError`].
    async fn delete_policy(&self, topic: &str, reason: Reason) -> Result<PolicyStatus, DeadLetterError>;
}
