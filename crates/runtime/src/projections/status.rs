//! The status of projections, from stored data; the position also from the build if it runs in this process.

use std::sync::Arc;

use annals_core::handlers::ProcessorRecord;
use annals_core::projections::{
    BuildRecord, BuildStatus, PROJECTIONS, ProjectionError, ProjectionPage, ProjectionRecord, ProjectionState,
    ProjectionStatus,
};
use annals_core::{Condition, Lease, RecordError, RecordQuery, Timestamp, TypedRecords, limits};

use super::TenantProjections;
use crate::health::Known;
use crate::host::locked;

impl TenantProjections {
    pub(super) async fn processor(
        &self,
        record: &ProjectionRecord,
        build: &BuildRecord,
    ) -> Result<Option<ProcessorRecord>, ProjectionError> {
        let processors = TypedRecords::<ProcessorRecord>::declared(Arc::clone(&self.records));
        match processors.get(record.processor_of(build.number)).await {
            Err(RecordError::UnknownCollection(_)) => Ok(None),
            found => Ok(found?.map(|found| found.value)),
        }
    }

    /// Returns the position up to which a build has stored its records, or knows that it has nothing to store, and its processor.
    pub(super) async fn position(
        &self,
        record: &ProjectionRecord,
        build: &BuildRecord,
    ) -> Result<(u64, Option<ProcessorRecord>), ProjectionError> {
        let stored = self.processor(record, build).await?;
        let identity = self.identity()?;
        let position = stored.as_ref().map_or(0, |stored| {
            let position = stored.position.cast_unsigned();
            let incarnation = i64::from(identity.incarnation);
            match stored.store == identity.store_id.to_string() && stored.incarnation == incarnation {
                true => position,
                // The position is from before a restore, and the owner has not compared it with the log yet.
                false => position.min(identity.incarnation_start),
            }
        });
        let builds = locked(&self.builds);
        let here = builds.get(&(record.name.clone(), build.number)).map_or(0, |running| *running.position.borrow());
        Ok((position.max(here), stored))
    }

    pub(super) async fn status(
        &self,
        record: &ProjectionRecord,
        live: &BuildRecord,
    ) -> Result<ProjectionStatus, ProjectionError> {
        let definition = live.read(&record.name)?;
        let source = self.source(&definition);
        let (position, stored) = self.position(record, live).await?;
        let now = self.clock().now();
        let (head, lag_seconds) = source.waiting(position, now).await?;
        let owner = self.owner(record, live).await?;
        let last_progress = stored.as_ref().and_then(ProcessorRecord::last_progress);
        let known = Known {
            position,
            head,
            oldest: lag_seconds,
            now,
            is_owned: owner.is_some(),
            progressed: last_progress.unwrap_or(Timestamp::from_millis(live.since.timestamp_millis())),
            stored: stored.as_ref(),
        };
        let mut vitals = known.vitals();
        vitals.is_at_rest |= record.paused;
        let degraded = vitals.complaint();
        let building = match &record.building {
            Some(building) => Some(self.build_status(record, building, head).await?),
            None => None,
        };
        Ok(ProjectionStatus {
            name: record.name.as_str().into(),
            state: state_of(record, stored.as_ref(), owner.is_some()),
            build: live.number.cast_unsigned(),
            position,
            head,
            lag: head.saturating_sub(position),
            lag_seconds,
            last_progress,
            seconds_since_progress: last_progress.map(|at| now.since(at).as_secs()),
            last_reason: stored.filter(|stored| stored.is_blocked).and_then(|stored| stored.last_reason),
            degraded,
            owner,
            collection: record.collection_of(live.slot),
            building,
            definition: definition.shown(),
        })
    }

    async fn build_status(
        &self,
        record: &ProjectionRecord,
        build: &BuildRecord,
        head: u64,
    ) -> Result<BuildStatus, ProjectionError> {
        let (position, stored) = self.position(record, build).await?;
        let owner = self.owner(record, build).await?;
        Ok(BuildStatus {
            build: build.number.cast_unsigned(),
            state: state_of(record, stored.as_ref(), owner.is_some()),
            position,
            lag: head.saturating_sub(position),
            progress: if head == 0 { 1.0 } else { (position as f64 / head as f64).min(1.0) },
            since: Timestamp::from_millis(build.since.timestamp_millis()),
            reason: build.reason.clone(),
            last_reason: stored.filter(|stored| stored.is_blocked).and_then(|stored| stored.last_reason),
            definition: build.read(&record.name)?.shown(),
        })
    }

    /// Returns the process that writes the records of a build.
    async fn owner(&self, record: &ProjectionRecord, build: &BuildRecord) -> Result<Option<String>, ProjectionError> {
        let leases = TypedRecords::<Lease>::declared(Arc::clone(&self.records));
        let task = format!("projection/{}/{}", record.name, build.slot);
        let found = match leases.get(task.as_str()).await {
            Err(RecordError::UnknownCollection(_)) => None,
            found => found?,
        };
        let Some(lease) = found.map(|found| found.value) else { return Ok(None) };
        Ok(self.shared.holds(&self.tenant, &self.records, &lease).await?.then_some(lease.holder))
    }

    pub(super) async fn list_page(&self, after: Option<&str>, limit: usize) -> Result<ProjectionPage, ProjectionError> {
        self.open()?;
        let after = after.map_or(Condition::All, |after| Condition::gt("_id", after));
        let is_defined = Condition::not_null("live");
        let query = RecordQuery::new(PROJECTIONS)
            .matching(Condition::and([after, is_defined]))
            .limit(limit.clamp(1, limits::PAGE_MAX));
        let (found, next) = match self.typed().find(query).await {
            Err(RecordError::UnknownCollection(_)) => (Vec::new(), None),
            found => found?,
        };
        let mut items = Vec::with_capacity(found.len());
        for record in found.iter().map(|found| &found.value) {
            if let Some(live) = &record.live {
                items.push(self.status(record, live).await?);
            }
        }
        let cursor = next.and(items.last()).map(|last: &ProjectionStatus| last.name.clone());
        Ok(ProjectionPage { items, cursor })
    }
}

fn state_of(record: &ProjectionRecord, stored: Option<&ProcessorRecord>, is_owned: bool) -> ProjectionState {
    match stored {
        _ if record.paused => ProjectionState::Paused,
        Some(stored) if stored.is_blocked => ProjectionState::Blocked,
        _ if is_owned => ProjectionState::Running,
        _ => ProjectionState::Stopped,
    }
}
