//! Keywords that are compared by themselves, without looking at other schemas.

use serde_json::{Map, Value};

use super::{Break, LOWER, UPPER, broken};

/// Keywords that apply only to what another keyword of the same schema leaves over, each with that other keyword. A schema that keeps the
/// first and loses the second accepts less.
const LEFT_OVER: [(&str, &str); 3] =
    [("additionalProperties", "patternProperties"), ("items", "prefixItems"), ("contains", "minContains")];

/// Returns whether a schema accepts every value.
pub(super) fn accepts_all(schema: &Value) -> bool {
    matches!(schema, Value::Bool(true)) || schema.as_object().is_some_and(Map::is_empty)
}

/// Returns a keyword that the old schema has and the new one lacks, although another keyword of the new one applies to what it left over.
/// The lost `properties` are compared one by one elsewhere.
pub(super) fn uncovered(old: &Map<String, Value>, new: &Map<String, Value>) -> Option<&'static str> {
    let limits = |name: &str| new.get(name).is_some_and(|limit| name == "contains" || !accepts_all(limit));
    // Without `minContains`, at least one element has to match.
    let matters = |name: &str, before: &Value| name != "minContains" || before.as_f64().is_none_or(|least| least < 1.0);
    let lost = |name: &str| !new.contains_key(name) && old.get(name).is_some_and(|before| matters(name, before));
    LEFT_OVER.iter().find(|(limit, part)| limits(limit) && lost(part)).map(|(_, part)| *part)
}

/// Returns the names in `type`.
fn named_types(schema: &Map<String, Value>) -> Option<Vec<String>> {
    match schema.get("type")? {
        Value::String(one) => Some(vec![one.clone()]),
        Value::Array(all) => Some(all.iter().filter_map(|name| Some(name.as_str()?.to_owned())).collect()),
        _ => None,
    }
}

/// Returns the types of the values that a schema accepts: those it names, else those of its constants. Returns `None` if it accepts any.
pub(super) fn kinds(schema: &Map<String, Value>) -> Option<Vec<String>> {
    named_types(schema).or_else(|| Some(constants(schema)?.iter().map(|value| type_of(value).to_owned()).collect()))
}

/// Returns the names of the fields that a schema requires.
pub(super) fn required(schema: &Map<String, Value>) -> impl Iterator<Item = &str> {
    schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

pub(super) fn types(old: &Map<String, Value>, new: &Map<String, Value>, path: &str) -> Option<Break> {
    let now = named_types(new)?;
    let list = || now.join(" or ");
    let Some(before) = kinds(old) else {
        return broken(path, format!("is {} now, and could be anything before", list()));
    };
    let is_accepted = |name: &String| now.contains(name) || (name == "integer" && now.iter().any(|it| it == "number"));
    let lost = before.iter().find(|name| !is_accepted(name))?;
    broken(path, format!("is {} now, and could be {lost} before", list()))
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Returns the only values that a schema accepts; `None` if it does not list them.
pub(super) fn constants(schema: &Map<String, Value>) -> Option<Vec<Value>> {
    match (schema.get("const"), schema.get("enum")) {
        (Some(value), Some(Value::Array(values))) => Some(values.iter().filter(|it| *it == value).cloned().collect()),
        (Some(value), _) => Some(vec![value.clone()]),
        (None, Some(Value::Array(values))) => Some(values.clone()),
        _ => None,
    }
}

pub(super) fn values(old: &Map<String, Value>, new: &Map<String, Value>, path: &str) -> Option<Break> {
    let now = constants(new)?;
    let Some(before) = constants(old) else {
        return broken(path, "accepts certain values only, and accepted any before");
    };
    let lost = before.iter().find(|value| !now.contains(value))?;
    broken(path, format!("no longer accepts {lost}"))
}

pub(super) fn bounds(old: &Map<String, Value>, new: &Map<String, Value>, path: &str) -> Option<Break> {
    let tighter = |name: &str, is_tighter: fn(f64, f64) -> bool| {
        let (before, Some(now)) = (old.get(name), new.get(name)) else { return false };
        match (before.and_then(Value::as_f64), now.as_f64()) {
            (Some(before), Some(now)) => is_tighter(now, before),
            // Draft 4 has bounds that are true or false.
            _ => before != Some(now),
        }
    };
    let narrowed = LOWER.iter().find(|name| tighter(name, |now, before| now > before));
    let narrowed = narrowed.or_else(|| UPPER.iter().find(|name| tighter(name, |now, before| now < before)));
    broken(path, format!("has a different {}, which may refuse values of earlier events", narrowed?))
}
