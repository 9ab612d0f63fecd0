//! Finds and counts records.

use annals_core::{Condition, Explained, Record, RecordError, RecordPage, RecordQuery, limits};

use super::catalog::{CatalogCache, KnownCollection};
use super::cursor::{self, Position};
use super::plan::{Ordered, documents_after, plans, plans_of_count};
use super::race::{self, Looked, Sought};
use super::scan::Scan;
use super::totals::{COUNT_MIN, Total, Totals};
use super::wanted::{Found, order_of};
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
    let looked = looked(&*view, collection, &query, true).await?;
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
    let looked = looked(&*view, collection, &query, false).await?;
    Ok(Explained {
        index: looked.names,
        entries_examined: looked.examined.entries,
        documents_examined: looked.examined.documents,
        found: looked.found.len().min(query.limit) as u64,
        sorted: looked.ordered != Ordered::Wholly,
    })
}

/// Searches for a page.
async fn looked(
    view: &(dyn View + Send + Sync),
    collection: &KnownCollection,
    query: &RecordQuery,
    keeps_stored: bool,
) -> Result<Looked, RecordError> {
    let plans = plans(collection, &query.condition, &query.sort)?;
    let after = query.after.as_ref().map(|text| cursor::read(query, text)).transpose()?;
    let matcher = &collection.matcher(&query.condition)?;
    let sought = Sought { collection: collection.id, query, matcher, after: after.as_ref(), keeps_stored };
    race::look(view, plans, &sought).await
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
    let (mut plans, mut count) = match totals.of(collection.id, condition, revision) {
        Some(total) if total.revision == revision || total.count >= at_most => return Ok(total.count.min(at_most)),
        Some(total) => (vec![documents_after(collection.id, total.last)], total.count),
        None => (plans_of_count(collection, condition)?, 0),
    };
    if let Some(smallest) = race::smallest(&*view, &plans, collection.id, at_most).await? {
        plans = vec![plans.swap_remove(smallest)];
    }
    // An exact plan is the only one.
    if let Some(exact) = plans.pop_if(|plan| plan.exact) {
        let mut scan = Scan::new(exact, collection.id);
        while !scan.count(&*view, &mut count, at_most)? {
            let_others_run().await;
        }
    } else {
        let matcher = collection.matcher(condition)?;
        count += race::count(&*view, plans, collection.id, &matcher, at_most - count).await?;
    }
    if (COUNT_MIN..at_most).contains(&count) {
        let last = keys::last_document(&*view, collection.id)?;
        totals.keep(collection.id, condition, Total { count, revision, last });
    }
    Ok(count)
}

fn page(query: &RecordQuery, view: &dyn View, collection: u32, looked: Looked) -> Result<RecordPage, RecordError> {
    let source = (looked.ordered != Ordered::No).then_some(looked.source);
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
