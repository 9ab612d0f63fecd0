//! The search string of a text search.

use std::collections::BTreeSet;

use bson::raw::RawDocument;

use super::TextFields;
use super::folding::folded;
use super::words::words;

/// A search of MongoDB's `$text`: `coffee "fresh milk" -sugar -"brown sugar"`.
///
/// A document matches if it has at least one of the words (including those inside quotes), all of the phrases, and none of the words and
/// phrases that a `-` excludes. A phrase is a substring of one text, ignoring case and accents; it need not start or end at word
/// boundaries. A `-` negates only after a blank, and up to the next blank, so it does not negate in `well-known`. An unclosed quote does
/// not make a phrase. A search that only excludes finds nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TextSearch {
    words: BTreeSet<String>,
    unwanted_words: BTreeSet<String>,
    phrases: Vec<String>,
    unwanted_phrases: Vec<String>,
}

impl TextSearch {
    /// Parses a search; every string is valid.
    pub fn new(search: &str) -> Self {
        let mut read = Self::default();
        let mut pieces = Pieces { text: search, at: 0, after_blank: true };
        pieces.skip_blanks();
        let (mut negated, mut phrase) = (false, None);
        while let Some(Piece { at, what, after_blank }) = pieces.next() {
            match what {
                // Words of an excluded phrase may occur elsewhere.
                What::Text(_) if negated && phrase.is_some() => {}
                What::Text(text) => {
                    negated &= !after_blank;
                    let list = if negated { &mut read.unwanted_words } else { &mut read.words };
                    list.extend(words(text));
                }
                What::Hyphen => negated |= phrase.is_none() && after_blank,
                What::Quote => match phrase.take() {
                    Some(start) => {
                        let list = if negated { &mut read.unwanted_phrases } else { &mut read.phrases };
                        list.push(folded(&search[start..at]));
                    }
                    None => {
                        negated &= !after_blank;
                        phrase = Some(at + 1);
                    }
                },
            }
        }
        read
    }

    /// Returns the words of which a document must have at least one.
    pub fn words(&self) -> impl Iterator<Item = &str> {
        self.words.iter().map(String::as_str)
    }

    /// Returns the phrases that a document must contain, without case and accents.
    pub fn phrases(&self) -> impl Iterator<Item = &str> {
        self.phrases.iter().map(String::as_str)
    }

    /// Returns whether every document with one of the words matches, because no phrase is required and nothing is excluded.
    pub fn is_one_word_enough(&self) -> bool {
        self.phrases.is_empty() && self.unwanted_words.is_empty() && self.unwanted_phrases.is_empty()
    }

    /// Returns whether the texts of a document at these paths match.
    pub(crate) fn finds(&self, document: &RawDocument, fields: &TextFields) -> bool {
        if self.words.is_empty() {
            return false;
        }
        let texts = fields.texts(document);
        let mut all = texts.iter().flat_map(|text| words(text));
        if self.is_one_word_enough() {
            return all.any(|word| self.words.contains(&word));
        }
        let mut has_one = false;
        for word in all {
            if self.unwanted_words.contains(&word) {
                return false;
            }
            has_one |= self.words.contains(&word);
        }
        if !has_one || (self.phrases.is_empty() && self.unwanted_phrases.is_empty()) {
            return has_one;
        }
        let texts: Vec<_> = texts.into_iter().map(folded).collect();
        let holds = |phrase: &String| texts.iter().any(|text| text.contains(phrase));
        self.phrases.iter().all(holds) && !self.unwanted_phrases.iter().any(holds)
    }
}

/// Splits a search string into its pieces.
struct Pieces<'s> {
    text: &'s str,
    at: usize,
    /// Whether blanks precede the next piece, or it is the first.
    after_blank: bool,
}

struct Piece<'s> {
    at: usize,
    what: What<'s>,
    after_blank: bool,
}

enum What<'s> {
    Hyphen,
    Quote,
    Text(&'s str),
}

/// The characters that end a negation. A tab does not.
const BLANKS: [char; 5] = [' ', '\n', '\r', '\u{b}', '\u{c}'];

impl<'s> Pieces<'s> {
    fn next(&mut self) -> Option<Piece<'s>> {
        let (at, after_blank) = (self.at, self.after_blank);
        let rest = &self.text[at..];
        let what = match rest.chars().next()? {
            '-' => What::Hyphen,
            '"' => What::Quote,
            _ => {
                let ends = |letter| letter == '-' || letter == '"' || BLANKS.contains(&letter);
                What::Text(&rest[..rest.find(ends).unwrap_or(rest.len())])
            }
        };
        self.at += if let What::Text(text) = what { text.len() } else { 1 };
        self.skip_blanks();
        Some(Piece { at, what, after_blank })
    }

    fn skip_blanks(&mut self) {
        let rest = self.text[self.at..].trim_start_matches(BLANKS);
        let start = self.text.len() - rest.len();
        self.after_blank = start > self.at || start == 0;
        self.at = start;
    }
}
