//! The required answers to transactions.

use annals_core::{
    CommitOutcome, NewCommit, NewTransaction, SequenceNumber, Timestamp, TransactionError, TransactionPlace, Version,
};

use super::{DIGEST_KEY, Model, Stored};

/// The required answer to a transaction.
#[derive(Debug, Clone, PartialEq)]
pub enum TransactionVerdict {
    /// Its commits are stored with these versions, each from this sequence number on.
    Stored(Vec<(Version, SequenceNumber)>),
    /// It is a repeat with these outcomes.
    Repeat(Vec<CommitOutcome>),
    /// It is refused.
    Refused(TransactionError),
}

impl Model {
    /// Returns the required answer to `transaction` at `now`.
    pub fn judge_transaction(&self, transaction: &NewTransaction, now: Timestamp) -> TransactionVerdict {
        self.first_refusal(transaction, now).unwrap_or_else(TransactionVerdict::Refused)
    }

    fn first_refusal(
        &self,
        transaction: &NewTransaction,
        now: Timestamp,
    ) -> Result<TransactionVerdict, TransactionError> {
        transaction.validate()?;
        let commits = || transaction.commits.iter().enumerate();
        for (place, commit) in commits() {
            self.check_tenant(commit).map_err(|error| TransactionError::commit(place, error))?;
        }
        let digest = || transaction.content_digest(&DIGEST_KEY);
        let first = &transaction.commits[0].aggregate;
        if let Some(first) = self.first_of_request(first, transaction.request_id.as_ref(), digest)? {
            return Ok(TransactionVerdict::Repeat(self.outcomes_from(first)));
        }
        for (place, commit) in commits() {
            self.check_append_condition(commit).map_err(|error| TransactionError::commit(place, error))?;
        }
        let keys = self.keys.after(transaction.commits.iter(), now);
        keys.map_err(|(place, error)| TransactionError::commit(place, error))?;
        for (place, it) in transaction.expect.iter().enumerate() {
            let checked = self.check_version(&it.aggregate, it.expected_version);
            checked.map_err(|error| TransactionError::expectation(place, error))?;
        }
        let mut next = self.head();
        let mut places = Vec::new();
        for (place, commit) in commits() {
            let checked = self.check_version(&commit.aggregate, commit.expected_version);
            let before = checked.map_err(|error| TransactionError::commit(place, error))?;
            places.push((before + 1, next));
            next += commit.events.len() as SequenceNumber;
        }
        Ok(TransactionVerdict::Stored(places))
    }

    fn outcomes_from(&self, first: &Stored) -> Vec<CommitOutcome> {
        let other = |(aggregate, version): &(_, Version)| self.stored(aggregate)[*version as usize - 1].outcome();
        std::iter::once(first.outcome()).chain(first.others.iter().map(other)).collect()
    }

    /// Compares the answer to a transaction with the required one, and stores what was stored. `now` is the time of the store's clock.
    ///
    /// # Errors
    /// The required answer.
    pub fn transact(
        &mut self,
        transaction: &NewTransaction,
        now: Timestamp,
        answer: &Result<Vec<CommitOutcome>, TransactionError>,
    ) -> Result<(), String> {
        let due = self.judge_transaction(transaction, now);
        let right = match (&due, answer) {
            (TransactionVerdict::Refused(due), Err(told)) => {
                let refused = transaction.commits.iter().enumerate().find(|(n, _)| due.at == format!("commits[{n}]"));
                let condition = refused.and_then(|(_, commit)| commit.append_condition.as_ref());
                due.at == told.at && self.same_refusal(&due.error, &told.error, condition)
            }
            (TransactionVerdict::Repeat(due), Ok(outcomes)) => due == outcomes,
            (TransactionVerdict::Stored(due), Ok(outcomes)) => {
                let is = |(told, due): (&CommitOutcome, &(Version, SequenceNumber))| {
                    (told.version, told.first_sequence_number) == (due.0, Some(due.1))
                };
                outcomes.len() == due.len()
                    && outcomes.iter().zip(due).all(is)
                    && !outcomes.iter().any(|it| it.duplicate)
            }
            _ => false,
        };
        if !right {
            return Err(format!("{transaction:?}\nmust be answered {due:?}\nnot {answer:?}"));
        }
        match (due, answer) {
            (TransactionVerdict::Stored(_), Ok(outcomes)) => self.store_transaction(transaction, now, outcomes),
            _ => Ok(()),
        }
    }

    fn store_transaction(
        &mut self,
        transaction: &NewTransaction,
        now: Timestamp,
        outcomes: &[CommitOutcome],
    ) -> Result<(), String> {
        let count = transaction.commits.len() as u32;
        for (place, (commit, outcome)) in (0..).zip(transaction.commits.iter().zip(outcomes)) {
            // The other commits are found through the first, and by no request id that a caller could know.
            let request_id = transaction.request_id.clone().filter(|_| place == 0);
            let place = TransactionPlace { id: outcomes[0].commit_id, place, count };
            self.store(&NewCommit { request_id, ..commit.clone() }, Some(place), now, outcome)?;
        }
        let others = transaction.commits.iter().zip(outcomes).skip(1);
        let others = others.map(|(commit, outcome)| (commit.aggregate.clone(), outcome.version)).collect();
        let first = self.aggregates.get_mut(&transaction.commits[0].aggregate).and_then(|stored| stored.last_mut());
        let first = first.ok_or("the first commit was just stored")?;
        (first.digest, first.others) = (transaction.content_digest(&DIGEST_KEY), others);
        Ok(())
    }
}
