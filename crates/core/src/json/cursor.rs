//! JSON text read token by token, strictly, without an error: whatever is not quite usual is `None`, and the careful reader decides
//! what it is. So nothing here has to word a refusal, and nothing that this reader takes may mean anything else to that one.

use std::borrow::Cow;

/// Digits that always fit into 64 bits with a sign.
const DIGITS_MAX: usize = 18;

const ONES: u64 = u64::from_le_bytes([0x01; 8]);
const HIGH: u64 = u64::from_le_bytes([0x80; 8]);

/// A place in JSON text.
pub(crate) struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

/// A number as it is written: with a fraction or exponent, or without.
pub(crate) enum Number {
    Integer(i64),
    Float(f64),
}

impl<'a> Cursor<'a> {
    pub fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// The first byte of the next token, which is not taken.
    pub fn peek(&mut self) -> Option<u8> {
        while matches!(self.byte()?, b' ' | b'\n' | b'\r' | b'\t') {
            self.at += 1;
        }
        self.byte()
    }

    /// Takes a token of one byte.
    pub fn take(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    /// Takes `true`, `false` or `null`.
    pub fn word(&mut self, word: &str) -> Option<()> {
        self.peek()?;
        self.text.as_bytes()[self.at..].starts_with(word.as_bytes()).then(|| self.at += word.len())
    }

    pub fn boolean(&mut self) -> Option<bool> {
        match self.peek()? {
            b't' => self.word("true").map(|()| true),
            _ => self.word("false").map(|()| false),
        }
    }

    /// Takes an object: `member` takes the value behind each key. A key with an escape is not usual.
    pub fn object(&mut self, mut member: impl FnMut(&mut Self, &'a str) -> Option<()>) -> Option<()> {
        self.take(b'{')?;
        if self.peek()? == b'}' {
            return self.take(b'}');
        }
        loop {
            let Cow::Borrowed(key) = self.string()? else { return None };
            self.take(b':')?;
            member(self, key)?;
            match self.peek()? {
                b',' => self.at += 1,
                _ => return self.take(b'}'),
            }
        }
    }

    /// Takes an array: `element` takes each of its values.
    pub fn array(&mut self, mut element: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.take(b'[')?;
        if self.peek()? == b']' {
            return self.take(b']');
        }
        loop {
            element(self)?;
            match self.peek()? {
                b',' => self.at += 1,
                _ => return self.take(b']'),
            }
        }
    }

    /// Takes a string.
    pub fn string(&mut self) -> Option<Cow<'a, str>> {
        self.take(b'"')?;
        let start = self.at;
        let mut end = plain_until(self.text.as_bytes(), start);
        if self.text.as_bytes().get(end) == Some(&b'"') {
            self.at = end + 1;
            return Some(Cow::Borrowed(&self.text[start..end]));
        }
        while *self.text.as_bytes().get(end)? == b'\\' {
            end = plain_until(self.text.as_bytes(), end + 2);
        }
        // With escapes, or with a control character, which is then refused here.
        self.at = end + 1;
        let whole = self.text.get(start - 1..end + 1)?;
        serde_json::from_str(whole).ok().map(Cow::Owned)
    }

    pub fn number(&mut self) -> Option<Number> {
        self.peek()?;
        let start = self.at;
        let negative = self.byte() == Some(b'-');
        self.at += usize::from(negative);
        let first = self.at;
        let magnitude = self.digits()?;
        let zero_ahead = self.text.as_bytes()[first] == b'0' && self.at - first > 1;
        match self.byte() {
            _ if zero_ahead => return None,
            Some(b'.' | b'e' | b'E') => {}
            // Zero with a sign is a float, which is not usual.
            _ if negative && magnitude == 0 => return None,
            _ => return Some(Number::Integer(if negative { -magnitude } else { magnitude })),
        }
        if self.byte() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.byte(), Some(b'e' | b'E')) {
            self.at += 1;
            self.at += usize::from(matches!(self.byte(), Some(b'+' | b'-')));
            self.digits()?;
        }
        let float: f64 = self.text[start..self.at].parse().ok()?;
        float.is_finite().then_some(Number::Float(float))
    }

    /// Takes 1 to 18 digits.
    fn digits(&mut self) -> Option<i64> {
        let first = self.at;
        let mut value: i64 = 0;
        while let Some(digit @ b'0'..=b'9') = self.byte() {
            if self.at - first == DIGITS_MAX {
                return None;
            }
            value = value * 10 + i64::from(digit - b'0');
            self.at += 1;
        }
        (self.at > first).then_some(value)
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

/// The place of the first quote, backslash or control character from `at` on; the end of the text if there is none.
fn plain_until(text: &[u8], mut at: usize) -> usize {
    while let Some(eight) = text.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let eight = u64::from_le_bytes(*eight);
        let zero_in = |bytes: u64| bytes.wrapping_sub(ONES) & !bytes & HIGH;
        let quote = zero_in(eight ^ (ONES * u64::from(b'"')));
        let backslash = zero_in(eight ^ (ONES * u64::from(b'\\')));
        let control = eight.wrapping_sub(ONES * 0x20) & !eight & HIGH;
        // A borrow can mark a byte too much, but only above one that is marked rightly.
        let marked = quote | backslash | control;
        if marked != 0 {
            return at + marked.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    while text.get(at).is_some_and(|byte| !matches!(byte, b'"' | b'\\' | 0..=0x1f)) {
        at += 1;
    }
    at.min(text.len())
}
