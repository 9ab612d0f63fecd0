//! What a relay needs of a broker.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::{BrokerError, NewMessage};
use crate::{Identity, SequenceNumber, Uuid};

/// Whose events a publisher publishes. On Kafka, store id and incarnation make the transactional id, and the store id the key of the
/// position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublisherIdentity {
    /// The tenant, for messages to people.
    pub tenant: String,
    /// The tenant's store.
    pub store: Identity,
}

/// How far a store has been published. It is stored with each batch: on Kafka, as a message of the same transaction on a compacted topic of
/// one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayPosition {
    /// The store.
    pub store_id: Uuid,
    /// The incarnation whose events were published up to `next`.
    pub incarnation: u32,
    /// Every event below it whose type had a topic is published.
    pub next: SequenceNumber,
    /// Where this incarnation left the one that was published before; kept in every position from then on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fork: Option<Fork>,
}

/// What a restore left behind on a broker: events that were published and are in no log any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fork {
    /// The incarnation that published them.
    pub incarnation: u32,
    /// The first number at which the logs differ.
    pub at: SequenceNumber,
    /// Where the earlier incarnation had been published to: events from `at` to before it are of a log that is gone.
    pub published: SequenceNumber,
}

/// Publishes the events of one store, in order.
///
/// A relay opens it, reads the position, and then publishes one batch after the other. INVARIANT: opening fences earlier publishers before
/// the position is read, so no batch of theirs can follow what was read.
///
/// After any error but [`BrokerError::RefusedMessage`] and [`BrokerError::Unavailable`] the publisher is of no use; open another.
#[async_trait]
pub trait Publisher: Send {
    /// Returns the stored position of this store, of whichever incarnation wrote it last; none before the first batch.
    ///
    /// # Errors
    /// See [`BrokerError`].
    async fn position(&mut self) -> Result<Option<RelayPosition>, BrokerError>;

    /// Publishes messages in this order and stores the position, both or neither. Returns once committed readers see them. A batch
    /// without messages stores the position alone.
    ///
    /// # Errors
    /// [`BrokerError::RefusedMessage`] and [`BrokerError::Unavailable`]: nothing was published, and the batch can be published again,
    /// without the refused message for example. [`BrokerError::Fenced`]: nothing was published. [`BrokerError::OutcomeUnknown`].
    async fn publish(&mut self, batch: Vec<NewMessage>, position: RelayPosition) -> Result<(), BrokerError>;
}
