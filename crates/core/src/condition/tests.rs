//! What was found by comparing with MongoDB 6.0 stays here as named cases.

mod wow;

use bson::{Bson, Document, RawDocumentBuf, doc};

use super::{Condition, Deletion, Fragment, Matcher, Test};
use crate::Code;

#[track_caller]
fn holds(condition: &Condition, document: Document) -> bool {
    condition.validate().expect("the condition is right");
    let text = serde_json::to_string(condition).expect("it is JSON");
    let read: Condition = serde_json::from_str(&text).expect("it is read back");
    let document = RawDocumentBuf::try_from(&document).expect("it is a document");
    let holds = Matcher::new(condition).matches(&document);
    assert_eq!(Matcher::new(&read).matches(&document), holds, "{text} means the same");
    holds
}

#[test]
fn a_missing_field_is_null() {
    for document in [doc! {}, doc! { "a": Bson::Null }, doc! { "a": { "c": 1 }, "x": 1 }] {
        let path = if document.contains_key("x") { "a.b" } else { "a" };
        assert!(holds(&Condition::eq(path, Bson::Null), document.clone()), "{document}");
        assert!(holds(&Condition::lte(path, Bson::Null), document.clone()));
        assert!(holds(&Condition::is_in(path, [Bson::Null, Bson::Int32(1)]), document.clone()));
        assert!(holds(&Condition::not_in(path, [1, 2]), document.clone()));
        assert!(holds(&Condition::ne(path, 1), document.clone()));
        assert!(!holds(&Condition::gt(path, Bson::Null), document.clone()));
        assert!(!holds(&Condition::lt(path, 1), document));
    }
}

#[test]
fn a_path_that_ends_at_elements_of_an_array_finds_no_null_there() {
    assert!(!holds(&Condition::eq("a.b", Bson::Null), doc! { "a": [1, 2] }));
    assert!(!holds(&Condition::eq("a.b", Bson::Null), doc! { "a": [] }));
    assert!(holds(&Condition::eq("a.b", Bson::Null), doc! { "a": [{ "b": 1 }, {}] }));
    assert!(!holds(&Condition::eq("a", Bson::Null), doc! { "a": [] }));
}

#[test]
fn one_element_of_an_array_is_enough() {
    let document = doc! { "a": [1, [5, 6], "x"], "lines": [{ "price": 3 }, { "price": [7, 9] }] };
    assert!(holds(&Condition::eq("a", 1), document.clone()));
    assert!(holds(&Condition::eq("a", Bson::Array(vec![5.into(), 6.into()])), document.clone()));
    assert!(!holds(&Condition::eq("a", 5), document.clone()));
    assert!(holds(&Condition::gt("lines.price", 8), document.clone()));
    assert!(!holds(&Condition::ne("lines.price", 3), document.clone()));
    // Each end is kept by another element.
    assert!(holds(&Condition::between("lines.price", 8, 3), document));
}

#[test]
fn a_number_in_a_path_means_the_element_as_a_whole() {
    let document = doc! { "a": [[1, 2], { "b": 3 }, 4] };
    assert!(holds(&Condition::eq("a.2", 4), document.clone()));
    assert!(holds(&Condition::eq("a.1.b", 3), document.clone()));
    assert!(!holds(&Condition::eq("a.0", 1), document.clone()));
    assert!(holds(&Condition::eq("a.0", Bson::Array(vec![1.into(), 2.into()])), document.clone()));
    assert!(holds(&Condition::eq("a.0.1", 2), document.clone()));
    assert!(!holds(&Condition::exists("a.02"), document));
}

#[test]
fn only_values_of_one_type_are_greater_or_less() {
    let document = doc! { "n": 5, "t": "5", "f": f64::NAN, "d": bson::DateTime::from_millis(0) };
    assert!(holds(&Condition::lt("n", 5.5), document.clone()));
    assert!(!holds(&Condition::lt("n", "6"), document.clone()));
    assert!(!holds(&Condition::gt("t", 1), document.clone()));
    assert!(!holds(&Condition::gt("d", 1), document.clone()));
    for never in
        [Condition::lt("f", 1), Condition::gte("f", 1), Condition::lt("n", f64::NAN), Condition::gt("f", f64::NAN)]
    {
        assert!(!holds(&never, document.clone()), "{never:?}");
    }
    assert!(holds(&Condition::eq("f", f64::NAN), document.clone()) && holds(&Condition::gte("f", f64::NAN), document));
}

#[test]
fn everything_is_above_the_lowest_key_and_below_the_highest() {
    for document in [doc! { "a": 1 }, doc! { "a": "x" }, doc! {}] {
        assert!(holds(&Condition::gt("a", Bson::MinKey), document.clone()));
        assert!(holds(&Condition::lte("a", Bson::MaxKey), document.clone()));
        assert!(!holds(&Condition::gte("a", Bson::MaxKey), document.clone()));
        assert!(!holds(&Condition::lt("a", Bson::MinKey), document));
    }
}

#[test]
fn a_field_exists_when_it_is_null_and_when_it_is_empty() {
    assert!(holds(&Condition::exists("a"), doc! { "a": Bson::Null }));
    assert!(holds(&Condition::exists("a"), doc! { "a": [] }));
    assert!(holds(&Condition::exists("a.b"), doc! { "a": [1, { "b": 1 }] }));
    assert!(holds(&Condition::missing("a.b"), doc! { "a": [1, { "c": 1 }] }));
}

#[test]
fn conditions_are_joined() {
    let document = doc! { "a": 1, "b": 2 };
    let (yes, no) = (Condition::eq("a", 1), Condition::eq("b", 1));
    assert!(!holds(&Condition::And(vec![yes.clone(), no.clone()]), document.clone()));
    assert!(holds(&Condition::or([no.clone(), yes.clone()]), document.clone()));
    assert!(!holds(&Condition::nor([no.clone(), yes.clone()]), document.clone()));
    assert!(holds(&Condition::nor([no.clone()]), document.clone()));
    assert!(holds(&Condition::All, document));
    assert_eq!(Condition::and([]), Condition::All);
    assert_eq!(Condition::and([Condition::All, yes.clone()]), yes);
    assert_eq!(Condition::and([yes.clone(), no.clone()]), Condition::And(vec![yes, no]));
}

#[test]
fn each_value_that_must_be_there_is_a_part_of_its_own() {
    let all = |count: i32| Condition::all_in("a", 0..count);
    assert_eq!((all(0).parts(), all(1).parts(), all(5).parts()), (1, 1, 5));
    assert_eq!(Condition::is_in("a", 0..5).parts(), 1, "they are looked up");
    assert_eq!(Condition::and([all(5), Condition::eq("b", 1)]).parts(), 7);
    assert_eq!(Condition::elem_match("b", all(5)).parts(), 6);
    assert_eq!(Condition::raw(doc! { "a": { "$all": [0, 1, 2, 3, 4] } }).parts(), 6, "as what it means, and itself");
}

#[test]
fn the_values_that_must_be_there_are_limited_in_all() {
    let most = crate::limits::CONDITION_VALUES_MAX as i32;
    let all = |more: i32| Condition::And(vec![Condition::all_in("a", 0..most - 1), Condition::all_in("b", 0..more)]);
    assert_eq!(Condition::all_in("a", 0..most).validate(), Ok(()));
    assert_eq!(all(1).validate(), Ok(()));
    let refused = all(2).validate().expect_err("there is one too many");
    assert!(refused.path == "condition.children[1]" && refused.message.contains("ALL_IN"), "{refused}");
    let listed = Condition::And(vec![Condition::is_in("a", 0..most), Condition::is_in("b", 0..most)]);
    assert_eq!(listed.validate(), Ok(()), "they are looked up");
}

#[test]
fn filters_of_mongodb_have_the_limits_of_one_condition_together() {
    let most = crate::limits::CONDITION_VALUES_MAX as i32;
    let all = |values: i32| Condition::raw(doc! { "a": { "$all": (0..values).map(Bson::from).collect::<Vec<_>>() } });
    assert_eq!(Condition::And(vec![all(most - 1), all(1)]).judgeable(), Ok(()));
    for too_many in [
        Condition::And(vec![all(most - 1), all(1), all(1)]),
        Condition::And(vec![Condition::all_in("b", 0..most), all(1)]),
        Condition::or([all(most), Condition::elem_match("c", Condition::all_in("b", [1]))]),
    ] {
        assert_eq!(too_many.validate(), Ok(()), "what a filter means is not known there");
        let refused = too_many.judgeable().expect_err("there is one too many");
        assert!(refused.message.contains("ALL_IN"), "{refused}");
    }
    let parts = crate::limits::CONDITION_NODES_MAX;
    // A list of filters is a part, and each of its filters is one.
    let or = |filters: usize| Condition::raw(doc! { "$or": vec![Bson::from(doc! { "a": 1 }); filters] });
    assert_eq!(Condition::nor([or(parts - 3), or(1)]).judgeable(), Ok(()));
    assert!(Condition::nor([or(parts - 3), or(1), or(1)]).judgeable().is_err());
}

#[test]
fn the_order_of_a_values_fields_matters_and_is_kept_in_json() {
    let condition = Condition::eq("a", doc! { "z": 1, "b": { "y": 1, "x": f64::INFINITY } });
    assert!(holds(&condition, doc! { "a": { "z": 1, "b": { "y": 1, "x": f64::INFINITY } } }));
    assert!(!holds(&condition, doc! { "a": { "b": { "y": 1, "x": f64::INFINITY }, "z": 1 } }));
    let other = Condition::eq("a", doc! { "b": { "y": 1, "x": f64::INFINITY }, "z": 1 });
    assert!(condition.is_same(&condition.clone()) && !condition.is_same(&other));
    assert!(!Condition::eq("a", 1).is_same(&Condition::eq("a", 1_i64)), "an int and a long have the same text");
}

#[test]
fn json_is_spelled_as_wow_spells_it() {
    let text = r#"{"operator":"AND","children":[
        {"field":"state.total","operator":"GT","value":5},
        {"field":"time","operator":"BETWEEN","value":[{"$date":"2026-01-01T00:00:00Z"},{"$date":"2026-02-01T00:00:00Z"}]},
        {"field":"tag","operator":"NOT_IN","value":["a",null]},
        {"field":"gone","operator":"EXISTS"},
        {"operator":"ALL"}]}"#;
    let read: Condition = serde_json::from_str(text).expect("it is read");
    let time = |text: &str| Bson::DateTime(bson::DateTime::parse_rfc3339_str(text).expect("it is a time"));
    let expected = Condition::And(vec![
        Condition::gt("state.total", 5),
        Condition::between("time", time("2026-01-01T00:00:00Z"), time("2026-02-01T00:00:00Z")),
        Condition::not_in("tag", [Bson::from("a"), Bson::Null]),
        Condition::exists("gone"),
        Condition::All,
    ]);
    assert_eq!(read, expected);
    let written = serde_json::to_string(&Condition::eq("a", Bson::Null)).expect("it is JSON");
    assert_eq!(written, r#"{"field":"a","operator":"EQ","value":null}"#);
}

#[test]
fn wrong_json_is_refused_with_a_sentence() {
    let wrong = [
        (r#"{"operator":"AND"}"#, "needs children"),
        (r#"{"field":"a","operator":"IN","value":1}"#, "needs a list"),
        (r#"{"field":"a","operator":"BETWEEN","value":[1]}"#, "two values"),
        (r#"{"field":"a","operator":"EXISTS","value":1}"#, "true or false"),
        (r#"{"field":"a","operator":"EQ","value":1,"children":[{}]}"#, "takes no children"),
        (r#"{"field":"a","operator":"EQ","value":1,"options":{"ignoreCase":true}}"#, "takes no case options"),
        (r#"{"field":"a","operator":"EQ","value":1,"options":{"zoneId":"UTC"}}"#, "takes no time options"),
        (r#"{"field":"a","operator":"TODAY","options":{"zone":"UTC"}}"#, "unknown field"),
        (r#"{"field":"a","operator":"RECENT_DAYS","value":-1}"#, "whole number of days"),
        (r#"{"field":"a","operator":"BEFORE_TODAY","value":true}"#, "needs a time"),
        (r#"{"field":"a","operator":"BEFORE_TODAY","value":"25:00"}"#, "not a time of day"),
        (r#"{"field":"a","operator":"CONTAINS","value":1}"#, "needs a string"),
        (r#"{"field":"a","operator":"ELEM_MATCH"}"#, "needs children"),
        (r#"{"field":"a","operator":"ELEM_MATCH","children":[{},{}]}"#, "one child"),
        (r#"{"operator":"IDS","value":"a"}"#, "needs a list"),
        (r#"{"operator":"DELETED","value":"MAYBE"}"#, "ACTIVE, DELETED, ALL"),
        (r#"{"operator":"RAW","value":1}"#, "filter document"),
        (r#"{"field":"a","operator":"LIKE","value":1}"#, "an operator such as EQ"),
        (r#"{"feld":"a"}"#, "unknown field"),
    ];
    for (text, sentence) in wrong {
        let error = serde_json::from_str::<Condition>(text).expect_err("it is refused").to_string();
        assert!(error.contains(sentence), "{text}: {error}");
    }
}

#[test]
fn a_condition_that_cannot_be_judged_is_refused() {
    let deep = (0..200).fold(Condition::All, |inner, _| Condition::Nor(vec![inner]));
    let regex =
        Bson::RegularExpression(bson::Regex { pattern: bson::cstr!("x").into(), options: bson::cstr!("").into() });
    let wrong = [
        Condition::And(vec![Condition::Or(vec![])]),
        Condition::eq("", 1),
        Condition::eq("a..b", 1),
        Condition::eq("$where", 1),
        Condition::eq("a", regex),
        Condition::eq("a", doc! { "\0": 1 }),
        Condition::is_in("a", 0..20_000),
        Condition::and((0..2_000).map(|n| Condition::eq("a", n))),
        deep,
    ];
    for condition in wrong {
        let error = condition.validate().expect_err("it is refused");
        assert_eq!(error.code, Code::InvalidCondition, "{error}");
        assert!(error.path.starts_with("condition"), "{error}");
    }
    assert_eq!(Condition::field("a", Test::In(vec![])).validate(), Ok(()));
}

#[test]
fn all_in_needs_each_value_and_an_element() {
    let document = doc! { "a": [1, 2, [3]], "b": 1 };
    assert!(holds(&Condition::all_in("a", [1, 2]), document.clone()));
    assert!(!holds(&Condition::all_in("a", [1, 3]), document.clone()));
    assert!(holds(&Condition::all_in("a", [Bson::Array(vec![3.into()])]), document.clone()));
    assert!(holds(&Condition::all_in("b", [1]), document.clone()));
    assert!(!holds(&Condition::all_in("b", Vec::<Bson>::new()), document));
}

#[test]
fn one_element_must_pass_all_of_an_elements_condition() {
    let document =
        doc! { "lines": [{ "price": 3, "n": 9 }, { "price": 8, "n": 1 }, [{ "price": 70 }]], "one": { "price": 8 } };
    let both = |low: i32, n: i32| Condition::and([Condition::gt("price", low), Condition::gt("n", n)]);
    assert!(holds(&Condition::elem_match("lines", both(2, 5)), document.clone()));
    assert!(!holds(&Condition::elem_match("lines", both(5, 5)), document.clone()));
    assert!(!holds(&Condition::elem_match("one", Condition::eq("price", 8)), document.clone()));
    // An element that is an array is a document with places for names.
    assert!(holds(&Condition::elem_match("lines", Condition::eq("0.price", 70)), document.clone()));
    assert!(!holds(&Condition::elem_match("lines", Condition::eq("price", 70)), document.clone()));
    assert!(holds(&Condition::elem_match("lines", Condition::All), document));
}

#[test]
fn pieces_of_texts_stand_for_themselves() {
    let document = doc! { "t": "a+b (C)", "list": [1, "xyz"], "line": "end\n", "n": 5, "none": Bson::Null };
    for (path, fragment) in [("t", "+b ("), ("list", "y"), ("t", "")] {
        assert!(holds(&Condition::contains(path, fragment), document.clone()), "{fragment}");
    }
    for (path, fragment) in [("t", "a.b"), ("t", "c)"), ("n", "5"), ("none", ""), ("missing", "")] {
        assert!(!holds(&Condition::contains(path, fragment), document.clone()), "{fragment}");
    }
    assert!(holds(&Condition::contains("t", Fragment::new("B (c").ignoring_case()), document.clone()));
    assert!(holds(&Condition::starts_with("t", "a+"), document.clone()));
    assert!(!holds(&Condition::starts_with("t", "+"), document.clone()));
    assert!(holds(&Condition::ends_with("t", "(C)"), document.clone()));
    // The end is before a line feed, too.
    assert!(holds(&Condition::ends_with("line", "end"), document.clone()));
    assert!(holds(&Condition::ends_with("line", "d\n"), document.clone()));
    assert!(!holds(&Condition::ends_with("t", "(c)"), document));
}

#[test]
fn case_is_ignored_one_character_at_a_time() {
    let found = |text: &str, fragment: &str| {
        holds(&Condition::contains("t", Fragment::new(fragment).ignoring_case()), doc! { "t": text })
    };
    assert!(found("STRASSE ÄÖÜ", "äöü") && found("ΣΊΣΥΦΟΣ", "σίσυφος") && found("\u{212a}elvin", "kelvin"));
    assert!(!found("STRASSE", "straße") && !found("ıx", "ix"));
}

#[test]
fn what_is_deleted_is_asked_by_name() {
    for (which, active, deleted, silent) in [
        (Deletion::Active, true, false, false),
        (Deletion::Deleted, false, true, false),
        (Deletion::All, true, true, true),
    ] {
        let condition = Condition::deleted(which);
        assert_eq!(holds(&condition, doc! { "deleted": false }), active);
        assert_eq!(holds(&condition, doc! { "deleted": true }), deleted);
        assert_eq!(holds(&condition, doc! {}), silent);
    }
}

#[test]
fn a_filter_document_is_judged_as_the_condition_that_it_means() {
    let filter = Condition::raw(doc! { "a": { "$gt": 1, "$lt": 5 }, "$or": [{ "b": null }, { "b": { "$in": [7] } }] });
    assert!(holds(&filter, doc! { "a": 3 }) && holds(&filter, doc! { "a": 3, "b": 7 }));
    assert!(!holds(&filter, doc! { "a": 5 }) && !holds(&filter, doc! { "a": 3, "b": 1 }));
    assert_eq!(filter.judgeable(), Ok(()));
    for (condition, named) in [
        (Condition::raw(doc! { "$where": "sleep(1)" }), "$where"),
        (Condition::nor([Condition::raw(doc! { "a": { "$mod": [2, 0] } })]), "$mod"),
        (Condition::raw(doc! { "a..b": 1 }), "path"),
        (Condition::matching_text("words"), "text index"),
        (Condition::elem_match("a", Condition::raw(doc! { "$expr": 1 })), "$expr"),
    ] {
        let error = condition.judgeable().expect_err("it cannot be judged");
        assert!(error.code == Code::InvalidCondition && error.message.contains(named), "{error}");
    }
}

#[test]
fn a_text_search_stands_once_and_must_hold() {
    let words = || Condition::matching_text("blue");
    assert_eq!(Condition::And(vec![Condition::eq("a", 1), Condition::And(vec![words()])]).validate(), Ok(()));
    for wrong in [
        Condition::And(vec![words(), words()]),
        Condition::or([words()]),
        Condition::nor([words()]),
        Condition::elem_match("a", words()),
        Condition::contains("a", "x".repeat(5_000)),
        Condition::starts_with("a", "\0"),
        Condition::today("t"),
        Condition::elem_match("a", Condition::Or(vec![])),
    ] {
        assert_eq!(wrong.validate().expect_err("it is refused").code, Code::InvalidCondition);
    }
}
