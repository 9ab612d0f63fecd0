//! What the packed frames of a segment have in common: repeated texts, and shapes of documents.

use std::collections::HashMap;

use bytes::Bytes;

use super::bytes::{Piece, SPARE, Source};
use super::payload::{self, Parts};
use super::shape::{self, Shape, Value};
use crate::varint;

/// The most bytes of texts in a dictionary, which stays in memory as long as the segment is open.
const TEXT_BYTES_MAX: usize = 256 * 1024;
const TEXTS_MAX: usize = 32 * 1024;
const SHAPES_MAX: usize = 1_024;
/// Longer texts are not counted.
const TEXT_LENGTH_MAX: usize = 128;
/// The most texts and shapes that are counted at once. At the limit, those seen only once are dropped.
const COUNTED_TEXTS_MAX: usize = 256 * 1024;
const COUNTED_SHAPES_MAX: usize = 8 * 1024;

/// The dictionary as needed for unpacking.
pub(crate) struct Dictionary {
    pub(super) texts: Texts,
    pub(super) shapes: Vec<Shape>,
}

/// Texts by their codes.
pub(super) struct Texts {
    /// The concatenated texts, followed by [`SPARE`] bytes.
    bytes: Vec<u8>,
    /// The end of each text; it begins where the previous one ends.
    ends: Vec<u32>,
}

impl Texts {
    /// Takes the next text: its code, or its length and bytes.
    #[inline(always)]
    pub(super) fn take<'a>(&'a self, source: &mut Source<'a>) -> Option<Piece<'a>> {
        let code = source.number()?;
        if code & 1 == 0 {
            return source.piece(usize::try_from(code >> 1).ok()?);
        }
        let code = usize::try_from(code >> 1).ok()?;
        let end = *self.ends.get(code)? as usize;
        let start = code.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        Some(Piece { bytes: &self.bytes, start, length: end - start })
    }
}

impl Dictionary {
    /// Decodes what [`Codes::encode`] wrote, or returns `None` if the bytes are anything else.
    pub(crate) fn decode(mut bytes: &[u8]) -> Option<Self> {
        let count = varint::take(&mut bytes)?;
        let (mut ends, mut end) = (Vec::with_capacity(count.min(TEXTS_MAX as u64) as usize), 0u32);
        for _ in 0..count {
            end = end.checked_add(u32::try_from(varint::take(&mut bytes)?).ok()?)?;
            ends.push(end);
        }
        let (texts, mut bytes) = bytes.split_at_checked(end as usize)?;
        let mut texts = texts.to_vec();
        texts.extend_from_slice(&[0; SPARE]);
        let mut shapes = Vec::new();
        for _ in 0..varint::take(&mut bytes)? {
            let length = usize::try_from(varint::take(&mut bytes)?).ok()?;
            let (shape, rest) = bytes.split_at_checked(length)?;
            shapes.push(Shape::compile(shape)?);
            bytes = rest;
        }
        bytes.is_empty().then_some(Self { texts: Texts { bytes: texts, ends }, shapes })
    }
}

/// How often texts and shapes occur in the payloads of a segment.
#[derive(Default)]
pub(crate) struct Counts {
    texts: HashMap<Box<[u8]>, u32>,
    shapes: HashMap<Box<[u8]>, u32>,
    shape: Vec<u8>,
}

impl Counts {
    /// Counts the texts and shapes of this payload. An invalid payload is ignored from the first fault on.
    pub(crate) fn add(&mut self, payload: &Bytes) {
        let _ = payload::walk(payload, self);
    }

    fn count_text(&mut self, text: &[u8]) {
        if (2..=TEXT_LENGTH_MAX).contains(&text.len()) {
            count(&mut self.texts, text, COUNTED_TEXTS_MAX);
        }
    }

    /// Chooses what is worth a place in the dictionary.
    pub(crate) fn choose(self) -> Codes {
        // What a code saves at each use, less what the entry costs once.
        let saves = |(text, count): &(Box<[u8]>, u32)| {
            let length = text.len() as i64;
            i64::from(*count) * (length - 1) - length - 1
        };
        let mut texts: Vec<_> = self.texts.into_iter().filter(|(_, count)| *count > 1).collect();
        // Ties are ordered by bytes, so that the same segment is always packed into the same bytes.
        texts.sort_unstable_by(|a, b| saves(b).cmp(&saves(a)).then_with(|| a.0.cmp(&b.0)));
        let mut bytes = 0;
        let fits = |text: &(Box<[u8]>, u32)| {
            bytes += text.0.len();
            saves(text) > 0 && bytes <= TEXT_BYTES_MAX
        };
        let mut texts: Vec<_> = texts.into_iter().take(TEXTS_MAX).take_while(fits).collect();
        // The most frequent texts get the shortest codes.
        texts.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let mut shapes: Vec<_> = self.shapes.into_iter().filter(|(_, count)| *count > 1).collect();
        shapes.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        shapes.truncate(SHAPES_MAX);
        let texts: Vec<_> = texts.into_iter().map(|(text, _)| text).collect();
        let shapes: Vec<_> = shapes.into_iter().map(|(shape, _)| shape).collect();
        Codes::new(texts, shapes)
    }
}

fn count(counts: &mut HashMap<Box<[u8]>, u32>, key: &[u8], most: usize) {
    if let Some(count) = counts.get_mut(key) {
        *count = count.saturating_add(1);
        return;
    }
    if counts.len() >= most {
        counts.retain(|_, count| *count > 1);
    }
    if counts.len() < most {
        counts.insert(key.into(), 1);
    }
}

impl<'a> Parts<'a> for Counts {
    fn number(&mut self, _number: u64) {}

    fn plain(&mut self, _bytes: &'a [u8]) {}

    fn text(&mut self, text: &'a [u8]) {
        self.count_text(text);
    }

    fn data(&mut self, document: &'a [u8]) {
        let mut shape = std::mem::take(&mut self.shape);
        shape.clear();
        let mut values = Vec::new();
        if shape::split(document, &mut shape, &mut values).is_some() {
            count(&mut self.shapes, &shape, COUNTED_SHAPES_MAX);
            for value in values {
                if let Value::Text(text) = value {
                    self.count_text(text);
                }
            }
        }
        self.shape = shape;
    }
}

/// The dictionary as needed for packing: its content, and the codes of texts and shapes.
pub(crate) struct Codes {
    texts: Vec<Box<[u8]>>,
    shapes: Vec<Box<[u8]>>,
    code_of_text: HashMap<Box<[u8]>, u64>,
    number_of_shape: HashMap<Box<[u8]>, u64>,
}

impl Codes {
    fn new(texts: Vec<Box<[u8]>>, shapes: Vec<Box<[u8]>>) -> Self {
        let code_of_text = texts.iter().cloned().zip(0..).collect();
        let number_of_shape = shapes.iter().cloned().zip(0..).collect();
        Self { texts, shapes, code_of_text, number_of_shape }
    }

    /// Encodes the dictionary.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        varint::put(&mut out, self.texts.len() as u64);
        self.texts.iter().for_each(|text| varint::put(&mut out, text.len() as u64));
        self.texts.iter().for_each(|text| out.extend_from_slice(text));
        varint::put(&mut out, self.shapes.len() as u64);
        self.shapes.iter().for_each(|shape| varint::put_bytes(&mut out, shape));
        out
    }

    pub(super) fn put_text(&self, out: &mut Vec<u8>, text: &[u8]) {
        match self.code_of_text.get(text) {
            Some(code) => varint::put(out, code << 1 | 1),
            None => {
                varint::put(out, (text.len() as u64) << 1);
                out.extend_from_slice(text);
            }
        }
    }

    /// Returns the number of a shape.
    pub(super) fn shape(&self, shape: &[u8]) -> Option<u64> {
        self.number_of_shape.get(shape).copied()
    }
}
