//! The part of the broker port that a relay uses.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::{BrokerError, NewMessage};
use crate::{Identity, SequenceNumber, Uuid};

/// The store whose events a publisher publishes. On Kafka, the store id determines the transactional id and the name of the topic that
/// holds the position. The incarnation is in the position, so that publishers of earlier incarnations are fenced as well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublisherIdentity {
    /// The tenant, for messages to people.
    pub tenant: String,
    /// The tenant's store.
    pub store: Identity,
}

/// How far a store has been published. It is stored with each batch: on Kafka, as a message in the same transaction, on a compacted topic
/// with one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayPosition {
    /// The store.
    pub store_id: Uuid,
    /// The incarnation whose events have been published up to `next`.
    pub incarnation: u32,
    /// Every event below this sequence number whose type had a topic is published.
    pub next: SequenceNumber,
    /// Where this incarnation forked from the one published before it; kept in every later position.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fork: Option<Fork>,
}

/// What a restore left behind on a broker: published events that are no longer in any log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fork {
    /// The incarnation that published them.
    pub incarnation: u32,
    /// The first sequence number at which the logs differ.
    pub at: SequenceNumber,
    /// How far the earlier incarnation had been published: events from `at` to just below this number belong to a log that no longer
    /// exists.
    pub published: SequenceNumber,
}

/// Publishes the events of one store, in order.
///
/// A relay opens a publisher, reads the position, and then publishes one batch after another. INVARIANT: opening a publisher fences
/// earlier ones before the position is read, so none of their batches can follow the position that was read.
///
/// After any error but [`BrokerError::RefusedMessage`] and [`BrokerError::Unavailable`] the publisher is unusable; open another.
#[async_trait]
pub trait Publisher: Send {
    /// Returns the stored position of this store, whichever incarnation wrote it last; `None` before the first batch.
    ///
    /// # Errors
    /// See [`BrokerError`].
    async fn position(&mut self) -> Result<Option<RelayPosition>, BrokerError>;

    /// Publishes messages in this order and stores the position, atomically. Returns once committed readers see them. A batch without
    /// messages stores only the position.
    ///
    /// # Errors
    /// [`BrokerError::RefusedMessage`] and [`BrokerError::Unavailable`]: nothing was published, and the batch can be published again, for
    /// example without the refused message. [`BrokerError::Fenced`]: nothing was published. [`BrokerError::OutcomeUnknown`]: it is not
    /// known whether the batch was published.
    async fn publish(&mut self, batch: Vec<NewMessage>, position: RelayPosition) -> Result<(), BrokerError>;
}
