//! Documents of the view as JSON, for people. A document of other software, or a damaged one, is shown as it is.

use bson::{Bson, Document, RawDocumentBuf};
use serde_json::{Map, Value, json};

use crate::{DocumentView, Timestamp};

/// The base fields that are dates.
const DATES: [&str; 3] = ["timestamp", "stored_at", "ttl_expires_at"];

/// Returns a document of the view as JSON: dates of base fields as RFC 3339, everything else as relaxed Extended JSON. A document that
/// lacks a base field, or has one of a wrong type, is returned under `document`, with what is wrong with it under `damaged`.
pub fn shown(document: &Document) -> Value {
    let whole = plain(document);
    if let Some(wrong) = damage(document) {
        return json!({ "damaged": wrong, "document": whole });
    }
    let Value::Object(whole) = whole else { return whole };
    let fields = whole.into_iter().filter(|(name, _)| name != "_id" && name != "_annals");
    let dated = fields.map(|(name, value)| {
        let date = DATES.contains(&name.as_str()).then(|| document.get_datetime(&name).ok()).flatten();
        let text = date.map(|date| Timestamp::from_millis(date.timestamp_millis()).nearest_writable().to_string());
        (name, text.map_or(value, Value::String))
    });
    Value::Object(dated.collect::<Map<_, _>>())
}

fn plain(document: &Document) -> Value {
    let raw = RawDocumentBuf::try_from(document);
    raw.ok().and_then(|raw| serde_json::to_value(DocumentView(&raw)).ok()).unwrap_or(Value::Null)
}

/// What is wrong with a document.
fn damage(document: &Document) -> Option<String> {
    let kind = |name: &str, is_right: fn(&Bson) -> bool| match document.get(name) {
        None => Some(format!("{name} is missing")),
        Some(value) if !is_right(value) => Some(format!("{name} has the wrong type")),
        Some(_) => None,
    };
    kind("event_id", |value| value.as_str().is_some())
        .or_else(|| kind("event_type", |value| value.as_str().is_some()))
        .or_else(|| kind("timestamp", |value| value.as_datetime().is_some()))
        .or_else(|| kind("metadata", |value| value.as_document().is_some()))
}
