//! Commits that wait for a handler.

use crate::process::Server;
use crate::run::{folder, run};
use serde_json::json;

#[test]
fn a_commit_may_wait_for_a_handler() {
    let folder = folder();
    let commit = |event_type: &str, stage: &str, more: &[&str]| {
        let commit = ["commit", "--aggregate", "order/o-1", "--type", event_type, "--wait", stage];
        run(folder.path(), &[&commit[..], more].concat())
    };
    run(folder.path(), &["handler", "put", "billing", "--type", "placed"]).ok();
    // The handler passes an event that is not its own, in a store of the command as at a server.
    assert_eq!(commit("paid", "handled:billing", &[]).ok().json()[0]["reached"], json!("handled:billing"));
    assert!(commit("paid", "tea", &[]).refused("invalid_wait", 2).contains("\"handled:NAME\""));
    commit("paid", "handled:other", &[]).refused("unknown_handler", 4);
    let server = Server::start(folder.path());
    let there = ["--server", &*server.url];
    assert_eq!(commit("paid", "handled:billing", &there).ok().json()[0]["reached"], json!("handled:billing"));
    assert!(commit("paid", "tea", &there).refused("invalid_wait", 2).contains("\"handled:NAME\""));
    commit("paid", "handled:other", &there).refused("unknown_handler", 4);
    let read = run(folder.path(), &[&["log", "read"][..], &there].concat()).ok();
    assert_eq!(read.out.lines().count(), 2, "{}", read.out);
    assert_eq!(server.terminate(), Some(0));
}
