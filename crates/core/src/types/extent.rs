//! How much work a schema can make of an event: a small schema whose references double at each step, or lead through themselves by a long
//! way, would hold up or end the process that checks an event with it.
//!
//! Schemas that are applied to the same value add up; of those for the values inside, the most expensive counts. Recursive schemas are
//! followed down to the greatest depth of data. A schema that is too much for every event is refused. One that is too much for deep
//! events only, as alternatives that lead to themselves are, is taken, and each event is measured before it is checked.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use crate::limits::DATA_DEPTH_MAX;

/// Schemas that are applied to one value; beyond it, also with the values inside along a path, events are measured.
const WORK_MAX: u64 = 5_000;
/// Schemas that are applied to all values of a measured event.
const STEPS_MAX: u64 = 1_000_000;
/// Schemas inside of each other, each by a reference or as a part.
const CHAIN_MAX: usize = 1_000;
/// Schemas that are looked at, each for every depth at which it can be applied.
const LOOKED_AT_MAX: usize = 500_000;

const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];
/// Schemas that are applied to the same value.
const IN_PLACE: [&str; 9] =
    ["allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies"];
/// The same for each value inside of an object, beside `properties`, of which one is.
const OF_FIELDS: [&str; 4] = ["patternProperties", "additionalProperties", "unevaluatedProperties", "propertyNames"];
/// The same for each value inside of an array, beside `prefixItems`, of which one is.
const OF_ITEMS: [&str; 4] = ["items", "additionalItems", "unevaluatedItems", "contains"];
/// Keywords with schemas under names.
const NAMED: [&str; 4] = ["properties", "patternProperties", "dependentSchemas", "dependencies"];

/// What a schema can make of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchemaWork {
    measured: bool,
}

impl SchemaWork {
    /// Looks at a schema.
    ///
    /// # Errors
    /// What is too much for every event, to be put after the name of the schema.
    pub fn of(schema: &Value) -> Result<Self, String> {
        let mut walk = Walk { document: Document::of(schema)?, known: HashMap::new(), open: HashSet::new() };
        let extent = walk.extent(schema, DATA_DEPTH_MAX, 0)?;
        Ok(Self { measured: extent.work > WORK_MAX })
    }

    /// Whether the data of an event may be checked with the schema.
    pub fn allows(self, schema: &Value, data: &Value) -> bool {
        let Some(document) = self.measured.then(|| Document::of(schema).ok()).flatten() else { return true };
        let mut left = STEPS_MAX;
        document.spend(schema, data, 0, &mut left).is_some()
    }
}

/// A schema with the names by which parts of it can be meant.
struct Document<'s> {
    root: &'s Value,
    anchors: HashMap<&'s str, &'s Value>,
}

impl<'s> Document<'s> {
    fn of(root: &'s Value) -> Result<Self, String> {
        let mut anchors = HashMap::new();
        find_anchors(root, true, &mut anchors)?;
        Ok(Self { root, anchors })
    }

    /// The schemas that a schema refers to.
    fn targets(&self, schema: &'s Value) -> impl Iterator<Item = &'s Value> {
        REFERENCES.iter().filter_map(move |keyword| {
            let place = schema.get(keyword)?.as_str()?.strip_prefix('#')?;
            match place.is_empty() || place.starts_with('/') {
                true => self.root.pointer(&decoded(place)),
                false => self.anchors.get(place).copied(),
            }
        })
    }

    /// Counts the schemas that are applied to these data. None if more are than are left.
    fn spend(&self, schema: &'s Value, data: &Value, above: usize, left: &mut u64) -> Option<()> {
        if !schema.is_object() {
            return Some(());
        }
        *left = left.checked_sub(1)?;
        // A schema that applies itself to the same value adds nothing.
        if above > CHAIN_MAX {
            return None;
        }
        for same in self.targets(schema).chain(IN_PLACE.iter().flat_map(|keyword| parts(schema, keyword))) {
            self.spend(same, data, above + 1, left)?;
        }
        let fields = data.as_object().into_iter().flatten();
        for (name, value) in fields {
            let own = schema.get("properties").and_then(|all| all.get(name));
            for inner in own.into_iter().chain(OF_FIELDS.iter().flat_map(|keyword| parts(schema, keyword))) {
                self.spend(inner, value, above + 1, left)?;
            }
        }
        for (at, value) in data.as_array().into_iter().flatten().enumerate() {
            let own = schema.get("prefixItems").and_then(|all| all.get(at));
            for inner in own.into_iter().chain(OF_ITEMS.iter().flat_map(|keyword| parts(schema, keyword))) {
                self.spend(inner, value, above + 1, left)?;
            }
        }
        Some(())
    }
}

/// The schemas of a keyword: one, or those in a list or under names.
fn parts<'s>(schema: &'s Value, keyword: &str) -> impl Iterator<Item = &'s Value> + use<'s> {
    let part = schema.get(keyword);
    let named = NAMED.contains(&keyword);
    let under_names = part.filter(|_| named).and_then(Value::as_object).into_iter().flat_map(serde_json::Map::values);
    let one = part.filter(|part| !named && part.is_object());
    one.into_iter().chain(part.and_then(Value::as_array).into_iter().flatten()).chain(under_names)
}

/// What one schema makes of a value.
#[derive(Debug, Clone, Copy, Default)]
struct Extent {
    /// Schemas that are applied to the value itself.
    on_value: u64,
    /// Schemas that are applied to it and to the values inside of it, along the most expensive path.
    work: u64,
    chain: usize,
}

impl Extent {
    fn and(self, other: Self) -> Self {
        Self {
            on_value: self.on_value.saturating_add(other.on_value),
            work: self.work.saturating_add(other.work),
            chain: self.chain.max(other.chain),
        }
    }

    fn or(self, other: Self) -> Self {
        Self {
            on_value: self.on_value.max(other.on_value),
            work: self.work.max(other.work),
            chain: self.chain.max(other.chain),
        }
    }
}

/// A schema by its place in memory, for values with this many levels inside.
type Place = (*const Value, usize);

struct Walk<'s> {
    document: Document<'s>,
    known: HashMap<Place, Extent>,
    /// Those that are being looked at: a schema that applies itself to the same value adds nothing.
    open: HashSet<Place>,
}

impl<'s> Walk<'s> {
    fn extent(&mut self, schema: &'s Value, depth: usize, above: usize) -> Result<Extent, String> {
        if !schema.is_object() {
            return Ok(Extent::default());
        }
        let place = (std::ptr::from_ref(schema), depth);
        if let Some(known) = self.known.get(&place) {
            return Ok(*known);
        }
        if above > CHAIN_MAX {
            return Err(too_long());
        }
        if self.known.len() > LOOKED_AT_MAX {
            return Err("has too many schemas that refer to each other; take some out".to_owned());
        }
        if !self.open.insert(place) {
            return Ok(Extent::default());
        }
        let targets: Vec<_> = self.document.targets(schema).collect();
        let same = targets.into_iter().chain(IN_PLACE.iter().flat_map(|keyword| parts(schema, keyword)));
        let same = self.together(same, depth, above, Extent::and)?;
        let inside = match depth.checked_sub(1) {
            None => Extent::default(),
            Some(depth) => {
                let field = self.inside(schema, "properties", &OF_FIELDS, depth, above)?;
                field.or(self.inside(schema, "prefixItems", &OF_ITEMS, depth, above)?)
            }
        };
        let extent = Extent {
            on_value: same.on_value.saturating_add(1),
            work: same.work.saturating_add(inside.work).saturating_add(1),
            chain: same.chain.max(inside.chain) + 1,
        };
        if extent.on_value > WORK_MAX {
            let why = "take out references that lead to the same schema";
            return Err(format!("applies more than {WORK_MAX} schemas to one value; {why}"));
        }
        if extent.chain > CHAIN_MAX {
            return Err(too_long());
        }
        self.open.remove(&place);
        self.known.insert(place, extent);
        Ok(extent)
    }

    /// The extent of the schemas for a value inside: of `one_of` one is applied, of the others each.
    fn inside(
        &mut self,
        schema: &'s Value,
        one_of: &str,
        each: &[&str],
        depth: usize,
        above: usize,
    ) -> Result<Extent, String> {
        let one = self.together(parts(schema, one_of), depth, above, Extent::or)?;
        let each = self.together(each.iter().flat_map(|keyword| parts(schema, keyword)), depth, above, Extent::and)?;
        Ok(one.and(each))
    }

    fn together(
        &mut self,
        schemas: impl Iterator<Item = &'s Value>,
        depth: usize,
        above: usize,
        together: fn(Extent, Extent) -> Extent,
    ) -> Result<Extent, String> {
        let mut found = Extent::default();
        for schema in schemas {
            found = together(found, self.extent(schema, depth, above + 1)?);
        }
        Ok(found)
    }
}

fn too_long() -> String {
    format!(
        "has more than {CHAIN_MAX} schemas inside of each other where data is nested {DATA_DEPTH_MAX} deep; take levels out"
    )
}

/// A fragment without its percent signs.
fn decoded(fragment: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = fragment.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let hex = (*first == b'%').then(|| behind.get(..2)).flatten();
        let byte = hex.and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &behind[2..] } else { behind };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Finds the names by which schemas can be meant. One with an identity of its own is refused, because references inside of it mean others.
fn find_anchors<'s>(schema: &'s Value, is_root: bool, anchors: &mut HashMap<&'s str, &'s Value>) -> Result<(), String> {
    for (name, value) in schema.as_object().into_iter().flatten() {
        match (&**name, value.as_str()) {
            ("$id", Some(id)) if !is_root => {
                return Err(format!("has a schema inside of it with an $id of its own, {id:?}; take the $id out"));
            }
            ("$anchor" | "$dynamicAnchor", Some(anchor)) => _ = anchors.insert(anchor, schema),
            ("const" | "enum" | "default" | "examples", _) => {}
            _ => find_anchors(value, false, anchors)?,
        }
    }
    schema.as_array().into_iter().flatten().try_for_each(|inner| find_anchors(inner, false, anchors))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Schemas that each refer to the one before, so many of them.
    fn chain(count: usize, link: fn(Value) -> Value, last: Value) -> Value {
        let mut all = serde_json::Map::from_iter([("d0".to_owned(), last)]);
        for n in 1..count {
            all.insert(format!("d{n}"), link(json!({ "$ref": format!("#/$defs/d{}", n - 1) })));
        }
        json!({ "$defs": all, "$ref": format!("#/$defs/d{}", count - 1) })
    }

    fn measured(schema: &Value) -> bool {
        SchemaWork::of(schema).unwrap_or_else(|why| panic!("{why}: {:.200}", schema.to_string())).measured
    }

    /// Data that are nested so deep under a name.
    fn nested(name: &str, depth: usize) -> Value {
        (0..depth).fold(json!({}), |inner, _| json!({ name: inner }))
    }

    #[test]
    fn schemas_of_the_usual_kind_are_taken_however_large_or_recursive() {
        let any = json!({ "anyOf": [{ "type": "null" }, { "type": "string" }] });
        let fields: serde_json::Map<String, Value> = (0..2_000).map(|n| (format!("f{n}"), any.clone())).collect();
        let leaf = json!({ "$ref": "#/$defs/node" });
        let tree = json!({ "properties": { "left": leaf, "right": leaf, "all": { "items": leaf } } });
        let next = json!({ "properties": { "next": { "$ref": "#n" } } });
        let linked = json!({ "$anchor": "n", "oneOf": [{ "type": "null" }, next] });
        for schema in [
            json!(true),
            json!({ "properties": fields }),
            json!({ "$defs": { "node": tree }, "$ref": "#/$defs/node" }),
            json!({ "$id": "https://example.com/list", "$defs": { "n": linked }, "$ref": "#n" }),
            json!({ "$ref": "#" }),
            json!({ "properties": { "$id": { "type": "string" }, "a%b": {} }, "$ref": "#/properties/a%25b" }),
            chain(100, |link| json!({ "allOf": [link] }), json!({ "type": "integer" })),
        ] {
            assert!(!measured(&schema), "{:.200}", schema.to_string());
        }
    }

    #[test]
    fn alternatives_that_lead_to_themselves_are_measured_with_each_event() {
        let again = json!({ "$ref": "#" });
        let named = |name: &str| json!({ "required": [name], "properties": { name: again, "left": again } });
        let expression = json!({ "anyOf": [{ "required": ["value"] }, named("add"), named("not"), named("or")] });
        assert!(measured(&expression));
        let work = SchemaWork::of(&expression).expect("taken");
        assert!(work.allows(&expression, &json!({ "add": { "value": 1 }, "left": { "not": { "value": 2 } } })));
        assert!(work.allows(&expression, &nested("add", 90)), "one alternative has this name");
        assert!(!work.allows(&expression, &nested("left", 90)), "three alternatives have this name");
        assert!(work.allows(&expression, &nested("left", 8)));
        let plain = json!({ "properties": { "left": again } });
        assert!(SchemaWork::of(&plain).expect("taken").allows(&plain, &nested("left", 90)));
    }

    #[test]
    fn schemas_that_would_hold_up_or_end_the_process_are_refused() {
        let twice = |link: Value| json!({ "allOf": [link, link] });
        let again = json!({ "properties": { "a": { "$ref": "#/$defs/d19" } } });
        for (schema, why) in [
            (chain(40, twice, json!({})), "applies more than"),
            (chain(7_000, |link| link, json!({})), "inside of each other"),
            (chain(20, |link| json!({ "allOf": [link] }), again), "inside of each other"),
            (json!({ "$defs": { "x": { "$id": "https://example.com/x" } } }), "an $id of its own"),
        ] {
            let refused = SchemaWork::of(&schema).expect_err("it is too much");
            assert!(refused.contains(why), "{refused} for {:.200}", schema.to_string());
        }
        let deep = json!({ "properties": { "a": { "allOf": [{ "$ref": "#" }, { "$ref": "#" }] } } });
        assert!(!SchemaWork::of(&deep).expect("taken").allows(&deep, &nested("a", 90)));
        let by_anchor = json!({ "$anchor": "a", "items": { "anyOf": [{ "$ref": "#a" }, { "$ref": "#a" }] } });
        let schema = json!({ "$defs": { "x": by_anchor }, "$ref": "#a" });
        let lists = (0..90).fold(json!([]), |inner, _| json!([inner]));
        assert!(!SchemaWork::of(&schema).expect("taken").allows(&schema, &lists));
    }
}
