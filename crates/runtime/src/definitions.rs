//! Definitions in records: handlers, filters, projections, sagas, subscriptions and partners.

use annals_core::{RecordError, RecordType, Stored, TypedRecords, limits};

/// Reads all definitions of a type; none if its collection is not declared yet. A definition that cannot be read, because other software
/// wrote or changed it, does not affect the others.
pub(crate) async fn readable<T: RecordType>(records: &TypedRecords<T>) -> Result<Vec<Stored<T>>, RecordError> {
    let mut query = TypedRecords::<T>::query().limit(limits::PAGE_MAX);
    let mut all = Vec::new();
    loop {
        let malformed = |error| tracing::error!(%error, "cannot read a definition; continuing with the others");
        let (page, next) = match records.find_readable(query.clone(), malformed).await {
            Err(RecordError::UnknownCollection(_)) => return Ok(all),
            page => page?,
        };
        all.extend(page);
        let Some(cursor) = next else { return Ok(all) };
        query = query.after(cursor);
    }
}
