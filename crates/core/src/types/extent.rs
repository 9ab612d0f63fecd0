//! Bounds the work of checking an event against a schema. A small schema whose references double at each step, or that is recursive
//! through a long cycle, could stall or crash the process that checks an event.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use crate::limits::DATA_DEPTH_MAX;

/// The maximum number of schemas that may be applied to one value. If a schema exceeds it only along with the values inside, on the most
/// expensive path, its events are measured.
const WORK_MAX: u64 = 5_000;
/// The maximum number of schemas that are applied to all values of a measured event.
const STEPS_MAX: usize = 200_000;
/// The maximum number of nested schemas, by reference or as parts, including those for the values inside.
const CHAIN_MAX: usize = 1_000;
/// The maximum number of nested schemas for one value.
const IN_PLACE_MAX: usize = 250;
/// The maximum number of schemas that are analysed, counted once for each depth at which they can be applied.
const LOOKED_AT_MAX: usize = 1_000_000;

/// Keywords that refer to another schema.
pub(super) const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];
/// Keywords whose schemas are applied to the same value.
const IN_PLACE: [&str; 9] =
    ["allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies"];
/// Keywords whose schemas are applied to each value in an object; of `properties`, only one is.
const OF_FIELDS: [&str; 4] = ["patternProperties", "additionalProperties", "unevaluatedProperties", "propertyNames"];
/// Keywords whose schemas are applied to each value in an array; of `prefixItems`, only one is.
const OF_ITEMS: [&str; 4] = ["items", "additionalItems", "unevaluatedItems", "contains"];
/// Keywords that map names to schemas.
const NAMED: [&str; 4] = ["properties", "patternProperties", "dependentSchemas", "dependencies"];

/// The result of analysing a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchemaWork {
    measured: bool,
}

impl SchemaWork {
    /// Analyses a schema.
    ///
    /// # Errors
    /// What costs too much for every event, worded to follow the name of the schema.
    pub fn of(schema: &Value) -> Result<Self, String> {
        let document = Document::of(schema)?;
        let all = document.schemas();
        // Start with values without nesting, then those with one level inside, and so on until the result no longer changes.
        let mut inside = Extents::default();
        for depth in 0..=DATA_DEPTH_MAX {
            if all.len() * depth > LOOKED_AT_MAX {
                return Err("has too many schemas that refer to each other; remove some".to_owned());
            }
            let mut level =
                Level { document: &document, inside: &inside, known: Extents::default(), open: HashSet::new() };
            for one in &all {
                level.extent(one, 0)?;
            }
            let known = level.known;
            if known == inside {
                break;
            }
            inside = known;
        }
        let work = inside.get(&std::ptr::from_ref(schema)).map_or(0, |extent| extent.work);
        Ok(Self { measured: work > WORK_MAX })
    }

    /// Returns whether the data of an event may be checked against the schema.
    pub fn allows(self, schema: &Value, data: &Value) -> bool {
        let document = self.measured.then(|| Document::of(schema).ok()).flatten();
        document.is_none_or(|document| document.steps(data, STEPS_MAX).is_some())
    }
}

/// A schema with its anchors.
pub(super) struct Document<'s> {
    root: &'s Value,
    anchors: HashMap<&'s str, &'s Value>,
}

impl<'s> Document<'s> {
    pub(super) fn of(root: &'s Value) -> Result<Self, String> {
        let mut anchors = HashMap::new();
        find_anchors(root, true, &mut anchors)?;
        Ok(Self { root, anchors })
    }

    /// Returns the schemas that a schema references.
    pub(super) fn targets(&self, schema: &'s Value) -> impl Iterator<Item = &'s Value> {
        REFERENCES.iter().filter_map(move |keyword| {
            let place = schema.get(keyword)?.as_str()?.strip_prefix('#')?;
            match place.is_empty() || place.starts_with('/') {
                true => self.root.pointer(&decoded(place)),
                false => self.anchors.get(place).copied(),
            }
        })
    }

    /// Returns all schemas that can be applied to a value.
    fn schemas(&self) -> Vec<&'s Value> {
        let (mut all, mut seen, mut left) = (Vec::new(), HashSet::new(), vec![self.root]);
        while let Some(schema) = left.pop() {
            if schema.is_object() && seen.insert(std::ptr::from_ref(schema)) {
                all.push(schema);
                let keywords = IN_PLACE.iter().chain(&OF_FIELDS).chain(&OF_ITEMS).chain(&["properties", "prefixItems"]);
                left.extend(self.targets(schema).chain(keywords.flat_map(|keyword| parts(schema, keyword))));
            }
        }
        all
    }

    /// Returns the number of schemas that are applied to this data, or `None` if it exceeds `most`.
    fn steps(&self, data: &Value, most: usize) -> Option<usize> {
        let (mut left, mut steps) = (vec![(self.root, data)], 0);
        while let Some((schema, data)) = left.pop() {
            if !schema.is_object() {
                continue;
            }
            steps += 1;
            let same = self.targets(schema).chain(IN_PLACE.iter().flat_map(|keyword| parts(schema, keyword)));
            left.extend(same.map(|same| (same, data)));
            for (name, value) in data.as_object().into_iter().flatten() {
                let own = schema.get("properties").and_then(|all| all.get(name)).into_iter();
                left.extend(
                    own.chain(OF_FIELDS.iter().flat_map(|keyword| parts(schema, keyword))).map(|it| (it, value)),
                );
            }
            for (at, value) in data.as_array().into_iter().flatten().enumerate() {
                let own = schema.get("prefixItems").and_then(|all| all.get(at)).into_iter();
                left.extend(
                    own.chain(OF_ITEMS.iter().flat_map(|keyword| parts(schema, keyword))).map(|it| (it, value)),
                );
            }
            if steps + left.len() > most {
                return None;
            }
        }
        Some(steps)
    }
}

/// Returns the schemas of a keyword: one, or those in a list or under names.
fn parts<'s>(schema: &'s Value, keyword: &str) -> impl Iterator<Item = &'s Value> + use<'s> {
    let part = schema.get(keyword);
    let named = NAMED.contains(&keyword);
    let under_names = part.filter(|_| named).and_then(Value::as_object).into_iter().flat_map(serde_json::Map::values);
    let one = part.filter(|part| !named && part.is_object());
    one.into_iter().chain(part.and_then(Value::as_array).into_iter().flatten()).chain(under_names)
}

/// The cost of applying one schema to a value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Extent {
    /// The number of schemas that are applied to the value itself.
    on_value: u64,
    /// The number of schemas that are applied to it and to the values inside it, along the most expensive path.
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

/// Costs of schemas, by address.
type Extents = HashMap<*const Value, Extent>;

/// The costs for values with a certain number of nested levels.
struct Level<'d, 's> {
    document: &'d Document<'s>,
    /// The costs for values with one level less.
    inside: &'d Extents,
    known: Extents,
    /// The schemas being analysed. A schema that applies itself to the same value adds no cost.
    open: HashSet<*const Value>,
}

impl<'s> Level<'_, 's> {
    fn extent(&mut self, schema: &'s Value, above: usize) -> Result<Extent, String> {
        let place = std::ptr::from_ref(schema);
        if let Some(known) = self.known.get(&place) {
            return Ok(*known);
        }
        if above > IN_PLACE_MAX {
            return Err(format!("has more than {IN_PLACE_MAX} nested schemas for one value; remove some levels"));
        }
        if !schema.is_object() || !self.open.insert(place) {
            return Ok(Extent::default());
        }
        let mut same = Extent::default();
        for one in self.document.targets(schema).chain(IN_PLACE.iter().flat_map(|keyword| parts(schema, keyword))) {
            same = same.and(self.extent(one, above + 1)?);
        }
        let field = self.inside(schema, "properties", &OF_FIELDS);
        let inside = field.or(self.inside(schema, "prefixItems", &OF_ITEMS));
        let extent = Extent {
            on_value: same.on_value.saturating_add(1),
            work: same.work.saturating_add(inside.work).saturating_add(1),
            chain: same.chain.max(inside.chain) + 1,
        };
        if extent.on_value > WORK_MAX {
            let why = "remove references that lead to the same schema";
            return Err(format!("applies more than {WORK_MAX} schemas to one value; {why}"));
        }
        if extent.chain > CHAIN_MAX {
            return Err(too_long());
        }
        self.open.remove(&place);
        self.known.insert(place, extent);
        Ok(extent)
    }

    /// Returns the cost of the schemas for a value inside: one of the schemas under `one_of` is applied, and all of those under `each`.
    fn inside(&self, schema: &'s Value, one_of: &str, each: &[&str]) -> Extent {
        let of = |one: &Value| self.inside.get(&std::ptr::from_ref(one)).copied().unwrap_or_default();
        let one = parts(schema, one_of).map(of).fold(Extent::default(), Extent::or);
        each.iter().flat_map(|keyword| parts(schema, keyword)).map(of).fold(one, Extent::and)
    }
}

fn too_long() -> String {
    format!("has more than {CHAIN_MAX} nested schemas where data is nested {DATA_DEPTH_MAX} deep; remove some levels")
}

/// Decodes the percent encoding of a fragment.
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

/// Collects the anchors of a schema. A nested schema with an `$id` is refused, because references inside it would resolve differently.
fn find_anchors<'s>(schema: &'s Value, is_root: bool, anchors: &mut HashMap<&'s str, &'s Value>) -> Result<(), String> {
    for (name, value) in schema.as_object().into_iter().flatten() {
        match (&**name, value.as_str()) {
            ("$id", Some(id)) if !is_root => {
                return Err(format!("contains a schema with its own $id, {id:?}; remove that $id"));
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

    /// This many schemas, each of which refers to the previous one.
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

    /// Data nested this deep under a name.
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
            (chain(7_000, |link| link, json!({})), "for one value"),
            (chain(20, |link| json!({ "allOf": [link] }), again), "nested schemas"),
            (json!({ "$defs": { "x": { "$id": "https://example.com/x" } } }), "its own $id"),
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
