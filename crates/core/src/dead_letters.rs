//! Dead letters: events that a consumer could not process, kept with their history until they are processed or given up on purpose.
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
//! A consumer is a group, a handler, or the delivery to a partner. A letter belongs to one consumer: another one that cannot process the
//! same event has its own.
//!
//! INVARIANTS
//! - The letter is written in the batch in which the consumer passes the event.
//! - Of the open letters of a key that hold their key, only the first is retried; the others follow it.
//! - A letter in a final state changes only when the consumer fails with the same event again, which reopens it with its history.

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

/// The type of the event that announces a letter.
pub const RECEIVED: &str = "dlq_message_received";
/// The type of the event that announces a letter that its consumer has processed.
pub const RETRIED: &str = "dlq_message_retried";
/// The type of the event that announces a letter that was given up.
pub const DISCARDED: &str = "dlq_message_discarded";
/// The type of the event that announces that the number of open letters has crossed a threshold.
pub const THRESHOLD_CROSSED: &str = "dlq_threshold_crossed";
/// The aggregate of the events that announce letters.
pub const LETTER_AGGREGATE: &str = "dead_letter";

/// Whether events of this type announce what happens to letters. A letter of such an event is not announced itself, so that a consumer that
/// cannot process announcements does not cause new ones without end.
pub fn is_announcement(event_type: &str) -> bool {
    [RECEIVED, RETRIED, DISCARDED, THRESHOLD_CROSSED].contains(&event_type)
}

/// The dead letters of one tenant.
///
/// - **Never lost, never twice.** A consumer passes an event only in the batch that holds its letter. Consumer and position name it; on a
///   broker of its own its topic, partition and offset do.
/// - **For one consumer.** A retry delivers the event to the consumer that failed, and to no other.
/// - **In order per key.** Letters of a key are retried in the order of their events, the next one once the one before is over. Where the
///   consumer keeps order, later events of the key wait as letters too.
/// - **Announced.** Every change of state is an event of the log, once.
/// - **Kept.** No letter is deleted that the archive does not hold.
#[async_trait]
pub trait DeadLetters: Send + Sync + 'static {
    /// Lists letters, those that failed last first.
    ///
    /// # Errors
    /// See [`DeadLetterError`].
    async fn list(&self, query: LetterQuery) -> Result<LetterPage, DeadLetterError>;

    /// Returns a letter with its event and its history.
    ///
    /// # Errors
    /// See [`DeadLetterError`].
    async fn get(&self, id: &str) -> Result<LetterView, DeadLetterError>;

    /// Makes a letter due now, whatever its policy says. A letter that follows another one of its key stays behind it.
    ///
    /// # Errors
    /// [`DeadLetterError::Terminal`] when it is over; else see [`DeadLetterError`].
    async fn retry(&self, id: &str, reason: Reason) -> Result<LetterView, DeadLetterError>;

    /// Gives a letter up. The next one of its key is planned.
    ///
    /// # Errors
    /// [`DeadLetterError::Terminal`] when it is over; else see [`DeadLetterError`].
    async fn discard(&self, id: &str, reason: Reason) -> Result<LetterView, DeadLetterError>;

    /// Retries or discards all letters of a selection, in constant memory. What is done is stored page by page: after a crash the host that
    /// follows carries it to its end. A dry run counts and changes nothing.
    ///
    /// # Errors
    /// See [`DeadLetterError`]. Letters that are over or unknown are counted as failed, and are no error.
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

    /// Stores a policy for a topic. It counts from the next failure or retry of a letter on.
    ///
    /// # Errors
    /// `invalid_policy` for numbers that cannot be followed; else see [`DeadLetterError`].
    async fn put_policy(
        &self,
        topic: ByteString,
        policy: LetterPolicy,
        reason: Reason,
    ) -> Result<PolicyStatus, DeadLetterError>;

    /// Deletes the policy of a topic, whose letters follow that of their category again.
    ///
    /// # Errors
    /// See [`DeadLetterError`].
    async fn delete_policy(&self, topic: &str, reason: Reason) -> Result<PolicyStatus, DeadLetterError>;
}
