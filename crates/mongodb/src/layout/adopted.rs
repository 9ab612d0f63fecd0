//! Reads an event that a Dolittle Runtime wrote to `event-log` as a commit of one event. The forms of all versions are accepted.
//! Sub-documents that do not apply may be missing, UUIDs have either binary form, an event source may be a UUID, and redacted events have
//! an additional field.
//!
//! An event that an aggregate applied becomes the commit of version `Aggregate.Version + 1`; any other event has an event source and no
//! aggregate. Ids are derived from the store's id and the sequence number. There is no request id.

use std::sync::Arc;

use annals_core::{
    Aggregate, ByteString, CommitInfo, DEFAULT_TENANT_ID, Data, KeyChanges, SequenceNumber, Timestamp, Version,
};
use bytes::Bytes;
use mongodb::bson::RawDocument;
use uuid::Uuid;

use super::fields::{boolean, inner, natural};
use super::foreign::{StoredCommit, StoredEvent};
use super::guid::{text_or_uuid, uuid};
use super::mapping::{Kind, Mapping};
use super::names::id_of_event;

/// Reads events of an adopted log.
#[derive(Debug, Clone)]
pub(crate) struct Reader {
    /// The collection of the log, which is part of the input of derived ids.
    pub(crate) log: String,
    pub(crate) store_id: Uuid,
    pub(crate) mapping: Arc<Mapping>,
}

/// The aggregate that applied an event.
pub(crate) struct Applied {
    pub(crate) aggregate: Uuid,
    /// The number of events that the aggregate had applied before it.
    pub(crate) before: Version,
}

/// An event as it is stored, with UUIDs for names.
pub(crate) struct Found<'a> {
    pub(crate) number: SequenceNumber,
    pub(crate) event_type: Uuid,
    pub(crate) applied: Option<Applied>,
    source: String,
    generation: u32,
    public: bool,
    time: Timestamp,
    correlation: Option<Uuid>,
    content: &'a RawDocument,
}

/// # Errors
/// A sentence that says which field is wrong.
pub(crate) fn find(document: &RawDocument) -> Result<Found<'_>, String> {
    let number = natural(document, "_id").ok_or("_id is no whole number from 0")?;
    let metadata = inner(document, "Metadata").ok_or("Metadata is missing or no document")?;
    let need = |what: &str| format!("Metadata.{what} is missing or of the wrong type");
    let occurred = metadata.get_datetime("Occurred").map_err(|_| need("Occurred"))?;
    let time = Timestamp::from_millis(occurred.timestamp_millis());
    if !time.is_writable() {
        return Err("Metadata.Occurred is no date that RFC 3339 can write".to_owned());
    }
    let aggregate = inner(document, "Aggregate");
    let applied = match aggregate.filter(|it| boolean(it, "WasAppliedByAggregate").unwrap_or(false)) {
        None => None,
        Some(it) => Some(Applied {
            aggregate: uuid(it, "TypeId").ok_or("Aggregate.TypeId is missing or no UUID")?,
            before: natural(it, "Version").ok_or("Aggregate.Version is missing or no whole number from 0")?,
        }),
    };
    let context = inner(document, "ExecutionContext");
    Ok(Found {
        number,
        event_type: uuid(metadata, "TypeId").ok_or_else(|| need("TypeId"))?,
        applied,
        source: text_or_uuid(metadata, "EventSource").ok_or_else(|| need("EventSource"))?,
        generation: natural(metadata, "TypeGeneration").and_then(|it| u32::try_from(it).ok()).unwrap_or(1).max(1),
        public: boolean(metadata, "Public").unwrap_or(false),
        time,
        correlation: context.and_then(|context| uuid(context, "Correlation")).filter(|id| !id.is_nil()),
        content: inner(document, "Content").ok_or("Content is missing or no document")?,
    })
}

impl Reader {
    /// # Errors
    /// A sentence that says which field is wrong.
    pub(crate) fn read(&self, document: &RawDocument) -> Result<StoredCommit, String> {
        self.commit(&find(document)?)
    }

    /// Returns the id of the commit that an event becomes, derived from its number.
    pub(crate) fn commit_id(&self, number: SequenceNumber) -> Uuid {
        Uuid::new_v5(&self.store_id, format!("{}/{number}", self.log).as_bytes())
    }

    pub(crate) fn commit(&self, found: &Found<'_>) -> Result<StoredCommit, String> {
        let commit_id = self.commit_id(found.number);
        let source = ByteString::from(&*found.source);
        let (aggregate, version) = match &found.applied {
            Some(applied) => {
                let name = self.mapping.name(Kind::Aggregate, applied.aggregate);
                (Aggregate::new(name, source), applied.before + 1)
            }
            None => (Aggregate::of_source(source), 0),
        };
        let info = CommitInfo {
            commit_id,
            request_id: None,
            aggregate,
            version,
            time: found.time,
            tenant_id: ByteString::from_static(DEFAULT_TENANT_ID),
            owner_id: ByteString::new(),
            space_id: ByteString::new(),
            command_id: None,
            correlation_id: found.correlation.map(|id| id.hyphenated().to_string().into()),
            causation_id: None,
            header: Vec::new(),
            transaction: None,
            received: None,
        };
        let event = StoredEvent {
            id: id_of_event(commit_id, 0),
            event_type: self.mapping.name(Kind::Event, found.event_type),
            generation: found.generation,
            data: Data::from_stored(Bytes::copy_from_slice(found.content.as_bytes()))?,
            tags: Vec::new(),
            public: found.public,
            metadata: None,
            time: found.time,
        };
        let (key, applied) = (found.number.to_string(), found.applied.is_some());
        Ok(StoredCommit { key, info, events: vec![event], applied, keys: KeyChanges::default() })
    }
}
