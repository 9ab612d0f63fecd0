//! JSON form of the view's documents, for people. Documents of other software and damaged ones are shown unchanged.

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{DateTime, Document};
use serde::ser::{Error as _, Serialize, SerializeMap, Serializer};
use serde_json::Value;

use crate::data::ValueView;
use crate::{DocumentView, Timestamp};

/// The base fields that are dates.
const DATES: [&str; 3] = ["timestamp", "stored_at", "ttl_expires_at"];

/// Converts a document of the view to JSON: dates of base fields as RFC 3339, everything else as relaxed Extended JSON. If a base field is
/// missing or has the wrong type, the document is returned under `document` and the problem under `damaged`.
pub fn shown(document: &Document) -> Value {
    ShownDocument::new(&RawDocumentBuf::try_from(document).unwrap_or_default()).value()
}

/// A document of the view that serializes in the form of [`shown`] without being decoded first.
#[derive(Debug, Clone, Copy)]
pub struct ShownDocument<'a> {
    document: &'a RawDocument,
    beside: Option<(&'a str, &'a Value)>,
}

impl<'a> ShownDocument<'a> {
    /// Wraps a stored document.
    pub fn new(document: &'a RawDocument) -> Self {
        Self { document, beside: None }
    }

    /// Adds a field, which replaces one with the same name.
    #[must_use]
    pub fn with(self, name: &'a str, value: &'a Value) -> Self {
        Self { beside: Some((name, value)), ..self }
    }

    /// Returns it as a JSON value. A document of other software that cannot be decoded is shown as an empty one.
    pub fn value(&self) -> Value {
        let value = |it: &ShownDocument<'_>| serde_json::to_value(it);
        value(self).or_else(|_| value(&self.over(&RawDocumentBuf::new()))).unwrap_or(Value::Null)
    }

    /// Returns it as one line of JSON. A document of other software that cannot be decoded is shown as an empty one.
    pub fn text(&self) -> String {
        let empty = RawDocumentBuf::new();
        self.readable_text().unwrap_or_else(|| self.over(&empty).readable_text().unwrap_or_default())
    }

    /// Returns it as one line of JSON; `None` if it cannot be decoded.
    pub fn readable_text(&self) -> Option<String> {
        serde_json::to_string(self).ok()
    }

    /// Returns another document with the same additional field.
    fn over<'b>(&self, document: &'b RawDocument) -> ShownDocument<'b>
    where
        'a: 'b,
    {
        ShownDocument { document, beside: self.beside }
    }
}

impl Serialize for ShownDocument<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if let Some(wrong) = damage(self.document) {
            map.serialize_entry("damaged", &wrong)?;
            map.serialize_entry("document", &DocumentView(self.document))?;
        } else {
            for element in self.document.iter() {
                let (name, value) = element.map_err(S::Error::custom)?;
                let name = name.as_str();
                let is_hidden = matches!(name, "_id" | "_annals");
                match value {
                    _ if is_hidden || self.beside.is_some_and(|(beside, _)| beside == name) => {}
                    RawBsonRef::DateTime(date) if DATES.contains(&name) => map.serialize_entry(name, &time_of(date))?,
                    value => map.serialize_entry(name, &ValueView(value))?,
                }
            }
        }
        if let Some((name, value)) = self.beside {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

fn time_of(date: DateTime) -> Timestamp {
    Timestamp::from_millis(date.timestamp_millis()).nearest_writable()
}

/// Returns what is wrong with a document.
fn damage(document: &RawDocument) -> Option<String> {
    let kind = |name: &str, is_right: fn(RawBsonRef<'_>) -> bool| match document.get(name).ok().flatten() {
        None => Some(format!("{name} is missing")),
        Some(value) if !is_right(value) => Some(format!("{name} has the wrong type")),
        Some(_) => None,
    };
    kind("event_id", |value| value.as_str().is_some())
        .or_else(|| kind("event_type", |value| value.as_str().is_some()))
        .or_else(|| kind("timestamp", |value| value.as_datetime().is_some()))
        .or_else(|| kind("metadata", |value| value.as_document().is_some()))
}
