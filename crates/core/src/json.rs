//! Checks of JSON text: integers that a parser would round, and their paths.

pub(crate) mod cursor;
pub(crate) mod strict;

use std::borrow::Cow;

/// Finds an integer outside the range of int64 in valid JSON text, and returns its path (`events[0].data.n`) and its text.
///
/// JSON parsers silently convert such an integer to a double, which would change what is stored.
pub fn wide_integer(json: &[u8]) -> Option<(String, String)> {
    if !has_many_digits(json) {
        return None;
    }
    let (start, end) = wide_token(json)?;
    let token = String::from_utf8_lossy(&json[start..end]).into_owned();
    Some((path_at(json, start), token))
}

/// The number of digits that always fit into a signed 64-bit integer.
const DIGITS_THAT_ALWAYS_FIT: usize = 18;

/// Returns the text without the sign of integers that are zero: serde_json would read `-0` as a double.
pub(crate) fn without_signed_zeros(json: &[u8]) -> Cow<'_, [u8]> {
    let begins = |at: &usize| json[*at] == b'-' && json.get(*at + 1) == Some(&b'0');
    if !(0..json.len()).any(|at| begins(&at)) {
        return Cow::Borrowed(json);
    }
    let (mut out, mut at) = (Cow::Borrowed(json), 0);
    while at < json.len() {
        match json[at] {
            b'"' => at = string_end(json, at),
            b'-' | b'0'..=b'9' => {
                let end = number_end(json, at);
                if &json[at..end] == b"-0" {
                    out.to_mut()[at] = b' ';
                }
                at = end;
            }
            _ => at += 1,
        }
    }
    out
}

/// Returns whether a run of digits is longer than always fits. Testing one byte per run length is enough, because a longer run covers one.
fn has_many_digits(json: &[u8]) -> bool {
    const ROW: usize = DIGITS_THAT_ALWAYS_FIT + 1;
    let is_digit = |byte: &&u8| byte.is_ascii_digit();
    (ROW - 1..json.len()).step_by(ROW).filter(|&at| json[at].is_ascii_digit()).any(|at| {
        let before = json[..at].iter().rev().take(ROW).take_while(is_digit).count();
        let after = json[at..].iter().take(ROW).take_while(is_digit).count();
        before + after >= ROW
    })
}

fn wide_token(json: &[u8]) -> Option<(usize, usize)> {
    let mut at = 0;
    while at < json.len() {
        match json[at] {
            b'"' => at = string_end(json, at),
            b'-' | b'0'..=b'9' => {
                let end = number_end(json, at);
                let token = &json[at..end];
                let integer = !token.iter().any(|b| matches!(b, b'.' | b'e' | b'E'));
                if integer && token.len() > DIGITS_THAT_ALWAYS_FIT {
                    let fits = std::str::from_utf8(token).is_ok_and(|t| t.parse::<i64>().is_ok());
                    if !fits {
                        return Some((at, end));
                    }
                }
                at = end;
            }
            _ => at += 1,
        }
    }
    None
}

/// Returns the index after the string that begins with the quote at `at`.
fn string_end(json: &[u8], at: usize) -> usize {
    let mut at = at + 1;
    while at < json.len() {
        match json[at] {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    json.len()
}

fn number_end(json: &[u8], at: usize) -> usize {
    let inside = |b: &u8| matches!(b, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
    at + json[at..].iter().take_while(|b| inside(b)).count()
}

/// Returns the path of the value at `target`: keys joined with dots, indexes in brackets.
fn path_at(json: &[u8], target: usize) -> String {
    enum Step {
        Key(String),
        Index(usize),
    }
    let mut steps: Vec<Step> = Vec::new();
    let mut last_string = (0, 0);
    let mut at = 0;
    while at < target {
        match json[at] {
            b'"' => {
                let end = string_end(json, at);
                last_string = (at, end);
                at = end;
                continue;
            }
            b'{' => steps.push(Step::Key(String::new())),
            b'[' => steps.push(Step::Index(0)),
            b'}' | b']' => {
                steps.pop();
            }
            b':' => {
                if let Some(Step::Key(key)) = steps.last_mut() {
                    let text = &json[last_string.0..last_string.1];
                    *key = serde_json::from_slice(text).unwrap_or_default();
                }
            }
            b',' => {
                if let Some(Step::Index(index)) = steps.last_mut() {
                    *index += 1;
                }
            }
            _ => {}
        }
        at += 1;
    }
    let mut path = String::new();
    for step in steps {
        match step {
            Step::Key(key) if path.is_empty() => path.push_str(&key),
            Step::Key(key) => path.extend([".", &key]),
            Step::Index(index) => path.push_str(&format!("[{index}]")),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::wide_integer;

    fn found(json: &str) -> Option<(String, String)> {
        wide_integer(json.as_bytes())
    }

    #[test]
    fn integers_of_64_bits_pass() {
        assert_eq!(found(r#"{"a":9223372036854775807,"b":-9223372036854775808}"#), None);
        assert_eq!(found(r#"{"a":"9223372036854775808","\"99999999999999999999":1}"#), None);
        assert_eq!(found(r#"[1e300,99999999999999999999.0,1E99]"#), None);
    }

    #[test]
    fn an_integer_beyond_64_bits_is_found_with_its_path() {
        let json = r#"{"events":[{"data":{}},{"data":{"x":[1,2,{"n":9223372036854775808}]}}]}"#;
        assert_eq!(found(json), Some(("events[1].data.x[2].n".into(), "9223372036854775808".into())));
        for before in 0..40 {
            let json = format!("{}9223372036854775808", " ".repeat(before));
            assert_eq!(found(&json), Some((String::new(), "9223372036854775808".into())), "{before}");
        }
        assert_eq!(found("-9223372036854775809"), Some((String::new(), "-9223372036854775809".into())));
    }
}
