//! Folding a page of events: many events of one key become one write of its record, and the page becomes one batch.

use annals_core::projections::{Unfolded, Working};
use annals_core::{Condition, RecordError, RecordQuery, RecordedEvent, limits};

use super::build::{Stop, Work};
use crate::engine::journal::NotWritten;

/// The most changes, and the most bytes of records, in one batch.
const BATCH_MAX: (usize, usize) = (limits::RECORD_CHANGES_MAX / 2, limits::RECORD_CHANGES_BYTES_MAX / 2);

/// The result of folding some events.
enum Attempt {
    Stored,
    /// An event does not fit. Nothing was written.
    Unfolded(Unfolded),
    /// The browse view already has an event with the same id. Nothing was written.
    Duplicate,
    /// The settings of the browse view have changed. Nothing was written.
    Unsettled,
    /// There are too many records for one batch, they are too large, or the store refused one. Nothing was written.
    Refused(String),
}

impl Work<'_> {
    /// Folds events that were read up to `next`, in as few batches as possible. Stops before an event that does not fit.
    pub(super) async fn fold(&mut self, events: &[RecordedEvent], next: u64) -> Result<(), Stop> {
        let (mut rest, mut most) = (events, events.len());
        while !rest.is_empty() {
            let count = most.min(rest.len());
            let to = rest.get(count).map_or(next, |event| event.sequence_number);
            match self.attempt(&rest[..count], to).await? {
                Attempt::Stored => {
                    rest = &rest[count..];
                    most = most.saturating_mul(2);
                }
                Attempt::Unsettled => self.read_retention().await.map_err(NotWritten::from)?,
                Attempt::Duplicate if count > 1 => most = count / 2,
                // The first event with an id is the one that is shown.
                Attempt::Duplicate => rest = &rest[1..],
                // Fold the events before it first. It is then attempted again by itself.
                Attempt::Unfolded(Unfolded { at, .. }) if at > 0 => most = at,
                Attempt::Unfolded(Unfolded { misfit, .. }) => return self.block(&rest[0], &misfit.to_string()).await,
                Attempt::Refused(_) if count > 1 => most = count / 2,
                Attempt::Refused(why) => return self.block(&rest[0], &why).await,
            }
        }
        Ok(())
    }

    pub(super) fn is_browse(&self) -> bool {
        self.build.projector.definition().is_browse()
    }

    /// Returns the empty working set with which a build begins, and continues after an attempt that was not written.
    pub(super) fn nothing_in_work(&self, is_first: bool) -> Working {
        match (self.is_browse(), is_first) {
            (true, _) => Working::of_each(),
            (false, true) => Working::of_nothing(),
            (false, false) => Working::default(),
        }
    }

    async fn attempt(&mut self, events: &[RecordedEvent], to: u64) -> Result<Attempt, Stop> {
        let kept = self.browsed(events).await.map_err(NotWritten::from)?;
        let events = &*kept;
        let keys = self.build.projector.keys(events);
        for some in self.working.wanted(&keys).chunks(limits::PAGE_MAX) {
            let mut query = RecordQuery::new(&*self.collection).matching(Condition::is_in("_id", some.iter().cloned()));
            query.limit = limits::PAGE_MAX;
            // A page ends early if its records are large.
            loop {
                let page = self.build.projections.records.find(query.clone()).await.map_err(NotWritten::from)?;
                for record in page.records {
                    self.working.insert(record.document).map_err(Stop::Failed)?;
                }
                let Some(cursor) = page.next else { break };
                query = query.after(cursor);
            }
        }
        let attempt = match self.build.projector.fold(events, keys, &mut self.working) {
            Ok(()) => self.write(to).await?,
            Err(unfolded) => Attempt::Unfolded(unfolded),
        };
        if !matches!(attempt, Attempt::Stored) {
            // It contains changes that were not written.
            self.working = self.nothing_in_work(false);
        }
        Ok(attempt)
    }

    async fn write(&mut self, to: u64) -> Result<Attempt, Stop> {
        let mut changed = match self.working.changes(&self.collection) {
            Ok(changed) => changed,
            Err(why) => return Ok(Attempt::Refused(why)),
        };
        if changed.changes.len() > BATCH_MAX.0 || changed.bytes > BATCH_MAX.1 {
            return Ok(Attempt::Refused(format!(
                "the changes of its records have {} bytes, which exceeds the limit of one batch",
                changed.bytes
            )));
        }
        changed.changes.extend(self.same_settings());
        let before = std::mem::replace(&mut self.read_to, to);
        let written = self
            .store(&changed.changes, |record| {
                (record.is_blocked, record.blocked, record.last_reason) = (false, 0, None);
            })
            .await;
        match written {
            Ok(()) => {
                self.working.stored(&changed);
                Ok(Attempt::Stored)
            }
            Err(NotWritten::Refused(RecordError::DuplicateKey { .. })) if self.is_browse() => {
                self.read_to = before;
                Ok(Attempt::Duplicate)
            }
            // The changes of records expect nothing, so it is the settings that have changed.
            Err(NotWritten::Refused(RecordError::NotAsExpected { .. })) if self.is_browse() => {
                self.read_to = before;
                Ok(Attempt::Unsettled)
            }
            Err(NotWritten::Refused(RecordError::Invalid(invalid))) => {
                self.read_to = before;
                Ok(Attempt::Refused(invalid.to_string()))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Blocks the build before an event, and stores the reason.
    async fn block(&mut self, event: &RecordedEvent, why: &str) -> Result<(), Stop> {
        let reason = format!("event {} ({}): {why}", event.sequence_number, event.event_type);
        tracing::warn!(collection = self.collection, reason, "blocked a projection before an event");
        self.is_blocked = true;
        self.read_to = event.sequence_number;
        self.store(&[], |record| {
            (record.is_blocked, record.blocked, record.last_reason) = (true, 1, Some(reason));
        })
        .await?;
        Ok(())
    }
}
