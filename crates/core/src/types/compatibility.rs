//! Checks whether a schema accepts everything that an earlier one accepts.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use serde_json::{Map, Value};

use super::extent::{Document, REFERENCES};

/// The depth to which schemas are compared. A part that is nested deeper is reported, because it may refuse something.
const DEPTH_MAX: usize = 64;
/// The maximum number of references that are followed one after the other.
const REFERENCES_MAX: usize = 32;
/// The maximum number of schema pairs that are compared.
const STEPS_MAX: u32 = 100_000;
/// Keywords that set a lower bound on a value, and an upper bound.
const LOWER: [&str; 5] = ["minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"];
const UPPER: [&str; 5] = ["maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"];
/// Keywords that are compared in ways of their own.
const COMPARED: [&str; 10] =
    ["type", "const", "enum", "required", "properties", "additionalProperties", "items", "allOf", "anyOf", "oneOf"];
/// Keywords that may only stay unchanged or be removed.
const FIXED: [&str; 19] = [
    "pattern",
    "multipleOf",
    "uniqueItems",
    "not",
    "if",
    "then",
    "else",
    "prefixItems",
    "contains",
    "minContains",
    "maxContains",
    "additionalItems",
    "unevaluatedItems",
    "propertyNames",
    "patternProperties",
    "dependentRequired",
    "dependentSchemas",
    "dependencies",
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
/// `pattern` differs or because the schemas are nested too deeply, the result is a break.
pub fn first_break(old: &Value, new: &Value) -> Option<Break> {
    if old == new { None } else { compared(old, new, STEPS_MAX) }
}

/// Compares schemas, at most `steps` pairs of them.
fn compared(old: &Value, new: &Value, steps: u32) -> Option<Break> {
    let document =
        |schema| Document::of(schema).map_err(|why| format!("has a schema that cannot be compared: it {why}"));
    let (old_document, new_document) = match (document(old), document(new)) {
        (Ok(old), Ok(new)) => (old, new),
        (Err(why), _) | (_, Err(why)) => return broken("data", why),
    };
    let (anything, nothing) = (Value::Bool(true), Map::new());
    let comparison = Comparison {
        old: old_document,
        new: new_document,
        anything: &anything,
        nothing: &nothing,
        known: RefCell::default(),
        open: RefCell::default(),
        left: Cell::new(steps),
    };
    comparison.of(old, new, "data", 0)
}

struct Comparison<'s> {
    old: Document<'s>,
    new: Document<'s>,
    /// The schema that accepts everything.
    anything: &'s Value,
    /// The keywords of a schema that accepts everything.
    nothing: &'s Map<String, Value>,
    /// The results for pairs of schemas. The path of a break is that inside the pair.
    known: RefCell<HashMap<Pair, Option<Break>>>,
    /// The pairs that are being compared, each with whether a reference led back to it. Meanwhile it counts as equal.
    open: RefCell<HashMap<Pair, bool>>,
    /// The number of comparisons left.
    left: Cell<u32>,
}

/// Two schemas, identified by their addresses.
type Pair = (*const Value, *const Value);

fn broken(path: &str, reason: impl Into<String>) -> Option<Break> {
    Some(Break { path: path.to_owned(), reason: reason.into() })
}

/// Follows the references of a schema. Returns the schemas with a reference, in this order, and the one to which the last one leads.
fn followed<'s>(document: &Document<'s>, schema: &'s Value) -> (Vec<&'s Value>, &'s Value) {
    let (mut on_the_way, mut last) = (Vec::new(), schema);
    for _ in 0..REFERENCES_MAX {
        let Some(target) = document.targets(last).next() else { break };
        on_the_way.push(last);
        last = target;
    }
    (on_the_way, last)
}

impl<'s> Comparison<'s> {
    fn of(&self, old: &'s Value, new: &'s Value, path: &str, depth: usize) -> Option<Break> {
        let ((mut olds, old), (news, new)) = (followed(&self.old, old), followed(&self.new, new));
        olds.push(old);
        for (n, schema) in news.into_iter().enumerate() {
            if let Some(keyword) = self.beside_reference(olds.get(n).copied(), schema) {
                return broken(
                    path,
                    format!("has {keyword} beside a reference, which may refuse values of earlier events"),
                );
            }
        }
        let pair = (std::ptr::from_ref(old), std::ptr::from_ref(new));
        if let Some(known) = self.known.borrow().get(&pair) {
            return known.clone().map(|inner| Break { path: format!("{path}{}", inner.path), ..inner });
        }
        if let Some(led_back) = self.open.borrow_mut().get_mut(&pair) {
            *led_back = true;
            return None;
        }
        self.open.borrow_mut().insert(pair, false);
        let found = self.of_these(old, new, path, depth);
        let led_back = self.open.borrow_mut().remove(&pair).unwrap_or_default();
        let mut known = self.known.borrow_mut();
        if led_back && found.is_some() {
            // Pairs inside may have counted as compatible only because this one did.
            known.retain(|_, found| found.is_some());
        }
        let inside = |found: &Break| found.path.strip_prefix(path).unwrap_or_default().to_owned();
        known.insert(pair, found.as_ref().map(|found| Break { path: inside(found), reason: found.reason.clone() }));
        found
    }

    /// Returns a keyword that narrows what a reference in the same schema accepts, unless the old schema had it too.
    fn beside_reference(&self, old: Option<&'s Value>, new: &'s Value) -> Option<&'static str> {
        let mut keywords = COMPARED.iter().chain(&LOWER).chain(&UPPER).chain(&FIXED).copied();
        keywords.find(|keyword| self.differs(old.and_then(|old| old.get(*keyword)), new.get(*keyword)))
    }

    /// Returns whether the new schema has a keyword that the old one lacked or had differently.
    fn differs(&self, old: Option<&'s Value>, new: Option<&'s Value>) -> bool {
        new.is_some_and(|new| old.is_none_or(|old| !self.is_same(old, new)))
    }

    /// Returns whether two parts are equal, and so is everything that they refer to.
    fn is_same(&self, old: &'s Value, new: &'s Value) -> bool {
        let (mut left, mut seen) = (vec![(old, new)], HashSet::new());
        while let Some((old, new)) = left.pop() {
            if old != new {
                return false;
            }
            if !seen.insert((std::ptr::from_ref(old), std::ptr::from_ref(new))) {
                continue;
            }
            let (olds, news): (Vec<_>, Vec<_>) = (self.old.targets(old).collect(), self.new.targets(new).collect());
            if olds.len() != news.len() {
                return false;
            }
            left.extend(olds.into_iter().zip(news));
            match (old, new) {
                (Value::Object(old), Value::Object(new)) => {
                    left.extend(old.iter().filter_map(|(name, old)| Some((old, new.get(name)?))));
                }
                (Value::Array(old), Value::Array(new)) => left.extend(old.iter().zip(new)),
                _ => {}
            }
        }
        true
    }

    fn of_these(&self, old: &'s Value, new: &'s Value, path: &str, depth: usize) -> Option<Break> {
        let Some(left) = self.left.get().checked_sub(1) else {
            return broken(path, "has too many alternatives that lead to each other to be compared");
        };
        self.left.set(left);
        let whole = old;
        let (old, new) = match (old, new) {
            (_, Value::Bool(true)) | (Value::Bool(false), _) => return None,
            (_, Value::Bool(false)) => return broken(path, "is no longer allowed"),
            (Value::Object(old), Value::Object(new)) => (old, new),
            (_, Value::Object(new)) => (self.nothing, new),
            _ => return broken(path, "has no schema that can be compared"),
        };
        if depth > DEPTH_MAX {
            return broken(path, format!("is nested more than {DEPTH_MAX} levels deep, and cannot be compared"));
        }
        if let Some(target) = REFERENCES.iter().find_map(|keyword| new.get(*keyword)) {
            return broken(path, format!("refers to {target}, which leads to no schema that can be compared"));
        }
        types(old, new, path)
            .or_else(|| values(old, new, path))
            .or_else(|| bounds(old, new, path))
            .or_else(|| self.fixed(old, new, path))
            .or_else(|| self.fields(old, new, path, depth))
            .or_else(|| self.elements(old, new, path, depth))
            .or_else(|| self.alternatives(whole, old, new, path, depth))
    }

    fn fields(
        &self,
        old: &'s Map<String, Value>,
        new: &'s Map<String, Value>,
        path: &str,
        depth: usize,
    ) -> Option<Break> {
        let names = |schema: &Map<String, Value>| -> BTreeSet<String> {
            let list = schema.get("required").and_then(Value::as_array);
            list.into_iter().flatten().filter_map(|name| Some(name.as_str()?.to_owned())).collect()
        };
        let was_required = names(old);
        if let Some(name) = names(new).difference(&was_required).next() {
            return broken(&format!("{path}.{name}"), "is required now, and earlier events may lack it");
        }
        let fields = |schema: &'s Map<String, Value>| schema.get("properties").and_then(Value::as_object);
        // Sorted by name, so that the same part is reported on every machine.
        let before: BTreeMap<&String, &Value> = fields(old).into_iter().flatten().collect();
        let after = fields(new);
        let further = new.get("additionalProperties");
        for (name, schema) in before {
            let path = format!("{path}.{name}");
            let found = match (after.and_then(|after| after.get(name)), further) {
                (None, Some(Value::Bool(false))) => broken(&path, "is no longer allowed"),
                (Some(now), _) | (None, Some(now)) => self.of(schema, now, &path, depth + 1),
                (None, None) => None,
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
            (before, Some(now)) => self.of(before.unwrap_or(self.anything), now, &format!("{path}.*"), depth + 1),
        }
    }

    fn fixed(&self, old: &'s Map<String, Value>, new: &'s Map<String, Value>, path: &str) -> Option<Break> {
        let name = FIXED.iter().find(|name| self.differs(old.get(**name), new.get(**name)))?;
        broken(path, format!("has a different {name}, which may refuse values of earlier events"))
    }

    fn elements(
        &self,
        old: &'s Map<String, Value>,
        new: &'s Map<String, Value>,
        path: &str,
        depth: usize,
    ) -> Option<Break> {
        let now = new.get("items")?;
        self.of(old.get("items").unwrap_or(self.anything), now, &format!("{path}[]"), depth + 1)
    }

    /// Checks that one of the new alternatives accepts each of the old ones; `whole` is the old schema as a whole.
    fn alternatives(
        &self,
        whole: &'s Value,
        old: &'s Map<String, Value>,
        new: &'s Map<String, Value>,
        path: &str,
        depth: usize,
    ) -> Option<Break> {
        let listed = |schema: &'s Map<String, Value>, name: &str| schema.get(name).and_then(Value::as_array);
        if let Some(now) = listed(new, "allOf") {
            let before = listed(old, "allOf");
            for (at, schema) in now.iter().enumerate() {
                let before = before.and_then(|before| before.get(at)).unwrap_or(whole);
                let found = self.of(before, schema, path, depth + 1);
                if found.is_some() {
                    return found;
                }
            }
        }
        for name in ["anyOf", "oneOf"] {
            let Some(now) = listed(new, name) else { continue };
            let before = ["anyOf", "oneOf"].iter().find_map(|name| listed(old, name));
            let before = before.map_or_else(|| std::slice::from_ref(whole), Vec::as_slice);
            for schema in before {
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
        let (old, new) = (of(json!({ "total": { "minimum": 1 } })), of(json!({ "total": { "minimum": 0 } })));
        assert_eq!(compared(&old, &new, 2), None);
        assert!(compared(&old, &new, 1).is_some_and(|broken| broken.reason.contains("too many")));
    }

    #[test]
    fn what_is_nested_too_deeply_to_be_compared_is_reported() {
        let nested = |depth: usize, leaf: &str| {
            (0..depth).fold(json!({ "type": leaf }), |inner, _| json!({ "properties": { "a": inner } }))
        };
        let last = DEPTH_MAX;
        assert_eq!(first_break(&nested(last, "integer"), &nested(last, "number")), None);
        let found = first_break(&nested(last, "number"), &nested(last, "integer")).expect("it is narrower");
        assert!(found.reason.contains("could be number before"), "{found:?}");
        let beyond = last + 1;
        let found = first_break(&nested(beyond, "number"), &nested(beyond, "integer")).expect("it is narrower");
        assert!(found.path.ends_with(".a.a") && found.reason.contains("levels deep"), "{found:?}");
        assert_eq!(first_break(&nested(beyond, "number"), &nested(beyond, "number")), None, "nothing differs");
    }

    #[test]
    fn a_recursive_field_that_may_now_be_absent_is_compared_to_an_end() {
        let node = json!({ "$ref": "#/$defs/node" });
        let list = |next: Value| {
            let fields = json!({ "leaf": { "type": "string" }, "next": next });
            json!({ "$defs": { "node": { "type": "object", "properties": fields } }, "$ref": "#/$defs/node" })
        };
        let nullable = json!({ "anyOf": [node, { "type": "null" }] });
        assert_eq!(first_break(&list(node.clone()), &list(nullable)), None);
        let lists = json!({ "type": "object", "items": { "$ref": "#" } });
        assert_eq!(first_break(&json!({ "type": "object" }), &lists).expect("broken").path, "data[]");
    }

    #[test]
    fn a_reference_is_followed_to_an_anchor_and_reported_if_it_leads_nowhere() {
        let by_anchor = |leaf: &str| {
            let anchored = json!({ "n": { "$anchor": "n", "type": leaf } });
            json!({ "$defs": anchored, "properties": { "total": { "$ref": "#n" } } })
        };
        assert_eq!(first_break(&by_anchor("integer"), &by_anchor("number")), None);
        let found = first_break(&by_anchor("number"), &by_anchor("integer")).expect("it is narrower");
        assert_eq!(found.path, "data.total");
        let nowhere = json!({ "properties": { "total": { "$ref": "#/$defs/missing" } } });
        let found = first_break(&by_anchor("number"), &nowhere).expect("nobody knows");
        assert!(found.path == "data.total" && found.reason.contains("#/$defs/missing"), "{found:?}");
    }

    #[test]
    fn what_stands_beside_a_reference_or_refers_to_something_that_changed_is_reported() {
        let schema = |leaf: &str, field: Value| {
            let definitions = json!({ "n": { "type": leaf }, "same": { "type": "string" } });
            json!({ "$defs": definitions, "properties": { "a": field } })
        };
        let reference = json!({ "$ref": "#/$defs/n" });
        let bounded = json!({ "$ref": "#/$defs/n", "minimum": 1 });
        let listed = json!({ "prefixItems": [reference] });
        let unchanged = json!({ "prefixItems": [{ "$ref": "#/$defs/same" }] });
        for (before, now) in [(&reference, &reference), (&bounded, &bounded), (&bounded, &reference)] {
            let (old, new) = (schema("integer", before.clone()), schema("number", now.clone()));
            assert_eq!(first_break(&old, &new), None, "{before} and {now}");
        }
        assert_eq!(first_break(&schema("integer", unchanged.clone()), &schema("number", unchanged)), None);
        for (before, now, says) in [(&reference, &bounded, "minimum"), (&listed, &listed, "prefixItems")] {
            let (old, new) = (schema("integer", before.clone()), schema("number", now.clone()));
            let found = first_break(&old, &new).expect("it may refuse something");
            assert!(found.path == "data.a" && found.reason.contains(says), "{found:?}");
        }
    }

    /// `a` is fine by its second alternative; what its first one took for compatible meanwhile is not.
    #[test]
    fn what_counted_as_compatible_inside_a_refused_alternative_is_compared_again() {
        let both = |total: &str, a: Value| {
            let one = json!({ "properties": { "next": { "$ref": "#/$defs/two" }, "total": { "type": total } } });
            let two = json!({ "properties": { "back": { "$ref": "#/$defs/one" } } });
            json!({ "$defs": { "one": one, "two": two }, "properties": { "a": a, "b": { "$ref": "#/$defs/two" } } })
        };
        let one = json!({ "$ref": "#/$defs/one" });
        let (old, new) = (both("number", one.clone()), both("integer", json!({ "anyOf": [one, true] })));
        assert_eq!(first_break(&old, &new).expect("b is narrower").path, "data.b.back.total");
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
