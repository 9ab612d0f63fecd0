//! `annals consent` and `annals subscription`, between servers.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;

use serde_json::{Value, json};

use crate::process::{Server, annals};
use crate::run::{Ran, folder, lines, run, run_with};

fn serve(folder: &Path, microservice: &str, store: &str) -> Server {
    let mut command = annals(folder);
    command.args(["serve", "--dev", "--listen", "127.0.0.1:0", "--microservice", microservice, "--store", store]);
    command.env("ANNALS__TENANTS__SCOPES", "inbox");
    Server::of(command)
}

fn produce(folder: &Path, server: &Server, numbers: std::ops::Range<u64>) {
    let body = |n| json!({"aggregate": {"name": "order", "id": "o-1"}, "events": [{"type": "placed", "data": {"n": n}, "public": true}]});
    run_with(folder, &["commit", "--server", &server.url], &lines(numbers.map(body))).ok();
}

/// Looks until the state of the subscription is as it should be.
fn until(at: impl Fn(&[&str]) -> Ran, is: impl Fn(&Value) -> bool) -> Value {
    let show = || at(&["subscription", "show", "s"]).ok().json().remove(0);
    (0..2_000).map(|_| show()).find(|status| is(status)).unwrap_or_else(|| panic!("{}", show()))
}

/// From the consent to the deletion, with every state between them.
#[test]
fn a_scope_receives_a_public_stream_of_another_server() {
    let (here, there) = (folder(), folder());
    let producer = serve(there.path(), "orders", "embedded:./data");
    let consumer = serve(here.path(), "shipping", "embedded:./data");
    let offers = |arguments: &[&str]| run(there.path(), &[arguments, &["--server", &producer.url]].concat());
    let at = |arguments: &[&str]| run(here.path(), &[arguments, &["--server", &consumer.url]].concat());
    offers(&["filter", "put", "public-orders", "--type", "placed", "--public"]).ok();
    produce(there.path(), &producer, 0..3);
    let subscribe =
        ["subscription", "put", "s", "--producer", &producer.url, "--stream", "public-orders", "--into", "inbox"];
    at(&subscribe).ok();
    let refused = until(at, |status| status["state"] == "refused");
    assert!(refused["last_reason"].as_str().is_some_and(|reason| reason.contains("no consent")), "{refused}");

    let consent = ["consent", "put", "c", "--microservice", "shipping", "--stream", "public-orders"];
    let given = offers(&consent).ok().json();
    assert_eq!(
        (&given[0]["id"], &given[0]["tenant"], &given[0]["partition"]),
        (&json!("c"), &json!("default"), &json!(""))
    );
    let running = until(at, |status| status["position"] == 3 && status["lag"] == 0 && status["state"] == "running");
    assert_eq!(running["microservice"], "orders");
    let events = at(&["log", "read", "--scope", "inbox"]).ok().json();
    assert_eq!(events.iter().map(|event| &event["data"]["n"]).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!((&events[0]["event_source"], &events[0]["aggregate"]), (&json!("o-1"), &Value::Null));

    offers(&["consent", "revoke", "c", "--reason", "a test"]).ok();
    until(at, |status| status["state"] == "refused");
    produce(there.path(), &producer, 3..4);
    offers(&["consent", "show", "c"]).refused("unknown_consent", 4);
    offers(&consent).ok();
    at(&subscribe).ok();
    until(at, |status| status["position"] == 4 && status["state"] == "running");

    let table = at(&["subscription", "list", "--output", "table"]).ok().out;
    assert!(table.starts_with("SUBSCRIPTION") && table.contains("running"), "{table}");
    assert!(offers(&["consent", "list", "--output", "table"]).ok().out.contains("shipping"));
    at(&["subscription", "put", "s", "--producer", "x", "--stream", "s", "--into", "inbox"])
        .refused("invalid_subscription", 2);
    assert_eq!(at(&["subscription", "delete", "s", "--reason", "a test"]).ok().json(), [json!({"deleted": true})]);
    at(&["subscription", "show", "s"]).refused("unknown_subscription", 4);
}

/// Its connection is attempted again and again, and nothing is received meanwhile.
#[test]
fn a_producer_that_cannot_be_reached_is_reported_and_attempted_again() {
    let (here, there) = (folder(), folder());
    // Nobody listens on its port any more.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let nowhere = format!("http://{}", listener.local_addr().expect("an address"));
    drop(listener);
    let consumer = serve(here.path(), "shipping", "embedded:./data");
    let at = |arguments: &[&str]| run(here.path(), &[arguments, &["--server", &consumer.url]].concat());
    let subscribe = |url: &str| {
        at(&["subscription", "put", "s", "--producer", url, "--stream", "public-orders", "--into", "inbox"]).ok();
    };
    subscribe(&nowhere);
    let is_failing = |status: &Value| status["state"] == "failing" && status["retry_at"].is_string();
    let failing = until(at, |status| is_failing(status) && status["attempts"].as_u64() >= Some(2));
    assert!(failing["last_reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{failing}");
    assert_eq!(failing["position"], json!(0));
    assert_eq!(at(&["log", "read", "--scope", "inbox"]).ok().json(), Vec::<Value>::new());

    // The same subscription, with the address at which the producer is.
    let producer = serve(there.path(), "orders", "embedded:./data");
    let offers = |arguments: &[&str]| run(there.path(), &[arguments, &["--server", &producer.url]].concat());
    offers(&["filter", "put", "public-orders", "--type", "placed", "--public"]).ok();
    offers(&["consent", "put", "c", "--microservice", "shipping", "--stream", "public-orders"]).ok();
    produce(there.path(), &producer, 0..1);
    subscribe(&producer.url);
    let running = until(at, |status| status["state"] == "running" && status["position"] == 1);
    assert!(running.get("last_reason").is_none(), "{running}");
}

/// A producer that lost events that were received is never taken for the one that sent them. One that lost none continues.
#[test]
fn a_producer_that_was_restored_is_noticed_and_blocks_only_if_received_events_are_gone() {
    let (here, there) = (folder(), folder());
    let producer = serve(there.path(), "orders", "embedded:./data");
    let consumer = serve(here.path(), "shipping", "embedded:./data");
    let offers = |arguments: &[&str]| run(there.path(), &[arguments, &["--server", &producer.url]].concat());
    let at = |arguments: &[&str]| run(here.path(), &[arguments, &["--server", &consumer.url]].concat());
    offers(&["filter", "put", "public-orders", "--type", "placed", "--public"]).ok();
    offers(&["consent", "put", "c", "--microservice", "shipping", "--stream", "public-orders"]).ok();
    let subscribe = |url: &str| {
        at(&["subscription", "put", "s", "--producer", url, "--stream", "public-orders", "--into", "inbox"]).ok();
    };
    produce(there.path(), &producer, 0..3);
    subscribe(&producer.url);
    until(at, |status| status["position"] == 3);
    offers(&["backup", "--to", "all.tar"]).ok();

    // From here on the producer's store is one that was restored to three events: nothing that was received is gone.
    drop(producer);
    run(there.path(), &["restore", "--from", "all.tar", "--store", "embedded:./restored"]).ok();
    let restored = serve(there.path(), "orders", "embedded:./restored");
    produce(there.path(), &restored, 10..12);
    subscribe(&restored.url);
    let noticed = until(at, |status| status["position"] == 5);
    assert!(noticed["notice"].as_str().is_some_and(|notice| notice.contains("restored to event 3")), "{noticed}");
    drop(restored);

    // The same backup again: two events that were received are gone.
    run(there.path(), &["restore", "--from", "all.tar", "--store", "embedded:./again"]).ok();
    let again = serve(there.path(), "orders", "embedded:./again");
    produce(there.path(), &again, 20..24);
    subscribe(&again.url);
    let blocked = until(at, |status| status["state"] == "blocked");
    assert!(blocked["last_reason"].as_str().is_some(), "{blocked}");
    let events = at(&["log", "read", "--scope", "inbox"]).ok().json();
    assert_eq!(events.iter().map(|event| &event["data"]["n"]).collect::<Vec<_>>(), [0, 1, 2, 10, 11]);
}

/// As a bearer token, and nobody is shown it.
#[test]
fn a_credential_is_sent_to_the_producer_and_to_nobody_else() {
    let here = folder();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let asked = std::thread::spawn(move || {
        let (mut connection, _) = listener.accept().expect("it is asked");
        let mut request = BufReader::new(connection.try_clone().expect("a second handle")).lines();
        let head: Vec<_> = request.by_ref().map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
        let _ = connection.write_all(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        head
    });
    let consumer = serve(here.path(), "shipping", "embedded:./data");
    let at = |arguments: &[&str], input: &str| {
        run_with(here.path(), &[arguments, &["--server", &consumer.url]].concat(), input)
    };
    let put = [
        "subscription",
        "put",
        "s",
        "--producer",
        &url,
        "--stream",
        "orders",
        "--into",
        "inbox",
        "--producer-credential-file",
        "-",
    ];
    let shown = at(&put, "s3cret\n").ok();
    assert!(!shown.out.contains("s3cret") && shown.json()[0]["credential"] == true, "{}", shown.out);
    let head = asked.join().expect("it was asked");
    assert!(
        head[0].starts_with("GET /v1/horizon/orders?microservice=shipping&tenant=default&from=0&credits=0"),
        "{head:?}"
    );
    let sent = head.iter().find(|line| line.to_ascii_lowercase().starts_with("authorization: "));
    assert!(sent.is_some_and(|line| line.ends_with("Bearer s3cret")), "{head:?}");
    let status = at(&["subscription", "show", "s"], "").ok().out;
    assert!(!status.contains("s3cret"), "{status}");
    let found = at(&["record", "find", "annals-subscription-credentials"], "");
    assert!(!found.out.contains("s3cret"), "{}", found.out);
    found.refused("system_collection", 2);
}
