//! Groups records.

use std::ops::ControlFlow;

use annals_core::{GroupPage, GroupQuery, Grouping, RecordError};

use super::catalog::CatalogCache;
use super::find::let_others_run;
use super::plan::plan;
use super::scan::{Candidate, Scan};
use super::value;
use crate::engine::Engine;

/// Returns a page of groups from one snapshot, which is read completely or through the most selective index.
pub(super) async fn group(
    engine: &Engine,
    catalogs: &CatalogCache,
    query: &GroupQuery,
) -> Result<GroupPage, RecordError> {
    let mut grouping = Grouping::new(query)?;
    let view = engine.snapshot()?;
    let catalog = catalogs.of(&*view)?;
    let collection = catalog.collection(&query.collection)?;
    let mut scan = Scan::new(plan(collection, &query.condition, &[])?, collection.id);
    let matcher = collection.matcher(&query.condition)?;
    let mut visit = |candidate: Candidate| {
        let (_, document) = value::parts(&candidate.id, &candidate.stored)?;
        if matcher.matches(document) {
            grouping.add(document);
        }
        Ok::<_, RecordError>(ControlFlow::Continue(()))
    };
    while !scan.step(&*view, &mut visit)? {
        let_others_run().await;
    }
    Ok(grouping.page()?)
}
