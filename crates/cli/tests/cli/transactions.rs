//! `annals transact`, and append conditions on lines of commits.

use serde_json::{Value, json};

use crate::process::Server;
use crate::run::{body, folder, lines, run, run_with};

/// A commit of one event to an account.
fn moved(id: &str, amount: i64) -> Value {
    json!({ "aggregate": { "name": "account", "id": id }, "events": [{ "type": "moved", "data": { "amount": amount } }] })
}

fn transfer(from: &str, to: &str, amount: i64) -> Value {
    json!({ "commits": [moved(from, -amount), moved(to, amount)] })
}

fn numbers_of(answers: &Value) -> Vec<u64> {
    let answers = answers.as_array().expect("a list").iter();
    answers.map(|answer| answer["events"][0]["sequence_number"].as_u64().expect("a number")).collect()
}

#[test]
fn each_line_is_a_transaction_and_is_answered_in_order() {
    let folder = folder();
    let input = lines((0..100).map(|n| transfer(&format!("a-{}", n % 5), &format!("b-{}", n % 7), n)));
    let answers = run_with(folder.path(), &["transact"], &input).ok().json();
    assert_eq!(answers.len(), 100);
    let events = run(folder.path(), &["log", "read"]).ok().json();
    assert_eq!(events.len(), 200);
    for (n, answers) in answers.iter().enumerate() {
        let numbers = numbers_of(answers);
        assert_eq!(numbers[0] + 1, numbers[1], "the commits stand together");
        assert_eq!(events[numbers[1] as usize]["data"]["amount"], json!(n));
    }
    // Lines that share an aggregate were stored in their order.
    let one = run(folder.path(), &["aggregate", "read", "account", "b-3"]).ok().json();
    let amounts: Vec<_> = one.iter().map(|commit| commit["events"][0]["data"]["amount"].clone()).collect();
    assert_eq!(amounts, (0..100).filter(|n| n % 7 == 3).map(Value::from).collect::<Vec<_>>());
}

#[test]
fn a_file_sent_again_is_all_duplicates_here_and_at_a_server() {
    let folder = folder();
    let mut request = transfer("a", "b", 5);
    request["request_id"] = json!("t-1");
    let file = folder.path().join("transfers.jsonl");
    std::fs::write(&file, lines([request])).expect("written");
    let path = file.to_str().expect("text");
    let first = run(folder.path(), &["transact", "--file", path]).ok().json();
    let server = Server::start(folder.path());
    let again = run(folder.path(), &["transact", "--file", path, "--server", &server.url]).ok().json();
    assert_eq!(numbers_of(&first[0]), numbers_of(&again[0]));
    assert_eq!((&first[0][1]["duplicate"], &again[0][1]["duplicate"]), (&json!(false), &json!(true)));
    assert_eq!(run(folder.path(), &["log", "read", "--server", &server.url]).ok().json().len(), 2);
}

/// A line that must be refused: its text, the code, the exit code, and a part of the sentence.
fn bad_lines() -> Vec<(String, &'static str, i32, &'static str)> {
    let with = |member: &str, value: Value| {
        let mut line = transfer("a", "b", 5);
        line[member] = value;
        line.to_string()
    };
    let second = |member: &str, value: Value| {
        let mut line = transfer("a", "b", 5);
        line["commits"][1][member] = value;
        line.to_string()
    };
    let expected =
        |version: Value| json!([{ "aggregate": { "name": "account", "id": "c" }, "expected_version": version }]);
    vec![
        ("{".into(), "not_json", 2, "line 1"),
        (moved("a", 1).to_string(), "invalid_body", 2, "aggregate"),
        (with("commits", json!([moved("a", 1)])), "invalid_transaction", 2, "2 to 16"),
        (with("commits", json!([moved("a", 1), moved("a", 1)])), "invalid_transaction", 2, "commits[1].aggregate"),
        (second("request_id", json!("r")), "invalid_transaction", 2, "commits[1].request_id"),
        (second("expected_version", json!(7)), "version_conflict", 3, "commits[1]: version conflict: expected 7"),
        (
            with("expect", expected(json!("exists"))),
            "version_conflict",
            3,
            "expect[0]: version conflict: expected exists",
        ),
        (
            second("append_condition", json!({ "fail_if": [{ "types": ["opened"] }] })),
            "append_condition_failed",
            3,
            "commits[1]: event 0 matches append_condition.fail_if[0]",
        ),
    ]
}

#[test]
fn a_bad_line_is_refused_here_and_at_a_server_in_the_same_words_and_stores_nothing() {
    let (folder, other) = (folder(), crate::run::folder());
    let open = ["commit", "--aggregate", "bank/1", "--type", "opened"];
    run(folder.path(), &open).ok();
    run(other.path(), &open).ok();
    let server = Server::start(other.path());
    for (line, code, exit, says) in bad_lines() {
        let said = run_with(folder.path(), &["transact"], &line).refused(code, exit);
        assert!(said.contains(says) && said.contains("line 1: "), "{says}: {said}");
        let there = run_with(other.path(), &["transact", "--server", &server.url], &line).refused(code, exit);
        assert_eq!(there, said);
    }
    assert_eq!(run(folder.path(), &["log", "read"]).ok().json().len(), 1);
    assert_eq!(run(other.path(), &["log", "read", "--server", &server.url]).ok().json().len(), 1);
}

#[test]
fn a_refused_transaction_does_not_hold_up_the_others() {
    let folder = folder();
    let mut late = transfer("a", "b", 2);
    late["commits"][0]["expected_version"] = json!("empty");
    let ran = run_with(folder.path(), &["transact"], &lines([transfer("a", "b", 1), late, transfer("c", "b", 3)]));
    assert_eq!(ran.json().len(), 2);
    assert!(ran.refused("version_conflict", 3).contains("line 2: commits[0]: "));
    assert_eq!(run(folder.path(), &["aggregate", "read", "account", "b"]).ok().json().len(), 2);
}

#[test]
fn a_table_has_a_row_for_each_commit() {
    let folder = folder();
    let arguments = ["transact", "--output", "table"];
    let table = run_with(folder.path(), &arguments, &lines([transfer("a", "b", 1), transfer("c", "d", 2)])).ok().out;
    let rows: Vec<_> = table.lines().collect();
    assert_eq!(rows.len(), 5);
    assert!(rows[0].contains("AGGREGATE") && rows[1].contains("account/a") && rows[4].contains("account/d"), "{table}");
}

/// What a line excludes is judged against the lines before it, never against those after it, though many lines are under way at once.
#[test]
fn lines_with_append_conditions_are_judged_in_their_order() {
    let folder = folder();
    let mut input = Vec::new();
    for n in 0..40 {
        input.push(body(&format!("before-{n}"), json!({})));
        let mut taken = moved(&format!("{n}"), 1);
        taken["events"][0]["tags"] = json!([format!("name:{}", n / 2)]);
        let patterns = json!([{ "types": ["moved"], "tags": [format!("name:{}", n / 2)] }]);
        taken["append_condition"] = json!({ "fail_if": patterns });
        input.push(taken);
    }
    let ran = run_with(folder.path(), &["commit"], &lines(input));
    assert_eq!(ran.json().len(), 60, "{}", ran.err);
    for n in 0..40 {
        let line = 2 * n + 2;
        let refused = ran.err.contains(&format!("error[append_condition_failed]: line {line}: "));
        assert_eq!(refused, n % 2 == 1, "line {line}: {}", ran.err);
    }
    assert_eq!(ran.code, 3);
}
