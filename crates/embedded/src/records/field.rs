//! The values of one field that a condition leaves, as an index holds them.

use annals_core::bson::raw::CString;
use annals_core::bson::{Bson, RawBson, RawBsonRef, Regex};
use annals_core::order::{self, TypeOrder, encoded};
use annals_core::{Condition, Test};

use crate::engine::after_prefix;

/// What a condition says about one field, in encoded form.
#[derive(Default)]
pub(super) struct Field {
    /// The values that the field can have.
    pub(super) points: Option<Vec<Vec<u8>>>,
    /// The beginnings of the lowest and the highest value that the field can have.
    pub(super) span: Option<(Vec<u8>, Vec<u8>)>,
    /// Values outside the span that the field can have as well.
    pub(super) beside: Vec<Vec<u8>>,
}

impl Field {
    pub(super) fn of(wanted: &str, parts: &[&Condition], several_entries: bool) -> Self {
        let mut field = Self::default();
        for part in parts {
            let Condition::Field { path, test } = part else { continue };
            if path != wanted {
                continue;
            }
            if let Some(points) = points_of(test)
                && field.points.as_ref().is_none_or(|known| points.len() < known.len())
            {
                field.points = Some(points);
            }
            field.beside.extend(beside(test));
            for (low, high) in spans_of(test) {
                field.span = Some(match field.span.take() {
                    None => (low, high),
                    // In an array, one element may satisfy the lower bound and another the upper one.
                    Some(known) if several_entries => known,
                    Some((known_low, known_high)) => (known_low.max(low), lower_end(known_high, high)),
                });
            }
        }
        field
    }
}

fn lower_end(a: Vec<u8>, b: Vec<u8>) -> Vec<u8> {
    match (after_prefix(&a), after_prefix(&b)) {
        (Some(end_of_a), Some(end_of_b)) if end_of_b < end_of_a => b,
        (None, Some(_)) => b,
        _ => a,
    }
}

fn points_of(test: &Test) -> Option<Vec<Vec<u8>>> {
    let mut points = match test {
        Test::Eq(value) => points_of_value(value)?,
        Test::In(values) => values.iter().map(points_of_value).collect::<Option<Vec<_>>>()?.concat(),
        _ => return None,
    };
    points.sort_unstable();
    points.dedup();
    Some(points)
}

/// Returns the entries of records that are equal to a value. An array is equal both to an array and to an element that is an array, which
/// an index holds in different ways.
fn points_of_value(value: &Bson) -> Option<Vec<Vec<u8>>> {
    match value {
        Bson::Array(_) => None,
        Bson::Null | Bson::Undefined => Some(vec![vec![TypeOrder::Undefined as u8], vec![TypeOrder::Null as u8]]),
        other => Some(vec![encoding(other)?]),
    }
}

/// Returns the spans that a comparison admits: all values of its type on one side of the value.
fn spans_of(test: &Test) -> Vec<(Vec<u8>, Vec<u8>)> {
    let from = |value: &Bson| rangeable(value).map(|encoding| (encoding.clone(), vec![encoding[0]]));
    let to = |value: &Bson| rangeable(value).map(|encoding| (vec![encoding[0]], encoding));
    match test {
        Test::Gt(value) | Test::Gte(value) => from(value).into_iter().collect(),
        Test::Lt(value) | Test::Lte(value) => to(value).into_iter().collect(),
        Test::Between(low, high) => from(low).into_iter().chain(to(high)).collect(),
        Test::StartsWith(fragment) if !fragment.ignore_case => {
            let mut beginning = encoded(RawBsonRef::String(&fragment.text));
            beginning.truncate(beginning.len() - order::TEXT_END.len());
            vec![(beginning.clone(), beginning)]
        }
        _ => Vec::new(),
    }
}

/// Returns the regular expression of a prefix search, because a stored regular expression that is the same matches too.
fn beside(test: &Test) -> Option<Vec<u8>> {
    let Test::StartsWith(fragment) = test else { return None };
    let pattern = CString::try_from(fragment.pattern("^", "")).ok()?;
    let options = CString::try_from(fragment.options()).ok()?;
    encoding(&Bson::RegularExpression(Regex { pattern, options }))
}

fn rangeable(value: &Bson) -> Option<Vec<u8>> {
    match value {
        Bson::Array(_) | Bson::Null | Bson::Undefined | Bson::MinKey | Bson::MaxKey => None,
        other => encoding(other),
    }
}

fn encoding(value: &Bson) -> Option<Vec<u8>> {
    RawBson::try_from(value.clone()).ok().map(|raw| encoded(raw.as_raw_bson_ref()))
}
