//! `annals projection`: at a server and in a store of the command.

use serde_json::json;

use crate::process::Server;
use crate::run::{folder, run};

const ORDERS: &str =
    r#"{"on": {"placed": {"set": {"customer": "$data.customer"}, "increment": {"total": "$data.total"}}}}"#;

#[test]
fn a_projection_is_defined_in_a_store_and_run_by_its_server() {
    let folder = folder();
    std::fs::write(folder.path().join("orders.json"), ORDERS).expect("written");
    let put = ["projection", "put", "orders", "--file", "orders.json"];
    assert_eq!(run(folder.path(), &put).ok().json()[0]["build"], json!(1));
    let commit = |id: &str, total: u64, more: &[&str]| {
        let data = format!(r#"{{"customer": "c-1", "total": {total}}}"#);
        let commit = ["commit", "--aggregate", id, "--type", "placed", "--data", &data, "--wait", "projected:orders"];
        run(folder.path(), &[&commit[..], more].concat()).ok().json()[0]["reached"].clone()
    };
    // In a store of the command it is folded by the command.
    assert_eq!(commit("order/o-1", 5, &[]), json!("projected:orders"));
    let server = Server::start(folder.path());
    let there = ["--server", &*server.url];
    let at_server = |arguments: &[&str]| run(folder.path(), &[arguments, &there].concat());
    assert_eq!(commit("order/o-2", 9, &there), json!("projected:orders"));
    let records = at_server(&["projection", "records", "orders", "--sort=-total"]).ok().json();
    assert_eq!(
        records,
        [json!({"_id": "o-2", "customer": "c-1", "total": 9}), json!({"_id": "o-1", "customer": "c-1", "total": 5})]
    );
    let large = at_server(&["projection", "records", "orders", "--condition", "total > 6"]).ok().json();
    assert_eq!(large.len(), 1);
    assert_eq!(at_server(&put).ok().json()[0]["build"], json!(1));
    let paused = at_server(&["projection", "pause", "orders", "--reason", "a test"]).ok().json();
    assert_eq!(paused[0]["state"], json!("paused"));
    at_server(&["projection", "pause", "orders", "--reason", "a test"]).refused("state_conflict", 3);
    at_server(&["projection", "resume", "orders", "--reason", "a test"]).ok();
    at_server(&["projection", "rebuild", "orders", "--reason", "a test"]).ok();
    let table = at_server(&["projection", "list", "--output", "table"]).ok();
    assert!(table.out.contains("orders") && table.out.contains("POSITION"), "{}", table.out);
    assert_eq!(at_server(&["projection", "acts", "orders"]).ok().json().len(), 3);
    at_server(&["projection", "show", "other"]).refused("unknown_projection", 4);
    std::fs::write(folder.path().join("wrong.json"), r#"{"on": {"placed": {"add": {}}}}"#).expect("written");
    let wrong = at_server(&["projection", "put", "orders", "--file", "wrong.json"]).refused("invalid_projection", 2);
    assert!(wrong.contains("on.placed.add"), "{wrong}");
    assert_eq!(
        at_server(&["projection", "delete", "orders", "--reason", "a test"]).ok().json(),
        [json!({"deleted": true})]
    );
    assert!(at_server(&["projection", "list"]).ok().json().is_empty());
    assert_eq!(server.terminate(), Some(0));
}
