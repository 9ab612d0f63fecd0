//! Event data: one BSON document, kept as bytes.
//!
//! Converting from JSON keeps the order of keys. Integers become int64, numbers with `.` or an exponent become doubles, and a duplicate
//! key is refused. `{"$date": …}` stays a document with that key. Converting to JSON writes BSON types that JSON lacks as relaxed Extended
//! JSON.

mod careful;
mod equal;
mod plain;

use std::fmt;

use bson::raw::{RawArray, RawBsonRef, RawDocument, RawDocumentBuf};
use bytes::Bytes;
use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde::ser::{Error as _, SerializeMap, SerializeSeq};

pub(crate) use equal::documents_equal;
pub(crate) use plain::Documents;

use crate::limits::DATA_DEPTH_MAX;
use crate::{Code, json};

/// The data of one event: a valid BSON document. Cloning shares the bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Data(Bytes);

impl Data {
    /// Returns the document `{}`.
    pub fn empty() -> Self {
        Self(Bytes::from_static(&[5, 0, 0, 0, 0]))
    }

    /// Reads JSON text, which must be an object.
    ///
    /// # Errors
    /// See [`InvalidData`]. An integer beyond int64 is refused; with a decimal point or an exponent, the same number is a double.
    pub fn read_json(text: &str) -> Result<Self, InvalidData> {
        let wrong = |message: String| InvalidData { code: Code::InvalidData, message };
        let unsigned = json::without_signed_zeros(text.as_bytes());
        let text = std::str::from_utf8(&unsigned).unwrap_or(text);
        let data = serde_json::from_str(text).map_err(|error| match json::wide_integer(text.as_bytes()) {
            Some(wide) => too_wide(wide),
            None => wrong(error.to_string()),
        })?;
        // The parser silently rounds an integer beyond u64 to a double.
        json::wide_integer(text.as_bytes()).map_or(Ok(data), |wide| Err(too_wide(wide)))
    }

    /// Reads JSON text, which must be an object.
    ///
    /// # Errors
    /// The message of [`read_json`](Self::read_json)'s error.
    pub fn from_json(text: &str) -> Result<Self, String> {
        Self::read_json(text).map_err(|invalid| invalid.message)
    }

    /// Converts any value that serialises to a JSON object, for example `serde_json::json!({…})` or a struct of your own.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub fn from_value(value: &impl serde::Serialize) -> Result<Self, String> {
        Self::from_json(&serde_json::to_string(value).map_err(|error| error.to_string())?)
    }

    /// Converts a BSON document.
    ///
    /// # Errors
    /// A sentence that says why it cannot be encoded.
    pub fn from_document(document: &bson::Document) -> Result<Self, String> {
        let raw = RawDocumentBuf::try_from(document).map_err(|error| error.to_string())?;
        Ok(Self(raw.into_bytes().into()))
    }

    /// Wraps the bytes of a BSON document that came from [`Data::as_bytes`] and whose checksum has been verified since. Only the outer
    /// length is checked.
    ///
    /// # Errors
    /// A sentence, if they cannot be a document.
    pub fn from_stored(bytes: Bytes) -> Result<Self, String> {
        match RawDocument::from_bytes(&bytes) {
            Ok(_) => Ok(Self(bytes)),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Returns the document's bytes.
    pub fn as_bytes(&self) -> &Bytes {
        &self.0
    }

    /// Returns the document, to look up fields without decoding all of it.
    pub fn as_raw(&self) -> &RawDocument {
        RawDocument::from_bytes(&self.0).unwrap_or_else(|_| RawDocument::empty_ref())
    }

    /// Decodes the document, in its JSON form, into a type of your own.
    ///
    /// # Errors
    /// A sentence that names the field that does not fit.
    pub fn decode<T: serde::de::DeserializeOwned>(&self) -> Result<T, String> {
        decode(self.as_raw())
    }

    /// Takes over a document that is borrowed from stored data. `keep` must return the same bytes as shared ones.
    pub fn from_lent(document: &RawDocument, keep: impl FnOnce(&[u8]) -> Bytes) -> Self {
        Self(keep(document.as_bytes()))
    }

    /// Copies a stored document.
    pub(crate) fn of_raw(document: &RawDocument) -> Self {
        Self(Bytes::copy_from_slice(document.as_bytes()))
    }
}

/// Decodes a document as [`Data::decode`] does.
pub(crate) fn decode<T: serde::de::DeserializeOwned>(document: &RawDocument) -> Result<T, String> {
    let json = serde_json::to_string(&DocumentView(document)).map_err(|error| error.to_string())?;
    serde_json::from_str(&json).map_err(|error| error.to_string())
}

/// Why JSON text cannot be data.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct InvalidData {
    /// `invalid_integer` or `invalid_data`.
    pub code: Code,
    /// What is wrong, as one sentence.
    pub message: String,
}

fn too_wide((path, number): (String, String)) -> InvalidData {
    let message = format!("{path} is {number}, which does not fit in a signed 64-bit integer");
    InvalidData { code: Code::InvalidInteger, message }
}

trait EmptyDocument {
    fn empty_ref() -> &'static RawDocument;
}

impl EmptyDocument for RawDocument {
    fn empty_ref() -> &'static RawDocument {
        const EMPTY: &[u8] = &[5, 0, 0, 0, 0];
        match RawDocument::from_bytes(EMPTY) {
            Ok(document) => document,
            Err(_) => unreachable!("five bytes that spell the empty document"),
        }
    }
}

impl fmt::Debug for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match serde_json::to_string(self) {
            Ok(json) => f.write_str(&json),
            Err(_) => write!(f, "Data({} bytes)", self.0.len()),
        }
    }
}

impl<'de> serde::Deserialize<'de> for Data {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut out = Vec::with_capacity(256);
        deserializer.deserialize_map(DocumentWriter { out: &mut out, depth: 0, deepest: DATA_DEPTH_MAX })?;
        Ok(Self(out.into()))
    }
}

/// Any JSON object as a BSON document, converted by the rules of event data. It may be nested deeper, because its fields are wrapped.
pub(crate) struct Object(pub(crate) RawDocumentBuf);

/// The maximum nesting of an [`Object`]. JSON parsers stop at 128.
const OBJECT_DEPTH_MAX: usize = DATA_DEPTH_MAX + 20;

impl<'de> serde::Deserialize<'de> for Object {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut out = Vec::with_capacity(256);
        deserializer.deserialize_map(DocumentWriter { out: &mut out, depth: 0, deepest: OBJECT_DEPTH_MAX })?;
        RawDocumentBuf::from_bytes(out).map(Self).map_err(D::Error::custom)
    }
}

/// Writes one object as a BSON document at the end of `out`.
struct DocumentWriter<'a> {
    out: &'a mut Vec<u8>,
    depth: usize,
    deepest: usize,
}

/// Writes one value at the end of `out` and its BSON type into the byte at `type_at`.
struct ValueWriter<'a> {
    out: &'a mut Vec<u8>,
    type_at: usize,
    depth: usize,
    deepest: usize,
}

fn begin(out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    start
}

fn end<E: serde::de::Error>(out: &mut Vec<u8>, start: usize) -> Result<(), E> {
    out.push(0);
    let length = i32::try_from(out.len() - start).map_err(|_| E::custom("data larger than 2 GiB"))?;
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
    Ok(())
}

fn write_key<E: serde::de::Error>(out: &mut Vec<u8>, key: &str) -> Result<usize, E> {
    if key.as_bytes().contains(&0) {
        return Err(E::custom(format_args!("key {key:?} holds a NUL, which BSON does not allow")));
    }
    let type_at = out.len();
    out.push(0);
    out.extend_from_slice(key.as_bytes());
    out.push(0);
    Ok(type_at)
}

/// The keys of one object seen so far: the first ones in a list, the others in a set.
#[derive(Default)]
struct Keys {
    few: Vec<Box<str>>,
    many: std::collections::HashSet<Box<str>>,
}

impl Keys {
    fn insert(&mut self, key: &str) -> bool {
        const FEW: usize = 16;
        if self.few.iter().any(|k| **k == *key) || self.many.contains(key) {
            return false;
        }
        if self.few.len() < FEW {
            self.few.push(key.into());
        } else {
            self.many.insert(key.into());
        }
        true
    }
}

impl<'de> Visitor<'de> for DocumentWriter<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        if self.depth >= self.deepest {
            return Err(A::Error::custom(format_args!("nested deeper than {}", self.deepest)));
        }
        let start = begin(self.out);
        let mut keys = Keys::default();
        while let Some(key) = map.next_key::<std::borrow::Cow<'de, str>>()? {
            if !keys.insert(&key) {
                return Err(A::Error::custom(format_args!("key {key:?} is given twice")));
            }
            let type_at = write_key(self.out, &key)?;
            let seed = ValueWriter { out: self.out, type_at, depth: self.depth + 1, deepest: self.deepest };
            map.next_value_seed(seed)?;
        }
        end(self.out, start)
    }
}

impl<'de> DeserializeSeed<'de> for ValueWriter<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl ValueWriter<'_> {
    fn put(self, bson_type: u8, bytes: &[u8]) {
        self.out[self.type_at] = bson_type;
        self.out.extend_from_slice(bytes);
    }
}

impl<'de> Visitor<'de> for ValueWriter<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.put(0x0a, &[]);
        Ok(())
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.put(0x08, &[u8::from(value)]);
        Ok(())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.put(0x12, &value.to_le_bytes());
        Ok(())
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<(), E> {
        let value = i64::try_from(value)
            .map_err(|_| E::custom(format_args!("integer {value} does not fit in a signed 64-bit integer")))?;
        self.put(0x12, &value.to_le_bytes());
        Ok(())
    }

    fn visit_f64<E>(self, value: f64) -> Result<(), E> {
        self.put(0x01, &value.to_le_bytes());
        Ok(())
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<(), E> {
        let length = i32::try_from(value.len() + 1).map_err(|_| E::custom("string larger than 2 GiB"))?;
        self.out[self.type_at] = 0x02;
        self.out.extend_from_slice(&length.to_le_bytes());
        self.out.extend_from_slice(value.as_bytes());
        self.out.push(0);
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        self.out[self.type_at] = 0x03;
        DocumentWriter { out: self.out, depth: self.depth, deepest: self.deepest }.visit_map(map)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        if self.depth >= self.deepest {
            return Err(A::Error::custom(format_args!("nested deeper than {}", self.deepest)));
        }
        self.out[self.type_at] = 0x04;
        let start = begin(self.out);
        for index in 0usize.. {
            let undo = self.out.len();
            let type_at = write_key(self.out, &index.to_string())?;
            let seed = ValueWriter { out: self.out, type_at, depth: self.depth + 1, deepest: self.deepest };
            if seq.next_element_seed(seed)?.is_none() {
                self.out.truncate(undo);
                break;
            }
        }
        end(self.out, start)
    }
}

impl serde::Serialize for Data {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        DocumentView(self.as_raw()).serialize(serializer)
    }
}

/// A document as relaxed Extended JSON.
#[derive(Debug, Clone, Copy)]
pub struct DocumentView<'a>(pub &'a RawDocument);
struct Array<'a>(&'a RawArray);
/// A value as relaxed Extended JSON.
pub(crate) struct ValueView<'a>(pub(crate) RawBsonRef<'a>);

impl serde::Serialize for DocumentView<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for element in self.0.iter() {
            let (key, value) = element.map_err(S::Error::custom)?;
            map.serialize_entry(key.as_str(), &ValueView(value))?;
        }
        map.end()
    }
}

impl serde::Serialize for Array<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut seq = serializer.serialize_seq(None)?;
        for element in self.0 {
            seq.serialize_element(&ValueView(element.map_err(S::Error::custom)?))?;
        }
        seq.end()
    }
}

impl serde::Serialize for ValueView<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            RawBsonRef::Document(document) => DocumentView(document).serialize(serializer),
            RawBsonRef::Array(array) => Array(array).serialize(serializer),
            RawBsonRef::String(text) => serializer.serialize_str(text),
            RawBsonRef::Boolean(value) => serializer.serialize_bool(value),
            RawBsonRef::Null => serializer.serialize_unit(),
            RawBsonRef::Int32(value) => serializer.serialize_i32(value),
            RawBsonRef::Int64(value) => serializer.serialize_i64(value),
            RawBsonRef::Double(value) if value.is_finite() => serializer.serialize_f64(value),
            other => {
                let owned = bson::Bson::try_from(other).map_err(S::Error::custom)?;
                owned.into_relaxed_extjson().serialize(serializer)
            }
        }
    }
}

#[cfg(test)]
mod tests;
