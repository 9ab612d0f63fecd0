//! What the log holds: commits and their events, as they are read.

use std::sync::Arc;

use bytestring::ByteString;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{Aggregate, CommitOutcome, Data, Metadata, ReceivedFrom, SequenceNumber, Timestamp, Version};

/// What the events of one commit have in common.
#[derive(Debug, Clone, PartialEq)]
pub struct CommitInfo {
    /// The commit's id.
    pub commit_id: Uuid,
    /// The request it came from; none only for events that other software recorded without one.
    pub request_id: Option<ByteString>,
    /// Whose events they are; [`Aggregate::event_source`] only for events that other software recorded outside of any aggregate.
    pub aggregate: Aggregate,
    /// The aggregate's version after this commit; 0 where there is no aggregate.
    pub version: Version,
    /// The time of its first event.
    pub time: Timestamp,
    /// The tenantId of the aggregate.
    pub tenant_id: ByteString,
    /// The owner of the aggregate, or empty.
    pub owner_id: ByteString,
    /// The space of the aggregate, or empty.
    pub space_id: ByteString,
    /// The command that led to it.
    pub command_id: Option<ByteString>,
    /// Groups everything that follows from one cause.
    pub correlation_id: Option<ByteString>,
    /// What directly caused it.
    pub causation_id: Option<ByteString>,
    /// Free text for tools, in the order given.
    pub header: Vec<(ByteString, ByteString)>,
    /// The commit's transaction and its place there; none when the commit stands for itself.
    pub transaction: Option<TransactionPlace>,
    /// Where it came from, if it was received over the event horizon; then it is of no aggregate and holds one event.
    pub received: Option<Arc<ReceivedFrom>>,
}

/// A commit's place in its transaction. All commits of a transaction, and with them all their events, have the same id and count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransactionPlace {
    /// Names the transaction: the commit id of its first commit.
    pub id: Uuid,
    /// Counts from 0.
    pub place: u32,
    /// The number of the transaction's commits.
    pub count: u32,
}

impl TransactionPlace {
    /// Whether this is the last commit of its transaction.
    pub fn ends(&self) -> bool {
        self.place + 1 == self.count
    }
}

/// An event of the log. Cloning shares everything but a few words.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedEvent {
    /// Its position in the log.
    pub sequence_number: SequenceNumber,
    /// Its place in its commit, from 0.
    pub ordinal: u32,
    /// Its id.
    pub id: Uuid,
    /// Its type.
    pub event_type: ByteString,
    /// The generation of the type's schema.
    pub generation: u32,
    /// Its content.
    pub data: Data,
    /// Its tags.
    pub tags: Vec<ByteString>,
    /// Whether partners may see it.
    pub public: bool,
    /// What tools and operators noted about it; none when nothing was.
    pub metadata: Option<Metadata>,
    /// When it happened.
    pub time: Timestamp,
    /// The commit it belongs to.
    pub commit: Arc<CommitInfo>,
}

impl RecordedCommit {
    /// Returns the outcome that a repeat of this commit's request is answered with.
    pub fn repeated_outcome(&self) -> CommitOutcome {
        CommitOutcome {
            commit_id: self.info.commit_id,
            version: self.info.version,
            first_sequence_number: self.events.first().map(|event| event.sequence_number),
            event_ids: self.events.iter().map(|event| event.id).collect(),
            duplicate: true,
            stage: None,
        }
    }
}

/// A commit with all its events.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedCommit {
    /// What its events have in common.
    pub info: Arc<CommitInfo>,
    /// Its events; never empty, ordinals 0, 1, 2 …, sequence numbers without a hole.
    pub events: Vec<RecordedEvent>,
}
