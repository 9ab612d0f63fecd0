//! Commits as they are copied from one log to another.

use crate::{ExpectedVersion, KeyChanges, NewCommit, NewEvent, RecordedCommit, RecordedEvent, event_uuid};

/// A commit with everything that a copy of it needs.
#[derive(Debug, Clone, PartialEq)]
pub struct CommitCopy {
    /// Its events, and what they have in common.
    pub commit: RecordedCommit,
    /// What it did to prepare keys.
    pub keys: KeyChanges,
}

impl CommitCopy {
    /// Whether nothing that belongs to it comes behind it: it stands for itself, or is the last one of its transaction.
    pub fn ends(&self) -> bool {
        self.commit.info.transaction.is_none_or(|it| it.ends())
    }

    /// The commit as it was asked for, which gives the same digest of its content. It has no request id if that is the commit's own id,
    /// which the store gave.
    pub fn into_new(self) -> NewCommit {
        let info = self.commit.info;
        let event = |event: RecordedEvent| NewEvent {
            // An id that follows from the commit's was not given, and whether it was is part of the content.
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
