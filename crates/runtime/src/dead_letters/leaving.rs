//! Closing letters whose consumer no longer exists, and archiving letters that have been closed long enough.

use std::sync::Arc;
use std::time::Duration;

use annals_core::bson::Bson;
use annals_core::dead_letters::{ARCHIVED_LETTERS, ArchivedLetter, DEAD_LETTERS, DeadLetter, DeadLetterError};
use annals_core::handlers::{HANDLERS, Reason};
use annals_core::{
    Condition, Expected, GroupQuery, RecordChange, RecordError, RecordType, Timestamp, TypedRecords, limits,
};

use super::TenantDeadLetters;
use super::edits::date;
use crate::groups::{BROKER_PARTITION, GROUPS};

/// The number of letters that are moved to the archive in one batch.
const PAGE: usize = 200;

impl TenantDeadLetters {
    /// Discards the letters of consumers that were deleted by a process that ended before it could do so.
    pub(super) async fn give_up_orphans(&self) -> Result<(), DeadLetterError> {
        // A group that joins on a broker has no definition here; its letters have headers with the broker's partition.
        let here = Condition::is_null(format!("headers.{BROKER_PARTITION}"));
        let open = Condition::and([DeadLetter::open(), here]);
        let open = GroupQuery::new(DEAD_LETTERS).by("processor").matching(open).limit(limits::PAGE_MAX);
        for group in self.groups_of_letters(open).await? {
            let Some(processor) = group.key.as_str().map(str::to_owned) else { continue };
            if self.is_gone(&processor).await? {
                tracing::info!(processor, "discarding the letters of a consumer that no longer exists");
                let reason = Reason { reason: "nobody would process them".to_owned(), by: None };
                self.give_up_letters(&processor, reason).await?;
            }
        }
        Ok(())
    }

    /// Returns whether a handler or group no longer has a definition.
    async fn is_gone(&self, processor: &str) -> Result<bool, RecordError> {
        let (collection, name) = match processor.split_once('/') {
            Some(("group", name)) => (GROUPS, name),
            Some(("handler", name)) => (HANDLERS, name),
            _ => return Ok(false),
        };
        match self.records.get(collection, &Bson::from(name)).await {
            Err(RecordError::UnknownCollection(_)) => Ok(true),
            found => Ok(found?.is_none()),
        }
    }

    /// Moves letters to the archive that have been closed for the retention period. A letter and its copy change in one batch, so nothing
    /// is deleted that is not in the archive.
    pub(super) async fn archive(&self, now: Timestamp) -> Result<(), DeadLetterError> {
        let Some(kept) = self.shared.options.letter_retention else { return Ok(()) };
        let before = Timestamp::from_millis(now.as_millis().saturating_sub(millis(kept)));
        let over = Condition::and([
            Condition::is_false("open"),
            Condition::is_false("announcing"),
            Condition::lt("last_updated", date(before)),
        ]);
        let mut declared = false;
        loop {
            let query = TypedRecords::<DeadLetter>::query().matching(over.clone()).ascending("_id").limit(PAGE);
            let page = match self.letters().find(query).await {
                Err(RecordError::UnknownCollection(_)) => return Ok(()),
                page => page?.0,
            };
            if page.is_empty() {
                return Ok(());
            }
            if !std::mem::replace(&mut declared, true) {
                self.records.declare(<ArchivedLetter as RecordType>::collection()).await?;
            }
            let archive = TypedRecords::<ArchivedLetter>::declared(Arc::clone(&self.records));
            let mut changes = Vec::with_capacity(2 * page.len());
            for stored in page {
                let id = stored.value.id.clone();
                let copy = ArchivedLetter::of(stored.value, now);
                changes.push(archive.replacing(&copy, Expected::AbsentOr(Condition::All))?);
                changes.push(RecordChange::delete_if(DEAD_LETTERS, id, Expected::Revision(stored.revision)));
            }
            match self.records.write(changes).await {
                Ok(_) => tracing::debug!(tenant = self.tenant, into = ARCHIVED_LETTERS, "archived letters"),
                // A consumer failed with the event again; the next round handles it.
                Err(RecordError::NotAsExpected { .. }) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
