//! The event log's meaning in memory, and random operations to compare a backend with it.
//!
//! [`Operations`] makes the operations, [`Operation::run`] asks the log under test, [`Model::check`] compares the answer with what it
//! must be and applies it. One client at a time: for concurrent clients see [`crate::history`].

mod answers;
mod operation;
mod operations;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use annals_core::{
    Aggregate, CommitError, CommitInfo, CommitOutcome, DEFAULT_TENANT_ID, NewCommit, RecordedCommit, RecordedEvent,
    SequenceNumber, Timestamp, Version,
};

pub use operation::{Answer, Operation};
pub use operations::{Operations, Shape, Variety};

/// The key of the digests that are compared; any will do, they stay here.
const DIGEST_KEY: [u8; 16] = *b"conformance test";

/// A log in memory that does what a log must do.
#[derive(Debug, Default)]
pub struct Model {
    events: Vec<RecordedEvent>,
    aggregates: BTreeMap<Aggregate, Vec<Stored>>,
}

#[derive(Debug)]
struct Stored {
    commit: RecordedCommit,
    digest: u128,
}

/// What a commit must be answered.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// It is stored with this version, from this number on.
    Stored(Version, SequenceNumber),
    /// It is a repeat with this outcome.
    Repeat(CommitOutcome),
    /// It is refused.
    Refused(CommitError),
}

impl Model {
    /// The events, in order. A request id that the store made is not known here and left out.
    pub fn events(&self) -> &[RecordedEvent] {
        &self.events
    }

    /// The number of events.
    pub fn head(&self) -> SequenceNumber {
        self.events.len() as SequenceNumber
    }

    /// The version of an aggregate.
    pub fn version(&self, aggregate: &Aggregate) -> Version {
        self.stored(aggregate).len() as Version
    }

    /// What `commit` must be answered now.
    pub fn judge(&self, commit: &NewCommit) -> Verdict {
        if let Err(invalid) = commit.validate() {
            return Verdict::Refused(invalid.into());
        }
        let stored = self.stored(&commit.aggregate);
        let tenant = commit.tenant_id.as_deref().unwrap_or(DEFAULT_TENANT_ID);
        if let Some(other) = stored.first().map(|first| &first.commit.info.tenant_id).filter(|of| ***of != *tenant) {
            return Verdict::Refused(CommitError::AggregateOfOtherTenant { tenant_id: other.to_string() });
        }
        let same_request =
            |stored: &&Stored| commit.request_id.is_some() && stored.commit.info.request_id == commit.request_id;
        if let Some(first) = stored.iter().find(same_request) {
            return if first.digest == commit.content_digest(&DIGEST_KEY) {
                Verdict::Repeat(first.outcome())
            } else {
                let request_id = commit.request_id.clone().unwrap_or_default().to_string();
                Verdict::Refused(CommitError::RequestIdReused { request_id })
            };
        }
        let actual_version = stored.len() as Version;
        if commit.expected_version.admits(actual_version) {
            Verdict::Stored(actual_version + 1, self.head())
        } else {
            let expected = commit.expected_version.to_string();
            Verdict::Refused(CommitError::VersionConflict { expected, actual_version })
        }
    }

    /// Compares the answer to a commit with what it must be, and stores what was stored. `now` is the time of the store's clock.
    ///
    /// # Errors
    /// What the answer should have been.
    pub fn commit(
        &mut self,
        commit: &NewCommit,
        now: Timestamp,
        answer: &Result<CommitOutcome, CommitError>,
    ) -> Result<(), String> {
        match (self.judge(commit), answer) {
            (Verdict::Refused(due), Err(error)) if due == *error => Ok(()),
            (Verdict::Repeat(due), Ok(outcome)) if due == *outcome => Ok(()),
            (Verdict::Stored(version, first), Ok(outcome))
                if (outcome.version, outcome.first_sequence_number, outcome.duplicate) == (version, first, false) =>
            {
                self.store(commit, now, outcome)
            }
            (due, answer) => Err(format!("{commit:?}\nmust be answered {due:?}\nnot {answer:?}")),
        }
    }

    fn store(&mut self, commit: &NewCommit, now: Timestamp, outcome: &CommitOutcome) -> Result<(), String> {
        let given = commit.events.iter().zip(&outcome.event_ids);
        if outcome.event_ids.len() != commit.events.len()
            || given.clone().any(|(new, id)| new.id.is_some_and(|given| given != *id))
        {
            return Err(format!("event ids {:?} do not belong to {commit:?}", outcome.event_ids));
        }
        let info = Arc::new(CommitInfo {
            commit_id: outcome.commit_id,
            request_id: commit.request_id.clone(),
            aggregate: commit.aggregate.clone(),
            version: outcome.version,
            time: commit.events.first().and_then(|event| event.time).unwrap_or(now),
            tenant_id: commit.tenant_id.clone().unwrap_or_else(|| DEFAULT_TENANT_ID.into()),
            owner_id: commit.owner_id.clone().unwrap_or_default(),
            space_id: commit.space_id.clone().unwrap_or_default(),
            command_id: commit.command_id.clone(),
            correlation_id: commit.correlation_id.clone(),
            causation_id: commit.causation_id.clone(),
            header: commit.header.clone(),
        });
        let events: Vec<RecordedEvent> = given
            .zip(0u32..)
            .map(|((new, id), ordinal)| RecordedEvent {
                sequence_number: outcome.first_sequence_number + u64::from(ordinal),
                ordinal,
                id: *id,
                event_type: new.event_type.clone(),
                generation: new.generation,
                data: new.data.clone(),
                tags: new.tags.clone(),
                public: new.public,
                time: new.time.unwrap_or(now),
                commit: info.clone(),
            })
            .collect();
        self.events.extend(events.iter().cloned());
        let stored = Stored { commit: RecordedCommit { info, events }, digest: commit.content_digest(&DIGEST_KEY) };
        self.aggregates.entry(commit.aggregate.clone()).or_default().push(stored);
        Ok(())
    }

    fn stored(&self, aggregate: &Aggregate) -> &[Stored] {
        self.aggregates.get(aggregate).map(Vec::as_slice).unwrap_or_default()
    }
}

impl Stored {
    fn outcome(&self) -> CommitOutcome {
        CommitOutcome {
            commit_id: self.commit.info.commit_id,
            version: self.commit.info.version,
            first_sequence_number: self.commit.events[0].sequence_number,
            event_ids: self.commit.events.iter().map(|event| event.id).collect(),
            duplicate: true,
        }
    }
}
