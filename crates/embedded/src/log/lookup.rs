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

    /// Returns the other commits of the transaction whose first commit is `first`, found at this location. Empty if it is not a
    /// transaction.
    pub(super) fn others(&self, first: &Record) -> Result<Vec<Record>, StoreError> {
        let Some(transaction) = first.transaction() else { return Ok(Vec::new()) };
        let Some(ordinal) = self.segment.index.ordinal_of(self.entry.sequence_number)? else { return Ok(Vec::new()) };
        let others: Vec<u32> = (ordinal + 1..ordinal + transaction.count).collect();
        self.segment.records(&others)
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
