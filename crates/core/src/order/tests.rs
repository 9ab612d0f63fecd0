//! What was found by comparing with MongoDB 6.0 stays here as named cases.

use std::cmp::Ordering;

use bson::{Bson, RawBson, RawDocumentBuf, doc, rawdoc};

use super::{Direction, Fields, ParallelArrays, compare, document_keys, encoded};

fn order(a: impl Into<Bson>, b: impl Into<Bson>) -> Ordering {
    let [a, b] = [a.into(), b.into()].map(|value| RawBson::try_from(value).expect("it is a value"));
    let order = compare(a.as_raw_bson_ref(), b.as_raw_bson_ref());
    assert_eq!(compare(b.as_raw_bson_ref(), a.as_raw_bson_ref()), order.reverse());
    let inverted = [a, b].map(|value| {
        let mut encoding = encoded(value.as_raw_bson_ref());
        super::invert(&mut encoding);
        encoding
    });
    assert_eq!(inverted[0].cmp(&inverted[1]), order.reverse(), "inverted encodings order the other way");
    order
}

fn decimal(text: &str) -> Bson {
    Bson::Decimal128(text.parse().expect("it is a decimal"))
}

#[track_caller]
fn ascending(values: Vec<Bson>) {
    for (n, pair) in values.windows(2).enumerate() {
        assert_eq!(order(pair[0].clone(), pair[1].clone()), Ordering::Less, "{n}: {pair:?}");
    }
}

#[test]
fn types_have_mongodbs_order() {
    ascending(vec![
        Bson::MinKey,
        Bson::Undefined,
        Bson::Null,
        Bson::Double(f64::NAN),
        Bson::Int32(7),
        "a".into(),
        doc! {}.into(),
        Bson::Array(Vec::new()),
        Bson::Binary(bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: vec![] }),
        bson::oid::ObjectId::from_bytes([0; 12]).into(),
        false.into(),
        true.into(),
        bson::DateTime::from_millis(-1).into(),
        bson::DateTime::from_millis(0).into(),
        bson::Timestamp { time: 0, increment: 1 }.into(),
        bson::Timestamp { time: 1, increment: 0 }.into(),
        Bson::MaxKey,
    ]);
}

#[test]
fn numbers_of_all_types_compare_by_their_exact_value() {
    ascending(vec![
        decimal("NaN"),
        Bson::Double(f64::NEG_INFINITY),
        decimal("-1E+6000"),
        Bson::Double(-1e300),
        i64::MIN.into(),
        Bson::Int64(-9_007_199_254_740_993),
        Bson::Double(-9_007_199_254_740_992.0),
        Bson::Int32(-1),
        Bson::Double(-0.1),
        decimal("-0.1"),
        decimal("-1E-6000"),
        Bson::Double(0.0),
        decimal("1E-6000"),
        Bson::Double(5e-324),
        decimal("0.1"),
        Bson::Double(0.1),
        decimal("0.3"),
        Bson::Double(0.300_000_000_000_000_04),
        Bson::Int32(1),
        decimal("1.000000000000000000000000000000001"),
        Bson::Double(9_007_199_254_740_992.0),
        Bson::Int64(9_007_199_254_740_993),
        i64::MAX.into(),
        Bson::Double(9.223_372_036_854_776e18),
        decimal("9223372036854775809"),
        decimal("1E+6000"),
        Bson::Double(f64::INFINITY),
    ]);
    let same = [
        (Bson::Int32(0), Bson::Double(-0.0)),
        (decimal("-0E+3"), Bson::Int64(0)),
        (decimal("0.50"), Bson::Double(0.5)),
        (decimal("9007199254740993"), Bson::Int64(9_007_199_254_740_993)),
        (decimal("NaN"), Bson::Double(f64::NAN)),
        (decimal("-Infinity"), Bson::Double(f64::NEG_INFINITY)),
        (decimal("9223372036854775808"), Bson::Double(9.223_372_036_854_776e18)),
    ];
    for (a, b) in same {
        assert_eq!(order(a.clone(), b.clone()), Ordering::Equal, "{a} {b}");
    }
}

#[test]
fn texts_compare_by_their_bytes_and_may_hold_zeros() {
    ascending(["", "Z", "a", "a\0", "a\0b", "ab", "b", "ä"].map(Bson::from).to_vec());
}

#[test]
fn documents_compare_by_type_then_name_then_value_of_each_field() {
    ascending(vec![
        doc! {}.into(),
        doc! { "b": Bson::Null }.into(),
        // The type of the first field decides before its name.
        doc! { "b": 1 }.into(),
        doc! { "b": 1, "a": 1 }.into(),
        doc! { "c": 0 }.into(),
        doc! { "a": "x" }.into(),
        doc! { "a": Bson::MaxKey, "b": Bson::Null }.into(),
    ]);
    ascending(vec![
        Bson::Array(vec![]),
        Bson::Array(vec![Bson::Int32(1)]),
        Bson::Array(vec![Bson::Int32(1), Bson::Null]),
        Bson::Array(vec![Bson::Int32(2)]),
    ]);
}

#[test]
fn bytes_compare_by_length_then_kind_then_content() {
    let binary =
        |subtype: u8, bytes: &[u8]| Bson::Binary(bson::Binary { subtype: subtype.into(), bytes: bytes.to_vec() });
    ascending(vec![binary(0, &[9]), binary(0x80, &[1]), binary(0, &[0, 0]), binary(0, &[0, 1]), binary(0x80, &[0, 0])]);
}

fn keys(document: &RawDocumentBuf, paths: &[(&str, Direction)]) -> usize {
    document_keys(document, paths).expect("it has keys").0.len()
}

const UP: Direction = Direction::Ascending;
const DOWN: Direction = Direction::Descending;

#[test]
fn an_array_gives_a_key_for_each_different_element() {
    let document = rawdoc! { "a": [1, 2, 2i64, 3.0], "b": [], "c": [{ "x": 1, "y": 2 }, { "x": 3 }, 5], "d": 1 };
    assert_eq!(keys(&document, &[("a", UP)]), 3);
    assert_eq!(keys(&document, &[("b", UP)]), 1);
    assert_eq!(keys(&document, &[("c.x", UP), ("c.y", DOWN), ("d", UP)]), 3);
    assert_eq!(keys(&document, &[("d", DOWN), ("a", UP)]), 3);
    assert_eq!(document_keys(&document, &[("a", UP), ("c.x", UP)]), Err(ParallelArrays));
}

#[test]
fn fields_that_were_read_once_have_the_keys_of_their_document() {
    let document = rawdoc! { "a": [1, 2], "c": [{ "x": 1, "y": 2 }, 5], "d": { "e": 3, "f": [] }, "g": 4 };
    let fields = Fields::of(&document);
    for path in ["a", "c", "c.x", "c.x.z", "d", "d.e", "d.e.z", "d.f", "g", "g.z", "h", "h.z"] {
        let paths = [("g", DOWN), (path, UP)];
        assert_eq!(fields.keys(&paths), document_keys(&document, &paths), "{path}");
    }
    assert_eq!(fields.keys(&[("a", UP), ("c.x", UP)]), Err(ParallelArrays));
}

#[test]
fn a_path_leads_to_the_same_where_what_it_leads_to_is_the_same() {
    let one = rawdoc! { "a": { "x": 1, "y": 1 }, "b": [1, 2], "c": "t", "n": 1 };
    let other = rawdoc! { "n": 1i64, "c": "t", "b": [1, 3], "a": { "y": 2, "x": 1 } };
    let (one, other) = (Fields::of(&one), Fields::of(&other));
    for same in ["a.x", "c", "c.x", "d", "a.z"] {
        assert!(one.has_same(&other, same), "{same}");
    }
    for different in ["a", "a.y", "b", "b.x", "n"] {
        assert!(!one.has_same(&other, different), "{different}");
    }
}

#[test]
fn keys_of_missing_fields_are_null_and_counted() {
    let document = rawdoc! { "a": 1 };
    let (keys, missing) = document_keys(&document, &[("b", UP), ("a.x", UP), ("a", UP)]).expect("it has keys");
    assert_eq!((keys.len(), missing), (1, 2));
    let of_null = document_keys(&rawdoc! { "b": null }, &[("b", UP)]).expect("it has keys");
    let of_missing = document_keys(&rawdoc! {}, &[("b", UP)]).expect("it has keys");
    assert_eq!((of_null.0, of_null.1, of_missing.1), (of_missing.0, 0, 1));
}

#[test]
fn descending_keys_order_the_other_way() {
    let key = |n: i32, text: &str| {
        let document = rawdoc! { "n": n, "t": text };
        document_keys(&document, &[("n", DOWN), ("t", UP)]).expect("it has keys").0.remove(0)
    };
    assert!(key(2, "a") < key(1, "a") && key(1, "a") < key(1, "b") && key(1, "b") < key(-1, ""));
}
