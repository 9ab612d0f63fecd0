//! Pages of documents of events: filled, and after documents that are skipped.

use annals_core::browse::BrowseQuery;
use annals_core::bson::Document;
use annals_core::{Cursor, Projection, RecordQuery, limits};

/// Documents, and where the page after them begins.
pub(crate) type Found = (Vec<Document>, Option<Cursor>);

/// Returns the page of a collection that a query asks for.
pub(crate) async fn asked<E, F: Future<Output = Result<Found, E>>>(
    query: &BrowseQuery,
    collection: &str,
    find: impl Fn(RecordQuery) -> F,
) -> Result<Found, E> {
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

/// Fills a page: pages of records end early where they are large.
async fn filled<E, F: Future<Output = Result<Found, E>>>(
    mut query: RecordQuery,
    find: &impl Fn(RecordQuery) -> F,
) -> Result<Found, E> {
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

/// Passes over documents, and returns where the page after them begins; none where there are no more.
async fn skipped<E, F: Future<Output = Result<Found, E>>>(
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
