//! Setting the expiry dates of the view's documents according to the settings. After a change of the settings, all documents are
//! examined, and those of types that are off are deleted.
//!
//! INVARIANT: an expiry date changes only in the document from which it was derived. A document that has changed since is read again.

use annals_core::archive::{ArchiveError, RetentionPlan};
use annals_core::bson::{Bson, DateTime, Document};
use annals_core::{Condition, Cursor, Expected, Projection, Record, RecordChange, RecordError, RecordQuery};

use super::guard::{Guard, Stop};
use super::{Loaded, TenantArchive};

/// The number of documents that are changed together.
const PAGE: usize = 500;
/// How often in a row the same page is read again because one of its documents has changed.
const CONFLICTS_MAX: usize = 100;

/// The result of removing the expiry dates of one page.
enum Held {
    /// Those of a page were removed; there may be more after it.
    Some(Cursor),
    /// A document of the page has changed or expired since it was read.
    Conflict,
    /// There are none left.
    All,
    /// The settings have changed.
    Changed,
}

/// Returns the change that sets the expiry date of a document as the settings say; `None` if it has that date.
pub(super) fn change_of(plan: &RetentionPlan, collection: &str, record: &Record) -> Option<RecordChange> {
    let document = Document::try_from(&*record.document).ok()?;
    let change = plan.change_of(&document)?;
    let id = document.get("_id").cloned().unwrap_or(Bson::Null);
    let set = RecordChange::set_if(collection, id, change.set, Expected::Revision(record.revision));
    Some(set.unset(change.unset))
}

impl TenantArchive {
    /// Deletes the documents of types that are off. No build adds more, because every batch expects the settings.
    async fn drop_off_types(&self, guard: &Guard<'_>, loaded: &Loaded, collection: &str) -> Result<(), Stop> {
        let Some(off) = loaded.plan.off() else { return Ok(()) };
        let mut query = RecordQuery::new(collection).matching(off).limit(PAGE);
        query.projection = Projection::only(["event_type"]);
        loop {
            guard.keep_lease().await?;
            let page = self.records.find(query.clone()).await?;
            let deletion = |it: &Record| {
                let id = Bson::try_from(it.document.get("_id").ok()??).ok()?;
                Some(RecordChange::delete_if(collection, id, Expected::AbsentOr(Condition::All)))
            };
            let deletions: Vec<_> = page.records.iter().filter_map(deletion).collect();
            if deletions.is_empty() {
                return Ok(());
            }
            let batch: Vec<_> = guard.checks(loaded).into_iter().chain(deletions).collect();
            if let Err(error) = self.records.write(batch).await {
                guard.stop_of(error)?;
            }
        }
    }

    /// Examines every document of a build.
    pub(super) async fn settle(&self, guard: &Guard<'_>, loaded: &Loaded, collection: &str) -> Result<(), Stop> {
        self.drop_off_types(guard, loaded, collection).await?;
        let mut query = RecordQuery::new(collection).limit(PAGE);
        let mut conflicts = 0;
        loop {
            guard.keep_lease().await?;
            let page = self.records.find(query.clone()).await?;
            let changes: Vec<_> =
                page.records.iter().filter_map(|it| change_of(&loaded.plan, collection, it)).collect();
            if !changes.is_empty() {
                let count = changes.len();
                let batch: Vec<_> = guard.checks(loaded).into_iter().chain(changes).collect();
                match self.records.write(batch).await {
                    Ok(_) => tracing::debug!(collection, count, "set the expiry dates of documents"),
                    // A document has changed or expired since it was read.
                    Err(error) => {
                        guard.stop_of(error)?;
                        conflicts += 1;
                        if conflicts > CONFLICTS_MAX {
                            let message =
                                "documents change faster than their expiry dates can be set; the task will retry";
                            return Err(Stop::Failed(format!("{collection}: {message}")));
                        }
                        continue;
                    }
                }
            }
            conflicts = 0;
            let Some(cursor) = page.next else { return Ok(()) };
            query = query.after(cursor);
        }
    }

    /// Removes the expiry dates of the documents that a hold selects, in the order of a field that an index should have, so that each is
    /// read once. No document with a date can appear after its page was read, because every batch that writes one expects the settings.
    /// The caller bounds the time.
    pub(super) async fn hold_now(&self, selected: &Condition, by: &str) -> Result<(), ArchiveError> {
        'again: loop {
            let loaded = self.load().await?;
            for (_, collection) in self.builds().await? {
                let expiring = expiring(selected);
                let mut query = RecordQuery::new(collection.as_str()).matching(expiring).ascending(by).limit(PAGE);
                loop {
                    match self.hold_some(&loaded, &query, &collection).await? {
                        Held::Some(next) => query = query.after(next),
                        Held::Conflict => {}
                        Held::All => break,
                        Held::Changed => continue 'again,
                    }
                }
            }
            return Ok(());
        }
    }

    async fn hold_some(&self, loaded: &Loaded, query: &RecordQuery, collection: &str) -> Result<Held, ArchiveError> {
        let page = self.records.find(query.clone()).await?;
        let changes: Vec<_> = page.records.iter().filter_map(|it| change_of(&loaded.plan, collection, it)).collect();
        if changes.is_empty() {
            return Ok(Held::All);
        }
        let batch = std::iter::once(loaded.check()).chain(changes).collect();
        match self.records.write(batch).await {
            Ok(_) => Ok(page.next.map_or(Held::All, Held::Some)),
            // The settings have changed: read them again, and check whether the hold still exists.
            Err(RecordError::NotAsExpected { change: 0, .. }) => Ok(Held::Changed),
            Err(RecordError::NotAsExpected { .. }) => Ok(Held::Conflict),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns whether none of the documents that a hold selects has an expiry date.
    pub(super) async fn is_in_force(&self, selected: &Condition) -> Result<bool, ArchiveError> {
        for (_, collection) in self.builds().await? {
            let query = RecordQuery::new(collection).matching(expiring(selected)).limit(1);
            if !self.records.find(query).await?.records.is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Returns the condition for selected documents with an expiry date.
fn expiring(selected: &Condition) -> Condition {
    Condition::and([selected.clone(), Condition::gte("ttl_expires_at", DateTime::MIN)])
}
