//! Indexes do not change answers, they keep records unique, and they are declared once.

use annals_core::bson::{Bson, doc};
use annals_core::order::Direction::{Ascending, Descending};
use annals_core::{Code, Collection, Condition, Index, RecordChange, RecordError, RecordQuery};

use crate::Subject;
use crate::records::operations::RecordOperations;
use crate::records::sample::{
    THINGS, delete, get, insert, matching, open, open_with, pages, put, records_of, refused, write, write_one,
};

fn things(indexes: impl IntoIterator<Item = impl Into<Index>>) -> Collection {
    Collection { name: THINGS.to_owned(), indexes: indexes.into_iter().map(Into::into).collect(), feed: false }
}

/// The same queries find the same records in the same order, whatever indexes exist and whenever they were declared.
pub async fn an_index_changes_no_answer(subject: &dyn Subject) {
    let (_store, records) = open(subject).await;
    let bare = "bare";
    records.declare(Collection::new(bare)).await.expect("it is declared");
    let mut operations = RecordOperations::new(7);
    let sets = [
        vec![Index::on("a"), Index::ordered([("b", Descending)])],
        vec![Index::ordered([("a", Ascending), ("b", Descending)]), Index::on("c.x")],
        vec![Index::ordered([("b", Ascending), ("c.x", Ascending), ("a", Descending)]).sparse()],
        vec![
            Index::on("c").partial(Condition::gt("a", 1)).named("some c"),
            Index::ordered([("_id", Descending)]).named("ids"),
        ],
    ];
    for set in sets {
        for _ in 0..40 {
            let change = operations.any_change(THINGS);
            // Both accept it or both refuse it. An index refuses a document with two arrays, so there are none.
            let same = in_collection(bare, &change);
            let outcomes = (records.write(vec![change]).await.is_ok(), records.write(vec![same]).await.is_ok());
            assert_eq!(outcomes.0, outcomes.1);
        }
        records.declare(things(set)).await.expect("they are declared");
        for _ in 0..60 {
            let query = operations.any_query(THINGS);
            let other = RecordQuery { collection: bare.to_owned(), ..query.clone() };
            let documents =
                |found: Vec<annals_core::Record>| found.into_iter().map(|record| record.document).collect::<Vec<_>>();
            let (with, without) =
                (documents(pages(&records, query.clone()).await), documents(pages(&records, other).await));
            assert!(with == without, "{query:?}\n{with:?}\n{without:?}");
            let counts = (
                records.count(THINGS, &query.condition).await.expect("they are counted"),
                records.count(bare, &query.condition).await.expect("they are counted"),
            );
            assert_eq!(counts.0, counts.1, "{query:?}");
        }
    }
}

fn in_collection(name: &str, change: &RecordChange) -> RecordChange {
    let mut change = change.clone();
    let (RecordChange::Insert { collection, .. }
    | RecordChange::Replace { collection, .. }
    | RecordChange::Delete { collection, .. }
    | RecordChange::Set { collection, .. }
    | RecordChange::Check { collection, .. }) = &mut change;
    *collection = name.to_owned();
    change
}

/// A refusal names the index and the key.
pub async fn a_unique_index_refuses_a_second_record_and_says_which(subject: &dyn Subject) {
    let unique = Index::ordered([("a", Ascending), ("b.c", Descending)]).unique();
    let (_store, records) = open_with(subject, things([unique])).await;
    write_one(&records, insert(doc! { "_id": 1, "a": 1, "b": { "c": "x" } })).await;
    write_one(&records, insert(doc! { "_id": 2, "a": 1, "b": { "c": "y" } })).await;
    write_one(&records, insert(doc! { "_id": 3, "a": 2, "b": { "c": "x" } })).await;
    let error = refused(&records, vec![insert(doc! { "_id": 4, "a": 1.0, "b": { "c": "x" } })]).await;
    assert_eq!(error.code(), Code::DuplicateKey);
    let RecordError::DuplicateKey { collection, index, key, change } = error else { panic!("{error:?}") };
    assert_eq!((&*collection, &*index, change), (THINGS, "a_1_b.c_-1", 0));
    assert_eq!(*key, doc! { "a": 1.0, "b.c": "x" });
    assert_eq!(
        refused(&records, vec![put(doc! { "_id": 3, "a": 1, "b": { "c": "y" } })]).await.code(),
        Code::DuplicateKey
    );
    write_one(&records, put(doc! { "_id": 3, "a": 2, "b": { "c": "x" }, "same": true })).await;
    assert_eq!(pages(&records, RecordQuery::new(THINGS)).await.len(), 3);
}

/// No two records share an element, but one record may hold it twice.
pub async fn elements_of_arrays_are_unique_too(subject: &dyn Subject) {
    let (_store, records) = open_with(subject, things([Index::on("tags").unique()])).await;
    write_one(&records, insert(doc! { "_id": 1, "tags": ["x", "y", "x"] })).await;
    let error = refused(&records, vec![insert(doc! { "_id": 2, "tags": ["z", "y"] })]).await;
    let RecordError::DuplicateKey { key, .. } = error else { panic!("{error:?}") };
    assert_eq!(*key, doc! { "tags": "y" });
    assert_eq!(refused(&records, vec![insert(doc! { "_id": 2, "tags": "x" })]).await.code(), Code::DuplicateKey);
    write_one(&records, insert(doc! { "_id": 2, "tags": ["z"] })).await;
    assert_eq!(matching(&records, Condition::eq("tags", "x")).await, [1]);
}

/// A record without a value has the key null; in a sparse index, it has none.
pub async fn a_missing_field_counts_as_null_unless_the_index_is_sparse(subject: &dyn Subject) {
    let (_store, records) =
        open_with(subject, things([Index::on("a").unique(), Index::on("b").unique().sparse()])).await;
    write_one(&records, insert(doc! { "_id": 1 })).await;
    let error = refused(&records, vec![insert(doc! { "_id": 2, "a": Bson::Null })]).await;
    assert!(matches!(&error, RecordError::DuplicateKey { index, .. } if index == "a_1"), "{error:?}");
    write_one(&records, insert(doc! { "_id": 2, "a": 1 })).await;
    // An explicit null is a value.
    write_one(&records, insert(doc! { "_id": 3, "a": 2, "b": Bson::Null })).await;
    let error = refused(&records, vec![insert(doc! { "_id": 4, "a": 3, "b": Bson::Null })]).await;
    assert!(matches!(&error, RecordError::DuplicateKey { index, .. } if index == "b_1"), "{error:?}");
    assert_eq!(matching(&records, Condition::eq("b", Bson::Null)).await, [1, 2, 3]);
    assert_eq!(matching(&records, Condition::exists("b")).await, [3]);
}

/// A partial index contains only what its condition admits. Records enter and leave it as they change.
pub async fn a_partial_index_is_unique_among_those_it_admits(subject: &dyn Subject) {
    let active = Index::on("name").unique().partial(Condition::eq("active", true));
    let (_store, records) = open_with(subject, things([active])).await;
    let user = |id: i32, active: bool| doc! { "_id": id, "name": "n", "active": active };
    write(&records, vec![insert(user(1, true)), insert(user(2, false)), insert(user(3, false))]).await;
    assert_eq!(refused(&records, vec![put(user(2, true))]).await.code(), Code::DuplicateKey);
    write(&records, vec![put(user(1, false)), put(user(2, true))]).await;
    assert_eq!(refused(&records, vec![put(user(1, true))]).await.code(), Code::DuplicateKey);
    let named = Condition::eq("name", "n");
    assert_eq!(matching(&records, named.clone()).await, [1, 2, 3]);
    assert_eq!(matching(&records, Condition::and([named, Condition::eq("active", true)])).await, [2]);
}

/// A key is free once its record is gone or has another key, even in the same batch.
pub async fn a_key_that_was_given_up_can_be_taken(subject: &dyn Subject) {
    let (_store, records) = open_with(subject, things([Index::on("k").unique()])).await;
    write_one(&records, insert(doc! { "_id": 1, "k": "a" })).await;
    assert_eq!(
        refused(&records, vec![insert(doc! { "_id": 2, "k": "a" }), delete(1)]).await.code(),
        Code::DuplicateKey
    );
    write(&records, vec![delete(1), insert(doc! { "_id": 2, "k": "a" })]).await;
    write(&records, vec![put(doc! { "_id": 2, "k": "b" }), insert(doc! { "_id": 3, "k": "a" })]).await;
    assert_eq!(matching(&records, Condition::eq("k", "a")).await, [3]);
    assert_eq!(matching(&records, Condition::eq("k", "b")).await, [2]);
}

/// Of many concurrent writers that want the same key, one gets it.
pub async fn of_many_who_want_a_unique_key_one_gets_it(subject: &dyn Subject) {
    let (_store, records) = open_with(subject, things([Index::on("k").unique()])).await;
    for round in 0..10 {
        let tasks: Vec<_> = (0..12)
            .map(|n| {
                let records = records.clone();
                let change = insert(doc! { "_id": round * 100 + n, "k": round });
                tokio::spawn(async move { records.write(vec![change]).await })
            })
            .collect();
        let mut winners = 0;
        for task in tasks {
            match task.await.expect("the task ends well") {
                Ok(_) => winners += 1,
                Err(error) => assert_eq!(error.code(), Code::DuplicateKey),
            }
        }
        assert_eq!(winners, 1);
        assert_eq!(matching(&records, Condition::eq("k", round)).await.len(), 1);
    }
}

/// An index that is declared later is filled from the existing records.
pub async fn a_new_index_holds_what_was_there(subject: &dyn Subject) {
    let (_store, records) = open(subject).await;
    write(&records, (0..500).map(|id| insert(doc! { "_id": id, "n": id % 50, "t": [id % 7, id % 5] })).collect()).await;
    let before = matching(&records, Condition::eq("n", 7)).await;
    records
        .declare(things([Index::on("n"), Index::on("t"), Index::on("_id").named("i").unique()]))
        .await
        .expect("declared");
    assert_eq!(matching(&records, Condition::eq("n", 7)).await, before);
    assert_eq!(matching(&records, Condition::and([Condition::gt("n", 47), Condition::eq("t", 6)])).await.len(), 3);
    let sorted = pages(&records, RecordQuery::new(THINGS).descending("n").limit(77)).await;
    assert_eq!(sorted.len(), 500);
}

/// A unique index is not created over records that break it, and nothing of the declaration stays.
pub async fn a_new_unique_index_is_refused_when_records_break_it(subject: &dyn Subject) {
    let (_store, records) = open(subject).await;
    write(&records, vec![insert(doc! { "_id": 1, "n": 1 }), insert(doc! { "_id": 2, "n": 1 })]).await;
    let declaration = things([Index::on("m"), Index::on("n").unique()]);
    let error = records.declare(declaration.clone()).await.expect_err("it is refused");
    assert!(matches!(&error, RecordError::DuplicateKey { index, .. } if index == "n_1"), "{error:?}");
    write_one(&records, insert(doc! { "_id": 3, "n": 1 })).await;
    write(&records, vec![delete(2), delete(3)]).await;
    records.declare(declaration).await.expect("nothing breaks it now");
    assert_eq!(refused(&records, vec![insert(doc! { "_id": 4, "n": 1 })]).await.code(), Code::DuplicateKey);
}

/// A name means one index. A different index is never changed silently, nor dropped.
pub async fn an_index_that_is_something_else_is_refused(subject: &dyn Subject) {
    let (_store, records) = open_with(subject, things([Index::on("a").named("i")])).await;
    let others = [
        Index::on("b").named("i"),
        Index::ordered([("a", Descending)]).named("i"),
        Index::on("a").named("i").unique(),
        Index::on("a").named("i").sparse(),
        Index::on("a").named("i").partial(Condition::exists("a")),
        Index::on("a").named("i").expires_after_seconds(1),
    ];
    for other in others {
        let error = records.declare(things([other])).await.expect_err("it is refused");
        assert_eq!(error.code(), Code::IndexConflict);
        assert!(error.to_string().contains("index i of"), "{error}");
    }
}

/// The same declaration may be repeated, also in parallel. Indexes that it omits stay.
pub async fn declaring_again_does_nothing(subject: &dyn Subject) {
    let collection = things([Index::on("a").unique()]);
    let (store, records) = open_with(subject, collection.clone()).await;
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let (records, collection) = (records_of(&store), collection.clone());
            tokio::spawn(async move { records.declare(collection).await })
        })
        .collect();
    for task in tasks {
        task.await.expect("the task ends well").expect("it is declared");
    }
    records.declare(Collection::new(THINGS)).await.expect("it is declared");
    write_one(&records, insert(doc! { "_id": 1, "a": 1 })).await;
    assert_eq!(refused(&records, vec![insert(doc! { "_id": 2, "a": 1 })]).await.code(), Code::DuplicateKey);
}

/// Every pair of elements would be an entry.
pub async fn a_document_with_two_arrays_does_not_fit_one_index(subject: &dyn Subject) {
    let both = Index::ordered([("a", Ascending), ("b", Ascending)]);
    let (_store, records) = open_with(subject, things([both])).await;
    let error = refused(&records, vec![insert(doc! { "_id": 1, "a": [1], "b": [2] })]).await;
    assert_eq!(error.code(), Code::InvalidRecord);
    write_one(&records, insert(doc! { "_id": 1, "a": [1, 2], "b": 3 })).await;
    assert!(get(&records, 1).await.is_some());
}

/// A declaration that breaks a rule is refused.
pub async fn declarations_that_break_a_rule_are_refused(subject: &dyn Subject) {
    let store = subject.open().await;
    let records = records_of(&store);
    let wrong = [
        Collection::new(""),
        Collection::new("a b"),
        Collection::new("x".repeat(200)),
        things([Index::ordered([])]),
        things([Index::on("")]),
        things([Index::on("a.0")]),
        things([Index::on("a"), Index::on("a")]),
        things([Index::ordered([("a", Ascending), ("a", Descending)])]),
        things([Index::on("a").named("_id_")]),
        things([Index::on("a").partial(Condition::Or(vec![]))]),
        things([Index::ordered([("a", Ascending), ("b", Ascending)]).expires_after_seconds(1)]),
    ];
    for collection in wrong {
        let error = records.declare(collection.clone()).await.expect_err("it is refused");
        assert_eq!(error.code(), Code::InvalidCollection, "{collection:?}");
    }
}

/// Declared collections are listed in the order of names, with every index that was ever declared.
pub async fn declared_collections_are_listed(subject: &dyn Subject) {
    let store = subject.open().await;
    let records = records_of(&store);
    assert_eq!(records.collections().await, Ok(Vec::new()));
    let partial = Condition::and([Condition::gt("n", 1.5), Condition::exists("a.b")]);
    let every = things([
        Index::ordered([("a.b", Descending), ("n", Ascending)]).unique().partial(partial).named("first"),
        Index::on("x").sparse(),
        Index::on("at").expires_after_seconds(3_600),
    ]);
    records.declare(every.clone()).await.expect("it is declared");
    records.declare(Collection::new("Bare")).await.expect("it is declared");
    let mut known = vec![Collection::new("Bare"), every];
    assert_eq!(records.collections().await, Ok(known.clone()));
    records.declare(things([Index::on("later")])).await.expect("it is declared");
    known[1].indexes.push(Index::on("later").into());
    assert_eq!(records.collections().await, Ok(known));
}
