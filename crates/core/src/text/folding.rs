//! Removes case and accents from letters.

use std::sync::LazyLock;

use super::words::Ranges;

/// Groups separated by blanks: a letter, followed by the letters that are folded to it. ASCII characters occur only in first position.
const LETTERS: &str = include_str!("letters.txt");

/// Characters that words and phrases ignore: standalone accents, and signs that only change how a letter is read.
const MARKS: &str = include_str!("marks.txt");

/// Blanks cannot be listed in a table whose separators are blanks.
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

/// Folds a letter of a word. Returns `None` if it is ignored.
pub(super) fn in_word(letter: char) -> Option<char> {
    match letter {
        // In words, the server folds case before accents. This letter has no simple case folding, so what remains is a capital I.
        '\u{130}' => Some('I'),
        '\u{feff}' => None,
        _ => in_phrase(letter),
    }
}

/// Folds a character of a phrase, or of a text that is searched for one. Returns `None` if it is ignored.
pub(super) fn in_phrase(letter: char) -> Option<char> {
    if letter.is_ascii() {
        return (letter != '^' && letter != '`').then(|| letter.to_ascii_lowercase());
    }
    match FOLDED.binary_search_by_key(&letter, |(letter, _)| *letter) {
        Ok(at) => FOLDED.get(at).map(|(_, folded)| *folded),
        Err(_) => (!LEFT_OUT.contains(letter)).then_some(letter),
    }
}

/// Returns a text in the form in which phrases are searched for.
pub(super) fn folded(text: &str) -> String {
    text.chars().filter_map(in_phrase).collect()
}
