//! Whether alternatives of a schema can accept the same value. Of those in `oneOf`, exactly one may accept it.

use serde_json::{Map, Value};

use super::keywords::{constants, kinds, required};
use super::{Comparison, followed};

/// The depth to which alternatives are compared. A field that tells them apart is not deeper in practice.
const APART_DEPTH_MAX: usize = 8;

impl<'s> Comparison<'s> {
    /// Returns the places of two alternatives in a list of the new schema that may accept the same value. Two that were in the old list,
    /// at the same places, do not count: exactly one of them accepted every value before.
    pub(super) fn overlapping(&self, old: Option<&'s Value>, now: &'s [Value]) -> Option<(usize, usize)> {
        let before = old.and_then(Value::as_array);
        let is_unchanged = |(at, now): (usize, &'s Value)| {
            before.and_then(|before| before.get(at)).is_some_and(|before| self.is_same(before, now))
        };
        let unchanged: Vec<bool> = now.iter().enumerate().map(is_unchanged).collect();
        let mut pairs = (0..now.len()).flat_map(|other| (0..other).map(move |one| (one, other)));
        pairs.find(|&(one, other)| {
            let is_new = !unchanged[one] || !unchanged[other];
            is_new && !self.are_apart(&now[one], &now[other], 0)
        })
    }

    /// Returns whether it is certain that no value is accepted by both of these parts of the new schema.
    fn are_apart(&self, one: &'s Value, other: &'s Value, depth: usize) -> bool {
        if depth > APART_DEPTH_MAX || !self.step() {
            return false;
        }
        let (ones, others) = (self.conditions(one), self.conditions(other));
        ones.iter().any(|one| others.iter().any(|other| self.exclude_each_other(one, other, depth)))
    }

    /// Returns the schemas that a value has to match: a schema, and those to which its references lead.
    fn conditions(&self, schema: &'s Value) -> Vec<&'s Value> {
        let (mut all, last) = followed(&self.new, schema);
        if self.ignores_what_is_beside_references {
            all.clear();
        }
        all.push(last);
        all
    }

    fn exclude_each_other(&self, one: &'s Value, other: &'s Value, depth: usize) -> bool {
        let (Some(one), Some(other)) = (one.as_object(), other.as_object()) else {
            return [one, other].contains(&&Value::Bool(false));
        };
        let meet = |one: &String, other: &String| one == other || (is_number(one) && is_number(other));
        if let (Some(kinds), Some(others)) = (kinds(one), kinds(other))
            && !kinds.iter().any(|one| others.iter().any(|other| meet(one, other)))
        {
            return true;
        }
        if let (Some(values), Some(others)) = (constants(one), constants(other))
            && !values.iter().any(|one| others.iter().any(|other| may_be_equal(one, other)))
        {
            return true;
        }
        // What other values than objects may be is not limited by fields.
        let is_object = |schema| kinds(schema).is_some_and(|kinds| kinds == ["object"]);
        (is_object(one) || is_object(other))
            && (self.differ_in_a_field(one, other, depth) || forbids_a_field(one, other) || forbids_a_field(other, one))
    }

    /// Returns whether both require a field for which they have schemas that exclude each other.
    fn differ_in_a_field(&self, one: &'s Map<String, Value>, other: &'s Map<String, Value>, depth: usize) -> bool {
        let field = |schema: &'s Map<String, Value>, name: &str| schema.get("properties")?.get(name);
        required(one).filter(|name| required(other).any(|it| it == *name)).any(|name| {
            field(one, name).zip(field(other, name)).is_some_and(|(one, other)| self.are_apart(one, other, depth + 1))
        })
    }
}

/// Returns whether one schema requires a field that the other one does not allow.
fn forbids_a_field(one: &Map<String, Value>, other: &Map<String, Value>) -> bool {
    let is_closed = other.get("additionalProperties") == Some(&Value::Bool(false));
    let allows = |name: &str| other.get("properties").is_some_and(|fields| fields.get(name).is_some());
    is_closed && !other.contains_key("patternProperties") && required(one).any(|name| !allows(name))
}

fn is_number(kind: &str) -> bool {
    matches!(kind, "number" | "integer")
}

/// Returns false only if two values differ for certain: 1 and 1.0 are equal in a schema, also inside of others.
fn may_be_equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one.as_f64() == other.as_f64(),
        (Value::Array(_), Value::Array(_)) | (Value::Object(_), Value::Object(_)) => true,
        _ => one == other,
    }
}
