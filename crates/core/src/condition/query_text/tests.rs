use bson::{Bson, doc};

use super::*;
use crate::{Days, Deletion, Fragment, TimeOfDay, Window};

#[track_caller]
fn parsed(text: &str) -> Condition {
    Condition::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn every_operator_can_be_typed() {
    let noon = TimeOfDay::parse("12:00").expect("a time");
    let cases = [
        ("", Condition::All),
        ("all", Condition::All),
        ("id 'x'", Condition::id("x")),
        ("ids ['x', 'y']", Condition::ids(["x", "y"])),
        ("aggregateId 'x'", Condition::aggregate_id("x")),
        ("aggregateIds ['x']", Condition::aggregate_ids(["x"])),
        ("tenantId 't'", Condition::tenant_id("t")),
        ("ownerId 'o'", Condition::owner_id("o")),
        ("spaceId 's'", Condition::space_id("s")),
        ("deleted true", Condition::deleted(Deletion::Deleted)),
        ("deleted 'all'", Condition::deleted(Deletion::All)),
        ("a eq 1", Condition::eq("a", 1_i64)),
        ("a = 1", Condition::eq("a", 1_i64)),
        ("a==\"x\\n\"", Condition::eq("a", "x\n")),
        ("a != null", Condition::ne("a", Bson::Null)),
        ("a gt 1.5", Condition::gt("a", 1.5)),
        ("a<-2", Condition::lt("a", -2_i64)),
        ("a >= 1", Condition::gte("a", 1_i64)),
        ("a lte 1", Condition::lte("a", 1_i64)),
        ("a contains 'it''s'", Condition::contains("a", "it's")),
        ("a startsWith 'x' ignoreCase", Condition::starts_with("a", Fragment::new("x").ignoring_case())),
        ("a endsWith 'x'", Condition::ends_with("a", "x")),
        ("match 'blue sky'", Condition::matching_text("blue sky")),
        ("a isIn [1, 'x', null]", Condition::is_in("a", [Bson::Int64(1), "x".into(), Bson::Null])),
        ("a in []", Condition::is_in("a", Vec::<Bson>::new())),
        ("a notIn [1]", Condition::not_in("a", [1_i64])),
        ("a between [1, 2]", Condition::between("a", 1_i64, 2_i64)),
        ("a allIn [1]", Condition::all_in("a", [1_i64])),
        (
            "lines elemMatch (price > 3 and n = 1)",
            Condition::elem_match(
                "lines",
                Condition::And(vec![Condition::gt("price", 3_i64), Condition::eq("n", 1_i64)]),
            ),
        ),
        ("a isNull", Condition::is_null("a")),
        ("a notNull", Condition::not_null("a")),
        ("a isTrue", Condition::is_true("a")),
        ("a isFalse", Condition::is_false("a")),
        ("a exists", Condition::exists("a")),
        ("a exists false", Condition::missing("a")),
        ("raw {a: {$gt: 1}}", Condition::raw(doc! { "a": { "$gt": 1_i64 } })),
        ("t today", Condition::today("t")),
        ("t beforeToday '12:00'", Condition::before_today("t", noon)),
        ("t tomorrow", Condition::tomorrow("t")),
        ("t thisWeek", Condition::this_week("t")),
        ("t nextWeek", Condition::next_week("t")),
        ("t lastWeek", Condition::last_week("t")),
        ("t thisMonth", Condition::this_month("t")),
        ("t lastMonth", Condition::last_month("t")),
        ("t recentDays 7", Condition::recent_days("t", 7)),
        ("t earlierDays 7", Condition::earlier_days("t", 7)),
        (
            "t today zone 'Europe/Berlin' pattern 'yyyy-MM-dd'",
            Condition::within("t", Window::from(Days::Today).in_zone("Europe/Berlin").written_as("yyyy-MM-dd")),
        ),
        ("`id` = 1", Condition::eq("id", 1_i64)),
        ("größe.0.x = {$date: '1970-01-01T00:00:00Z'}", Condition::eq("größe.0.x", bson::DateTime::from_millis(0))),
    ];
    for (text, expected) in cases {
        assert_eq!(parsed(text), expected, "{text}");
    }
}

#[test]
fn and_binds_more_than_or() {
    let field = |name: &str| Condition::is_true(name);
    let and = |children: [Condition; 2]| Condition::And(children.into());
    assert_eq!(
        parsed("a isTrue and b isTrue or c isTrue"),
        Condition::Or(vec![and([field("a"), field("b")]), field("c")])
    );
    assert_eq!(
        parsed("a isTrue and (b isTrue or nor(c isTrue, d isTrue))"),
        and([field("a"), Condition::Or(vec![field("b"), Condition::Nor(vec![field("c"), field("d")])])])
    );
    assert_eq!(parsed("((a isTrue))"), field("a"));
}

#[test]
fn what_is_wrong_in_a_value_is_said_with_its_place_in_characters() {
    let error = relaxed_value("{name: 'größer', total: x}").expect_err("x is no value");
    assert!(error.ends_with("at character 25"), "{error}");
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let cases = [
        ("a", "an operator", "character 2, the end"),
        ("a like 1", "an operator", "character 3, \"like 1\""),
        ("a = x", "put strings in quotes", "character 5, \"x\""),
        ("a = 'x", "closing quote", "character 5"),
        ("ä = 1 b = 2", "and, or, or the end", "character 7, \"b = 2\""),
        ("a = 1 and", "a field", "character 10, the end"),
        ("(a = 1", ") is expected", "character 7"),
        ("nor a = 1", "( is expected", "character 5"),
        ("today t", "an operator, and a field", "character 1"),
        ("a isIn 1", "needs a list", "character 1"),
        ("a isIn [1 2]", ", or ]", "character 11"),
        ("a = {x: 1, x: 2}", "twice", "character 12"),
        ("a between [1]", "two values", "character 1"),
        ("t today zone 5", "a string is expected", "character 14"),
        ("t recentDays 'x'", "whole number of days from 0 to 36500", "character 1"),
        ("t earlierDays 36501", "whole number of days from 0 to 36500", "character 1"),
        ("deleted = true", "deleted VALUE", "character 1"),
        ("a = 1 and id = 'x'", "Put a field of that name in backticks", "character 11"),
        ("a = {$date: 'x'}", "Extended JSON", "character 5"),
        ("a = 99999999999999999999", "does not fit", "character 5"),
        ("`a", "backticks", "character 2"),
    ];
    for (text, sentence, place) in cases {
        let error = Condition::parse(text).expect_err(text);
        assert!(error.message.contains(sentence) && error.message.contains(place), "{text}: {error}");
    }
    let deep = format!("{}a = 1{}", "(".repeat(5_000), ")".repeat(5_000));
    assert!(Condition::parse(&deep).is_err());
    assert!(Condition::parse(&format!("a = {}", "[".repeat(5_000))).is_err());
}
