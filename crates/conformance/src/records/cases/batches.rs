//! Several changes at once.

use annals_core::bson::doc;
use annals_core::{Code, Collection, Expected, RecordChange, RecordError, RecordQuery};

use crate::Subject;
use crate::records::sample::{
    THINGS, delete, document, get, insert, matching, open, pages, put, raw, refused, replace, stored, write, write_one,
};

/// When one change is refused, none happens, in no collection.
pub async fn a_batch_happens_whole_or_not_at_all(subject: &dyn Subject) {
    let (_store, records) = open(subject).await;
    records.declare(Collection::new("others")).await.expect("it is declared");
    write_one(&records, insert(doc! { "_id": 1, "n": 1 })).await;
    let other = || RecordChange::insert("others", raw(doc! { "_id": 1 }));
    let changes = vec![other(), put(doc! { "_id": 1, "n": 2 }), insert(doc! { "_id": 2 }), delete(3)];
    assert_eq!(refused(&records, changes).await.code(), Code::RecordConflict);
    assert_eq!(stored(&records, 1).await, Some(doc! { "_id": 1, "n": 1 }));
    assert_eq!(get(&records, 2).await, None);
    assert_eq!(records.get("others", &1.into()).await.expect("it is looked up"), None);
    let numbers = write(&records, vec![other(), put(doc! { "_id": 1, "n": 2 }), insert(doc! { "_id": 2 })]).await;
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "{numbers:?}");
    assert_eq!(stored(&records, 1).await, Some(doc! { "_id": 1, "n": 2 }));
    assert!(records.get("others", &1.into()).await.expect("it is looked up").is_some());
}

/// Changes of a batch happen one after the other.
pub async fn each_change_sees_those_before_it(subject: &dyn Subject) {
    let (_store, records) = open(subject).await;
    let conflict = refused(&records, vec![insert(doc! { "_id": 1 }), insert(doc! { "_id": 1 })]).await;
    assert!(matches!(conflict, RecordError::DuplicateKey { change: 1, .. }), "{conflict:?}");
    let changes = vec![
        insert(doc! { "_id": 1, "n": 1 }),
        replace(doc! { "_id": 1, "n": 2 }, Expected::Matching(annals_core::Condition::eq("n", 1))),
        delete(1),
        insert(doc! { "_id": 1, "n": 3 }),
    ];
    let numbers = write(&records, changes).await;
    let record = get(&records, 1).await.expect("it is there");
    assert_eq!((document(&record), record.revision), (doc! { "_id": 1, "n": 3 }, numbers[3]));
}

/// Two records that are always changed together are never seen apart.
pub async fn a_reader_never_sees_half_a_batch(subject: &dyn Subject) {
    let (_store, records) = open(subject).await;
    let pair = |n: i32| (0..20).map(|id| put(doc! { "_id": id, "n": n })).collect::<Vec<_>>();
    write(&records, pair(0)).await;
    let writer = tokio::spawn({
        let records = records.clone();
        async move {
            for n in 1..60 {
                write(&records, pair(n)).await;
            }
        }
    });
    let mut seen = 0;
    while !writer.is_finished() {
        let page = records.find(RecordQuery::new(THINGS)).await.expect("the page is read");
        let counts: Vec<_> = page.records.iter().map(|record| record.document.get_i32("n").expect("n")).collect();
        assert_eq!(counts, vec![counts[0]; 20]);
        assert!(counts[0] >= seen, "{} after {seen}", counts[0]);
        seen = counts[0];
    }
    writer.await.expect("the task ends well");
}

/// A refusal names the change, from 0.
pub async fn a_refused_batch_says_which_change(subject: &dyn Subject) {
    let (_store, records) = open(subject).await;
    let changes = vec![insert(doc! { "_id": 1 }), insert(doc! { "_id": 2 }), delete(3)];
    let error = refused(&records, changes).await;
    assert!(matches!(error, RecordError::NotAsExpected { change: 2, actual: None, .. }), "{error:?}");
    assert!(error.to_string().contains('3'), "{error}");
}

/// A batch without changes is answered without numbers.
pub async fn a_batch_of_nothing_does_nothing(subject: &dyn Subject) {
    let (_store, records) = open(subject).await;
    assert!(write(&records, Vec::new()).await.is_empty());
    assert_eq!(records.last_change().await.expect("the newest change"), 0);
}

/// A write whose caller went away may or may not happen, whole.
pub async fn a_batch_whose_caller_went_away_is_whole_or_absent(subject: &dyn Subject) {
    let (_store, records) = open(subject).await;
    for n in 0i32..30 {
        let batch = vec![insert(doc! { "_id": 2 * n }), insert(doc! { "_id": 2 * n + 1 })];
        let write = records.write(batch);
        let _ = tokio::time::timeout(std::time::Duration::from_micros(u64::from(n.unsigned_abs()) * 20), write).await;
    }
    // A later write is behind all of them.
    write_one(&records, insert(doc! { "_id": -1 })).await;
    let found = matching(&records, annals_core::Condition::gte("_id", 0)).await;
    for pair in found.chunks(2) {
        assert!(pair.len() == 2 && pair[0] % 2 == 0 && pair[1] == pair[0] + 1, "{found:?}");
    }
    assert_eq!(pages(&records, RecordQuery::new(THINGS)).await.len(), found.len() + 1);
}
