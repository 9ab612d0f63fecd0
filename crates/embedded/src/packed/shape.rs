//! Documents as a shape and values.
//!
//! A shape is what documents have in common if they differ only in their values. It lists the BSON type, the name and a NUL of every
//! element, followed by the elements of a nested document, and a NUL at the end of each document. Values are the rest:
//!
//! ```text
//! text (also code and symbol)   as texts are, see payload.rs        double, date as u64 …, decimal, ObjectId   as they are
//! int32, int64, date            of variable length, with sign       bool                                      its byte
//! binary                        length, subtype, bytes              null, undefined, least and greatest key    nothing
//! ```
//!
//! A document is stored unsplit if it has other types, is nested deeper than [`DEPTH_MAX`], or has a shape longer than
//! [`SHAPE_BYTES_MAX`].

use super::bytes::{SPARE, Source, Target};
use super::dictionary::Texts;
use crate::varint;

/// The deepest nesting of documents, counting the outermost.
const DEPTH_MAX: usize = 16;
pub(super) const SHAPE_BYTES_MAX: usize = 4 * 1024;

const DOUBLE: u8 = 0x01;
const TEXT: u8 = 0x02;
const DOCUMENT: u8 = 0x03;
const ARRAY: u8 = 0x04;
const BINARY: u8 = 0x05;
const UNDEFINED: u8 = 0x06;
const OBJECT_ID: u8 = 0x07;
const BOOL: u8 = 0x08;
const DATE: u8 = 0x09;
const NULL: u8 = 0x0a;
const CODE: u8 = 0x0d;
const SYMBOL: u8 = 0x0e;
const INT32: u8 = 0x10;
const TIMESTAMP: u8 = 0x11;
const INT64: u8 = 0x12;
const DECIMAL: u8 = 0x13;
const GREATEST: u8 = 0x7f;
const LEAST: u8 = 0xff;

/// A value without its type and name.
#[derive(Clone, Copy)]
pub(super) enum Value<'a> {
    Text(&'a [u8]),
    Number(i64),
    Fixed(&'a [u8]),
    /// The subtype and the bytes, which are stored after their length.
    Binary(u8, &'a [u8]),
}

/// Splits a document and appends its shape and values. Returns `None` if it cannot be split; what was appended must then be discarded.
pub(super) fn split<'a>(document: &'a [u8], shape: &mut Vec<u8>, values: &mut Vec<Value<'a>>) -> Option<()> {
    split_nested(document, shape, values, 1)
}

fn split_nested<'a>(document: &'a [u8], shape: &mut Vec<u8>, values: &mut Vec<Value<'a>>, depth: usize) -> Option<()> {
    let (length, mut rest) = document.split_first_chunk::<4>()?;
    if u32::from_le_bytes(*length) as usize != document.len() || depth > DEPTH_MAX {
        return None;
    }
    loop {
        let (&kind, behind) = rest.split_first()?;
        if kind == 0 {
            shape.push(0);
            return behind.is_empty().then_some(());
        }
        let name = behind.iter().position(|byte| *byte == 0)?;
        shape.extend_from_slice(&rest[..name + 2]);
        if shape.len() > SHAPE_BYTES_MAX {
            return None;
        }
        rest = &behind[name + 1..];
        match kind {
            DOCUMENT | ARRAY => {
                let length = u32::from_le_bytes(*rest.first_chunk::<4>()?) as usize;
                let (nested, behind) = rest.split_at_checked(length)?;
                split_nested(nested, shape, values, depth + 1)?;
                rest = behind;
            }
            _ => values.extend(split_value(kind, &mut rest)?),
        }
    }
}

/// Takes the value at the front. The inner `None` means that the type has no value, the outer one that the document cannot be split.
fn split_value<'a>(kind: u8, rest: &mut &'a [u8]) -> Option<Option<Value<'a>>> {
    let mut take = |length: usize| {
        let (value, behind) = rest.split_at_checked(length)?;
        *rest = behind;
        Some(value)
    };
    let length = |bytes: &[u8]| bytes.first_chunk::<4>().map(|bytes| u32::from_le_bytes(*bytes) as usize);
    Some(Some(match kind {
        NULL | UNDEFINED | GREATEST | LEAST => return Some(None),
        TEXT | CODE | SYMBOL => {
            let length = length(take(4)?)?;
            let (nul, text) = take(length)?.split_last()?;
            return (*nul == 0).then_some(Some(Value::Text(text)));
        }
        INT32 => Value::Number(i64::from(i32::from_le_bytes(*take(4)?.first_chunk()?))),
        INT64 | DATE => Value::Number(i64::from_le_bytes(*take(8)?.first_chunk()?)),
        BINARY => {
            let length = length(take(4)?)?;
            let subtype = take(1)?[0];
            Value::Binary(subtype, take(length)?)
        }
        _ => Value::Fixed(take(usize::from(fixed_length(kind)?))?),
    }))
}

fn fixed_length(kind: u8) -> Option<u8> {
    match kind {
        BOOL => Some(1),
        DOUBLE | TIMESTAMP => Some(8),
        OBJECT_ID => Some(12),
        DECIMAL => Some(16),
        _ => None,
    }
}

/// A compiled shape, ready to be filled with values.
pub(super) struct Shape(Vec<Step>);

/// Bytes that are the same in every document of the shape, and what follows them.
struct Step {
    literal: [u8; SPARE],
    length: u8,
    then: Then,
}

#[derive(Clone, Copy)]
enum Then {
    Text,
    Int32,
    Int64,
    Fixed(u8),
    Binary,
    /// The four preceding bytes are the length of a document that begins with them.
    Open,
    /// The end of such a document.
    Close,
    Nothing,
}

impl Shape {
    /// Compiles a shape that [`split`] wrote, or returns `None` if it is malformed.
    pub(super) fn compile(mut bytes: &[u8]) -> Option<Self> {
        let mut shape = Self(Vec::new());
        // The bytes before the next value. A text leaves its NUL to what follows.
        let mut literal = vec![0; 4];
        shape.step(&mut literal, Then::Open);
        let mut depth = 1;
        while depth > 0 {
            let (&kind, rest) = bytes.split_first()?;
            literal.push(kind);
            if kind == 0 {
                bytes = rest;
                shape.step(&mut literal, Then::Close);
                depth -= 1;
                continue;
            }
            let name = rest.iter().position(|byte| *byte == 0)? + 1;
            literal.extend_from_slice(&rest[..name]);
            bytes = &rest[name..];
            match kind {
                NULL | UNDEFINED | GREATEST | LEAST => {}
                DOCUMENT | ARRAY => {
                    depth += 1;
                    literal.extend_from_slice(&[0; 4]);
                    shape.step(&mut literal, Then::Open);
                }
                TEXT | CODE | SYMBOL => {
                    shape.step(&mut literal, Then::Text);
                    literal.push(0);
                }
                INT32 => shape.step(&mut literal, Then::Int32),
                INT64 | DATE => shape.step(&mut literal, Then::Int64),
                BINARY => shape.step(&mut literal, Then::Binary),
                _ => shape.step(&mut literal, Then::Fixed(fixed_length(kind)?)),
            }
            if depth > DEPTH_MAX {
                return None;
            }
        }
        bytes.is_empty().then_some(shape)
    }

    fn step(&mut self, literal: &mut Vec<u8>, then: Then) {
        let mut rest = &literal[..];
        loop {
            let (part, behind) = rest.split_at(rest.len().min(SPARE));
            let mut step = Step { literal: [0; SPARE], length: part.len() as u8, then: Then::Nothing };
            step.literal[..part.len()].copy_from_slice(part);
            rest = behind;
            if rest.is_empty() {
                self.0.push(Step { then, ..step });
                break;
            }
            self.0.push(step);
        }
        literal.clear();
    }

    /// Writes the document of this shape with the next values from `source`.
    #[inline]
    pub(super) fn fill<'a>(&self, source: &mut Source<'a>, texts: &'a Texts, out: &mut Target<'_>) -> Option<()> {
        let mut open = [0; DEPTH_MAX];
        let mut depth = 0;
        for Step { literal, length, then } in &self.0 {
            out.literal(literal, usize::from(*length))?;
            match *then {
                Then::Text => {
                    let text = texts.take(source)?;
                    out.fixed((text.length as u32 + 1).to_le_bytes())?;
                    out.put(text)?;
                }
                Then::Int32 => out.fixed(i32::try_from(source.signed()?).ok()?.to_le_bytes())?,
                Then::Int64 => out.fixed(source.signed()?.to_le_bytes())?,
                Then::Fixed(length) => out.put(source.piece(usize::from(length))?)?,
                Then::Binary => {
                    let length = usize::try_from(source.number()?).ok()?;
                    out.fixed(u32::try_from(length).ok()?.to_le_bytes())?;
                    out.put(source.piece(length.checked_add(1)?)?)?;
                }
                Then::Open => {
                    *open.get_mut(depth)? = out.at - 4;
                    depth += 1;
                }
                Then::Close => {
                    depth = depth.checked_sub(1)?;
                    out.length_at(open[depth], out.at - open[depth])?;
                }
                Then::Nothing => {}
            }
        }
        Some(())
    }
}

impl Value<'_> {
    /// Appends the value. Texts are written by `put_text`.
    pub(super) fn put(&self, out: &mut Vec<u8>, put_text: impl FnOnce(&mut Vec<u8>, &[u8])) {
        match self {
            Self::Text(text) => put_text(out, text),
            Self::Number(number) => varint::put_signed(out, *number),
            Self::Fixed(bytes) => out.extend_from_slice(bytes),
            Self::Binary(subtype, bytes) => {
                varint::put(out, bytes.len() as u64);
                out.push(*subtype);
                out.extend_from_slice(bytes);
            }
        }
    }
}
