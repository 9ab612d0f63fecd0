//! The encodings of a body about records, and the meaning of its values.

use std::borrow::Cow;

use bson::raw::{RawDocument, RawDocumentBuf};
use bson::{Bson, Document, RawBsonRef};

use super::extended::extended;
use crate::condition::as_it_is;
use crate::data::Object;
use crate::fields::body;
use crate::wire::parse_json;
use crate::{Code, Invalid};

/// The encoding of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// JSON. Documents are taken literally, even `{"$date": …}`, as event data is. Ids and the values of conditions are Extended JSON,
    /// because answers show them as such.
    Json,
    /// JSON in which everything is Extended JSON.
    ExtendedJson,
    /// One BSON document.
    Bson,
}

impl Encoding {
    /// Returns the encoding of this media type.
    pub fn of(media_type: &str) -> Option<Self> {
        let all = [Self::Json, Self::ExtendedJson, Self::Bson];
        all.into_iter().find(|known| known.media_type().eq_ignore_ascii_case(media_type))
    }

    /// Returns its media type.
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::ExtendedJson => "application/ejson",
            Self::Bson => "application/bson",
        }
    }

    /// Parses a body as a document.
    pub(in crate::wire) fn document(self, bytes: &[u8]) -> Result<Cow<'_, RawDocument>, Invalid> {
        if self == Self::Bson {
            return RawDocument::from_bytes(bytes).map(Cow::Borrowed).map_err(|error| body("", error));
        }
        match parse_json::<Object>(bytes) {
            Ok(object) => Ok(Cow::Owned(object.0)),
            Err(error) if error.code == Code::InvalidBody => Err(Invalid { code: code_of(&error.path), ..error }),
            Err(error) => Err(error),
        }
    }

    /// Converts an id, or a value of a condition.
    pub(super) fn value(self, path: &str, value: RawBsonRef<'_>) -> Result<Bson, Invalid> {
        let value = as_it_is(path, value)?;
        if self == Self::Bson {
            return Ok(value);
        }
        extended(value).map_err(|message| body(path, message))
    }

    /// Converts a document that is to be stored.
    pub(in crate::wire) fn record(self, path: &str, value: RawBsonRef<'_>) -> Result<RawDocumentBuf, Invalid> {
        let invalid = |message: String| Invalid::new(Code::InvalidRecord, path, message);
        let document = value.as_document().ok_or_else(|| invalid("is not a document".to_owned()))?;
        if self != Self::ExtendedJson {
            return Ok(document.to_owned());
        }
        let read = Document::try_from(document).map_err(|error| invalid(error.to_string()))?;
        match extended(Bson::Document(read)).map_err(invalid)? {
            Bson::Document(read) => RawDocumentBuf::try_from(&read).map_err(|error| invalid(error.to_string())),
            other => Err(invalid(format!("{other} is a value and not a document"))),
        }
    }
}

/// Returns the code for an error at this path, according to the part of the body.
fn code_of(path: &str) -> Code {
    let has = |name: &str| path.split(['.', '[']).any(|part| part == name);
    match () {
        () if has("document") => Code::InvalidRecord,
        () if ["condition", "matching", "absent_or", "partial"].into_iter().any(has) => Code::InvalidCondition,
        () => Code::InvalidBody,
    }
}
