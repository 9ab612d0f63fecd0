//! Acts of operators.

use annals_core::handlers::{ActPage, ActRecord, Reason};
use annals_core::projections::{BuildRecord, ProjectionAct, ProjectionError, ProjectionRecord};
use annals_core::{Expected, RecordChange, TypedRecords};

use super::{TenantProjections, ended, whatever};
use crate::handlers::acts_of;

impl TenantProjections {
    pub(super) async fn carry_out(
        &self,
        name: &str,
        act: ProjectionAct,
        reason: Reason,
    ) -> Result<(), ProjectionError> {
        reason.validate()?;
        self.declare().await?;
        self.start();
        loop {
            let (found, live) = self.defined(name).await?;
            let mut record = found.value;
            let mut beside = vec![self.recorded(&record, act.name(), reason.clone())?];
            match act {
                ProjectionAct::Pause if record.paused => return Err(not_allowed(act, name, "it is already paused")),
                ProjectionAct::Pause => record.paused = true,
                ProjectionAct::Resume if record.paused || self.is_blocked(&record).await? => {
                    record.paused = false;
                    record.resumed += 1;
                }
                ProjectionAct::Resume => return Err(not_allowed(act, name, "it is neither paused nor blocked")),
                ProjectionAct::Rebuild if record.building.is_some() => {
                    return Err(not_allowed(act, name, "its next build has not caught up yet; wait until it has"));
                }
                ProjectionAct::Rebuild => beside.push(self.rebuilt(&mut record, &live, reason.reason.clone()).await?),
            }
            if self.write(&record, Expected::Revision(found.revision), beside).await? {
                return self.sync(name).await;
            }
        }
    }

    /// Begins another build of the live definition.
    pub(super) async fn rebuilt(
        &self,
        record: &mut ProjectionRecord,
        live: &BuildRecord,
        reason: String,
    ) -> Result<RecordChange, ProjectionError> {
        let build = record.begin(live.definition.clone(), reason, self.clock().now());
        let definition = build.read(&record.name)?;
        let processor = self.prepared(record, &build, &definition).await?;
        record.building = Some(build);
        Ok(processor)
    }

    pub(super) async fn delete_recorded(&self, name: &str, reason: Reason) -> Result<(), ProjectionError> {
        reason.validate()?;
        self.declare().await?;
        self.start();
        loop {
            let (found, _) = self.defined(name).await?;
            let mut record = found.value;
            let mut beside = vec![self.recorded(&record, "delete", reason.clone())?];
            for build in record.live.take().into_iter().chain(record.building.take()) {
                record.drop_build(&build);
                beside.push(ended(&record, &build));
            }
            if self.write(&record, Expected::Revision(found.revision), beside).await? {
                return self.sync(name).await;
            }
        }
    }

    /// Returns the change that records an act.
    pub(super) fn recorded(
        &self,
        record: &ProjectionRecord,
        act: &str,
        reason: Reason,
    ) -> Result<RecordChange, ProjectionError> {
        let order = record.builds.cast_unsigned() + record.resumed.cast_unsigned();
        let place = (self.clock().now(), order, self.shared.options.random.bits());
        let act = ActRecord::new(&format!("projection/{}", record.name), act, reason, place);
        Ok(TypedRecords::replacement(&act, whatever())?)
    }

    async fn is_blocked(&self, record: &ProjectionRecord) -> Result<bool, ProjectionError> {
        for build in record.live.iter().chain(&record.building) {
            if self.processor(record, build).await?.is_some_and(|stored| stored.is_blocked) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(super) async fn acts_page(
        &self,
        name: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<ActPage, ProjectionError> {
        self.open()?;
        let page = acts_of(&self.records, &format!("projection/{name}"), after, limit).await?;
        if page.items.is_empty() && after.is_none() {
            self.defined(name).await?;
        }
        Ok(page)
    }
}

fn not_allowed(act: ProjectionAct, name: &str, state: &str) -> ProjectionError {
    let what = format!("projection {name:?}");
    ProjectionError::NotAllowed { act: act.name().to_owned(), what, state: state.to_owned() }
}
