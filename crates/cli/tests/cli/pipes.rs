//! JSON lines in, JSON lines out.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::process::{annals, signal};
use crate::run::{body, folder, lines, run, run_with};

#[test]
fn what_is_committed_is_read_back_in_order() {
    let folder = folder();
    let input = lines((0..500).map(|n| body(&format!("o-{}", n % 7), json!({ "n": n }))));
    let answers = run_with(folder.path(), &["commit"], &input).ok().json();
    assert_eq!(answers.len(), 500);
    // Answers are in the order of the lines, so the n-th answer names the event that holds n.
    let events = run(folder.path(), &["log", "read"]).ok().json();
    assert_eq!(events.len(), 500);
    for (n, answer) in answers.iter().enumerate() {
        let number = answer["events"][0]["sequence_number"].as_u64().expect("a number");
        assert_eq!(events[number as usize]["data"]["n"], json!(n));
        assert_eq!(events[number as usize]["id"], answer["events"][0]["id"]);
    }
    // Lines of one aggregate were committed in their order.
    let one = run(folder.path(), &["aggregate", "read", "order", "o-3"]).ok().json();
    let versions: Vec<_> = one.iter().map(|commit| commit["version"].as_u64().expect("a version")).collect();
    assert_eq!(versions, (1..=versions.len() as u64).collect::<Vec<_>>());
    let content: Vec<_> = one.iter().map(|commit| commit["events"][0]["data"]["n"].clone()).collect();
    assert_eq!(content, (0..500).filter(|n| n % 7 == 3).map(Value::from).collect::<Vec<_>>());
}

#[test]
fn content_survives_the_round_trip() {
    let folder = folder();
    let data = r#"{"z":1,"a":9223372036854775807,"float":2.0,"text":"čaj \u0001 🍵","nested":{"$date":"x","list":[1,null,true,[]]},"":0}"#;
    let arguments =
        ["commit", "--aggregate", "order/a/b č", "--type", "t", "--tag", "x,y", "--tag", "z", "--data", data];
    run(folder.path(), &arguments).ok();
    let out = run(folder.path(), &["log", "read", "--aggregate", "order/a/b č"]).ok();
    assert!(out.out.contains(data), "{}", out.out);
    assert_eq!(out.json()[0]["tags"], json!(["x,y", "z"]));
}

#[test]
fn reads_take_ranges_filters_and_limits() {
    let folder = folder();
    let event = |kind: &str, n: u64, tag: &str| json!({ "type": kind, "data": { "n": n }, "tags": [tag] });
    let input = lines((0..30u64).map(|n| {
        json!({ "aggregate": { "name": if n % 2 == 0 { "even" } else { "odd" }, "id": "1" },
                "events": [event("a", n, "x"), event("b", n, "y")] })
    }));
    run_with(folder.path(), &["commit"], &input).ok();
    let numbers = |arguments: &[&str]| -> Vec<u64> {
        let events = run(folder.path(), arguments).ok().json();
        events.iter().map(|event| event["sequence_number"].as_u64().expect("a number")).collect()
    };
    assert_eq!(numbers(&["log", "read"]), (0..60).collect::<Vec<_>>());
    assert_eq!(numbers(&["log", "read", "--from", "57"]), [57, 58, 59]);
    assert_eq!(numbers(&["log", "read", "--backwards", "--limit", "3"]), [59, 58, 57]);
    assert_eq!(numbers(&["log", "read", "--backwards", "--from", "2"]), [1, 0]);
    assert_eq!(numbers(&["log", "read", "--from", "99"]), Vec::<u64>::new());
    assert_eq!(numbers(&["log", "read", "--types", "a", "--limit", "3"]), [0, 2, 4]);
    assert_eq!(numbers(&["log", "read", "--tags", "y"]).len(), 30);
    assert_eq!(numbers(&["log", "read", "--aggregate", "odd", "--types", "a,b"]).len(), 30);
    assert_eq!(numbers(&["log", "read", "--tags", "x,y"]), Vec::<u64>::new());
    let versions = |arguments: &[&str]| -> Vec<u64> {
        let all = [&["aggregate", "read", "odd", "1"], arguments].concat();
        let commits = run(folder.path(), &all).ok().json();
        commits.iter().map(|commit| commit["version"].as_u64().expect("a version")).collect()
    };
    assert_eq!(versions(&["--from-version", "3", "--to-version", "5"]), [3, 4, 5]);
    assert_eq!(versions(&["--last"]), [15]);
    assert_eq!(versions(&["--from-time", "2999-01-01T00:00:00Z"]), Vec::<u64>::new());
    assert_eq!(versions(&["--to-time", "2999-01-01T00:00:00Z", "--last"]), [15]);
    assert_eq!(run(folder.path(), &["aggregate", "read", "odd", "nobody"]).ok().out, "");
}

#[test]
fn a_long_list_of_aggregates_is_printed_whole_and_in_order() {
    let folder = folder();
    let mut ids: Vec<String> = (0..2_500).map(|n| format!("o-{n}")).collect();
    run_with(folder.path(), &["commit"], &lines(ids.iter().map(|id| body(id, json!({}))))).ok();
    ids.sort();
    let listed = |arguments: &[&str]| -> Vec<String> {
        let known = run(folder.path(), &[&["aggregate", "list", "order"], arguments].concat()).ok().json();
        known.iter().map(|known| known["id"].as_str().expect("an id").to_owned()).collect()
    };
    assert_eq!(listed(&[]), ids);
    assert_eq!(listed(&["--after", "o-998"]), ["o-999"]);
}

#[test]
fn a_reader_that_goes_away_is_an_ordinary_end() {
    let folder = folder();
    let input = lines((0..3_000).map(|n| body(&format!("o-{n}"), json!({ "text": "x".repeat(200) }))));
    run_with(folder.path(), &["commit"], &input).ok();
    for arguments in [&["log", "read"][..], &["log", "tail"], &["aggregate", "list", "order"]] {
        let mut command = annals(folder.path());
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().expect("it starts");
        let mut first = String::new();
        BufReader::with_capacity(512, process.stdout.take().expect("piped")).read_line(&mut first).expect("a line");
        assert!(first.starts_with('{'));
        // The reader is dropped here, with most of the output unread.
        let mut said = String::new();
        process.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
        assert_eq!((process.wait().expect("it ends").code(), said.as_str()), (Some(0), ""), "{arguments:?}");
    }
}

#[test]
fn a_table_is_for_people() {
    let folder = folder();
    run(folder.path(), &["commit", "--aggregate", "order/o-1", "--type", "order_placed"]).ok();
    let table = run(folder.path(), &["log", "read", "--output", "table"]).ok().out;
    let mut rows = table.lines();
    assert!(rows.next().expect("a head").contains("NUMBER"));
    assert!(rows.next().expect("a row").contains("order_placed"));
}

#[test]
fn a_tail_prints_what_comes_and_ends_well_on_a_signal() {
    let folder = folder();
    let server = crate::process::Server::start(folder.path());
    let commit = |id: &str| {
        let arguments = ["commit", "--server", &server.url, "--aggregate", id, "--type", "t"];
        run(folder.path(), &arguments).ok();
    };
    commit("order/before");
    let mut command = annals(folder.path());
    let mut tail =
        command.args(["log", "tail", "--server", &server.url]).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut printed = BufReader::new(tail.stdout.take().expect("piped")).lines();
    let mut next = || printed.next().expect("an event").expect("text");
    assert!(next().contains("before"));
    commit("order/first");
    assert!(next().contains("first"));
    commit("order/second");
    assert!(next().contains("second"));
    signal("INT", tail.id());
    assert_eq!(tail.wait().expect("it ends").code(), Some(0));
}
