//! `annals key`.

use serde_json::json;

use crate::run::{folder, run};

#[test]
fn a_key_is_taken_changed_moved_shown_and_given_back() {
    let folder = folder();
    let key = |arguments: &[&str]| run(folder.path(), &[&["key"], arguments].concat());
    let changed = |arguments: &[&str]| key(arguments).ok().json()[0]["changed"] == json!(true);
    let unchanged = |arguments: &[&str], code: &str| {
        let ran = key(arguments);
        assert_eq!(ran.json(), [json!({ "changed": false })]);
        ran.refused(code, 3);
    };
    assert!(changed(&["prepare", "user", "eva", "\"u-1\""]));
    unchanged(&["prepare", "user", "eva", "\"u-2\""], "key_taken");
    let shown = json!({"name": "user", "key": "eva", "value": "u-1", "expired": false});
    assert_eq!(key(&["show", "user", "eva"]).ok().json(), [shown]);
    unchanged(&["reprepare", "user", "eva", "7", "--old", "\"u-2\""], "key_not_held");
    assert!(changed(&["reprepare", "user", "eva", "7", "--until", "2001-01-01T00:00:00Z"]));
    let table = key(&["show", "user", "eva", "--output", "table"]).ok().out;
    assert_eq!(table, "user/eva 7 until 2001-01-01T00:00:00.000Z, expired\n");
    unchanged(&["release", "user", "eva"], "key_not_held");
    assert!(changed(&["move", "user", "eva", "7", "eve", "8"]));
    key(&["move", "user", "eva", "7", "otto", "8"]).refused("key_not_held", 3);
    key(&["show", "user", "otto"]).refused("unknown_key", 4);
    key(&["prepare", "user", "eva", "u-1"]).refused("invalid_keys", 2);
    key(&["prepare", "a user", "eva", "1"]).refused("invalid_keys", 2);
    assert_eq!(key(&["release", "user", "eve", "--value", "8", "--output", "table"]).ok().out, "changed\n");
    let again = key(&["release", "user", "eve", "--output", "table"]);
    assert_eq!(again.out, "not changed\n");
    again.refused("key_not_held", 3);
}

#[test]
fn a_key_that_a_commit_holds_cannot_be_taken_by_hand() {
    let folder = folder();
    let commit = r#"{"aggregate": {"name": "account", "id": "a-1"}, "events": [{"type": "named", "data": {}}],
        "reserve": [{"name": "user", "key": "eva", "value": "a-1"}]}"#;
    let file = folder.path().join("commits.jsonl");
    std::fs::write(&file, commit.replace('\n', " ")).expect("written");
    run(folder.path(), &["commit", "--file", "commits.jsonl"]).ok();
    let prepared = run(folder.path(), &["key", "prepare", "user", "eva", "1"]);
    assert_eq!(prepared.json(), [json!({"changed": false})]);
    prepared.refused("key_taken", 3);
    let shown = run(folder.path(), &["key", "show", "user", "eva"]).ok().json();
    assert_eq!(shown[0]["value"], json!("a-1"));
}
