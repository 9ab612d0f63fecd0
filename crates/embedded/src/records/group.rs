//! Groups records.

use std::ops::ControlFlow;

use annals_core::{GroupPage, GroupQuery, Grouping, RecordError};

use super::catalog::CatalogCache;
use super::find::let_others_run;
use super::plan::plans;
use super::race::smallest;
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
    let mut plans = plans(collection, &query.condition, &[])?;
    let smallest = smallest(&*view, &plans, collection.id, u64::MAX).await?.unwrap_or_default();
    let mut scan = Scan::new(plans.swap_remove(smallest), collection.id);
    let matcher = collection.matcher(&query.condition)?;
    let mut visit = |candidate: Candidate| {
        let (_, document) = value::parts(&candidate.id, &candidate.stored)?;
        if matcher.matches(document) {
            grouping.add(document);
        }
        Ok::<_, RecordError>(ControlFlow::Continue(()))
    };
    let mut left = u64::MAX;
    while !scan.step(&*view, &mut left, &mut visit)? {
        let_others_run().await;
    }
    Ok(grouping.page()?)
}
