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
        (Ok(commit), Ok(value)) => accepted(commit, &value),
        (Ok(_), Err(error)) => panic!("taken, but it is not JSON: {error}"),
        (Err(refusal), value) => {
            assert!(!refusal.message.is_empty(), "a refusal without a sentence: {refusal:?}");
            assert!((400..500).contains(&refusal.code.status()), "{refusal:?} does not blame the input");
            assert!(value.is_err() || refusal.code != Code::NotJson, "JSON refused as not JSON: {refusal}");
        }
    }
}

fn accepted(commit: NewCommit, value: &Value) {
    let events = value["events"].as_array().expect("a commit was read from it");
    assert_eq!(commit.events.len(), events.len());
    for (event, value) in commit.events.iter().zip(events) {
        let data = serde_json::to_string(&event.data).expect("data from JSON can be written as JSON");
        assert_eq!(data, value["data"].to_string(), "other data than was sent");
        assert_eq!(event.event_type, value["type"].as_str().expect("a type"));
    }
    let _: Result<(), _> = commit.validate();
    let json = serde_json::to_vec(&CommitBody::from(commit.clone())).expect("a body can be written");
    let again = parse_commit(&json);
    assert_eq!(again.as_ref(), Ok(&commit), "written as {}", String::from_utf8_lossy(&json));
}
