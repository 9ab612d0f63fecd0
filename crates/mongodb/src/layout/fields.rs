//! Reads fields of documents that other software may have written: numbers in any of BSON's types, and what is missing.

use mongodb::bson::{RawBsonRef, RawDocument};

/// A whole number in any type that can hold one.
pub(crate) fn integer(document: &RawDocument, key: &str) -> Option<i64> {
    match document.get(key).ok()?? {
        RawBsonRef::Int32(value) => Some(value.into()),
        RawBsonRef::Int64(value) => Some(value),
        RawBsonRef::Double(value) if value.fract() == 0.0 && value.abs() < 9.0e15 => Some(value as i64),
        RawBsonRef::Decimal128(value) => whole(&value.to_string()),
        _ => None,
    }
}

/// A whole number that is not negative.
pub(crate) fn natural(document: &RawDocument, key: &str) -> Option<u64> {
    integer(document, key).and_then(|value| u64::try_from(value).ok())
}

/// `5`, `5.0` and `5E0` are the same decimal.
fn whole(decimal: &str) -> Option<i64> {
    if let Ok(value) = decimal.parse() {
        return Some(value);
    }
    let value: f64 = decimal.parse().ok()?;
    (value.fract() == 0.0 && value.abs() < 9.0e15).then_some(value as i64)
}

pub(crate) fn text<'a>(document: &'a RawDocument, key: &str) -> Option<&'a str> {
    document.get(key).ok()??.as_str()
}

pub(crate) fn boolean(document: &RawDocument, key: &str) -> Option<bool> {
    document.get(key).ok()??.as_bool()
}

pub(crate) fn inner<'a>(document: &'a RawDocument, key: &str) -> Option<&'a RawDocument> {
    document.get(key).ok()??.as_document()
}
