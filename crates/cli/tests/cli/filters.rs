//! `annals filter`.

use serde_json::{Value, json};

use crate::process::Server;
use crate::run::{body, folder, lines, run, run_with};

/// In the store itself and at a server, the same definition gives the same stream.
#[test]
fn a_filter_is_defined_listed_refused_and_deleted() {
    let folder = folder();
    run_with(folder.path(), &["commit"], &lines((0..3).map(|n| body("o-1", json!({ "n": n }))))).ok();
    let put = &["filter", "put", "orders", "--type", "order_placed", "--type", "absent", "--partition-by", "aggregate"];
    let shown = run(folder.path(), put).ok().json();
    assert_eq!(shown[0]["definition"], json!({"types": ["absent", "order_placed"], "partition_by": "aggregate"}));
    let server = Server::start(folder.path());
    let at = |arguments: &[&str]| run(folder.path(), &[arguments, &["--server", &server.url]].concat());
    let filled = || at(&["stream", "read", "orders"]).ok().json();
    assert!((0..1_000).any(|_| filled().len() == 3), "the stream is filled");
    assert!(filled().iter().all(|entry| entry["partition"] == "order/o-1"), "{:?}", filled());
    let table = at(&["filter", "list", "--output", "table"]).ok().out;
    assert!(table.starts_with("STREAM") && table.contains("running"), "{table}");
    let status = at(&["filter", "show", "orders"]).ok().json();
    assert_eq!((&status[0]["entries"], &status[0]["lag"]), (&json!(3), &Value::from(0)));
    let refused = at(&["filter", "register", "orders", "--type", "absent", "--partition-by", "aggregate"]);
    refused.refused("filter_changed", 3);
    at(&["filter", "put", "orders", "--condition", "{"]).refused("not_json", 2);
    let deleted = at(&["filter", "delete", "orders", "--reason", "a test"]).ok().json();
    assert_eq!(deleted, [json!({"deleted": true})]);
    at(&["filter", "show", "orders"]).refused("unknown_filter", 4);
    let acts = at(&["filter", "acts", "orders"]).ok().json();
    assert_eq!((&acts[0]["act"], &acts[0]["reason"]), (&json!("delete"), &json!("a test")));
    at(&["filter", "acts", "never-there"]).refused("unknown_filter", 4);
    drop(server);
    assert_eq!(run(folder.path(), &["filter", "list"]).ok().json(), Vec::<Value>::new());
}
