//! `annals group` and `annals dead-letter`, as operators use them when a consumer fails.

use std::path::Path;

use serde_json::{Value, json};

use crate::process::Server;
use crate::run::{Ran, body, folder, lines, run, run_with};

fn commit(folder: &Path, server: &Server, id: &str) {
    run_with(folder, &["commit", "--server", &server.url], &lines([body(id, json!({ "total": 1 }))])).ok();
}

/// Pulls the only delivery of a group.
fn pull(at: &dyn Fn(&[&str]) -> Ran) -> Value {
    let pulled = at(&["group", "pull", "billing", "--wait-ms", "20000"]).ok().json();
    assert_eq!(pulled.len(), 1, "{pulled:?}");
    pulled[0].clone()
}

#[test]
fn a_group_is_defined_pulled_from_settled_and_operated() {
    let folder = folder();
    let server = Server::start(folder.path());
    let at = |arguments: &[&str]| run(folder.path(), &[arguments, &["--server", &server.url]].concat());
    let put = ["group", "put", "billing", "--topic", "order_placed", "--guard", "data.nothing", "--in-flight", "4"];
    let defined = at(&put).ok().json();
    assert_eq!(defined[0]["definition"]["guard"], json!({ "field": "data.nothing" }));
    assert_eq!(defined[0]["in_flight"], 4);
    commit(folder.path(), &server, "o-1");
    let delivery = pull(&at);
    assert_eq!((&delivery["partition"], &delivery["attempt"]), (&json!("order/o-1"), &json!(1)));
    assert_eq!(delivery["event"]["data"]["total"], 1);
    let token = delivery["token"].as_str().expect("a token");
    assert_eq!(at(&["group", "settle", "billing", token]).ok().json()[0]["settled"], true);
    let lost = at(&["group", "settle", "billing", token]);
    assert!(lost.err.contains("lease_lost"), "{}", lost.err);
    assert_eq!(at(&["group", "show", "billing"]).ok().json()[0]["lag"], 0);
    let table = at(&["group", "list", "--output", "table"]).ok().out;
    assert!(table.starts_with("NAME") && table.contains("order_placed 0"), "{table}");
    let paused = at(&["group", "pause", "billing", "--reason", "a move"]).ok().json();
    assert_eq!(paused[0]["state"], "paused");
    at(&["group", "resume", "billing", "--reason", "it has moved"]).ok();
    commit(folder.path(), &server, "o-2");
    let token = pull(&at)["token"].as_str().expect("a token").to_owned();
    at(&["group", "settle", "billing", &token, "--failed", "no address", "--never"]).ok();
    let failing = at(&["group", "failing", "billing"]).ok().json();
    assert_eq!((&failing[0]["partition"], &failing[0]["reason"]), (&json!("order/o-2"), &json!("no address")));
    at(&["group", "skip", "billing", "order/o-2", "--reason", "sent by hand"]).ok();
    at(&["group", "delete", "billing", "--reason", "a test"]).ok();
    assert!(at(&["group", "show", "billing"]).err.contains("unknown_group"));
    assert_eq!(server.terminate(), Some(0));
    let alone = run(folder.path(), &["group", "pull", "billing"]);
    assert!(alone.err.contains("--server URL"), "{}", alone.err);
}

#[test]
fn dead_letters_are_listed_shown_retried_and_discarded_with_policies_of_their_topics() {
    let folder = folder();
    let server = Server::start(folder.path());
    let at = |arguments: &[&str]| run(folder.path(), &[arguments, &["--server", &server.url]].concat());
    let shown = at(&["dead-letter", "policy", "show", "order_placed"]).ok().json();
    assert_eq!((&shown[0]["is_override"], &shown[0]["policy"]["max_retries"]), (&json!(false), &json!(4)));
    let set = ["dead-letter", "policy", "set", "order_placed", "--strategy", "manual", "--reason", "a person looks"];
    assert_eq!(at(&set).ok().json()[0]["policy"]["strategy"], "manual");
    assert!(at(&["dead-letter", "policy", "list", "--output", "table"]).ok().out.contains("(its own)"));
    at(&["group", "put", "billing", "--topic", "order_placed", "--attempts", "1"]).ok();
    for id in ["o-1", "o-2", "o-3"] {
        commit(folder.path(), &server, id);
        let token = pull(&at)["token"].as_str().expect("a token").to_owned();
        at(&["group", "settle", "billing", &token, "--failed", "no address"]).ok();
    }
    let listed = at(&["dead-letter", "list", "--group", "billing", "--status", "pending"]).ok().json();
    assert_eq!(listed.len(), 3, "{listed:?}");
    let ids: Vec<&str> = listed.iter().map(|letter| letter["id"].as_str().expect("an id")).collect();
    let shown = at(&["dead-letter", "show", ids[0]]).ok().json();
    assert_eq!((&shown[0]["error"], &shown[0]["history"][0]["what"]), (&json!("no address"), &json!("received")));
    let none = at(&["dead-letter", "retry", "--reason", "the address is known"]);
    assert!(none.err.contains("--all"), "{}", none.err);
    let dry = at(&["dead-letter", "retry", "--group", "billing", "--dry-run", "--reason", "a look"]).ok().json();
    assert_eq!((&dry[0]["total"], &dry[0]["successful"]), (&json!(3), &json!(0)));
    let retried = at(&["dead-letter", "retry", ids[0], "--reason", "the address is known"]).ok().json();
    assert_eq!(retried[0]["status"], "scheduled");
    let token = pull(&at)["token"].as_str().expect("a token").to_owned();
    at(&["group", "settle", "billing", &token]).ok();
    assert_eq!(at(&["dead-letter", "show", ids[0]]).ok().json()[0]["status"], "retried");
    let over = at(&["dead-letter", "retry", ids[0], "--reason", "again"]);
    assert!(over.err.contains("state_conflict"), "{}", over.err);
    let both = at(&["dead-letter", "discard", ids[0], ids[1], "--reason", "useless"]).ok().json();
    assert_eq!((&both[0]["successful"], &both[0]["failed"]), (&json!(1), &json!(1)));
    let rest = at(&["dead-letter", "discard", "--all", "--reason", "useless"]).ok().json();
    assert_eq!(rest[0]["successful"], 1);
    let counted = at(&["dead-letter", "statistics"]).ok().json();
    assert_eq!(
        (&counted[0]["open"], &counted[0]["topics"][0]["status_breakdown"]["discarded"]),
        (&json!(0), &json!(2))
    );
    let table = at(&["dead-letter", "statistics", "--output", "table"]).ok().out;
    assert!(table.contains("order_placed") && table.contains("open, normal"), "{table}");
    at(&["dead-letter", "policy", "delete", "order_placed", "--reason", "the usual will do"]).ok();
    assert!(at(&["dead-letter", "policy", "list"]).ok().json().is_empty());
}
