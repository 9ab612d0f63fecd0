use proptest::prelude::*;

use super::commit;
use crate::NewCommit;
use crate::wire::{CommitBody, parse_json};

/// The general parser alone.
fn careful(json: &[u8]) -> Option<NewCommit> {
    parse_json::<CommitBody>(json).ok()?.commit("").ok()
}

/// The single-pass parser must agree with the general one.
fn agree(json: &[u8]) -> Result<(), TestCaseError> {
    if let Some(taken) = commit(json) {
        prop_assert_eq!(Some(taken), careful(json), "{}", String::from_utf8_lossy(json));
    }
    Ok(())
}

const WHOLE: &str = r#" {"aggregate" : {"name":"order","id":"o-\"1\u0041"},"expected_version":3,"request_id":"r","command_id":"c",
    "events":[{"type":"placed","data":{"z":1,"a":-2.50e1,"ž":[null,true,false,{"k":"ž\n"},[]],"e":{}},"tags":["x","y"],"public":true,
    "id":"00000000-0000-0000-0000-000000000007","generation":2},{"type":"paid","data":{"n":[0,1,2,3,4,5,6,7,8,9,10,11]}}],
    "tenant_id":"t","owner_id":"o","space_id":"s","correlation_id":"k","causation_id":"u"} "#;

#[test]
fn a_usual_body_is_taken_in_one_pass() {
    let taken = commit(WHOLE.as_bytes()).expect("taken");
    assert_eq!(Some(taken), careful(WHOLE.as_bytes()));
    for version in ["0", "\"any\"", "\"empty\"", "\"exists\"", "999999999999999999"] {
        let json = format!(
            r#"{{"expected_version":{version},"aggregate":{{"id":"1","name":"a"}},"events":[{{"data":{{}},"type":"t"}}]}}"#
        );
        let taken = commit(json.as_bytes()).expect("taken");
        assert_eq!(Some(taken), careful(json.as_bytes()), "{version}");
    }
}

#[test]
fn what_is_not_usual_is_left_to_the_careful_way() {
    let event = |event: &str| format!(r#"{{"aggregate":{{"name":"a","id":"1"}},"events":[{event}]}}"#);
    for data in [
        r#"{"n":01}"#,
        r#"{"n":1.}"#,
        r#"{"n":.5}"#,
        r#"{"n":1e}"#,
        r#"{"n":1e999}"#,
        r#"{"n":+1}"#,
        r#"{"n":9223372036854775808}"#,
        r#"{"n":1234567890123456789}"#,
        r#"{"k":1,"k":2}"#,
        r#"{"k":1,}"#,
        r#"{"k":[1,]}"#,
        r#"{"k" 1}"#,
        r#"{"\u006b":1}"#,
        "{\"k\":\"\n\"}",
        r#"{"k":"\ud800"}"#,
        r#"{"k":"\x"}"#,
        r#"{"k":"unended}"#,
        r#"{"k":nul}"#,
        "[]",
        "null",
    ] {
        let json = event(&format!(r#"{{"type":"t","data":{data}}}"#));
        assert!(commit(json.as_bytes()).is_none(), "{data}");
    }
    assert!(commit(b"").is_none());
    assert!(commit(b"{}").is_none());
    assert!(commit(format!("{WHOLE}x").as_bytes()).is_none());
    assert!(commit(&WHOLE.as_bytes()[..WHOLE.len() - 2]).is_none());
    let mut bytes = WHOLE.as_bytes().to_vec();
    bytes[40] = 0xff;
    assert!(commit(&bytes).is_none());
}

#[test]
fn many_keys_and_deep_data_are_left_to_the_careful_way_and_mean_the_same() {
    let many: Vec<String> = (0..40).map(|n| format!(r#""k{n}":{n}"#)).collect();
    let deep = |levels: usize| format!("{}1{}", r#"{"d":"#.repeat(levels), "}".repeat(levels));
    for data in [format!("{{{}}}", many.join(",")), deep(99), deep(100), deep(101), deep(500)] {
        let json = format!(r#"{{"aggregate":{{"name":"a","id":"1"}},"events":[{{"type":"t","data":{data}}}]}}"#);
        agree(json.as_bytes()).expect("both agree");
    }
}

/// An arbitrary JSON value, as text, with numbers and strings at the limits.
fn value() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        any::<bool>().prop_map(|b| b.to_string()),
        any::<i64>().prop_map(|n| n.to_string()),
        any::<f64>().prop_map(|n| format!("{n:e}")),
        any::<f32>().prop_map(|n| format!("{n:?}")),
        "-?[0-9]{0,20}(\\.[0-9]{0,20})?([eE][+-]?[0-9]{0,3})?",
        ".{0,20}".prop_map(|text| serde_json::to_string(&text).unwrap_or_default()),
        "[ -~]{0,12}".prop_map(|text| format!("\"{text}\"")),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(|all| format!("[{}]", all.join(" , "))),
            proptest::collection::vec(("[a-c]{0,2}", inner), 0..4).prop_map(|all| {
                let members: Vec<String> = all.iter().map(|(key, value)| format!("\"{key}\":{value}")).collect();
                format!("{{{}}}", members.join(","))
            }),
        ]
    })
}

proptest! {
    #[test]
    fn any_data_means_the_same_in_both_ways(values in proptest::collection::vec(value(), 1..4)) {
        let members: Vec<String> = values.iter().enumerate().map(|(n, value)| format!("\"k{n}\":{value}")).collect();
        let json = format!(
            r#"{{"aggregate":{{"name":"a","id":"1"}},"events":[{{"type":"t","data":{{{}}}}}]}}"#,
            members.join(",")
        );
        agree(json.as_bytes())?;
    }

    #[test]
    fn a_body_with_a_change_anywhere_means_the_same_in_both_ways(
        changes in proptest::collection::vec((0..WHOLE.len(), any::<u8>(), 0..3u8), 1..4),
    ) {
        let mut bytes = WHOLE.as_bytes().to_vec();
        for (at, byte, kind) in changes {
            let at = at % bytes.len();
            match kind {
                0 => bytes[at] = byte,
                1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, b"{}[]\",:0 1-\\"[usize::from(byte) % 12]),
            }
        }
        agree(&bytes)?;
    }
}
