//! Text indexes: the words of texts, and searches for them.

use std::sync::Arc;

use annals_core::bson::{Bson, doc};
use annals_core::{Code, Collection, Condition, Expected, Index, RecordError, RecordQuery, Records};

use crate::Subject;
use crate::records::sample::{
    THINGS, delete, ids, insert, matching, numbers, open, open_with, pages, put, refused, reopen, replace, write,
    write_one,
};

fn with_text(paths: &[&str]) -> Collection {
    Collection::new(THINGS).index(Index::text(paths.iter().copied()))
}

async fn found(records: &Arc<dyn Records>, search: &str) -> Vec<i32> {
    let ids = matching(records, Condition::matching_text(search)).await;
    let count = records.count(THINGS, &Condition::matching_text(search)).await.expect("they are counted");
    assert_eq!(count, ids.len() as u64, "{search:?}");
    ids
}

/// Searches find words of any case and accents, phrases, and exclusions, in texts and in arrays of them. Results are in the order of ids.
pub async fn words_and_phrases_are_found(subject: &dyn Subject) {
    let (_store, records) = open_with(subject, with_text(&["title", "notes.text"])).await;
    let changes = vec![
        insert(doc! { "_id": 3, "title": "Café au lait", "other": "tea" }),
        insert(
            doc! { "_id": 1, "title": "Black coffee", "notes": [{ "text": "no MILK" }, { "text": ["strong, hot"] }] },
        ),
        insert(doc! { "_id": 2, "title": "White cafe: milk-foam", "language": "klingon" }),
        insert(doc! { "_id": 4, "title": 5, "notes": Bson::Null }),
    ];
    write(&records, changes).await;
    for (search, due) in [
        ("cafe", vec![2, 3]),
        ("CAFÉ milk", vec![1, 2, 3]),
        ("\"milk foam\"", vec![]),
        ("\"milk-foam\"", vec![2]),
        ("\"no milk\" cafe", vec![1]),
        ("milk -foam", vec![1]),
        ("cafe -\"au lait\"", vec![2]),
        ("hot", vec![1]),
        ("tea", vec![]),
        ("-milk", vec![]),
        ("", vec![]),
    ] {
        assert_eq!(found(&records, search).await, due, "{search:?}");
    }
}

/// Other conditions, sorts and pages work as usual.
pub async fn a_search_is_one_condition_among_others(subject: &dyn Subject) {
    let (_store, records) = open_with(subject, with_text(&["t"]).index(Index::on("n"))).await;
    let text = |id: i32| if id % 10 == 0 { "a needle in it" } else { "hay" };
    write(&records, (0..100).map(|id| insert(doc! { "_id": id, "t": text(id), "n": id % 4 })).collect()).await;
    let needles = || RecordQuery::new(THINGS).matching(Condition::matching_text("needle \"in it\""));
    let explained = records.explain(needles()).await.expect("it is explained");
    assert_eq!(explained.found, 10);
    let condition = Condition::and([Condition::eq("n", 2), Condition::matching_text("needle")]);
    assert_eq!(matching(&records, condition).await, [10, 30, 50, 70, 90]);
    let sorted = pages(&records, needles().descending("n").ascending("_id").limit(3)).await;
    let found = sorted.iter().map(|record| record.document.get_i32("_id").expect("it has an id"));
    assert_eq!(found.collect::<Vec<_>>(), [10, 30, 50, 70, 90, 0, 20, 40, 60, 80]);
    let all = || RecordQuery::new(THINGS).matching(Condition::matching_text("hay needle")).limit(30);
    let mut due: Vec<i32> = (0..100).rev().collect();
    assert_eq!(numbers(ids(&records, all().descending("_id")).await), due);
    due.sort_by_key(|id| std::cmp::Reverse(id % 4));
    assert_eq!(numbers(ids(&records, all().descending("n")).await), due);
    // An index contains the words; equality of a text is another question.
    assert_eq!(matching(&records, Condition::eq("t", "needle")).await, [0; 0]);
}

/// The words are those of the current document, even if the index came later and after reopening.
pub async fn a_text_index_follows_its_records(subject: &dyn Subject) {
    let (store, records) = open(subject).await;
    write(&records, (1..=3).map(|id| insert(doc! { "_id": id, "t": ["old", "kept"] })).collect()).await;
    for _ in 0..2 {
        records.declare(with_text(&["t"])).await.expect("it is declared");
    }
    assert_eq!(found(&records, "old").await, [1, 2, 3]);
    write(&records, vec![put(doc! { "_id": 1, "t": "new kept" }), delete(2)]).await;
    let (_store, records) = reopen(subject, store, records).await;
    assert_eq!(found(&records, "old").await, [3]);
    assert_eq!(found(&records, "kept").await, [1, 3]);
    assert_eq!(found(&records, "new").await, [1]);
    let declared = records.collections().await.expect("they are listed");
    let things = declared.iter().find(|collection| collection.name == THINGS).expect("it is declared");
    assert_eq!(things.text_index(), Some(&Index::text(["t"])));
}

/// Without an index there are no words, and no other query replaces the search.
pub async fn a_search_without_a_text_index_is_refused(subject: &dyn Subject) {
    let (_store, records) = open_with(subject, Collection::new(THINGS).index(Index::on("t"))).await;
    write_one(&records, insert(doc! { "_id": 1, "t": "word" })).await;
    let words = || Condition::matching_text("word");
    let query = || RecordQuery::new(THINGS).matching(words());
    let refusals = [
        records.find(query()).await.map(drop),
        records.explain(query()).await.map(drop),
        records.count(THINGS, &Condition::And(vec![Condition::All, words()])).await.map(drop),
    ];
    for refusal in refusals {
        let error = refusal.expect_err("it is refused");
        assert!(error.code() == Code::NoTextIndex && error.to_string().contains("declare"), "{error}");
    }
    records.declare(with_text(&["t"])).await.expect("it is declared");
    assert_eq!(matching(&records, words()).await, [1]);
    for nowhere in [
        Condition::or([words(), Condition::eq("_id", 1)]),
        Condition::nor([words()]),
        Condition::And(vec![words(), words()]),
        Condition::elem_match("t", words()),
    ] {
        let error = records.find(RecordQuery::new(THINGS).matching(nowhere)).await.expect_err("it is refused");
        assert_eq!(error.code(), Code::InvalidCondition);
    }
    let change = replace(doc! { "_id": 1 }, Expected::Matching(words()));
    assert_eq!(refused(&records, vec![change]).await.code(), Code::InvalidCondition);
}

/// A collection has at most one, and it consists only of fields.
pub async fn a_collection_has_one_text_index(subject: &dyn Subject) {
    let (_store, records) = open_with(subject, with_text(&["t", "u"])).await;
    let second = Collection::new(THINGS).index(Index::text(["v"]));
    let error = records.declare(second).await.expect_err("there is one");
    assert!(matches!(&error, RecordError::IndexConflict { index, .. } if index == "v_text"), "{error}");
    let other = Collection::new(THINGS).index(Index::text(["t"]).named("t_text_u_text"));
    let error = records.declare(other).await.expect_err("it is of other fields");
    assert_eq!(error.code(), Code::IndexConflict);
    let both = Collection::new("others").index(Index::text(["a"])).index(Index::text(["b"]));
    let wrong = [Index::text(["_fts"]), Index::text([])];
    let wrong = wrong.into_iter().map(|index| Collection::new("others").index(index));
    for collection in wrong.chain([both]) {
        let error = records.declare(collection.clone()).await.expect_err("it is refused");
        assert_eq!(error.code(), Code::InvalidCollection, "{collection:?}");
    }
}

/// A record with more words than an index accepts is refused, and nothing of it is stored.
pub async fn a_record_of_too_many_words_is_refused(subject: &dyn Subject) {
    let (_store, records) = open_with(subject, with_text(&["t"])).await;
    let words = |count: i32| (0..count).map(|n| format!("{n} ")).collect::<String>();
    let refusal = refused(&records, vec![insert(doc! { "_id": 1, "t": words(80_000) })]).await;
    assert_eq!(refusal.code(), Code::InvalidRecord);
    write_one(&records, insert(doc! { "_id": 1, "t": words(2_000), "u": words(80_000) })).await;
    assert_eq!(found(&records, "1999").await, [1]);
}
