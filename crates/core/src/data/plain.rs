//! JSON text becomes BSON in one pass where it is usual; what is not is left to the careful way, which also words the refusals.

use super::{Data, begin};
use crate::json::cursor::{Cursor, Number};
use crate::limits::DATA_DEPTH_MAX;

/// Most keys of an object that is read here; more are compared with each other in a better way elsewhere.
const KEYS_MAX: usize = 32;

impl Data {
    /// Takes the object that comes next, if it is usual.
    pub(crate) fn take(cursor: &mut Cursor<'_>) -> Option<Self> {
        let mut out = Vec::with_capacity(512);
        document(cursor, &mut out, 0)?;
        Some(Self(out.into()))
    }
}

fn document(cursor: &mut Cursor<'_>, out: &mut Vec<u8>, depth: usize) -> Option<()> {
    if depth >= DATA_DEPTH_MAX {
        return None;
    }
    let start = begin(out);
    let mut keys = [""; KEYS_MAX];
    let mut count = 0;
    cursor.object(|cursor, key| {
        // A key cannot hold a NUL here, for that takes an escape.
        if keys[..count].contains(&key) {
            return None;
        }
        *keys.get_mut(count)? = key;
        count += 1;
        let type_at = out.len();
        out.push(0);
        out.extend_from_slice(key.as_bytes());
        out.push(0);
        value(cursor, out, type_at, depth + 1)
    })?;
    end(out, start)
}

fn end(out: &mut Vec<u8>, start: usize) -> Option<()> {
    super::end::<serde::de::value::Error>(out, start).ok()
}

/// Writes the value that comes next at the end of `out`, and its BSON type at `type_at`.
fn value(cursor: &mut Cursor<'_>, out: &mut Vec<u8>, type_at: usize, depth: usize) -> Option<()> {
    let bson_type = match cursor.peek()? {
        b'"' => {
            let text = cursor.string()?;
            out.extend_from_slice(&i32::try_from(text.len() + 1).ok()?.to_le_bytes());
            out.extend_from_slice(text.as_bytes());
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
