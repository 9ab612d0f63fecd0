//! A strict reader of JSON, token by token, without errors: it returns `None` for anything unusual, and the general reader then decides
//! what it is. So this reader words no errors. INVARIANT: whatever it accepts means the same to the general reader.

use std::borrow::Cow;

/// The number of digits that always fit into a signed 64-bit integer.
const DIGITS_MAX: usize = 18;

const ONES: u64 = u64::from_le_bytes([0x01; 8]);
const HIGH: u64 = u64::from_le_bytes([0x80; 8]);

/// A position in JSON text.
pub(crate) struct Cursor<'a> {
    /// The rest of the text. It is cut at ASCII bytes only, so that every part is valid UTF-8.
    rest: &'a [u8],
}

/// A number: written with a fraction or exponent, or without.
pub(crate) enum Number {
    Integer(i64),
    Float(f64),
}

impl<'a> Cursor<'a> {
    pub fn new(text: &'a str) -> Self {
        Self { rest: text.as_bytes() }
    }

    /// Returns the number of bytes that are left.
    pub fn left(&self) -> usize {
        self.rest.len()
    }

    fn skip(&mut self, bytes: usize) {
        self.rest = self.rest.get(bytes..).unwrap_or_default();
    }

    /// Returns the first byte of the next token without taking it.
    #[inline]
    pub fn peek(&mut self) -> Option<u8> {
        loop {
            match *self.rest.first()? {
                byte if byte > b' ' => return Some(byte),
                b' ' | b'\n' | b'\r' | b'\t' => self.skip(1),
                byte => return Some(byte),
            }
        }
    }

    /// Takes a one-byte token.
    #[inline]
    pub fn take(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.skip(1))
    }

    /// Takes `true`, `false` or `null`.
    pub fn word(&mut self, word: &str) -> Option<()> {
        self.peek()?;
        self.rest = self.rest.strip_prefix(word.as_bytes())?;
        Some(())
    }

    pub fn boolean(&mut self) -> Option<bool> {
        match self.peek()? {
            b't' => self.word("true").map(|()| true),
            _ => self.word("false").map(|()| false),
        }
    }

    /// Takes an object: `member` takes the value after each key. A key with an escape counts as unusual.
    #[inline]
    pub fn object(&mut self, mut member: impl FnMut(&mut Self, &'a [u8]) -> Option<()>) -> Option<()> {
        self.take(b'{')?;
        if self.peek()? == b'}' {
            return self.take(b'}');
        }
        loop {
            let Cow::Borrowed(key) = self.string()? else { return None };
            self.take(b':')?;
            member(self, key)?;
            match self.peek()? {
                b',' => self.skip(1),
                _ => return self.take(b'}'),
            }
        }
    }

    /// Takes an array: `element` takes each value.
    #[inline]
    pub fn array(&mut self, mut element: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.take(b'[')?;
        if self.peek()? == b']' {
            return self.take(b']');
        }
        loop {
            element(self)?;
            match self.peek()? {
                b',' => self.skip(1),
                _ => return self.take(b']'),
            }
        }
    }

    /// Takes a string, as UTF-8.
    #[inline]
    pub fn string(&mut self) -> Option<Cow<'a, [u8]>> {
        self.take(b'"')?;
        let end = plain_until(self.rest)?;
        if self.rest[end] == b'"' {
            let text = &self.rest[..end];
            self.skip(end + 1);
            return Some(Cow::Borrowed(text));
        }
        self.escaped(end).map(Cow::Owned)
    }

    /// Takes the rest of a string after its opening quote; `at` is the index of its first escape or control character.
    #[cold]
    fn escaped(&mut self, mut at: usize) -> Option<Vec<u8>> {
        while *self.rest.get(at)? == b'\\' {
            at += 2 + plain_until(self.rest.get(at + 2..)?)?;
        }
        // This is the quote, or a control character, which serde_json refuses.
        let quoted = [b"\"", self.rest.get(..=at)?].concat();
        self.skip(at + 1);
        serde_json::from_slice(&quoted).ok().map(String::into_bytes)
    }

    pub fn number(&mut self) -> Option<Number> {
        self.peek()?;
        let written = self.rest;
        let negative = written.first() == Some(&b'-');
        self.skip(usize::from(negative));
        let zero_ahead = matches!(self.rest, [b'0', b'0'..=b'9', ..]);
        let magnitude = self.digits()?;
        match self.rest.first() {
            _ if zero_ahead => return None,
            Some(b'.' | b'e' | b'E') => {}
            _ => return Some(Number::Integer(if negative { -magnitude } else { magnitude })),
        }
        if self.rest.first() == Some(&b'.') {
            self.skip(1);
            self.digits()?;
        }
        if matches!(self.rest.first(), Some(b'e' | b'E')) {
            self.skip(1);
            self.skip(usize::from(matches!(self.rest.first(), Some(b'+' | b'-'))));
            self.digits()?;
        }
        let written = &written[..written.len() - self.rest.len()];
        let float: f64 = std::str::from_utf8(written).ok()?.parse().ok()?;
        float.is_finite().then_some(Number::Float(float))
    }

    /// Takes 1 to 18 digits.
    fn digits(&mut self) -> Option<i64> {
        let mut value: i64 = 0;
        let mut count = 0;
        for byte in self.rest {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                break;
            }
            if count == DIGITS_MAX {
                return None;
            }
            value = value * 10 + i64::from(digit);
            count += 1;
        }
        self.skip(count);
        (count > 0).then_some(value)
    }

    /// Takes a whole number that is not negative.
    pub fn natural(&mut self) -> Option<u64> {
        match self.number()? {
            Number::Integer(integer) => u64::try_from(integer).ok(),
            Number::Float(_) => None,
        }
    }

    /// Returns whether only white space is left.
    pub fn at_end(mut self) -> bool {
        self.peek().is_none()
    }
}

/// Returns the index of the first quote, backslash or control character, or none.
#[inline]
fn plain_until(text: &[u8]) -> Option<usize> {
    let (eights, _) = text.as_chunks::<8>();
    for (place, eight) in eights.iter().enumerate() {
        let eight = u64::from_le_bytes(*eight);
        // Exchanging 0x20 and 0x22 places the quote right above the control characters, so that one comparison finds both.
        let exchanged = eight ^ (ONES * 0x02);
        let quote_or_control = exchanged.wrapping_sub(ONES * 0x21) & !exchanged;
        let other = eight ^ (ONES * u64::from(b'\\'));
        let backslash = other.wrapping_sub(ONES) & !other;
        // A borrow can mark an additional byte, but only above one that is marked correctly.
        let marked = (quote_or_control | backslash) & HIGH;
        if marked != 0 {
            return Some(place * 8 + marked.trailing_zeros() as usize / 8);
        }
    }
    let tail = eights.len() * 8;
    let found = text[tail..].iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1f));
    found.map(|place| tail + place)
}
