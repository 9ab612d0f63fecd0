//! `annals serve`, and that `--server` is the same as `--store`.

use std::io::{Read, Write};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::process::{Server, annals, signal};
use crate::run::{body, folder, lines, run, run_with};
use crate::security::Logged;

#[test]
fn what_a_server_answers_is_what_its_store_holds() {
    let folder = folder();
    let input = lines((0..2_300u64).map(|n| {
        json!({ "aggregate": { "name": "order", "id": format!("a/{}?č%&+ {n}", n % 3) }, "owner_id": "me",
                "tenant_id": format!("t{}", n % 2), "correlation_id": "c", "header": { "b": "1", "a": "2" },
                "events": [{ "type": "placed", "data": { "n": n }, "tags": ["x,y", "z\\"], "public": true },
                           { "type": "paid", "data": {}, "generation": 3 }] })
    }));
    let server = Server::start(folder.path());
    let there = ["--server", &server.url];
    assert_eq!(run_with(folder.path(), &[&["commit"], &there[..]].concat(), &input).ok().json().len(), 2_300);
    let reads: &[&[&str]] = &[
        &["log", "read"],
        &["log", "read", "--backwards", "--from", "1100"],
        &["log", "read", "--types", "paid", "--limit", "1500"],
        &["log", "read", "--aggregate", "order/a/1?č%&+ 7"],
        &["log", "read", "--types", "placed,paid", "--from", "4590"],
        &["aggregate", "read", "order", "a/1?č%&+ 7"],
        &["aggregate", "read", "order", "nobody"],
        &["aggregate", "list", "order"],
        &["aggregate", "list", "order", "--after", "a/1"],
        &["aggregate", "list", "nothing"],
    ];
    let remote: Vec<String> =
        reads.iter().map(|read| run(folder.path(), &[read, &there[..]].concat()).ok().out).collect();
    assert_eq!(server.terminate(), Some(0));
    for (read, remote) in reads.iter().zip(remote) {
        assert_eq!(run(folder.path(), read).ok().out, remote, "{read:?}");
    }
}

#[test]
fn without_dev_it_refuses_to_start_and_dev_refuses_the_network() {
    let folder = folder();
    let said = run(folder.path(), &["serve", "--listen", "127.0.0.1:0"]).refused("invalid_config", 2);
    assert!(said.contains("--dev"), "{said}");
    let said = run(folder.path(), &["serve", "--dev", "--listen", "0.0.0.0:0"]).refused("invalid_config", 2);
    assert!(said.contains("loopback"), "{said}");
    assert!(!folder.path().join("data").exists());
}

#[test]
fn with_dev_only_this_machine_s_programs_and_pages_are_let_in() {
    let folder = folder();
    let server = Server::start(folder.path());
    let address = server.url.strip_prefix("http://").expect("a URL");
    let commit = body("o-1", json!({})).to_string();
    for (host, origin, status) in [
        (address, "", "201"),
        ("example.org", "", "403"),
        (address, "origin: http://example.org\r\n", "403"),
        (address, "origin: null\r\n", "403"),
    ] {
        let mut stream = std::net::TcpStream::connect(address).expect("a connection");
        let head = format!("host: {host}\r\n{origin}connection: close\r\ncontent-length: {}", commit.len());
        write!(stream, "POST /v1/commits HTTP/1.1\r\n{head}\r\n\r\n{commit}").expect("written");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{host} {origin}: {answer}");
        assert_eq!(answer.contains("forbidden_origin"), status == "403", "{answer}");
    }
}

#[test]
fn an_address_in_use_is_refused() {
    let folder = folder();
    run(folder.path(), &["commit", "--aggregate", "order/o-1", "--type", "t"]).ok();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let said = run(folder.path(), &["serve", "--dev", "--listen", &address]).refused("address_in_use", 6);
    assert!(said.contains(&address), "{said}");
    // The store is free again.
    run(folder.path(), &["log", "read"]).ok();
}

#[test]
fn a_store_that_a_server_has_open_is_locked_and_the_error_says_how_to_go_on() {
    let folder = folder();
    let server = Server::start(folder.path());
    for arguments in [&["log", "read"][..], &["commit", "--aggregate", "order/o-1", "--type", "t"]] {
        assert!(run(folder.path(), arguments).refused("store_locked", 6).contains("--server"));
    }
    // A lock of a process that was killed does not block.
    server.kill();
    run(folder.path(), &["log", "read"]).ok();
}

#[test]
fn removing_the_lock_beside_a_running_server_lets_nobody_in_and_loses_no_commit() {
    let folder = folder();
    let server = Server::start(folder.path());
    let there = ["commit", "--server", &server.url, "--aggregate", "order/o-1", "--type", "t"];
    run(folder.path(), &there).ok();
    std::fs::remove_file(folder.path().join("data/lock")).expect("removed");
    run(folder.path(), &["commit", "--aggregate", "order/o-2", "--type", "t"]).refused("store_locked", 6);
    run(folder.path(), &there).refused("store_failed", 6);
    run(folder.path(), &["commit", "--aggregate", "order/o-2", "--type", "t"]).refused("store_locked", 6);
    server.kill();
    let kept = run(folder.path(), &["log", "read"]).ok().json();
    assert!(!kept.is_empty(), "what was acknowledged is there");
    run(folder.path(), &["check"]).ok();
}

#[test]
fn it_stops_on_sigterm_with_exit_code_0_although_someone_follows() {
    let folder = folder();
    let server = Server::start(folder.path());
    let commit = ["commit", "--server", &server.url, "--aggregate", "order/o-1", "--type", "t"];
    run(folder.path(), &commit).ok();
    let mut command = annals(folder.path());
    let mut tail = command
        .args(["log", "tail", "--server", &server.url])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut first = String::new();
    let mut printed = std::io::BufReader::new(tail.stdout.take().expect("piped"));
    std::io::BufRead::read_line(&mut printed, &mut first).expect("an event");
    #[expect(clippy::disallowed_methods, reason = "how long it takes is what is tested")]
    let asked = std::time::Instant::now();
    assert_eq!(server.terminate(), Some(0));
    assert!(asked.elapsed() < std::time::Duration::from_secs(10), "{:?}", asked.elapsed());
    // The follower is told to come back later, and waits for that until it is interrupted.
    let said = std::io::BufReader::new(tail.stderr.take().expect("piped"));
    let mut said = std::io::BufRead::lines(said).map_while(Result::ok);
    assert!(said.any(|line| line.contains("reconnecting until the server responds")), "it ended instead");
    signal("INT", tail.id());
    assert_eq!(tail.wait().expect("it ends").code(), Some(0));
    run_with(folder.path(), &["commit"], &lines([body("o-2", json!({}))])).ok();
    assert_eq!(run(folder.path(), &["log", "read"]).ok().json().len(), 2);
}

#[test]
fn a_name_of_this_machine_is_listened_on_and_an_address_in_use_has_a_code_of_its_own() {
    let folder = folder();
    let mut command = annals(folder.path());
    command.args(["serve", "--dev", "--listen", "localhost:0"]);
    let server = Server::of(command);
    let listen = server.url.strip_prefix("http://").expect("an address");
    assert!(listen.starts_with("127.0.0.1:") || listen.starts_with("[::1]:"), "{listen}");
    let second = run(folder.path(), &["serve", "--dev", "--store", "memory:", "--listen", listen]);
    let said = second.refused("address_in_use", 6);
    assert!(said.contains(listen), "{said}");
    let said = run(folder.path(), &["demo", "--listen", listen]).refused("address_in_use", 6);
    assert!(said.contains(listen), "{said}");
}

#[test]
fn an_unknown_tenant_or_scope_of_a_server_is_one_sentence() {
    let folder = folder();
    let server = Server::start(folder.path());
    for (flag, name, code) in [("--tenant", "acme", "unknown_tenant"), ("--scope", "received", "unknown_scope")] {
        let said = run(folder.path(), &["log", "read", "--server", &server.url, flag, name]).refused(code, 4);
        assert!(said.contains(name) && !said.contains(": :"), "{said}");
    }
}

#[test]
fn a_server_that_has_printed_its_address_stops_cleanly_at_once() {
    let folder = folder();
    for round in 0..20 {
        assert_eq!(Server::start(folder.path()).terminate(), Some(0), "round {round}");
    }
}

#[test]
fn a_server_has_the_console_which_shows_its_configuration_without_secrets() {
    let folder = folder();
    let server = Server::start(folder.path());
    let address = server.url.strip_prefix("http://").expect("a URL");
    let get = |path: &str| {
        let mut stream = std::net::TcpStream::connect(address).expect("a connection");
        let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("it is sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
        answer
    };
    assert!(get("/").contains("<h1>Overview</h1>"));
    let configuration = get("/console/configuration");
    assert!(configuration.contains("store.url") && configuration.contains("server.dev"), "{configuration}");
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn with_the_format_json_every_line_of_the_log_is_an_object() {
    let folder = folder();
    let mut command = annals(folder.path());
    command.args(["serve", "--dev", "--listen", "127.0.0.1:0"]);
    command.env("ANNALS__LOG__FORMAT", "json").env("ANNALS__LOG__LEVEL", "debug");
    let server = Logged::of(command, folder.path());
    let commit = ["commit", "--server", &server.url, "--aggregate", "order/o-1", "--type", "t"];
    run(folder.path(), &commit).ok();
    let log = server.stop(folder.path());
    let mut messages = Vec::new();
    for line in log.lines() {
        let entry: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        for field in ["timestamp", "level", "target"] {
            assert!(entry[field].is_string(), "{field} is missing: {line}");
        }
        messages.extend(entry["fields"]["message"].as_str().map(str::to_owned));
    }
    for said in ["listening", "stopping"] {
        assert!(messages.iter().any(|message| message == said), "nobody said {said:?}: {log}");
    }
}
