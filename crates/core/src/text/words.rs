//! Splits a text into words.

use std::sync::LazyLock;

use super::folding::in_word;

/// The characters between words: those with Unicode's properties Dash, Hyphen, Pattern_Syntax, Quotation_Mark, Terminal_Punctuation and
/// White_Space. An underscore is not among them: `a_b` is one word.
const DELIMITERS: &str = include_str!("delimiters.txt");

static BETWEEN: LazyLock<Ranges> = LazyLock::new(|| Ranges::read(DELIMITERS));

/// A set of characters, as ranges with their first and last character.
pub(super) struct Ranges(Vec<(u32, u32)>);

impl Ranges {
    /// Parses ranges in hexadecimal, such as `5b-5e 60`, in ascending order.
    pub(super) fn read(text: &str) -> Self {
        let number = |text: &str| u32::from_str_radix(text, 16).ok();
        let range = |text: &str| {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            Some((number(first)?, number(last)?))
        };
        Self(text.split_ascii_whitespace().filter_map(range).collect())
    }

    pub(super) fn contains(&self, letter: char) -> bool {
        let letter = u32::from(letter);
        let behind = self.0.partition_point(|(first, _)| *first <= letter);
        behind.checked_sub(1).and_then(|at| self.0.get(at)).is_some_and(|(_, last)| letter <= *last)
    }
}

/// Returns the words of a text, in order. A word of accents alone is the empty word.
pub(super) fn words(text: &str) -> impl Iterator<Item = String> {
    let words = text.split(|letter| BETWEEN.contains(letter)).filter(|word| !word.is_empty());
    words.map(|word| word.chars().filter_map(in_word).collect())
}
