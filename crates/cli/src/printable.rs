//! Text of other people on a terminal. A reason, an error of a worker or a document may hold control characters: they could move the
//! cursor, hide lines above, or look like further lines of a table. Such characters are printed as escapes.

use std::borrow::Cow;
use std::fmt::Write;

/// Returns a text as one line without control characters.
pub fn line(text: &str) -> Cow<'_, str> {
    escaped(text, is_harmful)
}

/// Returns a text without control characters other than line breaks.
pub fn lines(text: &str) -> Cow<'_, str> {
    escaped(text, |character| character != '\n' && is_harmful(character))
}

/// Returns whether a terminal may interpret a character rather than show it, or let it change the order of others.
fn is_harmful(character: char) -> bool {
    let changes_order =
        matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let breaks_line = matches!(character, '\u{2028}' | '\u{2029}');
    character.is_control() || changes_order || breaks_line
}

fn escaped(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        if is_escaped(character) {
            // Writing to a string cannot fail.
            let _ = write!(shown, "{}", character.escape_default());
        } else {
            shown.push(character);
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_printed_as_escapes() {
        for (text, shown) in [
            ("\u{1b}[2K\u{1b}[1A", "\\u{1b}[2K\\u{1b}[1A"),
            ("\u{9b}2K", "\\u{9b}2K"),
            ("a\nb\r\tc\0", "a\\nb\\r\\tc\\u{0}"),
            ("\u{202e}abc\u{2029}", "\\u{202e}abc\\u{2029}"),
            ("žluťoučký \\ 'kůň' 👩‍💻", "žluťoučký \\ 'kůň' 👩‍💻"),
        ] {
            assert_eq!(line(text), shown);
        }
        assert_eq!(lines("one\ntwo\u{7}"), "one\ntwo\\u{7}");
        assert!(matches!(line("plain"), Cow::Borrowed("plain")));
    }
}
