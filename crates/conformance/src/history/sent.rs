//! The request of a call: one commit, or the commits of a transaction. A commit is checked as a transaction of one.

use annals_core::{
    Aggregate, CommitError, CommitOutcome, Expectation, ExpectedVersion, Invalid, NewCommit, NewTransaction,
    RecordedEvent, SequenceNumber, StoreError, TransactionError,
};

use super::final_log::{FinalLog, StoredCommit};
use super::record::{Call, What};

#[derive(Clone, Copy)]
pub(crate) struct Sent<'a> {
    pub call: &'a Call,
    pub commits: &'a [NewCommit],
    pub expect: &'a [Expectation],
    pub request_id: Option<&'a str>,
    transaction: Option<&'a NewTransaction>,
}

/// What a client knows about the outcome of its request.
pub(crate) enum Outcome<'a> {
    Stored(&'a [CommitOutcome]),
    Repeat(&'a [CommitOutcome]),
    /// The reason, and the part of a transaction that it concerns.
    Refused(&'a CommitError, Part),
    Unknown,
}

/// A part of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Whole,
    Commit(usize),
    Expectation(usize),
    /// A part that does not exist.
    Unheard,
}

impl<'a> Sent<'a> {
    /// Returns the request of a call; `None` for reads.
    pub fn by(call: &'a Call) -> Option<Self> {
        match &call.what {
            What::Commit { commit, .. } => Some(Self {
                call,
                commits: std::slice::from_ref(commit),
                expect: &[],
                request_id: commit.request_id.as_deref(),
                transaction: None,
            }),
            What::Transact { transaction, .. } => Some(Self {
                call,
                commits: &transaction.commits,
                expect: &transaction.expect,
                request_id: transaction.request_id.as_deref(),
                transaction: Some(transaction),
            }),
            _ => None,
        }
    }

    pub fn outcome(&self) -> Outcome<'a> {
        match &self.call.what {
            What::Commit { answer: Some(Ok(outcome)), .. } => stored(std::slice::from_ref(outcome)),
            What::Commit { answer: Some(Err(error)), .. } => refused(error, Part::Commit(0)),
            What::Transact { answer: Some(Ok(outcomes)), .. } => stored(outcomes),
            What::Transact { answer: Some(Err(refusal)), .. } => refused(&refusal.error, self.part(refusal)),
            _ => Outcome::Unknown,
        }
    }

    fn part(&self, refusal: &TransactionError) -> Part {
        let commit = (0..self.commits.len()).find(|n| refusal.at == format!("commits[{n}]")).map(Part::Commit);
        let expected = || (0..self.expect.len()).find(|n| refusal.at == format!("expect[{n}]")).map(Part::Expectation);
        let whole = || refusal.at.is_empty().then_some(Part::Whole);
        commit.or_else(expected).or_else(whole).unwrap_or(Part::Unheard)
    }

    /// Returns the aggregate that this part concerns.
    pub fn aggregate(&self, part: Part) -> Option<&'a Aggregate> {
        match part {
            Part::Commit(n) => Some(&self.commits[n].aggregate),
            Part::Expectation(n) => Some(&self.expect[n].aggregate),
            Part::Whole | Part::Unheard => None,
        }
    }

    /// Returns the version that this part expects.
    pub fn expected_version(&self, part: Part) -> Option<ExpectedVersion> {
        match part {
            Part::Commit(n) => Some(self.commits[n].expected_version),
            Part::Expectation(n) => Some(self.expect[n].expected_version),
            Part::Whole | Part::Unheard => None,
        }
    }

    pub fn validate(&self) -> Result<(), Invalid> {
        match self.transaction {
            Some(transaction) => transaction.validate(),
            None => self.commits.iter().try_for_each(NewCommit::validate),
        }
    }

    /// Returns the stored commits of the request, if the commit at `start` in the log is its first: all of them in order, and adjacent.
    pub fn stored_at<'l>(&self, log: &'l FinalLog<'l>, start: usize) -> Option<&'l [StoredCommit<'l>]> {
        log.commits.get(start..start + self.commits.len())
    }

    /// Returns whether the log has the complete request from `start` on.
    pub fn is_stored_at(&self, log: &FinalLog<'_>, start: usize) -> bool {
        let Some(stored) = self.stored_at(log, start) else { return false };
        let named = self.request_id.is_none_or(|id| stored[0].info.request_id.as_deref() == Some(id));
        named && stored.iter().zip(self.commits).all(|(stored, commit)| stored.is(commit))
    }

    /// Returns whether the log has the aggregates and the content of the request from `start` on.
    pub fn has_content_of(&self, log: &FinalLog<'_>, start: usize) -> bool {
        let same = |(stored, commit): (&StoredCommit<'_>, &NewCommit)| {
            stored.info.aggregate == commit.aggregate && stored.has_content_of(commit)
        };
        self.stored_at(log, start).is_some_and(|stored| stored.iter().zip(self.commits).all(same))
    }

    /// Returns the first event below `before` that an append condition excludes.
    pub fn excluded<'l>(&self, log: &FinalLog<'l>, before: SequenceNumber) -> Option<&'l RecordedEvent> {
        let below = &log.events[..usize::try_from(before).unwrap_or(usize::MAX).min(log.events.len())];
        let conditions = || self.commits.iter().filter_map(|commit| commit.append_condition.as_ref());
        below.iter().find(|event| conditions().any(|condition| condition.failed_by(event).is_some()))
    }
}

fn stored(outcomes: &[CommitOutcome]) -> Outcome<'_> {
    if outcomes.iter().any(|outcome| outcome.duplicate) { Outcome::Repeat(outcomes) } else { Outcome::Stored(outcomes) }
}

fn refused(error: &CommitError, part: Part) -> Outcome<'_> {
    match error {
        CommitError::Store(StoreError::Failed(_) | StoreError::Unreachable(_)) => Outcome::Unknown,
        _ => Outcome::Refused(error, part),
    }
}
