//! Swapping: a build that has caught up replaces the live one.

use annals_core::handlers::PROCESSORS;
use annals_core::{Condition, Expected, RecordChange, RecordError, TypedRecords, limits};

use super::build::{Stop, Work};
use crate::engine::journal::NotWritten;

impl Work<'_> {
    /// Returns whether it is at most a page behind the head of the log. A log that is written continuously is never read to its end.
    pub(super) async fn has_caught_up(&self) -> Result<bool, Stop> {
        let head = self.build.source.head().await?;
        Ok(head.saturating_sub(self.read_to) < limits::PAGE_MAX as u64)
    }

    /// Makes this build the live one, unless the live one has stored more. One batch also drops the previous one, so that it can write
    /// nothing more. Returns whether the swap happened.
    pub(super) async fn swap(&mut self) -> Result<bool, Stop> {
        let projections = std::sync::Arc::clone(&self.build.projections);
        let name = self.build.projector.definition().name.to_string();
        let Some(found) = projections.stored(&name).await? else { return Err(Stop::Done) };
        let mut record = found.value;
        let number = self.build.build.number;
        let Some(building) = record.building.take_if(|build| build.number == number) else {
            projections.sync(&name).await?;
            return Ok(true);
        };
        let mut effects = Vec::new();
        if let Some(live) = record.live.replace(building) {
            record.drop_build(&live);
            let is_behind = Condition::lte("position", self.read_to.cast_signed());
            let processor = record.processor_of(live.number);
            effects.push(RecordChange::delete_if(PROCESSORS, processor, Expected::AbsentOr(is_behind)));
        }
        let replaced = TypedRecords::replacement(&record, Expected::Revision(found.revision));
        effects.push(replaced.map_err(NotWritten::from)?);
        match self.store(&effects, |_| ()).await {
            Ok(()) => {
                tracing::info!(projection = name, build = number, "a build caught up and is now live");
                if self.is_browse() {
                    projections.shared.archive_of(&projections.tenant).notify_one();
                }
                projections.sync(&name).await?;
                Ok(true)
            }
            Err(NotWritten::Refused(RecordError::NotAsExpected { .. })) => {
                projections.sync(&name).await?;
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }
}
