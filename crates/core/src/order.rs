//! MongoDB's order of BSON values, as bytes: comparing the encodings of two values compares the values.
//!
//! One definition serves sorting, index keys and conditions, so they cannot disagree. Values of different types are ordered by type.
//! Numbers of all four types are one type and compare by their exact value; -0 is 0, and NaN is one value below all others. Documents
//! compare field by field: type, then name, then value. No encoding is a prefix of another, so encodings can be concatenated, and inverting
//! the bytes reverses the order.

mod decimal;
mod keys;
mod number;

#[cfg(test)]
mod tests;

use std::cmp::Ordering;

use bson::RawBsonRef;
use bson::raw::{RawArray, RawDocument};

pub use keys::{Direction, Fields, ParallelArrays, document_keys, invert};

/// Ends a document or an array; sorts below every type.
const END: u8 = 0;

/// Ends the encoding of a text. The bytes before it are a prefix of the encodings of all texts that begin with this one.
pub const TEXT_END: [u8; 2] = [0, 0];

/// The place of a type in the order. Its value is the first byte of an encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names are BSON's")]
pub enum TypeOrder {
    MinKey = 1,
    Undefined,
    Null,
    Number,
    String,
    Document,
    Array,
    Binary,
    ObjectId,
    Boolean,
    DateTime,
    Timestamp,
    RegularExpression,
    DbPointer,
    JavaScriptCode,
    JavaScriptCodeWithScope,
    MaxKey,
}

impl TypeOrder {
    /// Returns the place of a value's type.
    pub fn of(value: &RawBsonRef<'_>) -> Self {
        match value {
            RawBsonRef::MinKey => Self::MinKey,
            RawBsonRef::Undefined => Self::Undefined,
            RawBsonRef::Null => Self::Null,
            RawBsonRef::Double(_) | RawBsonRef::Int32(_) | RawBsonRef::Int64(_) | RawBsonRef::Decimal128(_) => {
                Self::Number
            }
            RawBsonRef::String(_) | RawBsonRef::Symbol(_) => Self::String,
            RawBsonRef::Document(_) => Self::Document,
            RawBsonRef::Array(_) => Self::Array,
            RawBsonRef::Binary(_) => Self::Binary,
            RawBsonRef::ObjectId(_) => Self::ObjectId,
            RawBsonRef::Boolean(_) => Self::Boolean,
            RawBsonRef::DateTime(_) => Self::DateTime,
            RawBsonRef::Timestamp(_) => Self::Timestamp,
            RawBsonRef::RegularExpression(_) => Self::RegularExpression,
            RawBsonRef::DbPointer(_) => Self::DbPointer,
            RawBsonRef::JavaScriptCode(_) => Self::JavaScriptCode,
            RawBsonRef::JavaScriptCodeWithScope(_) => Self::JavaScriptCodeWithScope,
            RawBsonRef::MaxKey => Self::MaxKey,
        }
    }
}

/// Compares two values as MongoDB does when it sorts.
pub fn compare(a: RawBsonRef<'_>, b: RawBsonRef<'_>) -> Ordering {
    encoded(a).cmp(&encoded(b))
}

/// Returns the encoding of a value.
pub fn encoded(value: RawBsonRef<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(16);
    encode(value, &mut out);
    out
}

/// Appends the encoding of a value to `out`.
pub fn encode(value: RawBsonRef<'_>, out: &mut Vec<u8>) {
    out.push(TypeOrder::of(&value) as u8);
    encode_content(value, out);
}

fn encode_content(value: RawBsonRef<'_>, out: &mut Vec<u8>) {
    match value {
        RawBsonRef::MinKey | RawBsonRef::Undefined | RawBsonRef::Null | RawBsonRef::MaxKey => {}
        RawBsonRef::Double(value) => number::double(value, out),
        RawBsonRef::Int32(value) => number::integer(value.into(), out),
        RawBsonRef::Int64(value) => number::integer(value, out),
        RawBsonRef::Decimal128(value) => number::decimal(value, out),
        RawBsonRef::String(text) | RawBsonRef::Symbol(text) | RawBsonRef::JavaScriptCode(text) => {
            bytes(text.as_bytes(), out);
        }
        RawBsonRef::Document(document) => fields(document, out),
        RawBsonRef::Array(array) => elements(array, out),
        RawBsonRef::Binary(binary) => {
            out.extend_from_slice(&(binary.bytes.len() as u32).to_be_bytes());
            out.push(binary.subtype.into());
            out.extend_from_slice(binary.bytes);
        }
        RawBsonRef::ObjectId(id) => out.extend_from_slice(&id.bytes()),
        RawBsonRef::Boolean(value) => out.push(u8::from(value)),
        RawBsonRef::DateTime(time) => {
            out.extend_from_slice(&(time.timestamp_millis().cast_unsigned() ^ (1 << 63)).to_be_bytes());
        }
        RawBsonRef::Timestamp(timestamp) => {
            out.extend_from_slice(&timestamp.time.to_be_bytes());
            out.extend_from_slice(&timestamp.increment.to_be_bytes());
        }
        RawBsonRef::RegularExpression(regex) => {
            bytes(regex.pattern.as_str().as_bytes(), out);
            bytes(regex.options.as_str().as_bytes(), out);
        }
        // A deprecated type whose parts the crate does not expose: any order that is the same everywhere will do.
        RawBsonRef::DbPointer(pointer) => bytes(format!("{pointer:?}").as_bytes(), out),
        RawBsonRef::JavaScriptCodeWithScope(code) => {
            bytes(code.code.as_bytes(), out);
            fields(code.scope, out);
        }
    }
}

/// Encodes bytes of any length: a zero byte is followed by 255, and two zero bytes are the end.
fn bytes(content: &[u8], out: &mut Vec<u8>) {
    for byte in content {
        out.push(*byte);
        if *byte == 0 {
            out.push(u8::MAX);
        }
    }
    out.extend_from_slice(&TEXT_END);
}

fn fields(document: &RawDocument, out: &mut Vec<u8>) {
    for (name, value) in document.iter().flatten() {
        out.push(TypeOrder::of(&value) as u8);
        out.extend_from_slice(name.as_str().as_bytes());
        out.push(0);
        encode_content(value, out);
    }
    out.push(END);
}

fn elements(array: &RawArray, out: &mut Vec<u8>) {
    for value in array.into_iter().flatten() {
        encode(value, out);
    }
    out.push(END);
}
