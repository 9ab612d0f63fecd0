//! `annals doctor`: what is wrong, and what to do first.

use std::fs;

use serde_json::{Value, json};

use crate::handlers::fail;
use crate::process::Server;
use crate::run::{Ran, body, folder, lines, run, run_with};

/// The first finding of a diagnosis, and the code it ended with.
fn worst(ran: &Ran) -> (i32, Value) {
    (ran.code, ran.json()[0]["findings"][0].clone())
}

#[test]
fn a_store_that_is_well_says_what_was_examined() {
    let folder = folder();
    run_with(folder.path(), &["commit"], &lines([body("o-1", json!({}))])).ok();
    let well = run(folder.path(), &["doctor", "--thorough"]).ok().json();
    assert_eq!(well[0]["findings"], json!([]));
    let examined = well[0]["examined"].to_string();
    for part in ["embedded:./data", "1 log with 1 event", "the disk", "every byte of its files"] {
        assert!(examined.contains(part), "{examined}");
    }
    let said = run(folder.path(), &["doctor", "--output", "table"]).ok().out;
    assert!(said.ends_with("Nothing is wrong.\n"), "{said}");
}

#[test]
fn a_damaged_store_is_critical_and_says_what_to_do_first() {
    let folder = folder();
    let (code, nothing) = worst(&run(folder.path(), &["doctor"]));
    assert_eq!((code, &nothing["severity"]), (6, &json!("critical")), "there is no store");
    run_with(folder.path(), &["commit"], &lines((0..50).map(|n| body("o-1", json!({ "n": n }))))).ok();
    let path = folder.path().join("data/tenants/default/default/0000000001.segment");
    let mut bytes = fs::read(&path).expect("read");
    bytes[1_000] ^= 1;
    fs::write(&path, bytes).expect("written");
    let (code, found) = worst(&run(folder.path(), &["doctor", "--thorough"]));
    assert_eq!((code, &found["severity"]), (6, &json!("critical")), "{found}");
    let said = run(folder.path(), &["doctor", "--thorough", "--output", "table"]).out;
    let (_, first) = said.rsplit_once("\nFirst, about ").expect("what to do first");
    assert!(!first.trim().is_empty(), "{said}");
}

/// A store of another process is not taken for a broken one, and a process that is gone is found.
#[test]
fn a_store_in_use_and_a_server_that_is_gone_are_found() {
    let folder = folder();
    let server = Server::start(folder.path());
    let (code, found) = worst(&run(folder.path(), &["doctor"]));
    assert_eq!((code, &found["about"]), (6, &json!("store embedded:./data")));
    assert!(found["advice"].as_str().is_some_and(|advice| advice.contains("--server")), "{found}");
    let url = server.url.clone();
    let well = run(folder.path(), &["doctor", "--server", &url]).ok().json();
    assert_eq!(well[0]["findings"], json!([]));
    run(folder.path(), &["doctor", "--server", &url, "--thorough"]).refused("invalid_config", 2);
    drop(server);
    let (code, found) = worst(&run(folder.path(), &["doctor", "--server", &url]));
    assert_eq!((code, &found["about"]), (6, &json!(format!("server {url}"))));
}

#[test]
fn a_handler_that_fails_is_a_warning_with_the_command_that_shows_why() {
    let folder = folder();
    let server = Server::start(folder.path());
    let at = |arguments: &[&str]| run(folder.path(), &[arguments, &["--server", &server.url]].concat());
    at(&["handler", "put", "billing", "--type", "order_placed", "--partition-by", "aggregate"]).ok();
    run_with(folder.path(), &["commit", "--server", &server.url], &lines([body("o.1", json!({}))])).ok();
    fail(&server);
    // The failure is counted with what is stored next.
    let mut looks = (0..2_000).map(|_| worst(&at(&["doctor"])));
    let (code, found) = looks.find(|(_, found)| !found.is_null()).expect("a finding");
    assert_eq!((code, &found["severity"], &found["about"]), (0, &json!("warning"), &json!("handler default/billing")));
    assert!(found["what"].as_str().is_some_and(|what| what.contains("no invoice address")), "{found}");
    let advice = found["advice"].as_str().expect("advice");
    assert!(advice.contains("annals handler failing billing"), "{advice}");
    let said = at(&["doctor", "--output", "table"]).ok().out;
    assert!(said.contains("First, about handler default/billing: "), "{said}");
}
