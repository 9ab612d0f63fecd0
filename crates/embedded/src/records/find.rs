//! Finding and counting records.

use std::collections::BinaryHeap;
use std::ops::ControlFlow;

use annals_core::bson::raw::RawDocument;
use annals_core::order::{Direction, document_keys, invert};
use annals_core::{
    Code, Condition, Invalid, Matcher, Record, RecordError, RecordPage, RecordQuery, SortBy, StoreError, limits,
};

use super::catalog::CatalogCache;
use super::cursor::{self, Position};
use super::plan::plan;
use super::scan::{Candidate, Scan};
use super::{keys, value};
use crate::engine::{Engine, View};

/// Places that are looked at before others may run.
const PLACES_AT_ONCE: usize = 1_000;

/// A page of records.
pub(super) async fn find(
    engine: &Engine,
    catalogs: &CatalogCache,
    query: RecordQuery,
) -> Result<RecordPage, RecordError> {
    let view = engine.snapshot()?;
    let catalog = catalogs.of(&*view)?;
    let collection = catalog.collection(&query.collection)?;
    let plan = plan(collection, &query.condition, &query.sort);
    let after = query.after.as_ref().map(|text| cursor::read(&query, text)).transpose()?;
    let (ordered, source) = (plan.ordered, plan.index.as_ref().map_or(0, |known| known.id));
    let mut scan = Scan::new(plan, collection.id);
    let place = after.as_ref().and_then(|position| position.place.as_ref());
    if let Some((_, key)) = place.filter(|(index, _)| ordered && *index == source) {
        scan.go_on_after(key);
    }
    let mut wanted =
        Wanted { matcher: Matcher::new(&query.condition), sort: &query.sort, after: after.map(|at| at.order) };
    let found = if ordered {
        in_order(&mut scan, &*view, &mut wanted, query.limit).await?
    } else {
        lowest(&mut scan, &*view, &mut wanted, query.limit).await?
    };
    page(&query, &*view, collection.id, found, ordered.then_some(source))
}

/// How many records there are.
pub(super) async fn count(
    engine: &Engine,
    catalogs: &CatalogCache,
    collection: &str,
    condition: &Condition,
) -> Result<u64, RecordError> {
    let view = engine.snapshot()?;
    let catalog = catalogs.of(&*view)?;
    let collection = catalog.collection(collection)?;
    let mut scan = Scan::new(plan(collection, condition, &[]), collection.id);
    let matcher = Matcher::new(condition);
    let mut count = 0;
    let mut visit = |candidate: Candidate| {
        count += u64::from(matcher.matches(value::parts(&candidate.id, &candidate.stored)?.1));
        Ok::<_, RecordError>(ControlFlow::Continue(()))
    };
    while !scan.step(&*view, PLACES_AT_ONCE, &mut visit)? {
        let_others_run().await;
    }
    Ok(count)
}

/// Which records are wanted.
struct Wanted<'q> {
    matcher: Matcher,
    sort: &'q [SortBy],
    /// Only those behind this place in the order.
    after: Option<Vec<u8>>,
}

/// A record that is wanted. Records compare by their place in the order.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Found {
    order: Vec<u8>,
    id: Vec<u8>,
    /// Where it was found.
    place: Vec<u8>,
}

impl Wanted<'_> {
    fn judge(&self, candidate: Candidate) -> Result<Option<Found>, RecordError> {
        let (_, document) = value::parts(&candidate.id, &candidate.stored)?;
        if !self.matcher.matches(document) {
            return Ok(None);
        }
        let order = order_of(self.sort, document, &candidate.id)?;
        let behind = self.after.as_ref().is_none_or(|after| order > *after);
        Ok(behind.then_some(Found { order, id: candidate.id, place: candidate.place }))
    }
}

/// The place of a record in an order: the keys that it is sorted by, then its id.
fn order_of(sort: &[SortBy], document: &RawDocument, id: &[u8]) -> Result<Vec<u8>, Invalid> {
    let paths: Vec<_> = sort.iter().map(|by| (by.path.as_str(), by.direction)).collect();
    let (sort_keys, _) = document_keys(document, &paths).map_err(|error| {
        let message = format!("{error} in at least one record, so these cannot be sorted by both");
        Invalid::new(Code::InvalidQuery, "sort", message)
    })?;
    // Going up the lowest element counts, going down the highest, whose inverted encoding is the lowest.
    let mut order = sort_keys.into_iter().next().unwrap_or_default();
    let start = order.len();
    order.extend_from_slice(id);
    if sort.last().is_some_and(|by| by.direction == Direction::Descending) {
        invert(&mut order[start..]);
    }
    Ok(order)
}

/// The first records of a scan that comes in order, and one more to know whether there is more.
async fn in_order(
    scan: &mut Scan,
    view: &(dyn View + Send + Sync),
    wanted: &mut Wanted<'_>,
    limit: usize,
) -> Result<Vec<Found>, RecordError> {
    let mut found = Vec::new();
    let mut visit = |candidate: Candidate| {
        found.extend(wanted.judge(candidate)?);
        Ok::<_, RecordError>(if found.len() > limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    };
    while !scan.step(view, PLACES_AT_ONCE, &mut visit)? {
        let_others_run().await;
    }
    Ok(found)
}

/// The lowest records of a scan that comes in any order, and one more. Memory holds their keys only, and no more of them than that.
async fn lowest(
    scan: &mut Scan,
    view: &(dyn View + Send + Sync),
    wanted: &mut Wanted<'_>,
    limit: usize,
) -> Result<Vec<Found>, RecordError> {
    let mut lowest = BinaryHeap::with_capacity(limit + 2);
    let mut visit = |candidate: Candidate| {
        if let Some(found) = wanted.judge(candidate)? {
            lowest.push(found);
            if lowest.len() > limit + 1 {
                lowest.pop();
            }
        }
        Ok::<_, RecordError>(ControlFlow::Continue(()))
    };
    while !scan.step(view, PLACES_AT_ONCE, &mut visit)? {
        let_others_run().await;
    }
    Ok(lowest.into_sorted_vec())
}

fn page(
    query: &RecordQuery,
    view: &dyn View,
    collection: u32,
    found: Vec<Found>,
    source: Option<u32>,
) -> Result<RecordPage, RecordError> {
    let mut page = RecordPage::default();
    let mut last: Option<&Found> = None;
    let mut bytes = 0;
    for found in &found {
        if page.records.len() == query.limit || bytes > limits::PAGE_BYTES_MAX {
            let end = last.map(|last| Position {
                order: last.order.clone(),
                place: source.map(|source| (source, last.place.clone())),
            });
            page.next = end.map(|end| cursor::write(query, &end));
            return Ok(page);
        }
        let gone = || StoreError::Damaged("an index knows a record that is not there".to_owned());
        let stored = view.get(&keys::document(collection, &found.id))?.ok_or_else(gone)?;
        let (revision, document) = value::parts(&found.id, &stored)?;
        bytes += stored.len();
        page.records.push(Record { document: query.projection.of(document), revision });
        last = Some(found);
    }
    Ok(page)
}

/// Gives way to the other tasks of this thread, once.
async fn let_others_run() {
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
