//! Query parameters: each known, given once, and of its type.

use annals_core::{AggregateFilter, ByteString, Code, Filter, Invalid, Timestamp, wire::parse_list};

use crate::problem::Problem;

/// The query parameters of one request.
pub(crate) struct Query(Vec<(String, Option<String>)>);

impl Query {
    /// Reads a query string whose parameters are among `known`. A parameter may stand without a value (`?last`).
    pub fn parse(raw: Option<&str>, known: &[&str]) -> Result<Self, Problem> {
        let mut pairs: Vec<(String, Option<String>)> = Vec::new();
        for pair in raw.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = match pair.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (pair, None),
            };
            let name = decode(name).ok_or_else(|| Problem::query(name, NOT_ENCODED))?;
            if !known.contains(&name.as_str()) {
                return Err(unknown(&name, known));
            }
            if pairs.iter().any(|(seen, _)| *seen == name) {
                return Err(Problem::query(&name, "given twice; give it once, a list with commas"));
            }
            let value = match value {
                Some(value) => Some(decode(value).ok_or_else(|| Problem::query(&name, NOT_ENCODED))?),
                None => None,
            };
            pairs.push((name, value));
        }
        Ok(Self(pairs))
    }

    fn get(&self, name: &str) -> Option<Option<&str>> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_deref())
    }

    /// A parameter that must have a value.
    pub fn text(&self, name: &str) -> Result<Option<&str>, Problem> {
        match self.get(name) {
            None => Ok(None),
            Some(Some(value)) => Ok(Some(value)),
            Some(None) => Err(Problem::query(name, format!("has no value; write {name}=…"))),
        }
    }

    pub fn number(&self, name: &str) -> Result<Option<u64>, Problem> {
        self.text(name)?.map(|text| number(name, text)).transpose()
    }

    pub fn limit(&self, name: &str) -> Result<Option<usize>, Problem> {
        // What does not fit is past every limit, which the query's own check then says.
        Ok(self.number(name)?.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX)))
    }

    pub fn time(&self, name: &str) -> Result<Option<Timestamp>, Problem> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        Timestamp::parse(text).map(Some).map_err(|mut message| {
            if text.contains(' ') {
                message.push_str("; a + in a query is a space, so write it as %2B");
            }
            Invalid::new(Code::InvalidTime, name, message).into()
        })
    }

    /// A switch: `name` or `name=true` is on.
    pub fn switch(&self, name: &str) -> Result<bool, Problem> {
        match self.get(name) {
            None | Some(Some("false")) => Ok(false),
            Some(None | Some("true")) => Ok(true),
            Some(Some(other)) => Err(Problem::query(name, format!("{other:?} is neither true nor false"))),
        }
    }

    /// `last`, which is a switch or a number.
    pub fn last(&self) -> Result<Last, Problem> {
        match self.get("last") {
            None | Some(Some("false")) => Ok(Last::No),
            Some(None | Some("true")) => Ok(Last::Yes),
            Some(Some(text)) => match number("last", text) {
                Ok(count) => Ok(Last::Count(usize::try_from(count).unwrap_or(usize::MAX))),
                Err(_) => Err(Problem::query("last", format!("{text:?} is neither true, false nor a number"))),
            },
        }
    }

    /// `types`, `tags` and `aggregate`, checked.
    pub fn filter(&self) -> Result<Filter, Problem> {
        let list = |name| Ok::<_, Problem>(self.text(name)?.map(parse_list).unwrap_or_default());
        let aggregate = self.text("aggregate")?.map(|text| match text.split_once('/') {
            Some((name, id)) => AggregateFilter { name: name.into(), id: Some(ByteString::from(id)) },
            None => AggregateFilter { name: text.into(), id: None },
        });
        let filter = Filter { types: list("types")?, tags: list("tags")?, aggregate };
        filter.validate()?;
        Ok(filter)
    }
}

/// Whether the end of a range is wanted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Last {
    No,
    /// `last` or `last=true`.
    Yes,
    /// `last=n`.
    Count(usize),
}

const NOT_ENCODED: &str = "is not percent-encoded UTF-8; write a % itself as %25";

fn unknown(name: &str, known: &[&str]) -> Problem {
    let message = match known {
        [] => "is unknown; this address takes no parameters".to_owned(),
        known => format!("is unknown; this address takes {}", known.join(", ")),
    };
    Problem::query(name, message)
}

/// A whole number from 0 in plain digits.
pub(crate) fn number(name: &str, text: &str) -> Result<u64, Problem> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    text.parse()
        .ok()
        .filter(|_| digits)
        .ok_or_else(|| Problem::query(name, format!("{text:?} is not a whole number from 0 to {}", u64::MAX)))
}

/// Decodes a name or value of a query string; none when it is not percent-encoded UTF-8.
fn decode(text: &str) -> Option<String> {
    if !text.contains(['%', '+']) {
        return Some(text.to_owned());
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'+' => out.push(b' '),
            b'%' => {
                let (high, low) = (hex(*rest.first()?)?, hex(*rest.get(1)?)?);
                out.push(high << 4 | low);
                rest = &rest[2..];
            }
            byte => out.push(byte),
        }
    }
    String::from_utf8(out).ok()
}

/// Whether a path is percent-encoded UTF-8, which is what routes decode it as.
pub(crate) fn path_is_encoded(path: &str) -> bool {
    // A + stands for itself in a path, but that does not change whether it decodes.
    !path.contains('%') || decode(path).is_some()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_decoded_strictly() {
        assert_eq!(decode("a+b%20%C5%BE"), Some("a b ž".to_owned()));
        for bad in ["%", "%2", "%zz", "%C5", "a%"] {
            assert_eq!(decode(bad), None, "{bad}");
        }
        assert!(path_is_encoded("/v1/a%2Fb"));
        assert!(!path_is_encoded("/v1/%c3%28"));
    }

    #[test]
    fn a_parameter_is_known_given_once_and_of_its_type() {
        let parse = |raw| Query::parse(Some(raw), &["from", "last", "tags"]);
        assert_eq!(parse("from=7&last").and_then(|q| q.number("from")).expect("valid"), Some(7));
        for bad in ["from=", "from=+1", "from=-1", "from=1.0", "from=18446744073709551616", "from"] {
            assert!(parse(bad).and_then(|q| q.number("from")).is_err(), "{bad}");
        }
        for bad in ["color=1", "from=1&from=1", "from=%zz", "%zz=1"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        for (text, last) in [("", Last::No), ("last", Last::Yes), ("last=true", Last::Yes), ("last=3", Last::Count(3))]
        {
            assert_eq!(parse(text).and_then(|q| q.last()).expect("valid"), last, "{text}");
        }
        let filter = parse(r"tags=a%5C,b,c").and_then(|q| q.filter()).expect("valid");
        assert_eq!(filter.tags, ["a,b", "c"]);
    }
}
