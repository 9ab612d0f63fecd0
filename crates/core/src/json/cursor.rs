//! JSON text read token by token, strictly, without an error: whatever is not quite usual is `None`, and the careful reader decides
//! what it is. So nothing here has to word a refusal, and nothing that this reader takes may mean anything else to that one.

use std::borrow::Cow;

/// Digits that always fit into 64 bits with a sign.
const DIGITS_MAX: usize = 18;

const ONES: u64 = u64::from_le_bytes([0x01; 8]);
const HIGH: u64 = u64::from_le_bytes([0x80; 8]);

/// A place in JSON text.
pub(crate) struct Cursor<'a> {
    /// What is left of the text. It is cut at ASCII bytes only, so that every part is text as well.
    rest: &'a [u8],
}

/// A number as it is written: with a fraction or exponent, or without.
pub(crate) enum Number {
    Integer(i64),
    Float(f64),
}

impl<'a> Cursor<'a> {
    pub fn new(text: &'a str) -> Self {
        Self { rest: text.as_bytes() }
    }

    /// How many bytes are left.
    pub fn left(&self) -> usize {
        self.rest.len()
    }

    fn skip(&mut self, bytes: usize) {
        self.rest = self.rest.get(bytes..).unwrap_or_default();
    }

    /// The first byte of the next token, which is not taken.
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

    /// Takes a token of one byte.
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

    /// Takes an object: `member` takes the value behind each key. A key with an escape is not usual.
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

    /// Takes an array: `element` takes each of its values.
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

    /// Takes a string, which is UTF-8.
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

    /// Takes the rest of a string whose quote has been taken and whose first escape, or control character, stands at `at`.
    #[cold]
    fn escaped(&mut self, mut at: usize) -> Option<Vec<u8>> {
        while *self.rest.get(at)? == b'\\' {
            at += 2 + plain_until(self.rest.get(at + 2..)?)?;
        }
        // Here stands the quote, or a control character, which is then refused.
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

    /// Takes a whole number from 0.
    pub fn natural(&mut self) -> Option<u64> {
        match self.number()? {
            Number::Integer(integer) => u64::try_from(integer).ok(),
            Number::Float(_) => None,
        }
    }

    /// Whether nothing but white space is left.
    pub fn at_end(mut self) -> bool {
        self.peek().is_none()
    }
}

/// The place of the first quote, backslash or control character; none if there is none.
#[inline]
fn plain_until(text: &[u8]) -> Option<usize> {
    let (eights, _) = text.as_chunks::<8>();
    for (place, eight) in eights.iter().enumerate() {
        let eight = u64::from_le_bytes(*eight);
        // Exchanging 0x20 and 0x22 leaves the quote right above the control characters, so that one comparison finds both.
        let exchanged = eight ^ (ONES * 0x02);
        let quote_or_control = exchanged.wrapping_sub(ONES * 0x21) & !exchanged;
        let other = eight ^ (ONES * u64::from(b'\\'));
        let backslash = other.wrapping_sub(ONES) & !other;
        // A borrow can mark a byte too much, but only above one that is marked rightly.
        let marked = (quote_or_control | backslash) & HIGH;
        if marked != 0 {
            return Some(place * 8 + marked.trailing_zeros() as usize / 8);
        }
    }
    let tail = eights.len() * 8;
    let found = text[tail..].iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1f));
    found.map(|place| tail + place)
}
