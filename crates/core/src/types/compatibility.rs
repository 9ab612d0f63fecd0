//! Checks whether a schema accepts everything that an earlier one accepts.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::{Map, Value};

/// The depth to which schemas are compared; below it, recursive schemas count as equal.
const DEPTH_MAX: usize = 32;
/// The maximum number of schema pairs that are compared.
const STEPS_MAX: u32 = 100_000;
/// Keywords that set a lower bound on a value, and an upper bound.
const LOWER: [&str; 5] = ["minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"];
const UPPER: [&str; 5] = ["maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"];
/// Keywords that may only stay unchanged or be removed.
const FIXED: [&str; 14] = [
    "pattern",
    "multipleOf",
    "uniqueItems",
    "not",
    "if",
    "then",
    "else",
    "prefixItems",
    "contains",
    "propertyNames",
    "patternProperties",
    "dependentRequired",
    "dependentSchemas",
    "unevaluatedProperties",
];

/// Something that a new schema refuses and the earlier one accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Break {
    /// The affected part of the data, for example `data.total`; `[]` is any element of an array.
    pub path: String,
    /// The difference, as the end of a sentence that begins with the path.
    pub reason: String,
}

/// Returns the first part of the data of which `new` may refuse what `old` accepts. Returns `None` if every event that matches `old`
/// matches `new`.
///
/// A field that only `new` knows counts as absent from earlier events. If the question cannot be decided, because a keyword such as
/// `pattern` differs, the result is a break.
pub fn first_break(old: &Value, new: &Value) -> Option<Break> {
    Comparison { old, new, known: RefCell::default(), left: Cell::new(STEPS_MAX) }.of(old, new, "data", 0)
}

struct Comparison<'s> {
    old: &'s Value,
    new: &'s Value,
    /// The results for pairs of schemas that references lead to. While a pair is being compared it counts as equal, because a reference
    /// may lead back to it.
    known: RefCell<HashMap<Pair, Option<Break>>>,
    /// The number of comparisons left.
    left: Cell<u32>,
}

/// Two schemas, identified by their addresses.
type Pair = (*const Value, *const Value);

fn broken(path: &str, reason: impl Into<String>) -> Option<Break> {
    Some(Break { path: path.to_owned(), reason: reason.into() })
}

/// Returns a schema after following its local references.
fn resolved<'s>(root: &'s Value, mut schema: &'s Value) -> &'s Value {
    for _ in 0..DEPTH_MAX {
        let Some(target) = schema.get("$ref").and_then(Value::as_str).and_then(|it| it.strip_prefix('#')) else {
            break;
        };
        match root.pointer(target) {
            Some(found) => schema = found,
            None => break,
        }
    }
    schema
}

impl Comparison<'_> {
    fn of(&self, old: &Value, new: &Value, path: &str, depth: usize) -> Option<Break> {
        let (old_named, new_named) = (old, new);
        let (old, new) = (resolved(self.old, old), resolved(self.new, new));
        // Only the targets of references have stable addresses.
        let both = !std::ptr::eq(old, old_named) && !std::ptr::eq(new, new_named);
        let pair = both.then(|| (std::ptr::from_ref(old), std::ptr::from_ref(new)));
        if let Some(pair) = pair {
            if let Some(known) = self.known.borrow().get(&pair) {
                return known.clone();
            }
            self.known.borrow_mut().insert(pair, None);
        }
        let found = self.of_these(old, new, path, depth);
        if let Some(pair) = pair {
            self.known.borrow_mut().insert(pair, found.clone());
        }
        found
    }

    fn of_these(&self, old: &Value, new: &Value, path: &str, depth: usize) -> Option<Break> {
        let Some(left) = self.left.get().checked_sub(1) else {
            return broken(path, "has too many alternatives that lead to each other to be compared");
        };
        self.left.set(left);
        let nothing = Map::new();
        let (old, new) = match (old, new) {
            (_, Value::Bool(true)) | (Value::Bool(false), _) => return None,
            (_, Value::Bool(false)) => return broken(path, "is no longer allowed"),
            (Value::Object(old), Value::Object(new)) => (old, new),
            (_, Value::Object(new)) => (&nothing, new),
            _ => return broken(path, "has no schema that can be compared"),
        };
        if depth > DEPTH_MAX {
            return None;
        }
        types(old, new, path)
            .or_else(|| values(old, new, path))
            .or_else(|| bounds(old, new, path))
            .or_else(|| self.fields(old, new, path, depth))
            .or_else(|| self.elements(old, new, path, depth))
            .or_else(|| self.alternatives(old, new, path, depth))
    }

    fn fields(&self, old: &Map<String, Value>, new: &Map<String, Value>, path: &str, depth: usize) -> Option<Break> {
        let names = |schema: &Map<String, Value>| -> BTreeSet<String> {
            let list = schema.get("required").and_then(Value::as_array);
            list.into_iter().flatten().filter_map(|name| Some(name.as_str()?.to_owned())).collect()
        };
        let was_required = names(old);
        if let Some(name) = names(new).difference(&was_required).next() {
            return broken(&format!("{path}.{name}"), "is required now, and earlier events may lack it");
        }
        let fields = |schema: &Map<String, Value>| {
            schema.get("properties").and_then(Value::as_object).cloned().unwrap_or_default()
        };
        // Sorted by name, so that the same part is reported on every machine.
        let (before, after) = (fields(old).into_iter().collect::<BTreeMap<_, _>>(), fields(new));
        let further = new.get("additionalProperties");
        for (name, schema) in &before {
            let path = format!("{path}.{name}");
            let found = match after.get(name).or(further) {
                Some(Value::Bool(false)) if !after.contains_key(name) => broken(&path, "is no longer allowed"),
                Some(now) => self.of(schema, now, &path, depth + 1),
                None => None,
            };
            if found.is_some() {
                return found;
            }
        }
        match (old.get("additionalProperties"), further) {
            (Some(Value::Bool(false)), _) | (_, None) => None,
            (None | Some(Value::Bool(true)), Some(Value::Bool(false))) => {
                broken(path, "refuses fields that it does not name, and earlier events may have some")
            }
            (before, Some(now)) => self.of(before.unwrap_or(&Value::Bool(true)), now, &format!("{path}.*"), depth + 1),
        }
    }

    fn elements(&self, old: &Map<String, Value>, new: &Map<String, Value>, path: &str, depth: usize) -> Option<Break> {
        let now = new.get("items")?;
        self.of(old.get("items").unwrap_or(&Value::Bool(true)), now, &format!("{path}[]"), depth + 1)
    }

    /// Checks that one of the new alternatives accepts each of the old ones.
    fn alternatives(
        &self,
        old: &Map<String, Value>,
        new: &Map<String, Value>,
        path: &str,
        depth: usize,
    ) -> Option<Break> {
        let listed = |schema: &Map<String, Value>, name: &str| schema.get(name).and_then(Value::as_array).cloned();
        if let Some(now) = listed(new, "allOf") {
            let before = listed(old, "allOf").unwrap_or_default();
            let old = Value::Object(old.clone());
            for (at, schema) in now.iter().enumerate() {
                let found = self.of(before.get(at).unwrap_or(&old), schema, path, depth + 1);
                if found.is_some() {
                    return found;
                }
            }
        }
        for name in ["anyOf", "oneOf"] {
            let Some(now) = listed(new, name) else { continue };
            let before = ["anyOf", "oneOf"].iter().find_map(|name| listed(old, name));
            let before = before.unwrap_or_else(|| vec![Value::Object(old.clone())]);
            for schema in &before {
                let mut breaks = now.iter().map(|now| self.of(schema, now, path, depth + 1));
                let first = breaks.next().flatten();
                if first.is_some() && breaks.all(|found| found.is_some()) {
                    let reason = format!("has no alternative in {name} that accepts all values of earlier events");
                    return first.filter(|_| now.len() == 1).or_else(|| broken(path, reason));
                }
            }
        }
        None
    }
}

fn types(old: &Map<String, Value>, new: &Map<String, Value>, path: &str) -> Option<Break> {
    let named = |schema: &Map<String, Value>| -> Option<Vec<String>> {
        match schema.get("type")? {
            Value::String(one) => Some(vec![one.clone()]),
            Value::Array(all) => Some(all.iter().filter_map(|name| Some(name.as_str()?.to_owned())).collect()),
            _ => None,
        }
    };
    let now = named(new)?;
    let list = || now.join(" or ");
    // The types of constants are those of their values.
    let before = named(old).or_else(|| Some(constants(old)?.iter().map(|value| type_of(value).to_owned()).collect()));
    let Some(before) = before else {
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

fn constants(schema: &Map<String, Value>) -> Option<Vec<Value>> {
    match (schema.get("const"), schema.get("enum")) {
        (Some(value), _) => Some(vec![value.clone()]),
        (None, Some(Value::Array(values))) => Some(values.clone()),
        _ => None,
    }
}

fn values(old: &Map<String, Value>, new: &Map<String, Value>, path: &str) -> Option<Break> {
    let now = constants(new)?;
    let Some(before) = constants(old) else {
        return broken(path, "accepts certain values only, and accepted any before");
    };
    let lost = before.iter().find(|value| !now.contains(value))?;
    broken(path, format!("no longer accepts {lost}"))
}

fn bounds(old: &Map<String, Value>, new: &Map<String, Value>, path: &str) -> Option<Break> {
    let number = |schema: &Map<String, Value>, name: &str| schema.get(name).and_then(Value::as_f64);
    let tighter = |name: &&str, is_tighter: fn(f64, f64) -> bool| {
        number(new, name).is_some_and(|now| number(old, name).is_none_or(|before| is_tighter(now, before)))
    };
    let narrowed = LOWER.iter().find(|name| tighter(name, |now, before| now > before));
    let narrowed = narrowed.or_else(|| UPPER.iter().find(|name| tighter(name, |now, before| now < before)));
    let narrowed =
        narrowed.or_else(|| FIXED.iter().find(|name| new.contains_key(**name) && new.get(**name) != old.get(**name)));
    broken(path, format!("has a different {}, which may refuse values of earlier events", narrowed?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(fields: Value) -> Value {
        json!({"type": "object", "required": ["total"], "properties": fields})
    }

    #[test]
    fn what_accepts_more_breaks_nothing() {
        let old = of(json!({"total": {"type": "integer", "minimum": 1}, "kind": {"enum": ["a", "b"]}}));
        for new in [
            old.clone(),
            of(json!({"total": {"type": "number", "minimum": 0}, "kind": {"enum": ["a", "b", "c"]}})),
            of(json!({"total": {"type": ["integer", "null"]}, "kind": {"type": "string"}, "more": {"type": "string"}})),
            json!({"type": "object"}),
            json!(true),
            json!({"type": "object", "$defs": {"n": {"type": "number"}}, "properties": {"total": {"$ref": "#/$defs/n"}}}),
            of(json!({"total": {"anyOf": [{"type": "string"}, {"type": "integer", "minimum": 1}]}})),
        ] {
            assert_eq!(first_break(&old, &new), None, "{new}");
        }
    }

    #[test]
    fn what_accepts_less_is_named_with_its_path() {
        let old = of(json!({
            "total": {"type": "number"}, "kind": {"enum": ["a", "b"]}, "items": {"type": "array", "items": {"type": "string"}},
            "note": {"type": ["string", "null"], "maxLength": 9}
        }));
        let total = json!({"total": {"type": "number"}});
        for (new, path, says) in [
            (of(json!({"total": {"type": "integer"}})), "data.total", "could be number before"),
            (json!({"required": ["total", "kind"]}), "data.kind", "required now"),
            (of(json!({"kind": {"enum": ["a"]}})), "data.kind", "\"b\""),
            (of(json!({"items": {"items": {"type": "string", "minLength": 1}}})), "data.items[]", "minLength"),
            (of(json!({"note": {"type": "string"}})), "data.note", "could be null before"),
            (of(json!({"note": {"maxLength": 8}})), "data.note", "maxLength"),
            (of(json!({"note": {"pattern": "x"}})), "data.note", "pattern"),
            (json!({"properties": total, "additionalProperties": false}), "data.items", "no longer allowed"),
            (json!({"properties": {"total": false}}), "data.total", "no longer allowed"),
            (of(json!({"total": {"oneOf": [{"type": "string"}, {"type": "integer"}]}})), "data.total", "oneOf"),
        ] {
            let found = first_break(&old, &new).unwrap_or_else(|| panic!("{new} breaks something"));
            assert!(found.path == path && found.reason.contains(says), "{new}: {found:?}");
        }
        let closed = json!({"type": "object", "additionalProperties": false});
        assert_eq!(first_break(&json!({"type": "object"}), &closed).expect("fields are lost").path, "data");
    }

    #[test]
    fn schemas_that_refer_to_themselves_in_several_places_are_compared_to_an_end() {
        let tree = |leaf: &str| {
            let node = json!({ "$ref": "#/$defs/node" });
            let fields = json!({ "left": node, "right": node, "up": node, "value": { "type": leaf } });
            json!({ "$defs": { "node": { "properties": fields } }, "$ref": "#/$defs/node" })
        };
        assert_eq!(first_break(&tree("integer"), &tree("number")), None);
        let broken = first_break(&tree("number"), &tree("integer")).expect("it is narrower");
        assert!(broken.path.ends_with(".value"), "{broken:?}");
        let same = json!({ "allOf": [{ "$ref": "#" }, { "$ref": "#" }] });
        assert!(first_break(&json!({}), &same).is_some_and(|broken| broken.reason.contains("too many")));
    }

    #[test]
    fn a_schema_that_refers_to_itself_is_compared_to_an_end() {
        let tree = |leaf: &str| {
            let node =
                json!({"type": "object", "properties": {"leaf": {"type": leaf}, "next": {"$ref": "#/$defs/node"}}});
            json!({"$ref": "#/$defs/node", "$defs": {"node": node}})
        };
        assert_eq!(first_break(&tree("string"), &tree("string")), None);
        assert_eq!(first_break(&tree("string"), &tree("number")).expect("broken").path, "data.leaf");
    }
}
