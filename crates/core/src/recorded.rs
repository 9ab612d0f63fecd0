//! Commits and events as they are read from the log.

use std::sync::Arc;

use bytestring::ByteString;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{Aggregate, CommitOutcome, Data, Metadata, ReceivedFrom, SequenceNumber, Timestamp, Version};

/// The attributes that the events of one commit share.
#[derive(Debug, Clone, PartialEq)]
pub struct CommitInfo {
    /// The commit's id.
    pub commit_id: Uuid,
    /// The request that stored it; `None` only for events that other software recorded without one.
    pub request_id: Option<ByteString>,
    /// The aggregate of the events; [`Aggregate::event_source`] only for events that other software recorded outside of any aggregate.
    pub aggregate: Aggregate,
    /// The aggregate's version after this commit; 0 if there is no aggregate.
    pub version: Version,
    /// The time of its first event.
    pub time: Timestamp,
    /// The tenantId of the aggregate.
    pub tenant_id: ByteString,
    /// The owner of the aggregate, or empty.
    pub owner_id: ByteString,
    /// The space of the aggregate, or empty.
    pub space_id: ByteString,
    /// The command that produced it.
    pub command_id: Option<ByteString>,
    /// The operation that it belongs to.
    pub correlation_id: Option<ByteString>,
    /// Its direct cause.
    pub causation_id: Option<ByteString>,
    /// Free-form strings for tools, in the order given.
    pub header: Vec<(ByteString, ByteString)>,
    /// The commit's transaction and its place in it; `None` if it is not part of one.
    pub transaction: Option<TransactionPlace>,
    /// Its origin, if it was received over the event horizon. Such a commit belongs to no aggregate and contains one event.
    pub received: Option<Arc<ReceivedFrom>>,
}

#[cfg(test)]
impl CommitInfo {
    /// Returns the first commit of an aggregate, without anything that is optional.
    pub(crate) fn first_of(aggregate: Aggregate, time: Timestamp) -> Self {
        Self {
            commit_id: Uuid::nil(),
            request_id: None,
            aggregate,
            version: 1,
            time,
            tenant_id: "(0)".into(),
            owner_id: "".into(),
            space_id: "".into(),
            command_id: None,
            correlation_id: None,
            causation_id: None,
            header: Vec::new(),
            transaction: None,
            received: None,
        }
    }
}

/// A commit's place in its transaction. All commits of a transaction, and so all of their events, have the same id and count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransactionPlace {
    /// Identifies the transaction: the commit id of its first commit.
    pub id: Uuid,
    /// The commit's index in the transaction, from 0.
    pub place: u32,
    /// The number of commits in the transaction.
    pub count: u32,
}

impl TransactionPlace {
    /// Returns whether this is the last commit of its transaction.
    pub fn ends(&self) -> bool {
        self.place + 1 == self.count
    }
}

/// An event of the log. Cloning is cheap, because almost everything is shared.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedEvent {
    /// Its position in the log.
    pub sequence_number: SequenceNumber,
    /// Its index in its commit, from 0.
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
    /// Its metadata, for tools and operators; `None` if there is none.
    pub metadata: Option<Metadata>,
    /// When it happened.
    pub time: Timestamp,
    /// The commit to which it belongs.
    pub commit: Arc<CommitInfo>,
}

impl CommitInfo {
    /// Returns the bytes of the keys and values of its header.
    pub fn header_bytes(&self) -> usize {
        self.header.iter().map(|(key, value)| key.len() + value.len()).sum()
    }
}

impl RecordedEvent {
    /// Returns the bytes that it takes on a page: those of its data, its tags, its metadata, and the header of its commit, which is
    /// written with each of the commit's events.
    pub fn page_bytes(&self) -> usize {
        let tags: usize = self.tags.iter().map(|tag| tag.len()).sum();
        let metadata = self.metadata.as_ref().map_or(0, Metadata::bytes);
        self.data.as_bytes().len() + tags + metadata + self.commit.header_bytes()
    }
}

impl RecordedCommit {
    /// Returns the outcome for a repeat of this commit's request.
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
    /// The attributes that its events share.
    pub info: Arc<CommitInfo>,
    /// Its events: never empty, with ordinals 0, 1, 2 … and sequence numbers without gaps.
    pub events: Vec<RecordedEvent>,
}
