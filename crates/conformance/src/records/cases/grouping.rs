//! Groups of records.

use std::sync::Arc;

use annals_core::bson::{Bson, DateTime, Document, doc};
use annals_core::{Aggregation, Code, Condition, Cursor, Every, Group, GroupQuery, Records};

use crate::Subject;
use crate::records::sample::{THINGS, open, put, write};

fn by(path: &str) -> GroupQuery {
    GroupQuery::new(THINGS).by(path)
}

async fn groups(records: &Arc<dyn Records>, query: GroupQuery) -> Vec<Group> {
    let page = records.group(query).await.expect("they are grouped");
    assert_eq!(page.next, None);
    page.groups
}

async fn put_all(records: &Arc<dyn Records>, documents: impl IntoIterator<Item = Document>) {
    write(records, documents.into_iter().map(put).collect()).await;
}

/// Figures are counts, sums, averages, lowest and highest values: of numbers by their types, of other values by their order.
pub async fn groups_have_their_counts_and_figures(subject: &dyn Subject) {
    let (_store, records) = open(subject).await;
    put_all(
        &records,
        [
            doc! { "_id": 1, "k": "a", "n": 5, "t": "x", "in": { "m": 1 } },
            doc! { "_id": 2, "k": "a", "n": 7i64, "t": ["y"], "in": [{ "m": 9 }] },
            doc! { "_id": 3, "k": "a", "n": "no number", "t": Bson::Null, "in": { "m": -2 } },
            doc! { "_id": 4, "k": "b", "n": 0.5, "t": true },
            doc! { "_id": 5, "k": "b", "n": 2 },
            doc! { "_id": 6, "k": "c" },
            doc! { "_id": 7, "k": "d", "n": i64::MAX },
            doc! { "_id": 8, "k": "d", "n": i64::MAX },
        ],
    )
    .await;
    let figures = |query: GroupQuery| {
        let query = query.figure("sum", Aggregation::Sum, "n").figure("avg", Aggregation::Avg, "n");
        let query = query.figure("low", Aggregation::Min, "t").figure("high", Aggregation::Max, "t");
        query.figure("deep", Aggregation::Sum, "in.m")
    };
    let group = |key: &str, count, figures: [Bson; 5]| Group { key: key.into(), count, figures: figures.to_vec() };
    let none = || Bson::Null;
    let most = 2.0 * i64::MAX as f64;
    let due = [
        group("a", 3, [12i64.into(), 6.0.into(), "x".into(), vec!["y"].into(), (-1i64).into()]),
        group("b", 2, [2.5.into(), 1.25.into(), true.into(), true.into(), 0i64.into()]),
        group("c", 1, [0i64.into(), none(), none(), none(), 0i64.into()]),
        group("d", 2, [most.into(), (most / 2.0).into(), none(), none(), 0i64.into()]),
    ];
    assert_eq!(groups(&records, figures(by("k"))).await, due);
    let some = figures(GroupQuery::new(THINGS)).matching(Condition::eq("k", "b"));
    let all = groups(&records, some).await;
    assert_eq!((all.len(), &all[0].key, all[0].count, &all[0].figures), (1, &Bson::Null, 2, &due[1].figures));
    assert_eq!(groups(&records, by("k").matching(Condition::eq("k", "z"))).await, []);
    assert_eq!(groups(&records, GroupQuery::new(THINGS)).await[0].count, 8);
}

/// Equal numbers are one key. Missing values, null and values inside arrays are null; an array is one value. Keys are in sort order.
pub async fn groups_are_of_equal_values_in_order(subject: &dyn Subject) {
    let (_store, records) = open(subject).await;
    put_all(
        &records,
        [
            doc! { "_id": 1, "k": 5, "in": { "k": 1 } },
            doc! { "_id": 2, "k": 5.0, "in": [{ "k": 1 }] },
            doc! { "_id": 3, "k": 5i64, "in": { "k": 1.0 } },
            doc! { "_id": 4, "k": Bson::Null, "in": 1 },
            doc! { "_id": 5 },
            doc! { "_id": 6, "k": [1, 9] },
            doc! { "_id": 7, "k": [2] },
            doc! { "_id": 8, "k": "5" },
            doc! { "_id": 9, "k": { "a": 1 } },
            doc! { "_id": 10, "k": f64::NAN },
            doc! { "_id": 11, "k": f64::NAN },
        ],
    )
    .await;
    let counts = |groups: &[Group]| groups.iter().map(|group| group.count).collect::<Vec<_>>();
    let found = groups(&records, by("k")).await;
    assert_eq!(counts(&found), [2, 2, 3, 1, 1, 1, 1]);
    assert_eq!(found[0].key, Bson::Null);
    assert!(found[1].key.as_f64().is_some_and(f64::is_nan));
    assert_eq!(found[3].key, "5".into());
    assert_eq!(found[4].key, doc! { "a": 1 }.into());
    assert_eq!((&found[5].key, &found[6].key), (&vec![1, 9].into(), &vec![2].into()));
    let inner = groups(&records, by("in.k")).await;
    assert_eq!(counts(&inner), [9, 2]);
    assert_eq!(inner[0].key, Bson::Null);
}

/// The key of a date is the beginning of its hour or day, also before 1970. Everything else is null.
pub async fn dates_are_grouped_by_hour_and_by_day(subject: &dyn Subject) {
    const HOUR: i64 = 3_600_000;
    let (_store, records) = open(subject).await;
    let times = [-1, 0, HOUR - 1, HOUR, 23 * HOUR + 5, 24 * HOUR, -25 * HOUR];
    let dated = |(n, at): (usize, i64)| doc! { "_id": n as i32, "at": DateTime::from_millis(at) };
    put_all(&records, times.into_iter().enumerate().map(dated)).await;
    put_all(&records, [doc! { "_id": 100, "at": 5 }, doc! { "_id": 101, "at": [DateTime::from_millis(0)] }]).await;
    let shown = |groups: Vec<Group>| {
        let one = |group: Group| (group.key.as_datetime().map(|date| date.timestamp_millis() / HOUR), group.count);
        groups.into_iter().map(one).collect::<Vec<_>>()
    };
    let hours = shown(groups(&records, by("at").every(Every::Hour)).await);
    let due = [(None, 2), (Some(-25), 1), (Some(-1), 1), (Some(0), 2), (Some(1), 1), (Some(23), 1), (Some(24), 1)];
    assert_eq!(hours, due);
    let days = shown(groups(&records, by("at").every(Every::Day)).await);
    assert_eq!(days, [(None, 2), (Some(-48), 1), (Some(-24), 1), (Some(0), 4), (Some(24), 1)]);
}

/// A page ends after its limit, and the next begins after its last key.
pub async fn pages_cover_every_group_once(subject: &dyn Subject) {
    let (_store, records) = open(subject).await;
    let key = |n: i32| {
        [Bson::from(n % 7), Bson::Null, Bson::from(vec![n % 5]), format!("k{}", n % 3).into()][n as usize % 4].clone()
    };
    put_all(&records, (0..200).map(|n| doc! { "_id": n, "k": key(n) })).await;
    let all = groups(&records, by("k")).await;
    assert_eq!((all.len(), all.iter().map(|group| group.count).sum::<u64>()), (7 + 1 + 5 + 3, 200));
    for limit in [1, 3, 16] {
        let (mut query, mut found) = (by("k").limit(limit), Vec::new());
        loop {
            let page = records.group(query.clone()).await.expect("a page");
            assert!(page.groups.len() <= limit);
            found.extend(page.groups);
            match page.next {
                Some(next) => query.after = Some(next),
                None => break,
            }
        }
        assert_eq!(found, all, "{limit}");
    }
}

/// A query that breaks a rule, needs a collection, or would add decimals is refused.
pub async fn groups_that_break_a_rule_are_refused(subject: &dyn Subject) {
    let (_store, records) = open(subject).await;
    let many = (0..20).fold(by("a"), |query, n| query.figure(n.to_string(), Aggregation::Sum, "n"));
    let sum = |path: &str| by("a").figure("s", Aggregation::Sum, path);
    let wrong = [
        by(""),
        by("a.0"),
        by("a.$b"),
        by("a").limit(0),
        by("a").limit(1_001),
        GroupQuery::new(THINGS).every(Every::Hour),
        many,
        sum("$n"),
        sum("n").figure("s", Aggregation::Max, "n"),
        by("a").figure("", Aggregation::Max, "n"),
        by("a").after(Cursor::new("00")),
    ];
    for query in wrong {
        let error = records.group(query.clone()).await.expect_err("it is refused");
        assert_eq!(error.code(), Code::InvalidQuery, "{query:?}");
    }
    let error = records.group(GroupQuery::new("nowhere")).await.expect_err("it is not declared");
    assert_eq!(error.code(), Code::UnknownCollection);
    let words = by("a").matching(Condition::matching_text("x"));
    assert_eq!(records.group(words).await.expect_err("no text index").code(), Code::NoTextIndex);
    let decimal: Bson = Bson::Decimal128("1.5".parse().expect("a decimal"));
    put_all(&records, [doc! { "_id": 1, "a": 1, "n": decimal.clone() }, doc! { "_id": 2, "a": 1, "n": 1 }]).await;
    for what in [Aggregation::Sum, Aggregation::Avg] {
        let error = records.group(by("a").figure("s", what, "n")).await.expect_err("it is refused");
        assert_eq!(error.code(), Code::InvalidQuery);
        assert!(error.to_string().contains("Decimal128"), "{error}");
    }
    let highest = groups(&records, by("a").figure("s", Aggregation::Max, "n")).await;
    assert_eq!(highest[0].figures, [decimal]);
}
