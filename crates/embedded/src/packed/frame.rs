//! Packed frames in the file of a packed segment, with their checksums.

use bytes::Bytes;

use super::Packed;
pub(crate) use super::bytes::SPARE;
use super::bytes::{Piece, Source, Target};
use super::dictionary::{Codes, Dictionary};
use super::payload::{self, Packing};
use crate::format::{PAYLOAD_MAX, u32_at};
use crate::varint;

/// A body exceeds its payload by at most the size of its three numbers.
const BODY_MAX: u64 = PAYLOAD_MAX as u64 + 64;

/// The lengths of a packed frame in a file.
pub(crate) struct Framed {
    /// The number of bytes before the body.
    head: usize,
    /// The number of bytes of the body.
    body: usize,
}

/// An unpacked payload.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unpacked {
    /// Where it begins among the payloads that were unpacked with it.
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) sequence_number: u64,
    pub(crate) version: u64,
}

impl Framed {
    /// Decodes the start of the packed frame at `offset`, or returns `None` if there is none. The body is not examined.
    pub(crate) fn at(bytes: &[u8], salt: u64, offset: u64) -> Option<Self> {
        let mut rest = bytes;
        let body = varint::take(&mut rest).filter(|body| (1..=BODY_MAX).contains(body))?;
        let head = bytes.len() - rest.len() + 5;
        (*rest.first()? == check(salt, offset, body)).then_some(Self { head, body: body as usize })
    }

    /// Returns the length of the whole packed frame.
    pub(crate) fn length(&self) -> usize {
        self.head + self.body
    }
}

/// Returns the byte that verifies a length.
fn check(salt: u64, offset: u64, body: u64) -> u8 {
    let crc = crc32c::crc32c_append(crc(salt, offset, &[]), &body.to_le_bytes());
    (crc ^ (crc >> 8) ^ (crc >> 16) ^ (crc >> 24)) as u8
}

fn crc(salt: u64, offset: u64, body: &[u8]) -> u32 {
    let mut place = [0; 16];
    place[..8].copy_from_slice(&salt.to_le_bytes());
    place[8..].copy_from_slice(&offset.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c(&place), body)
}

/// Appends the packed frame of a payload to `out`, at this offset of the file.
///
/// `delta` is its sequence number minus the segment's first. A payload that does not unpack to the same bytes is stored unpacked.
pub(crate) fn pack(
    codes: &Codes,
    dictionary: &Dictionary,
    place: (u64, u64),
    (delta, version): (u64, u64),
    payload: &Bytes,
    out: &mut Vec<u8>,
) {
    let (salt, offset) = place;
    let mut body = Vec::with_capacity(payload.len() + 32);
    let head = |body: &mut Vec<u8>, plain: bool| {
        varint::put(body, (payload.len() as u64) << 1 | u64::from(plain));
        varint::put(body, delta);
        varint::put(body, version);
    };
    head(&mut body, false);
    let from = body.len();
    let packed = payload::walk(payload, &mut Packing { codes, out: &mut body });
    if packed.is_none() || body.len() - from >= payload.len() || !unpacks_to(dictionary, &body, payload) {
        body.clear();
        head(&mut body, true);
        body.extend_from_slice(payload);
    }
    varint::put(out, body.len() as u64);
    out.push(check(salt, offset, body.len() as u64));
    out.extend_from_slice(&crc(salt, offset, &body).to_le_bytes());
    out.extend_from_slice(&body);
}

fn unpacks_to(dictionary: &Dictionary, body: &[u8], payload: &[u8]) -> bool {
    let mut bytes = body.to_vec();
    bytes.extend_from_slice(&[0; SPARE]);
    let mut out = vec![0; payload.len() + SPARE];
    let mut target = Target { bytes: &mut out, at: 0 };
    let unpacked = Head::of(&bytes, 0, body.len()).and_then(|head| head.unpack(dictionary, &bytes, &mut target));
    unpacked.is_some() && target.at == payload.len() && out[..payload.len()] == *payload
}

/// The numbers that precede a packed payload.
struct Head {
    payload: usize,
    plain: bool,
    delta: u64,
    version: u64,
    /// The offset of the packed payload.
    at: usize,
    end: usize,
}

impl Head {
    fn of(bytes: &[u8], at: usize, end: usize) -> Option<Self> {
        let mut source = Source { bytes, at, end };
        let (length, delta, version) = (source.number()?, source.number()?, source.number()?);
        let payload = usize::try_from(length >> 1).ok().filter(|length| *length <= PAYLOAD_MAX)?;
        Some(Self { payload, plain: length & 1 == 1, delta, version, at: source.at, end })
    }

    /// Writes the payload, or returns `None` if it is malformed or has another length.
    fn unpack(&self, dictionary: &Dictionary, bytes: &[u8], out: &mut Target<'_>) -> Option<()> {
        let from = out.at;
        if self.plain {
            out.put(Piece { bytes, start: self.at, length: self.end - self.at })?;
        } else {
            payload::unpack(dictionary, &mut Source { bytes, at: self.at, end: self.end }, out)?;
        }
        (out.at - from == self.payload).then_some(())
    }
}

/// Unpacks packed frames that were read at once.
///
/// `bytes` begins with the first packed frame and has [`SPARE`] more bytes after the last. `places` holds the offset in the file and the
/// length of each. The payloads are written to `out` one after another, replacing its content, with arbitrary bytes after the last.
///
/// # Errors
/// The index in `places` of the first packed frame that is not as written.
pub(crate) fn unpack(
    packed: &Packed,
    salt: u64,
    bytes: &[u8],
    places: impl Iterator<Item = (u64, u32)> + Clone,
    out: &mut Vec<u8>,
) -> Result<Vec<Unpacked>, usize> {
    let first = places.clone().next().map_or(0, |(offset, _)| offset);
    let mut heads = Vec::with_capacity(places.size_hint().0);
    let mut total = 0;
    for (n, (offset, length)) in places.enumerate() {
        let head = checked_head(salt, bytes, offset, (offset - first) as usize, length as usize).ok_or(n)?;
        total += head.payload;
        heads.push(head);
    }
    if out.len() < total + SPARE {
        out.resize(total + SPARE, 0);
    }
    let mut unpacked = Vec::with_capacity(heads.len());
    let mut target = Target { bytes: out, at: 0 };
    for (n, head) in heads.iter().enumerate() {
        let start = target.at;
        head.unpack(&packed.dictionary, bytes, &mut target).ok_or(n)?;
        let (sequence_number, version) = (packed.first.wrapping_add(head.delta), head.version);
        unpacked.push(Unpacked { start, end: target.at, sequence_number, version });
    }
    Ok(unpacked)
}

/// Verifies the packed frame at `start`, whose offset in the file is `offset`, and returns its numbers.
fn checked_head(salt: u64, bytes: &[u8], offset: u64, start: usize, length: usize) -> Option<Head> {
    let end = start.checked_add(length)?;
    let record = bytes.get(start..end)?;
    let mut rest = record;
    let body = usize::try_from(varint::take(&mut rest)?).ok()?;
    let rest = rest.get(1..)?;
    if rest.len() != body.checked_add(4)? || crc(salt, offset, &rest[4..]) != u32_at(rest, 0) {
        return None;
    }
    Head::of(bytes, end - body, end)
}
