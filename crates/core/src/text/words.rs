//! Words of a text.

use std::sync::LazyLock;

use super::folding::in_word;

/// What stands between words: the characters of Unicode's properties Dash, Hyphen, Pattern_Syntax, Quotation_Mark, Terminal_Punctuation and
/// White_Space. An underscore is none of them: `a_b` is one word.
const DELIMITERS: &str = include_str!("delimiters.txt");

static BETWEEN: LazyLock<Ranges> = LazyLock::new(|| Ranges::read(DELIMITERS));

/// Characters, by the first and last of each row of them.
pub(super) struct Ranges(Vec<(u32, u32)>);

impl Ranges {
    /// Reads hexadecimal numbers, `5b-5e 60`, lowest first.
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

/// The words of a text, in order. One of accents alone is the empty word.
pub(super) fn words(text: &str) -> impl Iterator<Item = String> {
    let words = text.split(|letter| BETWEEN.contains(letter)).filter(|word| !word.is_empty());
    words.map(|word| word.chars().filter_map(in_word).collect())
}
