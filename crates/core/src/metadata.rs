//! Metadata of an event: information for tools and operators, beside its data.

use std::fmt;

use bson::raw::{RawBsonRef, RawDocumentBuf};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::commit::valid_text;
use crate::{Code, Data, Invalid, limits};

/// At least one named string or number, for example a trace id and the attempt that led to the event. The order of keys is kept.
///
/// INVARIANT: every value is a string, an int64 or a finite double, so that no conversion through JSON changes metadata.
#[derive(Clone, PartialEq, Eq)]
pub struct Metadata(Data);

impl Metadata {
    /// Converts an object whose values are strings and numbers; none for an object without entries. Integers become int64.
    ///
    /// # Errors
    /// A sentence that names the value that is neither.
    pub fn of(data: Data) -> Result<Option<Self>, String> {
        let (mut entries, mut wide) = (0_usize, true);
        for element in data.as_raw() {
            let (key, value) = element.map_err(|error| error.to_string())?;
            entries += 1;
            match value {
                RawBsonRef::String(_) | RawBsonRef::Int64(_) => {}
                RawBsonRef::Int32(_) => wide = false,
                RawBsonRef::Double(number) if number.is_finite() => {}
                _ => return Err(format!("{:?} is neither a string nor a finite number", key.as_str())),
            }
        }
        let data = if wide { data } else { widened(&data) };
        Ok((entries > 0).then_some(Self(data)))
    }

    /// Restores metadata from what [`Metadata::data`] returned.
    pub fn from_stored(data: Data) -> Self {
        Self(data)
    }

    /// Returns the object.
    pub fn data(&self) -> &Data {
        &self.0
    }

    /// Returns its size in bytes of BSON.
    pub(crate) fn bytes(&self) -> usize {
        self.0.as_bytes().len()
    }

    /// Checks the limits and the keys.
    pub(crate) fn validate(&self, path: &str) -> Result<(), Invalid> {
        let invalid = |message: String| Err(Invalid::new(Code::InvalidMetadata, path, message));
        let bytes = self.bytes();
        if bytes > limits::METADATA_BYTES_MAX {
            return invalid(format!("{bytes} bytes as BSON; at most {} are allowed", limits::METADATA_BYTES_MAX));
        }
        let entries = self.0.as_raw().iter().flatten().count();
        if entries > limits::METADATA_ENTRIES_MAX {
            return invalid(format!("{entries} entries; at most {} are allowed", limits::METADATA_ENTRIES_MAX));
        }
        let mut keys = self.0.as_raw().iter().flatten().map(|(key, _)| key.as_str());
        keys.try_for_each(|key| valid_text(Code::InvalidMetadata, path, "a key", key, limits::ID_BYTES_MAX))
    }
}

/// Returns the same entries with every int32 as an int64.
fn widened(data: &Data) -> Data {
    let mut wide = RawDocumentBuf::new();
    for (key, value) in data.as_raw().iter().flatten() {
        match value {
            RawBsonRef::Int32(number) => wide.append(key, i64::from(number)),
            other => wide.append(key, other),
        }
    }
    Data::of_raw(&wide)
}

/// Reads optional metadata; none for an object without entries.
pub(crate) fn optional<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Metadata>, D::Error> {
    let Some(data) = Option::<Data>::deserialize(deserializer)? else { return Ok(None) };
    Metadata::of(data).map_err(serde::de::Error::custom)
}

impl Serialize for Metadata {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl fmt::Debug for Metadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(document: &bson::Document) -> Result<Option<Metadata>, String> {
        Metadata::of(Data::from_document(document).expect("a document"))
    }

    #[test]
    fn metadata_holds_strings_and_finite_numbers_and_nothing_else() {
        let given = of(&bson::doc! { "b": "x", "a": 1_i32, "c": 1.5, "d": i64::MIN }).expect("valid").expect("entries");
        let wide = of(&bson::doc! { "b": "x", "a": 1_i64, "c": 1.5, "d": i64::MIN }).expect("valid").expect("entries");
        assert_eq!(given, wide, "an int32 would come back from JSON as an int64");
        assert_eq!(of(&bson::doc! {}), Ok(None));
        for value in [bson::Bson::Null, true.into(), f64::NAN.into(), bson::bson!([1]), bson::bson!({})] {
            assert!(of(&bson::doc! { "fine": 1, "wrong": value }).expect_err("refused").contains("wrong"));
        }
    }

    #[test]
    fn metadata_over_its_limits_or_with_a_wrong_key_is_refused_at_its_path() {
        let refused = |document: &bson::Document| {
            let metadata = of(document).expect("strings and numbers").expect("entries");
            metadata.validate("events[0].metadata").map_err(|invalid| (invalid.code, invalid.path))
        };
        let due = Err((Code::InvalidMetadata, "events[0].metadata".to_owned()));
        let entries = |count: usize| (0..count).map(|n| (n.to_string(), bson::Bson::from(1_i64))).collect();
        assert_eq!(refused(&entries(limits::METADATA_ENTRIES_MAX)), Ok(()));
        assert_eq!(refused(&entries(limits::METADATA_ENTRIES_MAX + 1)), due);
        assert_eq!(refused(&bson::doc! { "a": "x".repeat(limits::METADATA_BYTES_MAX) }), due);
        for key in ["", "a\nb", &"k".repeat(257)] {
            assert_eq!(refused(&bson::doc! { key: 1 }), due, "{key:?}");
        }
    }
}
