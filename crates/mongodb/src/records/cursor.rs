//! Encodes the position at which a page ended as text: a document in hexadecimal.
//!
//! ```text
//! {of int64, order binary, values [], id}      of: tells queries apart     order: the place, exactly
//!                                              values, id: to ask for what is behind
//! ```

use std::hash::Hasher;

use annals_core::bson::raw::RawDocument;
use annals_core::bson::spec::BinarySubtype;
use annals_core::bson::{Binary, Bson, Document, RawBson, doc};
use annals_core::order::encoded;
use annals_core::{Code, Cursor, Invalid, RecordQuery};
use siphasher::sip::SipHasher13;

/// The position at which a page ended.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Position {
    /// The last record's key in the requested sort order.
    pub(super) order: Vec<u8>,
    /// The values by which it is sorted.
    pub(super) values: Vec<Bson>,
    /// Its `_id`.
    pub(super) id: Bson,
}

impl Position {
    /// Returns the beginning of its place: the key of the first fields of the sort.
    pub(super) fn key(&self, fields: usize) -> &[u8] {
        let end: usize = self.values.iter().take(fields).map(length).sum();
        self.order.get(..end).unwrap_or(&self.order)
    }
}

/// Returns the length of a value in a place.
fn length(value: &Bson) -> usize {
    RawBson::try_from(value.clone()).map_or(0, |raw| encoded(raw.as_raw_bson_ref()).len())
}

/// Returns the cursor for the next page of this query.
pub(super) fn write(query: &RecordQuery, position: Position) -> Result<Cursor, Invalid> {
    let order = Binary { subtype: BinarySubtype::Generic, bytes: position.order };
    let document = doc! { "of": fingerprint(query), "order": order, "values": position.values, "id": position.id };
    let bytes = document.to_vec().map_err(|error| Invalid::new(Code::InvalidQuery, "sort", error.to_string()))?;
    let digit = |nibble: u8| char::from(if nibble < 10 { b'0' + nibble } else { b'a' + nibble - 10 });
    Ok(Cursor::new(bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect::<String>()))
}

/// Decodes a cursor, and refuses one of another query.
pub(super) fn read(query: &RecordQuery, cursor: &Cursor) -> Result<Position, Invalid> {
    parts(query, cursor.as_str()).ok_or_else(|| {
        let message = "is not a cursor of this query; start again without a cursor".to_owned();
        Invalid::new(Code::InvalidQuery, "after", message)
    })
}

fn parts(query: &RecordQuery, text: &str) -> Option<Position> {
    let bytes = bytes_of(text)?;
    let document = Document::try_from(RawDocument::from_bytes(&bytes).ok()?).ok()?;
    let values = document.get_array("values").ok()?.clone();
    if document.get_i64("of").ok()? != fingerprint(query) || values.len() != query.sort.len() {
        return None;
    }
    let order = document.get_binary_generic("order").ok()?.clone();
    Some(Position { order, values, id: document.get("id")?.clone() })
}

fn bytes_of(text: &str) -> Option<Vec<u8>> {
    let nibble = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| Some(nibble(*pair.first()?)? << 4 | nibble(*pair.get(1)?)?)).collect()
}

/// Returns a hash of the query, so that a cursor is not accepted for another one.
fn fingerprint(query: &RecordQuery) -> i64 {
    let mut hasher = SipHasher13::new_with_keys(0, 0);
    hasher.write(query.collection.as_bytes());
    hasher.write(format!("\0{:?}\0{:?}", query.condition, query.sort).as_bytes());
    hasher.finish().cast_signed()
}
