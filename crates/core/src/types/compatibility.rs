//! Checks whether a schema accepts everything that an earlier one accepts.

mod apart;
mod keywords;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use serde_json::{Map, Value};

use super::extent::{Document, REFERENCES};
use keywords::{accepts_all, bounds, required, types, uncovered, values};

/// The depth to which schemas are compared. A part that is nested deeper is reported, because it may refuse something.
const DEPTH_MAX: usize = 64;
/// The maximum number of references that are followed one after the other.
const REFERENCES_MAX: usize = 32;
/// The maximum number of pairs of schemas and of their parts that are compared.
const STEPS_MAX: u32 = 100_000;
/// The end of a sentence about schemas for whose comparison these are too few.
const TOO_MANY: &str = "has too many parts that lead to each other to be compared";
/// The dialect of a schema that names none, and the only others in which keywords beside a reference count.
const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";
const DIALECTS_WITH_KEYWORDS_BESIDE_REFERENCES: [&str; 2] = [DIALECT, "https://json-schema.org/draft/2019-09/schema"];
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

/// Keywords that refuse what no other keyword of the same schema, or of the schemas that it applies, has looked at.
const UNEVALUATED: [&str; 2] = ["unevaluatedProperties", "unevaluatedItems"];
/// Keywords that refuse nothing by themselves.
const WITHOUT_EFFECT: [&str; 12] = [
    "$comment",
    "$defs",
    "$id",
    "$schema",
    "default",
    "definitions",
    "deprecated",
    "description",
    "examples",
    "readOnly",
    "title",
    "writeOnly",
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
/// `pattern` differs, because alternatives of `oneOf` may overlap, or because the schemas are nested too deeply, the result is a break.
pub fn first_break(old: &Value, new: &Value) -> Option<Break> {
    if old == new { None } else { compared(old, new, STEPS_MAX) }
}

/// Returns the dialect of a schema.
fn dialect(schema: &Value) -> &str {
    schema.get("$schema").and_then(Value::as_str).unwrap_or(DIALECT).trim_end_matches('#')
}

/// Compares schemas, at most `steps` pairs of them and of their parts.
fn compared(old: &Value, new: &Value, steps: u32) -> Option<Break> {
    let document =
        |schema| Document::of(schema).map_err(|why| format!("has a schema that cannot be compared: it {why}"));
    let (old_document, new_document) = match (document(old), document(new)) {
        (Ok(old), Ok(new)) => (old, new),
        (Err(why), _) | (_, Err(why)) => return broken("data", why),
    };
    if !accepts_all(new) && dialect(old) != dialect(new) {
        return broken("data", "has a schema with another $schema, in which keywords may mean something else");
    }
    let (anything, nothing) = (Value::Bool(true), Map::new());
    let comparison = Comparison {
        old: old_document,
        new: new_document,
        anything: &anything,
        nothing: &nothing,
        known: RefCell::default(),
        open: RefCell::default(),
        left: Cell::new(steps),
        ignores_what_is_beside_references: !DIALECTS_WITH_KEYWORDS_BESIDE_REFERENCES.contains(&dialect(new)),
    };
    let found = comparison.of(old, new, "data", 0)?;
    // Without a step left, parts count as different that may be the same.
    let reason = if comparison.left.get() == 0 { TOO_MANY.to_owned() } else { found.reason };
    Some(Break { reason, ..found })
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
    /// Whether the new schema is of a dialect in which a reference counts alone.
    ignores_what_is_beside_references: bool,
}

/// Two schemas, identified by their addresses.
type Pair = (*const Value, *const Value);

fn broken(path: &str, reason: impl Into<String>) -> Option<Break> {
    Some(Break { path: path.to_owned(), reason: reason.into() })
}

fn depends(keyword: &str) -> String {
    format!("has {keyword}, whose effect depends on other keywords that differ")
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
            let before = olds.get(n).copied();
            if let Some(keyword) = self.beside_reference(before, schema) {
                return broken(
                    path,
                    format!("has {keyword} beside a reference, which may refuse values of earlier events"),
                );
            }
            if let Some(keyword) = self.depending(before.unwrap_or(self.anything), schema) {
                return broken(path, depends(keyword));
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

    /// Counts one comparison. Returns false once the limit is reached.
    fn step(&self) -> bool {
        let left = self.left.get().checked_sub(1);
        self.left.set(left.unwrap_or_default());
        left.is_some()
    }

    /// Returns a keyword that narrows what a reference in the same schema accepts, unless the old schema had the same one.
    fn beside_reference(&self, old: Option<&'s Value>, new: &'s Value) -> Option<&'static str> {
        let mut keywords = COMPARED.iter().chain(&LOWER).chain(&UPPER).chain(&FIXED).copied();
        let changed = keywords.find(|keyword| self.differs(old.and_then(|old| old.get(*keyword)), new.get(*keyword)));
        changed.or_else(|| {
            let (old, new) = (old?.as_object()?, new.as_object()?);
            // Fields that are no longer named would be further ones.
            let is_closed = new.get("additionalProperties").is_some_and(|further| !accepts_all(further));
            let loses_fields = is_closed && old.contains_key("properties") && !new.contains_key("properties");
            if loses_fields { Some("additionalProperties") } else { uncovered(old, new) }
        })
    }

    /// Returns a keyword of the new schema whose effect depends on all others of that schema and on what they refer to, unless all of
    /// that is as before: one for what is unevaluated, and a second reference, which is not followed.
    fn depending(&self, old: &'s Value, new: &'s Value) -> Option<&'static str> {
        let restricts = |name: &&str| new.get(*name).is_some_and(|limit| !accepts_all(limit));
        let unevaluated = UNEVALUATED.iter().copied().find(restricts);
        let second = || REFERENCES.iter().copied().filter(|name| new.get(*name).is_some()).nth(1);
        unevaluated.or_else(second).filter(|_| !self.only_gains_fields(old, new))
    }

    /// Returns whether two schemas are the same with all that they refer to, apart from the schemas of their fields, of which the new one
    /// has at least those of the old one.
    fn only_gains_fields(&self, old: &'s Value, new: &'s Value) -> bool {
        let (Some(before), Some(now)) = (old.as_object(), new.as_object()) else { return old == new };
        let (olds, news): (Vec<_>, Vec<_>) = (self.old.targets(old).collect(), self.new.targets(new).collect());
        if olds.len() != news.len() || !olds.into_iter().zip(news).all(|(old, new)| self.is_same(old, new)) {
            return false;
        }
        let fields = |schema: &'s Map<String, Value>| schema.get("properties").and_then(Value::as_object);
        let is_named = |name: &String| fields(now).is_some_and(|now| now.contains_key(name));
        if !fields(before).into_iter().flatten().all(|(name, _)| is_named(name)) {
            return false;
        }
        let has_effect = |name: &str| name != "properties" && !WITHOUT_EFFECT.contains(&name);
        let others: Vec<_> = now.iter().filter(|(name, _)| has_effect(name)).collect();
        before.keys().filter(|name| has_effect(name)).count() == others.len()
            && others.iter().all(|(name, now)| before.get(*name).is_some_and(|before| self.is_same(before, now)))
    }

    /// Returns whether the new schema has a keyword that the old one lacked or had differently.
    fn differs(&self, old: Option<&'s Value>, new: Option<&'s Value>) -> bool {
        new.is_some_and(|new| old.is_none_or(|old| !self.is_same(old, new)))
    }

    /// Returns whether two parts are equal, and so is everything that they refer to.
    fn is_same(&self, old: &'s Value, new: &'s Value) -> bool {
        if old != new {
            return false;
        }
        // The pairs in `left` are equal, and so are their parts. What these refer to may not be.
        let (mut left, mut seen) = (vec![(old, new)], HashSet::new());
        while let Some((old, new)) = left.pop() {
            if !seen.insert((std::ptr::from_ref(old), std::ptr::from_ref(new))) {
                continue;
            }
            let (olds, news): (Vec<_>, Vec<_>) = (self.old.targets(old).collect(), self.new.targets(new).collect());
            if !self.step() || olds != news {
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
        if !self.step() {
            return broken(path, TOO_MANY);
        }
        let (whole, whole_new) = (old, new);
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
        if let Some(keyword) = self.depending(whole, whole_new) {
            return broken(path, depends(keyword));
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
        let was_required: BTreeSet<&str> = required(old).collect();
        let is_required: BTreeSet<&str> = required(new).collect();
        if let Some(name) = is_required.difference(&was_required).next() {
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
        if let Some(name) = FIXED.iter().find(|name| self.differs(old.get(**name), new.get(**name))) {
            return broken(path, format!("has a different {name}, which may refuse values of earlier events"));
        }
        let lost = uncovered(old, new)?;
        broken(path, format!("has no {lost} any more, and what it described may be refused now"))
    }

    fn elements(
        &self,
        old: &'s Map<String, Value>,
        new: &'s Map<String, Value>,
        path: &str,
        depth: usize,
    ) -> Option<Break> {
        let now = new.get("items")?;
        if now.is_array() {
            // In earlier drafts, a list of schemas by place.
            let reason = "has a different list of items, which may refuse values of earlier events";
            return if self.differs(old.get("items"), Some(now)) { broken(path, reason) } else { None };
        }
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
            if name == "oneOf"
                && let Some((one, other)) = self.overlapping(old.get(name), now)
            {
                let reason =
                    format!("may match two alternatives of oneOf, those at {one} and {other}, and has to match one");
                return broken(path, reason);
            }
        }
        None
    }
}
