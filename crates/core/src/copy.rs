//! Commits in the form in which they are copied from one log to another.

use crate::{ExpectedVersion, KeyChanges, NewCommit, NewEvent, RecordedCommit, RecordedEvent, event_uuid};

/// A commit with everything that is needed to copy it.
#[derive(Debug, Clone, PartialEq)]
pub struct CommitCopy {
    /// The events and their common information.
    pub commit: RecordedCommit,
    /// Its changes of prepare keys.
    pub keys: KeyChanges,
}

impl CommitCopy {
    /// Returns whether it is the last commit of its transaction, or belongs to none.
    pub fn ends(&self) -> bool {
        self.commit.info.transaction.is_none_or(|it| it.ends())
    }

    /// Converts it back to the commit as it was requested, which has the same digest of its content. The request id is left out if the
    /// store generated it, in which case it equals the commit's id.
    pub fn into_new(self) -> NewCommit {
        let info = self.commit.info;
        let event = |event: RecordedEvent| NewEvent {
            // An event id that was derived from the commit id was not given by the client, and the digest depends on whether one was
            // given.
            id: Some(event.id).filter(|id| *id != event_uuid(info.commit_id, event.ordinal)),
            event_type: event.event_type,
            generation: event.generation,
            data: event.data,
            tags: event.tags,
            public: event.public,
            metadata: event.metadata,
            time: Some(event.time),
        };
        NewCommit {
            expected_version: ExpectedVersion::Exact(info.version.saturating_sub(1)),
            request_id: info.request_id.clone().filter(|id| **id != *info.commit_id.to_string()),
            command_id: info.command_id.clone(),
            events: self.commit.events.into_iter().map(event).collect(),
            header: info.header.clone(),
            tenant_id: Some(info.tenant_id.clone()),
            owner_id: Some(info.owner_id.clone()),
            space_id: Some(info.space_id.clone()),
            correlation_id: info.correlation_id.clone(),
            causation_id: info.causation_id.clone(),
            keys: self.keys,
            ..NewCommit::new(info.aggregate.name.clone(), info.aggregate.id.clone())
        }
    }
}
