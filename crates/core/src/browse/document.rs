//! The view's documents, in the layout of Integr8sCode's `EventDocument`.

use bson::oid::ObjectId;
use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use bson::{Bson, DateTime, Document};

use crate::order::Direction::{Ascending, Descending};
use crate::{Index, RecordedEvent, TextLanguage, limits};

/// The base fields. An event's data cannot replace them.
const BASE: [&str; 11] = [
    "_id",
    "_annals",
    "annals",
    "event_id",
    "event_type",
    "event_version",
    "timestamp",
    "aggregate_id",
    "metadata",
    "stored_at",
    "ttl_expires_at",
];
/// The field from which MongoDB reads the language of a document in this collection.
const LANGUAGE_OVERRIDE: &str = "none";
/// Indexed fields of the data, which must be strings of at most [`limits::ID_BYTES_MAX`] bytes.
const INDEXED: [&str; 2] = ["execution_id", "pod_name"];
/// The maximum nesting of a value that moves into `annals.data`.
const MOVED_DEPTH_MAX: usize = limits::DATA_DEPTH_MAX - 4;
const DAY_MS: i64 = 24 * 60 * 60 * 1_000;

/// Returns the `_id` of an event in the view. Ids ascend as sequence numbers do.
pub fn browse_id(sequence_number: u64) -> ObjectId {
    let mut bytes = [0; 12];
    bytes[4..].copy_from_slice(&sequence_number.to_be_bytes());
    ObjectId::from_bytes(bytes)
}

/// Returns the sequence number of the event with this `_id`; `None` for a document that other software wrote.
pub fn number_of(id: &Bson) -> Option<u64> {
    let bytes = id.as_object_id()?.bytes();
    let number: [u8; 8] = bytes[4..].try_into().ok()?;
    (bytes[..4] == [0; 4]).then(|| u64::from_be_bytes(number))
}

/// Returns the document of an event. Event-specific fields are at the top level, and nulls are left out. With a retention, the document
/// expires that many days after the log stored the event.
///
/// A field of the data is stored in `annals.data` if it has the name of a base field or the indexes cannot hold it.
pub fn browse_document(event: &RecordedEvent, retention_days: Option<u32>) -> Document {
    let decoded = |data: &RawDocument| Document::try_from(&*document_of(event, data, retention_days));
    // Data that cannot be decoded is left out.
    decoded(event.data.as_raw()).or_else(|_| decoded(&RawDocumentBuf::new())).unwrap_or_default()
}

/// Returns the document of an event like [`browse_document`], in its stored form: the data is copied, not decoded.
pub fn stored_browse_document(event: &RecordedEvent, retention_days: Option<u32>) -> RawDocumentBuf {
    document_of(event, event.data.as_raw(), retention_days)
}

fn document_of(event: &RecordedEvent, data: &RawDocument, retention_days: Option<u32>) -> RawDocumentBuf {
    let commit = &*event.commit;
    let aggregate_id = commit.aggregate.event_source().unwrap_or(&commit.aggregate.id);
    let stored = stored_at(event);
    let mut out = RawDocumentBuf::new();
    out.append(cstr!("_id"), browse_id(event.sequence_number));
    out.append(cstr!("event_id"), event.id.hyphenated().to_string());
    out.append(cstr!("event_type"), &*event.event_type);
    out.append(cstr!("event_version"), format!("{}.0", event.generation));
    out.append(cstr!("timestamp"), DateTime::from_millis(event.time.as_millis()));
    out.append(cstr!("aggregate_id"), aggregate_id);
    out.append(cstr!("metadata"), metadata(event, data));
    out.append(cstr!("stored_at"), DateTime::from_millis(stored));
    if let Some(days) = retention_days {
        let expires = stored.saturating_add(i64::from(days) * DAY_MS);
        out.append(cstr!("ttl_expires_at"), DateTime::from_millis(expires));
    }
    let (mut moved, mut left_out) = (Vec::new(), Vec::new());
    for (name, value) in data.iter().flatten() {
        match value {
            RawBsonRef::Null | RawBsonRef::Undefined => {}
            value if is_flat(name.as_str(), value) => out.append(name, value),
            value if depth(value) <= MOVED_DEPTH_MAX => moved.push((name, value)),
            _ => left_out.push(name.as_str()),
        }
    }
    let mut own = RawDocumentBuf::new();
    own.append(cstr!("sequence_number"), event.sequence_number.cast_signed());
    own.append(cstr!("aggregate"), &*commit.aggregate.name);
    if !moved.is_empty() {
        own.append(cstr!("data"), RawDocumentBuf::from_iter(moved));
    }
    if !left_out.is_empty() {
        own.append(cstr!("left_out"), RawArrayBuf::from_iter(left_out));
    }
    out.append(cstr!("annals"), own);
    out
}

/// Returns when the log stored an event, in milliseconds since the Unix epoch. Commit ids that Annals assigns begin with that time. If
/// other software assigned the id, this is the time of the commit.
fn stored_at(event: &RecordedEvent) -> i64 {
    let id = event.commit.commit_id;
    match id.get_version_num() {
        7 => i64::try_from(id.as_u128() >> 80).unwrap_or(i64::MAX),
        _ => event.commit.time.as_millis(),
    }
}

fn is_flat(name: &str, value: RawBsonRef<'_>) -> bool {
    if INDEXED.contains(&name) {
        return value.as_str().is_some_and(|text| text.len() <= limits::ID_BYTES_MAX);
    }
    !(BASE.contains(&name)
        || name == LANGUAGE_OVERRIDE
        || name.is_empty()
        || name.starts_with('$')
        || name.contains('.'))
}

fn depth(value: RawBsonRef<'_>) -> usize {
    let fields = |inner: &RawDocument| inner.iter().flatten().map(|(_, value)| depth(value)).max().unwrap_or(0);
    match value {
        RawBsonRef::Document(inner) => 1 + fields(inner),
        RawBsonRef::Array(inner) => 1 + inner.into_iter().flatten().map(depth).max().unwrap_or(0),
        RawBsonRef::JavaScriptCodeWithScope(code) => 1 + fields(code.scope),
        _ => 0,
    }
}

/// Returns service, user and environment: from the commit's header, else from the event's metadata, else from `metadata` in the data.
fn metadata(event: &RecordedEvent, data: &RawDocument) -> RawDocumentBuf {
    let inner = data.get_document("metadata").ok();
    let find = |name: &str| {
        let header = event.commit.header.iter().find(|(key, _)| **key == *name).map(|(_, value)| &**value);
        let noted = || event.metadata.as_ref().and_then(|noted| noted.data().as_raw().get_str(name).ok());
        let text = header.or_else(noted).or_else(|| inner?.get_str(name).ok()).filter(|text| !text.is_empty());
        text.map(|text| cut(text).to_owned())
    };
    let unknown = || "unknown".to_owned();
    let mut out = RawDocumentBuf::new();
    out.append(cstr!("service_name"), find("service_name").unwrap_or_else(unknown));
    out.append(cstr!("service_version"), find("service_version").unwrap_or_else(unknown));
    let owner = Some(&*event.commit.owner_id).filter(|owner| !owner.is_empty());
    let user = find("user_id").or_else(|| owner.or_else(|| data.get_str("user_id").ok()).map(|id| cut(id).to_owned()));
    if let Some(user) = user {
        out.append(cstr!("user_id"), user);
    }
    out.append(cstr!("environment"), find("environment").unwrap_or_else(|| "production".to_owned()));
    out
}

/// Truncates a text to the maximum length of an id.
fn cut(text: &str) -> &str {
    let most = text.len().min(limits::ID_BYTES_MAX);
    let end = (0..=most).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    &text[..end]
}

/// Returns the indexes of the view, with Integr8sCode's names and options. `language` is the language of the text index. A store that
/// supports no text languages compares words as they are written.
pub fn browse_indexes(language: TextLanguage) -> Vec<Index> {
    let on = |name: &str, fields: &[(&'static str, crate::order::Direction)]| {
        let mut index = Index::ordered(fields.iter().copied());
        name.clone_into(&mut index.name);
        index
    };
    let sparse = |name: &str, field: &'static str| {
        let mut index = on(name, &[(field, Ascending)]);
        index.sparse = true;
        index
    };
    let (kind, aggregate, time) = ("event_type", "aggregate_id", "timestamp");
    let (user, service) = ("metadata.user_id", "metadata.service_name");
    let mut unique = Index::on("event_id");
    unique.unique = true;
    let mut expiring = on("idx_ttl", &[("ttl_expires_at", Ascending)]);
    expiring.expires_after_seconds = Some(0);
    let mut text = Index::text([kind, service, user, "execution_id"]);
    "idx_text_search".clone_into(&mut text.name);
    text.language = language;
    text.language_override = Some(LANGUAGE_OVERRIDE.to_owned());
    vec![
        unique.into(),
        Index::on(time).into(),
        Index::on(aggregate).into(),
        on("idx_event_type_ts", &[(kind, Ascending), (time, Descending)]).into(),
        on("idx_aggregate_ts", &[(aggregate, Ascending), (time, Descending)]).into(),
        on("idx_meta_user_ts", &[(user, Ascending), (time, Descending)]).into(),
        on("idx_meta_service_ts", &[(service, Ascending), (time, Descending)]).into(),
        sparse("idx_execution_id", "execution_id").into(),
        sparse("idx_pod_name", "pod_name").into(),
        expiring.into(),
        on("idx_events_type_agg", &[(kind, Ascending), (aggregate, Ascending)]).into(),
        on("idx_events_agg_ts", &[(aggregate, Ascending), (time, Ascending)]).into(),
        on("idx_events_type_ts_asc", &[(kind, Ascending), (time, Ascending)]).into(),
        on("idx_events_user_ts", &[(user, Ascending), (time, Ascending)]).into(),
        on("idx_events_user_type", &[(user, Ascending), (kind, Ascending)]).into(),
        on("idx_events_type_user_ts", &[(kind, Ascending), (user, Ascending), (time, Descending)]).into(),
        text.into(),
    ]
}
