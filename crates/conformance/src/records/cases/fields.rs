//! Changes of named fields of a record.

use annals_core::bson::{Bson, Document, doc};
use annals_core::{Code, Collection, Condition, Expected, Index, RecordChange, RecordError, limits};

use crate::Subject;
use crate::records::sample::{
    THINGS, delete, get, insert, matching, open, open_with, put, refused, replace, stored, write, write_one,
};

fn set(id: i32, fields: Document, unset: &[&str], expected: Expected) -> RecordChange {
    let (collection, id) = (THINGS.to_owned(), id.into());
    let unset = unset.iter().map(|path| (*path).to_owned()).collect();
    RecordChange::Set { collection, id, fields: fields.into_iter().collect(), unset, expected }
}

/// Fields that are not named keep their values and places. New fields come last, wherever the `_id` is.
pub async fn named_fields_change_and_the_others_stay(subject: &dyn Subject) {
    let (_store, records) = open(subject).await;
    let date = annals_core::bson::DateTime::from_millis(5);
    let there = doc! { "z": 1, "_id": 1, "in": { "b": 1, "a": 2 }, "list": [1, { "x": 1 }], "gone": 1, "at": date };
    let first = write_one(&records, insert(there)).await;
    let fields = doc! { "in.a": 7, "new.y.x": "t", "new.b": Bson::Null, "12": 1, "7": 2, "list": [], "odd": { "$x": 1, "a.b": 2 } };
    let second = write_one(&records, set(1, fields, &["gone", "in.b", "never.there"], Expected::Revision(first))).await;
    assert!(second > first);
    let due = doc! {
        "z": 1, "_id": 1, "in": { "a": 7 }, "list": [], "at": date, "7": 2, "12": 1,
        "new": { "b": Bson::Null, "y": { "x": "t" } }, "odd": { "$x": 1, "a.b": 2 },
    };
    assert_eq!(stored(&records, 1).await.map(|found| found.to_string()), Some(due.to_string()));
    assert_eq!(get(&records, 1).await.expect("it is there").revision, second);
    write_one(&records, set(1, doc! { "w": 1 }, &["z", "in", "new", "odd", "list"], Expected::Present)).await;
    let due = doc! { "_id": 1, "at": date, "7": 2, "12": 1, "w": 1 };
    assert_eq!(stored(&records, 1).await.map(|found| found.to_string()), Some(due.to_string()));
}

/// The expectation decides, and a record that may be absent is inserted.
pub async fn fields_of_a_record_that_may_be_absent_are_inserted(subject: &dyn Subject) {
    let (_store, records) = open(subject).await;
    for expected in [Expected::Present, Expected::Revision(1), Expected::Matching(Condition::All)] {
        let error = refused(&records, vec![set(1, doc! { "n": 1 }, &[], expected)]).await;
        assert!(matches!(error, RecordError::NotAsExpected { actual: None, .. }), "{error:?}");
    }
    write_one(&records, set(1, doc! { "n": 1, "in.a": 1 }, &["b"], Expected::Absent)).await;
    assert_eq!(stored(&records, 1).await, Some(doc! { "_id": 1, "in": { "a": 1 }, "n": 1 }));
    let error = refused(&records, vec![set(1, doc! { "n": 2 }, &[], Expected::Absent)]).await;
    assert_eq!(error.code(), Code::RecordConflict);
    let below = |n: i32| Expected::AbsentOr(Condition::lt("n", n));
    assert_eq!(refused(&records, vec![set(1, doc! { "n": 2 }, &[], below(1))]).await.code(), Code::RecordConflict);
    write_one(&records, set(1, doc! { "n": 2 }, &[], below(2))).await;
    write_one(&records, set(2, doc! { "n": 2 }, &[], below(2))).await;
    assert_eq!(matching(&records, Condition::eq("n", 2)).await, [1, 2]);
}

/// Indexes follow, a unique one refuses, and each change of a batch applies to what the earlier ones left.
pub async fn a_change_of_fields_keeps_indexes_and_sees_what_came_before(subject: &dyn Subject) {
    let things = Collection::new(THINGS).index(Index::on("name").unique()).index(Index::on("in.n"));
    let (_store, records) = open_with(subject, things).await;
    write(&records, vec![insert(doc! { "_id": 1, "name": "a" }), insert(doc! { "_id": 2, "name": "b" })]).await;
    let taken = refused(&records, vec![set(2, doc! { "name": "a" }, &[], Expected::Present)]).await;
    assert_eq!(taken.code(), Code::DuplicateKey, "{taken}");
    let renamed = vec![
        set(1, doc! { "name": "c" }, &[], Expected::Present),
        set(2, doc! { "name": "a" }, &[], Expected::Present),
    ];
    write(&records, renamed).await;
    assert_eq!(matching(&records, Condition::eq("name", "a")).await, [2]);
    let changes = vec![
        set(1, doc! { "in.n": 5, "keep": 1 }, &[], Expected::Present),
        set(1, doc! { "in.m": 6 }, &["keep"], Expected::Matching(Condition::eq("in.n", 5))),
        delete(2),
        put(doc! { "_id": 3, "name": "x", "n": 1 }),
        set(3, doc! { "in.n": 5 }, &["n"], Expected::Present),
        set(4, doc! { "name": "y" }, &[], Expected::Absent),
        replace(doc! { "_id": 4, "name": "z" }, Expected::Matching(Condition::eq("name", "y"))),
    ];
    let numbers = write(&records, changes).await;
    assert_eq!(stored(&records, 1).await, Some(doc! { "_id": 1, "name": "c", "in": { "m": 6, "n": 5 } }));
    assert_eq!(get(&records, 1).await.expect("it is there").revision, numbers[1]);
    assert_eq!(stored(&records, 3).await, Some(doc! { "_id": 3, "name": "x", "in": { "n": 5 } }));
    assert_eq!(matching(&records, Condition::eq("in.n", 5)).await, [1, 3]);
    assert_eq!(stored(&records, 4).await, Some(doc! { "_id": 4, "name": "z" }));
}

/// Refused are paths through an array or a scalar, paths of the `_id`, and paths that overlap.
pub async fn paths_that_cannot_be_set_are_refused(subject: &dyn Subject) {
    let (_store, records) = open(subject).await;
    let there = doc! { "_id": 1, "list": [{ "a": 1 }], "n": 1, "none": Bson::Null, "in": {} };
    write_one(&records, insert(there.clone())).await;
    let deep = vec!["d"; limits::DATA_DEPTH_MAX + 1].join(".");
    let cases = [
        (doc! {}, vec![]),
        (doc! { "_id": 2 }, vec![]),
        (doc! { "_id.x": 2 }, vec![]),
        (doc! { "in": 1, "in.a": 1 }, vec![]),
        (doc! { "in.a": 1 }, vec!["in"]),
        (doc! { "a..b": 1 }, vec![]),
        (doc! { "$a": 1 }, vec![]),
        (doc! { "list.0": 1 }, vec![]),
        (doc! { "list.a": 1 }, vec![]),
        (doc! { "n.a": 1 }, vec![]),
        (doc! { "none.a": 1 }, vec![]),
        (doc! {}, vec!["n.a"]),
        (doc! {}, vec!["list.0"]),
        (doc! { deep: 1 }, vec![]),
    ];
    for (fields, unset) in cases {
        let changes = vec![put(doc! { "_id": 2 }), set(1, fields.clone(), &unset, Expected::Present)];
        let error = refused(&records, changes).await;
        assert_eq!(error.code(), Code::InvalidRecord, "{fields} {unset:?}: {error}");
        assert!(error.to_string().starts_with("changes[1]."), "{error}");
    }
    assert_eq!(stored(&records, 1).await, Some(there));
    assert_eq!(get(&records, 2).await, None);
}
