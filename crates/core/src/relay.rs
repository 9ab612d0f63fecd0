//! The relay, which publishes the events of a log to the topics of their types. This is its state machine, which does no I/O.
//!
//! ```text
//!  publisher opened, earlier ones fenced ─▶ stored position ─▶ Relay::resume ─▶ announcement of a fork, if there is one
//!  page of the log ─▶ Relay::batch ─▶ messages and the position after them ─▶ Publisher::publish ─▶ Relay::stored
//!                         ▲                                                        │
//!                         └──────────── Relay::hold ◀── a message that the broker refuses
//! ```
//!
//! INVARIANT: every event below the position whose type had a topic is published or held. The position moves in the batch that publishes
//! its events.
//!
//! INVARIANT: a batch begins where the previous one ended, so messages of an aggregate are in the order of its events.
//!
//! Failed publications are not marked on events. Before the batch with the position is visible, none of its messages is; afterwards, all
//! are. After a failure in between, the relay publishes again from the position.

mod message;
mod status;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytestring::ByteString;

use crate::{
    Fork, Identity, Invalid, NewMessage, RecordedEvent, RelayPosition, SequenceNumber, TopicDefinition, TopicSettings,
};

pub use message::{MessageFormat, MessageKey, MessageOptions, RelayedEvent};
pub use status::{HeldRecord, RelayRecord, RelayState, RelayStatus};

/// How often the position is stored while the log grows only by events without a topic.
pub const STORE_EVERY: Duration = Duration::from_secs(1);

/// The topics to which a relay publishes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RelayTopics {
    /// The prefix, partitions and retention of the topics.
    pub settings: TopicSettings,
    /// The category of each event type that has a topic.
    pub types: BTreeMap<ByteString, ByteString>,
    /// The category of all other types; `None` if they have no topics.
    pub others: Option<ByteString>,
}

impl RelayTopics {
    /// Gives every event type a topic of the default category.
    pub fn all(settings: TopicSettings) -> Self {
        Self { settings, types: BTreeMap::new(), others: Some(crate::DEFAULT_CATEGORY.into()) }
    }

    /// Returns the topic of an event type; `None` if it has none.
    ///
    /// # Errors
    /// `invalid_name` or `invalid_topic` for an event type that should have a topic and cannot.
    pub fn topic_of(&self, event_type: &str) -> Result<Option<TopicDefinition>, Invalid> {
        let category = self.types.get(event_type).or(self.others.as_ref());
        category.map(|category| self.settings.topic_in(event_type, category)).transpose()
    }

    /// Returns the topics of the types in `types`.
    pub fn named(&self) -> impl Iterator<Item = TopicDefinition> {
        self.types.keys().filter_map(|event_type| self.topic_of(event_type).ok().flatten())
    }
}

/// Why a relay stops publishing until a person intervenes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RelayRefusal {
    /// A later incarnation of this store, from a restore, has already published.
    #[error(
        "a later incarnation of this store has already published, and this is incarnation {here}, from before that \
         restore; nothing is published: close this store, or give it a broker of its own"
    )]
    Later {
        /// The incarnation of this store.
        here: u32,
    },
    /// The broker has events that this log does not have, although no restore explains the difference.
    #[error(
        "the broker has the events below {position} of this incarnation, and the log ends at {head}: its files are an older copy that was \
         not restored; restore it with `annals restore`, which begins a new incarnation"
    )]
    AheadOfLog {
        /// The position up to which events are published.
        position: SequenceNumber,
        /// The head of the log.
        head: SequenceNumber,
    },
    /// Another relay of this store publishes.
    #[error(
        "another relay of this store has published up to {0}; this one stops: only one process may publish a store"
    )]
    OtherRelay(SequenceNumber),
}

/// Messages to publish, with the position that follows them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayBatch {
    /// The messages, in the order of the log.
    pub messages: Vec<NewMessage>,
    /// The position once they are published.
    pub position: RelayPosition,
}

/// The publishing progress of one store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relay {
    store: Identity,
    position: RelayPosition,
    /// The position that the broker has.
    stored: Option<RelayPosition>,
    /// The position of a batch that was passed to a publisher and whose outcome is unknown.
    attempted: Option<RelayPosition>,
    /// Events at or above the position that the broker refuses.
    held: BTreeSet<SequenceNumber>,
}

impl Relay {
    /// Resumes from the position that the broker has. `agree_to` returns the sequence number up to which the log agrees with that of an
    /// earlier incarnation.
    ///
    /// # Errors
    /// See [`RelayRefusal`].
    pub fn resume(
        store: Identity,
        stored: Option<RelayPosition>,
        head: SequenceNumber,
        agree_to: impl FnOnce(u32) -> SequenceNumber,
    ) -> Result<Self, RelayRefusal> {
        let start = RelayPosition { store_id: store.store_id, incarnation: store.incarnation, next: 0, fork: None };
        let position = match stored {
            None => start,
            Some(stored) if stored.incarnation > store.incarnation => {
                return Err(RelayRefusal::Later { here: store.incarnation });
            }
            Some(stored) if stored.incarnation == store.incarnation && stored.next > head => {
                return Err(RelayRefusal::AheadOfLog { position: stored.next, head });
            }
            Some(stored) if stored.incarnation == store.incarnation => stored,
            Some(stored) => {
                let at = agree_to(stored.incarnation);
                let left = Fork { incarnation: stored.incarnation, at, published: stored.next };
                let fork = if stored.next > at { Some(left) } else { stored.fork };
                RelayPosition { next: stored.next.min(at), fork, ..start }
            }
        };
        Ok(Self { store, position, stored, attempted: None, held: BTreeSet::new() })
    }

    /// Returns the position: every event below it whose type had a topic is published or held.
    pub fn position(&self) -> RelayPosition {
        self.position
    }

    /// Returns the announcement of a fork that is not on the broker yet. It is published before any event of the new incarnation, in a
    /// batch of its own.
    pub fn announcement(&self) -> Option<RelayBatch> {
        let announced = self.stored.is_some_and(|stored| stored.incarnation == self.store.incarnation);
        let batch = || RelayBatch { messages: Vec::new(), position: self.position };
        (self.stored.is_some() && !announced).then(batch)
    }

    /// Returns the batch that publishes these events, which follow the position, and moves the position to `next`.
    pub fn batch(
        &self,
        events: &[RecordedEvent],
        next: SequenceNumber,
        mut message: impl FnMut(&RecordedEvent) -> Option<NewMessage>,
    ) -> RelayBatch {
        let due = events.iter().filter(|event| event.sequence_number >= self.position.next);
        let due = due.filter(|event| !self.held.contains(&event.sequence_number));
        let messages = due.filter_map(&mut message).collect();
        RelayBatch { messages, position: RelayPosition { next: next.max(self.position.next), ..self.position } }
    }

    /// Records that a batch with this position is passed to a publisher.
    pub fn attempts(&mut self, position: RelayPosition) {
        self.attempted = Some(position);
    }

    /// Records that the batch with this position is on the broker.
    pub fn stored(&mut self, position: RelayPosition) {
        self.stored = Some(position);
        self.passed(position);
    }

    /// Moves to this position without publishing, because no event up to it has a topic.
    pub fn passed(&mut self, position: RelayPosition) {
        self.position = position;
        self.held = self.held.split_off(&position.next);
    }

    /// Returns whether a batch must go to the broker: it has messages, or the position has not been stored for [`STORE_EVERY`].
    pub fn is_due(&self, batch: &RelayBatch, since_stored: Duration) -> bool {
        !batch.messages.is_empty() || (self.is_behind(batch.position) && since_stored >= STORE_EVERY)
    }

    /// Returns whether the broker's position is before this one.
    pub fn is_behind(&self, position: RelayPosition) -> bool {
        self.stored.is_none_or(|stored| stored.next < position.next)
    }

    /// Leaves out an event that the broker refuses, so that later events are published.
    pub fn hold(&mut self, event: SequenceNumber) {
        self.held.insert(event);
    }

    /// Checks the position that was found by a publisher which this relay opened after a failure or after being fenced. If another relay
    /// publishes, it has moved the position. If this relay's own transaction timed out, for example while the machine slept, the position
    /// is unchanged.
    ///
    /// # Errors
    /// [`RelayRefusal::OtherRelay`].
    pub fn check_alone(&self, found: Option<RelayPosition>) -> Result<(), RelayRefusal> {
        match found {
            Some(found) if found.next > self.position.next && Some(found) != self.attempted => {
                Err(RelayRefusal::OtherRelay(found.next))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
