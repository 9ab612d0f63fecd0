//! Scanner of words, signs and values in a typed condition.

use bson::{Bson, Document};

use super::{Found, Operator};
use crate::limits;
use crate::wire::records::extended;

/// A position in a typed condition.
pub(super) struct Scan<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Scan<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, at: 0 }
    }

    /// Returns the byte at which the next token begins.
    pub(super) fn at(&mut self) -> usize {
        self.skip_space();
        self.at
    }

    pub(super) fn is_at_end(&mut self) -> bool {
        self.rest().is_empty()
    }

    /// Consumes these signs, if they are next.
    pub(super) fn takes(&mut self, signs: &str) -> bool {
        let next = self.rest().starts_with(signs);
        self.at += if next { signs.len() } else { 0 };
        next
    }

    pub(super) fn needs(&mut self, signs: &str) -> Found<()> {
        match self.takes(signs) {
            true => Ok(()),
            false => Err((self.at, format!("{signs} is expected"))),
        }
    }

    /// Consumes this word, if it is next.
    pub(super) fn takes_word(&mut self, word: &str) -> bool {
        let before = self.at;
        if self.word() == Some(word) {
            return true;
        }
        self.at = before;
        false
    }

    /// Reads the next word: an operator or a path.
    pub(super) fn word(&mut self) -> Option<&'t str> {
        let rest = self.rest();
        let end = rest.find(|character| !is_of_word(character)).unwrap_or(rest.len());
        self.at += end;
        (end > 0).then(|| &rest[..end])
    }

    /// Reads a path in backticks, if it is next.
    pub(super) fn quoted_path(&mut self) -> Found<Option<String>> {
        if !self.takes("`") {
            return Ok(None);
        }
        let rest = &self.text[self.at..];
        let end = rest.find('`').ok_or_else(|| (self.at, "a path in backticks is not closed".to_owned()))?;
        self.at += end + 1;
        Ok(Some(rest[..end].to_owned()))
    }

    /// Reads the comparison operator, if its sign is next.
    pub(super) fn comparison(&mut self) -> Option<Operator> {
        Operator::SIGNS.into_iter().find(|(signs, _)| self.takes(signs)).map(|(_, operator)| operator)
    }

    pub(super) fn text(&mut self) -> Found<String> {
        let start = self.at();
        match self.value()? {
            Bson::String(text) => Ok(text),
            _ => Err((start, "a string is expected".to_owned())),
        }
    }

    /// Reads the next value and interprets Extended JSON in it.
    pub(super) fn value(&mut self) -> Found<Bson> {
        let start = self.at();
        let value = self.plain_value(0)?;
        extended(value).map_err(|message| (start, message))
    }

    fn plain_value(&mut self, depth: usize) -> Found<Bson> {
        let start = self.at();
        if depth > limits::DATA_DEPTH_MAX {
            return Err((start, "a value is nested too deeply".to_owned()));
        }
        if self.takes("[") {
            return self.list(depth);
        }
        if self.takes("{") {
            return self.object(depth);
        }
        match self.rest().chars().next() {
            Some('\'' | '"') => self.quoted().map(Bson::String),
            _ => self.bare(start),
        }
    }

    fn list(&mut self, depth: usize) -> Found<Bson> {
        let mut values = Vec::new();
        if self.takes("]") {
            return Ok(Bson::Array(values));
        }
        loop {
            values.push(self.plain_value(depth + 1)?);
            if self.takes("]") {
                return Ok(Bson::Array(values));
            }
            self.needs(",").map_err(|(at, _)| (at, "a list needs , or ]".to_owned()))?;
        }
    }

    fn object(&mut self, depth: usize) -> Found<Bson> {
        let mut object = Document::new();
        if self.takes("}") {
            return Ok(Bson::Document(object));
        }
        loop {
            let start = self.at();
            let name = match self.rest().chars().next() {
                Some('\'' | '"') => self.quoted()?,
                _ => self.word().ok_or_else(|| (start, "the name of a field is expected".to_owned()))?.to_owned(),
            };
            self.needs(":")?;
            let value = self.plain_value(depth + 1)?;
            if object.insert(&name, value).is_some() {
                return Err((start, format!("{name:?} is given twice")));
            }
            if self.takes("}") {
                return Ok(Bson::Document(object));
            }
            self.needs(",").map_err(|(at, _)| (at, "an object needs , or }".to_owned()))?;
        }
    }

    /// Reads a string in single quotes, where two quotes stand for one, or in double quotes as in JSON.
    fn quoted(&mut self) -> Found<String> {
        let start = self.at;
        let no_end = || (start, "a string has no closing quote".to_owned());
        if self.takes("\"") {
            let rest = &self.text[start..];
            let mut texts = serde_json::Deserializer::from_str(rest).into_iter::<String>();
            let text = texts.next().and_then(Result::ok).ok_or_else(no_end)?;
            self.at = start + texts.byte_offset();
            return Ok(text);
        }
        self.at += 1;
        let mut text = String::new();
        loop {
            let rest = &self.text[self.at..];
            let end = rest.find('\'').ok_or_else(no_end)?;
            text.push_str(&rest[..end]);
            self.at += end + 1;
            if !self.text[self.at..].starts_with('\'') {
                return Ok(text);
            }
            text.push('\'');
            self.at += 1;
        }
    }

    /// Reads a number, true, false or null.
    fn bare(&mut self, start: usize) -> Found<Bson> {
        let rest = self.rest();
        let is_of_number = |character: char| character.is_ascii_alphanumeric() || "+-._".contains(character);
        let end = rest.find(|character| !is_of_number(character)).unwrap_or(rest.len());
        let written = &rest[..end];
        let value = match written {
            "true" => Bson::Boolean(true),
            "false" => Bson::Boolean(false),
            "null" => Bson::Null,
            _ => match serde_json::from_str::<serde_json::Number>(written) {
                Ok(number) if number.is_i64() => Bson::Int64(number.as_i64().unwrap_or_default()),
                Ok(_) if !written.contains(['.', 'e', 'E']) => {
                    return Err((start, "the number does not fit in a signed 64-bit integer".to_owned()));
                }
                Ok(number) if number.is_f64() => Bson::Double(number.as_f64().unwrap_or_default()),
                _ => return Err((start, "a value is expected (put strings in quotes)".to_owned())),
            },
        };
        self.at += end;
        Ok(value)
    }

    fn rest(&mut self) -> &'t str {
        self.skip_space();
        &self.text[self.at..]
    }

    fn skip_space(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
    }
}

fn is_of_word(character: char) -> bool {
    character.is_alphanumeric() || "_-.$".contains(character)
}
