//! Conditions of every operator, sorts, projections and pages, of values that documents have and of others.

use annals_core::bson::{Bson, Document, doc};
use annals_core::order::Direction;
use annals_core::{Condition, Deletion, Fragment, Index, OrderedIndex, Projection, RecordQuery, SortBy, Test, limits};
use proptest::prelude::*;
use proptest::sample::select;

use super::documents::{Held, TEXTS, scalar, value};

const DIRECTIONS: [Direction; 2] = [Direction::Ascending, Direction::Descending];

/// A path of a condition: fields and places, up to three deep.
fn path() -> BoxedStrategy<String> {
    let first = prop_oneof![12 => select(vec!["a", "b", "c"]), 1 => Just("_id"), 1 => Just("0")];
    let more = prop::collection::vec(select(vec!["a", "b", "c", "a", "b", "0", "1"]), 0..3);
    (first, more).prop_map(|(first, more)| [vec![first], more].concat().join(".")).boxed()
}

/// A path that records can be ordered by: without places.
fn key_path() -> BoxedStrategy<String> {
    let first = prop_oneof![8 => select(vec!["a", "b", "c"]), 1 => Just("_id")];
    let more = prop::collection::vec(select(vec!["a", "b", "c"]), 0..2);
    (first, more).prop_map(|(first, more)| [vec![first], more].concat().join(".")).boxed()
}

/// What to compare with.
fn operand(held: &Held) -> BoxedStrategy<Bson> {
    let made = prop_oneof![3 => scalar(), 1 => value()].prop_map(|value| match value {
        // Refused in a condition.
        Bson::RegularExpression(_) | Bson::Undefined => Bson::Null,
        value => value,
    });
    prop_oneof![1 => made, 2 => held.value()].boxed()
}

fn fragment() -> BoxedStrategy<Fragment> {
    let text = prop_oneof![
        2 => select(TEXTS.as_slice()).prop_map(|text| text.replace('\0', "")),
        1 => select(vec![".", "^a", "a$", "\\", "(", "[a]", "a|b", "é"]).prop_map(str::to_owned),
    ];
    (text, any::<bool>()).prop_map(|(text, ignore_case)| Fragment { text, ignore_case }).boxed()
}

fn test(held: &Held) -> BoxedStrategy<Test> {
    let one = || operand(held);
    let list = || prop::collection::vec(operand(held), 0..4);
    prop_oneof![
        3 => one().prop_map(Test::Eq),
        1 => one().prop_map(Test::Ne),
        2 => one().prop_map(Test::Gt),
        2 => one().prop_map(Test::Gte),
        2 => one().prop_map(Test::Lt),
        2 => one().prop_map(Test::Lte),
        2 => list().prop_map(Test::In),
        1 => list().prop_map(Test::NotIn),
        2 => (one(), one()).prop_map(|(low, high)| Test::Between(low, high)),
        2 => list().prop_map(Test::AllIn),
        1 => fragment().prop_map(Test::Contains),
        1 => fragment().prop_map(Test::StartsWith),
        1 => fragment().prop_map(Test::EndsWith),
        1 => any::<bool>().prop_map(Test::Exists),
    ]
    .boxed()
}

/// A test that what is held passes, or just does not.
fn meeting(held: &Held) -> BoxedStrategy<Condition> {
    (held.pair(), 0..12_u8, operand(held))
        .prop_map(|((path, value), kind, other)| {
            let test = match kind {
                0..3 => Test::Eq(value),
                3 => Test::Ne(value),
                4 => Test::Gt(value),
                5 => Test::Gte(value),
                6 => Test::Lt(value),
                7 => Test::Lte(value),
                8 => Test::In(vec![other, value]),
                9 => Test::NotIn(vec![value, other]),
                10 => Test::Between(value.clone(), value),
                _ => Test::AllIn(vec![value]),
            };
            Condition::field(path, test)
        })
        .boxed()
}

/// A filter document of MongoDB, of operators that are judged everywhere.
fn raw(held: &Held) -> BoxedStrategy<Document> {
    // It is sent as it is, also where the server reads a sparse index that does not hold all that it asks for.
    let ranged =
        |value: Bson| if matches!(value, Bson::Null | Bson::MinKey | Bson::MaxKey) { Bson::from(0) } else { value };
    let names = select(vec!["$eq", "$ne", "$gt", "$gte", "$lt", "$lte"]);
    let comparison = (names, operand(held)).prop_map(move |(name, value)| doc! { name: ranged(value) });
    let listed = (select(vec!["$in", "$nin", "$all"]), prop::collection::vec(operand(held), 0..3))
        .prop_map(|(name, values)| doc! { name: values });
    let exists = select(vec![Bson::from(true), false.into(), 0.into(), Bson::Null, 2.5.into()])
        .prop_map(|value| doc! { "$exists": value });
    let element = (path(), operand(held).prop_map(ranged))
        .prop_map(|(path, value)| doc! { "$elemMatch": { path: { "$lte": value } } });
    let tests = prop_oneof![4 => comparison, 2 => listed, 1 => exists, 1 => element];
    let tests = (tests, 0..4_u8).prop_map(|(tests, not)| {
        if not == 0 {
            doc! { "$not": tests }
        } else {
            tests
        }
    });
    let one = (path(), tests).prop_map(|(path, tests)| doc! { path: tests });
    let beside = (one.clone(), path(), scalar()).prop_map(|(mut one, path, value)| {
        if !matches!(value, Bson::RegularExpression(_) | Bson::Undefined) {
            one.insert(path, value);
        }
        one
    });
    prop_oneof![2 => one, 1 => beside]
        .prop_recursive(2, 6, 3, |inner| {
            (select(vec!["$and", "$or", "$nor"]), prop::collection::vec(inner, 1..3))
                .prop_map(|(name, children)| doc! { name: children })
        })
        .boxed()
}

/// A condition with every operator in it.
pub fn condition(held: &Held) -> BoxedStrategy<Condition> {
    let deletions = vec![Deletion::Active, Deletion::Deleted, Deletion::All];
    let leaf = prop_oneof![
        25 => (path(), test(held)).prop_map(|(path, test)| Condition::field(path, test)),
        30 => meeting(held),
        2 => raw(held).prop_map(Condition::Raw),
        1 => select(deletions).prop_map(Condition::Deleted),
        1 => Just(Condition::All),
    ];
    leaf.prop_recursive(3, 10, 3, |inner| {
        let children = || prop::collection::vec(inner.clone(), 1..4);
        prop_oneof![
            3 => inner.clone(),
            2 => children().prop_map(Condition::And),
            2 => children().prop_map(Condition::Or),
            1 => children().prop_map(Condition::Nor),
            2 => (path(), inner.clone()).prop_map(|(path, inner)| Condition::elem_match(path, inner)),
        ]
    })
    .boxed()
}

fn sort() -> BoxedStrategy<Vec<SortBy>> {
    let by = (key_path(), select(DIRECTIONS.as_slice())).prop_map(|(path, direction)| SortBy { path, direction });
    let once = |sort: Vec<SortBy>| {
        let mut kept: Vec<SortBy> = Vec::new();
        for by in sort {
            if kept.iter().all(|earlier| earlier.path != by.path) {
                kept.push(by);
            }
        }
        kept
    };
    prop::collection::vec(by, 0..4).prop_map(once).boxed()
}

/// Paths of which none covers another.
pub fn projection() -> BoxedStrategy<Projection> {
    let apart = |paths: Vec<String>| {
        let covers = |a: &str, b: &str| b == a || b.strip_prefix(a).is_some_and(|rest| rest.starts_with('.'));
        let mut kept: Vec<String> = Vec::new();
        for path in paths {
            if kept.iter().all(|earlier| !covers(earlier, &path) && !covers(&path, earlier)) {
                kept.push(path);
            }
        }
        kept
    };
    let paths = || prop::collection::vec(path(), 1..4).prop_map(apart);
    prop_oneof![paths().prop_map(Projection::Only), paths().prop_map(Projection::Without)].boxed()
}

/// A query, of a collection without a name.
pub fn query(held: &Held) -> BoxedStrategy<RecordQuery> {
    let condition = prop_oneof![1 => Just(Condition::All), 7 => condition(held)];
    let projection = prop_oneof![6 => Just(Projection::Whole), 1 => projection()];
    let limit = prop_oneof![10 => Just(limits::PAGE_MAX), 1 => Just(7_usize), 1 => Just(2_usize)];
    (condition, sort(), projection, limit)
        .prop_map(|(condition, sort, projection, limit)| RecordQuery {
            sort,
            projection,
            ..RecordQuery::new("").matching(condition).limit(limit)
        })
        .boxed()
}

/// Indexes, of which some may not hold what there is.
pub fn indexes(held: &Held) -> BoxedStrategy<Vec<Index>> {
    let fields = prop::collection::vec((key_path(), select(DIRECTIONS.as_slice())), 1..4);
    let bound = (key_path(), operand(held), 0..4_u8).prop_map(|(path, value, operator)| match operator {
        0 => Condition::exists(path),
        1 => Condition::gte(path, value),
        2 => Condition::lte(path, value),
        _ => Condition::eq(path, value),
    });
    let index = (fields, 0..4_u8, bound).prop_map(|(mut fields, kind, bound)| {
        let mut seen = Vec::new();
        fields.retain(|(path, _)| {
            !seen.contains(path) && {
                seen.push(path.clone());
                true
            }
        });
        let index = Index::ordered(fields.iter().map(|(path, way)| (path.as_str(), *way)));
        match kind {
            0 => index.sparse(),
            1 => index.partial(bound),
            _ => index,
        }
    });
    let named = |indexes: Vec<OrderedIndex>| -> Vec<Index> {
        let named = |(n, index): (usize, OrderedIndex)| index.named(format!("index-{n}")).into();
        indexes.into_iter().enumerate().map(named).collect()
    };
    prop::collection::vec(index, 0..5).prop_map(named).boxed()
}
