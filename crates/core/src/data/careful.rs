//! BSON from outside: every element is checked before it may be stored.

use std::collections::HashSet;

use bson::raw::{RawBsonRef, RawDocument};
use bytes::Bytes;

use super::Data;
use crate::limits::DATA_DEPTH_MAX;

impl Data {
    /// Reads the bytes of an untrusted BSON document. Its elements must be valid at every depth, no key may be given twice, and it may not
    /// be nested deeper than JSON data.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub fn from_bson(bytes: &[u8]) -> Result<Self, String> {
        let document = RawDocument::from_bytes(bytes).map_err(|error| error.to_string())?;
        check(document, 0)?;
        Ok(Self(Bytes::copy_from_slice(bytes)))
    }
}

fn check(document: &RawDocument, depth: usize) -> Result<(), String> {
    const FEW: usize = 32;
    if depth >= DATA_DEPTH_MAX {
        return Err(format!("nested deeper than {DATA_DEPTH_MAX}"));
    }
    let (mut few, mut count, mut many) = ([""; FEW], 0, HashSet::new());
    for element in document {
        let (key, value) = element.map_err(|error| error.to_string())?;
        let key = key.as_str();
        if few[..count].contains(&key) || many.contains(key) {
            return Err(format!("key {key:?} is given twice"));
        }
        match few.get_mut(count) {
            Some(place) => {
                *place = key;
                count += 1;
            }
            None => {
                many.insert(key);
            }
        }
        inside(value, depth + 1)?;
    }
    Ok(())
}

fn inside(value: RawBsonRef<'_>, depth: usize) -> Result<(), String> {
    match value {
        RawBsonRef::Document(document) => check(document, depth),
        RawBsonRef::Array(array) => {
            if depth >= DATA_DEPTH_MAX {
                return Err(format!("nested deeper than {DATA_DEPTH_MAX}"));
            }
            for element in array {
                inside(element.map_err(|error| error.to_string())?, depth + 1)?;
            }
            Ok(())
        }
        RawBsonRef::JavaScriptCodeWithScope(code) => check(code.scope, depth),
        _ => Ok(()),
    }
}
