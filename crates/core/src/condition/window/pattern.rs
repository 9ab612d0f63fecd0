//! Date patterns, in the spelling of Java's `DateTimeFormatter`. Only numeric fields are supported, because names of months do not sort.

use jiff::Zoned;

/// A parsed date pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pattern(Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    /// A letter, and how often it is repeated.
    Field(char, usize),
}

impl Pattern {
    /// Parses a pattern. The error names a letter that is not supported.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut rest = text.chars().peekable();
        while let Some(character) = rest.next() {
            match character {
                '\'' => pieces.push(Piece::Text(
                    quoted(&mut rest).ok_or_else(|| format!("date pattern {text:?} has an unclosed quote"))?,
                )),
                letter if letter.is_ascii_alphabetic() => {
                    let mut count = 1;
                    while rest.next_if_eq(&letter).is_some() {
                        count += 1;
                    }
                    if !is_known(letter, count) {
                        let run: String = std::iter::repeat_n(letter, count).collect();
                        return Err(format!(
                            "date pattern {text:?} has {run:?}, which is unknown; use yyyy MM dd HH mm ss SSS XXX and 'text'"
                        ));
                    }
                    pieces.push(Piece::Field(letter, count));
                }
                '[' | ']' | '{' | '}' | '#' => {
                    return Err(format!("date pattern {text:?} has {character:?}; write it in quotes"));
                }
                other => pieces.push(Piece::Text(other.to_string())),
            }
        }
        match pieces.is_empty() {
            true => Err("the date pattern is empty".to_owned()),
            false => Ok(Self(pieces)),
        }
    }

    /// Formats a time.
    pub(super) fn format(&self, time: &Zoned) -> String {
        self.0.iter().map(|piece| piece.format(time)).collect()
    }
}

/// Reads the text up to the closing quote; two quotes stand for one.
fn quoted(rest: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Option<String> {
    let mut text = String::new();
    loop {
        match rest.next()? {
            '\'' if rest.next_if_eq(&'\'').is_some() => text.push('\''),
            '\'' if text.is_empty() => return Some("'".to_owned()),
            '\'' => return Some(text),
            other => text.push(other),
        }
    }
}

fn is_known(letter: char, count: usize) -> bool {
    match letter {
        'y' | 'u' => (1..=4).contains(&count),
        'M' | 'd' | 'H' | 'm' | 's' => count <= 2,
        'S' => count <= 9,
        'X' => matches!(count, 1..=3),
        _ => false,
    }
}

impl Piece {
    fn format(&self, time: &Zoned) -> String {
        let (letter, width) = match self {
            Self::Text(text) => return text.clone(),
            Self::Field(letter, width) => (*letter, *width),
        };
        let number = match letter {
            'y' | 'u' if width == 2 => i64::from(time.year()).rem_euclid(100),
            'y' | 'u' => i64::from(time.year()),
            'M' => time.month().into(),
            'd' => time.day().into(),
            'H' => time.hour().into(),
            'm' => time.minute().into(),
            's' => time.second().into(),
            'S' => return format!("{:09}", time.subsec_nanosecond())[..width].to_owned(),
            _ => return offset(time.offset().seconds(), width),
        };
        format!("{number:0width$}")
    }
}

/// Formats the offset from UTC: `Z`, `+01`, `+0130`, `+01:30`.
fn offset(seconds: i32, width: usize) -> String {
    let (hours, minutes) = (seconds.abs() / 3_600, seconds.abs() / 60 % 60);
    let sign = if seconds < 0 { '-' } else { '+' };
    match (seconds, width) {
        (0, _) => "Z".to_owned(),
        (_, 1) if minutes == 0 => format!("{sign}{hours:02}"),
        (_, 1 | 2) => format!("{sign}{hours:02}{minutes:02}"),
        _ => format!("{sign}{hours:02}:{minutes:02}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn formatted(pattern: &str) -> String {
        let time: Zoned = "2026-03-05T07:08:09.0123+01:30[+01:30]".parse().expect("a time");
        Pattern::parse(pattern).expect("a pattern").format(&time)
    }

    #[test]
    fn a_pattern_writes_digits_and_text() {
        assert_eq!(formatted("yyyy-MM-dd HH:mm:ss"), "2026-03-05 07:08:09");
        assert_eq!(formatted("uu/M/d H:m:s.SSS"), "26/3/5 7:8:9.012");
        assert_eq!(formatted("yyyyMMdd'T'HHmmssXXX"), "20260305T070809+01:30");
        assert_eq!(formatted("HH 'o''clock' ''X"), "07 o'clock '+0130");
    }

    #[test]
    fn what_a_pattern_cannot_say_is_named() {
        for (pattern, named) in
            [("dd MMM yyyy", "MMM"), ("hh:mm a", "hh"), ("yyyy 'x", "quote"), ("[yyyy]", "["), ("", "empty")]
        {
            let error = Pattern::parse(pattern).expect_err("it is refused");
            assert!(error.contains(named), "{error}");
        }
    }
}
