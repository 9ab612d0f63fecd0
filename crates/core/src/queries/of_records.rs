//! Queries of snapshots that are stored as records.

use std::sync::Arc;

use bson::raw::RawDocumentBuf;

use super::{Answered, StoredQuery};
use crate::{
    Condition, DocumentKind, Explained, Invalid, Projection, ReadError, RecordError, RecordQuery, Records, limits,
    no_text_index, snapshot_collection,
};

/// The snapshots of a tenant, stored as records.
pub(super) struct RecordsOfSnapshots(pub(super) Arc<dyn Records>);

impl RecordsOfSnapshots {
    pub(super) async fn find(&self, name: &str, query: &StoredQuery) -> Result<Vec<RawDocumentBuf>, ReadError> {
        let mut answer = Answered::new(query, DocumentKind::Snapshot);
        let (mut skip, mut left) = (query.skip, query.limit);
        let mut asked = asked(name, query)?;
        while left > 0 {
            // Documents to skip are counted only, so no fields of them are read.
            let wanted = if skip > 0 { skip } else { left };
            asked.limit = usize::try_from(wanted).unwrap_or(usize::MAX).min(limits::PAGE_MAX);
            asked.projection = if skip > 0 { Projection::Only(Vec::new()) } else { query.projection.clone() };
            let page = match self.0.find(asked.clone()).await {
                Err(RecordError::UnknownCollection(_)) => {
                    nothing(&query.condition)?;
                    break;
                }
                found => found.map_err(RecordError::of_reading)?,
            };
            let found = page.records.len() as u64;
            if skip > 0 {
                skip -= found;
            } else {
                page.records.iter().try_for_each(|record| answer.add(&record.document))?;
                left -= found;
            }
            match page.next {
                Some(next) => asked.after = Some(next),
                None => break,
            }
        }
        Ok(answer.documents())
    }

    pub(super) async fn count(&self, name: &str, condition: &Condition) -> Result<u64, ReadError> {
        match self.0.count(&snapshot_collection(name)?, condition).await {
            Err(RecordError::UnknownCollection(_)) => Ok(nothing(condition).map(|()| 0)?),
            counted => counted.map_err(RecordError::of_reading),
        }
    }

    pub(super) async fn explain(&self, name: &str, query: &StoredQuery) -> Result<Explained, ReadError> {
        let mut asked = asked(name, query)?;
        let wanted = query.skip.saturating_add(query.limit);
        asked.limit = usize::try_from(wanted).unwrap_or(usize::MAX).min(limits::PAGE_MAX);
        match self.0.explain(asked).await {
            Err(RecordError::UnknownCollection(_)) => Ok(nothing(&query.condition).map(|()| Explained::default())?),
            explained => explained.map_err(RecordError::of_reading),
        }
    }
}

/// Refuses a text search, because an undeclared collection has no text index. Any other query of it finds nothing.
fn nothing(condition: &Condition) -> Result<(), Invalid> {
    condition.text_search().map_or(Ok(()), |_| Err(no_text_index()))
}

fn asked(name: &str, query: &StoredQuery) -> Result<RecordQuery, Invalid> {
    let StoredQuery { condition, sort, .. } = query.clone();
    Ok(RecordQuery { condition, sort, ..RecordQuery::new(snapshot_collection(name)?) })
}
