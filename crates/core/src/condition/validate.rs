//! Checks of conditions that need no document.

use bson::{Bson, RawBson, RawDocumentBuf};

use super::{Condition, Fragment, Test, raw};
use crate::{Code, Invalid, limits};

/// The position of a part in a condition.
struct Place<'p> {
    path: &'p str,
    depth: usize,
    /// Whether only `And` is above it.
    required: bool,
}

/// The parts counted so far.
#[derive(Default)]
struct Parts {
    all: usize,
    text: usize,
    /// The values of `ALL_IN`. Each is searched separately in a document, while those of `IN` are looked up together.
    sought: usize,
}

impl Parts {
    /// Counts the values of one `ALL_IN`. The error says what is wrong with the place that exceeds the limit.
    fn seek(&mut self, values: usize) -> Result<(), String> {
        let most = limits::CONDITION_VALUES_MAX;
        self.sought = self.sought.saturating_add(values);
        if self.sought > most {
            return Err(format!("brings the values of all ALL_IN to more than {most}; split it into several queries"));
        }
        Ok(())
    }
}

impl Condition {
    /// Checks everything that can be checked without a document.
    ///
    /// # Errors
    /// `invalid_condition`, with the place inside the condition; also for a window of time that is not [`resolved`](Self::resolved).
    pub fn validate(&self) -> Result<(), Invalid> {
        self.validate_at(&Place { path: "condition", depth: 0, required: true }, &mut Parts::default())
    }

    /// Checks that [`Matcher`](super::Matcher) can evaluate it: its MongoDB filters can be translated, together they keep the limits of
    /// one condition, and it has no `MATCH`. If the collection has a text index, check the rest of the condition,
    /// [without `MATCH`](Self::without_text_search).
    ///
    /// # Errors
    /// `invalid_condition`, with the name of the part that cannot be evaluated.
    pub fn judgeable(&self) -> Result<(), Invalid> {
        self.judgeable_with(&mut Parts::default())
    }

    /// Does the same for a part. `parts` holds what its MongoDB filters and those before them are made of, and the values of all `ALL_IN`
    /// outside of them: otherwise each filter would have the limits of a whole condition.
    fn judgeable_with(&self, parts: &mut Parts) -> Result<(), Invalid> {
        let refused = |message: String| Err(Invalid::new(Code::InvalidCondition, "condition", message));
        match self {
            Self::And(children) | Self::Or(children) | Self::Nor(children) => {
                children.iter().try_for_each(|child| child.judgeable_with(parts))
            }
            Self::Match(_) => refused("MATCH needs a text index, and there is none here; use CONTAINS".to_owned()),
            // A translated filter has neither `MATCH` nor a filter in it.
            Self::Raw(filter) => match raw::translated(filter) {
                Ok(translated) => translated.validate_at(&Place { path: "condition", depth: 0, required: true }, parts),
                Err(message) => refused(format!("RAW: {message}")),
            },
            Self::Field { test: Test::ElemMatch(inner), .. } => inner.judgeable_with(parts),
            Self::Field { test: Test::AllIn(values), .. } => parts.seek(values.len()).or_else(refused),
            Self::Field { test: Test::Within(window), .. } => refused(unresolved(window)),
            Self::All | Self::Field { .. } | Self::Deleted(_) => Ok(()),
        }
    }

    /// Returns the number of its parts. A MongoDB filter document has as many as the equivalent condition. Each value of `ALL_IN` counts
    /// as a part.
    pub fn parts(&self) -> usize {
        let below = match self {
            Self::And(children) | Self::Or(children) | Self::Nor(children) => children.iter().map(Self::parts).sum(),
            Self::Field { test: Test::ElemMatch(inner), .. } => inner.parts(),
            Self::Field { test: Test::AllIn(values), .. } => values.len().saturating_sub(1),
            Self::Raw(filter) => raw::translated(filter).map_or(0, |same| same.parts()),
            Self::All | Self::Field { .. } | Self::Match(_) | Self::Deleted(_) => 0,
        };
        1 + below
    }

    fn validate_at(&self, place: &Place<'_>, parts: &mut Parts) -> Result<(), Invalid> {
        let invalid = |message: String| Err(Invalid::new(Code::InvalidCondition, place.path, message));
        parts.all += 1;
        if place.depth > limits::DATA_DEPTH_MAX || parts.all > limits::CONDITION_NODES_MAX {
            let (deep, many) = (limits::DATA_DEPTH_MAX, limits::CONDITION_NODES_MAX);
            return invalid(format!(
                "has more than {many} parts or is nested deeper than {deep}; simplify it, or split it into several queries"
            ));
        }
        match self {
            Self::All | Self::Deleted(_) => Ok(()),
            Self::And(children) | Self::Or(children) | Self::Nor(children) => {
                if children.is_empty() {
                    return invalid("needs at least one child".to_owned());
                }
                let required = place.required && matches!(self, Self::And(_));
                let child = |(n, child): (usize, &Condition)| {
                    let path = format!("{}.children[{n}]", place.path);
                    child.validate_at(&Place { path: &path, depth: place.depth + 1, required }, parts)
                };
                children.iter().enumerate().try_for_each(child)
            }
            Self::Match(words) => {
                parts.text += 1;
                if parts.text > 1 || !place.required {
                    return invalid("MATCH may occur only once in a condition, alone or under AND".to_owned());
                }
                fragment(words).or_else(invalid)
            }
            Self::Raw(filter) => match RawDocumentBuf::try_from(filter) {
                Ok(_) => Ok(()),
                Err(error) => invalid(format!("value cannot be sent: {error}")),
            },
            Self::Field { path, test } => {
                valid_path(path).or_else(|message| invalid(format!("field {path:?} {message}")))?;
                match test {
                    Test::ElemMatch(inner) => {
                        let path = format!("{}.children[0]", place.path);
                        inner.validate_at(&Place { path: &path, depth: place.depth + 1, required: false }, parts)
                    }
                    Test::Contains(wanted) | Test::StartsWith(wanted) | Test::EndsWith(wanted) => {
                        let Fragment { text, .. } = wanted;
                        fragment(text).or_else(invalid)
                    }
                    Test::Within(window) => invalid(unresolved(window)),
                    Test::AllIn(values) => {
                        parts.seek(values.len()).and_then(|()| test.validate_values()).or_else(invalid)
                    }
                    _ => test.validate_values().or_else(invalid),
                }
            }
        }
    }
}

impl Test {
    fn validate_values(&self) -> Result<(), String> {
        let values = self.values();
        if values.len() > limits::CONDITION_VALUES_MAX {
            return Err(format!("has more than {} values", limits::CONDITION_VALUES_MAX));
        }
        match values.iter().find(|value| matches!(value, Bson::RegularExpression(_) | Bson::Undefined)) {
            Some(value) => Err(format!("value {value} cannot be used in a comparison; use another operator")),
            None => values.iter().try_for_each(|value| match RawBson::try_from((*value).clone()) {
                Ok(_) => Ok(()),
                Err(error) => Err(format!("value {value} cannot be stored: {error}")),
            }),
        }
    }

    /// Returns the values that it compares with.
    fn values(&self) -> Vec<&Bson> {
        match self {
            Self::Eq(value)
            | Self::Ne(value)
            | Self::Gt(value)
            | Self::Gte(value)
            | Self::Lt(value)
            | Self::Lte(value) => vec![value],
            Self::In(values) | Self::NotIn(values) | Self::AllIn(values) => values.iter().collect(),
            Self::Between(low, high) => vec![low, high],
            _ => Vec::new(),
        }
    }
}

fn unresolved(window: &super::Window) -> String {
    format!("{} depends on the current time; give fixed times, or resolve it first", window.days)
}

/// Checks that a text can be searched for.
fn fragment(text: &str) -> Result<(), String> {
    let most = limits::CONDITION_TEXT_BYTES_MAX;
    match text.len() <= most && !text.contains('\0') {
        true => Ok(()),
        false => Err(format!("value is not a string of at most {most} bytes without NUL")),
    }
}

/// Checks that a text can be the path of a field.
pub(crate) fn valid_path(path: &str) -> Result<(), String> {
    let fine = |name: &str| !name.is_empty() && !name.starts_with('$') && !name.contains('\0');
    if path.len() <= limits::PATH_BYTES_MAX && path.split('.').all(fine) {
        return Ok(());
    }
    let most = limits::PATH_BYTES_MAX;
    Err(format!(
        "is not a path: give names of 1 or more bytes that do not begin with $, separated by dots, at most {most} bytes in all"
    ))
}
