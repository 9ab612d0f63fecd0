//! Pages of event documents: filling a page, and skipping documents before it.

use annals_core::browse::BrowseQuery;
use annals_core::{Cursor, Projection, RecordQuery, limits};

/// Documents, and where the next page begins.
pub(crate) type Found<D> = (Vec<D>, Option<Cursor>);

/// Returns the page of a collection for a query.
pub(crate) async fn asked<D, E, F: Future<Output = Result<Found<D>, E>>>(
    query: &BrowseQuery,
    collection: &str,
    find: impl Fn(RecordQuery) -> F,
) -> Result<Found<D>, E> {
    let mut records = query.records(collection);
    records.after = query.cursor.clone().map(Cursor::new);
    if query.skip > 0 {
        match skipped(&records, query.skip, &find).await? {
            Some(cursor) => records.after = Some(cursor),
            None => return Ok((Vec::new(), None)),
        }
    }
    filled(records, &find).await
}

/// Fills a page from several pages of records, which end early if records are large.
async fn filled<D, E, F: Future<Output = Result<Found<D>, E>>>(
    mut query: RecordQuery,
    find: &impl Fn(RecordQuery) -> F,
) -> Result<Found<D>, E> {
    let (wanted, mut all) = (query.limit, Vec::new());
    loop {
        let (some, next) = find(query.clone()).await?;
        all.extend(some);
        let Some(cursor) = next else { return Ok((all, None)) };
        if all.len() >= wanted {
            return Ok((all, Some(cursor)));
        }
        query.limit = wanted - all.len();
        query.after = Some(cursor);
    }
}

/// Skips documents, and returns where the page after them begins; `None` if there are no more.
async fn skipped<D, E, F: Future<Output = Result<Found<D>, E>>>(
    query: &RecordQuery,
    mut skip: u64,
    find: &impl Fn(RecordQuery) -> F,
) -> Result<Option<Cursor>, E> {
    let mut ids = RecordQuery { projection: Projection::only(["event_id"]), ..query.clone() };
    loop {
        ids.limit = usize::try_from(skip).unwrap_or(limits::PAGE_MAX).min(limits::PAGE_MAX);
        let (some, next) = find(ids.clone()).await?;
        skip = skip.saturating_sub(some.len() as u64);
        match next {
            Some(cursor) if skip == 0 => return Ok(Some(cursor)),
            Some(cursor) => ids.after = Some(cursor),
            None => return Ok(None),
        }
    }
}
