//! Finds and counts records.

use std::borrow::Cow;
use std::collections::BinaryHeap;
use std::ops::ControlFlow;

use annals_core::bson::raw::RawDocument;
use annals_core::order::{Direction, document_keys, invert};
use annals_core::{
    Code, Condition, Explained, Invalid, Matcher, Record, RecordError, RecordPage, RecordQuery, SortBy, StoreError,
    limits,
};

use super::catalog::{CatalogCache, KnownCollection, KnownIndex};
use super::cursor::{self, Position};
use super::plan::{Ordered, documents_after, plan, plan_of_count};
use super::scan::{Candidate, Examined, Scan};
use super::totals::{COUNT_MIN, Total, Totals};
use super::{feed, keys, value};
use crate::engine::{Engine, View};

/// Returns one page of records.
pub(super) async fn find(
    engine: &Engine,
    catalogs: &CatalogCache,
    query: RecordQuery,
) -> Result<RecordPage, RecordError> {
    let view = engine.snapshot()?;
    let catalog = catalogs.of(&*view)?;
    let collection = catalog.collection(&query.collection)?;
    let looked = look(&*view, collection, &query, true).await?;
    page(&query, &*view, collection.id, looked)
}

/// Explains how a page is found.
pub(super) async fn explain(
    engine: &Engine,
    catalogs: &CatalogCache,
    query: RecordQuery,
) -> Result<Explained, RecordError> {
    let view = engine.snapshot()?;
    let catalog = catalogs.of(&*view)?;
    let collection = catalog.collection(&query.collection)?;
    let looked = look(&*view, collection, &query, false).await?;
    let by_id = looked.by_id.then(|| "_id_".to_owned());
    Ok(Explained {
        index: looked.index.map(|known| known.index.name().to_owned()).or(by_id),
        entries_examined: looked.examined.entries,
        documents_examined: looked.examined.documents,
        found: looked.found.len().min(query.limit) as u64,
        sorted: looked.ordered != Ordered::Wholly,
    })
}

/// What the search for a page found, and how.
struct Looked {
    /// The records of the page, and one more if another page follows.
    found: Vec<Found>,
    index: Option<KnownIndex>,
    /// Whether only documents with certain ids were read.
    by_id: bool,
    ordered: Ordered,
    examined: Examined,
}

/// Searches for a page. If records come in order and `keeps` is set, the stored documents of the page are kept, so that they need not be
/// read again.
async fn look(
    view: &(dyn View + Send + Sync),
    collection: &KnownCollection,
    query: &RecordQuery,
    keeps: bool,
) -> Result<Looked, RecordError> {
    let plan = plan(collection, &query.condition, &query.sort)?;
    let mut after = query.after.as_ref().map(|text| cursor::read(query, text)).transpose()?;
    let (ordered, index, start) = (plan.ordered, plan.index.clone(), plan.prefix.len());
    let by_id = index.is_none() && plan.narrow;
    let mut scan = Scan::new(plan, collection.id);
    let place = after.as_ref().and_then(|position| position.place.as_ref());
    if let Some((_, key)) = place.filter(|(found_in, _)| *found_in == number_of(index.as_ref())) {
        match ordered {
            Ordered::Wholly => {
                scan.go_on_after(key);
                // Everything after this place also follows it in the requested order.
                after = None;
            }
            Ordered::First { .. } => scan.go_on_with(key),
            Ordered::No => {}
        }
    }
    let common = match (ordered, &index) {
        (Ordered::First { of_index, .. }, Some(known)) => Some(Common { known, of_index, start }),
        _ => None,
    };
    let matcher = collection.matcher(&query.condition)?;
    let (in_order, after) = (ordered == Ordered::Wholly, after.map(|at| at.order));
    // Records that come in order need no key, unless two fields may lie in different arrays of one of them, which is refused.
    let (keeps_stored, keeps_order) = (keeps && in_order, !in_order || after.is_some() || query.sort.len() > 1);
    let wanted = Wanted { matcher, sort: &query.sort, after, common, keeps_stored, keeps_order };
    let found = match ordered {
        Ordered::Wholly => first(&mut scan, view, &wanted, query.limit).await?,
        Ordered::First { fields, .. } => lowest(&mut scan, view, &wanted, query.limit, fields).await?,
        Ordered::No => lowest(&mut scan, view, &wanted, query.limit, 0).await?,
    };
    Ok(Looked { found, examined: scan.examined(), ordered, index, by_id })
}

/// Returns how a cursor identifies what was read: the number of an index, or 0 for the documents.
fn number_of(index: Option<&KnownIndex>) -> u32 {
    index.map_or(0, |known| known.id)
}

/// Counts the matching records, up to `at_most`. Records that an earlier count has covered are not read again.
pub(super) async fn count(
    engine: &Engine,
    (catalogs, totals): (&CatalogCache, &Totals),
    collection: &str,
    condition: &Condition,
    at_most: u64,
) -> Result<u64, RecordError> {
    if at_most == 0 {
        return Ok(0);
    }
    let view = engine.snapshot()?;
    let catalog = catalogs.of(&*view)?;
    let collection = catalog.collection(collection)?;
    let revision = feed::last_revision(&*view)?;
    let (plan, mut count) = match totals.of(collection.id, condition, revision) {
        Some(total) if total.revision == revision || total.count >= at_most => return Ok(total.count.min(at_most)),
        Some(total) => (documents_after(collection.id, total.last), total.count),
        None => (plan_of_count(collection, condition)?, 0),
    };
    let is_exact = plan.exact;
    let mut scan = Scan::new(plan, collection.id);
    let matcher = collection.matcher(condition)?;
    if is_exact {
        while !scan.count(&*view, &mut count, at_most)? {
            let_others_run().await;
        }
    } else {
        let mut visit = |candidate: Candidate| {
            count += u64::from(matcher.matches(value::parts(&candidate.id, &candidate.stored)?.1));
            Ok::<_, RecordError>(if count >= at_most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        };
        while !scan.step(&*view, &mut visit)? {
            let_others_run().await;
        }
    }
    if (COUNT_MIN..at_most).contains(&count) {
        let last = keys::last_document(&*view, collection.id)?;
        totals.keep(collection.id, condition, Total { count, revision, last });
    }
    Ok(count)
}

/// The records that are wanted.
struct Wanted<'q> {
    matcher: Matcher,
    sort: &'q [SortBy],
    /// Only records after this place in the order.
    after: Option<Vec<u8>>,
    /// If records come in the order of some first fields only: how to determine where those with equal first fields begin.
    common: Option<Common<'q>>,
    /// Whether stored documents are kept.
    keeps_stored: bool,
    /// Whether the place of a record in the order is computed.
    keeps_order: bool,
}

/// The common beginning of entries whose records are equal in the first fields.
struct Common<'q> {
    known: &'q KnownIndex,
    of_index: usize,
    /// The offset of the entry in its key.
    start: usize,
}

impl Common<'_> {
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
struct Found {
    /// Empty if records already come in order.
    order: Vec<u8>,
    id: Vec<u8>,
    /// Where it was found.
    place: Vec<u8>,
    /// The stored document if it is kept, otherwise empty.
    stored: Vec<u8>,
}

impl Found {
    /// Returns the stored document.
    fn stored(&self, view: &dyn View, collection: u32) -> Result<Cow<'_, [u8]>, StoreError> {
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
        if !self.matcher.matches(document) {
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
fn order_of(sort: &[SortBy], document: &RawDocument, id: &[u8]) -> Result<Vec<u8>, Invalid> {
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

/// Returns the first matching records of a scan that comes in order, and one more to tell whether another page follows. The kept
/// documents take no more memory than a page.
async fn first(
    scan: &mut Scan,
    view: &(dyn View + Send + Sync),
    wanted: &Wanted<'_>,
    limit: usize,
) -> Result<Vec<Found>, RecordError> {
    let (mut found, mut bytes) = (Vec::new(), 0);
    let mut visit = |candidate: Candidate| {
        if let Some(one) = wanted.judge(candidate)? {
            let is_full = found.len() == limit || bytes > limits::PAGE_BYTES_MAX;
            bytes += one.stored.len();
            found.push(one);
            if is_full {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok::<_, RecordError>(ControlFlow::Continue(()))
    };
    while !scan.step(view, &mut visit)? {
        let_others_run().await;
    }
    Ok(found)
}

/// Returns the lowest matching records of a scan in any order, and one more. If the scan comes in the order of some first fields, it
/// stops as soon as it can. Memory holds only the keys of these records.
async fn lowest(
    scan: &mut Scan,
    view: &(dyn View + Send + Sync),
    wanted: &Wanted<'_>,
    limit: usize,
    first_fields: usize,
) -> Result<Vec<Found>, RecordError> {
    let mut lowest: BinaryHeap<Found> = BinaryHeap::with_capacity(limit + 2);
    let mut visit = |candidate: Candidate| {
        if let Some(last) = lowest.peek().filter(|_| first_fields > 0 && lowest.len() > limit)
            && wanted.is_past(&candidate, last, first_fields)?
        {
            return Ok(ControlFlow::Break(()));
        }
        if let Some(found) = wanted.judge(candidate)? {
            lowest.push(found);
            if lowest.len() > limit + 1 {
                lowest.pop();
            }
        }
        Ok::<_, RecordError>(ControlFlow::Continue(()))
    };
    while !scan.step(view, &mut visit)? {
        let_others_run().await;
    }
    Ok(lowest.into_sorted_vec())
}

fn page(query: &RecordQuery, view: &dyn View, collection: u32, looked: Looked) -> Result<RecordPage, RecordError> {
    let source = (looked.ordered != Ordered::No).then_some(number_of(looked.index.as_ref()));
    let mut page = RecordPage::default();
    let mut last: Option<&Found> = None;
    let mut bytes = 0;
    for found in &looked.found {
        if page.records.len() == query.limit || bytes > limits::PAGE_BYTES_MAX {
            if let Some(last) = last {
                let mut order = last.order.clone();
                if order.is_empty() {
                    let stored = last.stored(view, collection)?;
                    order = order_of(&query.sort, value::parts(&last.id, &stored)?.1, &last.id)?;
                }
                let place = source.map(|source| (source, last.place.clone()));
                page.next = Some(cursor::write(query, &Position { order, place }));
            }
            return Ok(page);
        }
        let stored = found.stored(view, collection)?;
        let (revision, document) = value::parts(&found.id, &stored)?;
        bytes += stored.len();
        page.records.push(Record { document: query.projection.of(document), revision });
        last = Some(found);
    }
    Ok(page)
}

/// Yields once to the other tasks of this thread.
pub(super) async fn let_others_run() {
    let mut gave_way = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut gave_way, true) {
            return std::task::Poll::Ready(());
        }
        context.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}
