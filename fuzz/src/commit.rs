//! Bodies of `POST /v1/commits`, judged against `serde_json::Value`.

use annals_core::wire::{CommitBody, parse_commit};
use annals_core::{Code, NewCommit};
use serde_json::Value;

/// `serde_json` reads an object with this key as raw JSON, which is a matter of its own and none of ours.
const RAW_VALUE_KEY: &[u8] = b"$serde_json::private";

/// Takes a body apart and checks what came of it.
pub fn check(bytes: &[u8]) {
    if bytes.windows(RAW_VALUE_KEY.len()).any(|window| window == RAW_VALUE_KEY) {
        return;
    }
    let value = serde_json::from_slice::<Value>(bytes);
    match (parse_commit(bytes), value) {
        (Ok(commit), Ok(value)) => accepted(commit, &value, has_signed_zero(bytes)),
        (Ok(_), Err(error)) => panic!("taken, but it is not JSON: {error}"),
        (Err(refusal), value) => {
            assert!(!refusal.message.is_empty(), "a refusal without a sentence: {refusal:?}");
            assert!((400..500).contains(&refusal.code.status()), "{refusal:?} does not blame the input");
            assert!(value.is_err() || refusal.code != Code::NotJson, "JSON refused as not JSON: {refusal}");
        }
    }
}

fn accepted(commit: NewCommit, value: &Value, has_signed_zero: bool) {
    let events = value["events"].as_array().expect("a commit was read from it");
    assert_eq!(commit.events.len(), events.len());
    for (event, value) in commit.events.iter().zip(events) {
        let data = serde_json::to_string(&event.data).expect("data from JSON can be written as JSON");
        let sent = value["data"].to_string();
        // The integer `-0` is the integer 0 to us, and a double to `serde_json`.
        if data != sent {
            assert_eq!(unsigned_zeros(&data), unsigned_zeros(&sent), "other data than was sent");
            assert!(has_signed_zero, "a zero lost its sign");
        }
        assert_eq!(event.event_type, value["type"].as_str().expect("a type"));
    }
    let _: Result<(), _> = commit.validate();
    let json = serde_json::to_vec(&CommitBody::from(commit.clone())).expect("a body can be written");
    let again = parse_commit(&json);
    assert_eq!(again.as_ref(), Ok(&commit), "written as {}", String::from_utf8_lossy(&json));
}

/// Whether the integer `-0` may stand in the body: `-0` with no more digits, fraction or exponent.
fn has_signed_zero(bytes: &[u8]) -> bool {
    bytes
        .windows(2)
        .enumerate()
        .any(|(at, window)| window == b"-0" && !matches!(bytes.get(at + 2), Some(b'0'..=b'9' | b'.' | b'e' | b'E')))
}

/// The same JSON with every zero as the integer 0.
fn unsigned_zeros(json: &str) -> Value {
    fn walk(value: Value) -> Value {
        match value {
            Value::Number(number) if number.as_f64() == Some(0.0) => 0.into(),
            Value::Array(items) => items.into_iter().map(walk).collect(),
            Value::Object(fields) => fields.into_iter().map(|(name, value)| (name, walk(value))).collect(),
            other => other,
        }
    }
    walk(serde_json::from_str(json).expect("it was written as JSON"))
}
