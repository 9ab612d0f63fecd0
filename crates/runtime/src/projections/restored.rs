//! Restores, as seen by a build: records with events that the restored log does not have are rebuilt.

use std::sync::Arc;

use annals_core::handlers::Reason;
use annals_core::{DEFAULT_SCOPE, Expected};

use super::build::{Stop, Work};
use super::ended;

impl Work<'_> {
    /// Compares the identity of the store with the one stored with the position. If the fork of the restored log is below the position,
    /// another build is started, and this one folds nothing more.
    pub(super) async fn check_restored(&mut self) -> Result<(), Stop> {
        let projections = Arc::clone(&self.build.projections);
        if self.journal.record().ended {
            self.is_blocked = true;
            let reason = self.journal.record().last_reason.clone().unwrap_or_default();
            return self.rebuild(&reason).await;
        }
        let (stored, seen) = (self.journal.record().store.clone(), self.journal.record().incarnation);
        let seen = u32::try_from(seen).unwrap_or(0);
        let identity = projections.shared.store.identity_since(&projections.tenant, DEFAULT_SCOPE, seen);
        let identity = identity.ok_or(Stop::Done)?;
        let store = identity.store_id.to_string();
        if stored == store && seen == identity.incarnation {
            return Ok(());
        }
        let head = self.build.source.head().await?;
        // If it is another store, the records were copied with the log, whose sequence numbers are the same.
        let fork = if stored == store { identity.incarnation_start.min(head) } else { head };
        if self.read_to <= fork {
            let incarnation = identity.incarnation.into();
            self.store(&[], |record| (record.store, record.incarnation) = (store, incarnation)).await?;
            return Ok(());
        }
        let reason = format!(
            "the store was restored; the records hold events up to {}, but the log has only those below {fork}; rebuild the projection",
            self.read_to
        );
        self.is_blocked = true;
        self.read_to = fork;
        let shown = reason.clone();
        self.store(&[], |record| {
            (record.ended, record.is_blocked, record.last_reason) = (true, true, Some(shown));
        })
        .await?;
        self.rebuild(&reason).await
    }

    async fn rebuild(&self, reason: &str) -> Result<(), Stop> {
        let projections = &self.build.projections;
        let (name, number) = (self.build.projector.definition().name.to_string(), self.build.build.number);
        loop {
            let Some(found) = projections.stored(&name).await? else { return Err(Stop::Done) };
            let mut record = found.value;
            let Some((build, is_live)) = record.build(number).map(|(build, is_live)| (build.clone(), is_live)) else {
                return Err(Stop::Done);
            };
            if is_live && record.building.is_some() {
                return Ok(());
            }
            let mut beside =
                vec![projections.recorded(&record, "rebuild", Reason::from(reason.to_owned()).by("annals"))?];
            if !is_live {
                record.building = None;
                record.drop_build(&build);
                beside.push(ended(&record, &build));
            }
            beside.push(projections.rebuilt(&mut record, &build, reason.to_owned()).await?);
            if projections.write(&record, Expected::Revision(found.revision), beside).await? {
                projections.sync(&name).await?;
                return Ok(());
            }
        }
    }
}
