use proptest::prelude::*;
use serde_json::{Value, json};

use super::Data;
use crate::Code;

fn through(value: &Value) -> Value {
    let data = Data::from_value(value).expect("valid data");
    serde_json::from_str(&serde_json::to_string(&data).expect("writes JSON")).expect("reads JSON")
}

#[test]
fn json_content_survives_the_bson_round_trip() {
    let value = json!({
        "null": null, "yes": true, "no": false, "empty": "", "unicode": "žluťoučký 🐎 \u{0000}",
        "max": i64::MAX, "min": i64::MIN, "big": 1.79e308, "small": 4.94e-324, "whole": 5.0,
        "date": "2026-01-01T00:00:00Z", "nested": {"list": [1, [2, {"x": []}], "three"], "o": {}},
        "$set": {"a.b": 1}, "": "an empty key"
    });
    assert_eq!(through(&value), value);
}

#[test]
fn integers_are_int64_and_numbers_with_a_point_are_doubles() {
    let data = Data::from_json(r#"{"i":1,"d":1.0,"e":1e2}"#).expect("valid");
    let raw = data.as_raw();
    assert!(raw.get_i64("i").is_ok());
    assert!(raw.get_f64("d").is_ok());
    assert!(raw.get_f64("e").is_ok());
    assert_eq!(format!("{data:?}"), r#"{"i":1,"d":1.0,"e":100.0}"#);
}

#[test]
fn an_integer_beyond_int64_is_refused_and_never_rounded() {
    for number in ["9223372036854775808", "-9223372036854775809", "18446744073709551615", "18446744073709551616"] {
        let refused = Data::read_json(&format!(r#"{{"a":[{{"n":{number}}}]}}"#)).expect_err(number);
        assert_eq!(refused.code, Code::InvalidInteger, "{number}");
        assert!(refused.message.contains("a[0].n") && refused.message.contains(number), "{refused}");
        // The same number as a double.
        for written in [format!("{number}.0"), format!("{number}e0"), format!("{number}E+2")] {
            let data = Data::from_json(&format!(r#"{{"n":{written}}}"#)).expect("a double");
            assert!(data.as_raw().get_f64("n").is_ok(), "{written}");
        }
    }
    let digits = "9".repeat(400);
    let refused = Data::read_json(&format!(r#"{{"n":{digits}}}"#)).expect_err("400 digits");
    assert_eq!(refused.code, Code::InvalidInteger);
    assert!(Data::from_value(&json!({ "n": u64::MAX })).is_err());
    let ends = r#"{"n":[9223372036854775807,-9223372036854775808],"s":"99999999999999999999"}"#;
    assert_eq!(format!("{:?}", Data::from_json(ends).expect("int64")), ends);
    assert_eq!(Data::read_json("[1]").expect_err("no object").code, Code::InvalidData);
}

#[test]
fn zero_with_a_sign_stays_an_integer_and_a_double_keeps_its_sign() {
    let data = Data::from_json(r#"{"i":-0,"a":[-0,-0.0,-0e1],"s":"-0 \"-0","-0":-01234}"#);
    assert!(data.is_err(), "-01234 is not JSON");
    let data = Data::from_json(r#"{"i":-0,"a":[-0,-0.0],"s":"-0 \"-0","-0":-0}"#).expect("valid");
    let raw = data.as_raw();
    assert_eq!((raw.get_i64("i").ok(), raw.get_i64("-0").ok()), (Some(0), Some(0)));
    assert_eq!(raw.get_str("s").ok(), Some("-0 \"-0"));
    let array = raw.get_array("a").expect("an array");
    assert_eq!(array.get_i64(0).ok(), Some(0));
    assert!(array.get_f64(1).expect("a double").is_sign_negative());
}

#[test]
fn key_order_is_kept() {
    let json = r#"{"z":1,"a":{"y":2,"b":3},"m":[]}"#;
    assert_eq!(format!("{:?}", Data::from_json(json).expect("valid")), json);
}

#[test]
fn extended_json_stays_literal() {
    let json = r#"{"at":{"$date":"2026-01-01T00:00:00Z"}}"#;
    let data = Data::from_json(json).expect("valid");
    assert!(data.as_raw().get_document("at").is_ok());
    assert_eq!(format!("{data:?}"), json);
}

#[test]
fn bson_types_without_a_json_form_are_relaxed_extended_json() {
    let document = bson::doc! {
        "at": bson::DateTime::from_millis(1_772_366_400_000), "i": 7i32, "nan": f64::NAN,
        "id": bson::oid::ObjectId::from_bytes([1; 12]),
    };
    let data = Data::from_document(&document).expect("valid");
    let json: Value = serde_json::to_value(&data).expect("writes JSON");
    assert_eq!(
        json,
        json!({"at": {"$date": "2026-03-01T12:00:00Z"}, "i": 7, "nan": {"$numberDouble": "NaN"},
               "id": {"$oid": "010101010101010101010101"}})
    );
}

#[test]
fn what_cannot_be_data_is_refused() {
    for bad in ["[]", "1", "null", "\"x\"", "", "{", r#"{"a":1,"a":2}"#, r#"{"a":{"b":1,"b":1}}"#, r#"{"a\u0000":1}"#] {
        assert!(Data::from_json(bad).is_err(), "{bad}");
    }
    assert!(Data::from_json(r#"{"n":18446744073709551615}"#).is_err());
    let nested = |depth: usize| Data::from_json(&format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth)));
    assert!(nested(100).is_ok());
    assert!(nested(101).is_err());
    let many: String = (0..40).map(|n| format!("\"k{n}\":1,")).collect();
    assert!(Data::from_json(&format!("{{{many}\"k39\":2}}")).is_err());
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_filter("finite", |f| f.is_finite()).prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
            prop::collection::btree_map("[^\u{0}]{0,6}", inner, 0..8)
                .prop_map(|map| Value::from(map.into_iter().collect::<serde_json::Map<_, _>>())),
        ]
    })
}

proptest! {
    #[test]
    fn any_json_object_survives_and_is_valid_bson(value in any_json()) {
        let object = json!({ "v": value });
        prop_assert_eq!(through(&object), object.clone());
        let data = Data::from_value(&object).expect("valid");
        prop_assert!(bson::Document::try_from(data.as_raw()).is_ok());
    }

    #[test]
    fn stored_bytes_that_are_no_document_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        if let Ok(data) = Data::from_stored(bytes.into()) {
            let _ = format!("{data:?}");
        }
    }
}
