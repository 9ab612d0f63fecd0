//! Conversion of common JSON text to BSON in one pass. Everything else is left to the slower parser, which also words the errors.

use bytes::Bytes;

use super::{Data, begin};
use crate::json::cursor::{Cursor, Number};
use crate::limits::DATA_DEPTH_MAX;

/// The maximum number of keys of an object that is read here. Beyond that, the set of the slower parser finds duplicates faster.
const KEYS_MAX: usize = 32;

/// The documents of a commit, one after another in the same memory, so that there is one allocation for all of them.
pub(crate) struct Documents {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Documents {
    /// Creates an empty list, with room for JSON text of this length.
    pub(crate) fn with_room_for(json_bytes: usize) -> Self {
        // BSON's lengths and types take a little more room than the quotes and commas of JSON.
        Self { bytes: Vec::with_capacity(json_bytes + json_bytes / 4 + 64), ends: Vec::new() }
    }

    /// Reads the next object, if it is of the common form.
    pub(crate) fn take(&mut self, cursor: &mut Cursor<'_>) -> Option<()> {
        document(cursor, &mut self.bytes, 0)?;
        self.ends.push(self.bytes.len());
        Some(())
    }

    /// Returns all documents, in order.
    pub(crate) fn all(self) -> impl Iterator<Item = Data> {
        let bytes = Bytes::from(self.bytes);
        let mut start = 0;
        self.ends.into_iter().map(move |end| Data(bytes.slice(std::mem::replace(&mut start, end)..end)))
    }
}

fn document(cursor: &mut Cursor<'_>, out: &mut Vec<u8>, depth: usize) -> Option<()> {
    if depth >= DATA_DEPTH_MAX {
        return None;
    }
    let start = begin(out);
    let mut keys = [&b""[..]; KEYS_MAX];
    let mut count = 0;
    let mut seen = 0_u64;
    cursor.object(|cursor, key| {
        // A key cannot contain NUL here, because that requires an escape. Most keys differ in their mark and need not be compared.
        let mark = mark(key);
        if seen & mark != 0 && keys[..count].contains(&key) {
            return None;
        }
        seen |= mark;
        *keys.get_mut(count)? = key;
        count += 1;
        let type_at = out.len();
        out.push(0);
        out.extend_from_slice(key);
        out.push(0);
        value(cursor, out, type_at, depth + 1)
    })?;
    end(out, start)
}

/// Returns one of 64 bits; equal keys have the same one.
fn mark(key: &[u8]) -> u64 {
    let ends = key.first().zip(key.last()).map_or(0, |(first, last)| usize::from(*first) * 7 + usize::from(*last));
    1 << ((ends + key.len()) % 64)
}

fn end(out: &mut Vec<u8>, start: usize) -> Option<()> {
    super::end::<serde::de::value::Error>(out, start).ok()
}

/// Writes the next value at the end of `out`, and its BSON type at `type_at`.
fn value(cursor: &mut Cursor<'_>, out: &mut Vec<u8>, type_at: usize, depth: usize) -> Option<()> {
    let bson_type = match cursor.peek()? {
        b'"' => {
            let text = cursor.string()?;
            out.extend_from_slice(&i32::try_from(text.len() + 1).ok()?.to_le_bytes());
            out.extend_from_slice(&text);
            out.push(0);
            0x02
        }
        b'{' => {
            document(cursor, out, depth)?;
            0x03
        }
        b'[' => {
            array(cursor, out, depth)?;
            0x04
        }
        b't' | b'f' => {
            out.push(u8::from(cursor.boolean()?));
            0x08
        }
        b'n' => {
            cursor.word("null")?;
            0x0a
        }
        _ => match cursor.number()? {
            Number::Integer(integer) => {
                out.extend_from_slice(&integer.to_le_bytes());
                0x12
            }
            Number::Float(float) => {
                out.extend_from_slice(&float.to_le_bytes());
                0x01
            }
        },
    };
    out[type_at] = bson_type;
    Some(())
}

fn array(cursor: &mut Cursor<'_>, out: &mut Vec<u8>, depth: usize) -> Option<()> {
    if depth >= DATA_DEPTH_MAX {
        return None;
    }
    let start = begin(out);
    let mut index = 0usize;
    cursor.array(|cursor| {
        let type_at = out.len();
        out.push(0);
        match index {
            0..=9 => out.push(b'0' + index as u8),
            index => out.extend_from_slice(index.to_string().as_bytes()),
        }
        out.push(0);
        index += 1;
        value(cursor, out, type_at, depth + 1)
    })?;
    end(out, start)
}
