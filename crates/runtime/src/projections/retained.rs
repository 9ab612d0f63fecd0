//! Retention in builds of the browse view: when documents expire, and which events stay deleted.
//!
//! INVARIANT: no document is stored under settings that have changed. Every batch expects the settings on which it is based. So a
//! document that a new hold or rule does not find in the view is written later under that hold or rule.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use annals_core::archive::{EVENTS_ARCHIVE, RetentionPlan};
use annals_core::browse::{BROWSE_SETTINGS, ViewRecord, browse_id};
use annals_core::{Condition, Projection, RecordChange, RecordError, RecordQuery, RecordType, RecordedEvent, limits};

use super::build::Work;
use crate::browse::settings_of;

impl Work<'_> {
    /// Reads the settings that determine when documents of the browse view expire.
    pub(super) async fn read_retention(&mut self) -> Result<(), RecordError> {
        let records = Arc::clone(&self.build.projections.records);
        records.declare(<ViewRecord as RecordType>::collection()).await?;
        let (record, expected) = settings_of(&records).await?;
        self.build.projector.retain(Arc::new(RetentionPlan::of(&record)));
        self.settings = Some(expected);
        Ok(())
    }

    /// Returns the check that makes a batch depend on the settings.
    pub(super) fn same_settings(&self) -> Option<RecordChange> {
        let expected = self.settings.clone()?;
        Some(RecordChange::check(BROWSE_SETTINGS, ViewRecord::ID, expected))
    }

    /// Removes events whose types are off, and events that were deleted.
    pub(super) async fn browsed<'e>(
        &self,
        events: &'e [RecordedEvent],
    ) -> Result<Cow<'e, [RecordedEvent]>, RecordError> {
        let is_off =
            |event: &RecordedEvent| self.build.projector.retention().is_some_and(|plan| plan.is_off(&event.event_type));
        if !events.iter().any(is_off) {
            return self.not_deleted(events).await;
        }
        let rest: Vec<_> = events.iter().filter(|event| !is_off(event)).cloned().collect();
        let kept = self.not_deleted(&rest).await?.into_owned();
        Ok(Cow::Owned(kept))
    }

    /// Removes events that a person deleted from the view, and later events with their ids, because only the first event with an id
    /// counts.
    async fn not_deleted<'e>(&self, events: &'e [RecordedEvent]) -> Result<Cow<'e, [RecordedEvent]>, RecordError> {
        let below = self.build.projector.retention().map_or(0, |plan| plan.deleted_below());
        if below == 0 {
            return Ok(Cow::Borrowed(events));
        }
        let (mut numbers, mut ids) = (HashSet::new(), HashSet::new());
        for some in events.chunks(limits::PAGE_MAX) {
            let mut asked = vec![Condition::is_in("event_id", some.iter().map(id_of))];
            if some[0].sequence_number < below {
                asked.push(Condition::is_in("_id", some.iter().map(|event| browse_id(event.sequence_number))));
            }
            for asked in asked {
                let by_hand = Condition::and([asked, Condition::is_true("annals.deleted")]);
                let mut query = RecordQuery::new(EVENTS_ARCHIVE).matching(by_hand).limit(limits::PAGE_MAX);
                query.projection = Projection::only(["event_id"]);
                loop {
                    let page = match self.build.projections.records.find(query.clone()).await {
                        Err(RecordError::UnknownCollection(_)) => return Ok(Cow::Borrowed(events)),
                        page => page?,
                    };
                    for it in &page.records {
                        numbers.extend(it.document.get_object_id("_id").ok());
                        ids.extend(it.document.get_str("event_id").ok().map(str::to_owned));
                    }
                    let Some(cursor) = page.next else { break };
                    query = query.after(cursor);
                }
            }
        }
        if numbers.is_empty() && ids.is_empty() {
            return Ok(Cow::Borrowed(events));
        }
        let is_kept = |event: &&RecordedEvent| {
            !numbers.contains(&browse_id(event.sequence_number)) && !ids.contains(&id_of(event))
        };
        Ok(Cow::Owned(events.iter().filter(is_kept).cloned().collect()))
    }
}

/// Returns the id of an event as its document has it.
fn id_of(event: &RecordedEvent) -> String {
    event.id.hyphenated().to_string()
}
