//! Buffers that are read from the front and written at the back, with spare bytes after both, so that short pieces are copied without a
//! function call.

/// The number of spare bytes required after what is read and after what is written.
pub(crate) const SPARE: usize = 32;

/// A read position. `bytes` extends [`SPARE`] bytes past `end`, where readable bytes end.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) at: usize,
    pub(super) end: usize,
}

impl<'a> Source<'a> {
    #[inline(always)]
    pub(super) fn number(&mut self) -> Option<u64> {
        let [first, second] = *self.bytes.get(self.at..)?.first_chunk()?;
        if first < 0x80 && self.at < self.end {
            self.at += 1;
            return Some(u64::from(first));
        }
        if second < 0x80 && self.at + 1 < self.end {
            self.at += 2;
            return Some(u64::from(first & 0x7f) | u64::from(second) << 7);
        }
        self.long_number()
    }

    #[inline(never)]
    fn long_number(&mut self) -> Option<u64> {
        let mut rest = self.bytes.get(self.at..self.end)?;
        let value = crate::varint::take(&mut rest)?;
        self.at = self.end - rest.len();
        Some(value)
    }

    #[inline(always)]
    pub(super) fn signed(&mut self) -> Option<i64> {
        let value = self.number()?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// Takes the next bytes as a piece to be copied.
    #[inline(always)]
    pub(super) fn piece(&mut self, length: usize) -> Option<Piece<'a>> {
        let start = self.at;
        let end = start.checked_add(length).filter(|end| *end <= self.end)?;
        self.at = end;
        Some(Piece { bytes: self.bytes, start, length })
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at).filter(|_| self.at < self.end)?;
        self.at += 1;
        Some(byte)
    }
}

/// A sequence of bytes followed by [`SPARE`] more.
#[derive(Clone, Copy)]
pub(super) struct Piece<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) start: usize,
    pub(super) length: usize,
}

impl Piece<'_> {
    pub(super) fn first<const N: usize>(&self) -> Option<[u8; N]> {
        self.bytes.get(self.start..)?.first_chunk().copied()
    }
}

/// A write position. `bytes` is [`SPARE`] longer than what may be written. Writing a piece may leave arbitrary bytes after `at`.
pub(super) struct Target<'a> {
    pub(super) bytes: &'a mut [u8],
    pub(super) at: usize,
}

impl Target<'_> {
    #[inline(always)]
    pub(super) fn put(&mut self, piece: Piece<'_>) -> Option<()> {
        let Piece { bytes, start, length } = piece;
        if length <= 16 {
            self.chunk::<16>(bytes, start)?;
        } else if length <= SPARE {
            self.chunk::<SPARE>(bytes, start)?;
        } else {
            let to = self.bytes.get_mut(self.at..self.at + length)?;
            to.copy_from_slice(bytes.get(start..start + length)?);
        }
        self.at += length;
        Some(())
    }

    /// Writes the first `length` of these bytes.
    #[inline(always)]
    pub(super) fn literal(&mut self, bytes: &[u8; SPARE], length: usize) -> Option<()> {
        *self.bytes.get_mut(self.at..)?.first_chunk_mut::<SPARE>()? = *bytes;
        self.at += length;
        Some(())
    }

    #[inline(always)]
    fn chunk<const N: usize>(&mut self, from: &[u8], start: usize) -> Option<()> {
        let from = from.get(start..)?.first_chunk::<N>()?;
        *self.bytes.get_mut(self.at..)?.first_chunk_mut::<N>()? = *from;
        Some(())
    }

    #[inline(always)]
    pub(super) fn fixed<const N: usize>(&mut self, bytes: [u8; N]) -> Option<()> {
        *self.bytes.get_mut(self.at..)?.first_chunk_mut::<N>()? = bytes;
        self.at += N;
        Some(())
    }

    #[inline(always)]
    pub(super) fn number(&mut self, mut value: u64) -> Option<()> {
        while value >= 0x80 {
            self.fixed([value as u8 | 0x80])?;
            value >>= 7;
        }
        self.fixed([value as u8])
    }

    pub(super) fn signed(&mut self, value: i64) -> Option<()> {
        self.number(((value << 1) ^ (value >> 63)) as u64)
    }

    /// Fills in four bytes that were reserved for a length.
    #[inline(always)]
    pub(super) fn length_at(&mut self, at: usize, length: usize) -> Option<()> {
        *self.bytes.get_mut(at..)?.first_chunk_mut::<4>()? = (length as u32).to_le_bytes();
        Some(())
    }
}
