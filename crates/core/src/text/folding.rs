//! Letters without case and accents.

use std::sync::LazyLock;

use super::words::Ranges;

/// Lines of groups with blanks between: a letter, and the letters that are taken for it. Of ASCII there is none in them but as the first.
const LETTERS: &str = include_str!("letters.txt");

/// What is left out of words and phrases: accents that stand alone, and signs that only change how a letter is read.
const MARKS: &str = include_str!("marks.txt");

/// Blanks cannot stand in a list with blanks between.
const BLANKS: [(char, char); 2] = [('\u{2000}', '\u{2002}'), ('\u{2001}', '\u{2003}')];

static FOLDED: LazyLock<Vec<(char, char)>> = LazyLock::new(|| {
    let groups = LETTERS.split_ascii_whitespace().filter_map(|group| {
        let mut letters = group.chars();
        let first = letters.next()?;
        Some(letters.map(move |letter| (letter, first)))
    });
    let mut folded: Vec<_> = groups.flatten().chain(BLANKS).collect();
    folded.sort_unstable();
    folded
});

static LEFT_OUT: LazyLock<Ranges> = LazyLock::new(|| Ranges::read(MARKS));

/// A letter of a word; none when it is left out.
pub(super) fn in_word(letter: char) -> Option<char> {
    match letter {
        // The server takes the case before the accent of a word, and this letter has no case without its dot.
        '\u{130}' => Some('I'),
        '\u{feff}' => None,
        _ => in_phrase(letter),
    }
}

/// A character of a phrase, and of the texts that it is looked for in; none when it is left out.
pub(super) fn in_phrase(letter: char) -> Option<char> {
    if letter.is_ascii() {
        return (letter != '^' && letter != '`').then(|| letter.to_ascii_lowercase());
    }
    match FOLDED.binary_search_by_key(&letter, |(letter, _)| *letter) {
        Ok(at) => FOLDED.get(at).map(|(_, folded)| *folded),
        Err(_) => (!LEFT_OUT.contains(letter)).then_some(letter),
    }
}

/// A text as phrases are looked for in it.
pub(super) fn folded(text: &str) -> String {
    text.chars().filter_map(in_phrase).collect()
}
