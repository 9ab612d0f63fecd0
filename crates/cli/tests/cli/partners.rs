//! `annals partner`, as operators use it while a partner is away.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;

use serde_json::{Value, json};

use crate::process::Server;
use crate::run::{Ran, body, folder, lines, run, run_with};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// Takes one delivery whole, and answers it with success.
fn deliver(partner: &TcpListener) {
    let (connection, _) = partner.accept().expect("a delivery");
    let mut request = BufReader::new(connection);
    let head: Vec<String> =
        request.by_ref().lines().map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
    let header = |name: &str| head.iter().find_map(|line| line.to_ascii_lowercase().strip_prefix(name)?.parse().ok());
    let length: usize = header("content-length: ").unwrap_or_else(|| panic!("{head:?}"));
    let mut body = vec![0; length];
    request.read_exact(&mut body).expect("the whole body");
    let answer = b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n";
    request.into_inner().write_all(answer).expect("the answer is read");
}

/// Waits until the only event of the partner has this status.
fn until(at: impl Fn(&[&str]) -> Ran, status: &str) -> Value {
    let listed = || at(&["partner", "events", "acme", "--status", status]).ok().json().pop();
    let found = (0..2_000).find_map(|_| listed());
    found.unwrap_or_else(|| panic!("{:?}", at(&["partner", "events", "acme"]).out))
}

#[test]
fn a_paused_partner_gets_its_events_once_it_is_resumed_and_keeps_its_definition() {
    let folder = folder();
    let server = Server::start(folder.path());
    let at = |arguments: &[&str]| run(folder.path(), &[arguments, &["--server", &server.url]].concat());
    let partner = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/", partner.local_addr().expect("an address"));
    let select = json!({ "field": "type", "operator": "EQ", "value": "order_placed" });
    let definition = json!({ "name": "Acme", "url": url, "secrets": [SECRET], "select": select }).to_string();
    let put = ["partner", "put", "acme", "--file", "-", "--server", &server.url];
    let defined = run_with(folder.path(), &put, &definition).ok().json();
    assert_eq!(defined[0]["state"], "running");

    let paused = at(&["partner", "pause", "acme", "--reason", "they move", "--by", "ada"]).ok().json();
    assert_eq!((&paused[0]["state"], &paused[0]["paused"]), (&json!("paused"), &json!(true)));
    assert_eq!((&paused[0]["select"], &paused[0]["secrets"]), (&defined[0]["select"], &json!(1)));
    run_with(folder.path(), &["commit", "--server", &server.url], &lines([body("o-1", json!({}))])).ok();
    let waiting = until(at, "PENDING");
    assert_eq!(waiting["event_type"], "order_placed");

    let resumed = at(&["partner", "resume", "acme", "--reason", "they have moved"]).ok().json();
    assert_eq!((&resumed[0]["state"], &resumed[0]["secrets"]), (&json!("running"), &json!(1)));
    deliver(&partner);
    assert_eq!(until(at, "SUCCESS")["id"], waiting["id"]);

    at(&["partner", "pause", "nobody", "--reason", "a typo"]).refused("unknown_partner", 4);
    at(&["partner", "resume", "acme", "--reason", ""]).refused("invalid_body", 2);
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn a_partner_is_paused_and_resumed_in_a_store_that_the_command_opens() {
    let folder = folder();
    let server = Server::start(folder.path());
    let put = ["partner", "put", "acme", "--file", "-", "--server", &server.url];
    run_with(folder.path(), &put, &json!({ "name": "Acme", "secrets": [SECRET] }).to_string()).ok();
    assert_eq!(server.terminate(), Some(0));
    let paused = run(folder.path(), &["partner", "pause", "acme", "--reason", "they move"]).ok().json();
    assert_eq!(paused[0]["state"], "paused");
    assert_eq!(run(folder.path(), &["partner", "show", "acme"]).ok().json()[0]["state"], "paused");
    let resumed = run(folder.path(), &["partner", "resume", "acme", "--reason", "they have moved"]).ok().json();
    assert_eq!(resumed[0]["state"], "running");
}

#[test]
fn an_operator_cancels_resends_and_replays_events_and_deletes_the_partner() {
    let folder = folder();
    let server = Server::start(folder.path());
    let at = |arguments: &[&str]| run(folder.path(), &[arguments, &["--server", &server.url]].concat());
    let partner = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/", partner.local_addr().expect("an address"));
    let select = json!({ "field": "type", "operator": "EQ", "value": "order_placed" });
    let definition = json!({ "name": "Acme", "url": url, "secrets": [SECRET], "select": select, "paused": true });
    let put = ["partner", "put", "acme", "--file", "-", "--server", &server.url];
    run_with(folder.path(), &put, &definition.to_string()).ok();
    let listed = at(&["partner", "list"]).ok().json();
    assert_eq!((listed.len(), &listed[0]["partner"], &listed[0]["secrets"]), (1, &json!("acme"), &json!(1)));

    run_with(folder.path(), &["commit", "--server", &server.url], &lines([body("o-1", json!({ "total": 7 }))])).ok();
    let id = until(at, "PENDING")["id"].as_str().expect("an id").to_owned();
    let event = at(&["partner", "event", &id]).ok().json().remove(0);
    assert_eq!((&event["event_type"], &event["entity_data"]), (&json!("order_placed"), &json!({ "total": 7 })));
    let cancelled = at(&["partner", "cancel", &id, "--reason", "sent by mail"]).ok().json();
    assert_eq!(cancelled[0]["ended"], "cancelled");
    at(&["partner", "resume", "acme", "--reason", "they have moved"]).ok();
    let resent = at(&["partner", "resend", &id, "--reason", "the mail was lost"]).ok().json();
    assert_eq!(resent[0]["id"], *id);
    deliver(&partner);
    assert_eq!(until(at, "SUCCESS")["id"], *id);
    at(&["partner", "cancel", &id, "--reason", "too late"]).refused("partner_event_state", 3);

    let replay = ["partner", "replay", "acme", "--from", "0", "--to", "1", "--reason", "they lost a day"];
    let replay = at(&replay).ok().json().remove(0);
    assert_eq!((&replay["from"], &replay["to"]), (&json!(0), &json!(1)));
    deliver(&partner);
    let both = (0..2_000).find_map(|_| {
        let events = at(&["partner", "events", "acme", "--status", "SUCCESS"]).ok().json();
        (events.len() == 2).then_some(events)
    });
    let both = both.expect("the replayed event is delivered");
    let again: Vec<_> = both.iter().filter(|event| event["id"] != *id).collect();
    assert_eq!((again.len(), &again[0]["replay"]), (1, &replay["id"]));

    let deleted = at(&["partner", "delete", "acme", "--reason", "the contract has ended"]).ok().json();
    assert_eq!(deleted, [json!({ "deleted": true })]);
    assert!(at(&["partner", "list"]).ok().json().is_empty());
    at(&["partner", "delete", "acme", "--reason", "again"]).refused("unknown_partner", 4);
    at(&["partner", "event", "0123456789abcdef01234567"]).refused("unknown_partner_event", 4);
    assert_eq!(server.terminate(), Some(0));
}
