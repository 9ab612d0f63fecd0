//! Reads fields of documents that other software may have written: numbers may have any BSON type, and fields may be missing.
//!
//! Documents of this store that are read rarely are structs, parsed by [`read`]. Whatever is read for every event is parsed by hand.

use mongodb::bson::{self, Bson, Decimal128, Document, RawBsonRef, RawDocument};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

/// A value inside a document, as raw bytes. The method that reads it checks its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Field<'a> {
    /// The number of its BSON type.
    kind: u8,
    bytes: &'a [u8],
}

const DOUBLE: u8 = 0x01;
const TEXT: u8 = 0x02;
const DOCUMENT: u8 = 0x03;
const ARRAY: u8 = 0x04;
const BINARY: u8 = 0x05;
const BOOLEAN: u8 = 0x08;
const INT32: u8 = 0x10;
const INT64: u8 = 0x12;
const DECIMAL: u8 = 0x13;

/// Finds the values of these fields in one pass; single look-ups would each scan the document from its beginning. It is fastest if the
/// names are in the order of the layout. If a name occurs twice, the first one counts.
///
/// Reading the log consists mostly of this: the driver's iterator, which validates each name and value, took a fifth of a scan.
pub(crate) fn fields<'a, const N: usize>(document: &'a RawDocument, names: [&str; N]) -> [Option<Field<'a>>; N] {
    let mut values = [None; N];
    let mut next = 0;
    let mut rest = elements_of(document.as_bytes());
    loop {
        let expected = names.get(next).filter(|name| begins_with(rest, name));
        let Some((key, field, behind)) = element(rest, expected.map(|name| name.len())) else { return values };
        rest = behind;
        let place = match expected {
            Some(_) => Some(next),
            None => names.iter().position(|name| name.as_bytes() == key),
        };
        if let Some(place) = place {
            values[place].get_or_insert(field);
            next = place + 1;
        }
    }
}

/// Returns the elements of a document or an array, without the length prefix.
fn elements_of(bytes: &[u8]) -> &[u8] {
    bytes.get(4..).unwrap_or_default()
}

/// Returns whether the next element has this name.
fn begins_with(elements: &[u8], name: &str) -> bool {
    let end = 1 + name.len();
    elements.get(1..end) == Some(name.as_bytes()) && elements.get(end) == Some(&0)
}

/// Splits off the first element: its name, whose length may be known, its value, and the remaining bytes. Returns `None` at the end, and
/// if the bytes are not valid BSON.
fn element(elements: &[u8], name: Option<usize>) -> Option<(&[u8], Field<'_>, &[u8])> {
    let (&kind, named) = elements.split_first().filter(|(kind, _)| **kind != 0)?;
    let length = name.or_else(|| named.iter().position(|byte| *byte == 0))?;
    let (key, value) = (named.get(..length)?, named.get(length + 1..)?);
    let size = size(kind, value)?;
    Some((key, Field { kind, bytes: value.get(..size)? }, &value[size..]))
}

/// Returns the size of a value of this type in bytes.
fn size(kind: u8, value: &[u8]) -> Option<usize> {
    let length = || {
        let bytes: [u8; 4] = value.get(..4)?.try_into().ok()?;
        usize::try_from(i32::from_le_bytes(bytes)).ok()
    };
    Some(match kind {
        // Undefined, null, MinKey and MaxKey.
        0x06 | 0x0A | 0xFF | 0x7F => 0,
        BOOLEAN => 1,
        INT32 => 4,
        // Also dates and timestamps.
        DOUBLE | 0x09 | 0x11 | INT64 => 8,
        0x07 => 12,
        DECIMAL => 16,
        // Also code and symbols.
        TEXT | 0x0D | 0x0E => 4 + length()?,
        DOCUMENT | ARRAY | 0x0F => length()?,
        // Binary, and the deprecated DBPointer.
        BINARY => 5 + length()?,
        0x0C => 16 + length()?,
        // A regular expression is two NUL-terminated strings.
        0x0B => value.iter().enumerate().filter(|(_, byte)| **byte == 0).nth(1)?.0 + 1,
        _ => return None,
    })
}

impl<'a> Field<'a> {
    pub(crate) fn text(self) -> Option<&'a str> {
        let bytes = self.bytes.get(4..self.bytes.len().checked_sub(1)?)?;
        std::str::from_utf8(bytes).ok().filter(|_| self.kind == TEXT)
    }

    pub(crate) fn boolean(self) -> Option<bool> {
        (self.kind == BOOLEAN).then(|| self.bytes.first() == Some(&1))
    }

    /// Returns the bytes of a binary value of any subtype.
    pub(crate) fn binary(self) -> Option<&'a [u8]> {
        self.bytes.get(5..).filter(|_| self.kind == BINARY)
    }

    pub(crate) fn document(self) -> Option<&'a RawDocument> {
        RawDocument::from_bytes(self.bytes).ok().filter(|_| self.kind == DOCUMENT)
    }

    /// Returns the values of an array; the last item is `None` if the following bytes are not valid BSON.
    pub(crate) fn values(self) -> Option<impl Iterator<Item = Option<Field<'a>>>> {
        let mut rest = elements_of(self.bytes);
        let next = move || {
            if matches!(rest, [] | [0]) {
                return None;
            }
            let found = element(rest, None);
            rest = found.map_or(&[], |(_, _, behind)| behind);
            Some(found.map(|(_, field, _)| field))
        };
        (self.kind == ARRAY).then(|| std::iter::from_fn(next))
    }

    /// Returns a whole number of any numeric type.
    pub(crate) fn integer(self) -> Option<i64> {
        integer_of(match self.kind {
            INT32 => RawBsonRef::Int32(i32::from_le_bytes(self.bytes.try_into().ok()?)),
            INT64 => RawBsonRef::Int64(i64::from_le_bytes(self.bytes.try_into().ok()?)),
            DOUBLE => RawBsonRef::Double(f64::from_le_bytes(self.bytes.try_into().ok()?)),
            DECIMAL => RawBsonRef::Decimal128(Decimal128::from_bytes(self.bytes.try_into().ok()?)),
            _ => return None,
        })
    }

    /// Returns a non-negative whole number.
    pub(crate) fn natural(self) -> Option<u64> {
        self.integer().and_then(|value| u64::try_from(value).ok())
    }
}

/// Reads a document as a struct.
///
/// # Errors
/// A sentence that names the field.
pub(crate) fn read<T: DeserializeOwned>(document: &RawDocument) -> Result<T, String> {
    bson::deserialize_from_slice(document.as_bytes()).map_err(|error| {
        let why = |error: &bson::error::Error| error.message.clone().unwrap_or_else(|| error.to_string());
        // The path is determined only after a failure.
        let Ok(again) = Document::try_from(document).map(Bson::Document) else { return why(&error) };
        match serde_path_to_error::deserialize::<_, T>(bson::Deserializer::new(again)) {
            Err(error) if error.path().iter().next().is_some() => format!("{}: {}", error.path(), why(error.inner())),
            _ => why(&error),
        }
    })
}

/// Deserializes a field of such a struct as a whole number of any numeric type, since people who repair a document may change the type.
///
/// # Errors
/// If the value is not a whole number.
pub(crate) fn whole<'de, D: Deserializer<'de>>(value: D) -> Result<i64, D::Error> {
    let value = Bson::deserialize(value)?;
    let found = match &value {
        Bson::Int32(n) => Some((*n).into()),
        Bson::Int64(n) => Some(*n),
        Bson::Double(n) => integer_of(RawBsonRef::Double(*n)),
        Bson::Decimal128(n) => integer_of(RawBsonRef::Decimal128(*n)),
        _ => None,
    };
    found.ok_or_else(|| serde::de::Error::custom(format!("{value} is no whole number")))
}

/// Returns a whole number of any numeric type.
pub(crate) fn integer(document: &RawDocument, key: &str) -> Option<i64> {
    integer_of(document.get(key).ok()??)
}

/// Returns a value as a whole number.
fn integer_of(value: RawBsonRef<'_>) -> Option<i64> {
    match value {
        RawBsonRef::Int32(value) => Some(value.into()),
        RawBsonRef::Int64(value) => Some(value),
        RawBsonRef::Double(value) if value.fract() == 0.0 && value.abs() < 9.0e15 => Some(value as i64),
        RawBsonRef::Decimal128(value) => of_decimal(&value.to_string()),
        _ => None,
    }
}

/// Returns a non-negative whole number.
pub(crate) fn natural(document: &RawDocument, key: &str) -> Option<u64> {
    integer(document, key).and_then(|value| u64::try_from(value).ok())
}

/// Parses a decimal, of which `5`, `5.0` and `5E0` are equal forms.
fn of_decimal(decimal: &str) -> Option<i64> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use mongodb::bson::oid::ObjectId;
    use mongodb::bson::spec::BinarySubtype;
    use mongodb::bson::{
        Binary, Bson, DateTime, Document, JavaScriptCodeWithScope, RawDocumentBuf, Regex, Timestamp, cstr, doc,
    };

    /// A value of each type that BSON has.
    fn one_of_each() -> Vec<Bson> {
        let scope = JavaScriptCodeWithScope { code: "c".to_owned(), scope: doc! { "x": 1 } };
        let pattern = Regex { pattern: cstr!("a.").into(), options: cstr!("i").into() };
        vec![
            Bson::Double(1.5),
            "two".into(),
            Bson::Document(doc! { "x": "y" }),
            Bson::Array(vec![1.into(), "x".into(), Bson::Null]),
            Bson::Binary(Binary { subtype: BinarySubtype::Uuid, bytes: vec![0; 16] }),
            Bson::Undefined,
            ObjectId::from_bytes([7; 12]).into(),
            true.into(),
            DateTime::from_millis(5).into(),
            Bson::Null,
            Bson::RegularExpression(pattern),
            Bson::JavaScriptCode("code".to_owned()),
            Bson::Symbol("s".to_owned()),
            Bson::JavaScriptCodeWithScope(scope),
            Bson::Int32(-3),
            Bson::Timestamp(Timestamp { time: 1, increment: 2 }),
            Bson::Int64(1 << 40),
            Bson::Decimal128("12".parse().expect("is a number")),
            Bson::MaxKey,
            Bson::MinKey,
        ]
    }

    #[test]
    fn many_fields_are_found_in_one_pass_in_any_order() {
        let document =
            RawDocumentBuf::try_from(&doc! { "x": 1, "b": "two", "y": 3, "a": 4_i64, "c": null }).expect("encodes");
        for names in [["a", "b", "none"], ["b", "a", "none"], ["none", "b", "a"], ["x", "b", "y"]] {
            for (name, value) in names.into_iter().zip(fields(&document, names)) {
                assert_eq!(value.is_some(), document.get(name).expect("is whole").is_some(), "{name}");
                assert_eq!(value.and_then(Field::integer), integer(&document, name), "{name}");
                assert_eq!(value.and_then(Field::text), text(&document, name), "{name}");
            }
        }
    }

    #[test]
    fn a_struct_is_read_with_numbers_of_any_type_and_what_is_wrong_is_named() {
        #[derive(Debug, PartialEq, Deserialize)]
        struct Kept {
            #[serde(deserialize_with = "whole")]
            head: i64,
            inner: Option<Inner>,
        }
        #[derive(Debug, PartialEq, Deserialize)]
        struct Inner {
            names: Vec<String>,
        }
        let read = |document: Document| read::<Kept>(&RawDocumentBuf::try_from(&document).expect("encodes"));
        let seven: Decimal128 = "7".parse().expect("a decimal");
        for head in [Bson::Int32(7), Bson::Int64(7), Bson::Double(7.0), Bson::Decimal128(seven)] {
            assert_eq!(read(doc! { "head": head, "other": 1 }), Ok(Kept { head: 7, inner: None }));
        }
        for (broken, parts) in [
            (doc! {}, ["head", "missing"]),
            (doc! { "head": "x" }, ["head", "no whole number"]),
            (doc! { "head": 1.5 }, ["head", "no whole number"]),
            (doc! { "head": 1, "inner": { "names": ["a", 1] } }, ["inner.names[1]", "string"]),
        ] {
            let why = read(broken).expect_err("it is broken");
            assert!(parts.iter().all(|part| why.contains(part)), "{parts:?} in {why}");
        }
    }

    #[test]
    fn a_value_of_any_type_is_passed_over_and_read_as_what_it_is() {
        for value in one_of_each() {
            let document = doc! { "aa": value.clone(), "b": "behind", "a": value.clone() };
            let document = RawDocumentBuf::try_from(&document).expect("encodes");
            let [a, b, no] = fields(&document, ["a", "b", "behin"]);
            assert_eq!((b.and_then(Field::text), no), (Some("behind"), None), "{value:?}");
            let a = a.expect("is there");
            assert_eq!(a.text(), text(&document, "a"), "{value:?}");
            assert_eq!(a.integer(), integer(&document, "a"), "{value:?}");
            assert_eq!(a.natural(), natural(&document, "a"), "{value:?}");
            assert_eq!(a.boolean(), boolean(&document, "a"), "{value:?}");
            assert_eq!(a.document(), inner(&document, "a"), "{value:?}");
            let array = document.get_array("a").ok().map(|array| array.into_iter().count());
            assert_eq!(a.values().map(Iterator::count), array, "{value:?}");
        }
    }

    #[test]
    fn bytes_that_are_cut_anywhere_are_read_as_far_as_they_go() {
        let all: Document =
            one_of_each().into_iter().enumerate().map(|(at, value)| (format!("f{at}"), value)).collect();
        let whole = RawDocumentBuf::try_from(&all).expect("encodes");
        let whole = whole.as_bytes();
        for end in 5..=whole.len() {
            let mut cut = whole[..end].to_vec();
            cut[end - 1] = 0;
            cut[..4].copy_from_slice(&i32::try_from(end).expect("is small").to_le_bytes());
            let cut = RawDocumentBuf::from_bytes(cut).expect("begins and ends like a document");
            let found = fields(&cut, ["f19", "f3", "f0"]);
            for field in found.into_iter().flatten() {
                let _ = (field.text(), field.integer(), field.boolean(), field.document());
                field.values().into_iter().flatten().for_each(drop);
            }
            assert!(found[0].is_some() || end < whole.len(), "cut at {end}");
        }
    }

    #[test]
    fn of_a_name_that_stands_twice_the_first_counts() {
        let mut twice = RawDocumentBuf::new();
        for value in [1, 2] {
            twice.append(cstr!("a"), value);
        }
        assert_eq!(fields(&twice, ["a"])[0].and_then(Field::integer), Some(1));
        assert_eq!(integer(&twice, "a"), Some(1));
    }
}
