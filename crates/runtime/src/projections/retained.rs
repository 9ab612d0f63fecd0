//! What a build of the browse view needs of retention: when its documents expire, and which events stay deleted.
//!
//! INVARIANT: no document is stored under settings that have changed. Every batch expects the settings that it was made with, so what a
//! hold or a rule does not find in the view is written later under it.

use std::borrow::Cow;
use std::sync::Arc;

use annals_core::archive::{EVENTS_ARCHIVE, RetentionPlan};
use annals_core::browse::{BROWSE_SETTINGS, ViewRecord, browse_id};
use annals_core::{Condition, Projection, RecordChange, RecordError, RecordQuery, RecordType, RecordedEvent, limits};

use super::build::Work;
use crate::browse::settings_of;

impl Work<'_> {
    /// Reads the settings by which documents of the browse view expire.
    pub(super) async fn read_retention(&mut self) -> Result<(), RecordError> {
        let records = Arc::clone(&self.build.projections.records);
        records.declare(<ViewRecord as RecordType>::collection()).await?;
        let (record, expected) = settings_of(&records).await?;
        self.build.projector.retain(Arc::new(RetentionPlan::of(&record)));
        self.settings = Some(expected);
        Ok(())
    }

    /// Makes a batch depend on the settings.
    pub(super) fn same_settings(&self) -> Option<RecordChange> {
        let expected = self.settings.clone()?;
        Some(RecordChange::check(BROWSE_SETTINGS, ViewRecord::ID, expected))
    }

    /// Leaves out events that a person deleted from the view.
    pub(super) async fn not_deleted<'e>(
        &self,
        events: &'e [RecordedEvent],
    ) -> Result<Cow<'e, [RecordedEvent]>, RecordError> {
        let below = self.build.projector.retention().map_or(0, |plan| plan.deleted_below());
        if events.first().is_none_or(|event| event.sequence_number >= below) {
            return Ok(Cow::Borrowed(events));
        }
        let mut deleted = Vec::new();
        for some in events.chunks(limits::PAGE_MAX) {
            let ids = some.iter().map(|event| browse_id(event.sequence_number));
            let by_hand = Condition::and([Condition::is_in("_id", ids), Condition::is_true("annals.deleted")]);
            let mut query = RecordQuery::new(EVENTS_ARCHIVE).matching(by_hand).limit(limits::PAGE_MAX);
            query.projection = Projection::only(["event_id"]);
            loop {
                let page = match self.build.projections.records.find(query.clone()).await {
                    Err(RecordError::UnknownCollection(_)) => return Ok(Cow::Borrowed(events)),
                    page => page?,
                };
                deleted.extend(page.records.iter().filter_map(|it| it.document.get_object_id("_id").ok()));
                let Some(cursor) = page.next else { break };
                query = query.after(cursor);
            }
        }
        if deleted.is_empty() {
            return Ok(Cow::Borrowed(events));
        }
        let is_kept = |event: &&RecordedEvent| !deleted.contains(&browse_id(event.sequence_number));
        Ok(Cow::Owned(events.iter().filter(is_kept).cloned().collect()))
    }
}
