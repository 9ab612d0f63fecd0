//! The strings that CONTAINS, STARTS_WITH and ENDS_WITH search for.

use bson::RawBsonRef;

/// A string to search for, taken literally.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Fragment {
    /// The string.
    pub text: String,
    /// Whether to ignore case, one character at a time: `ß` does not match `SS`.
    pub ignore_case: bool,
}

impl Fragment {
    /// Creates a fragment that matches case.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), ignore_case: false }
    }

    /// Ignores the case.
    pub fn ignoring_case(self) -> Self {
        Self { ignore_case: true, ..self }
    }

    /// Returns the equivalent regular expression for MongoDB, between `before` and `behind`.
    pub fn pattern(&self, before: &str, behind: &str) -> String {
        let mut pattern = String::with_capacity(self.text.len() + 8);
        pattern.push_str(before);
        for character in self.text.chars() {
            if "\\^$.|?*+()[]{}".contains(character) {
                pattern.push('\\');
            }
            pattern.push(character);
        }
        pattern.push_str(behind);
        pattern
    }

    /// Returns the options of that regular expression.
    pub fn options(&self) -> &'static str {
        if self.ignore_case { "i" } else { "" }
    }
}

impl<T: Into<String>> From<T> for Fragment {
    fn from(text: T) -> Self {
        Self::new(text)
    }
}

/// Where in a text the fragment must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Anywhere,
    Start,
    End,
}

/// A fragment prepared for searching many texts.
#[derive(Debug, Clone)]
pub(super) struct Search {
    side: Side,
    /// Case-folded if the case is ignored.
    text: String,
    ignore_case: bool,
    pattern: String,
}

impl Search {
    pub(super) fn new(side: Side, fragment: &Fragment) -> Self {
        let pattern = match side {
            Side::Anywhere => fragment.pattern("", ""),
            Side::Start => fragment.pattern("^", ""),
            Side::End => fragment.pattern("", "$"),
        };
        let text = if fragment.ignore_case { folded(&fragment.text) } else { fragment.text.clone() };
        Self { side, text, ignore_case: fragment.ignore_case, pattern }
    }

    /// Returns whether a value is a text with the fragment. As in MongoDB, the equivalent regular expression matches too.
    pub(super) fn finds(&self, value: RawBsonRef<'_>) -> bool {
        match value {
            RawBsonRef::String(text) | RawBsonRef::Symbol(text) if self.ignore_case => self.is_in(&folded(text)),
            RawBsonRef::String(text) | RawBsonRef::Symbol(text) => self.is_in(text),
            RawBsonRef::RegularExpression(regex) => {
                let options = if self.ignore_case { "i" } else { "" };
                regex.pattern.as_str() == self.pattern && regex.options.as_str() == options
            }
            _ => false,
        }
    }

    fn is_in(&self, text: &str) -> bool {
        match self.side {
            Side::Anywhere => text.contains(&self.text),
            Side::Start => text.starts_with(&self.text),
            // `$` also matches before a line feed at the end.
            Side::End => {
                let without_line_feed = text.strip_suffix('\n').is_some_and(|text| text.ends_with(&self.text));
                without_line_feed || text.ends_with(&self.text)
            }
        }
    }
}

fn folded(text: &str) -> String {
    text.chars().map(folded_character).collect()
}

/// Applies simple case folding: characters that differ only in case are mapped to the same one. A character whose other case has several
/// characters is unchanged.
fn folded_character(character: char) -> char {
    // Its upper case is `I`, whose lower case is a different letter.
    const DOTLESS_I: char = 'ı';
    if character.is_ascii() {
        return character.to_ascii_lowercase();
    }
    if character == DOTLESS_I {
        return character;
    }
    let upper = only(character.to_uppercase()).unwrap_or(character);
    only(upper.to_lowercase()).unwrap_or(character)
}

fn only(mut characters: impl Iterator<Item = char>) -> Option<char> {
    let first = characters.next()?;
    characters.next().is_none().then_some(first)
}
