//! Numbers and texts of variable length, as stored in frames and index files.

use bytes::{Buf, Bytes};

/// Appends `value` in groups of 7 bits, lowest first.
pub(crate) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a signed number. Small magnitudes take few bytes.
pub(crate) fn put_signed(out: &mut Vec<u8>, value: i64) {
    put(out, ((value << 1) ^ (value >> 63)) as u64);
}

/// Appends the length of `bytes`, then the bytes.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Takes a number from the front, or returns `None` if the bytes end early or the number is longer than 64 bits.
pub(crate) fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let part = u64::from(byte & 0x7f);
        if shift == 63 && part > 1 {
            return None;
        }
        value |= part << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// Reads from the front of borrowed bytes.
#[derive(Clone, Copy)]
pub(crate) struct Cursor<'a>(pub(crate) &'a [u8]);

impl<'a> Cursor<'a> {
    #[inline(always)]
    pub(crate) fn number(&mut self) -> Option<u64> {
        // Most numbers are short.
        match self.0.split_first() {
            Some((&byte, rest)) if byte < 0x80 => {
                self.0 = rest;
                Some(byte.into())
            }
            _ => take(&mut self.0),
        }
    }

    pub(crate) fn signed(&mut self) -> Option<i64> {
        let value = self.number()?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    #[inline(always)]
    pub(crate) fn fixed<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*array)
    }

    #[inline(always)]
    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    #[inline(always)]
    pub(crate) fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }
}

/// Reads from shared bytes, so that texts and data share the buffer into which they were read.
pub(crate) struct Reader(pub(crate) Bytes);

impl Reader {
    pub(crate) fn number(&mut self) -> Option<u64> {
        let mut slice = &self.0[..];
        let value = take(&mut slice)?;
        let used = self.0.len() - slice.len();
        self.0.advance(used);
        Some(value)
    }

    pub(crate) fn bytes(&mut self) -> Option<Bytes> {
        let length = usize::try_from(self.number()?).ok()?;
        (length <= self.0.len()).then(|| self.0.split_to(length))
    }

    pub(crate) fn text(&mut self) -> Option<annals_core::ByteString> {
        self.bytes()?.try_into().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_survive_and_take_few_bytes() {
        for value in [0, 1, 127, 128, 16_383, 16_384, u64::from(u32::MAX), u64::MAX] {
            let mut out = Vec::new();
            put(&mut out, value);
            assert_eq!(take(&mut &out[..]), Some(value));
            assert_eq!(out.len(), (64 - value.max(1).leading_zeros() as usize).div_ceil(7));
        }
        for value in [0, -1, 1, i64::MIN, i64::MAX] {
            let mut out = Vec::new();
            put_signed(&mut out, value);
            assert_eq!(Cursor(&out).signed(), Some(value));
        }
    }

    #[test]
    fn bytes_that_end_early_or_are_too_long_give_nothing() {
        assert_eq!(take(&mut &[][..]), None);
        assert_eq!(take(&mut &[0x80][..]), None);
        assert_eq!(take(&mut &[0xff; 10][..]), None);
        assert!(Reader(Bytes::from_static(&[5, 1, 2])).bytes().is_none());
        assert!(Reader(Bytes::from_static(&[1, 0xff])).text().is_none());
    }
}
