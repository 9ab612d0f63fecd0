//! The event log's meaning in memory, and random operations to compare a backend with it.
//!
//! [`Operations`] makes the operations, [`Operation::run`] asks the log under test, [`Model::check`] compares the answer with what it
//! must be and applies it. One client at a time: for concurrent clients see [`crate::history`].

mod answers;
pub(crate) mod keys;
mod operation;
mod operations;
mod transactions;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use annals_core::{
    Aggregate, AppendCondition, ByteString, CommitError, CommitInfo, CommitOutcome, DEFAULT_TENANT_ID, EventPattern,
    ExpectedVersion, KeyChange, KeyError, KeyHolder, KeysQuery, ListedKey, NewCommit, RecordedCommit, RecordedEvent,
    SequenceNumber, Timestamp, TransactionPlace, Version,
};

use keys::Keys;
pub use operation::{Answer, Operation};
pub use operations::{EPOCH, Operations, Shape, Variety};
pub use transactions::TransactionVerdict;

/// The key of the digests that are compared; any will do, they stay here.
const DIGEST_KEY: [u8; 16] = *b"conformance test";

/// A log in memory that does what a log must do.
#[derive(Debug, Default)]
pub struct Model {
    events: Vec<RecordedEvent>,
    aggregates: BTreeMap<Aggregate, Vec<Stored>>,
    keys: Keys,
}

#[derive(Debug)]
struct Stored {
    commit: RecordedCommit,
    /// Of the request: a transaction's is that of the whole, and stands at its first commit.
    digest: u128,
    /// Where the other commits of the transaction are that this one is the first of.
    others: Vec<(Aggregate, Version)>,
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

    /// Who holds a prepare key.
    pub fn holder(&self, name: &str, key: &str) -> Option<KeyHolder> {
        self.keys.holder(name, key)
    }

    /// The prepare keys that are held and have not expired, ascending.
    pub fn held_keys(&self, query: &KeysQuery, now: Timestamp) -> Vec<ListedKey> {
        self.keys.held(query, now)
    }

    /// Makes a change of a prepare key that comes without a commit.
    ///
    /// # Errors
    /// As [`PrepareKeys::change`](annals_core::PrepareKeys::change).
    pub fn change_key(&mut self, change: &KeyChange, now: Timestamp) -> Result<bool, KeyError> {
        self.keys.serve(change, now)
    }

    /// The version of an aggregate.
    pub fn version(&self, aggregate: &Aggregate) -> Version {
        self.stored(aggregate).len() as Version
    }

    /// What `commit` must be answered at `now`.
    pub fn judge(&self, commit: &NewCommit, now: Timestamp) -> Verdict {
        if let Err(invalid) = commit.validate() {
            return Verdict::Refused(invalid.into());
        }
        let first_refusal = || {
            self.check_tenant(commit)?;
            let repeat = self.first_of_request(&commit.aggregate, commit.request_id.as_ref(), || {
                commit.content_digest(&DIGEST_KEY)
            })?;
            if let Some(first) = repeat {
                return Ok(Verdict::Repeat(first.outcome()));
            }
            self.check_append_condition(commit)?;
            self.keys.after(std::iter::once(commit), now).map_err(|(_, error)| error)?;
            let actual_version = self.check_version(&commit.aggregate, commit.expected_version)?;
            Ok(Verdict::Stored(actual_version + 1, self.head()))
        };
        first_refusal().unwrap_or_else(Verdict::Refused)
    }

    fn check_tenant(&self, commit: &NewCommit) -> Result<(), CommitError> {
        let tenant = commit.tenant_id.as_deref().unwrap_or(DEFAULT_TENANT_ID);
        match self.stored(&commit.aggregate).first().map(|first| &first.commit.info.tenant_id) {
            Some(other) if **other != *tenant => {
                Err(CommitError::AggregateOfOtherTenant { tenant_id: other.to_string() })
            }
            _ => Ok(()),
        }
    }

    /// What this request became when it came first.
    fn first_of_request(
        &self,
        aggregate: &Aggregate,
        request_id: Option<&ByteString>,
        digest: impl FnOnce() -> u128,
    ) -> Result<Option<&Stored>, CommitError> {
        let Some(request_id) = request_id else { return Ok(None) };
        let same = |stored: &&Stored| stored.commit.info.request_id.as_ref() == Some(request_id);
        match self.stored(aggregate).iter().find(same) {
            Some(first) if first.digest != digest() => {
                Err(CommitError::RequestIdReused { request_id: request_id.to_string() })
            }
            first => Ok(first),
        }
    }

    fn check_append_condition(&self, commit: &NewCommit) -> Result<(), CommitError> {
        let Some(condition) = &commit.append_condition else { return Ok(()) };
        let found = self.events.iter().find_map(|event| Some((condition.failed_by(event)?, event.sequence_number)));
        found.map_or(Ok(()), |(pattern, sequence_number)| {
            Err(CommitError::AppendConditionFailed { pattern, sequence_number })
        })
    }

    fn check_version(&self, aggregate: &Aggregate, expected: ExpectedVersion) -> Result<Version, CommitError> {
        let actual_version = self.version(aggregate);
        match expected.admits(actual_version) {
            true => Ok(actual_version),
            false => Err(CommitError::VersionConflict { expected: expected.to_string(), actual_version }),
        }
    }

    /// Whether a refusal is the one that is due. Which of the events and patterns that fail an append condition is named is open.
    fn same_refusal(&self, due: &CommitError, told: &CommitError, condition: Option<&AppendCondition>) -> bool {
        match (due, told, condition) {
            (
                CommitError::AppendConditionFailed { .. },
                CommitError::AppendConditionFailed { pattern, sequence_number },
                Some(condition),
            ) => {
                let named = usize::try_from(*sequence_number).ok().and_then(|index| self.events.get(index));
                named.is_some_and(|event| {
                    let matches = |it: &EventPattern| it.matches(&event.event_type, &event.tags);
                    event.sequence_number >= condition.from() && condition.fail_if.get(*pattern).is_some_and(matches)
                })
            }
            _ => due == told,
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
        match (self.judge(commit, now), answer) {
            (Verdict::Refused(due), Err(error)) if self.same_refusal(&due, error, commit.append_condition.as_ref()) => {
                Ok(())
            }
            (Verdict::Repeat(due), Ok(outcome)) if due == *outcome => Ok(()),
            (Verdict::Stored(version, first), Ok(outcome))
                if (outcome.version, outcome.first_sequence_number, outcome.duplicate)
                    == (version, Some(first), false) =>
            {
                self.store(commit, None, now, outcome)
            }
            (due, answer) => Err(format!("{commit:?}\nmust be answered {due:?}\nnot {answer:?}")),
        }
    }

    fn store(
        &mut self,
        commit: &NewCommit,
        transaction: Option<TransactionPlace>,
        now: Timestamp,
        outcome: &CommitOutcome,
    ) -> Result<(), String> {
        let given = commit.events.iter().zip(&outcome.event_ids);
        if outcome.event_ids.len() != commit.events.len()
            || given.clone().any(|(new, id)| new.id.is_some_and(|given| given != *id))
        {
            return Err(format!("event ids {:?} do not belong to {commit:?}", outcome.event_ids));
        }
        let first = outcome.first_sequence_number.ok_or_else(|| format!("{commit:?} has no number"))?;
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
            transaction,
            received: None,
        });
        let events: Vec<RecordedEvent> = given
            .zip(0u32..)
            .map(|((new, id), ordinal)| RecordedEvent {
                sequence_number: first + u64::from(ordinal),
                ordinal,
                id: *id,
                event_type: new.event_type.clone(),
                generation: new.generation,
                data: new.data.clone(),
                tags: new.tags.clone(),
                public: new.public,
                metadata: new.metadata.clone(),
                time: new.time.unwrap_or(now),
                commit: info.clone(),
            })
            .collect();
        self.events.extend(events.iter().cloned());
        self.keys = self.keys.after(std::iter::once(commit), now).map_err(|(_, error)| error.to_string())?;
        let digest = commit.content_digest(&DIGEST_KEY);
        let stored = Stored { commit: RecordedCommit { info, events }, digest, others: Vec::new() };
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
            first_sequence_number: Some(self.commit.events[0].sequence_number),
            event_ids: self.commit.events.iter().map(|event| event.id).collect(),
            duplicate: true,
            stage: None,
        }
    }
}
