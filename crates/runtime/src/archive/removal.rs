//! Acts of people on single events: moving them out of the view and back, each in one batch.

use annals_core::archive::{
    ArchiveError, ArchiveFileRecord, ArchiveReason, DeletedEvent, EVENTS_ARCHIVE, archive_collection,
    archived_document, restored_document,
};
use annals_core::browse::{ViewRecord, browse_document, number_of, shown};
use annals_core::bson::{Bson, DateTime, Document, RawDocumentBuf};
use annals_core::handlers::{ActRecord, Reason};
use annals_core::{
    Condition, Expected, LogQuery, Record, RecordChange, RecordError, RecordQuery, RecordType, StoreError, TypedRecords,
};

use super::files::is_whole;
use super::parquet::found;
use super::{Loaded, NO_PLACE, TenantArchive};

impl TenantArchive {
    async fn one(&self, collection: &str, event_id: &str) -> Result<Option<Record>, RecordError> {
        let query = RecordQuery::new(collection).matching(Condition::eq("event_id", event_id)).limit(1);
        match self.records.find(query).await {
            Err(RecordError::UnknownCollection(_)) => Ok(None),
            page => Ok(page?.records.into_iter().next()),
        }
    }

    /// Returns the settings after a deletion or a restoration, which every build of the view notices, and the record of the act.
    fn acted(
        &self,
        loaded: &Loaded,
        (event_id, act): (&str, &str),
        reason: &Reason,
        number: Option<u64>,
    ) -> Result<Vec<RecordChange>, ArchiveError> {
        let below = number.map_or(0, |number| number.saturating_add(1).cast_signed());
        let record = ViewRecord {
            deletions: loaded.record.deletions + 1,
            deleted_below: loaded.record.deleted_below.max(below),
            ..loaded.record.clone()
        };
        let place = (self.now(), record.deletions.cast_unsigned(), self.shared.options.random.bits());
        let noted = ActRecord::new(&format!("event/{event_id}"), act, reason.clone(), place);
        Ok(vec![
            TypedRecords::replacement(&record, loaded.expected.clone())?,
            TypedRecords::replacement(&noted, Expected::AbsentOr(Condition::All))?,
        ])
    }

    pub(super) async fn moved_out(&self, event_id: &str, reason: Reason) -> Result<DeletedEvent, ArchiveError> {
        reason.validate()?;
        self.browse.caught_up().await?;
        self.records.declare(archive_collection()).await?;
        self.records.declare(<ViewRecord as RecordType>::collection()).await?;
        self.records.declare(<ActRecord as RecordType>::collection()).await?;
        loop {
            let (loaded, builds) = (self.load().await?, self.builds().await?);
            let Some((_, live)) = builds.first() else { return Err(ArchiveError::Off) };
            let Some(record) = self.one(live, event_id).await? else {
                return Err(ArchiveError::UnknownEvent(event_id.to_owned()));
            };
            let document = Document::try_from(&*record.document).map_err(unreadable)?;
            let not_allowed = |state: String| ArchiveError::NotAllowed {
                act: "delete".to_owned(),
                what: format!("event {event_id:?}"),
                state,
            };
            if let Some(hold) = loaded.plan.held_by(&document) {
                return Err(not_allowed(format!("hold {hold:?} protects it")));
            }
            let id = document.get("_id").cloned().unwrap_or(Bson::Null);
            let why =
                ArchiveReason { at: self.now(), by: reason.by.clone(), reason: reason.reason.clone(), by_hand: true };
            let number = number_of(&id);
            let copy = raw(&archived_document(document, &why))?;
            let mut batch = self.acted(&loaded, (event_id, "delete"), &reason, number)?;
            batch.push(RecordChange::put(EVENTS_ARCHIVE, copy));
            batch.push(RecordChange::delete_if(live, id.clone(), Expected::Revision(record.revision)));
            let beside = builds.iter().skip(1);
            batch.extend(beside.map(|(_, collection)| {
                RecordChange::delete_if(collection, id.clone(), Expected::AbsentOr(Condition::All))
            }));
            match self.records.write(batch).await {
                Ok(_) => {
                    let (deleted, archived_in) = (true, EVENTS_ARCHIVE.to_owned());
                    let deleted_at = why.at.nearest_writable();
                    return Ok(DeletedEvent { deleted, event_id: event_id.to_owned(), archived_in, deleted_at });
                }
                Err(RecordError::NotAsExpected { .. }) => {}
                Err(RecordError::DuplicateKey { collection, .. }) if collection == EVENTS_ARCHIVE => {
                    return Err(not_allowed("the archive holds another event with this id".to_owned()));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    pub(super) async fn moved_back(&self, event_id: &str, reason: Reason) -> Result<serde_json::Value, ArchiveError> {
        reason.validate()?;
        self.browse.caught_up().await?;
        self.records.declare(<ViewRecord as RecordType>::collection()).await?;
        self.records.declare(<ActRecord as RecordType>::collection()).await?;
        loop {
            let (loaded, builds) = (self.load().await?, self.builds().await?);
            let Some((_, live)) = builds.first() else { return Err(ArchiveError::Off) };
            let in_view = || ArchiveError::NotAllowed {
                act: "restore".to_owned(),
                what: format!("event {event_id:?}"),
                state: "it is in the browse view".to_owned(),
            };
            if self.one(live, event_id).await?.is_some() {
                return Err(in_view());
            }
            let archived = self.one(EVENTS_ARCHIVE, event_id).await?;
            let mut document = match &archived {
                Some(record) => {
                    let document = Document::try_from(&*record.document).map_err(unreadable)?;
                    restored_document(document, self.now())
                }
                None => self.document_in_a_file(event_id).await?,
            };
            if loaded.plan.is_off(document.get_str("event_type").unwrap_or_default()) {
                return Err(ArchiveError::NotAllowed {
                    act: "restore".to_owned(),
                    what: format!("event {event_id:?}"),
                    state: "the browse view leaves out events of its type (off_types of PUT /v1/events/view)"
                        .to_owned(),
                });
            }
            loaded.plan.stamp(&mut document);
            let id = document.get("_id").cloned().unwrap_or(Bson::Null);
            let mut batch = self.acted(&loaded, (event_id, "restore"), &reason, None)?;
            batch.push(RecordChange::insert(live, raw(&document)?));
            for (_, collection) in builds.iter().skip(1) {
                batch.push(RecordChange::put(collection, raw(&document)?));
            }
            if let Some(record) = &archived {
                batch.push(RecordChange::delete_if(EVENTS_ARCHIVE, id, Expected::Revision(record.revision)));
            }
            match self.records.write(batch).await {
                Ok(_) => {
                    self.wake();
                    return Ok(shown(&document));
                }
                Err(RecordError::NotAsExpected { .. } | RecordError::DuplicateKey { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Returns the view's document for an event that is in a file. The file keeps its row, so the event may expire again.
    async fn document_in_a_file(&self, event_id: &str) -> Result<Document, ArchiveError> {
        let unknown = || ArchiveError::NotArchived(event_id.to_owned());
        let files = self.files_of(event_id).await?;
        let mut failed = None;
        for file in files {
            match self.in_file(&file, event_id).await {
                Ok(None) => {}
                Ok(Some(document)) => {
                    let mut document = self.of_log(document).await?;
                    let mut own = document.get_document("annals").cloned().unwrap_or_default();
                    own.insert("archived", "files");
                    own.insert("restored_at", DateTime::from_millis(self.now().as_millis()));
                    document.insert("annals", own);
                    return Ok(document);
                }
                Err(why) => failed = Some(why),
            }
        }
        match failed {
            Some(why) => Err(StoreError::Io(why).into()),
            None => Err(unknown()),
        }
    }

    async fn in_file(&self, file: &ArchiveFileRecord, event_id: &str) -> Result<Option<Document>, String> {
        let Some(files) = &self.shared.options.archive else { return Err(NO_PLACE.to_owned()) };
        let path = self.stored_path(&file.path);
        let content = files.read(&path).await.map_err(|error| error.to_string())?;
        let (place, event_id) = (format!("{}/{path}", files.place()), event_id.to_owned());
        if !is_whole(file, &content) {
            return Err(format!("{place}: its length or its hash is not that of the file that was archived"));
        }
        let read = tokio::task::spawn_blocking(move || found(content, &place, &event_id));
        read.await.map_err(|error| error.to_string())?
    }

    /// Rebuilds the document of an event from the log, with the types that it has there.
    async fn of_log(&self, document: Document) -> Result<Document, ArchiveError> {
        let Some(number) = document.get("_id").and_then(number_of) else { return Ok(document) };
        let page = self.log.read(LogQuery { from: Some(number), limit: 1, ..LogQuery::default() }).await?;
        let event = page.events.first().filter(|event| event.sequence_number == number);
        Ok(event.map_or(document, |event| browse_document(event, None)))
    }
}

fn raw(document: &Document) -> Result<RawDocumentBuf, ArchiveError> {
    RawDocumentBuf::try_from(document).map_err(|error| StoreError::Failed(error.to_string()).into())
}

fn unreadable(error: annals_core::bson::error::Error) -> ArchiveError {
    StoreError::Io(format!("a document cannot be read: {error}")).into()
}
