//! `annals events` and `annals replay`: in a store of the command and at a server.

use std::process::Stdio;

use serde_json::json;

use crate::process::{Server, annals};
use crate::run::{folder, run};

#[test]
fn events_are_browsed_exported_and_replayed_in_a_store_and_at_a_server() {
    let folder = folder();
    for n in 0..4 {
        let data = format!(r#"{{"n": {n}}}"#);
        let event_type = if n == 3 { "paid" } else { "placed" };
        run(folder.path(), &["commit", "--aggregate", "order/o-1", "--type", event_type, "--data", &data]).ok();
    }
    let listed = run(folder.path(), &["events", "list", "--type", "placed", "--sort", "sequence_number"]).ok().json();
    assert_eq!(listed.iter().map(|it| it["n"].clone()).collect::<Vec<_>>(), [0, 1, 2]);
    let dry = ["replay", "create", "--type", "placed", "--to", "file:events.jsonl", "--dry-run"];
    assert_eq!(run(folder.path(), &dry).ok().json()[0]["count"], json!(3));
    assert!(run(folder.path(), &["replay", "list"]).ok().json().is_empty());
    // In a store of the command the replay is over when the command is.
    let to_file = ["replay", "create", "--type", "placed", "--to", "file:events.jsonl", "--start"];
    run(folder.path(), &to_file).refused("invalid_replay", 2);
    let mut command = annals(folder.path());
    command.args(to_file).env("ANNALS__SERVER__EXPORTS", "out").stdout(Stdio::piped()).stderr(Stdio::piped());
    let ran = command.output().expect("it runs");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    assert!(String::from_utf8_lossy(&ran.stdout).contains("\"status\":\"completed\""));
    let lines = std::fs::read_to_string(folder.path().join("out/default/events.jsonl")).expect("a file");
    assert_eq!(lines.lines().count(), 3);
    let server = Server::start(folder.path());
    let at_server = |arguments: &[&str]| run(folder.path(), &[arguments, &["--server", &*server.url]].concat());
    let id = listed[0]["event_id"].as_str().expect("an id");
    let detail = at_server(&["events", "get", id]).ok().json();
    assert_eq!((&detail[0]["event"]["n"], detail[0]["related"].as_array().map(Vec::len)), (&json!(0), Some(3)));
    let csv = at_server(&["events", "export", "--format", "csv", "--limit", "2"]).ok();
    assert_eq!((csv.out.lines().count(), csv.out.contains("paid")), (3, true));
    let rows = at_server(&["events", "export", "--exclude-type", "paid"]).ok().json();
    assert_eq!((rows.len(), rows[0]["timestamp"].is_string()), (3, true));
    assert_eq!(at_server(&["events", "statistics"]).ok().json()[0]["total_events"], json!(4));
    for (change, leave) in [(["--state", "off"], 4), (["--off-types", "placed,ping"], 3), (["--state", "on"], 0)] {
        let dry = [&["events", "set-view", "--reason", "a test", "--dry-run"][..], &change].concat();
        assert_eq!(at_server(&dry).ok().json()[0], json!({ "would_leave": leave }), "{change:?}");
    }
    assert_eq!(at_server(&["events", "list"]).ok().json().len(), 4, "none has left");
    let set = ["events", "set-view", "--state", "on", "--retention-days", "forever", "--reason", "a test"];
    assert_eq!(at_server(&set).ok().json()[0]["retention_days"], json!(null));
    let set = ["events", "set-view", "--off-types", "ping,pong", "--reason", "a test"];
    assert_eq!(at_server(&set).ok().json()[0]["off_types"], json!(["ping", "pong"]));
    let set = ["events", "set-view", "--off-types", "", "--reason", "a test"];
    assert_eq!(at_server(&set).ok().json()[0].get("off_types"), None);
    let table = at_server(&["events", "list", "--output", "table"]).ok();
    assert!(table.out.contains("AGGREGATE") && table.out.contains("o-1"), "{}", table.out);
    let created = at_server(&["replay", "create", "--type", "placed", "--to", "test"]).ok().json();
    let replay = created[0]["session_id"].as_str().expect("an id");
    assert_eq!(at_server(&["replay", "start", replay, "--wait"]).ok().json()[0]["replayed"], json!(3));
    at_server(&["replay", "pause", replay, "--reason", "a test"]).refused("state_conflict", 3);
    at_server(&["replay", "get", "nothing"]).refused("unknown_replay", 4);
    assert_eq!(at_server(&["replay", "list"]).ok().json().len(), 2);
    assert_eq!(at_server(&["replay", "remove"]).ok().json(), [json!({"removed": 0})]);
    assert!(at_server(&["replay", "remove", "--dry-run"]).ok().json().is_empty(), "both ended a moment ago");
    let created =
        at_server(&["replay", "create", "--type", "placed", "--to", "test", "--current-timestamps"]).ok().json();
    assert_eq!(created[0]["config"]["preserve_timestamps"], json!(false));
    let dry = ["replay", "remove", "--older-than-hours", "0", "--dry-run"];
    for _ in 0..2 {
        assert_eq!(at_server(&dry).ok().json().len(), 2, "those that are over");
    }
    assert_eq!(server.terminate(), Some(0));
    assert_eq!(run(folder.path(), &dry[..4]).ok().json(), [json!({"removed": 2})]);
}

#[test]
fn a_replay_that_is_waited_for_and_fails_is_a_failure_of_the_command() {
    let folder = folder();
    let server = Server::start(folder.path());
    let at = |arguments: &[&str]| run(folder.path(), &[arguments, &["--server", &*server.url]].concat());
    at(&["commit", "--aggregate", "order/o-1", "--type", "placed", "--data", "{}", "--wait", "logged"]).ok();
    at(&["handler", "put", "billing", "--type", "placed"]).ok();
    let created = at(&["replay", "create", "--type", "placed", "--to", "handler:billing"]).ok().json();
    let replay = created[0]["session_id"].as_str().expect("an id");
    at(&["replay", "start", replay]).ok();
    at(&["replay", "pause", replay, "--reason", "a test"]).ok();
    at(&["handler", "delete", "billing", "--reason", "a test"]).ok();
    // There is nobody to send to.
    let failed = at(&["replay", "resume", replay, "--wait"]);
    assert_eq!(failed.json()[0]["status"], json!("failed"), "its state is printed all the same");
    failed.refused("state_conflict", 3);
}
