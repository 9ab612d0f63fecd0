//! `annals queue`, as workers and operators use it.

use serde_json::json;

use crate::process::Server;
use crate::run::{Ran, folder, run};

/// Enqueues an item, takes it and gives the token of the hand-out.
fn taken(at: &dyn Fn(&[&str]) -> Ran) -> String {
    at(&["queue", "put", "renders", "--cap", "1"]).ok();
    at(&["queue", "enqueue", "renders", "r-1"]).ok();
    let taken = at(&["queue", "take", "renders", "--lease-ms", "600000", "--worker", "w-1"]).ok().json();
    taken[0]["items"][0]["token"].as_str().expect("a token").to_owned()
}

#[test]
fn an_operator_releases_an_item_whichever_worker_has_it() {
    let folder = folder();
    let server = Server::start(folder.path());
    let at = |arguments: &[&str]| run(folder.path(), &[arguments, &["--server", &server.url]].concat());
    let token = taken(&at);
    let release = ["queue", "release", "renders", "r-1", "--reason", "its worker hangs", "--by", "ada"];
    let released = at(&release).ok().json();
    assert_eq!(released, [json!({ "id": "r-1", "accepted": true, "changed": true })]);
    let items = at(&["queue", "items", "renders"]).ok().json();
    assert_eq!((&items[0]["state"], &items[0]["attempt"]), (&json!("pending"), &json!(1)));
    assert_eq!(at(&release).ok().json()[0]["changed"], false, "it is pending already");
    let again = at(&["queue", "take", "renders"]).ok().json();
    assert_eq!(again[0]["items"][0]["attempt"], 2);
    let late = at(&["queue", "release", "renders", "r-1", "--token", &token]);
    assert!(late.err.contains("is lost"), "{}", late.err);

    let of = |id| at(&["queue", "release", "renders", id, "--reason", "a typo"]);
    of("r-7").refused("unknown_item", 4);
    assert_eq!(at(&["queue", "release", "renders", "r-7"]).ok().json()[0]["changed"], false, "without effect");
    at(&["queue", "release", "nothing", "r-1", "--reason", "a typo"]).refused("unknown_queue", 4);
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn an_item_is_released_by_its_worker_or_an_operator_in_a_store_that_the_command_opens() {
    let folder = folder();
    let at = |arguments: &[&str]| run(folder.path(), arguments);
    let token = taken(&at);
    let as_both = at(&["queue", "release", "renders", "r-1", "--token", &token, "--reason", "its worker hangs"]);
    assert!(as_both.err.contains("cannot be used with"), "{}", as_both.err);
    assert_eq!(at(&["queue", "release", "renders", "r-1", "--token", &token]).ok().json()[0]["changed"], true);
    at(&["queue", "take", "renders"]).ok();
    let released = at(&["queue", "release", "renders", "r-1", "--reason", "its worker hangs"]).ok().json();
    assert_eq!(released[0]["changed"], true);
    at(&["queue", "release", "renders", "r-7", "--reason", "a typo"]).refused("unknown_item", 4);
}

/// Raises an item, counts what the queue holds, and deletes it.
fn operate(at: &dyn Fn(&[&str]) -> Ran) {
    at(&["queue", "put", "renders"]).ok();
    for id in ["r-1", "r-2"] {
        at(&["queue", "enqueue", "renders", id]).ok();
    }
    let prioritise = |id: &str, priority: &str| {
        at(&["queue", "prioritise", "renders", id, priority, "--reason", "a customer waits for it", "--by", "ada"])
    };
    let raised = prioritise("r-2", "critical").ok().json();
    assert_eq!((&raised[0]["id"], &raised[0]["priority"]), (&json!("r-2"), &json!("critical")));
    let unknown = prioritise("r-1", "urgent").refused("invalid_body", 2);
    assert!(unknown.contains("background"), "it says which there are: {unknown}");
    prioritise("r-7", "low").refused("unknown_item", 4);
    let counted = at(&["queue", "stats", "renders"]).ok().json().remove(0);
    let pending = &counted["pending"];
    assert_eq!((&pending["critical"], &pending["normal"], &counted["active"]), (&json!(1), &json!(1), &json!(0)));
    let taken = at(&["queue", "take", "renders", "--lease-ms", "600000"]).ok().json();
    assert_eq!(taken[0]["items"][0]["id"], "r-2", "before the older one");
    let counted = at(&["queue", "stats", "renders"]).ok().json().remove(0);
    assert_eq!((&counted["active"], &counted["taken_total"]), (&json!(1), &json!(1)));

    at(&["queue", "delete", "nothing", "--reason", "a typo"]).refused("unknown_queue", 4);
    let deleted = at(&["queue", "delete", "renders", "--reason", "nothing is rendered any more"]).ok().json();
    assert_eq!(deleted, [json!({ "deleted": true })]);
    at(&["queue", "stats", "renders"]).refused("unknown_queue", 4);
    assert_eq!(at(&["queue", "list"]).ok().out, "");
}

#[test]
fn an_item_is_raised_and_a_queue_is_counted_and_deleted_at_a_server_and_in_a_store() {
    let folder = folder();
    let server = Server::start(folder.path());
    operate(&|arguments: &[&str]| run(folder.path(), &[arguments, &["--server", &server.url]].concat()));
    assert_eq!(server.terminate(), Some(0));
    operate(&|arguments: &[&str]| run(folder.path(), arguments));
}
