//! Translation of MongoDB filter documents to equivalent conditions, as far as they can be evaluated here.

use bson::{Bson, Document};

use super::{Condition, Test};
use crate::limits;

/// Returns the equivalent condition. The error names what cannot be evaluated here.
pub(super) fn translated(filter: &Document) -> Result<Condition, String> {
    document(filter, 0)
}

fn document(filter: &Document, depth: usize) -> Result<Condition, String> {
    if depth > limits::DATA_DEPTH_MAX {
        return Err(format!("is nested deeper than {}", limits::DATA_DEPTH_MAX));
    }
    let parts = filter.iter().map(|(name, value)| match name.as_str() {
        "$and" => Ok(Condition::And(list(name, value, depth)?)),
        "$or" => Ok(Condition::Or(list(name, value, depth)?)),
        "$nor" => Ok(Condition::Nor(list(name, value, depth)?)),
        "$comment" => Ok(Condition::All),
        operator if operator.starts_with('$') => Err(unknown(operator)),
        path => field(path, value, depth),
    });
    let mut parts = parts.collect::<Result<Vec<_>, _>>()?;
    Ok(match parts.len() {
        0 => Condition::All,
        1 => parts.remove(0),
        _ => Condition::And(parts),
    })
}

fn list(operator: &str, value: &Bson, depth: usize) -> Result<Vec<Condition>, String> {
    let wrong = || format!("{operator} needs a list of filter documents, at least one");
    let filters = value.as_array().filter(|filters| !filters.is_empty()).ok_or_else(wrong)?;
    filters.iter().map(|filter| document(filter.as_document().ok_or_else(wrong)?, depth + 1)).collect()
}

fn field(path: &str, value: &Bson, depth: usize) -> Result<Condition, String> {
    let Bson::Document(tests) = value else { return equal(path, value) };
    if !tests.keys().next().is_some_and(|name| name.starts_with('$')) {
        return equal(path, value);
    }
    let mut parts = Vec::with_capacity(tests.len());
    for (operator, value) in tests {
        parts.push(match operator.as_str() {
            "$not" => Condition::Nor(vec![negated(path, value, depth)?]),
            _ => Condition::field(path, test(operator, value, depth)?),
        });
    }
    Ok(if parts.len() == 1 { parts.remove(0) } else { Condition::And(parts) })
}

fn equal(path: &str, value: &Bson) -> Result<Condition, String> {
    match value {
        Bson::RegularExpression(_) => Err(unknown("$regex")),
        value => Ok(Condition::eq(path, value.clone())),
    }
}

fn negated(path: &str, value: &Bson, depth: usize) -> Result<Condition, String> {
    match value {
        Bson::Document(tests) if tests.keys().next().is_some_and(|name| name.starts_with('$')) => {
            field(path, value, depth + 1)
        }
        Bson::RegularExpression(_) => Err(unknown("$regex")),
        _ => Err("$not needs a document of operators".to_owned()),
    }
}

fn test(operator: &str, value: &Bson, depth: usize) -> Result<Test, String> {
    let values = || {
        let values = value.as_array().cloned().ok_or_else(|| format!("{operator} needs a list of values"))?;
        match values.iter().find_map(operator_of) {
            Some(inner) => Err(unknown(inner)),
            None => Ok(values),
        }
    };
    let one = || match value {
        Bson::RegularExpression(_) => Err(unknown("$regex")),
        value => Ok(value.clone()),
    };
    Ok(match operator {
        "$eq" => Test::Eq(one()?),
        "$ne" => Test::Ne(one()?),
        "$gt" => Test::Gt(one()?),
        "$gte" => Test::Gte(one()?),
        "$lt" => Test::Lt(one()?),
        "$lte" => Test::Lte(one()?),
        "$in" => Test::In(values()?),
        "$nin" => Test::NotIn(values()?),
        "$all" => Test::AllIn(values()?),
        "$exists" => Test::Exists(is_true(value)),
        "$elemMatch" => {
            let inner = value.as_document().ok_or("$elemMatch needs a filter document")?;
            let of_values = |name: &String| name.starts_with('$') && !matches!(name.as_str(), "$and" | "$or" | "$nor");
            if inner.keys().next().is_some_and(of_values) {
                return Err("$elemMatch on values, rather than on documents, is not supported here".to_owned());
            }
            Test::ElemMatch(Box::new(document(inner, depth + 1)?))
        }
        other => return Err(unknown(other)),
    })
}

/// Returns the operator if a value is one; `$all` accepts such values in its list.
fn operator_of(value: &Bson) -> Option<&str> {
    match value {
        Bson::RegularExpression(_) => Some("$regex"),
        Bson::Document(inner) => inner.keys().next().map(String::as_str).filter(|name| name.starts_with('$')),
        _ => None,
    }
}

/// Returns whether MongoDB treats a value as true.
fn is_true(value: &Bson) -> bool {
    match value {
        Bson::Boolean(value) => *value,
        Bson::Int32(value) => *value != 0,
        Bson::Int64(value) => *value != 0,
        Bson::Double(value) => *value != 0.0,
        Bson::Null | Bson::Undefined => false,
        _ => true,
    }
}

fn unknown(operator: &str) -> String {
    format!("{operator} is not supported here; use another operator, or a store on MongoDB")
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    #[test]
    fn a_filter_document_becomes_the_condition_that_means_the_same() {
        let filter = doc! {
            "status": "PAID",
            "total": { "$gte": 5, "$lt": 9 },
            "$or": [{ "tags": { "$in": ["a", "b"] } }, { "lines": { "$elemMatch": { "price": { "$gt": 3 } } } }],
            "owner.name": { "$not": { "$exists": false } },
            "$comment": "why",
        };
        let expected = Condition::And(vec![
            Condition::eq("status", "PAID"),
            Condition::And(vec![Condition::gte("total", 5), Condition::lt("total", 9)]),
            Condition::or([
                Condition::is_in("tags", ["a", "b"]),
                Condition::elem_match("lines", Condition::gt("price", 3)),
            ]),
            Condition::nor([Condition::missing("owner.name")]),
            Condition::All,
        ]);
        assert_eq!(translated(&filter), Ok(expected));
    }

    #[test]
    fn what_cannot_be_judged_is_named() {
        let regex = || {
            Bson::RegularExpression(bson::Regex { pattern: bson::cstr!("x").into(), options: bson::cstr!("").into() })
        };
        for (filter, named) in [
            (doc! { "$where": "true" }, "$where"),
            (doc! { "$expr": {} }, "$expr"),
            (doc! { "a": { "$size": 1 } }, "$size"),
            (doc! { "a": regex() }, "$regex"),
            (doc! { "a": { "$in": [regex()] } }, "$regex"),
            (doc! { "a": { "$all": [{ "$elemMatch": {} }] } }, "$elemMatch"),
            (doc! { "a": { "$elemMatch": { "$gt": 1 } } }, "$elemMatch"),
            (doc! { "a": { "$gt": 1, "x": 1 } }, "x "),
            (doc! { "$or": [] }, "$or"),
        ] {
            let error = translated(&filter).expect_err("it is refused");
            assert!(error.contains(named), "{filter}: {error}");
        }
    }
}
