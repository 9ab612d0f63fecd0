//! Conditions on documents: which records a reader or a change means.

mod document;
mod json;
mod matcher;
mod path;

#[cfg(test)]
mod tests;

use bson::{Bson, RawBson};

use crate::{Code, Invalid, limits};

pub(crate) use document::{as_it_is, read as read_condition};
pub use matcher::Matcher;

/// A condition on a document, with MongoDB's meaning on every backend.
///
/// A path names a field, and with dots a field inside it (`state.owner.name`); a number names an element of an array
/// (`lines.0.price`). Where a path leads to an array, the array and each of its elements are tested, and one that passes is enough;
/// where it leads through an array, every element is followed. Values of different types never pass `Gt`, `Gte`, `Lt` and `Lte`;
/// numbers are one type. A missing field is null. `Ne`, `NotIn` and `Nor` are the opposites of `Eq`, `In` and `Or`, so documents
/// without the field pass them.
///
/// As JSON it is `{"field", "operator", "value", "children"}`, with values as Extended JSON, for example
/// `{"operator":"AND","children":[{"field":"state.total","operator":"GT","value":5},{"field":"tags","operator":"EQ","value":"new"}]}`.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
#[allow(clippy::large_enum_variant, reason = "nearly all of them are fields")]
pub enum Condition {
    /// Every document.
    #[default]
    All,
    /// All of these hold.
    And(Vec<Condition>),
    /// At least one of these holds.
    Or(Vec<Condition>),
    /// None of these holds.
    Nor(Vec<Condition>),
    /// A field passes a test.
    Field {
        /// Where the field is.
        path: String,
        /// What it must pass.
        test: Test,
    },
}

/// What a field must pass.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Test {
    /// Is equal to the value; null is equal to a missing field.
    Eq(Bson),
    /// Is not equal to the value.
    Ne(Bson),
    /// Is greater than the value, and of its type.
    Gt(Bson),
    /// Is greater than the value or equal to it, and of its type.
    Gte(Bson),
    /// Is less than the value, and of its type.
    Lt(Bson),
    /// Is less than the value or equal to it, and of its type.
    Lte(Bson),
    /// Is equal to one of the values.
    In(Vec<Bson>),
    /// Is equal to none of the values.
    NotIn(Vec<Bson>),
    /// Is not less than the first and not greater than the second. In an array, each end may be kept by another element.
    Between(Bson, Bson),
    /// Is there, null or not; or is missing.
    Exists(bool),
}

macro_rules! field_tests {
    ($($(#[$doc:meta])* $name:ident $test:ident)+) => {
        $($(#[$doc])*
        pub fn $name(path: impl Into<String>, value: impl Into<Bson>) -> Self {
            Self::field(path, Test::$test(value.into()))
        })+
    };
}

impl Condition {
    /// A field passes a test.
    pub fn field(path: impl Into<String>, test: Test) -> Self {
        Self::Field { path: path.into(), test }
    }

    field_tests! {
        /// The field is equal to the value; null is equal to a missing field.
        eq Eq
        /// The field is not equal to the value.
        ne Ne
        /// The field is greater than the value.
        gt Gt
        /// The field is greater than the value or equal to it.
        gte Gte
        /// The field is less than the value.
        lt Lt
        /// The field is less than the value or equal to it.
        lte Lte
    }

    /// The field is equal to one of the values.
    pub fn is_in<V: Into<Bson>>(path: impl Into<String>, values: impl IntoIterator<Item = V>) -> Self {
        Self::field(path, Test::In(values.into_iter().map(Into::into).collect()))
    }

    /// The field is equal to none of the values.
    pub fn not_in<V: Into<Bson>>(path: impl Into<String>, values: impl IntoIterator<Item = V>) -> Self {
        Self::field(path, Test::NotIn(values.into_iter().map(Into::into).collect()))
    }

    /// The field is not less than `low` and not greater than `high`.
    pub fn between(path: impl Into<String>, low: impl Into<Bson>, high: impl Into<Bson>) -> Self {
        Self::field(path, Test::Between(low.into(), high.into()))
    }

    /// The field is there.
    pub fn exists(path: impl Into<String>) -> Self {
        Self::field(path, Test::Exists(true))
    }

    /// The field is not there.
    pub fn missing(path: impl Into<String>) -> Self {
        Self::field(path, Test::Exists(false))
    }

    /// All of these hold: one stays itself, none is every document.
    pub fn and(conditions: impl IntoIterator<Item = Condition>) -> Self {
        let mut all: Vec<_> = conditions.into_iter().filter(|condition| *condition != Self::All).collect();
        match all.pop() {
            None => Self::All,
            Some(only) if all.is_empty() => only,
            Some(last) => {
                all.push(last);
                Self::And(all)
            }
        }
    }

    /// At least one of these holds.
    pub fn or(conditions: impl IntoIterator<Item = Condition>) -> Self {
        Self::Or(conditions.into_iter().collect())
    }

    /// None of these holds.
    pub fn nor(conditions: impl IntoIterator<Item = Condition>) -> Self {
        Self::Nor(conditions.into_iter().collect())
    }

    /// Checks everything that can be checked without a document.
    ///
    /// # Errors
    /// `invalid_condition`, with the place inside the condition.
    pub fn validate(&self) -> Result<(), Invalid> {
        let mut nodes = 0;
        self.validate_at("condition", 0, &mut nodes)
    }

    fn validate_at(&self, at: &str, depth: usize, nodes: &mut usize) -> Result<(), Invalid> {
        let invalid = |message: String| Err(Invalid::new(Code::InvalidCondition, at, message));
        *nodes += 1;
        if depth > limits::DATA_DEPTH_MAX || *nodes > limits::CONDITION_NODES_MAX {
            let (deep, many) = (limits::DATA_DEPTH_MAX, limits::CONDITION_NODES_MAX);
            return invalid(format!(
                "has more than {many} parts or is nested deeper than {deep}; ask for less at once"
            ));
        }
        match self {
            Self::All => Ok(()),
            Self::And(children) | Self::Or(children) | Self::Nor(children) => {
                if children.is_empty() {
                    return invalid("needs at least one child".to_owned());
                }
                let child = |(n, child): (usize, &Condition)| {
                    child.validate_at(&format!("{at}.children[{n}]"), depth + 1, nodes)
                };
                children.iter().enumerate().try_for_each(child)
            }
            Self::Field { path, test } => {
                valid_path(path).or_else(|message| invalid(format!("field {path:?} {message}")))?;
                let values = test.values();
                if values.len() > limits::CONDITION_VALUES_MAX {
                    return invalid(format!("has more than {} values", limits::CONDITION_VALUES_MAX));
                }
                match values.iter().find(|value| matches!(value, Bson::RegularExpression(_) | Bson::Undefined)) {
                    Some(value) => invalid(format!("value {value} cannot be compared with; use another operator")),
                    None => values.iter().try_for_each(|value| match RawBson::try_from((*value).clone()) {
                        Ok(_) => Ok(()),
                        Err(error) => invalid(format!("value {value} cannot be stored: {error}")),
                    }),
                }
            }
        }
    }
}

impl Test {
    /// The values it compares with.
    pub(crate) fn values(&self) -> Vec<&Bson> {
        match self {
            Self::Eq(value)
            | Self::Ne(value)
            | Self::Gt(value)
            | Self::Gte(value)
            | Self::Lt(value)
            | Self::Lte(value) => vec![value],
            Self::In(values) | Self::NotIn(values) => values.iter().collect(),
            Self::Between(low, high) => vec![low, high],
            Self::Exists(_) => Vec::new(),
        }
    }
}

/// Whether a text can name a field.
pub(crate) fn valid_path(path: &str) -> Result<(), String> {
    let fine = |name: &str| !name.is_empty() && !name.starts_with('$') && !name.contains('\0');
    if path.len() <= limits::PATH_BYTES_MAX && path.split('.').all(fine) {
        return Ok(());
    }
    let most = limits::PATH_BYTES_MAX;
    Err(format!(
        "is not a path: names of 1 or more bytes that do not begin with $, with dots between, {most} bytes at most"
    ))
}
