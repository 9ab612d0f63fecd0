//! Query parameters: each must be known, given once, and of its type.
//!
//! A handler takes a [`Query`] of a struct whose fields are its parameters; the struct should have `deny_unknown_fields`. The OpenAPI
//! document is generated from the same struct.

use std::collections::HashSet;

use annals_core::{AggregateFilter, ByteString, Code, Filter, Invalid, Timestamp, limits, wire::parse_list};
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use utoipa::{IntoParams, ToSchema};

use crate::problem::Problem;

/// The query parameters of one request.
#[derive(Debug)]
pub(crate) struct Query<T>(pub T);

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        read(parts.uri.query()).map(Self)
    }
}

/// Parses a query string. A parameter without a value (`?last`) is an empty text, which a switch reads as true.
pub(crate) fn read<T: DeserializeOwned>(raw: Option<&str>) -> Result<T, Problem> {
    let raw = raw.unwrap_or_default();
    // The deserialiser replaces invalid UTF-8 and does not report repeated parameters.
    check(raw)?;
    let query = serde_html_form::Deserializer::from_bytes(raw.as_bytes());
    serde_path_to_error::deserialize(query).map_err(|error| {
        let name = error.path().to_string();
        let message = error.into_inner().to_string();
        match message.strip_prefix(TIME) {
            Some(message) => Invalid::new(Code::InvalidTime, name, message).into(),
            None => Problem::query(&name, message.replacen(&format!("unknown field `{name}`, "), "is unknown; ", 1)),
        }
    })
}

/// Returns the value of one parameter without checking the others.
pub(crate) fn parameter(raw: Option<&str>, name: &str) -> Option<String> {
    let pairs = raw.unwrap_or_default().split('&');
    let found = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    found.filter(|(key, _)| decode(key).as_deref() == Some(name)).find_map(|(_, value)| decode(value))
}

/// Refuses every parameter.
pub(crate) fn none(raw: Option<&str>) -> Result<(), Problem> {
    let raw = raw.unwrap_or_default();
    check(raw)?;
    match raw.split('&').find(|pair| !pair.is_empty()) {
        None => Ok(()),
        Some(pair) => {
            let name = decode(pair.split('=').next().unwrap_or_default()).unwrap_or_default();
            Err(Problem::query(&name, "is unknown; this endpoint has no parameters"))
        }
    }
}

/// Checks that every parameter is percent-encoded UTF-8 and given once.
fn check(raw: &str) -> Result<(), Problem> {
    let mut seen = HashSet::new();
    for pair in raw.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let name = decode(name).ok_or_else(|| Problem::query(name, NOT_ENCODED))?;
        if decode(value).is_none() {
            return Err(Problem::query(&name, NOT_ENCODED));
        }
        if seen.contains(&name) {
            return Err(Problem::query(
                &name,
                "is repeated; send it once, and separate the values of a list by commas",
            ));
        }
        seen.insert(name);
    }
    Ok(())
}

const NOT_ENCODED: &str = "is not percent-encoded UTF-8; write a % itself as %25";
/// The prefix that marks an invalid time, because serde's errors have no code.
const TIME: &str = "invalid_time: ";

/// A query without parameters of its own but the scope.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScopeQuery {
    /// The scope to read; `default` when absent.
    pub scope: Option<String>,
}

/// A whole number from 0 to 2^64 - 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ToSchema)]
#[schema(value_type = u64)]
pub(crate) struct Number(pub u64);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        digits(&String::deserialize(deserializer)?).map(Self).map_err(D::Error::custom)
    }
}

/// The place where a follower begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum From {
    /// A sequence number.
    Number(u64),
    /// The head.
    End,
}

impl<'de> Deserialize<'de> for From {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match &*String::deserialize(deserializer)? {
            "end" => Ok(Self::End),
            text => digits(text)
                .map(Self::Number)
                .map_err(|message| D::Error::custom(format_args!("{message}, and not the word end"))),
        }
    }
}

/// The parameters of a list in order of names.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListQuery {
    /// Resumes after this name or key.
    pub after: Option<String>,
    /// The length of the page: 1 to 1,000, 100 when absent.
    #[param(inline)]
    pub limit: Option<Limit>,
}

/// The length of a page. A number that memory cannot count is past every limit, which the check of the page then says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ToSchema)]
#[schema(value_type = u64, minimum = 1)]
pub(crate) struct Limit(pub usize);

impl Limit {
    /// Returns the limit, or the default page size.
    pub fn or_default(limit: Option<Self>) -> usize {
        limit.map_or(limits::PAGE_DEFAULT, |limit| limit.0)
    }
}

impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Number::deserialize(deserializer).map(|number| Self(usize::try_from(number.0).unwrap_or(usize::MAX)))
    }
}

/// An RFC 3339 time.
#[derive(Debug, Clone, Copy, PartialEq, ToSchema)]
#[schema(value_type = String, format = DateTime)]
pub(crate) struct Time(pub Timestamp);

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let plus = if text.contains(' ') { "; a + in a query is a space, so write it as %2B" } else { "" };
        Timestamp::parse(&text).map(Self).map_err(|message| D::Error::custom(format_args!("{TIME}{message}{plus}")))
    }
}

/// A switch: `name` or `name=true` is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ToSchema)]
#[schema(value_type = bool)]
pub(crate) struct Switch(pub bool);

impl Switch {
    /// Returns whether the switch is given and on.
    pub fn is_on(switch: Option<Self>) -> bool {
        switch.is_some_and(|switch| switch.0)
    }
}

impl<'de> Deserialize<'de> for Switch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match &*String::deserialize(deserializer)? {
            "" | "true" => Ok(Self(true)),
            "false" => Ok(Self(false)),
            other => Err(D::Error::custom(format_args!("{other:?} is neither true nor false"))),
        }
    }
}

/// Whether a read starts from the end of a range: a switch or a count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Last {
    No,
    /// `last` or `last=true`.
    Yes,
    /// `last=n`.
    Count(usize),
}

impl<'de> Deserialize<'de> for Last {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match &*String::deserialize(deserializer)? {
            "" | "true" => Ok(Self::Yes),
            "false" => Ok(Self::No),
            text => match digits(text) {
                Ok(count) => Ok(Self::Count(usize::try_from(count).unwrap_or(usize::MAX))),
                Err(_) => Err(D::Error::custom(format_args!("{text:?} is neither true, false nor a number"))),
            },
        }
    }
}

/// Texts with commas between them; `\,` is a comma in a text.
#[derive(Debug, Clone, PartialEq, Eq, ToSchema)]
#[schema(value_type = String)]
pub(crate) struct List(Vec<ByteString>);

impl<'de> Deserialize<'de> for List {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self(parse_list(&text)))
    }
}

impl List {
    /// Returns the texts.
    pub fn texts(self) -> Vec<String> {
        self.0.iter().map(ToString::to_string).collect()
    }
}

/// Builds and validates the filter of `types`, `tags` and `aggregate`.
pub(crate) fn filter(types: Option<List>, tags: Option<List>, aggregate: Option<&str>) -> Result<Filter, Problem> {
    let list = |list: Option<List>| list.map(|list| list.0).unwrap_or_default();
    let aggregate = aggregate.map(|text| match text.split_once('/') {
        Some((name, id)) => AggregateFilter { name: name.into(), id: Some(ByteString::from(id)) },
        None => AggregateFilter { name: text.into(), id: None },
    });
    checked(Filter { types: list(types), tags: list(tags), aggregate })
}

/// Validates a filter, and limits what it may cost.
pub(crate) fn checked(filter: Filter) -> Result<Filter, Problem> {
    for (name, count) in [("types", filter.types.len()), ("tags", filter.tags.len())] {
        if count > limits::FILTER_TERMS_MAX {
            let message = format!("has {count} entries; at most {} are allowed", limits::FILTER_TERMS_MAX);
            return Err(Problem::query(name, message));
        }
    }
    filter.validate()?;
    Ok(filter)
}

/// Parses a whole number in a path or header.
pub(crate) fn number(name: &str, text: &str) -> Result<u64, Problem> {
    digits(text).map_err(|message| Problem::query(name, message))
}

/// Parses a whole number, which must consist of digits only.
fn digits(text: &str) -> Result<u64, String> {
    let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let number = text.parse().ok().filter(|_| plain);
    number.ok_or_else(|| format!("{text:?} is not a whole number from 0 to {}", u64::MAX))
}

/// Decodes a name or value of a query string. Returns `None` if it is not percent-encoded UTF-8.
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

/// Returns whether a path is percent-encoded UTF-8, as routes expect.
pub(crate) fn path_is_encoded(path: &str) -> bool {
    // A `+` is literal in a path, but that does not affect whether it decodes.
    !path.contains('%') || decode(path).is_some()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Asked {
        from: Option<Number>,
        last: Option<Last>,
        tags: Option<List>,
        scope: Option<String>,
        backwards: Option<Switch>,
        time: Option<Time>,
    }

    fn asked(raw: &str) -> Result<Asked, Problem> {
        read(Some(raw))
    }

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
        assert_eq!(asked("from=7&last").expect("valid").from, Some(Number(7)));
        for bad in ["from=", "from=+1", "from=-1", "from=1.0", "from=18446744073709551616", "from"] {
            assert!(asked(bad).is_err(), "{bad}");
        }
        for bad in ["color=1", "from=1&from=1", "from=%zz", "%zz=1", "backwards=1", "last=x"] {
            let problem = asked(bad).expect_err(bad);
            assert_eq!(problem.code(), Code::InvalidQuery, "{bad}");
        }
        for (text, last) in [
            ("", None),
            ("last", Some(Last::Yes)),
            ("last=true", Some(Last::Yes)),
            ("last=false", Some(Last::No)),
            ("last=3", Some(Last::Count(3))),
        ] {
            assert_eq!(asked(text).expect("valid").last, last, "{text}");
        }
        for (text, on) in [("backwards", true), ("backwards=true", true), ("backwards=false", false), ("", false)] {
            assert_eq!(Switch::is_on(asked(text).expect("valid").backwards), on, "{text}");
        }
        assert_eq!(asked("scope=a%20b&&").expect("valid").scope, Some("a b".to_owned()));
        assert!(asked("time=2026-03-01T12:00:00%2B01:00").expect("valid").time.is_some());
        let filter = filter(None, asked(r"tags=a%5C,b,c").expect("valid").tags, None).expect("valid");
        assert_eq!(filter.tags, ["a,b", "c"]);
    }

    #[test]
    fn a_refused_parameter_is_named_and_the_message_says_what_would_be_right() {
        for (raw, path, message) in [
            ("color=1", "color", "is unknown; expected one of `from`, `last`"),
            ("from=x", "from", "\"x\" is not a whole number from 0 to 18446744073709551615"),
            ("tags=a&tags=b", "tags", "is repeated; send it once, and separate the values of a list by commas"),
        ] {
            let shown = serde_json::to_value(asked(raw).expect_err(raw)).expect("JSON");
            assert_eq!(shown["path"], path, "{shown}");
            assert!(shown["detail"].as_str().is_some_and(|detail| detail.contains(message)), "{shown}");
        }
        let time = asked("time=noon").expect_err("no time");
        assert_eq!(time.code(), Code::InvalidTime);
        assert!(none(None).is_ok() && none(Some("")).is_ok());
        let shown = serde_json::to_value(none(Some("a%20b=1")).expect_err("a parameter")).expect("JSON");
        assert_eq!(shown["path"], "a b");
    }
}
