//! `annals import`: files of any size, run as often as need be.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::process::{Server, annals};
use crate::run::{Ran, body, folder, lines, run, run_with};

fn summary(ran: &Ran) -> Value {
    ran.json().pop().expect("a summary")
}

fn counts(ran: &Ran) -> [u64; 4] {
    let summary = summary(ran);
    ["lines", "committed", "duplicates", "refused"].map(|key| summary[key].as_u64().expect("a number"))
}

#[test]
fn a_file_is_imported_once_however_often_it_is_run() {
    let folder = folder();
    let file = folder.path().join("history.jsonl");
    fs::write(&file, lines((0..5_000).map(|n| body(&format!("o-{}", n % 40), json!({ "n": n }))))).expect("written");
    let first = run(folder.path(), &["import", "history.jsonl"]).ok();
    assert_eq!(counts(&first), [5_000, 5_000, 0, 0]);
    let second = run(folder.path(), &["import", "history.jsonl"]).ok();
    assert_eq!(counts(&second), [5_000, 0, 5_000, 0]);
    let events = run(folder.path(), &["log", "read"]).ok().json();
    assert_eq!(events.len(), 5_000);
    for id in 0..40 {
        let of_one = events.iter().filter(|event| event["aggregate"]["id"] == json!(format!("o-{id}")));
        let content: Vec<_> = of_one.map(|event| event["data"]["n"].as_u64().expect("a number")).collect();
        assert_eq!(content, (0..5_000).filter(|n| n % 40 == id).collect::<Vec<_>>());
    }
    // The same lines in another file are other requests.
    fs::write(folder.path().join("more.jsonl"), lines([body("o-0", json!({ "n": 0 }))])).expect("written");
    assert_eq!(counts(&run(folder.path(), &["import", "more.jsonl"]).ok()), [1, 1, 0, 0]);
}

#[test]
fn an_import_that_was_killed_is_simply_run_again() {
    const LINES: u64 = 6_000;
    let folder = folder();
    let server = Server::start(folder.path());
    fs::write(
        folder.path().join("h.jsonl"),
        lines((0..LINES).map(|n| body(&format!("o-{}", n % 3), json!({ "n": n })))),
    )
    .expect("written");
    let import = ["import", "h.jsonl", "--server", &server.url];
    let mut command = annals(folder.path());
    let mut killed = command.args(import).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    // Once something of it is in the log it is killed somewhere in the middle.
    let mut command = annals(folder.path());
    let tail = command.args(["log", "tail", "--from", "1000", "--server", &server.url]).stdout(Stdio::piped()).spawn();
    let mut tail = tail.expect("it starts");
    BufReader::new(tail.stdout.take().expect("piped")).read_line(&mut String::new()).expect("an event");
    killed.kill().expect("it can be killed");
    killed.wait().expect("it ends");
    tail.kill().expect("it can be killed");
    tail.wait().expect("it ends");
    let [of, committed, duplicates, refused] = counts(&run(folder.path(), &import).ok());
    assert_eq!((of, committed + duplicates, refused), (LINES, LINES, 0));
    assert!(duplicates > 1_000 && committed > 0, "{committed} committed, {duplicates} duplicates");
    let events = run(folder.path(), &["log", "read", "--server", &server.url]).ok().json();
    assert_eq!(events.len() as u64, LINES);
    for id in 0..3 {
        let of_one = events.iter().filter(|event| event["aggregate"]["id"] == json!(format!("o-{id}")));
        let content: Vec<_> = of_one.map(|event| event["data"]["n"].as_u64().expect("a number")).collect();
        assert_eq!(content, (0..LINES).filter(|n| n % 3 == id).collect::<Vec<_>>());
    }
}

#[test]
fn a_prefix_makes_the_ids_of_what_can_be_read_only_once() {
    let folder = folder();
    let good = lines((0..300).map(|n| body("o-1", json!({ "n": n }))));
    let half: String = good.lines().take(150).map(|line| format!("{line}\n")).collect();
    let import = ["import", "-", "--id-prefix", "history"];
    assert_eq!(counts(&run_with(folder.path(), &import, &half).ok()), [150, 150, 0, 0]);
    assert_eq!(counts(&run_with(folder.path(), &import, &good).ok()), [300, 150, 150, 0]);
    let events = run(folder.path(), &["log", "read"]).ok().json();
    let content: Vec<_> = events.iter().map(|event| event["data"]["n"].as_u64().expect("a number")).collect();
    assert_eq!(content, (0..300).collect::<Vec<_>>());
}

#[test]
fn given_ids_and_times_are_kept() {
    let folder = folder();
    let id = "0190e5a4-8f3e-7c21-9d30-3f6f0d1f7b11";
    let mut line = body("o-1", json!({}));
    line["request_id"] = json!("r-1");
    line["events"][0]["id"] = json!(id);
    line["events"][0]["time"] = json!("2019-05-01T10:00:00.123Z");
    fs::write(folder.path().join("one.jsonl"), lines([line])).expect("written");
    run(folder.path(), &["import", "one.jsonl"]).ok();
    let event = run(folder.path(), &["log", "read"]).ok().json().remove(0);
    assert_eq!(event["id"], json!(id));
    assert_eq!(event["time"], json!("2019-05-01T10:00:00.123Z"));
    assert_eq!(event["request_id"], json!("r-1"));
}

#[test]
fn it_stops_at_the_first_bad_line_and_names_it() {
    let folder = folder();
    let file = format!("{}{{\"aggregate\":\n{}", lines([body("o-1", json!({}))]), lines([body("o-2", json!({}))]));
    fs::write(folder.path().join("bad.jsonl"), file).expect("written");
    let ran = run(folder.path(), &["import", "bad.jsonl"]);
    assert_eq!(counts(&ran), [2, 1, 0, 1]);
    assert!(ran.refused("not_json", 2).contains("line 2: "));
    assert_eq!(run(folder.path(), &["log", "read"]).ok().json().len(), 1);
}

#[test]
fn a_corrected_file_is_not_imported_twice() {
    let folder = folder();
    let file = folder.path().join("h.jsonl");
    let good = lines((0..20).map(|n| body(&format!("o-{n}"), json!({ "n": n }))));
    fs::write(&file, format!("{good}oops\n")).expect("written");
    let ran = run(folder.path(), &["import", "h.jsonl"]);
    assert_eq!(counts(&ran), [21, 20, 0, 1]);
    let prefix = ran.err.split_whitespace().skip_while(|word| *word != "--id-prefix").nth(1).expect("a prefix");
    fs::write(&file, format!("{good}{}", lines([body("o-20", json!({ "n": 20 }))]))).expect("written");
    let again = ["import", "h.jsonl", "--id-prefix", prefix.trim_end_matches(',')];
    assert_eq!(counts(&run(folder.path(), &again).ok()), [21, 1, 20, 0]);
}

#[test]
fn a_refused_line_holds_back_what_its_aggregate_did_later() {
    let folder = folder();
    let mut first = body("o-1", json!({ "n": 1 }));
    first["expected_version"] = json!(5);
    let later = (2..100).map(|n| body("o-1", json!({ "n": n })));
    fs::write(folder.path().join("bad.jsonl"), lines(std::iter::once(first).chain(later))).expect("written");
    let ran = run(folder.path(), &["import", "bad.jsonl"]);
    assert_eq!(summary(&ran)["committed"], json!(0));
    ran.refused("version_conflict", 3);
    assert_eq!(run(folder.path(), &["log", "read"]).ok().out, "");
}

#[test]
fn it_keeps_going_on_demand_and_saves_what_was_refused() {
    let folder = folder();
    let mut conflict = body("o-2", json!({}));
    conflict["expected_version"] = json!(5);
    let good = |n: u64| body("o-1", json!({ "n": n })).to_string();
    let all = [good(1), "nonsense".to_owned(), good(2), conflict.to_string(), good(3)].join("\n");
    fs::write(folder.path().join("mixed.jsonl"), all).expect("written");
    let import = ["import", "mixed.jsonl", "--keep-going", "--rejects", "rejects.jsonl"];
    let ran = run(folder.path(), &import);
    assert_eq!(counts(&ran), [5, 3, 0, 2]);
    assert!(ran.err.contains("line 2: ") && ran.err.contains("line 4: "), "{}", ran.err);
    assert_eq!(ran.code, 2);
    let rejects = fs::read_to_string(folder.path().join("rejects.jsonl")).expect("rejects");
    assert_eq!(rejects, format!("nonsense\n{conflict}\n"));
    // What an earlier import could not take is not written over.
    assert!(run(folder.path(), &import).refused("invalid_config", 2).contains("rejects.jsonl"));
}

#[test]
fn standard_input_needs_request_ids_or_a_prefix() {
    let folder = folder();
    let line = lines([body("o-1", json!({}))]);
    let said = run_with(folder.path(), &["import", "-"], &line).refused("invalid_body", 2);
    assert!(said.contains("--id-prefix"), "{said}");
    let mut named = body("o-1", json!({}));
    named["request_id"] = json!("r-1");
    run_with(folder.path(), &["import", "-"], &lines([named])).ok();
}

#[test]
fn a_server_takes_the_same_import() {
    let folder = folder();
    let server = Server::start(folder.path());
    fs::write(
        folder.path().join("h.jsonl"),
        lines((0..1_000).map(|n| body(&format!("o-{}", n % 9), json!({ "n": n })))),
    )
    .expect("written");
    let import = ["import", "h.jsonl", "--server", &server.url];
    assert_eq!(counts(&run(folder.path(), &import).ok()), [1_000, 1_000, 0, 0]);
    assert_eq!(counts(&run(folder.path(), &import).ok()), [1_000, 0, 1_000, 0]);
    assert_eq!(server.terminate(), Some(0));
    // The ids depend on the file alone, so the store itself knows them too.
    assert_eq!(counts(&run(folder.path(), &["import", "h.jsonl"]).ok()), [1_000, 0, 1_000, 0]);
}
