//! Reads a document of `{aggregate}_event_stream`, which Annals, Wow or other software wrote.
//!
//! Fields for which Wow's reader has defaults have the same defaults here. A field that it requires is required here too: without it the
//! commit is malformed, and the error says what is missing.

use annals_core::{
    Aggregate, ByteString, CommitInfo, DEFAULT_TENANT_ID, Data, KeyChanges, Metadata, RecordedCommit, RecordedEvent,
    Release, Reserve, SequenceNumber, Timestamp, Version,
};
use bytes::Bytes;
use mongodb::bson::RawDocument;
use std::sync::Arc;
use uuid::Uuid;

use super::commit::ours;
use super::fields::{Field, boolean, fields, text};
use super::names::{id_of_event, uuid_of};
use super::prepare;

/// A commit as it is stored, without sequence numbers.
#[derive(Clone)]
pub(crate) struct StoredCommit {
    /// Its `_id`, unchanged.
    pub(crate) key: String,
    pub(crate) info: CommitInfo,
    pub(crate) events: Vec<StoredEvent>,
    /// Whether it had an expected version.
    pub(crate) applied: bool,
    /// The prepare keys that it changed.
    pub(crate) keys: KeyChanges,
}

#[derive(Clone)]
pub(crate) struct StoredEvent {
    pub(crate) id: Uuid,
    pub(crate) event_type: ByteString,
    pub(crate) generation: u32,
    pub(crate) data: Data,
    pub(crate) tags: Vec<ByteString>,
    pub(crate) public: bool,
    pub(crate) metadata: Option<Metadata>,
    pub(crate) time: Timestamp,
}

/// Reads a commit of an aggregate of this name.
///
/// # Errors
/// A sentence that says what is wrong.
pub(crate) fn read<'a>(document: &'a RawDocument, name: &str) -> Result<StoredCommit, String> {
    let [key, named, header, id, tenant, owner, space, command, request, version, body, time, ours] = fields(
        document,
        [
            "_id",
            "aggregateName",
            "header",
            "aggregateId",
            "tenantId",
            "ownerId",
            "spaceId",
            "commandId",
            "requestId",
            "version",
            "body",
            "createTime",
            ours::ROOT,
        ],
    );
    let text = |value: Option<Field<'a>>| value.and_then(Field::text);
    let need = |value, key: &str| text(value).ok_or_else(|| format!("{key} is missing or no string"));
    let key = need(key, "_id")?.to_owned();
    let commit_id = uuid_of("commit", &key);
    let named = text(named).unwrap_or(name);
    if named != name {
        return Err(format!("aggregateName is {named:?} in the collection of {name:?}"));
    }
    let id = need(id, "aggregateId")?;
    let version: Option<Version> = version.and_then(Field::natural).filter(|version| *version > 0);
    let version = version.ok_or("version is missing or not a whole number from 1")?;
    // Most commits have the default, which needs no allocation.
    let or = |value, default: &'static str| match text(value).filter(|value| *value != default) {
        Some(value) => ByteString::from(value),
        None => ByteString::from_static(default),
    };
    let millis = time.and_then(Field::integer).ok_or("createTime is missing or no whole number")?;
    let time = Timestamp::from_millis(millis);
    if !time.is_writable() {
        return Err(format!("createTime {millis} is no date that RFC 3339 can write"));
    }
    let ours = ours.and_then(Field::document);
    let our = |key: &str| ours.and_then(|ours| super::fields::text(ours, key)).map(ByteString::from);
    let request_id = text(request).map(ByteString::from);
    let command = text(command).filter(|command| request_id.as_deref() != Some(*command));
    let info = CommitInfo {
        commit_id,
        command_id: our(ours::COMMAND).or(command.map(ByteString::from)),
        request_id,
        aggregate: Aggregate::new(name, id),
        version,
        time,
        tenant_id: or(tenant, DEFAULT_TENANT_ID),
        owner_id: or(owner, ""),
        space_id: or(space, ""),
        correlation_id: our(ours::CORRELATION),
        causation_id: our(ours::CAUSATION),
        header: header.and_then(Field::document).map(texts).unwrap_or_default(),
        transaction: None,
        received: None,
    };
    let mut events = events(body.ok_or("body is missing or no array")?, commit_id, time)?;
    if let Some(times) = ours.and_then(|ours| ours.get_array(ours::TIMES).ok()) {
        for (event, time) in events.iter_mut().zip(times) {
            event.time = time.ok().and_then(|time| time.as_i64()).map_or(event.time, Timestamp::from_millis);
        }
    }
    let applied = !ours.and_then(|ours| boolean(ours, ours::ANY)).unwrap_or(false);
    let keys = ours.map_or_else(|| Ok(KeyChanges::default()), keys)?;
    Ok(StoredCommit { key, info, events, applied, keys })
}

fn keys(ours: &RawDocument) -> Result<KeyChanges, String> {
    let mut keys = KeyChanges::default();
    for one in documents(ours, ours::RELEASE) {
        let value = matches!(one.get("value"), Ok(Some(_))).then(|| prepare::value(one)).transpose()?;
        let (name, key) = named(one)?;
        keys.release.push(Release { name, key, value });
    }
    for one in documents(ours, ours::RESERVE) {
        let (name, key) = named(one)?;
        let ttl_at = one.get_datetime("ttlAt").ok().map(|at| Timestamp::from_millis(at.timestamp_millis()));
        keys.reserve.push(Reserve { name, key, value: prepare::value(one)?, ttl_at });
    }
    Ok(keys)
}

fn documents<'a>(document: &'a RawDocument, key: &str) -> impl Iterator<Item = &'a RawDocument> {
    let array = document.get_array(key).ok();
    array.into_iter().flatten().filter_map(|one| one.ok()?.as_document())
}

fn named(one: &RawDocument) -> Result<(ByteString, ByteString), String> {
    match (text(one, "name"), text(one, "key")) {
        (Some(name), Some(key)) => Ok((name.into(), key.into())),
        _ => Err("a prepare key of annals has no name or no key".to_owned()),
    }
}

/// Reads the strings of a header. Like Wow, it ignores other values, which Wow's own headers do not have.
fn texts(header: &RawDocument) -> Vec<(ByteString, ByteString)> {
    let texts = header.iter().flatten().filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)));
    texts.map(|(key, value)| (key.into(), value.into())).collect()
}

fn events(body: Field<'_>, commit_id: Uuid, time: Timestamp) -> Result<Vec<StoredEvent>, String> {
    let mut events = Vec::with_capacity(1);
    for (place, value) in body.values().ok_or("body is missing or no array")?.enumerate() {
        let one = value.and_then(Field::document).ok_or_else(|| format!("body[{place}] is no document"))?;
        events.push(event(one, commit_id, place, time).map_err(|why| format!("body[{place}].{why}"))?);
    }
    if events.is_empty() { Err("body holds no event".to_owned()) } else { Ok(events) }
}

fn event(one: &RawDocument, commit_id: Uuid, place: usize, time: Timestamp) -> Result<StoredEvent, String> {
    let [id, name, revision, data, tags, public, metadata] =
        fields(one, ["id", "name", "revision", "body", "tags", "public", "metadata"]);
    let event_type = name.and_then(Field::text).ok_or("name is missing or no string")?;
    let data = data.and_then(Field::document).ok_or("body is missing or no document")?;
    let id = id.and_then(Field::text);
    let id = id.map_or_else(|| id_of_event(commit_id, place), |id| uuid_of("event-id", id));
    let tags = tags.and_then(Field::values).into_iter().flatten();
    let tags = tags.filter_map(|tag| tag?.text().map(ByteString::from));
    Ok(StoredEvent {
        id,
        event_type: event_type.into(),
        generation: generation(revision.and_then(Field::text).unwrap_or_default()),
        data: Data::from_stored(Bytes::copy_from_slice(data.as_bytes()))?,
        tags: tags.collect(),
        public: public.and_then(Field::boolean).unwrap_or(false),
        // Other software may store something else under this name.
        metadata: metadata.and_then(Field::document).and_then(noted),
        time,
    })
}

fn noted(metadata: &RawDocument) -> Option<Metadata> {
    let data = Data::from_stored(Bytes::copy_from_slice(metadata.as_bytes())).ok()?;
    Metadata::of(data).ok().flatten()
}

/// Returns the leading whole number of a revision; 1 for `0.0.1`, which Wow writes if none was declared.
fn generation(revision: &str) -> u32 {
    let digits = revision.bytes().take_while(u8::is_ascii_digit).count();
    revision[..digits].parse().unwrap_or(1).max(1)
}

impl StoredCommit {
    /// Adds the commit's sequence numbers.
    pub(crate) fn recorded(self, first: SequenceNumber) -> RecordedCommit {
        let info = Arc::new(self.info);
        let event = |(place, event): (usize, StoredEvent)| RecordedEvent {
            sequence_number: first + place as u64,
            ordinal: place as u32,
            id: event.id,
            event_type: event.event_type,
            generation: event.generation,
            data: event.data,
            tags: event.tags,
            public: event.public,
            metadata: event.metadata,
            time: event.time,
            commit: info.clone(),
        };
        let events = self.events.into_iter().enumerate().map(event).collect();
        RecordedCommit { info, events }
    }

    /// Returns whether other software wrote it: the ids of our commits are UUIDs.
    pub(crate) fn is_foreign(&self) -> bool {
        Uuid::try_parse(&self.key).is_err()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mongodb::bson::{Bson, Document, RawDocumentBuf, doc};

    /// A document as Wow writes it.
    fn wow() -> Document {
        doc! {
            "_id": "0Rmt0000000001", "contextName": "example", "aggregateName": "order",
            "header": { "trace_id": "t" }, "aggregateId": "o-1", "tenantId": "(0)", "ownerId": "", "spaceId": "",
            "commandId": "c-1", "requestId": "r-1", "version": 3,
            "body": [{ "id": "0Rmt0000000002", "name": "order_created", "revision": "0.0.1",
                       "bodyType": "me.example.OrderCreated", "body": { "total": 1.5 } }],
            "createTime": 1_699_920_000_000_i64, "size": 1,
        }
    }

    fn read_document(document: &Document) -> Result<StoredCommit, String> {
        read(&RawDocumentBuf::try_from(document).expect("encodes"), "order")
    }

    #[test]
    fn a_document_of_wow_is_read_whole() {
        let commit = read_document(&wow()).expect("it is whole");
        assert!(commit.is_foreign() && commit.applied);
        assert_eq!((commit.info.version, &*commit.info.aggregate.id), (3, "o-1"));
        assert_eq!(commit.info.header, [("trace_id".into(), "t".into())]);
        assert_eq!(commit.info.command_id.as_deref(), Some("c-1"));
        assert_eq!(commit.events[0].generation, 1);
        assert_eq!(commit.info.time.as_millis(), 1_699_920_000_000);
        assert_eq!(read_document(&wow()).expect("again").events[0].id, commit.events[0].id, "ids do not change");
    }

    #[test]
    fn what_is_missing_has_its_default_or_is_named() {
        let mut old = wow();
        for key in ["ownerId", "spaceId", "contextName", "aggregateName", "header", "size"] {
            old.remove(key);
        }
        old.insert("version", 3_i64);
        let commit = read_document(&old).expect("defaults");
        assert_eq!((&*commit.info.owner_id, commit.info.version), ("", 3));
        for (key, value) in [
            ("aggregateId", None),
            ("version", Some(Bson::from(0))),
            ("version", Some(Bson::from("3"))),
            ("createTime", None),
            ("body", Some(Bson::Array(Vec::new()))),
            ("body", Some(Bson::Array(vec![Bson::from(doc! { "name": "x" })]))),
            ("aggregateName", Some(Bson::from("cart"))),
        ] {
            let mut broken = wow();
            match value {
                Some(value) => drop(broken.insert(key, value)),
                None => drop(broken.remove(key)),
            }
            let why = read_document(&broken).err().expect("it is malformed");
            assert!(why.contains(key), "{key}: {why}");
        }
    }

    #[test]
    fn a_revision_begins_with_the_generation() {
        for (revision, expected) in [("2.0.0", 2), ("0.0.1", 1), ("1.0", 1), ("", 1), ("x", 1), ("12", 12)] {
            assert_eq!(generation(revision), expected, "{revision}");
        }
    }
}
