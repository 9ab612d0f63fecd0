//! Partner events: events that are sent to partners and received from them over HTTP, with one record for each event and every attempt
//! recorded.
//!
//! ```text
//!  log ─▶ select (Condition per partner) ─▶ OUT record ─▶ claim ─▶ POST to the partner ─┬▶ SUCCESS
//!                                                          ▲                            └▶ FAILED ─ 5, 10, 20, 40 s ─▶ exhausted
//!                                                          └───────────── due ◀──────────────┘
//!  POST of the partner ─▶ signature, window, size ─▶ IN record ─▶ 202 ─▶ claim ─▶ commit to an aggregate ─▶ SUCCESS | FAILED
//! ```

mod definition;
mod delivery;
mod error;
mod event;
mod machine;
mod message;
mod received;
mod sending;
mod signature;
mod status;
mod stored;

use async_trait::async_trait;

use crate::handlers::Reason;

pub use definition::{Deduplicate, Format, Limits, PartnerArchive, PartnerDefinition, Receive, SelectFrom};
pub use delivery::{DELIVERIES, DeliveryRecord, Ending, Source};
pub use error::PartnerError;
pub use event::{
    ArchivedPartnerEvent, EntityMetadata, EventDirection, EventStatus, NewPartnerEvent, PARTNER_EVENTS,
    PARTNER_EVENTS_ARCHIVE, PartnerEventRecord, epoch_millis,
};
pub use machine::{ATTEMPTS_MAX, Breaker, Next, Outcome, RETRY_AFTER_MAX, after_attempt, of_answer, retry_delay};
pub use message::{CLOUDEVENT, JSON, message};
pub use received::{Incoming, ReceivedBody};
pub use sending::{Answered, NoSending, Outgoing, Sending};
pub use signature::{Signed, SigningSecret, TOLERANCE_SECONDS, Unsigned, content_digest};
pub use status::{
    Accepted, Counts, EventsQuery, PartnerEventPage, PartnerEventView, PartnerPage, PartnerStatistics, PartnerStatus,
    ReplayStarted,
};
pub use stored::{
    PARTNER_SECRETS, PARTNERS, PartnerRecord, ReplayState, ReplayTask, SELECTION, SecretsRecord, SelectionRecord,
};

/// The partners of one tenant and the events that are exchanged with them.
///
/// - **Selected once.** INVARIANT: the OUT records of a page of the log and the position after it are one write, which expects the position
///   at which the page begins and the definitions by which it was evaluated.
/// - **Every attempt is recorded.** INVARIANT: an attempt is stored, with its time, before it is made.
/// - **Delivered at least once,** with an id that stays the same over attempts, so that the partner can recognise a repeat.
/// - **Received once.** A request is answered with 202 once its record is durable. A repeated id is answered with the id of the existing
///   record.
/// - **In order** per partner, direction and entity: the next event of an entity is attempted once the previous one is final. An event
///   that is resent manually does not wait.
/// - **Isolated.** A slow or failing partner delays no other.
/// - **Claimed again.** A record whose owner died in PROCESSING is claimed again once its lease has ended.
#[async_trait]
pub trait Partners: Send + Sync + 'static {
    /// Defines a partner, or changes it. Returns true if it did not exist before. A definition without secrets leaves those of an existing
    /// partner unchanged.
    ///
    /// # Errors
    /// See [`PartnerError`].
    async fn put(&self, definition: PartnerDefinition) -> Result<bool, PartnerError>;

    /// Lists partners by id: those after `after`, at most `limit`.
    ///
    /// # Errors
    /// See [`PartnerError`].
    async fn list(&self, after: Option<&str>, limit: usize) -> Result<PartnerPage, PartnerError>;

    /// Returns the definition of a partner, without its secrets, and its state.
    ///
    /// # Errors
    /// See [`PartnerError`].
    async fn get(&self, partner: &str) -> Result<PartnerStatus, PartnerError>;

    /// Pauses or resumes a partner. Events of a paused partner are still selected and recorded; they are sent once it is resumed.
    /// Concurrent changes of the rest of the definition are kept.
    ///
    /// # Errors
    /// See [`PartnerError`].
    async fn switch(&self, partner: &str, paused: bool, reason: Reason) -> Result<PartnerStatus, PartnerError>;

    /// Deletes a partner. Its events stay; if it is defined again, those that are not final are attempted again.
    ///
    /// # Errors
    /// See [`PartnerError`].
    async fn delete(&self, partner: &str, reason: Reason) -> Result<(), PartnerError>;

    /// Receives an event of a partner: checks its signature, and returns once its record is durable.
    ///
    /// # Errors
    /// [`PartnerError::Signature`], [`PartnerError::OtherContent`]; otherwise see [`PartnerError`].
    async fn receive(&self, partner: &str, request: Incoming) -> Result<Accepted, PartnerError>;

    /// Lists the events of a partner, newest first.
    ///
    /// # Errors
    /// See [`PartnerError`].
    async fn events(&self, partner: &str, query: EventsQuery) -> Result<PartnerEventPage, PartnerError>;

    /// Returns an event.
    ///
    /// # Errors
    /// See [`PartnerError`].
    async fn event(&self, id: &str) -> Result<PartnerEventView, PartnerError>;

    /// Attempts a final event again, with five more attempts, or attempts an event that is due later at once.
    ///
    /// # Errors
    /// [`PartnerError::State`] while it is being attempted; otherwise see [`PartnerError`].
    async fn resend(&self, id: &str, reason: Reason) -> Result<PartnerEventView, PartnerError>;

    /// Ends an event that is pending or failed, so that it is not attempted again.
    ///
    /// # Errors
    /// [`PartnerError::State`] while it is being attempted and once it has succeeded; otherwise see [`PartnerError`].
    async fn cancel(&self, id: &str, reason: Reason) -> Result<PartnerEventView, PartnerError>;

    /// Resends the selected events of a range of the log, as new deliveries. The range includes `from` and excludes `to`, which
    /// defaults to the head.
    ///
    /// # Errors
    /// See [`PartnerError`].
    async fn replay(
        &self,
        partner: &str,
        from: u64,
        to: Option<u64>,
        reason: Reason,
    ) -> Result<ReplayStarted, PartnerError>;

    /// Counts the events of a partner by state.
    ///
    /// # Errors
    /// See [`PartnerError`].
    async fn statistics(&self, partner: &str) -> Result<PartnerStatistics, PartnerError>;
}
