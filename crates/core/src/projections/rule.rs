//! The rules of a declarative projection: how an event changes a record.

use bson::{Bson, Document};
use serde_json::{Map, Value};

use super::Misfit;
use super::expression::Expression;
use super::number::sum;
use crate::condition::valid_path;
use crate::{Code, Invalid, RecordedEvent};

/// The effect of one event on one record.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Rule {
    /// The record's key, if it differs from the projection's.
    pub key: Option<Expression>,
    operations: Vec<Operation>,
    deletes: bool,
}

/// A change of one field.
#[derive(Debug, Clone, PartialEq)]
struct Operation {
    kind: Kind,
    /// The field of the record.
    path: Vec<String>,
    value: Expression,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Set,
    Unset,
    Increment,
    Decrement,
    Push,
    Remove,
}

const KINDS: [(&str, Kind); 6] = [
    ("set", Kind::Set),
    ("unset", Kind::Unset),
    ("increment", Kind::Increment),
    ("decrement", Kind::Decrement),
    ("push", Kind::Push),
    ("remove", Kind::Remove),
];

/// The most operations of a rule.
const OPERATIONS_MAX: usize = 1_000;

impl Rule {
    /// Parses a rule: `{"key"?, "set"?, "unset"?, "increment"?, "decrement"?, "push"?, "remove"?}` or `{"key"?, "delete": true}`.
    pub fn read(at: &str, value: &Value) -> Result<Self, Invalid> {
        let Value::Object(fields) = value else {
            return Err(invalid(at, "is not an object of operations".to_owned()));
        };
        let mut rule = Self { key: None, operations: Vec::new(), deletes: false };
        for (name, value) in fields {
            let at = format!("{at}.{name}");
            match (name.as_str(), KINDS.iter().find(|(known, _)| known == name)) {
                (_, Some((_, kind))) => rule.read_operations(&at, *kind, value)?,
                ("key", _) => rule.key = Some(read_key(&at, value)?),
                ("delete", _) => match value {
                    Value::Bool(deletes) => rule.deletes = *deletes,
                    _ => return Err(invalid(&at, "is neither true nor false".to_owned())),
                },
                _ => {
                    let known = KINDS.map(|(name, _)| name).join(", ");
                    let message = format!("is an unknown operation; the operations are {known} and delete");
                    return Err(invalid(&at, message));
                }
            }
        }
        rule.check(at)?;
        Ok(rule)
    }

    fn read_operations(&mut self, at: &str, kind: Kind, value: &Value) -> Result<(), Invalid> {
        let mut add = |at: &str, path: &str, value: Expression| {
            valid_path(path).map_err(|why| invalid(at, why))?;
            if path == "_id" || path.starts_with("_id.") {
                return Err(invalid(at, "is the record's key, which an operation cannot change".to_owned()));
            }
            self.operations.push(Operation { kind, path: path.split('.').map(str::to_owned).collect(), value });
            Ok(())
        };
        match (kind, value) {
            (Kind::Unset, Value::Array(paths)) => paths.iter().enumerate().try_for_each(|(n, path)| {
                let at = format!("{at}[{n}]");
                let path = path.as_str().ok_or_else(|| invalid(&at, "is not the path of a field".to_owned()))?;
                add(&at, path, Expression::Constant(Bson::Null))
            }),
            (Kind::Unset, _) => Err(invalid(at, "is not an array of paths".to_owned())),
            (_, Value::Object(fields)) => fields.iter().try_for_each(|(path, value)| {
                let at = format!("{at}.{path}");
                let read = Expression::read(value).map_err(|why| invalid(&at, why))?;
                if matches!(kind, Kind::Increment | Kind::Decrement) && !can_be_number(&read) {
                    return Err(invalid(
                        &at,
                        "is neither an integer or floating-point number nor a path of the event".to_owned(),
                    ));
                }
                add(&at, path, read)
            }),
            _ => Err(invalid(at, "is not an object of fields and values".to_owned())),
        }
    }

    fn check(&mut self, at: &str) -> Result<(), Invalid> {
        // The order of operations does not depend on their order in the JSON.
        self.operations.sort_by_key(|operation| KINDS.iter().position(|(_, kind)| *kind == operation.kind));
        if self.deletes && !self.operations.is_empty() {
            let message = "deletes the record and has other operations; split it into two rules";
            return Err(invalid(at, message.to_owned()));
        }
        if self.operations.len() > OPERATIONS_MAX {
            let count = self.operations.len();
            return Err(invalid(at, format!("has {count} operations; at most {OPERATIONS_MAX} are allowed")));
        }
        let mut paths: Vec<_> = self.operations.iter().map(|operation| &operation.path).collect();
        paths.sort_unstable();
        match paths.windows(2).find(|pair| pair[1].starts_with(pair[0])) {
            None => Ok(()),
            Some(pair) => {
                let (inner, outer) = (pair[1].join("."), pair[0].join("."));
                Err(invalid(
                    at,
                    format!("changes {inner:?} and {outer:?} at once; each field is changed by one operation"),
                ))
            }
        }
    }

    /// Applies the rule to a record. After an error the state of the record is undefined.
    pub fn apply(&self, record: &mut Option<Document>, event: &RecordedEvent) -> Result<(), Misfit> {
        if self.deletes {
            *record = None;
            return Ok(());
        }
        let record = record.get_or_insert_with(Document::new);
        self.operations.iter().try_for_each(|operation| operation.apply(record, event))
    }
}

/// Parses the expression of a key.
pub(super) fn read_key(at: &str, value: &Value) -> Result<Expression, Invalid> {
    let key = Expression::read(value).map_err(|why| invalid(at, why))?;
    match key {
        Expression::Array(_) | Expression::Constant(Bson::Array(_) | Bson::RegularExpression(_) | Bson::Undefined) => {
            Err(invalid(at, "cannot be the key of a record".to_owned()))
        }
        key => Ok(key),
    }
}

fn can_be_number(value: &Expression) -> bool {
    match value {
        Expression::Path(_) => true,
        Expression::Constant(value) => matches!(value, Bson::Int32(_) | Bson::Int64(_) | Bson::Double(_)),
        Expression::Document(_) | Expression::Array(_) => false,
    }
}

fn invalid(at: &str, message: String) -> Invalid {
    Invalid::new(Code::InvalidProjection, at, message)
}

impl Operation {
    fn apply(&self, record: &mut Document, event: &RecordedEvent) -> Result<(), Misfit> {
        if self.kind == Kind::Unset {
            unset(record, &self.path);
            return Ok(());
        }
        // A missing value changes nothing.
        let Some(value) = self.value.value(event) else { return Ok(()) };
        let misfit = |message: String| Misfit::new(self.name(), message);
        match self.kind {
            Kind::Set => self.set(record, value),
            Kind::Increment | Kind::Decrement => {
                let known = get(record, &self.path).unwrap_or(&Bson::Int64(0));
                let sum = sum(known, &value, self.kind == Kind::Decrement).map_err(misfit)?;
                self.set(record, sum)
            }
            Kind::Push => match get_mut(record, &self.path) {
                Some(Bson::Array(values)) => {
                    values.push(value);
                    Ok(())
                }
                None => self.set(record, Bson::Array(vec![value])),
                Some(other) => Err(misfit(format!("the record has {}, which is not an array", shown(other)))),
            },
            Kind::Remove => match get_mut(record, &self.path) {
                Some(Bson::Array(values)) => {
                    values.retain(|known| !is_meant(known, &value));
                    Ok(())
                }
                None => Ok(()),
                Some(other) => Err(misfit(format!("the record has {}, which is not an array", shown(other)))),
            },
            Kind::Unset => Ok(()),
        }
    }

    fn name(&self) -> String {
        let kind = KINDS.iter().find(|(_, kind)| *kind == self.kind).map_or("", |(name, _)| name);
        format!("{kind}.{}", self.path.join("."))
    }

    /// Sets a field, and creates missing documents on its path.
    fn set(&self, record: &mut Document, value: Bson) -> Result<(), Misfit> {
        let Some((last, way)) = self.path.split_last() else { return Ok(()) };
        let mut document = record;
        for (depth, name) in way.iter().enumerate() {
            let inner = document.entry(name.clone()).or_insert_with(|| Bson::Document(Document::new()));
            document = match inner {
                Bson::Document(inner) => inner,
                other => {
                    let at = self.path[..=depth].join(".");
                    let message = format!("the record has {} at {at:?}, which is not a document", shown(other));
                    return Err(Misfit::new(self.name(), message));
                }
            };
        }
        match document.get_mut(last) {
            Some(known) => *known = value,
            None => _ = document.insert(last.clone(), value),
        }
        Ok(())
    }
}

fn get<'d>(document: &'d Document, path: &[String]) -> Option<&'d Bson> {
    let (first, rest) = path.split_first()?;
    match (document.get(first)?, rest) {
        (value, []) => Some(value),
        (Bson::Document(inner), rest) => get(inner, rest),
        _ => None,
    }
}

fn get_mut<'d>(document: &'d mut Document, path: &[String]) -> Option<&'d mut Bson> {
    let (first, rest) = path.split_first()?;
    match (document.get_mut(first)?, rest) {
        (value, []) => Some(value),
        (Bson::Document(inner), rest) => get_mut(inner, rest),
        _ => None,
    }
}

fn unset(document: &mut Document, path: &[String]) {
    let Some((first, rest)) = path.split_first() else { return };
    match (rest, document.get_mut(first)) {
        ([], _) => _ = document.remove(first),
        (rest, Some(Bson::Document(inner))) => unset(inner, rest),
        _ => {}
    }
}

/// Returns whether an element must be removed: it equals the value, or contains all of its fields.
fn is_meant(element: &Bson, wanted: &Bson) -> bool {
    match (element, wanted) {
        (Bson::Document(element), Bson::Document(wanted)) => {
            wanted.iter().all(|(name, value)| element.get(name).is_some_and(|field| equal(field, value)))
        }
        (element, wanted) => equal(element, wanted),
    }
}

/// Returns whether two values compare as equal, whatever the types of their numbers.
fn equal(a: &Bson, b: &Bson) -> bool {
    a == b || super::key_bytes(a).is_some_and(|bytes| Some(bytes) == super::key_bytes(b))
}

/// Formats a value for a message, shortened to 80 characters.
pub(super) fn shown(value: &Bson) -> String {
    let text = value.to_string();
    match text.char_indices().nth(80) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// Parses the rules of one event type.
pub(super) fn read_rules(at: &str, value: &Value) -> Result<Vec<Rule>, Invalid> {
    match value {
        Value::Array(rules) if rules.is_empty() => Err(invalid(at, "has no rule".to_owned())),
        Value::Array(rules) => {
            rules.iter().enumerate().map(|(n, rule)| Rule::read(&format!("{at}[{n}]"), rule)).collect()
        }
        rule => Ok(vec![Rule::read(at, rule)?]),
    }
}

/// Parses `on`: event types and their rules.
pub(super) fn read_on(on: &Map<String, Value>) -> Result<Vec<(String, Vec<Rule>)>, Invalid> {
    on.iter().map(|(name, rules)| Ok((name.clone(), read_rules(&format!("on.{name}"), rules)?))).collect()
}
