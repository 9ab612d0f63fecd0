//! Borrowed events: the same terms as [`RecordedEvent`], borrowed from the buffer that they were read into.

use std::sync::Arc;

use bson::raw::RawDocument;
use uuid::Uuid;

use crate::{
    Aggregate, CommitInfo, Data, Metadata, ReceivedFrom, RecordedEvent, SequenceNumber, Timestamp, TransactionPlace,
    Version,
};

/// What the events of one commit have in common; the borrowed form of [`CommitInfo`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CommitRef<'a> {
    /// The commit's id.
    pub commit_id: Uuid,
    /// The request that it came from; none only for events that other software recorded without one.
    pub request_id: Option<&'a str>,
    /// The name of the aggregate whose events they are.
    pub aggregate_name: &'a str,
    /// The id of the aggregate.
    pub aggregate_id: &'a str,
    /// The aggregate's version after this commit.
    pub version: Version,
    /// The time of its first event.
    pub time: Timestamp,
    /// The tenantId of the aggregate.
    pub tenant_id: &'a str,
    /// The owner of the aggregate, or empty.
    pub owner_id: &'a str,
    /// The space of the aggregate, or empty.
    pub space_id: &'a str,
    /// The command that caused it.
    pub command_id: Option<&'a str>,
    /// Identifies everything that follows from one cause.
    pub correlation_id: Option<&'a str>,
    /// Its direct cause.
    pub causation_id: Option<&'a str>,
    /// Free text for tools, in the order given.
    pub header: &'a [(&'a str, &'a str)],
    /// The commit's transaction and its place there; none if the commit is not part of one.
    pub transaction: Option<TransactionPlace>,
    /// Where it came from, if it was received over the event horizon.
    pub received: Option<&'a Arc<ReceivedFrom>>,
}

/// An event of the log that is borrowed for the duration of a call; [`to_recorded`](Self::to_recorded) returns an owned one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EventRef<'a> {
    /// Its position in the log.
    pub sequence_number: SequenceNumber,
    /// Its index in its commit, from 0.
    pub ordinal: u32,
    /// Its id.
    pub id: Uuid,
    /// Its type.
    pub event_type: &'a str,
    /// The generation of the type's schema.
    pub generation: u32,
    /// Its content; [`decode`](Self::decode) converts it to a type of your own.
    pub data: &'a RawDocument,
    /// Its tags.
    pub tags: &'a [&'a str],
    /// Whether partners may see it.
    pub public: bool,
    /// Metadata for tools and operators.
    pub metadata: Option<&'a RawDocument>,
    /// When it happened.
    pub time: Timestamp,
    /// The commit it belongs to.
    pub commit: &'a CommitRef<'a>,
}

impl CommitRef<'_> {
    /// Returns an owned copy.
    pub fn to_info(&self) -> CommitInfo {
        CommitInfo {
            commit_id: self.commit_id,
            request_id: self.request_id.map(Into::into),
            aggregate: Aggregate::new(self.aggregate_name, self.aggregate_id),
            version: self.version,
            time: self.time,
            tenant_id: self.tenant_id.into(),
            owner_id: self.owner_id.into(),
            space_id: self.space_id.into(),
            command_id: self.command_id.map(Into::into),
            correlation_id: self.correlation_id.map(Into::into),
            causation_id: self.causation_id.map(Into::into),
            header: self.header.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect(),
            transaction: self.transaction,
            received: self.received.cloned(),
        }
    }
}

impl EventRef<'_> {
    /// Returns what [`RecordedEvent::page_bytes`] returns for an owned copy.
    pub fn page_bytes(&self) -> usize {
        let tags: usize = self.tags.iter().map(|tag| tag.len()).sum();
        let header: usize = self.commit.header.iter().map(|(key, value)| key.len() + value.len()).sum();
        self.data.as_bytes().len() + tags + self.metadata.map_or(0, |metadata| metadata.as_bytes().len()) + header
    }

    /// Returns an owned copy with a commit of its own, which suits a few events. To keep many, read them with
    /// [`EventLog::read`](crate::EventLog::read), where the events of one commit share it.
    pub fn to_recorded(&self) -> RecordedEvent {
        RecordedEvent {
            sequence_number: self.sequence_number,
            ordinal: self.ordinal,
            id: self.id,
            event_type: self.event_type.into(),
            generation: self.generation,
            data: Data::of_raw(self.data),
            tags: self.tags.iter().map(|tag| (*tag).into()).collect(),
            public: self.public,
            metadata: self.metadata.map(|metadata| Metadata::from_stored(Data::of_raw(metadata))),
            time: self.time,
            commit: Arc::new(self.commit.to_info()),
        }
    }

    /// Decodes the data, as JSON represents it, into a type of your own.
    ///
    /// # Errors
    /// A sentence that names the field that does not fit.
    pub fn decode<T: serde::de::DeserializeOwned>(&self) -> Result<T, String> {
        crate::data::decode(self.data)
    }
}

impl RecordedEvent {
    /// Lends the event to `visit`, as a scan does.
    pub fn lend<R>(&self, visit: impl FnOnce(EventRef<'_>) -> R) -> R {
        let info = &*self.commit;
        let header: Vec<(&str, &str)> = info.header.iter().map(|(key, value)| (&**key, &**value)).collect();
        let tags: Vec<&str> = self.tags.iter().map(|tag| &**tag).collect();
        let commit = CommitRef {
            commit_id: info.commit_id,
            request_id: info.request_id.as_deref(),
            aggregate_name: &info.aggregate.name,
            aggregate_id: &info.aggregate.id,
            version: info.version,
            time: info.time,
            tenant_id: &info.tenant_id,
            owner_id: &info.owner_id,
            space_id: &info.space_id,
            command_id: info.command_id.as_deref(),
            correlation_id: info.correlation_id.as_deref(),
            causation_id: info.causation_id.as_deref(),
            header: &header,
            transaction: info.transaction,
            received: info.received.as_ref(),
        };
        visit(EventRef {
            sequence_number: self.sequence_number,
            ordinal: self.ordinal,
            id: self.id,
            event_type: &self.event_type,
            generation: self.generation,
            data: self.data.as_raw(),
            tags: &tags,
            public: self.public,
            metadata: self.metadata.as_ref().map(|metadata| metadata.data().as_raw()),
            time: self.time,
            commit: &commit,
        })
    }
}
