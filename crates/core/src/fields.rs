//! Reading BSON documents from outside, with a path in every error.

use bson::RawBsonRef;
use bson::raw::{RawArray, RawDocument};
use bytestring::ByteString;

use crate::{Code, Invalid};

/// Calls `field` with each key, its path and its value. Refuses a key that occurs twice.
pub(crate) fn fields<'a>(
    document: &'a RawDocument,
    at: &str,
    mut field: impl FnMut(&'a str, &str, RawBsonRef<'a>) -> Result<(), Invalid>,
) -> Result<(), Invalid> {
    let mut seen: Vec<&str> = Vec::with_capacity(8);
    for element in document {
        let (key, value) = element.map_err(|error| body(at, error))?;
        let key = key.as_str();
        let path = if at.is_empty() { std::borrow::Cow::Borrowed(key) } else { format!("{at}.{key}").into() };
        if seen.contains(&key) {
            return Err(body(&path, "is given twice"));
        }
        seen.push(key);
        field(key, &path, value)?;
    }
    Ok(())
}

/// Calls `element` with the path and the value of each element of an array.
pub(crate) fn elements<'a>(
    path: &str,
    value: RawBsonRef<'a>,
    mut element: impl FnMut(&str, RawBsonRef<'a>) -> Result<(), Invalid>,
) -> Result<(), Invalid> {
    for (place, value) in list(path, value)?.into_iter().enumerate() {
        let path = format!("{path}[{place}]");
        element(&path, value.map_err(|error| body(&path, error))?)?;
    }
    Ok(())
}

pub(crate) fn nested<'a>(path: &str, value: RawBsonRef<'a>) -> Result<&'a RawDocument, Invalid> {
    value.as_document().ok_or_else(|| body(path, "is not a document"))
}

pub(crate) fn list<'a>(path: &str, value: RawBsonRef<'a>) -> Result<&'a RawArray, Invalid> {
    value.as_array().ok_or_else(|| body(path, "is not an array"))
}

pub(crate) fn text(path: &str, value: RawBsonRef<'_>) -> Result<ByteString, Invalid> {
    value.as_str().map(ByteString::from).ok_or_else(|| body(path, "is not a string"))
}

pub(crate) fn boolean(path: &str, value: RawBsonRef<'_>) -> Result<bool, Invalid> {
    value.as_bool().ok_or_else(|| body(path, "is neither true nor false"))
}

/// Returns a whole number that is not negative.
pub(crate) fn integer(value: RawBsonRef<'_>) -> Option<i64> {
    value.as_i64().or_else(|| value.as_i32().map(i64::from)).filter(|number| *number >= 0)
}

/// Returns a whole number of any BSON type from a stored document: a shell writes 1 as a double.
pub(crate) fn whole(value: RawBsonRef<'_>) -> Option<i64> {
    match value {
        RawBsonRef::Int32(value) => Some(value.into()),
        RawBsonRef::Int64(value) => Some(value),
        RawBsonRef::Double(value) if value.fract() == 0.0 && value.abs() < 9.0e15 => Some(value as i64),
        _ => None,
    }
}

pub(crate) fn unknown(path: &str) -> Invalid {
    body(path, "is an unknown field")
}

pub(crate) fn body(path: &str, message: impl std::fmt::Display) -> Invalid {
    Invalid::new(Code::InvalidBody, path, message.to_string())
}
