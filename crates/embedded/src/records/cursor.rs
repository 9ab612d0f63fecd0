//! Cursors: the end of a page, as text.

use annals_core::{Code, Cursor, Invalid, RecordQuery};

/// The end of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Position {
    /// The last record's key in the requested order.
    pub(super) order: Vec<u8>,
    /// Where the last record was found, if the plan was ordered: the number of its index (0 for the documents) and the key.
    pub(super) place: Option<(u32, Vec<u8>)>,
}

/// Returns the cursor for the next page of this query.
pub(super) fn write(query: &RecordQuery, position: &Position) -> Cursor {
    let mut bytes = fingerprint(query).to_be_bytes().to_vec();
    bytes.extend_from_slice(&(position.order.len() as u32).to_be_bytes());
    bytes.extend_from_slice(&position.order);
    if let Some((index, key)) = &position.place {
        bytes.extend_from_slice(&index.to_be_bytes());
        bytes.extend_from_slice(key);
    }
    let digit = |nibble: u8| char::from(if nibble < 10 { b'0' + nibble } else { b'a' + nibble - 10 });
    Cursor::new(bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect::<String>())
}

/// Decodes a cursor, and refuses one that belongs to another query.
pub(super) fn read(query: &RecordQuery, cursor: &Cursor) -> Result<Position, Invalid> {
    let wrong = || {
        let message = "is not a cursor of this query; start again without a cursor".to_owned();
        Invalid::new(Code::InvalidQuery, "after", message)
    };
    let bytes = bytes_of(cursor.as_str()).ok_or_else(wrong)?;
    let position = parts(&bytes, fingerprint(query)).ok_or_else(wrong)?;
    Ok(position)
}

fn parts(bytes: &[u8], fingerprint: u32) -> Option<Position> {
    let (found, rest) = bytes.split_first_chunk()?;
    let (length, rest) = rest.split_first_chunk()?;
    let (order, place) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    let place = match place.split_first_chunk() {
        Some((index, key)) => Some((u32::from_be_bytes(*index), key.to_vec())),
        None if place.is_empty() => None,
        None => return None,
    };
    (u32::from_be_bytes(*found) == fingerprint).then(|| Position { order: order.to_vec(), place })
}

fn bytes_of(text: &str) -> Option<Vec<u8>> {
    let nibble = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| Some(nibble(*pair.first()?)? << 4 | nibble(*pair.get(1)?)?)).collect()
}

/// Distinguishes queries, so that a cursor of one is not accepted by another.
fn fingerprint(query: &RecordQuery) -> u32 {
    let sort: Vec<_> = query.sort.iter().map(|by| (&by.path, by.direction)).collect();
    let text = serde_json::to_vec(&(&query.collection, &query.condition, sort)).unwrap_or_default();
    crc32c::crc32c(&text)
}
