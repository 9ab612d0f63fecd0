//! The first documents in a sort order, out of documents that arrive in any order.

use std::collections::BinaryHeap;

use bson::RawBsonRef;
use bson::raw::{RawDocument, RawDocumentBuf};

use super::StoredQuery;
use super::answer::{fits, shown};
use crate::order::{Direction, document_keys, encoded, invert};
use crate::{Code, DocumentKind, Invalid, SortBy};

/// The documents that a query returns or skips: no more than those are held.
pub(super) struct Lowest<'q> {
    query: &'q StoredQuery,
    kind: DocumentKind,
    /// Ordered with the highest on top. Documents are held in their result form.
    held: BinaryHeap<(Vec<u8>, Held)>,
    held_max: usize,
    bytes: usize,
}

/// A document that does not take part in comparisons, because no two documents have the same sort key.
struct Held(RawDocumentBuf);

impl PartialEq for Held {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Held {}

impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Held {
    fn cmp(&self, _: &Self) -> std::cmp::Ordering {
        std::cmp::Ordering::Equal
    }
}

impl<'q> Lowest<'q> {
    pub(super) fn new(query: &'q StoredQuery, kind: DocumentKind) -> Self {
        let held_max = usize::try_from(query.skip.saturating_add(query.limit)).unwrap_or(usize::MAX);
        Self { query, kind, held: BinaryHeap::new(), held_max, bytes: 0 }
    }

    /// Adds a stored document, or drops it if it sorts after those that are held.
    ///
    /// # Errors
    /// `invalid_query` for a document that cannot be sorted by the query's fields, `query_answer_too_large`.
    pub(super) fn offer(&mut self, stored: &RawDocument) -> Result<(), Invalid> {
        let place = place_of(&self.query.sort, stored)?;
        if self.held.len() >= self.held_max {
            match self.held.peek() {
                Some((highest, _)) if place < *highest => self.drop_highest(),
                _ => return Ok(()),
            }
        }
        let document = shown(stored, self.query, self.kind);
        self.bytes += place.len() + document.as_bytes().len();
        self.held.push((place, Held(document)));
        fits(self.bytes, self.query)
    }

    fn drop_highest(&mut self) {
        if let Some((place, Held(document))) = self.held.pop() {
            self.bytes -= place.len() + document.as_bytes().len();
        }
    }

    /// Returns the result: the documents after those that are skipped.
    pub(super) fn answer(self) -> Vec<RawDocumentBuf> {
        let skip = usize::try_from(self.query.skip).unwrap_or(usize::MAX);
        self.held.into_sorted_vec().into_iter().skip(skip).map(|(_, Held(document))| document).collect()
    }
}

/// Returns the sort key of a document: the keys of the sort fields, then its id in the direction of the last field.
fn place_of(sort: &[SortBy], document: &RawDocument) -> Result<Vec<u8>, Invalid> {
    let paths: Vec<_> = sort.iter().map(|by| (by.path.as_str(), by.direction)).collect();
    let (keys, _) = document_keys(document, &paths).map_err(|error| {
        let message = format!("{error} in at least one document, so the result cannot be sorted by both");
        Invalid::new(Code::InvalidQuery, "sort", message)
    })?;
    let mut place = keys.into_iter().next().unwrap_or_default();
    let start = place.len();
    place.extend_from_slice(&encoded(document.get("_id").ok().flatten().unwrap_or(RawBsonRef::Null)));
    if sort.last().is_some_and(|by| by.direction == Direction::Descending) {
        invert(&mut place[start..]);
    }
    Ok(place)
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;
    use crate::{Condition, Projection};

    #[test]
    fn those_behind_what_is_passed_over_come_in_order_and_no_more_is_held() {
        let sort = vec![SortBy { path: "n".to_owned(), direction: Direction::Descending }];
        let (condition, projection) = (Condition::All, Projection::Whole);
        let query = StoredQuery { condition, projection, sort, skip: 1, limit: 2, bytes_max: None };
        let mut lowest = Lowest::new(&query, DocumentKind::Commit);
        for (id, n) in [(1, 5), (2, 9), (3, 5), (4, 7), (5, 1)] {
            lowest.offer(&rawdoc! { "_id": id, "n": n }).expect("it fits");
            assert!(lowest.held.len() <= 3);
        }
        // Equal ones by their ids, downwards as the sort.
        assert_eq!(lowest.answer(), [rawdoc! { "id": 4, "n": 7 }, rawdoc! { "id": 3, "n": 5 }]);
    }

    #[test]
    fn what_has_to_be_held_has_a_limit() {
        let (condition, projection) = (Condition::All, Projection::Whole);
        let query =
            StoredQuery { condition, projection, sort: Vec::new(), skip: 0, limit: u64::MAX, bytes_max: Some(60) };
        let mut lowest = Lowest::new(&query, DocumentKind::Commit);
        assert_eq!(lowest.offer(&rawdoc! { "_id": 1 }), Ok(()));
        let refused = (2..9).map(|id| lowest.offer(&rawdoc! { "_id": id })).find_map(Result::err);
        assert_eq!(refused.map(|refused| refused.code), Some(Code::QueryAnswerTooLarge));
    }
}
