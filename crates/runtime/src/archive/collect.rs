//! Archiving due documents in `events_archive`. One batch inserts the copies and sets the expiry dates of the view's documents.

use annals_core::archive::{
    ARCHIVED_MARK, ArchiveReason, ArchiveTarget, DueGroup, EVENTS_ARCHIVE, archive_collection, archived_document,
};
use annals_core::bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use annals_core::bson::{Bson, Document};
use annals_core::{Condition, Expected, Projection, Record, RecordChange, RecordError, RecordQuery, Revision};

use super::guard::{Guard, Stop};
use super::{Loaded, TenantArchive};

/// The number of documents that are archived together.
const PAGE: usize = 200;

/// A due document, and its revision.
pub(super) struct Due {
    pub document: RawDocumentBuf,
    pub revision: Revision,
}

impl Due {
    /// Returns `None` if the document cannot be read. It then stays in the view.
    pub fn of(record: Record) -> Option<Self> {
        is_readable(&record.document).then_some(Self { document: record.document, revision: record.revision })
    }

    pub fn id(&self) -> Bson {
        let id = || Bson::try_from(self.document.get("_id").ok()??).ok();
        id().unwrap_or(Bson::Null)
    }

    /// Returns the change that marks the document as archived and sets its expiry date.
    pub fn marked(&self, loaded: &Loaded, collection: &str, target: ArchiveTarget) -> RecordChange {
        let mut fields = vec![(ARCHIVED_MARK, Bson::from(target.name()))];
        fields.extend(loaded.plan.archived_expiry(&self.document).map(|at| ("ttl_expires_at", at.into())));
        RecordChange::set_if(collection, self.id(), fields, Expected::Revision(self.revision))
    }

    /// Returns the change that marks the document as refused by the archive. It stays in the view.
    pub fn refused(&self, collection: &str) -> RecordChange {
        let refused = [(ARCHIVED_MARK, Bson::from("refused"))];
        RecordChange::set_if(collection, self.id(), refused, Expected::Revision(self.revision))
    }
}

/// Returns whether every field of a document can be read, including those of nested documents.
fn is_readable(document: &RawDocument) -> bool {
    document.iter().all(|element| element.is_ok_and(|(_, value)| is_readable_value(value)))
}

fn is_readable_value(value: RawBsonRef<'_>) -> bool {
    match value {
        RawBsonRef::Document(inner) => is_readable(inner),
        RawBsonRef::Array(inner) => inner.into_iter().all(|value| value.is_ok_and(is_readable_value)),
        RawBsonRef::JavaScriptCodeWithScope(code) => is_readable(code.scope),
        _ => true,
    }
}

impl TenantArchive {
    /// Archives some of the due documents and adds their number to `moved`, even if the rest fails. Returns whether any were due.
    pub(super) async fn collect(
        &self,
        guard: &Guard<'_>,
        loaded: &Loaded,
        live: &str,
        group: &DueGroup,
        moved: &mut usize,
    ) -> Result<bool, Stop> {
        let due = loaded.plan.due(group, self.now().as_millis());
        let query = RecordQuery::new(live).matching(due).ascending("timestamp").limit(PAGE);
        let page = self.records.find(query).await?;
        let due: Vec<_> = page.records.into_iter().filter_map(Due::of).collect();
        if due.is_empty() {
            return Ok(false);
        }
        self.records.declare(archive_collection()).await?;
        match self.collect_all(guard, loaded, live, &due).await {
            Ok(count) => *moved += count,
            // One of them is refused: archive the others without it.
            Err(Stop::Refused(error)) if due.len() == 1 => self.refuse(guard, loaded, live, &due[0], &error).await?,
            Err(Stop::Refused(_)) => {
                for one in due.chunks(1) {
                    match self.collect_all(guard, loaded, live, one).await {
                        Ok(count) => *moved += count,
                        Err(Stop::Refused(error)) => self.refuse(guard, loaded, live, &one[0], &error).await?,
                        Err(stop) => return Err(stop),
                    }
                }
            }
            Err(stop) => return Err(stop),
        }
        Ok(true)
    }

    /// Archives documents in one batch. Returns 0 if one of them has changed since it was read.
    async fn collect_all(&self, guard: &Guard<'_>, loaded: &Loaded, live: &str, due: &[Due]) -> Result<usize, Stop> {
        let known = self.archived_ids(due.iter().map(Due::id)).await?;
        let why = ArchiveReason {
            at: self.now(),
            by: Some("annals".to_owned()),
            reason: "retention".to_owned(),
            by_hand: false,
        };
        let mut batch = guard.checks(loaded).to_vec();
        for it in due {
            // After a rebuild, the view again contains events that were archived before.
            if !known.contains(&it.id()) {
                let document = Document::try_from(&*it.document).map_err(|error| Stop::Failed(error.to_string()))?;
                let copy = archived_document(document, &why);
                let copy = RawDocumentBuf::try_from(&copy).map_err(|error| Stop::Failed(error.to_string()))?;
                batch.push(RecordChange::insert(EVENTS_ARCHIVE, copy));
            }
            batch.push(it.marked(loaded, live, ArchiveTarget::Collection));
        }
        match self.records.write(batch).await {
            Ok(_) => Ok(due.len()),
            Err(error) => guard.stop_of(error).map(|()| 0),
        }
    }

    async fn archived_ids(&self, ids: impl Iterator<Item = Bson>) -> Result<Vec<Bson>, RecordError> {
        let mut query = RecordQuery::new(EVENTS_ARCHIVE).matching(Condition::is_in("_id", ids)).limit(PAGE);
        query.projection = Projection::only(["event_id"]);
        let mut known = Vec::new();
        loop {
            let page = self.records.find(query.clone()).await?;
            let id = |it: &Record| Bson::try_from(it.document.get("_id").ok()??).ok();
            known.extend(page.records.iter().filter_map(id));
            let Some(cursor) = page.next else { return Ok(known) };
            query = query.after(cursor);
        }
    }

    /// Records that the archive refused a document, because another document has its event id or because it is too large.
    pub(super) async fn refuse(
        &self,
        guard: &Guard<'_>,
        loaded: &Loaded,
        live: &str,
        due: &Due,
        error: &RecordError,
    ) -> Result<(), Stop> {
        tracing::warn!(tenant = self.tenant, id = %due.id(), %error, "cannot archive an event; it stays in the view");
        let mut batch = guard.checks(loaded).to_vec();
        batch.push(due.refused(live));
        match self.records.write(batch).await {
            Ok(_) => Ok(()),
            Err(error) => guard.stop_of(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use annals_core::bson::doc;

    use super::*;

    #[test]
    fn a_document_that_cannot_be_read_is_not_due() {
        let is_due = |document: RawDocumentBuf| Due::of(Record { document, revision: 1 }).is_some();
        let whole = doc! { "_id": 1, "deep": { "list": [{ "text": "zzz" }] } };
        let whole = RawDocumentBuf::try_from(&whole).expect("BSON");
        let mut damaged = whole.as_bytes().to_vec();
        let place = damaged.windows(3).position(|some| some == b"zzz").expect("the text");
        damaged[place] = 0xff;
        assert!(is_due(whole));
        assert!(!is_due(RawDocumentBuf::from_bytes(damaged).expect("its length is right")));
    }
}
