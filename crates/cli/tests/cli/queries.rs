//! `annals query`.

use std::path::Path;

use serde_json::{Value, json};

use crate::process::Server;
use crate::run::{Ran, folder, lines, run, run_with};

/// Four orders with commits and snapshots, of which the last is deleted.
fn store_with_orders(folder: &Path) {
    let commits = (1..=4).map(|n| {
        let events = [json!({"type": "placed", "data": {"n": n}, "tags": [format!("t-{n}")]})];
        json!({"aggregate": {"name": "order", "id": format!("o-{n}")}, "events": events})
    });
    assert_eq!(run_with(folder, &["commit"], &lines(commits)).ok().json().len(), 4);
    for n in 1..=4 {
        let status = ["open", "paid"][n % 2];
        let saved = json!({"version": 1, "state": {"status": status, "total": n * 10}, "deleted": n == 4}).to_string();
        run(folder, &["snapshot", "save", "order", &format!("o-{n}"), &saved]).ok();
    }
}

fn query(folder: &Path, arguments: &[&str]) -> Ran {
    run(folder, &[&["query", "order"], arguments].concat())
}

fn ids(ran: &Ran) -> Vec<Value> {
    ran.json().iter().map(|line| line["aggregateId"].clone()).collect()
}

#[test]
fn snapshots_are_asked_by_their_state() {
    let folder = folder();
    let folder = folder.path();
    store_with_orders(folder);
    let paid = "state.status = 'paid'";
    let listed = query(folder, &["snapshots", "list", "--where", paid, "--sort", "-state.total"]).ok();
    assert_eq!(ids(&listed), ["o-3", "o-1"]);
    let json = r#"{"field":"state.total","operator":"LTE","value":20}"#;
    assert_eq!(ids(&query(folder, &["snapshots", "list", "--condition", json, "--limit", "1"]).ok()), ["o-1"]);
    let fields = ["snapshots", "single", "--where", "id 'o-2'", "--fields", "version,state.total"];
    let single = query(folder, &fields).ok().json();
    assert_eq!(single, [json!({"aggregateId": "o-2", "version": 1, "state": {"total": 20}})]);
    let paged =
        query(folder, &["snapshots", "paged", "--page", "2", "--size", "2", "--without", "state,tags"]).ok().json();
    assert_eq!((&paged[0]["total"], &paged[0]["list"][0]["aggregateId"]), (&json!(3), &json!("o-3")));
    assert_eq!(query(folder, &["snapshots", "count", "--where", paid]).ok().json(), [json!({"count": 2})]);
    assert_eq!(query(folder, &["snapshots", "count", "--where", "deleted 'ALL'"]).ok().json(), [json!({"count": 4})]);
    let table = query(folder, &["snapshots", "paged", "--where", paid, "--output", "table"]).ok().out;
    assert!(table.starts_with("AGGREGATE") && table.ends_with("2 of 2\n"), "{table}");
    query(folder, &["snapshots", "single", "--where", "state.status = 'lost'"]).refused("nothing_found", 4);
    assert!(ids(&run(folder, &["query", "door", "snapshots", "list"]).ok()).is_empty());
}

#[test]
fn commits_are_asked_by_what_happened_and_it_is_explained() {
    let folder = folder();
    let folder = folder.path();
    store_with_orders(folder);
    let tagged = query(folder, &["commits", "list", "--where", "body.tags = 't-3'"]).ok().json();
    assert_eq!((&tagged[0]["aggregateId"], &tagged[0]["body"][0]["body"]["n"]), (&json!("o-3"), &json!(3)));
    assert_eq!(query(folder, &["commits", "count", "--where", "body.body.n > 2"]).ok().json(), [json!({"count": 2})]);
    let explained = query(folder, &["commits", "list", "--where", "aggregateId 'o-1'", "--explain"]).ok().json();
    assert_eq!((&explained[0]["index"], &explained[0]["documents_examined"]), (&json!("aggregate"), &json!(1)));
    // A server in development answers the same.
    let server = Server::start(folder);
    let over_http = |arguments: &[&str]| {
        let base = ["query", "order", "commits"];
        run(folder, &[&base[..], arguments, &["--server", &server.url][..]].concat())
    };
    assert_eq!(ids(&over_http(&["list", "--sort", "-aggregateId", "--limit", "2"]).ok()), ["o-4", "o-3"]);
    over_http(&["single", "--where", "aggregateId 'none'"]).refused("nothing_found", 4);
    server.terminate();
}

#[test]
fn what_means_nothing_is_refused() {
    let folder = folder();
    let folder = folder.path();
    store_with_orders(folder);
    for (arguments, code) in [
        (&["snapshots", "count", "--sort", "version"][..], "invalid_query"),
        (&["snapshots", "single", "--limit", "3"], "invalid_query"),
        (&["snapshots", "list", "--page", "3"], "invalid_query"),
        (&["commits", "paged", "--explain"], "invalid_query"),
        (&["commits", "paged", "--page", "0"], "invalid_query"),
        (&["snapshots", "list", "--where", "state.total >"], "invalid_condition"),
        (&["commits", "list", "--where", "annals.any exists"], "invalid_condition"),
        (&["snapshots", "list", "--where", "match 'paid'"], "no_text_index"),
        (&["commits", "list", "--where", "match 'paid'"], "no_text_index"),
    ] {
        query(folder, arguments).refused(code, 2);
    }
    let said = query(folder, &["snapshots", "list", "--where", "deleted = true"]).refused("invalid_condition", 2);
    assert!(said.contains("deleted VALUE") && !said.contains('`'), "{said}");
    let said = query(folder, &["snapshots", "list", "--page", "3"]).refused("invalid_query", 2);
    assert!(said.contains("--page and --size: only valid with paged"), "{said}");
    run(folder, &["query", "no name", "commits", "list"]).refused("invalid_name", 2);
}
