//! Which of the records that a scan reads belong on a page, and in which order.

use std::borrow::Cow;
use std::collections::BinaryHeap;
use std::ops::ControlFlow;

use annals_core::bson::raw::RawDocument;
use annals_core::order::{Direction, document_keys, invert};
use annals_core::{Code, Invalid, Matcher, RecordError, SortBy, StoreError, limits};

use super::catalog::KnownIndex;
use super::scan::Candidate;
use super::{keys, value};
use crate::engine::View;

/// The records that are wanted.
pub(super) struct Wanted<'q> {
    /// `None` if every record that is read matches.
    pub(super) matcher: Option<&'q Matcher>,
    pub(super) sort: &'q [SortBy],
    /// Only records after this place in the order.
    pub(super) after: Option<Vec<u8>>,
    /// If records come in the order of some first fields only: how to determine where those with equal first fields begin.
    pub(super) common: Option<Common>,
    /// Whether stored documents are kept.
    pub(super) keeps_stored: bool,
    /// Whether the place of a record in the order is computed.
    pub(super) keeps_order: bool,
}

/// The common beginning of entries whose records are equal in the first fields.
pub(super) struct Common {
    pub(super) known: KnownIndex,
    pub(super) of_index: usize,
    /// The offset of the entry in its key.
    pub(super) start: usize,
}

impl Common {
    /// Returns the beginning of an entry's key. The entry must be the only one of its document.
    fn beginning(&self, document: &RawDocument, mut place: Vec<u8>) -> Vec<u8> {
        let fields = self.known.fields();
        let keys = document_keys(document, &fields[..self.of_index]).map(|(keys, _)| keys).unwrap_or_default();
        place.truncate(self.start + keys.first().map_or(0, Vec::len));
        place
    }
}

/// A matching record. Records compare by their place in the order.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Found {
    /// Empty if records already come in order.
    pub(super) order: Vec<u8>,
    pub(super) id: Vec<u8>,
    /// Where it was found.
    pub(super) place: Vec<u8>,
    /// The stored document if it is kept, otherwise empty.
    stored: Vec<u8>,
}

impl Found {
    /// Returns the stored document.
    pub(super) fn stored(&self, view: &dyn View, collection: u32) -> Result<Cow<'_, [u8]>, StoreError> {
        if !self.stored.is_empty() {
            return Ok(Cow::Borrowed(&self.stored));
        }
        let gone = || StoreError::RecordsDamaged("an index has an entry for a record that is missing".to_owned());
        Ok(Cow::Owned(view.get(&keys::document(collection, &self.id))?.ok_or_else(gone)?))
    }
}

impl Wanted<'_> {
    fn judge(&self, candidate: Candidate) -> Result<Option<Found>, RecordError> {
        let (_, document) = value::parts(&candidate.id, &candidate.stored)?;
        if self.matcher.is_some_and(|matcher| !matcher.matches(document)) {
            return Ok(None);
        }
        let order = if self.keeps_order { order_of(self.sort, document, &candidate.id)? } else { Vec::new() };
        if self.after.as_ref().is_some_and(|after| order <= *after) {
            return Ok(None);
        }
        let place = match &self.common {
            Some(common) => common.beginning(document, candidate.place),
            None => candidate.place,
        };
        let stored = if self.keeps_stored { candidate.stored } else { Vec::new() };
        Ok(Some(Found { order, id: candidate.id, place, stored }))
    }

    /// Returns whether a record follows another one in the first fields. If so, do all that come after it, because records come in the
    /// order of these fields.
    fn is_past(&self, candidate: &Candidate, last: &Found, fields: usize) -> Result<bool, RecordError> {
        let (_, document) = value::parts(&candidate.id, &candidate.stored)?;
        let first = key_of(&self.sort[..fields], document)?;
        Ok(first > last.order && !last.order.starts_with(&first))
    }
}

/// Returns the place of a record in the order: its sort keys, then its id.
pub(super) fn order_of(sort: &[SortBy], document: &RawDocument, id: &[u8]) -> Result<Vec<u8>, Invalid> {
    let mut order = key_of(sort, document)?;
    let start = order.len();
    order.extend_from_slice(id);
    if sort.last().is_some_and(|by| by.direction == Direction::Descending) {
        invert(&mut order[start..]);
    }
    Ok(order)
}

/// Returns the sort key of a record.
fn key_of(sort: &[SortBy], document: &RawDocument) -> Result<Vec<u8>, Invalid> {
    let paths: Vec<_> = sort.iter().map(|by| (by.path.as_str(), by.direction)).collect();
    let (sort_keys, _) = document_keys(document, &paths).map_err(|error| {
        let message = format!("{error} in at least one record, so the result cannot be sorted by both");
        Invalid::new(Code::InvalidQuery, "sort", message)
    })?;
    // Ascending, the lowest element counts. Descending, the highest counts, whose inverted encoding is the lowest.
    Ok(sort_keys.into_iter().next().unwrap_or_default())
}

/// The records of a page that were found so far, and one more to tell whether another page follows.
pub(super) enum Taken {
    /// Of a scan that comes in order: the first ones. The kept documents take no more memory than a page.
    First {
        /// The records.
        found: Vec<Found>,
        /// The size of the kept documents.
        bytes: usize,
    },
    /// Of a scan in another order: the lowest ones. Memory holds only their keys.
    Lowest {
        /// The records, the highest on top.
        found: BinaryHeap<Found>,
        /// The number of first fields of the sort in whose order the scan comes.
        first_fields: usize,
    },
}

impl Taken {
    /// Judges a record, and keeps it if it belongs on the page as far as is known. Breaks off once no later record can.
    pub(super) fn take(
        &mut self,
        wanted: &Wanted<'_>,
        candidate: Candidate,
        limit: usize,
    ) -> Result<ControlFlow<()>, RecordError> {
        match self {
            Self::First { found, bytes } => {
                if let Some(one) = wanted.judge(candidate)? {
                    let is_full = found.len() == limit || *bytes > limits::PAGE_BYTES_MAX;
                    *bytes += one.stored.len();
                    found.push(one);
                    if is_full {
                        return Ok(ControlFlow::Break(()));
                    }
                }
            }
            Self::Lowest { found, first_fields } => {
                if let Some(last) = found.peek().filter(|_| *first_fields > 0 && found.len() > limit)
                    && wanted.is_past(&candidate, last, *first_fields)?
                {
                    return Ok(ControlFlow::Break(()));
                }
                if let Some(one) = wanted.judge(candidate)? {
                    found.push(one);
                    if found.len() > limit + 1 {
                        found.pop();
                    }
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Returns the records in order.
    pub(super) fn into_sorted(self) -> Vec<Found> {
        match self {
            Self::First { found, .. } => found,
            Self::Lowest { found, .. } => found.into_sorted_vec(),
        }
    }
}
