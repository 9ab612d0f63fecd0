//! A log that answers commits once they are in the log. Most cases are written for this, because they read what they wrote.

use std::sync::Arc;

use annals_core::{CommitError, CommitOutcome, EventLog, NewCommit, NewTransaction, Reached, TransactionError};
use async_trait::async_trait;

use crate::tap::{Tap, Tapped};

/// Sets [`Reached::Logged`] as the wait of every commit.
pub(crate) struct Logged;

impl Logged {
    pub(crate) fn over(log: Arc<dyn EventLog>) -> Arc<dyn EventLog> {
        Tapped::new(log, Arc::new(Self))
    }
}

#[async_trait]
impl Tap for Logged {
    async fn commit(&self, log: &dyn EventLog, commit: NewCommit) -> Result<CommitOutcome, CommitError> {
        log.commit(commit.wait_until(Reached::Logged)).await
    }

    async fn transact(
        &self,
        log: &dyn EventLog,
        transaction: NewTransaction,
    ) -> Result<Vec<CommitOutcome>, TransactionError> {
        log.transact(transaction.wait_until(Reached::Logged)).await
    }
}
