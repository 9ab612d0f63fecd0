//! `annals retention`, `annals hold` and the archive below `annals events`: in a store of the command and at a server.

use serde_json::json;

use crate::process::Server;
use crate::run::{folder, run};

#[test]
fn events_are_retained_held_deleted_and_restored_in_a_store_and_at_a_server() {
    let folder = folder();
    for n in 0..3 {
        let aggregate = format!("order/o-{n}");
        run(folder.path(), &["commit", "--aggregate", &aggregate, "--type", "placed", "--data", r#"{"total": 7}"#])
            .ok();
    }
    let listed = run(folder.path(), &["events", "list", "--sort", "sequence_number"]).ok().json();
    let ids: Vec<_> = listed.iter().map(|it| it["event_id"].as_str().expect("an id")).collect();
    let dry = ["retention", "set", "placed", "--ttl-days", "30", "--archive", "collection", "--dry-run"];
    assert_eq!(run(folder.path(), &dry).ok().json()[0]["due"], json!(0));
    run(folder.path(), &dry[..7]).ok();
    let rules = run(folder.path(), &["retention", "list"]).ok().json();
    assert_eq!(
        (&rules[0]["items"][0]["ttl_days"], &rules[0]["items"][0]["archive"]),
        (&json!(30), &json!("collection"))
    );
    run(folder.path(), &["retention", "set", "placed", "--archive", "files"]).refused("invalid_body", 2);
    let hold = ["hold", "set", "case-7", "--aggregate-id", "o-1", "--reason", "a court asked"];
    assert_eq!(run(folder.path(), &hold).ok().json()[0]["in_force"], json!(true));
    let server = Server::start(folder.path());
    let at_server = |arguments: &[&str]| run(folder.path(), &[arguments, &["--server", &*server.url]].concat());
    let delete = |id: &str| at_server(&["events", "delete", id, "--reason", "entered twice"]);
    let dry = at_server(&["events", "delete", ids[0], "--reason", "x", "--dry-run"]).ok().json();
    assert_eq!(dry[0]["event_id"], json!(ids[0]));
    let held = at_server(&["events", "delete", ids[1], "--reason", "x", "--dry-run"]);
    assert!(held.refused("state_conflict", 3).contains("case-7"));
    at_server(&["events", "delete", ids[2], "--reason", "x", "--dry-run"]).ok();
    assert_eq!(at_server(&["events", "list"]).ok().json().len(), 3, "none is deleted");
    delete(ids[0]).ok();
    delete(ids[0]).refused("unknown_event", 4);
    delete(ids[1]).refused("state_conflict", 3);
    let archived = at_server(&["events", "archive", "--type", "placed"]).ok().json();
    assert_eq!((archived.len(), &archived[0]["deletion_reason"]), (1, &json!("entered twice")));
    let table = at_server(&["events", "archive", "--output", "table"]).ok();
    assert!(table.out.contains(ids[0]) && table.out.contains("placed"), "{}", table.out);
    assert!(at_server(&["events", "archive", "--files"]).ok().json().is_empty());
    at_server(&["events", "restore", ids[0], "--reason", "needed"]).ok();
    at_server(&["events", "restore", ids[0], "--reason", "needed"]).refused("state_conflict", 3);
    assert_eq!(at_server(&["hold", "list"]).ok().json().len(), 1);
    assert_eq!(at_server(&["hold", "get", "case-7"]).ok().json()[0]["reason"], json!("a court asked"));
    at_server(&["hold", "remove", "case-7", "--reason", "closed"]).ok();
    at_server(&["hold", "get", "case-7"]).refused("unknown_hold", 4);
    let dry = ["retention", "remove", "placed", "--reason", "as the others", "--dry-run"];
    for _ in 0..2 {
        assert_eq!(at_server(&dry).ok().json()[0]["ttl_days"], json!(30));
    }
    at_server(&dry[..5]).ok();
    at_server(&dry).refused("unknown_retention", 4);
    at_server(&["retention", "remove", "placed", "--reason", "again"]).refused("unknown_retention", 4);
    assert_eq!(server.terminate(), Some(0));
}
