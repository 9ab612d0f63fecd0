//! `annals snapshot`.

use serde_json::json;

use crate::run::{folder, run};

#[test]
fn a_snapshot_is_saved_shown_and_deleted() {
    let folder = folder();
    let snapshot = |arguments: &[&str]| run(folder.path(), &[&["snapshot"], arguments].concat());
    let save = |json: &str| snapshot(&["save", "order", "o-1", json]).ok().json();
    assert_eq!(save(r#"{"version": 3, "state": {"status": "paid"}}"#), [json!({"saved": true})]);
    assert_eq!(save(r#"{"version": 2, "state": {"status": "placed"}}"#), [json!({"saved": false})]);
    let shown = snapshot(&["show", "order", "o-1"]).ok().json();
    assert_eq!((&shown[0]["version"], &shown[0]["state"]), (&json!(3), &json!({"status": "paid"})));
    let table = snapshot(&["show", "order", "o-1", "--output", "table"]).ok().out;
    assert_eq!(table, "order/o-1 version 3: {\"status\":\"paid\"}\n");
    snapshot(&["show", "order", "o-2"]).refused("unknown_snapshot", 4);
    snapshot(&["save", "order", "o-1", r#"{"version": 3}"#]).refused("invalid_body", 2);
    assert_eq!(snapshot(&["delete", "order", "o-1", "--version", "2"]).ok().json(), [json!({"deleted": false})]);
    assert_eq!(snapshot(&["delete", "order", "o-1", "--output", "table"]).ok().out, "deleted\n");
    snapshot(&["show", "order", "o-1"]).refused("unknown_snapshot", 4);
}
