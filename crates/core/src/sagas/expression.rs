//! Expressions in the definition of a saga: constants, paths, and documents and arrays of both.

use bson::{Bson, Document};
use serde_json::Value;

use crate::condition::valid_path;
use crate::limits;
use crate::wire::records::extended_value;

/// An expression that is evaluated when a step runs.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Expression {
    /// The same value for every saga.
    Constant(Bson),
    /// The value at a path of the scope.
    Path(Vec<String>),
    /// A document of expressions.
    Document(Vec<(String, Expression)>),
    /// An array of expressions.
    Array(Vec<Expression>),
}

/// The names with which the paths of an expression may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// The fields of an event, under their API names.
    Event,
    /// `context` and `saga`.
    Saga,
}

const EVENT_FIELDS: [&str; 18] = [
    "sequence_number",
    "id",
    "type",
    "generation",
    "data",
    "tags",
    "aggregate",
    "version",
    "ordinal",
    "commit_id",
    "time",
    "metadata",
    "header",
    "tenant_id",
    "owner_id",
    "space_id",
    "request_id",
    "correlation_id",
];
const SAGA_FIELDS: [&str; 6] = ["id", "name", "execution_id", "step", "attempt", "cause"];

impl Scope {
    fn check(self, path: &[String]) -> Result<(), String> {
        let text = path.join(".");
        let (root, second) = (path[0].as_str(), path.get(1).map(String::as_str));
        match self {
            Self::Event if EVENT_FIELDS.contains(&root) => Ok(()),
            Self::Event => {
                Err(format!("\"${text}\" is not a field of an event; the fields are {}", EVENT_FIELDS.join(", ")))
            }
            Self::Saga if root == "context" => Ok(()),
            Self::Saga if root == "saga" && path.len() == 2 && second.is_some_and(|it| SAGA_FIELDS.contains(&it)) => {
                Ok(())
            }
            Self::Saga => {
                let fields = SAGA_FIELDS.map(|field| format!("saga.{field}")).join(", ");
                Err(format!("\"${text}\" is not a field of a saga; the fields are context.PATH, {fields}"))
            }
        }
    }
}

impl Expression {
    /// Parses an expression. A string that begins with `$` is a path; `{"$literal": …}` is a literal value.
    pub fn read(value: &Value, scope: Scope) -> Result<Self, String> {
        Self::read_at(value, scope, 0)
    }

    fn read_at(value: &Value, scope: Scope, depth: usize) -> Result<Self, String> {
        if depth >= limits::DATA_DEPTH_MAX {
            return Err(format!("is nested deeper than {}", limits::DATA_DEPTH_MAX));
        }
        match value {
            Value::String(text) if text.starts_with('$') => {
                valid_path(&text[1..]).map_err(|why| format!("{text:?} {why}"))?;
                let path: Vec<_> = text[1..].split('.').map(str::to_owned).collect();
                scope.check(&path)?;
                Ok(Self::Path(path))
            }
            Value::Object(fields) => match fields.get("$literal") {
                Some(literal) if fields.len() == 1 => Ok(Self::Constant(constant(literal)?)),
                Some(_) => Err("has other fields beside $literal".to_owned()),
                None if fields.keys().any(|name| name.starts_with('$')) => match constant(value) {
                    Ok(Bson::Document(_)) | Err(_) => {
                        Err("has a field that begins with $ and is neither $literal nor Extended JSON".to_owned())
                    }
                    Ok(value) => Ok(Self::Constant(value)),
                },
                None => {
                    let read =
                        |(name, value): (&String, &Value)| Ok((name.clone(), Self::read_at(value, scope, depth + 1)?));
                    Ok(Self::Document(fields.iter().map(read).collect::<Result<_, String>>()?))
                }
            },
            Value::Array(values) => {
                let read = values.iter().map(|value| Self::read_at(value, scope, depth + 1));
                Ok(Self::Array(read.collect::<Result<_, String>>()?))
            }
            other => Ok(Self::Constant(constant(other)?)),
        }
    }

    /// Evaluates the expression.
    ///
    /// # Errors
    /// A sentence that names the path that has no value.
    pub fn value(&self, scope: &Document) -> Result<Bson, String> {
        match self {
            Self::Constant(value) => Ok(value.clone()),
            Self::Path(path) => at(scope, path).cloned().ok_or_else(|| format!("there is no ${}", path.join("."))),
            Self::Document(fields) => {
                let field = |(name, field): &(String, Self)| Ok((name.clone(), field.value(scope)?));
                Ok(Bson::Document(fields.iter().map(field).collect::<Result<Document, String>>()?))
            }
            Self::Array(values) => {
                Ok(Bson::Array(values.iter().map(|value| value.value(scope)).collect::<Result<_, _>>()?))
            }
        }
    }

    /// Evaluates the expression to a string; the value must be a string or an integer.
    ///
    /// # Errors
    /// A sentence that says why it has no such value.
    pub fn text(&self, scope: &Document) -> Result<String, String> {
        match self.value(scope)? {
            Bson::String(text) => Ok(text),
            Bson::Int32(number) => Ok(number.to_string()),
            Bson::Int64(number) => Ok(number.to_string()),
            other => Err(format!("{other} is neither a string nor a whole number")),
        }
    }
}

fn constant(value: &Value) -> Result<Bson, String> {
    extended_value(&value.to_string())
}

fn at<'d>(document: &'d Document, path: &[String]) -> Option<&'d Bson> {
    let (last, way) = path.split_last()?;
    let mut document = document;
    for name in way {
        document = document.get_document(name).ok()?;
    }
    document.get(last)
}
