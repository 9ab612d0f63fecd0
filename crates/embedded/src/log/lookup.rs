//! Look-ups of aggregates and requests: in memory by the exact term, in files by postings and a look at the frame.

use std::ops::RangeBounds;
use std::sync::Arc;

use annals_core::{Aggregate, StoreError};

use super::segment::{Segment, View};
use crate::index::{Entry, Head, read};
use crate::record::Record;
use crate::terms::{ExactTerm, short};

/// The location of a commit.
#[derive(Clone)]
pub(super) struct Found {
    pub(super) segment: Arc<Segment>,
    pub(super) entry: Entry,
}

impl Found {
    pub(super) fn record(&self) -> Result<Record, StoreError> {
        let mut records = self.segment.records_at(&[self.entry])?;
        records.pop().ok_or_else(|| self.segment.at.damage(self.entry.offset, "a commit is missing"))
    }

    /// Returns the other commits of the transaction whose first commit is `first`, found at this location. Empty if `first` begins no
    /// transaction: a later commit of one is found by its own id, and is then repeated alone.
    ///
    /// # Errors
    /// `Damaged` if the index does not have all of them: a transaction is never stored in part.
    pub(super) fn others(&self, first: &Record) -> Result<Vec<Record>, StoreError> {
        let Some(transaction) = first.transaction().filter(|it| it.place == 0) else { return Ok(Vec::new()) };
        let due = transaction.count.saturating_sub(1);
        let ordinal = self.segment.index.ordinal_of(self.entry.sequence_number)?;
        let ordinals: Vec<u32> = ordinal.into_iter().flat_map(|first| first + 1..=first + due).collect();
        let others = self.segment.records(&ordinals)?;
        match others.len() == due as usize {
            true => Ok(others),
            false => Err(self.segment.at.damage(self.entry.offset, "its index lacks commits of this transaction")),
        }
    }
}

/// Returns the head of an aggregate according to the segments with these numbers, or `None` if they hold no commit of it.
pub(super) fn head(
    view: &View,
    numbers: impl RangeBounds<u64>,
    aggregate: &Aggregate,
    exact: ExactTerm,
) -> Result<Option<Head>, StoreError> {
    for segment in view.segments.iter().rev().filter(|segment| numbers.contains(&segment.at.number)) {
        if let Some(index) = segment.memory() {
            if let Some(head) = read(index).head(exact) {
                return Ok(Some(head.clone()));
            }
            continue;
        }
        for ordinal in segment.index.all_postings(short(exact))?.into_iter().rev() {
            for record in segment.records(&[ordinal])? {
                if *record.filed_under() == *aggregate {
                    let tenant_id = record.commit.info.tenant_id.clone();
                    return Ok(Some(Head { version: record.version, tenant_id }));
                }
            }
        }
    }
    Ok(None)
}

/// Returns the location of the commit of this request in the segments with these numbers.
pub(super) fn request(
    view: &View,
    numbers: impl RangeBounds<u64>,
    aggregate: &Aggregate,
    request_id: &str,
    exact: ExactTerm,
) -> Result<Option<Found>, StoreError> {
    for segment in view.segments.iter().rev().filter(|segment| numbers.contains(&segment.at.number)) {
        let in_memory = segment.memory().map(|index| read(index).request(exact));
        let ordinals = match in_memory {
            Some(ordinal) => Vec::from_iter(ordinal),
            None => segment.index.all_postings(short(exact))?,
        };
        for entry in segment.index.entries(&ordinals)? {
            let found = Found { segment: segment.clone(), entry };
            // In memory the exact term identifies the request. A file stores only half of the term, so the frame decides.
            if in_memory.is_some() || is_request(&found.record()?, aggregate, request_id) {
                return Ok(Some(found));
            }
        }
    }
    Ok(None)
}

fn is_request(record: &Record, aggregate: &Aggregate, request_id: &str) -> bool {
    *record.filed_under() == *aggregate && record.request() == request_id
}

#[cfg(test)]
mod tests {
    use annals_core::{Data, EventLog, NewCommit, NewEvent, NewTransaction, SequenceNumber};

    use super::*;
    use crate::log::Log;

    fn part(n: usize) -> NewCommit {
        NewCommit::new("order", format!("{n}")).event(NewEvent::new("placed", Data::empty()))
    }

    #[tokio::test]
    async fn a_transaction_of_which_commits_are_missing_is_damage() {
        let log = Log::in_memory();
        let transaction = NewTransaction::new((0..3).map(part)).request_id("r");
        log.transact(transaction).await.expect("it is stored");

        let aggregate = Aggregate::new("order", "0");
        let term = log.core.key.request(&aggregate, "r");
        let found = request(&log.core.view(), .., &aggregate, "r", term).expect("it is read").expect("it is stored");
        let first = found.record().expect("it is read");
        let others = |sequence_number: SequenceNumber| {
            let entry = Entry { sequence_number, ..found.entry };
            Found { segment: found.segment.clone(), entry }.others(&first)
        };
        let ids =
            others(0).map(|others| others.iter().map(|other| other.filed_under().id.to_string()).collect::<Vec<_>>());
        assert_eq!(ids, Ok(vec!["1".to_owned(), "2".to_owned()]));
        // As if the index ended within the transaction.
        let short = others(1).map(|others| others.len());
        assert!(matches!(short, Err(StoreError::Damaged(_))), "{short:?}");
    }

    #[tokio::test]
    async fn a_later_commit_of_a_transaction_is_repeated_under_its_own_id() {
        let log = Log::in_memory();
        let outcomes = log.transact(NewTransaction::new((0..3).map(part)).request_id("r")).await.expect("it is stored");
        let id = outcomes[2].commit_id;
        let again = log.commit(part(2).request_id(id.to_string())).await.expect("it is answered");
        assert!(again.duplicate && again.commit_id == id, "{again:?}");
        log.commit(part(3)).await.expect("the log still takes commits");
    }
}
