use std::collections::BTreeMap;

use bson::oid::ObjectId;
use bson::raw::cstr;
use bson::{Binary, Bson, Decimal128, Document, RawBson, RawDocumentBuf, Regex, Timestamp, Uuid, doc};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use super::*;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Of<T> {
    it: T,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Kind {
    Plain,
    Newtype(i32),
    Tuple(i32, String),
    Struct { a: Option<bool>, at: DateTime },
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind")]
enum Tagged {
    One { at: DateTime, id: ObjectId },
    Two(Inner),
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Either {
    Number(i64),
    Text(String),
    Times(Vec<DateTime>),
    Inner(Inner),
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Inner {
    n: u8,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Flat {
    #[serde(default)]
    n: i64,
    #[serde(flatten)]
    rest: BTreeMap<String, Bson>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Wrapped(String);

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Unit;

/// Reads by both, and asserts that both read the same value or neither reads one. `bson` also reads structs and maps from arrays, and
/// from values of its own types as if they were extended JSON.
#[track_caller]
fn same<T: DeserializeOwned + PartialEq + std::fmt::Debug>(document: &RawDocument, is_map: bool) -> Option<T> {
    let due = bson::deserialize_from_slice::<T>(document.as_bytes());
    let found = decode::<T>(document);
    match (found, due) {
        (Ok(found), Ok(due)) => {
            assert_eq!(found, due, "{document:?}");
            Some(found)
        }
        (Err(_), Err(_)) => None,
        (Err(_), Ok(_)) if is_map && document.get_document("it").is_err() => None,
        (found, due) => panic!("{document:?} as {}: {found:?}, and {due:?}", std::any::type_name::<T>()),
    }
}

/// Reads a value of each type, and returns how many types it has.
#[track_caller]
fn as_every_type(value: Bson) -> usize {
    let document = RawDocumentBuf::try_from(doc! { "it": value }).expect("a document");
    macro_rules! each {
        ($is_map:literal: $($type:ty),* $(,)?) => { [$(same::<Of<$type>>(&document, $is_map).is_some()),*] };
    }
    let maps = each!(true: Flat, Inner, BTreeMap<String, i32>, Option<Inner>, Document);
    let others = each!(
        false:
        bool, char, String, i8, i16, i32, i64, u8, u16, u32, u64, f32, f64, (), Unit, Wrapped, Kind, Tagged, Either,
        Vec<i32>, Vec<Bson>, (i32, String), Option<i64>, Bson,
        DateTime, ObjectId, Uuid, Binary, Decimal128, Timestamp, Regex, RawBson, RawDocumentBuf,
        serde::de::IgnoredAny, serde_json::Value,
    );
    maps.into_iter().chain(others).filter(|read| *read).count()
}

fn samples() -> Vec<Bson> {
    let at = DateTime::from_millis(1_790_000_000_123);
    let id = ObjectId::from_bytes([7; 12]);
    let bytes = |subtype| Bson::Binary(Binary { subtype, bytes: vec![9; 16] });
    vec![
        Bson::Null,
        Bson::Boolean(true),
        Bson::Int32(-1),
        Bson::Int64(1 << 40),
        Bson::Double(2.5),
        "a".into(),
        "plain".into(),
        "text".into(),
        at.into(),
        id.into(),
        Uuid::from_bytes([3; 16]).into(),
        bytes(BinarySubtype::Generic),
        bytes(BinarySubtype::Uuid),
        bytes(BinarySubtype::UserDefined(0x81)),
        Bson::Decimal128("1.5".parse().expect("a number")),
        Bson::Timestamp(Timestamp { time: 5, increment: 6 }),
        Bson::RegularExpression(Regex { pattern: cstr!("a").into(), options: cstr!("i").into() }),
        Bson::JavaScriptCode("x".to_owned()),
        Bson::Symbol("s".to_owned()),
        Bson::MinKey,
        Bson::MaxKey,
        Bson::Undefined,
        Bson::Array(vec![]),
        Bson::Array(vec![1.into(), 2.into()]),
        Bson::Array(vec![1.into(), "b".into()]),
        Bson::Array(vec![at.into(), at.into()]),
        doc! {}.into(),
        doc! { "n": 3 }.into(),
        doc! { "n": 300 }.into(),
        doc! { "n": 3, "other": at }.into(),
        doc! { "newtype": 4 }.into(),
        doc! { "tuple": [4, "c"] }.into(),
        doc! { "struct": { "a": null, "at": at } }.into(),
        doc! { "struct": { "at": at, "b": 1 } }.into(),
        doc! { "plain": null }.into(),
        doc! { "kind": "One", "at": at, "id": id }.into(),
        doc! { "n": 3, "kind": "Two" }.into(),
        doc! { "n": 1i64, "deep": { "at": [at, { "id": id }], "bytes": bytes(BinarySubtype::Uuid) } }.into(),
    ]
}

#[test]
fn every_value_is_read_as_bson_reads_it() {
    for value in samples() {
        let shown = value.to_string();
        assert!(as_every_type(value) > 0, "{shown} is no value of any type");
    }
}

fn values() -> impl Strategy<Value = Bson> {
    let leaf = prop::sample::select(samples());
    leaf.prop_recursive(4, 32, 4, |inner| {
        let names = prop::sample::select(vec!["n", "it", "kind", "tuple", "newtype", "struct", "at", "id", "x"]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Bson::Array),
            prop::collection::vec((names, inner), 0..4).prop_map(|fields| Bson::Document(
                fields.into_iter().map(|(name, it)| (name.to_owned(), it)).collect()
            )),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn nested_values_are_read_as_bson_reads_them(value in values()) {
        as_every_type(value);
    }
}

#[test]
fn a_damaged_document_is_an_error_and_what_is_wrong_is_said() {
    let mut bytes = RawDocumentBuf::try_from(doc! { "it": "text" }).expect("a document").into_bytes();
    let at = bytes.len() - 4;
    bytes[at] = 0xff;
    let damaged = RawDocument::from_bytes(&bytes).expect("its frame is whole");
    assert!(decode::<Of<String>>(damaged).is_err() && decode::<Of<serde::de::IgnoredAny>>(damaged).is_err());
    let wrong = RawDocumentBuf::try_from(doc! { "it": { "n": "three" } }).expect("a document");
    let why = decode::<Of<Inner>>(&wrong).expect_err("a text is no number").to_string();
    assert!(why.contains("invalid type: string \"three\", expected u8"), "{why}");
    let why = decode::<Of<Inner>>(&RawDocumentBuf::new()).expect_err("a field is missing").to_string();
    assert!(why.contains("missing field `it`"), "{why}");
}
