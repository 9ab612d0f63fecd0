//! `annals snapshot`.

use std::path::Path;

use serde_json::json;

use crate::process::Server;
use crate::run::{body, folder, lines, run, run_with};

/// Commits to an aggregate so often.
fn commit_to(folder: &Path, name: &str, id: &str, count: usize) {
    let commit = json!({"aggregate": {"name": name, "id": id}, "events": [{"type": "changed", "data": {}}]});
    assert_eq!(run_with(folder, &["commit"], &lines(vec![commit; count])).ok().json().len(), count);
}

#[test]
fn a_snapshot_is_saved_shown_and_deleted() {
    let folder = folder();
    let snapshot = |arguments: &[&str]| run(folder.path(), &[&["snapshot"], arguments].concat());
    let save = |json: &str| snapshot(&["save", "order", "o-1", json]).ok().json();
    commit_to(folder.path(), "order", "o-1", 3);
    assert_eq!(save(r#"{"version": 3, "state": {"status": "paid"}}"#), [json!({"saved": true})]);
    let ahead = snapshot(&["save", "order", "o-1", r#"{"version": 4, "state": {}}"#]).refused("snapshot_ahead", 3);
    assert!(ahead.contains("its version is 4, the aggregate's is 3"), "{ahead}");
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

/// What a query of this status uses, as `annals record explain` says.
fn index_used(folder: &std::path::Path, more: &[&str]) -> serde_json::Value {
    let explain = ["record", "explain", "order_snapshot", "--condition", "state.status = 'paid'"];
    run(folder, &[&explain[..], more].concat()).ok().json()[0]["index"].clone()
}

#[test]
fn indexes_are_declared_and_queries_say_that_they_use_them() {
    let folder = folder();
    let snapshot = |arguments: &[&str]| run(folder.path(), &[&["snapshot"], arguments].concat());
    let placed = (0..20).map(|n| body(&format!("o-{n}"), json!({})));
    run_with(folder.path(), &["commit"], &lines(placed)).ok();
    for n in 0..20 {
        let status = if n == 7 { "paid" } else { "placed" };
        let json = format!(r#"{{"version": 1, "state": {{"status": "{status}"}}}}"#);
        snapshot(&["save", "order", &format!("o-{n}"), &json]).ok();
    }
    assert_eq!(index_used(folder.path(), &[]), json!(null));
    let index = r#"[{"fields": [{"field": "state.status"}]}]"#;
    let declared = snapshot(&["declare", "order", "--indexes", index]).ok().json();
    assert_eq!(declared[0]["indexes"][0]["name"], json!("state.status_1"));
    assert_eq!(index_used(folder.path(), &[]), json!("state.status_1"));
    let text = r#"[{"fields": [{"field": "state.note"}], "text": true}]"#;
    let declared = snapshot(&["declare", "order", "--indexes", text]).ok().json();
    assert_eq!(declared[0]["indexes"][0]["name"], json!("state.note_text"));
    snapshot(&["declare", "order", "--indexes", "[{}]"]).refused("invalid_body", 2);
    for command in ["snapshot", "record"] {
        let said = run(folder.path(), &[command, "declare", "order", "--indexes", "x"]).refused("not_json", 2);
        assert!(said.contains("--indexes is not a list in JSON") && said.contains("column 1"), "{said}");
    }
    let nowhere = r#"[{"fields": [{"field": "status"}]}]"#;
    let said = snapshot(&["declare", "order", "--indexes", nowhere]).refused("invalid_collection", 2);
    assert!(said.contains("indexes[0]") && said.contains("state.status"), "{said}");
    let unique = r#"[{"fields": [{"field": "state.email"}], "unique": true, "sparse": true}]"#;
    snapshot(&["declare", "customer", "--indexes", unique]).ok();
    let save = |id: &str| snapshot(&["save", "customer", id, r#"{"version": 1, "state": {"email": "e"}}"#]);
    commit_to(folder.path(), "customer", "c-1", 1);
    commit_to(folder.path(), "customer", "c-2", 1);
    save("c-1").ok();
    assert!(save("c-2").refused("duplicate_key", 3).contains("state.email_1"));
    snapshot(&["declare", "an order", "--indexes", "[]"]).refused("invalid_name", 2);
}

#[test]
fn indexes_are_declared_by_the_configuration_of_a_server() {
    let folder = folder();
    let configured = |indexes: &str| {
        let text = format!("[snapshots]\nindexes = {{ order = [{indexes}] }}\n");
        std::fs::write(folder.path().join("annals.toml"), text).expect("written");
    };
    configured("\"state.status,-state.total\", \"hashed state.customer\"");
    let server = Server::start(folder.path());
    let there = ["--server", &server.url];
    let commit = ["commit", "--aggregate", "order/o-1", "--type", "placed"];
    run(folder.path(), &[&commit[..], &there].concat()).ok();
    let save = ["snapshot", "save", "order", "o-1", r#"{"version": 1, "state": {"status": "paid"}}"#];
    run(folder.path(), &[&save[..], &there].concat()).ok();
    assert_eq!(index_used(folder.path(), &there), json!("state.status_1_state.total_-1"));
    assert_eq!(server.terminate(), Some(0));
    // It is there already, and another one of its name is not taken.
    let server = Server::start(folder.path());
    assert_eq!(server.terminate(), Some(0));
    configured("\"unique state.status,-state.total\"");
    let serve = ["serve", "--dev", "--listen", "127.0.0.1:0"];
    let said = run(folder.path(), &serve).refused("index_conflict", 3);
    assert!(said.contains("snapshots.indexes.order"), "{said}");
    configured("\"cheap state.status\"");
    assert!(run(folder.path(), &serve).refused("invalid_config", 2).contains("snapshots.indexes.order[0]"));
}

#[test]
fn a_commit_may_wait_for_its_snapshot() {
    let folder = folder();
    let server = Server::start(folder.path());
    let there = ["--server", &server.url];
    let commit = |aggregate: &str, more: &[&str]| {
        let commit = ["commit", "--aggregate", aggregate, "--type", "placed", "--request-id", "r-1"];
        run(folder.path(), &[&commit[..], more].concat()).ok().json()[0]["reached"].clone()
    };
    for id in ["o-1", "o-2"] {
        commit(&format!("order/{id}"), &there);
        let save = ["snapshot", "save", "order", id, r#"{"version": 1, "state": {}}"#];
        run(folder.path(), &[&save[..], &there].concat()).ok();
    }
    // The repeat of a commit waits as the commit did; its snapshot is there.
    assert_eq!(commit("order/o-1", &["--wait", "snapshot", "--server", &server.url]), json!("snapshot"));
    assert_eq!(server.terminate(), Some(0));
    assert_eq!(commit("order/o-2", &["--wait", "snapshot"]), json!("snapshot"));
}

#[test]
fn a_line_that_cannot_wait_for_its_snapshot_is_refused_with_what_can() {
    let folder = folder();
    let mut line = body("o-1", json!({}));
    line["wait"] = json!({ "for": "snapshot" });
    std::fs::write(folder.path().join("lines"), format!("{line}\n")).expect("written");
    for command in [&["commit", "--file", "lines"][..], &["import", "lines"]] {
        let said = run(folder.path(), command).refused("invalid_wait", 2);
        let ways = ["line 1: ", "wait.for: ", "\"logged\"", "--server", "--wait snapshot"];
        assert!(ways.iter().all(|way| said.contains(way)), "{said}");
    }
    let commits = [body("o-1", json!({})), body("o-2", json!({}))];
    let transaction = json!({ "commits": commits, "wait": { "for": "snapshot" } });
    let said = run_with(folder.path(), &["transact"], &format!("{transaction}\n")).refused("invalid_wait", 2);
    assert!(said.contains("a transaction has several") && said.contains("\"logged\""), "{said}");
    assert_eq!(run(folder.path(), &["log", "read"]).ok().out, "");
}
