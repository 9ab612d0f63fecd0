//! What may change from one generation to the next, and what may not.

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
        let node = json!({"type": "object", "properties": {"leaf": {"type": leaf}, "next": {"$ref": "#/$defs/node"}}});
        json!({"$ref": "#/$defs/node", "$defs": {"node": node}})
    };
    assert_eq!(first_break(&tree("string"), &tree("string")), None);
    assert_eq!(first_break(&tree("string"), &tree("number")).expect("broken").path, "data.leaf");
}

/// Asserts that a change is compatible, or that it is a break at a path, for a reason.
fn assert_change(old: &Value, new: &Value, expected: Option<(&str, &str)>) {
    match (first_break(old, new), expected) {
        (None, None) => {}
        (Some(found), Some((path, says))) => {
            assert!(found.path == path && found.reason.contains(says), "{old} to {new}: {found:?}");
        }
        (found, _) => panic!("{old} to {new}: {found:?} instead of {expected:?}"),
    }
}

#[test]
fn a_keyword_is_not_removed_while_another_one_applies_to_what_it_left_over() {
    let first = json!({ "prefixItems": [{ "type": "string" }], "items": { "type": "integer" } });
    let by_name = json!({ "patternProperties": { "^x": true }, "additionalProperties": false });
    let at_least = |least: u64| json!({ "contains": { "type": "string" }, "minContains": least });
    for (old, new, expected) in [
        (&first, json!({ "items": { "type": "integer" } }), Some(("data", "prefixItems"))),
        (&first, json!({ "items": true }), None),
        (&first, json!({}), None),
        (&by_name, json!({ "additionalProperties": false }), Some(("data", "patternProperties"))),
        (&by_name, json!({ "additionalProperties": {} }), None),
        (&at_least(0), json!({ "contains": { "type": "string" } }), Some(("data", "minContains"))),
        (&at_least(2), json!({ "contains": { "type": "string" } }), None),
    ] {
        assert_change(old, &new, expected);
        let Some((_, says)) = expected else { continue };
        let beside_reference = |schema: &Value| {
            let mut schema = schema.clone();
            schema["$ref"] = json!("#/$defs/any");
            json!({ "$defs": { "any": {} }, "properties": { "a": schema } })
        };
        assert_change(&beside_reference(old), &beside_reference(&new), Some(("data.a", says)));
    }
    let closed = |fields: Value| {
        let mut schema = json!({ "$ref": "#/$defs/any", "additionalProperties": false });
        schema.as_object_mut().expect("an object").extend(fields.as_object().expect("an object").clone());
        json!({ "$defs": { "any": {} }, "properties": { "a": schema } })
    };
    let named = closed(json!({ "properties": { "x": true } }));
    assert_change(&named, &closed(json!({})), Some(("data.a", "additionalProperties")));
}

#[test]
fn alternatives_of_one_of_must_not_begin_to_overlap() {
    let either = |all: Value| json!({ "oneOf": all });
    let tagged = |kind: &str, field: &str| {
        let fields = json!({ "kind": { "const": kind }, field: { "type": "integer" } });
        json!({ "type": "object", "required": ["kind"], "properties": fields })
    };
    let variant = |name: &str| {
        let fields = json!({ name: true });
        json!({ "type": "object", "required": [name], "properties": fields, "additionalProperties": false })
    };
    let (short, long) = (json!({ "type": "string", "maxLength": 5 }), json!({ "type": "string", "minLength": 3 }));
    let overlaps = Some(("data", "two alternatives of oneOf"));
    for (old, new, expected) in [
        (json!({ "type": "integer" }), either(json!([{ "type": "integer" }, { "type": "number" }])), overlaps),
        (json!({ "type": "integer" }), either(json!([{ "type": "integer" }, { "type": "string" }])), None),
        (either(json!([{ "const": 1 }])), either(json!([{ "const": 1 }, { "const": 1.0 }])), overlaps),
        (either(json!([{ "const": "a" }])), either(json!([{ "const": "a" }, { "enum": ["b", "c"] }])), None),
        (either(json!([tagged("a", "x")])), either(json!([tagged("a", "x"), tagged("b", "x")])), None),
        (either(json!([tagged("a", "x")])), either(json!([tagged("a", "x"), tagged("a", "y")])), overlaps),
        (either(json!([tagged("a", "x")])), either(json!([tagged("a", "x"), { "required": ["y"] }])), overlaps),
        (either(json!([variant("a")])), either(json!([variant("a"), variant("b")])), None),
        // Two that overlapped before are as they were.
        (either(json!([short, long])), either(json!([short, long, { "type": "null" }])), None),
        (either(json!([short, long])), either(json!([short, { "type": "string", "minLength": 2 }])), overlaps),
        (json!({ "anyOf": [short, long] }), either(json!([short, long])), overlaps),
        (either(json!([short, long])), json!({ "anyOf": [short, long] }), None),
    ] {
        assert_change(&old, &new, expected);
    }
    let by_reference = |others: Value| {
        let mut all = vec![json!({ "$ref": "#/$defs/a" })];
        all.extend(others.as_array().expect("a list").iter().cloned());
        json!({ "$defs": { "a": tagged("a", "x"), "b": tagged("b", "x") }, "oneOf": all })
    };
    assert_change(&by_reference(json!([])), &by_reference(json!([{ "$ref": "#/$defs/b" }])), None);
    assert_change(&by_reference(json!([])), &by_reference(json!([{ "$ref": "#/$defs/a" }])), overlaps);
}

#[test]
fn a_second_reference_is_compared_only_if_nothing_that_it_refers_to_changes() {
    let schema = |leaf: &str, second: bool| {
        let definitions = json!({ "any": {}, "n": { "$dynamicAnchor": "n", "type": leaf } });
        let mut field = json!({ "$ref": "#/$defs/any" });
        if second {
            field["$dynamicRef"] = json!("#n");
        }
        json!({ "$defs": definitions, "properties": { "a": field } })
    };
    let refused = Some(("data.a", "$dynamicRef"));
    assert_change(&schema("number", true), &schema("integer", true), refused);
    assert_change(&schema("number", false), &schema("number", true), refused);
    assert_change(&schema("number", true), &schema("integer", false), None);
    let mut described = schema("number", true);
    described["title"] = json!("an order");
    assert_change(&schema("number", true), &described, None);
}

#[test]
fn what_is_unevaluated_is_refused_only_if_all_that_evaluates_is_as_before() {
    let schema = |base: &[&str], own: &[&str]| {
        let fields = |names: &[&str]| -> Map<String, Value> {
            names.iter().map(|name| ((*name).to_owned(), json!({ "type": "string" }))).collect()
        };
        json!({
            "$defs": { "base": { "properties": fields(base) } }, "allOf": [{ "$ref": "#/$defs/base" }],
            "properties": fields(own), "unevaluatedProperties": false
        })
    };
    let before = schema(&["a", "b"], &["c"]);
    assert_change(&before, &schema(&["a", "b"], &["c", "d"]), None);
    for now in [schema(&["a"], &["c"]), schema(&["a", "b"], &[])] {
        assert_change(&before, &now, Some(("data", "unevaluatedProperties")));
    }
    let list = |first: Value| json!({ "prefixItems": first, "unevaluatedItems": false });
    let (one, two) = (list(json!([{ "type": "string" }])), list(json!([{ "type": "string" }, true])));
    assert_change(&one, &one.clone(), None);
    assert_change(&one, &two, Some(("data", "unevaluatedItems")));
    let by_reference = |base: &[&str]| {
        let mut schema = schema(base, &["c"]);
        let fields = schema.as_object_mut().expect("an object");
        fields.remove("allOf");
        fields.insert("$ref".to_owned(), json!("#/$defs/base"));
        schema
    };
    let refused = Some(("data", "unevaluatedProperties"));
    assert_change(&by_reference(&["a", "b"]), &by_reference(&["a"]), refused);
}

#[test]
fn a_schema_of_another_dialect_is_not_compared() {
    let of = |dialect: Option<&str>, leaf: &str| {
        let mut schema = json!({ "properties": { "a": { "type": leaf } } });
        if let Some(dialect) = dialect {
            schema["$schema"] = json!(dialect);
        }
        schema
    };
    let (seven, newest) = (Some("http://json-schema.org/draft-07/schema#"), Some(DIALECT));
    assert_change(&of(seven, "integer"), &of(newest, "number"), Some(("data", "$schema")));
    assert_change(&of(seven, "integer"), &of(seven, "number"), None);
    assert_change(&of(None, "integer"), &of(newest, "number"), None);
    assert_change(&of(seven, "integer"), &json!(true), None);
}

#[test]
fn parts_that_have_to_be_equal_count_as_steps() {
    let schema = |least: u64| json!({ "not": { "enum": (0..50).collect::<Vec<u32>>() }, "minimum": least });
    assert_eq!(compared(&schema(1), &schema(0), 100), None);
    let found = compared(&schema(1), &schema(0), 20).expect("too many");
    assert!(found.path == "data" && found.reason.contains("too many"), "{found:?}");
}

#[test]
fn a_list_of_items_of_earlier_drafts_may_stay_as_it_is() {
    let schema = |leaf: &str, total: &str| {
        let list = json!([{ "type": leaf }]);
        json!({
            "$schema": "http://json-schema.org/draft-07/schema#",
            "properties": { "list": { "items": list }, "total": { "type": total } }
        })
    };
    assert_change(&schema("string", "integer"), &schema("string", "number"), None);
    assert_change(&schema("string", "integer"), &schema("number", "number"), Some(("data.list", "list of items")));
}

#[test]
fn bounds_of_draft_4_and_constants_with_a_list_are_compared_whole() {
    let bound = |is_exclusive: bool| json!({ "minimum": 1, "exclusiveMinimum": is_exclusive });
    assert_change(&bound(false), &bound(true), Some(("data", "exclusiveMinimum")));
    assert_change(&bound(true), &bound(true), None);
    let old = json!({ "enum": ["a", "b"] });
    assert_change(&old, &json!({ "const": "a", "enum": ["b"] }), Some(("data", "no longer accepts")));
}
