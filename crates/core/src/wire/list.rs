//! Lists in query parameters: `types=a,b` and `tags=x,y`.

use bytestring::ByteString;

/// Parses a list of parts between commas. A comma inside a part is written `\,` and a backslash `\\`; a backslash before any other
/// character stands for itself.
pub fn parse_list(text: &str) -> Vec<ByteString> {
    let mut parts = Vec::new();
    let mut part = String::new();
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            ',' => parts.push(std::mem::take(&mut part).into()),
            '\\' => part.push(rest.next_if(|next| matches!(next, ',' | '\\')).unwrap_or('\\')),
            c => part.push(c),
        }
    }
    parts.push(part.into());
    parts
}

/// Writes a list so that [`parse_list`] can parse it. The result still has to be percent-encoded.
pub fn format_list<T: AsRef<str>>(parts: &[T]) -> String {
    let part = |part: &T| part.as_ref().replace('\\', "\\\\").replace(',', "\\,");
    parts.iter().map(part).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_split_at_commas() {
        assert_eq!(parse_list("a,b"), ["a", "b"]);
        assert_eq!(parse_list(""), [""]);
        assert_eq!(parse_list(r"a\,b,c\\,d\e"), ["a,b", r"c\", r"d\e"]);
    }

    proptest::proptest! {
        #[test]
        fn any_list_is_read_as_it_was_written(parts in proptest::collection::vec(".*", 1..5)) {
            proptest::prop_assert_eq!(parse_list(&format_list(&parts)), parts);
        }
    }
}
