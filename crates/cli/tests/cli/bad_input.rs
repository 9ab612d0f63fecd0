//! Every kind of bad input gets its own error, exit code and sentence, and leaves nothing behind.

use std::fs;

use serde_json::{Value, json};

use crate::process::Server;
use crate::run::{body, folder, lines, run, run_with};

/// A line that must be refused: its text, the code, the exit code, and a part of the sentence.
fn bad_lines() -> Vec<(String, &'static str, i32, &'static str)> {
    let event = json!({ "type": "t", "data": {} });
    let with = |key: &str, value: Value| {
        let mut line = body("o-1", json!({}));
        line[key] = value;
        line.to_string()
    };
    let with_data = |data: &str| {
        format!(r#"{{"aggregate":{{"name":"order","id":"o-1"}},"events":[{{"type":"t","data":{data}}}]}}"#)
    };
    let id = "00000000-0000-0000-0000-000000000007";
    let twice = json!({ "type": "t", "data": {}, "id": id });
    let half = json!({ "type": "t", "data": { "x": "y".repeat(6 * 1024 * 1024) } });
    vec![
        ("{".into(), "not_json", 2, "line 1"),
        ("order placed".into(), "not_json", 2, "column 1"),
        (with("colour", json!(1)), "invalid_body", 2, "colour"),
        (with("events", json!([])), "invalid_events", 2, "1 to 10000"),
        (with("events", json!(vec![event; 10_001])), "invalid_events", 2, "10001"),
        (with("events", json!([twice, twice])), "invalid_events", 2, id),
        (with("aggregate", json!({ "name": "order", "id": "" })), "invalid_id", 2, "aggregate.id"),
        (with("aggregate", json!({ "name": "order", "id": "x".repeat(257) })), "invalid_id", 2, "too long"),
        (with("aggregate", json!({ "name": "order", "id": "a\0b" })), "invalid_id", 2, "control character"),
        (with("aggregate", json!({ "name": "", "id": "o-1" })), "invalid_name", 2, "aggregate.name"),
        (with("request_id", json!("")), "invalid_id", 2, "request_id"),
        (with("expected_version", json!(7)), "version_conflict", 3, "actual 0"),
        (with("expected_version", json!("exists")), "version_conflict", 3, "exists"),
        (with("expected_version", json!(-1)), "invalid_version", 2, "expected_version"),
        (with_data(r#"{"n":9223372036854775808}"#), "invalid_integer", 2, "events[0].data.n"),
        (with_data(r#"{"k":1,"k":2}"#), "invalid_data", 2, "given twice"),
        (with_data("[]"), "invalid_data", 2, "events[0].data"),
        (with_data(&format!(r#"{{"x":"{}"}}"#, "y".repeat(8 * 1024 * 1024))), "event_too_large", 2, "8388608"),
        (with("events", json!([half, half, half])), "commit_too_large", 2, "15728640"),
        (with_data(&format!(r#"{{"x":"{}"}}"#, "y".repeat(31 * 1024 * 1024))), "body_too_large", 2, "31457280"),
        (with("wait", json!({ "for": "tea" })), "invalid_wait", 2, "wait.for"),
    ]
}

#[test]
fn a_bad_line_is_refused_and_nothing_of_it_is_stored() {
    let folder = folder();
    for (line, code, exit, says) in bad_lines() {
        let said = run_with(folder.path(), &["commit"], &line).refused(code, exit);
        assert!(said.contains(says) && said.contains("line 1: "), "{says}: {said}");
    }
    assert_eq!(run(folder.path(), &["log", "read"]).ok().out, "");
}

#[test]
fn a_server_refuses_the_same_lines_with_the_same_words() {
    let folder = folder();
    let server = Server::start(folder.path());
    let other = crate::run::folder();
    // The first command on a folder says that it created a store.
    run_with(other.path(), &["commit"], &lines([body("another", json!({}))])).ok();
    for (line, code, exit, _) in bad_lines() {
        let there = run_with(folder.path(), &["commit", "--server", &server.url], &line).refused(code, exit);
        let here = run_with(other.path(), &["commit"], &line).refused(code, exit);
        assert_eq!(there, here);
    }
    assert_eq!(run(folder.path(), &["log", "read", "--server", &server.url]).ok().out, "");
}

#[test]
fn a_refused_line_does_not_hold_up_the_others() {
    let folder = folder();
    let mut input = lines((0..5).map(|n| body(&format!("o-{n}"), json!({}))));
    input.push_str("\n{\n");
    input.push_str(
        &json!({ "aggregate": { "name": "order", "id": "o-1" }, "expected_version": "empty",
                            "events": [{ "type": "t", "data": {} }] })
        .to_string(),
    );
    input.push('\n');
    input.push_str(&lines([body("o-9", json!({}))]));
    let ran = run_with(folder.path(), &["commit"], &input);
    assert_eq!(ran.json().len(), 6);
    assert!(ran.err.contains("error[not_json]: line 7: "), "{}", ran.err);
    assert!(ran.err.contains("error[version_conflict]: line 8: "), "{}", ran.err);
    // The exit code is that of the first refusal.
    assert_eq!(ran.code, 2);
    assert_eq!(run(folder.path(), &["log", "read"]).ok().json().len(), 6);
}

#[test]
fn a_version_in_the_past_or_future_is_a_conflict_with_the_actual_one() {
    let folder = folder();
    let commit =
        |expect: &str| run(folder.path(), &["commit", "--aggregate", "order/o-1", "--type", "t", "--expect", expect]);
    commit("empty").ok();
    commit("1").ok();
    commit("exists").ok();
    for past_or_future in ["0", "empty", "2", "4"] {
        assert!(commit(past_or_future).refused("version_conflict", 3).contains("actual 3"), "{past_or_future}");
    }
    commit("tomorrow").refused("invalid_version", 2);
    commit("-1").refused("invalid_version", 2);
    assert_eq!(run(folder.path(), &["log", "read"]).ok().json().len(), 3);
}

#[test]
fn a_repeated_request_is_a_duplicate_and_a_reused_one_is_refused() {
    let folder = folder();
    let commit = |data: &str| {
        let arguments = ["commit", "--aggregate", "order/o-1", "--type", "t", "--request-id", "r-1", "--data", data];
        run(folder.path(), &arguments)
    };
    let first = commit(r#"{"n":1}"#).ok().json();
    let second = commit(r#"{"n":1}"#).ok().json();
    assert_eq!((&first[0]["duplicate"], &second[0]["duplicate"]), (&json!(false), &json!(true)));
    assert_eq!(first[0]["commit_id"], second[0]["commit_id"]);
    assert!(commit(r#"{"n":2}"#).refused("request_id_reused", 3).contains("r-1"));
}

#[test]
fn tenants_and_scopes_have_to_be_declared() {
    let folder = folder();
    let commit = ["commit", "--aggregate", "order/o-1", "--type", "t"];
    run(folder.path(), &commit).ok();
    let nobody = [&commit[..], &["--tenant", "nobody"]].concat();
    assert!(run(folder.path(), &nobody).refused("unknown_tenant", 4).contains("nobody"));
    run(folder.path(), &["log", "read", "--scope", "elsewhere"]).refused("unknown_scope", 4);
    let server = Server::start(folder.path());
    let remote = [&nobody[..], &["--server", &server.url]].concat();
    assert!(run(folder.path(), &remote).refused("unknown_tenant", 4).contains("nobody"));
}

#[test]
fn wrong_usage_is_exit_code_2_and_says_what_is_wrong() {
    let folder = folder();
    for (arguments, says) in [
        (&["commit", "--aggregate", "order", "--type", "t"][..], "NAME/ID"),
        (&["commit", "--aggregate", "order/o-1"], "--type"),
        (&["commit", "--aggregate", "order/o-1", "--type", "t", "--data", "{"], "--data"),
        (&["commit", "--file", "nowhere.jsonl"], "nowhere.jsonl"),
        (&["log", "read", "--store", "./data"], "embedded:PATH"),
        (&["log", "read", "--store", "http://127.0.0.1:1"], "--server"),
        (&["log", "read", "--server", "127.0.0.1:1"], "http://"),
        (&["log", "read", "--server", "ftp://127.0.0.1:1"], "https://"),
        (&["log", "read", "--server", "http://127.0.0.1:1", "--store", "memory:"], "--store"),
        (&["serve", "--server", "http://127.0.0.1:1"], "--server"),
        (&["log", "read", "--types", "no such type"], "types"),
        (&["aggregate", "read", "order", "o-1", "--from-version", "3", "--to-version", "2"], "from_version"),
        (&["aggregate", "read", "order", "o-1", "--from-time", "noon"], "RFC 3339"),
        (&["publish"], "publish"),
    ] {
        let ran = run(folder.path(), arguments);
        assert_eq!(ran.code, 2, "{arguments:?}: {}", ran.err);
        assert!(ran.err.contains(says), "{arguments:?} should name {says}: {}", ran.err);
    }
    assert!(!folder.path().join("data").exists());
}

#[test]
fn a_server_that_is_not_there_is_exit_code_5() {
    let folder = folder();
    // Bound and closed again, so that nobody listens there.
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port").port();
    let url = format!("http://127.0.0.1:{port}");
    run(folder.path(), &["log", "read", "--server", &url]).refused("unreachable", 5);
    let commit = ["commit", "--server", &url, "--aggregate", "order/o-1", "--type", "t"];
    assert!(run(folder.path(), &commit).refused("unreachable", 5).contains("same request id"));
}

#[test]
fn a_document_that_is_spread_over_lines_is_one_refusal_that_says_so() {
    let folder = folder();
    let pretty = "{\n  \"aggregate\": {\n    \"name\": \"order\",\n    \"id\": \"o-1\"\n  },\n  \"events\": []\n}\n";
    fs::write(folder.path().join("pretty.json"), pretty).expect("written");
    run(folder.path(), &["record", "declare", "orders"]).ok();
    for arguments in [
        &["commit"][..],
        &["transact"],
        &["import", "-", "--id-prefix", "p", "--keep-going"],
        &["import", "pretty.json"],
        &["record", "insert", "orders"],
    ] {
        let said = run_with(folder.path(), arguments, pretty).refused("not_json", 2);
        assert!(said.contains("line 1: ") && said.contains("one document per line"), "{said}");
        assert_eq!(said.matches("error[").count(), 1, "{said}");
    }
}

#[test]
fn the_data_of_an_event_is_read_from_a_file_or_from_standard_input() {
    let folder = folder();
    fs::write(folder.path().join("data.json"), "{\"total\": 12.5}\n").expect("written");
    let commit = ["commit", "--aggregate", "order/o-1", "--type", "order_placed", "--data"];
    run(folder.path(), &[&commit[..], &["@data.json"]].concat()).ok();
    run_with(folder.path(), &[&commit[..], &["@-"]].concat(), "{\"total\": 13}").ok();
    let events = run(folder.path(), &["log", "read"]).ok().json();
    assert_eq!((&events[0]["data"]["total"], &events[1]["data"]["total"]), (&json!(12.5), &json!(13)));
    run(folder.path(), &[&commit[..], &["@nothing.json"]].concat()).refused("unreadable_input", 2);
    run_with(folder.path(), &[&commit[..], &["@-"]].concat(), "total").refused("not_json", 2);
}

#[test]
fn help_belongs_to_the_occurrence_where_that_of_the_code_would_mislead() {
    let folder = folder();
    run(folder.path(), &["commit", "--aggregate", "order/o-1", "--type", "t"]).ok();
    let dry = run(folder.path(), &["repair", "--indexes"]).refused("invalid_config", 2);
    assert!(dry.contains("help: Read the plan above, then run the same command with --yes."), "{dry}");
    let long = format!("{}\n", "x".repeat(annals::limits::BODY_BYTES_MAX + 2));
    let long = run_with(folder.path(), &["import", "-", "--id-prefix", "p"], &long).refused("body_too_large", 2);
    assert!(long.contains("help: Write one document per line"), "{long}");
}
