//! Rust source with its comments and literals blanked out, so that rules see only code. It is not a parser: it only distinguishes code
//! from text, and finds closing brackets.

/// Source text in which every byte of a comment, or inside a string or character literal, is a space. Line breaks stay, so positions and
/// line numbers are those of the source.
pub struct Code {
    text: Vec<u8>,
    /// The width of each line in columns, without the content of its string literals.
    pub columns: Vec<usize>,
}

impl Code {
    pub fn new(source: &str) -> Self {
        let bytes = source.as_bytes();
        let mut text = bytes.to_vec();
        let mut inside_literal = vec![false; bytes.len()];
        let mut at = 0;
        while at < bytes.len() {
            let (end, literal) = match token(&bytes[at..]) {
                Token::Code(length) => {
                    at += length;
                    continue;
                }
                Token::Comment(length) => (at + length, false),
                Token::Literal(length) => (at + length, true),
            };
            let end = end.min(bytes.len());
            for index in at..end {
                if text[index] != b'\n' {
                    text[index] = b' ';
                }
                inside_literal[index] = literal;
            }
            at = end;
        }
        let columns = columns(source, &inside_literal);
        Self { text, columns }
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.text
    }

    /// Returns the line of a position, from 1.
    pub fn line(&self, at: usize) -> usize {
        1 + self.text[..at.min(self.text.len())].iter().filter(|&&byte| byte == b'\n').count()
    }

    /// Returns every position of `wanted` that is not part of a longer word.
    pub fn find_all<'a>(&'a self, wanted: &'a str) -> impl Iterator<Item = usize> + 'a {
        let bytes = wanted.as_bytes();
        let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let last = self.text.len().saturating_sub(bytes.len().saturating_sub(1));
        (0..last).filter(move |&at| {
            let behind = self.text.get(at + bytes.len()).copied().unwrap_or(b' ');
            self.text[at..].starts_with(bytes)
                && (at == 0 || !word(bytes[0]) || !word(self.text[at - 1]))
                && (!bytes.last().is_some_and(|&byte| word(byte)) || !word(behind))
        })
    }

    /// Returns the position of the bracket that closes the one at `open`.
    pub fn closing(&self, open: usize) -> Option<usize> {
        let mut depth = 0usize;
        for (at, byte) in self.text.iter().enumerate().skip(open) {
            match byte {
                b'(' | b'[' | b'{' => depth += 1,
                b')' | b']' | b'}' => {
                    depth = depth.saturating_sub(1);
                    if depth == 0 {
                        return Some(at);
                    }
                }
                _ => {}
            }
        }
        None
    }
}

enum Token {
    Code(usize),
    Comment(usize),
    Literal(usize),
}

/// Returns what begins here, and how many bytes it has.
fn token(bytes: &[u8]) -> Token {
    match bytes {
        [b'/', b'/', ..] => Token::Comment(until(bytes, |rest| rest[0] == b'\n')),
        [b'/', b'*', ..] => Token::Comment(block_comment(bytes)),
        [b'"', ..] => Token::Literal(1 + string(&bytes[1..])),
        [b'r', b'"' | b'#', ..] => raw_string(bytes, 1),
        [b'b' | b'c', b'r', b'"' | b'#', ..] => raw_string(bytes, 2),
        [b'\'', b'\\', ..] => {
            Token::Literal(3 + until(bytes.get(3..).unwrap_or_default(), |rest| rest[0] == b'\'') + 1)
        }
        [b'\'', ..] => character(bytes),
        [first, ..] if first.is_ascii_alphanumeric() || *first == b'_' => {
            // Consume whole words, so that the r of `for` does not begin a raw string.
            let word = until(bytes, |rest| !(rest[0].is_ascii_alphanumeric() || rest[0] == b'_'));
            Token::Code(word)
        }
        _ => Token::Code(1),
    }
}

fn until(bytes: &[u8], stop: impl Fn(&[u8]) -> bool) -> usize {
    (0..bytes.len()).find(|&at| stop(&bytes[at..])).unwrap_or(bytes.len())
}

fn block_comment(bytes: &[u8]) -> usize {
    let mut depth = 0usize;
    let mut at = 0;
    while at < bytes.len() {
        match &bytes[at..] {
            [b'/', b'*', ..] => {
                depth += 1;
                at += 2;
            }
            [b'*', b'/', ..] => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    at
}

/// Returns the number of bytes from after the opening quote to after the closing one.
fn string(bytes: &[u8]) -> usize {
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    at
}

fn raw_string(bytes: &[u8], prefix: usize) -> Token {
    let hashes = until(&bytes[prefix..], |rest| rest[0] != b'#');
    if bytes.get(prefix + hashes) != Some(&b'"') {
        // A raw identifier such as r#type.
        return Token::Code(prefix + hashes);
    }
    let start = prefix + hashes + 1;
    let end = |rest: &[u8]| rest[0] == b'"' && rest.len() > hashes && rest[1..=hashes].iter().all(|&byte| byte == b'#');
    Token::Literal(start + until(&bytes[start..], end) + 1 + hashes)
}

/// Returns a character literal or a lifetime: a literal closes after one character.
fn character(bytes: &[u8]) -> Token {
    let width = match bytes.get(1) {
        Some(0xf0..) => 4,
        Some(0xe0..) => 3,
        Some(0xc0..) => 2,
        _ => 1,
    };
    if bytes.get(1 + width) == Some(&b'\'') { Token::Literal(width + 2) } else { Token::Code(1) }
}

fn columns(source: &str, inside_literal: &[bool]) -> Vec<usize> {
    let mut start = 0;
    let mut columns = Vec::new();
    for line in source.split('\n') {
        let counted = line.char_indices().filter(|(at, _)| !inside_literal[start + at]).count();
        columns.push(counted);
        start += line.len() + 1;
    }
    columns
}
