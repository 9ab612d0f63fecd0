//! Finding records: conditions, sorts, pages, projections and counts.

use annals_core::bson::{Bson, DateTime, doc};
use annals_core::{
    Clock, Code, Collection, Condition, Cursor, Days, Deletion, Expected, Fragment, Index, Projection, RecordChange,
    RecordQuery, Test, Window, limits,
};

use crate::Subject;
use crate::records::sample::{
    THINGS, delete, document, ids, insert, matching, numbers, open, open_with, pages, put, raw, write, write_one,
};

fn all() -> RecordQuery {
    RecordQuery::new(THINGS)
}

/// Each operator has MongoDB's meaning, including types, arrays, missing fields and dotted paths.
pub async fn every_operator_finds_what_it_means(subject: &dyn Subject) {
    let (_store, records) = open(subject).await;
    let documents = [
        doc! { "_id": 1, "n": 5, "s": "a", "tags": ["x", "y"], "in": { "n": 1 } },
        doc! { "_id": 2, "n": 7.5, "s": "b", "tags": [], "in": [{ "n": 2 }, { "n": 9 }] },
        doc! { "_id": 3, "n": 5i64, "s": Bson::Null, "tags": "x" },
        doc! { "_id": 4, "n": "5", "d": DateTime::from_millis(5) },
        doc! { "_id": 5, "n": f64::NAN, "in": { "n": Bson::Null } },
        doc! { "_id": 6 },
    ];
    write(&records, documents.into_iter().map(put).collect()).await;
    let cases = [
        (Condition::All, vec![1, 2, 3, 4, 5, 6]),
        (Condition::eq("n", 5), vec![1, 3]),
        (Condition::ne("n", 5), vec![2, 4, 5, 6]),
        (Condition::gt("n", 5), vec![2]),
        (Condition::gte("n", 5), vec![1, 2, 3]),
        (Condition::lt("n", 7.5), vec![1, 3]),
        (Condition::lte("n", 7.5), vec![1, 2, 3]),
        (Condition::gt("n", "4"), vec![4]),
        (Condition::eq("n", f64::NAN), vec![5]),
        (Condition::is_in("n", [Bson::Int32(5), "5".into()]), vec![1, 3, 4]),
        (Condition::not_in("n", [Bson::Int32(5), "5".into()]), vec![2, 5, 6]),
        (Condition::is_in("n", Vec::<Bson>::new()), vec![]),
        (Condition::between("n", 5, 6), vec![1, 3]),
        (Condition::eq("s", Bson::Null), vec![3, 4, 5, 6]),
        (Condition::exists("s"), vec![1, 2, 3]),
        (Condition::missing("s"), vec![4, 5, 6]),
        (Condition::eq("tags", "x"), vec![1, 3]),
        (Condition::eq("tags", Bson::Array(vec![])), vec![2]),
        (Condition::eq("in.n", 9), vec![2]),
        (Condition::lt("in.n", 3), vec![1, 2]),
        (Condition::between("in.n", 3, 8), vec![2]),
        (Condition::eq("in.1.n", 9), vec![2]),
        (Condition::eq("in.n", Bson::Null), vec![3, 4, 5, 6]),
        (Condition::eq("d", DateTime::from_millis(5)), vec![4]),
        (Condition::and([Condition::gt("n", 1), Condition::eq("tags", "y")]), vec![1]),
        (Condition::or([Condition::eq("_id", 6), Condition::eq("s", "a")]), vec![1, 6]),
        (Condition::nor([Condition::eq("_id", 6), Condition::eq("n", 5)]), vec![2, 4, 5]),
        (Condition::is_in("_id", [6, 2, 2, 77]), vec![2, 6]),
        (Condition::between("_id", 2, 4), vec![2, 3, 4]),
        (Condition::and([Condition::gt("_id", 2), Condition::lt("_id", 2)]), vec![]),
        (Condition::gt("_id", "x"), vec![]),
    ];
    for (condition, expected) in cases {
        assert_eq!(matching(&records, condition.clone()).await, expected, "{condition:?}");
        let count = records.count(THINGS, &condition).await.expect("they are counted");
        assert_eq!(count, expected.len() as u64, "{condition:?}");
    }
}

/// Parts of texts, lists of values, elements and filter documents have MongoDB's meaning.
pub async fn texts_elements_and_filter_documents_are_found(subject: &dyn Subject) {
    let (_store, records) = open(subject).await;
    let documents = [
        doc! { "_id": 1, "s": "a+b (C)", "tags": ["x", "y"], "lines": [{ "n": 1, "p": 9 }, { "n": 5, "p": 2 }], "deleted": false },
        doc! { "_id": 2, "s": "AB\n", "tags": ["y"], "lines": [{ "n": 1, "p": 2 }], "deleted": true },
        doc! { "_id": 3, "s": ["zzz", "äb"], "tags": "x", "lines": { "n": 1, "p": 9 } },
        doc! { "_id": 4, "s": 5, "tags": [["x", "y"]], "lines": [[{ "n": 1, "p": 9 }], 7] },
        doc! { "_id": 5 },
    ];
    write(&records, documents.into_iter().map(put).collect()).await;
    let any_case = |text: &str| Fragment::new(text).ignoring_case();
    let line = |n: i32, p: i32| Condition::and([Condition::eq("n", n), Condition::eq("p", p)]);
    let cases = [
        (Condition::contains("s", "+b ("), vec![1]),
        (Condition::contains("s", "."), vec![]),
        (Condition::contains("s", ""), vec![1, 2, 3]),
        (Condition::contains("s", "b"), vec![1, 3]),
        (Condition::contains("s", any_case("B")), vec![1, 2, 3]),
        (Condition::contains("s", any_case("Ä")), vec![3]),
        (Condition::starts_with("s", "a"), vec![1]),
        (Condition::starts_with("s", any_case("a")), vec![1, 2]),
        (Condition::starts_with("s", ""), vec![1, 2, 3]),
        (Condition::ends_with("s", "b"), vec![3]),
        (Condition::ends_with("s", "B"), vec![2]),
        (Condition::ends_with("s", "B\n"), vec![2]),
        (Condition::all_in("tags", ["x", "y"]), vec![1]),
        (Condition::all_in("tags", ["y"]), vec![1, 2]),
        (Condition::all_in("tags", ["x"]), vec![1, 3]),
        (Condition::all_in("tags", Vec::<Bson>::new()), vec![]),
        (Condition::elem_match("lines", line(1, 2)), vec![2]),
        (Condition::elem_match("lines", line(1, 9)), vec![1]),
        (Condition::elem_match("lines", Condition::eq("0.n", 1)), vec![4]),
        (Condition::elem_match("lines", Condition::All), vec![1, 2, 4]),
        (Condition::deleted(Deletion::Active), vec![1]),
        (Condition::deleted(Deletion::Deleted), vec![2]),
        (Condition::deleted(Deletion::All), vec![1, 2, 3, 4, 5]),
        (Condition::is_null("s"), vec![5]),
        (Condition::not_null("s"), vec![1, 2, 3, 4]),
        (Condition::is_true("deleted"), vec![2]),
        (Condition::is_false("deleted"), vec![1]),
        (Condition::ids([2, 9]), vec![2]),
        (Condition::raw(doc! { "tags": "y", "deleted": { "$ne": true } }), vec![1]),
        (Condition::raw(doc! { "s": { "$not": { "$exists": true } } }), vec![5]),
        (Condition::raw(doc! { "lines": { "$elemMatch": { "n": { "$gt": 4, "$lt": 6 } } } }), vec![1]),
        (Condition::nor([Condition::raw(doc! { "$or": [{ "s": 5 }, { "tags": "x" }] })]), vec![2, 5]),
    ];
    for (condition, expected) in cases {
        assert_eq!(matching(&records, condition.clone()).await, expected, "{condition:?}");
        let count = records.count(THINGS, &condition).await.expect("they are counted");
        assert_eq!(count, expected.len() as u64, "{condition:?}");
    }
}

/// Windows of time are those of the store's clock.
pub async fn windows_of_time_move_with_the_clock(subject: &dyn Subject) {
    const DAY: i64 = 86_400_000;
    let (_store, records) = open(subject).await;
    let today = subject.clock().now().as_millis() / DAY * DAY;
    let times = [today - 7 * DAY, today - DAY, today - 1, today, today + DAY - 1, today + DAY, today + 2 * DAY];
    write(&records, times.iter().zip(1..).map(|(time, id)| put(doc! { "_id": id, "t": *time })).collect()).await;
    let cases = [
        (Condition::today("t"), vec![4, 5]),
        (Condition::tomorrow("t"), vec![6]),
        (Condition::recent_days("t", 2), vec![2, 3, 4, 5]),
        (Condition::earlier_days("t", 1), vec![1, 2, 3]),
        (Condition::nor([Condition::earlier_days("t", 2)]), vec![2, 3, 4, 5, 6, 7]),
    ];
    for (condition, expected) in cases {
        assert_eq!(matching(&records, condition.clone()).await, expected, "{condition:?}");
        let count = records.count(THINGS, &condition).await.expect("they are counted");
        assert_eq!(count, expected.len() as u64, "{condition:?}");
    }
    let never = Condition::within("t", Window::from(Days::Today).in_zone("Nowhere"));
    let error = records.count(THINGS, &never).await.expect_err("it is refused");
    assert_eq!(error.code(), Code::InvalidCondition);
    let change = RecordChange::replace_if(THINGS, raw(doc! { "_id": 1 }), Expected::Matching(Condition::today("t")));
    let error = records.write(vec![change]).await.expect_err("a change does not depend on the day");
    assert_eq!(error.code(), Code::InvalidCondition);
}

/// The explanation of a query states what it finds, and what it costs.
pub async fn a_query_is_explained(subject: &dyn Subject) {
    let collection = Collection::new(THINGS).index(Index::on("n"));
    let (_store, records) = open_with(subject, collection).await;
    write(&records, (0..200).map(|id| put(doc! { "_id": id, "n": id % 20 })).collect()).await;
    for (query, found) in [
        (all().matching(Condition::eq("n", 3)), 10),
        (all().matching(Condition::eq("n", 3)).limit(4), 4),
        (all().matching(Condition::ne("n", 3)).limit(1_000).descending("n"), 190),
        (all().matching(Condition::eq("_id", 7)), 1),
    ] {
        let explained = records.explain(query.clone()).await.expect("it is explained");
        assert_eq!(explained.found, found, "{query:?}");
        assert!(explained.documents_examined >= found, "{query:?}: {explained:?}");
    }
    let error = records.explain(RecordQuery::new("undeclared")).await.expect_err("it is refused");
    assert_eq!(error.code(), Code::UnknownCollection);
}

/// A sort puts types in MongoDB's order, and missing fields with null.
pub async fn a_sort_orders_all_types(subject: &dyn Subject) {
    let (_store, records) = open(subject).await;
    let values = [
        (1, Bson::MinKey),
        (3, Bson::Null),
        (4, f64::NAN.into()),
        (5, Bson::Int32(-1)),
        (6, Bson::Double(0.5)),
        (7, Bson::Int64(1)),
        (8, Bson::Decimal128("1.5".parse().expect("a decimal"))),
        (9, "".into()),
        (10, "a".into()),
        (11, doc! {}.into()),
        (12, doc! { "a": 1 }.into()),
        (13, false.into()),
        (14, true.into()),
        (15, DateTime::from_millis(-5).into()),
        (16, DateTime::from_millis(5).into()),
        (17, Bson::MaxKey),
    ];
    write(&records, values.into_iter().rev().map(|(id, value)| put(doc! { "_id": id, "v": value })).collect()).await;
    write_one(&records, put(doc! { "_id": 2 })).await;
    let up: Vec<i32> = (1..=17).collect();
    assert_eq!(numbers(ids(&records, all().ascending("v")).await), up);
    let down: Vec<i32> = (1..=17).rev().collect();
    assert_eq!(numbers(ids(&records, all().descending("v")).await), down);
    assert_eq!(numbers(ids(&records, all()).await), up);
    assert_eq!(numbers(ids(&records, all().descending("_id")).await), down);
}

/// In ascending order the lowest element counts, in descending order the highest. An array without elements comes before null.
pub async fn a_sort_by_an_array_takes_its_lowest_or_highest_element(subject: &dyn Subject) {
    let (_store, records) = open(subject).await;
    let documents = [
        doc! { "_id": 1, "a": [1, 9] },
        doc! { "_id": 2, "a": [5, 2] },
        doc! { "_id": 3, "a": 4 },
        doc! { "_id": 4, "a": [] },
        doc! { "_id": 5 },
    ];
    write(&records, documents.into_iter().map(put).collect()).await;
    assert_eq!(numbers(ids(&records, all().ascending("a")).await), [4, 5, 1, 2, 3]);
    assert_eq!(numbers(ids(&records, all().descending("a")).await), [1, 2, 3, 5, 4]);
}

/// Records that are equal by the sort are in the order of the ids, in the direction of the last field.
pub async fn equal_records_stand_in_the_order_of_their_ids(subject: &dyn Subject) {
    let (_store, records) = open(subject).await;
    write(&records, (0..12).map(|id| put(doc! { "_id": id, "a": id % 2, "b": id % 3 })).collect()).await;
    let up = [0, 6, 4, 10, 2, 8, 3, 9, 1, 7, 5, 11];
    assert_eq!(numbers(ids(&records, all().ascending("a").ascending("b")).await), up);
    let mixed = [8, 2, 10, 4, 6, 0, 11, 5, 7, 1, 9, 3];
    assert_eq!(numbers(ids(&records, all().ascending("a").descending("b")).await), mixed);
    assert_eq!(numbers(ids(&records, all().descending("a").limit(5)).await), [11, 9, 7, 5, 3, 1, 10, 8, 6, 4, 2, 0]);
}

/// Pages of any size cover everything once, in order.
pub async fn pages_cover_every_record_once(subject: &dyn Subject) {
    let (_store, records) = open(subject).await;
    write(&records, (0..300).map(|id| put(doc! { "_id": id, "n": id * 7 % 50, "m": [id % 3, id % 4] })).collect())
        .await;
    let condition = Condition::or([Condition::gt("n", 20), Condition::eq("m", 0)]);
    for query in [all(), all().descending("_id"), all().ascending("n"), all().descending("m").ascending("n")] {
        let query = query.matching(condition.clone());
        let whole = pages(&records, query.clone().limit(1_000)).await;
        assert!(whole.len() > 150);
        for limit in [1, 7, 100] {
            let read = pages(&records, query.clone().limit(limit)).await;
            assert!(read == whole, "pages of {limit} of {query:?}");
        }
    }
    let exact = records.find(all().limit(300)).await.expect("the page is read");
    assert_eq!((exact.records.len(), exact.next), (300, None));
}

/// A cursor is a place in the order. It stays valid whatever happens to the record at which it was created.
pub async fn a_page_goes_on_where_the_last_one_ended_although_records_came_and_went(subject: &dyn Subject) {
    let (_store, records) = open(subject).await;
    write(&records, (0..20).map(|id| put(doc! { "_id": id, "n": 100 - id })).collect()).await;
    for (query, expected) in [
        (all(), vec![10, 11, 12, 13, 14, 15, 16, 17, 18, 19]),
        (all().ascending("n"), vec![9, 8, 7, 6, 5, 4, 3, 2, 1, 0]),
    ] {
        let page = records.find(query.clone().limit(10)).await.expect("the page is read");
        let last = document(&page.records[9]).get_i32("_id").expect("an id");
        let other = document(&page.records[4]).get_i32("_id").expect("an id");
        write(&records, vec![delete(last), delete(other)]).await;
        let rest = ids(&records, query.after(page.next.expect("there is more"))).await;
        assert_eq!(numbers(rest), expected);
        write(&records, vec![put(doc! { "_id": last, "n": 100 - last }), put(doc! { "_id": other, "n": 100 - other })])
            .await;
    }
}

/// A page ends when it holds enough bytes, and has a cursor then.
pub async fn a_page_of_large_records_ends_early(subject: &dyn Subject) {
    let (_store, records) = open(subject).await;
    let large = "x".repeat(limits::PAGE_BYTES_MAX / 3);
    for id in 0..7 {
        write_one(&records, put(doc! { "_id": id, "x": &large })).await;
    }
    let page = records.find(all()).await.expect("the page is read");
    assert!((1..7).contains(&page.records.len()) && page.next.is_some(), "{}", page.records.len());
    assert_eq!(pages(&records, all()).await.len(), 7);
}

/// A projection keeps some fields or leaves some out, also inside documents and arrays. The order of fields stays.
pub async fn a_projection_leaves_out_the_rest(subject: &dyn Subject) {
    let (_store, records) = open(subject).await;
    let whole = doc! { "z": 1, "_id": 1, "in": { "b": 1, "a": { "x": 1, "y": 2 } }, "list": [{ "a": 1, "b": 2 }, 5, [{ "a": 3 }]], "s": "x" };
    write_one(&records, put(whole.clone())).await;
    let cases = [
        (Projection::Whole, whole),
        (Projection::only(["s", "z"]), doc! { "z": 1, "_id": 1, "s": "x" }),
        (
            Projection::only(["in.a.y", "list.a"]),
            doc! { "_id": 1, "in": { "a": { "y": 2 } }, "list": [{ "a": 1 }, [{ "a": 3 }]] },
        ),
        (Projection::only(["none", "s.x"]), doc! { "_id": 1 }),
        (
            Projection::without(["in.a", "list.a", "z"]),
            doc! { "_id": 1, "in": { "b": 1 }, "list": [{ "b": 2 }, 5, [{}]], "s": "x" },
        ),
        (Projection::without(["_id", "in", "list", "s.x"]), doc! { "z": 1, "s": "x" }),
    ];
    for (projection, expected) in cases {
        let page = records.find(all().projection(projection.clone())).await.expect("the page is read");
        assert_eq!(document(&page.records[0]), expected, "{projection:?}");
    }
}

/// Counting and finding agree.
pub async fn a_count_is_the_number_of_what_is_found(subject: &dyn Subject) {
    let (_store, records) = open(subject).await;
    assert_eq!(records.count(THINGS, &Condition::All).await, Ok(0));
    write(&records, (0..2_500).map(|id| insert(doc! { "_id": id, "n": id % 10 })).collect()).await;
    assert_eq!(records.count(THINGS, &Condition::All).await, Ok(2_500));
    assert_eq!(records.count(THINGS, &Condition::eq("n", 3)).await, Ok(250));
    assert_eq!(pages(&records, all().matching(Condition::eq("n", 3)).limit(99)).await.len(), 250);
}

/// A cursor belongs to its query: collection, condition and sort. Limit and projection may change.
pub async fn a_cursor_of_another_query_is_refused(subject: &dyn Subject) {
    let (_store, records) = open(subject).await;
    write(&records, (0..10).map(|id| put(doc! { "_id": id, "n": id })).collect()).await;
    let page = records.find(all().ascending("n").limit(3)).await.expect("the page is read");
    let cursor = page.next.expect("there is more");
    let others = [
        all().after(cursor.clone()),
        all().descending("n").after(cursor.clone()),
        all().ascending("n").matching(Condition::gt("n", 0)).after(cursor.clone()),
        all().ascending("n").after(Cursor::new("")),
        all().ascending("n").after(Cursor::new("no cursor")),
        all().ascending("n").after(Cursor::new("00ff")),
    ];
    for query in others {
        let error = records.find(query.clone()).await.expect_err("it is refused");
        assert_eq!(error.code(), Code::InvalidQuery, "{query:?}");
    }
    let same = all().ascending("n").after(Cursor::new(cursor.as_str())).limit(100).projection(Projection::only(["n"]));
    assert_eq!(records.find(same).await.expect("the page is read").records.len(), 7);
}

/// A query that breaks a rule is refused before anything is read.
pub async fn a_query_that_breaks_a_rule_is_refused(subject: &dyn Subject) {
    let (_store, records) = open(subject).await;
    let wrong = [
        (all().limit(0), Code::InvalidQuery),
        (all().limit(limits::PAGE_MAX + 1), Code::InvalidQuery),
        (all().ascending(""), Code::InvalidQuery),
        (all().ascending("a.0"), Code::InvalidQuery),
        (all().ascending("a").descending("a"), Code::InvalidQuery),
        (all().projection(Projection::only(["a", "a.b"])), Code::InvalidQuery),
        (all().projection(Projection::without(["a..b"])), Code::InvalidQuery),
        (all().matching(Condition::eq("$a", 1)), Code::InvalidCondition),
        (all().matching(Condition::Or(vec![])), Code::InvalidCondition),
        (all().matching(Condition::nor([Condition::matching_text("x")])), Code::InvalidCondition),
        (all().matching(Condition::field("a", Test::Eq(Bson::Undefined))), Code::InvalidCondition),
    ];
    for (query, code) in wrong {
        let error = records.find(query.clone()).await.expect_err("it is refused");
        assert_eq!(error.code(), code, "{query:?}");
    }
    let error = records.count(THINGS, &Condition::Nor(vec![])).await.expect_err("it is refused");
    assert_eq!(error.code(), Code::InvalidCondition);
}

/// Every pair of elements would be a key to sort by.
pub async fn records_with_two_arrays_cannot_be_sorted_by_both(subject: &dyn Subject) {
    let (_store, records) = open(subject).await;
    write(
        &records,
        vec![put(doc! { "_id": 1, "a": [1], "b": [2] }), put(doc! { "_id": 2, "l": [{ "a": 1, "b": 2 }] })],
    )
    .await;
    // The last two are in the order of their ids already, so no record needs a key to be sorted by.
    for query in [all(), all().ascending("_id"), all().descending("_id")] {
        let query = query.ascending("a").ascending("b");
        let error = records.find(query.clone()).await.expect_err("it is refused");
        assert_eq!(error.code(), Code::InvalidQuery, "{query:?}");
    }
    assert_eq!(numbers(ids(&records, all().ascending("l.a").descending("l.b")).await), [1, 2]);
}
