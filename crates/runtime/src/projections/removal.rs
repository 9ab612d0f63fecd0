//! Removing the records of dropped builds, in bounded steps.

use std::sync::Arc;

use annals_core::bson::Bson;
use annals_core::projections::{DroppedRecord, PROJECTIONS, ProjectionError, ProjectionRecord};
use annals_core::{
    Condition, Expected, Projection, Record, RecordChange, RecordError, RecordQuery, StoreError, limits,
};

use super::{TenantProjections, whatever};
use crate::host::{Ended, Supervised, is_set, locked, supervise};

/// Removes the dropped builds of one projection.
struct Removal {
    projections: Arc<TenantProjections>,
    name: String,
}

impl TenantProjections {
    /// Removes the records of dropped builds, unless that is in progress.
    pub(super) fn remove_dropped(&self, name: &str) {
        let Some(projections) = self.me.upgrade() else { return };
        if locked(&self.removing).insert(name.to_owned()) {
            let task = format!("projection/{}/{name}/removal", self.tenant);
            supervise(&self.shared, task, Removal { projections, name: name.to_owned() });
        }
    }
}

impl Removal {
    async fn remove(&self) -> Result<(), ProjectionError> {
        let removing = &self.projections.removing;
        loop {
            if self.remove_known().await? {
                continue;
            }
            // A later drop starts a task of its own; an earlier one is seen now.
            locked(removing).remove(&self.name);
            let found = self.projections.stored(&self.name).await?;
            let more = found.is_some_and(|found| !found.value.dropped.is_empty());
            if !more || !locked(removing).insert(self.name.clone()) {
                return Ok(());
            }
        }
    }

    /// Removes the first dropped build. Returns whether there was one.
    async fn remove_known(&self) -> Result<bool, ProjectionError> {
        let Some(found) = self.projections.stored(&self.name).await? else { return Ok(false) };
        let mut record = found.value;
        let Some(dropped) = record.dropped.first().cloned() else { return Ok(false) };
        while self.remove_some(&record, &dropped).await? {}
        record.dropped.retain(|other| other.number != dropped.number);
        self.projections.write(&record, Expected::Revision(found.revision), Vec::new()).await?;
        Ok(true)
    }

    /// Removes a page of records. Returns false if there are none, or if they no longer belong to this build.
    async fn remove_some(&self, record: &ProjectionRecord, dropped: &DroppedRecord) -> Result<bool, ProjectionError> {
        let collection = record.collection_of(dropped.slot);
        let query = RecordQuery::new(&*collection).projection(Projection::Only(vec!["_id".to_owned()]));
        let page = match self.projections.records.find(query.limit(limits::PAGE_MAX)).await {
            Err(RecordError::UnknownCollection(_)) => return Ok(false),
            page => page?,
        };
        let delete = |found: &Record| {
            let id = Bson::try_from(found.document.get("_id").ok().flatten()?).ok()?;
            Some(RecordChange::delete_if(&*collection, id, whatever()))
        };
        let is_dropped = Expected::Matching(Condition::eq("dropped.number", dropped.number));
        let mut changes = vec![RecordChange::check(PROJECTIONS, &*self.name, is_dropped)];
        changes.extend(page.records.iter().filter_map(delete));
        if changes.len() == 1 {
            return Ok(false);
        }
        match self.projections.records.write(changes).await {
            Ok(_) => Ok(true),
            Err(RecordError::NotAsExpected { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

impl Supervised for Removal {
    async fn run(&mut self) -> Ended {
        let mut stop = self.projections.shared.stop.subscribe();
        tokio::select! {
            () = is_set(&mut stop) => Ended::Done,
            removed = self.remove() => match removed {
                Ok(()) | Err(ProjectionError::Store(StoreError::Closed)) => Ended::Done,
                Err(error) => Ended::Failed(error.to_string()),
            },
        }
    }
}
