//! Changes of one record: insertion, replacement and deletion if it is as expected.

use annals_core::bson::{Bson, RawDocumentBuf, doc, oid::ObjectId};
use annals_core::{Code, Condition, Expected, RecordError, RecordType, TypedRecords, limits};
use serde::{Deserialize, Serialize};

use crate::Subject;
use crate::records::sample::{
    THINGS, delete, get, insert, last, open, put, raw, records_of, refused, replace, stored, write, write_one,
};

/// An inserted record is read back with every type and the order of its fields.
pub async fn an_inserted_record_is_read_back(subject: &dyn Subject) {
    let (_store, records) = open(subject).await;
    let document = doc! {
        "z": 1, "_id": "a", "int64": 5i64, "double": 0.1, "text": "ä\0b", "none": Bson::Null, "yes": true,
        "time": annals_core::bson::DateTime::from_millis(-1), "list": [1, "x", [], {}], "inner": { "b": 1, "a": 2 },
        "decimal": Bson::Decimal128("1.50".parse().expect("a decimal")),
        "bytes": Bson::Binary(annals_core::bson::Binary { subtype: annals_core::bson::spec::BinarySubtype::Uuid, bytes: vec![7; 16] }),
        "object_id": ObjectId::from_bytes([1; 12]), "low": Bson::MinKey, "high": Bson::MaxKey,
        "$odd": { "a.b": 1 },
    };
    let revision = records.insert(THINGS, raw(document.clone())).await.expect("it is inserted");
    let record = get(&records, "a").await.expect("it is there");
    assert_eq!((record.document, record.revision), (raw(document), revision));
    assert_eq!(get(&records, "b").await, None);
}

/// An id can be inserted once; the existing record stays.
pub async fn a_second_insert_of_an_id_is_refused(subject: &dyn Subject) {
    let (_store, records) = open(subject).await;
    write_one(&records, insert(doc! { "_id": 1, "n": 1 })).await;
    let error = refused(&records, vec![insert(doc! { "_id": 1, "n": 2 })]).await;
    assert_eq!(error.code(), Code::DuplicateKey);
    let RecordError::DuplicateKey { index, key, .. } = error else { panic!("{error:?}") };
    assert_eq!((index.as_str(), *key), ("_id_", doc! { "_id": 1 }));
    assert_eq!(stored(&records, 1).await, Some(doc! { "_id": 1, "n": 1 }));
}

/// Ids are the same if they compare as equal, whatever their types.
pub async fn equal_numbers_of_different_types_are_one_id(subject: &dyn Subject) {
    let (_store, records) = open(subject).await;
    write_one(&records, insert(doc! { "_id": 1 })).await;
    for id in [Bson::Int64(1), Bson::Double(1.0), Bson::Decimal128("1.0".parse().expect("a decimal"))] {
        assert!(get(&records, id.clone()).await.is_some());
        assert_eq!(refused(&records, vec![insert(doc! { "_id": id })]).await.code(), Code::DuplicateKey);
    }
    for other in [Bson::from("1"), Bson::Double(1.5), true.into(), Bson::Null, doc! { "a": 1 }.into(), doc! {}.into()] {
        write_one(&records, insert(doc! { "_id": other })).await;
    }
}

/// A replacement that names a revision happens if the record still has it, and gives the record the next one.
pub async fn a_replacement_wants_the_revision_it_names(subject: &dyn Subject) {
    let (_store, records) = open(subject).await;
    let first = write_one(&records, insert(doc! { "_id": 1, "n": 1 })).await;
    let second = write_one(&records, replace(doc! { "_id": 1, "n": 2 }, Expected::Revision(first))).await;
    assert!(second > first);
    let error = refused(&records, vec![replace(doc! { "_id": 1, "n": 3 }, Expected::Revision(first))]).await;
    assert_eq!(error.code(), Code::RecordConflict);
    assert!(matches!(error, RecordError::NotAsExpected { actual: Some(actual), .. } if actual == second), "{error:?}");
    assert_eq!(get(&records, 1).await.expect("it is there").revision, second);
    let error = refused(&records, vec![replace(doc! { "_id": 2 }, Expected::Revision(first))]).await;
    assert!(matches!(error, RecordError::NotAsExpected { actual: None, .. }), "{error:?}");
    assert_eq!(
        refused(&records, vec![replace(doc! { "_id": 2 }, Expected::Present)]).await.code(),
        Code::RecordConflict
    );
    write_one(&records, replace(doc! { "_id": 1, "n": 4 }, Expected::Present)).await;
    assert_eq!(stored(&records, 1).await, Some(doc! { "_id": 1, "n": 4 }));
}

/// Of many writers that replace the same revision, one succeeds in every race, so no update is lost.
pub async fn of_many_replacements_of_a_revision_one_wins(subject: &dyn Subject) {
    let (_store, records) = open(subject).await;
    write_one(&records, insert(doc! { "_id": 1, "n": 0 })).await;
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let records = records.clone();
            tokio::spawn(async move {
                for _ in 0..10 {
                    loop {
                        let record = get(&records, 1).await.expect("it is there");
                        let n = record.document.get_i32("n").expect("it counts");
                        let next = raw(doc! { "_id": 1, "n": n + 1 });
                        match records.replace_if(THINGS, next, Expected::Revision(record.revision)).await {
                            Ok(_) => break,
                            Err(error) => assert_eq!(error.code(), Code::RecordConflict),
                        }
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("the task ends well");
    }
    assert_eq!(stored(&records, 1).await, Some(doc! { "_id": 1, "n": 80 }));
}

/// A condition is evaluated against the record at the moment of the change.
pub async fn a_replacement_wants_what_its_condition_says(subject: &dyn Subject) {
    let (_store, records) = open(subject).await;
    write_one(&records, insert(doc! { "_id": 1, "state": "open", "owner": "a" })).await;
    let open_of = |owner: &str| {
        Expected::Matching(Condition::and([Condition::eq("state", "open"), Condition::eq("owner", owner)]))
    };
    let closed = || doc! { "_id": 1, "state": "closed", "owner": "a" };
    assert_eq!(refused(&records, vec![replace(closed(), open_of("b"))]).await.code(), Code::RecordConflict);
    write_one(&records, replace(closed(), open_of("a"))).await;
    assert_eq!(refused(&records, vec![replace(closed(), open_of("a"))]).await.code(), Code::RecordConflict);
    let absent = Expected::Matching(Condition::All);
    assert_eq!(refused(&records, vec![replace(doc! { "_id": 2 }, absent)]).await.code(), Code::RecordConflict);
}

/// A record that may be absent is inserted; an existing one is replaced if the condition holds.
pub async fn a_put_inserts_or_replaces(subject: &dyn Subject) {
    let (_store, records) = open(subject).await;
    write_one(&records, put(doc! { "_id": 1, "n": 1 })).await;
    write_one(&records, put(doc! { "_id": 1, "n": 2 })).await;
    let expired = |now: i32| Expected::AbsentOr(Condition::lt("n", now));
    assert_eq!(
        refused(&records, vec![replace(doc! { "_id": 1, "n": 9 }, expired(2))]).await.code(),
        Code::RecordConflict
    );
    write_one(&records, replace(doc! { "_id": 1, "n": 9 }, expired(3))).await;
    write_one(&records, replace(doc! { "_id": 2, "n": 1 }, expired(0))).await;
    assert_eq!(stored(&records, 1).await, Some(doc! { "_id": 1, "n": 9 }));
    assert_eq!(stored(&records, 2).await, Some(doc! { "_id": 2, "n": 1 }));
}

/// A deletion happens if the record is as expected. A record that may be absent may already be gone.
pub async fn a_deletion_wants_what_it_expects(subject: &dyn Subject) {
    let (_store, records) = open(subject).await;
    let first = write_one(&records, insert(doc! { "_id": 1, "n": 1 })).await;
    let by = |expected| records.delete_if(THINGS, Bson::Int32(1), expected);
    assert_eq!(by(Expected::Revision(first + 1)).await.expect_err("refused").code(), Code::RecordConflict);
    assert_eq!(by(Expected::Matching(Condition::eq("n", 2))).await.expect_err("refused").code(), Code::RecordConflict);
    assert!(get(&records, 1).await.is_some());
    assert!(by(Expected::Revision(first)).await.expect("it is deleted") > first);
    assert_eq!(get(&records, 1).await, None);
    assert_eq!(by(Expected::Present).await.expect_err("refused").code(), Code::RecordConflict);
    let before = last(&records).await;
    assert_eq!(by(Expected::AbsentOr(Condition::All)).await.expect("nothing is to be done"), 0);
    assert_eq!(last(&records).await, before);
}

/// A record that was deleted and inserted again is another record.
pub async fn a_record_that_is_inserted_again_has_another_revision(subject: &dyn Subject) {
    let (_store, records) = open(subject).await;
    let first = write_one(&records, insert(doc! { "_id": 1 })).await;
    write(&records, vec![delete(1), insert(doc! { "_id": 1 })]).await;
    let error = refused(&records, vec![replace(doc! { "_id": 1, "n": 1 }, Expected::Revision(first))]).await;
    assert_eq!(error.code(), Code::RecordConflict);
}

/// A document that cannot be a record is refused, and the error says why.
pub async fn documents_that_cannot_be_records_are_refused(subject: &dyn Subject) {
    let (_store, records) = open(subject).await;
    let deep = (0..=limits::DATA_DEPTH_MAX).fold(doc! {}, |inner, _| doc! { "d": inner });
    let large = "x".repeat(limits::RECORD_BYTES_MAX);
    let wrong = [
        doc! { "a": 1 },
        doc! { "_id": [1] },
        doc! { "_id": Bson::Undefined },
        doc! { "_id": 1, "deep": deep },
        doc! { "_id": 1, "large": large },
    ];
    for document in wrong {
        let error = refused(&records, vec![put(doc! { "_id": 2 }), put(document)]).await;
        assert_eq!(error.code(), Code::InvalidRecord, "{error}");
        assert!(error.to_string().starts_with("changes[1]."), "{error}");
    }
    let broken = RawDocumentBuf::from_bytes(b"\x0c\0\0\0\x02_id\0\xff\xff\0".to_vec());
    if let Ok(broken) = broken {
        let error = records.insert(THINGS, broken).await.expect_err("it is refused");
        assert_eq!(error.code(), Code::InvalidRecord);
    }
    let id = Bson::Array(vec![]);
    let error = records.delete_if(THINGS, id, Expected::Present).await.expect_err("it is refused");
    assert_eq!(error.code(), Code::InvalidRecord);
    assert_eq!(get(&records, 2).await, None);
    let most = "x".repeat(limits::RECORD_BYTES_MAX - 100);
    write_one(&records, put(doc! { "_id": 3, "large": &most })).await;
    assert_eq!(stored(&records, 3).await, Some(doc! { "_id": 3, "large": most }));
}

/// A collection is declared before it is used.
pub async fn a_collection_that_is_not_declared_is_refused(subject: &dyn Subject) {
    let store = subject.open().await;
    let records = records_of(&store);
    let unknown = |error: RecordError| assert_eq!(error, RecordError::UnknownCollection(THINGS.to_owned()));
    unknown(refused(&records, vec![insert(doc! { "_id": 1 })]).await);
    unknown(records.get(THINGS, &Bson::Int32(1)).await.expect_err("it is refused"));
    unknown(records.find(annals_core::RecordQuery::new(THINGS)).await.expect_err("it is refused"));
    unknown(records.count(THINGS, &Condition::All).await.expect_err("it is refused"));
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Saga {
    #[serde(rename = "_id")]
    id: String,
    current_step: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    waits_until: Option<annals_core::bson::DateTime>,
}

impl RecordType for Saga {
    const COLLECTION: &'static str = "voyages";
}

/// The values of a type are records, with its serde names as stored names.
pub async fn values_of_a_type_are_stored_under_its_names(subject: &dyn Subject) {
    let store = subject.open().await;
    let records = records_of(&store);
    let sagas = TypedRecords::<Saga>::declare(records.clone()).await.expect("it is declared");
    let until = annals_core::bson::DateTime::from_millis(1_000);
    let saga = Saga { id: "s".into(), current_step: 1, waits_until: Some(until) };
    let revision = sagas.insert(&saga).await.expect("it is inserted");
    let raw = records.get("voyages", &"s".into()).await.expect("it is read").expect("it is there");
    assert_eq!(super::super::sample::document(&raw), doc! { "_id": "s", "currentStep": 1i64, "waitsUntil": until });
    let stored = sagas.get("s").await.expect("it is read").expect("it is there");
    assert_eq!((&stored.value, stored.revision), (&saga, revision));
    let next = Saga { current_step: 2, waits_until: None, ..saga };
    sagas.replace_if(&next, Expected::Revision(revision)).await.expect("it is replaced");
    let query = TypedRecords::<Saga>::query().matching(Condition::eq("currentStep", 2));
    let (found, more) = sagas.find(query).await.expect("they are found");
    assert_eq!((found.into_iter().map(|saga| saga.value).collect::<Vec<_>>(), more), (vec![next], None));
    sagas.delete_if("s", Expected::Present).await.expect("it is deleted");
    assert_eq!(sagas.get("s").await.expect("it is read"), None);
}

/// The name of a type's collection may be chosen when it is declared. Two such collections are separate.
pub async fn a_type_has_collections_of_names_that_are_chosen_at_run_time(subject: &dyn Subject) {
    let store = subject.open().await;
    let records = records_of(&store);
    let mut scopes = Vec::new();
    for scope in ["a", "b"] {
        let declared = TypedRecords::<Saga>::declare_as(records.clone(), format!("sagas-of-{scope}")).await;
        scopes.push(declared.expect("it is declared"));
    }
    let saga = |step| Saga { id: "s".into(), current_step: step, waits_until: None };
    let revision = scopes[0].insert(&saga(1)).await.expect("it is inserted");
    assert_eq!((scopes[0].name(), scopes[1].get("s").await), ("sagas-of-a", Ok(None)));
    let batch =
        [scopes[0].replacing(&saga(2), Expected::Revision(revision)), scopes[1].replacing(&saga(3), Expected::Absent)];
    write(&records, batch.map(|change| change.expect("it is a document")).to_vec()).await;
    let mut steps = Vec::new();
    for sagas in &scopes {
        let (found, _) = sagas.find(TypedRecords::<Saga>::query()).await.expect("they are found");
        steps.extend(found.into_iter().map(|saga| saga.value.current_step));
    }
    assert_eq!(steps, [2, 3]);
    scopes[0].delete_if("s", Expected::Present).await.expect("it is deleted");
    assert_eq!((scopes[0].get("s").await, scopes[1].get("s").await.map(|it| it.is_some())), (Ok(None), Ok(true)));
    assert!(records.get("voyages", &"s".into()).await.is_err(), "the type's own name was not declared");
}
