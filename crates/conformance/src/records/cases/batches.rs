//! Several changes at once.

use annals_core::bson::doc;
use annals_core::{Code, Collection, Condition, Expected, Index, RecordChange, RecordError, RecordQuery};

use crate::Subject;
use crate::records::sample::{
    THINGS, delete, document, get, insert, matching, open, pages, put, raw, records_of, refused, replace, stored,
    write, write_one,
};

/// If one change is refused, none happens, in any collection.
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

/// This holds if a unique index refuses several changes, even if the collection of a later one comes first in the alphabet.
pub async fn a_refused_batch_names_the_first_refused_change(subject: &dyn Subject) {
    let (_store, records) = open(subject).await;
    for name in ["users", "accounts"] {
        records.declare(Collection::new(name).index(Index::on("n").unique())).await.expect("it is declared");
        write_one(&records, RecordChange::insert(name, raw(doc! { "_id": 1, "n": 1 }))).await;
    }
    let taken = |name: &str| RecordChange::insert(name, raw(doc! { "_id": 2, "n": 1 }));
    for (first, second) in [("users", "accounts"), ("accounts", "users")] {
        let error = refused(&records, vec![taken(first), taken(second)]).await;
        let RecordError::DuplicateKey { collection, change, .. } = &error else { panic!("{error:?}") };
        assert_eq!((&**collection, *change), (first, 0));
    }
    // A change frees the key that a later one of its collection takes, with one of another collection between them.
    let free = RecordChange::delete_if("users", 1, Expected::Present);
    let other = RecordChange::insert("accounts", raw(doc! { "_id": 2, "n": 2 }));
    write(&records, vec![free, other, taken("users")]).await;
    assert_eq!(records.get("users", &1.into()).await.expect("it is looked up"), None);
    assert!(records.get("users", &2.into()).await.expect("it is looked up").is_some());
    assert!(records.get("accounts", &2.into()).await.expect("it is looked up").is_some());
}

/// A refusal names the change, from 0.
pub async fn a_refused_batch_says_which_change(subject: &dyn Subject) {
    let (_store, records) = open(subject).await;
    let changes = vec![insert(doc! { "_id": 1 }), insert(doc! { "_id": 2 }), delete(3)];
    let error = refused(&records, changes).await;
    assert!(matches!(error, RecordError::NotAsExpected { change: 2, actual: None, .. }), "{error:?}");
    assert!(error.to_string().contains('3'), "{error}");
}

/// A batch without changes is answered without revisions.
pub async fn a_batch_of_nothing_does_nothing(subject: &dyn Subject) {
    let (_store, records) = open(subject).await;
    assert!(write(&records, Vec::new()).await.is_empty());
    assert_eq!(records.last_change(THINGS).await.expect("the newest change"), 0);
}

/// A write whose caller went away happens completely or not at all.
pub async fn a_batch_whose_caller_went_away_is_whole_or_absent(subject: &dyn Subject) {
    let (_store, records) = open(subject).await;
    for n in 0i32..30 {
        let batch = vec![insert(doc! { "_id": 2 * n }), insert(doc! { "_id": 2 * n + 1 })];
        let write = records.write(batch);
        let _ = tokio::time::timeout(std::time::Duration::from_micros(u64::from(n.unsigned_abs()) * 20), write).await;
    }
    // A later write comes after all of them.
    write_one(&records, insert(doc! { "_id": -1 })).await;
    let found = matching(&records, annals_core::Condition::gte("_id", 0)).await;
    for pair in found.chunks(2) {
        assert!(pair.len() == 2 && pair[0] % 2 == 0 && pair[1] == pair[0] + 1, "{found:?}");
    }
    assert_eq!(pages(&records, RecordQuery::new(THINGS)).await.len(), found.len() + 1);
}

/// A batch with a check happens if the checked record is as expected. The record, its revision and the feed stay unchanged.
pub async fn a_check_decides_over_the_batch_and_changes_nothing(subject: &dyn Subject) {
    let (_store, records) = open(subject).await;
    let unique = Index::on("name").unique();
    records.declare(Collection::new("others").index(unique)).await.expect("it is declared");
    write_one(&records, RecordChange::insert("others", raw(doc! { "_id": "nameless" }))).await;
    let revision = write_one(&records, insert(doc! { "_id": 1, "state": "open" })).await;
    let before = get(&records, 1).await;
    let open = || Expected::Matching(Condition::eq("state", "open"));
    let accepted = [
        (1, Expected::Present, revision),
        (1, Expected::Revision(revision), revision),
        (1, open(), revision),
        (1, Expected::AbsentOr(Condition::All), revision),
        (2, Expected::Absent, 0),
        (2, Expected::AbsentOr(Condition::eq("state", "open")), 0),
    ];
    for (n, (id, expected, due)) in accepted.into_iter().enumerate() {
        let note = insert(doc! { "_id": format!("note {n}") });
        let numbers = write(&records, vec![RecordChange::check(THINGS, id, expected.clone()), note]).await;
        assert_eq!(numbers[0], due, "{expected:?}");
        let last = records.last_change(THINGS).await.expect("the newest change");
        assert_eq!(write(&records, vec![RecordChange::check(THINGS, id, expected)]).await, [due]);
        assert_eq!(records.last_change(THINGS).await, Ok(last), "a check is no change");
    }
    let absent = RecordChange::check("others", "nobody", Expected::Absent);
    write(&records, vec![absent, insert(doc! { "_id": "absent" })]).await;
    assert_eq!(records.count("others", &Condition::All).await.expect("they are counted"), 1);
    let refusals = [
        (1, Expected::Absent, Some(revision)),
        (1, Expected::Revision(revision + 1), Some(revision)),
        (1, Expected::Matching(Condition::eq("state", "closed")), Some(revision)),
        (1, Expected::AbsentOr(Condition::eq("state", "closed")), Some(revision)),
        (2, Expected::Present, None),
        (2, Expected::Revision(revision), None),
        (2, open(), None),
    ];
    for (id, expected, due) in refusals {
        let check = RecordChange::check(THINGS, id, expected.clone());
        let error = refused(&records, vec![insert(doc! { "_id": "refused" }), check]).await;
        assert!(
            matches!(error, RecordError::NotAsExpected { change: 1, actual, .. } if actual == due),
            "{expected:?}: {error:?}"
        );
    }
    assert_eq!(get(&records, "refused").await, None);
    assert_eq!(get(&records, 1).await, before);
    let unknown = refused(&records, vec![RecordChange::check("unknown", 1, Expected::Absent)]).await;
    assert_eq!(unknown.code(), Code::UnknownCollection);
}

/// A check in the middle of a batch sees the records as the changes before it leave them.
pub async fn a_check_sees_the_changes_before_it(subject: &dyn Subject) {
    let (_store, records) = open(subject).await;
    let check = |expected| RecordChange::check(THINGS, 1, expected);
    let changes = vec![
        check(Expected::Absent),
        insert(doc! { "_id": 1, "n": 1 }),
        check(Expected::Matching(Condition::eq("n", 1))),
        put(doc! { "_id": 1, "n": 2 }),
        check(Expected::Matching(Condition::eq("n", 2))),
        delete(1),
        check(Expected::Absent),
        insert(doc! { "_id": 2 }),
    ];
    let numbers = write(&records, changes).await;
    assert_eq!((numbers[0], numbers[2], numbers[4], numbers[6]), (0, numbers[1], numbers[3], 0));
    assert_eq!(matching(&records, Condition::All).await, [2]);
    let late = refused(&records, vec![delete(2), check(Expected::Absent), check(Expected::Present)]).await;
    assert!(matches!(late, RecordError::NotAsExpected { change: 2, actual: None, .. }), "{late:?}");
    let replace_absent = replace(doc! { "_id": 2 }, Expected::Absent);
    assert_eq!(refused(&records, vec![replace_absent]).await.code(), Code::RecordConflict);
    write_one(&records, replace(doc! { "_id": 3 }, Expected::Absent)).await;
    let gone = RecordChange::delete_if(THINGS, 4, Expected::Absent);
    write(&records, vec![gone]).await;
    assert_eq!(matching(&records, Condition::All).await, [2, 3]);
}

/// Of two writers that each take their own record on condition that the other's is free, one wins in every race (no write skew).
pub async fn batches_that_check_what_the_other_changes_never_both_happen(subject: &dyn Subject) {
    let store = subject.open().await;
    let other = subject.open_beside(&store).await;
    let records = [records_of(&store), records_of(&other)];
    records[0].declare(Collection::new(THINGS)).await.expect("it is declared");
    for round in 0..20_i32 {
        let ids = [2 * round, 2 * round + 1];
        // In every second round the checked record is absent; in the others it is there.
        let there = round % 2 == 0;
        if there {
            let free = |id| insert(doc! { "_id": id, "taken": false });
            write(&records[0], ids.into_iter().map(free).collect()).await;
        }
        let free = || match there {
            true => Expected::Matching(Condition::eq("taken", false)),
            false => Expected::Absent,
        };
        let takes = [0, 1].map(|own: usize| {
            let changes = vec![
                RecordChange::check(THINGS, ids[1 - own], free()),
                replace(doc! { "_id": ids[own], "taken": true }, Expected::AbsentOr(Condition::eq("taken", false))),
            ];
            let records = records[own].clone();
            tokio::spawn(async move { records.write(changes).await })
        });
        let mut won = 0;
        for take in takes {
            match take.await.expect("the task ends well") {
                Ok(_) => won += 1,
                Err(error) => assert_eq!(error.code(), Code::RecordConflict, "{error}"),
            }
        }
        assert_eq!(won, 1, "round {round}");
        assert_eq!(matching(&records[0], Condition::eq("taken", true)).await.len(), round as usize + 1);
    }
}
