//! Documents of the view expire as the settings say: after a change, all of them are looked at. Those of types that are off leave it.
//!
//! INVARIANT: an expiry date changes only in the document that it was derived from. One that has changed since is read again.

use annals_core::archive::{ArchiveError, RetentionPlan};
use annals_core::bson::{Bson, DateTime, Document};
use annals_core::{Condition, Cursor, Expected, Projection, Record, RecordChange, RecordError, RecordQuery};

use super::guard::{Guard, Stop};
use super::{Loaded, TenantArchive};

/// How many documents are changed together.
const PAGE: usize = 500;
/// How often in a row the same page is read again because one of its documents has changed.
const CONFLICTS_MAX: usize = 100;

/// What became of taking expiry dates.
enum Held {
    /// Those of a page were taken; there may be more after it.
    Some(Cursor),
    /// One of the page has changed or expired since it was read.
    Conflict,
    /// There are none any more.
    All,
    /// The settings have changed.
    Changed,
}

/// The change that lets a document, as it was read, expire as the settings say; none where it does.
pub(super) fn change_of(plan: &RetentionPlan, collection: &str, record: &Record) -> Option<RecordChange> {
    let document = Document::try_from(&*record.document).ok()?;
    let change = plan.change_of(&document)?;
    let id = document.get("_id").cloned().unwrap_or(Bson::Null);
    let set = RecordChange::set_if(collection, id, change.set, Expected::Revision(record.revision));
    Some(set.unset(change.unset))
}

impl TenantArchive {
    /// Deletes the documents of types that are off. No build adds one, because every batch expects the settings.
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

    /// Looks at every document of a build.
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
                    Ok(_) => tracing::debug!(collection, count, "documents expire as the settings say"),
                    // One has changed or expired since the look.
                    Err(error) => {
                        guard.stop_of(error)?;
                        conflicts += 1;
                        if conflicts > CONFLICTS_MAX {
                            let message =
                                "documents change faster than their expiry dates can be set; the task retries";
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

    /// Takes the expiry dates of the documents that a hold selects, in the order of a field, by which an index should have them: each is
    /// read once then. No document with a date comes after the page that it would have been on, because every batch that writes one
    /// expects the settings. The caller bounds the time.
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
            // The settings have changed: they are read again, and tell whether the hold is still there.
            Err(RecordError::NotAsExpected { change: 0, .. }) => Ok(Held::Changed),
            Err(RecordError::NotAsExpected { .. }) => Ok(Held::Conflict),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether no document that a hold selects expires.
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

/// The selected documents that expire: their expiry date is one.
fn expiring(selected: &Condition) -> Condition {
    Condition::and([selected.clone(), Condition::gte("ttl_expires_at", DateTime::MIN)])
}
