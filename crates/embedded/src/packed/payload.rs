//! Packs and unpacks the parts of a payload, which `record.rs` encodes and decodes.
//!
//! ```text
//! text    2 × its length and its bytes, or 2 × its code in the dictionary + 1
//! time    the commit's as its difference to the time in the commit id, an event's as its difference to the commit's
//! data    0, length and bytes; or the number of the shape + 1 and the values
//! ```
//!
//! Changes of prepare keys are preceded by their length; everything else is unchanged.

use super::bytes::{Source, Target};
use super::dictionary::{Codes, Dictionary};
use super::shape;
use crate::record::{
    self, HAS_CAUSATION, HAS_COMMAND, HAS_CORRELATION, HAS_GENERATION, HAS_HEADER, HAS_ID, HAS_KEYS, HAS_METADATA,
    HAS_OWNER, HAS_RECEIVED, HAS_SPACE, HAS_TAGS, HAS_TENANT, HAS_TIME, HAS_TRANSACTION, IN_TRANSACTION,
    KNOWN_EVENT_FLAGS, KNOWN_FLAGS, REQUEST_IS_COMMIT_ID, REQUEST_IS_UUID,
};
use crate::varint::{self, Cursor, take};

/// The length of a commit id, and of a commit id with the digest of the content.
const ID_BYTES: usize = 16;
const ID_AND_DIGEST_BYTES: usize = ID_BYTES + 16;
/// The number of texts of a subscription.
const SUBSCRIPTION_TEXTS: usize = 4;
/// The flags of a commit's optional texts.
const OPTIONAL_TEXTS: [u64; 6] = [HAS_TENANT, HAS_OWNER, HAS_SPACE, HAS_COMMAND, HAS_CORRELATION, HAS_CAUSATION];

/// Receives the parts of a payload in order.
pub(super) trait Parts<'a> {
    fn number(&mut self, number: u64);
    fn plain(&mut self, bytes: &'a [u8]);
    fn text(&mut self, text: &'a [u8]);
    fn data(&mut self, document: &'a [u8]);

    fn signed(&mut self, number: i64) {
        self.number(((number << 1) ^ (number >> 63)) as u64);
    }
}

/// Splits a payload into its parts, or returns `None` if it is malformed.
pub(super) fn walk<'a>(payload: &'a [u8], parts: &mut impl Parts<'a>) -> Option<()> {
    let rest = &mut { payload };
    let flags = take(rest)?;
    if flags & !KNOWN_FLAGS != 0 {
        return None;
    }
    parts.number(flags);
    let ids = fixed(rest, ID_AND_DIGEST_BYTES)?;
    parts.plain(ids);
    let time = signed(rest)?;
    parts.signed(time.wrapping_sub(time_of(ids)?));
    parts.text(behind_length(rest)?);
    parts.text(behind_length(rest)?);
    if flags & REQUEST_IS_COMMIT_ID == 0 {
        match flags & REQUEST_IS_UUID {
            0 => parts.text(behind_length(rest)?),
            _ => parts.plain(fixed(rest, ID_BYTES)?),
        }
    }
    for _ in OPTIONAL_TEXTS.iter().filter(|flag| flags & **flag != 0) {
        parts.text(behind_length(rest)?);
    }
    if flags & HAS_HEADER != 0 {
        let count = take(rest)?;
        parts.number(count);
        for _ in 0..count {
            parts.text(behind_length(rest)?);
            parts.text(behind_length(rest)?);
        }
    }
    if flags & HAS_RECEIVED != 0 {
        for _ in 0..SUBSCRIPTION_TEXTS {
            parts.text(behind_length(rest)?);
        }
        parts.number(take(rest)?);
        parts.number(take(rest)?);
        parts.plain(fixed(rest, ID_BYTES)?);
        parts.signed(signed(rest)?);
    }
    if flags & IN_TRANSACTION != 0 {
        parts.number(take(rest)?);
        parts.number(take(rest)?);
    }
    if flags & HAS_TRANSACTION != 0 {
        parts.plain(fixed(rest, ID_BYTES)?);
    }
    if flags & HAS_KEYS != 0 {
        let keys = keys(rest)?;
        parts.number(keys.len() as u64);
        parts.plain(keys);
    }
    let count = take(rest)?;
    parts.number(count);
    for _ in 0..count {
        walk_event(rest, time, parts)?;
    }
    rest.is_empty().then_some(())
}

fn walk_event<'a>(rest: &mut &'a [u8], commit_time: i64, parts: &mut impl Parts<'a>) -> Option<()> {
    let flags = fixed(rest, 1)?;
    parts.plain(flags);
    let flags = flags[0];
    if flags & !KNOWN_EVENT_FLAGS != 0 {
        return None;
    }
    parts.text(behind_length(rest)?);
    if flags & HAS_TIME != 0 {
        parts.signed(signed(rest)?.wrapping_sub(commit_time));
    }
    if flags & HAS_ID != 0 {
        parts.plain(fixed(rest, ID_BYTES)?);
    }
    if flags & HAS_GENERATION != 0 {
        parts.number(take(rest)?);
    }
    if flags & HAS_TAGS != 0 {
        let count = take(rest)?;
        parts.number(count);
        for _ in 0..count {
            parts.text(behind_length(rest)?);
        }
    }
    if flags & HAS_METADATA != 0 {
        parts.data(behind_length(rest)?);
    }
    parts.data(behind_length(rest)?);
    Some(())
}

/// Returns the milliseconds in the first 48 bits of an id of version 7. For any other id the number is arbitrary, which works as well.
fn time_of(id: &[u8]) -> Option<i64> {
    Some((u64::from_be_bytes(*id.first_chunk()?) >> 16) as i64)
}

fn fixed<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (bytes, behind) = rest.split_at_checked(length)?;
    *rest = behind;
    Some(bytes)
}

fn behind_length<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(take(rest)?).ok()?;
    fixed(rest, length)
}

fn signed(rest: &mut &[u8]) -> Option<i64> {
    let value = take(rest)?;
    Some((value >> 1) as i64 ^ -((value & 1) as i64))
}

/// Takes the bytes of the changes of prepare keys.
fn keys<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let mut cursor = Cursor(rest);
    record::decode_keys(&mut cursor)?;
    fixed(rest, rest.len() - cursor.0.len())
}

/// Appends the parts of a payload in packed form.
pub(super) struct Packing<'a> {
    pub(super) codes: &'a Codes,
    pub(super) out: &'a mut Vec<u8>,
}

impl<'a> Parts<'a> for Packing<'_> {
    fn number(&mut self, number: u64) {
        varint::put(self.out, number);
    }

    fn plain(&mut self, bytes: &'a [u8]) {
        self.out.extend_from_slice(bytes);
    }

    fn text(&mut self, text: &'a [u8]) {
        self.codes.put_text(self.out, text);
    }

    fn data(&mut self, document: &'a [u8]) {
        let (mut shape, mut values) = (Vec::new(), Vec::new());
        let known = shape::split(document, &mut shape, &mut values).and_then(|()| self.codes.shape(&shape));
        match known {
            Some(number) => {
                varint::put(self.out, number + 1);
                values.iter().for_each(|value| value.put(self.out, |out, text| self.codes.put_text(out, text)));
            }
            None => {
                self.out.push(0);
                varint::put_bytes(self.out, document);
            }
        }
    }
}

/// Writes the payload that `source` holds in packed form, or returns `None` if it is malformed.
pub(super) fn unpack<'a>(dictionary: &'a Dictionary, source: &mut Source<'a>, out: &mut Target<'_>) -> Option<()> {
    let flags = source.number()?;
    out.number(flags)?;
    let ids = source.piece(ID_AND_DIGEST_BYTES)?;
    out.put(ids)?;
    let time = time_of(&ids.first::<8>()?)?.wrapping_add(source.signed()?);
    out.signed(time)?;
    text(dictionary, source, out)?;
    text(dictionary, source, out)?;
    if flags & REQUEST_IS_COMMIT_ID == 0 {
        match flags & REQUEST_IS_UUID {
            0 => text(dictionary, source, out)?,
            _ => out.put(source.piece(ID_BYTES)?)?,
        }
    }
    if flags & !(REQUEST_IS_COMMIT_ID | REQUEST_IS_UUID) != 0 {
        unpack_rare(flags, dictionary, source, out)?;
    }
    let count = source.number()?;
    out.number(count)?;
    for _ in 0..count {
        unpack_event(time, dictionary, source, out)?;
    }
    (source.at == source.end).then_some(())
}

/// Unpacks the parts that few commits have.
fn unpack_rare<'a>(
    flags: u64,
    dictionary: &'a Dictionary,
    source: &mut Source<'a>,
    out: &mut Target<'_>,
) -> Option<()> {
    for _ in OPTIONAL_TEXTS.iter().filter(|flag| flags & **flag != 0) {
        text(dictionary, source, out)?;
    }
    if flags & HAS_HEADER != 0 {
        let count = source.number()?;
        out.number(count)?;
        for _ in 0..count {
            text(dictionary, source, out)?;
            text(dictionary, source, out)?;
        }
    }
    if flags & HAS_RECEIVED != 0 {
        for _ in 0..SUBSCRIPTION_TEXTS {
            text(dictionary, source, out)?;
        }
        out.number(source.number()?)?;
        out.number(source.number()?)?;
        out.put(source.piece(ID_BYTES)?)?;
        out.signed(source.signed()?)?;
    }
    if flags & IN_TRANSACTION != 0 {
        out.number(source.number()?)?;
        out.number(source.number()?)?;
    }
    if flags & HAS_TRANSACTION != 0 {
        out.put(source.piece(ID_BYTES)?)?;
    }
    if flags & HAS_KEYS != 0 {
        let length = usize::try_from(source.number()?).ok()?;
        out.put(source.piece(length)?)?;
    }
    Some(())
}

#[inline(always)]
fn unpack_event<'a>(
    commit_time: i64,
    dictionary: &'a Dictionary,
    source: &mut Source<'a>,
    out: &mut Target<'_>,
) -> Option<()> {
    let flags = source.byte()?;
    out.fixed([flags])?;
    text(dictionary, source, out)?;
    if flags & (HAS_TIME | HAS_ID | HAS_GENERATION | HAS_TAGS | HAS_METADATA) != 0 {
        if flags & HAS_TIME != 0 {
            out.signed(commit_time.wrapping_add(source.signed()?))?;
        }
        if flags & HAS_ID != 0 {
            out.put(source.piece(ID_BYTES)?)?;
        }
        if flags & HAS_GENERATION != 0 {
            out.number(source.number()?)?;
        }
        if flags & HAS_TAGS != 0 {
            let count = source.number()?;
            out.number(count)?;
            for _ in 0..count {
                text(dictionary, source, out)?;
            }
        }
        if flags & HAS_METADATA != 0 {
            unpack_data(dictionary, source, out)?;
        }
    }
    unpack_data(dictionary, source, out)
}

#[inline(always)]
fn unpack_data<'a>(dictionary: &'a Dictionary, source: &mut Source<'a>, out: &mut Target<'_>) -> Option<()> {
    let Some(shape) = source.number()?.checked_sub(1) else {
        let length = source.number()?;
        out.number(length)?;
        return out.put(source.piece(usize::try_from(length).ok()?)?);
    };
    unpack_document(dictionary.shapes.get(usize::try_from(shape).ok()?)?, dictionary, source, out)
}

/// Writes a document preceded by its length, which is known only after the document was written.
fn unpack_document<'a>(
    shape: &shape::Shape,
    dictionary: &'a Dictionary,
    source: &mut Source<'a>,
    out: &mut Target<'_>,
) -> Option<()> {
    /// Most documents have a length that takes two bytes.
    const USUAL: usize = 2;
    let start = out.at;
    out.at += USUAL;
    shape.fill(source, &dictionary.texts, out)?;
    let length = out.at - start - USUAL;
    let bytes = varint_length(length);
    if bytes != USUAL {
        out.bytes.get_mut(..out.at + bytes)?;
        out.bytes.copy_within(start + USUAL..out.at, start + bytes);
    }
    out.at = start;
    out.number(length as u64)?;
    out.at += length;
    Some(())
}

fn varint_length(value: usize) -> usize {
    (usize::BITS - (value | 1).leading_zeros()).div_ceil(7) as usize
}

#[inline(always)]
fn text<'a>(dictionary: &'a Dictionary, source: &mut Source<'a>, out: &mut Target<'_>) -> Option<()> {
    let text = dictionary.texts.take(source)?;
    out.number(text.length as u64)?;
    out.put(text)
}
