//! `annals record`.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::process::{Server, annals};
use crate::run::{Ran, folder, lines, run, run_with};

fn record(folder: &Path, arguments: &[&str]) -> Ran {
    run(folder, &[&["record"], arguments].concat())
}

const INDEXES: &str = r#"[{"fields":[{"field":"email"}],"unique":true,"sparse":true}]"#;

/// A store with the collection "customers", of whom there are ten.
fn store_with_customers(folder: &Path) {
    record(folder, &["declare", "customers", "--indexes", INDEXES]).ok();
    let customers =
        lines((0..10).map(|n| json!({"_id": format!("c-{n}"), "n": n, "email": format!("{n}@example.org")})));
    let inserted = run_with(folder, &["record", "insert", "customers"], &customers).ok().json();
    assert_eq!(inserted.len(), 10);
    assert_eq!(inserted[3]["id"], "c-3");
}

fn ids(ran: &Ran) -> Vec<Value> {
    ran.json().iter().map(|line| line["document"]["_id"].clone()).collect()
}

#[test]
fn records_are_declared_inserted_and_found() {
    let folder = folder();
    let folder = folder.path();
    store_with_customers(folder);
    let index =
        json!({"name": "email_1", "fields": [{"field": "email", "direction": "ASC"}], "unique": true, "sparse": true});
    assert_eq!(record(folder, &["list"]).ok().json(), [json!({"name": "customers", "indexes": [index]})]);
    let table = record(folder, &["list", "--output", "table"]).ok().out;
    assert!(table.starts_with("NAME") && table.contains("email_1"), "{table}");
    let one = record(folder, &["get", "customers", "c-4"]).ok().json();
    assert_eq!(one[0]["document"], json!({"_id": "c-4", "n": 4, "email": "4@example.org"}));
    let find = |arguments: &[&str]| record(folder, &[&["find", "customers"], arguments].concat()).ok();
    assert_eq!(ids(&find(&[])).len(), 10);
    let condition = r#"{"field":"n","operator":"BETWEEN","value":[3,6]}"#;
    assert_eq!(ids(&find(&["--condition", condition, "--sort", "-n", "--limit", "2"])), ["c-6", "c-5"]);
    let typed = "n between [3, 6] and (email startsWith '5' or email contains '3@EX' ignoreCase)";
    assert_eq!(ids(&find(&["--condition", typed])), ["c-3", "c-5"]);
    let by_email = "email = '4@example.org'";
    let explained = record(folder, &["explain", "customers", "--condition", by_email]).ok().json();
    let how = json!({"index": "email_1", "entries_examined": 1, "documents_examined": 1, "found": 1, "sorted": false});
    assert_eq!(explained, [how]);
    let table = record(folder, &["explain", "customers", "--condition", "n today", "--output", "table"]).ok().out;
    assert!(table.contains("documents examined  10") && table.contains("found               0"), "{table}");
    let only = find(&["--include", "n", "--limit", "1"]).json();
    assert_eq!(only[0]["document"], json!({"_id": "c-0", "n": 0}));
    let without = find(&["--exclude", "n,email", "--limit", "1"]).json();
    assert_eq!(without[0]["document"], json!({"_id": "c-0"}));
    let table = find(&["--output", "table"]).out;
    assert!(table.starts_with("  REVISION  ID") && table.lines().count() == 11, "{table}");
    assert_eq!(record(folder, &["count", "customers", "--condition", condition]).ok().json(), [json!({"count": 4})]);
    assert_eq!(record(folder, &["count", "customers", "--output", "table"]).ok().out, "10\n");
}

#[test]
fn records_are_replaced_and_deleted_if_they_are_as_expected() {
    let folder = folder();
    let folder = folder.path();
    store_with_customers(folder);
    let revision = |id: &str| record(folder, &["get", "customers", id]).ok().json()[0]["revision"].to_string();
    let document = |n: i32| format!(r#"{{"_id":"c-1","n":{n},"at":{{"$date":"2026-03-01T12:00:00Z"}}}}"#);
    let old = revision("c-1");
    let replace = |arguments: &[&str]| record(folder, &[&["replace", "customers"], arguments].concat());
    let told = replace(&["--document", &document(11), "--revision", &old]).ok().json();
    assert_eq!(told, [json!({"id": "c-1", "revision": revision("c-1").parse::<u64>().expect("a number")})]);
    replace(&["--document", &document(12), "--revision", &old]).refused("record_conflict", 3);
    replace(&[
        "--document",
        &document(12),
        "--matching",
        r#"{"field":"at","operator":"GT","value":{"$date":"2026-01-01T00:00:00Z"}}"#,
    ])
    .ok();
    let shown = record(folder, &["get", "customers", "c-1"]).ok().json()[0]["document"].clone();
    assert_eq!(shown, serde_json::from_str::<Value>(&document(12)).expect("JSON"));
    let new = r#"{"_id":7}"#;
    replace(&["--document", new]).refused("record_conflict", 3);
    replace(&["--document", new, "--or-insert"]).ok();
    record(folder, &["get", "customers", "7"]).refused("unknown_record", 4);
    assert_eq!(record(folder, &["get", "customers", "7", "--ejson"]).ok().json()[0]["document"], json!({"_id": 7}));
    let delete = |arguments: &[&str]| record(folder, &[&["delete", "customers"], arguments].concat());
    delete(&["7"]).refused("record_conflict", 3);
    delete(&["7", "--ejson"]).ok();
    delete(&["c-1", "--revision", &old]).refused("record_conflict", 3);
    delete(&["c-1", "--matching", r#"{"field":"n","operator":"EQ","value":12}"#]).ok();
    assert_eq!(record(folder, &["count", "customers"]).ok().json(), [json!({"count": 9})]);
}

#[test]
fn fields_of_a_record_are_set_and_a_record_is_checked() {
    let folder = folder();
    let folder = folder.path();
    store_with_customers(folder);
    let shown = |id: &str| record(folder, &["get", "customers", id]).ok().json()[0].clone();
    let set = |arguments: &[&str]| record(folder, &[&["set", "customers"], arguments].concat());
    let fields = r#"{"n": 11, "address.city": "Oslo", "at": {"$date": "2026-03-01T12:00:00Z"}}"#;
    let told = set(&["c-1", "--fields", fields, "--unset", "email"]).ok().json();
    assert_eq!(told, [json!({"id": "c-1", "revision": shown("c-1")["revision"]})]);
    let due = json!({"_id": "c-1", "n": 11, "address": {"city": "Oslo"}, "at": {"$date": "2026-03-01T12:00:00Z"}});
    assert_eq!(shown("c-1")["document"], due);
    set(&["c-1", "--unset", "at,address.city", "--matching", "n = 11"]).ok();
    assert_eq!(shown("c-1")["document"], json!({"_id": "c-1", "n": 11, "address": {}}));
    set(&["c-1", "--fields", "{\"n\":1}", "--matching", "n = 5"]).refused("record_conflict", 3);
    set(&["c-1", "--fields", "{\"n\":1}", "--revision", "1"]).refused("record_conflict", 3);
    set(&["7", "--ejson", "--fields", "{\"n\":1}"]).refused("record_conflict", 3);
    set(&["7", "--ejson", "--fields", "{\"n\":1}", "--or-insert"]).ok();
    set(&["c-1", "--fields", "[1]"]).refused("not_json", 2);
    set(&["c-1", "--fields", "{\"_id\":1}"]).refused("invalid_record", 2);
    let check = |arguments: &[&str]| record(folder, &[&["check", "customers"], arguments].concat());
    let revision = shown("c-1")["revision"].clone();
    assert_eq!(check(&["c-1", "--matching", "n = 11"]).ok().json(), [json!({"id": "c-1", "revision": revision})]);
    assert_eq!(check(&["none", "--absent"]).ok().json(), [json!({"id": "none", "revision": 0})]);
    check(&["c-1", "--revision", &revision.to_string()]).ok();
    check(&["7", "--ejson"]).ok();
    check(&["7"]).refused("record_conflict", 3);
    check(&["c-1", "--absent"]).refused("record_conflict", 3);
    check(&["c-1", "--matching", "n = 5"]).refused("record_conflict", 3);
    assert_eq!(shown("c-1")["revision"], revision);
}

#[test]
fn records_are_grouped_by_a_field() {
    let folder = folder();
    let folder = folder.path();
    record(folder, &["declare", "orders"]).ok();
    let order = |n: i32| {
        let at = json!({"$date": format!("2026-03-0{}T0{n}:00:00Z", 1 + n / 4)});
        let state = ["open", "paid"][n as usize % 2];
        json!({"_id": n, "state": state, "total": n, "at": at})
    };
    run_with(folder, &["record", "insert", "orders"], &lines((0..8).map(order))).ok();
    let group = |arguments: &[&str]| record(folder, &[&["group", "orders"], arguments].concat()).ok();
    let found = group(&["--by", "state", "--sum", "total", "--max", "total,at", "--where", "total > 0"]).json();
    let at = |day: i32, n: i32| json!({"$date": format!("2026-03-0{day}T0{n}:00:00Z")});
    let due = [
        json!({"key": "open", "count": 3, "figures": {"sum(total)": 12, "max(total)": 6, "max(at)": at(2, 6)}}),
        json!({"key": "paid", "count": 4, "figures": {"sum(total)": 16, "max(total)": 7, "max(at)": at(2, 7)}}),
    ];
    assert_eq!(found, due);
    let days = group(&["--by", "at", "--every", "day", "--limit", "1"]).json();
    assert_eq!(days, [json!({"key": at(1, 0), "count": 4, "figures": {}})]);
    assert_eq!(group(&["--avg", "total"]).json(), [json!({"key": null, "count": 8, "figures": {"avg(total)": 3.5}})]);
    let table = group(&["--by", "state", "--min", "total", "--output", "table"]).out;
    assert!(table.starts_with("KEY") && table.contains("min(total)") && table.lines().count() == 3, "{table}");
    record(folder, &["group", "orders", "--by", "a.0"]).refused("invalid_query", 2);
}

#[test]
fn a_refused_line_is_reported_and_the_others_go_on() {
    let folder = folder();
    let folder = folder.path();
    store_with_customers(folder);
    let input = "{\"_id\":\"n-1\"}\nnot json\n{\"_id\":\"c-1\"}\n{\"no\":\"id\"}\n{\"_id\":\"n-2\",\"email\":\"3@example.org\"}\n{\"_id\":\"n-3\"}\n";
    let ran = run_with(folder, &["record", "insert", "customers"], input);
    assert_eq!(ran.code, 2, "{}", ran.err);
    for report in [
        "error[not_json]: line 2: ",
        "error[duplicate_key]: line 3: ",
        "error[invalid_record]: line 4: ",
        "error[duplicate_key]: line 5: ",
    ] {
        assert!(ran.err.contains(report), "{report}: {}", ran.err);
    }
    let told: Vec<_> = ran.json().iter().map(|line| line["id"].clone()).collect();
    assert_eq!(told, ["n-1", "n-3"]);
    std::fs::write(folder.join("customers.jsonl"), "{\"_id\":\"n-1\",\"v\":2}\n{\"_id\":\"n-4\",\"v\":2}\n")
        .expect("written");
    let ran = record(folder, &["replace", "customers", "--file", "customers.jsonl", "--or-insert"]).ok();
    assert_eq!(ran.json().len(), 2);
    assert_eq!(record(folder, &["count", "customers"]).ok().json(), [json!({"count": 13})]);
}

#[test]
fn what_cannot_be_meant_is_refused() {
    let folder = folder();
    let folder = folder.path();
    record(folder, &["list"]).refused("not_a_store", 6);
    store_with_customers(folder);
    let refused = |arguments: &[&str], code: &str, exit: i32| record(folder, arguments).refused(code, exit);
    refused(&["count", "none"], "unknown_collection", 4);
    refused(&["find", "customers", "--condition", "{"], "not_json", 2);
    let said = refused(&["find", "customers", "--condition", "n = 5 and m ~ 7"], "invalid_condition", 2);
    assert!(said.contains("--condition: ") && said.contains("at character 13, \"~ 7\""), "{said}");
    refused(&["count", "customers", "--condition", "n today zone 'Nowhere'"], "invalid_condition", 2);
    let said = refused(&["find", "customers", "--condition", r#"{"feld":1}"#], "invalid_condition", 2);
    assert!(said.contains("--condition: condition.feld: "), "{said}");
    refused(
        &["find", "customers", "--condition", r#"{"field":"a","operator":"LIKE","value":1}"#],
        "invalid_condition",
        2,
    );
    refused(&["find", "customers", "--sort", "a.0"], "invalid_query", 2);
    refused(&["declare", "a b"], "invalid_collection", 2);
    refused(&["declare", "c", "--indexes", r#"[{"field":"a"}]"#], "invalid_body", 2);
    refused(&["declare", "customers", "--indexes", r#"[{"fields":[{"field":"email"}]}]"#], "index_conflict", 3);
    refused(&["insert", "customers", "--document", r#"{"_id":1,"a":1,"a":2}"#], "invalid_record", 2);
    refused(&["insert", "customers", "--document", "{}"], "invalid_record", 2);
    refused(&["get", "customers", "x", "--ejson"], "invalid_record", 2);
    for system in
        [&["declare", "_mine"][..], &["insert", "event-log", "--document", "{}"], &["delete", "order_snapshot", "1"]]
    {
        refused(system, "system_collection", 2);
    }
    let both = record(folder, &["delete", "customers", "c-1", "--revision", "1", "--matching", "{}"]);
    assert_eq!(both.code, 2, "{}", both.err);
}

#[test]
fn a_servers_records_are_what_its_store_holds() {
    let folder = folder();
    let folder = folder.path();
    store_with_customers(folder);
    let reads: &[&[&str]] = &[
        &["list"],
        &["get", "customers", "c-4"],
        &["find", "customers", "--sort", "-email"],
        &["find", "customers", "--output", "table", "--limit", "3"],
        &["count", "customers"],
    ];
    let here: Vec<String> = reads.iter().map(|read| record(folder, read).ok().out).collect();
    let server = Server::start(folder);
    let there = |arguments: &[&str]| record(folder, &[arguments, &["--server", &server.url]].concat());
    for (read, here) in reads.iter().zip(here) {
        assert_eq!(there(read).ok().out, here, "{read:?}");
    }
    let taken = there(&["insert", "customers", "--document", r#"{"_id":"x","email":"1@example.org"}"#]);
    let said = taken.refused("duplicate_key", 3);
    assert!(said.contains("email_1"), "{said}");
    there(&["insert", "event-log", "--document", "{}"]).refused("system_collection", 2);
    there(&["get", "customers", "none"]).refused("unknown_record", 4);

    there(&["watch", "customers"]).refused("no_feed", 3);
    there(&["watch", "nothing"]).refused("unknown_collection", 4);
    let declared: Value = serde_json::from_str(&there(&["declare", "customers", "--feed"]).ok().out).expect("JSON");
    assert_eq!(declared["feed"], true);
    let mut watching = annals(folder)
        .args(["record", "watch", "customers", "--new", "--server", &server.url])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut told = BufReader::new(watching.stdout.take().expect("piped")).lines();
    // It begins some time after it was started, so something happens until it tells of it.
    let (sender, first) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(told.next().expect("a line").expect("it is read")));
    let line = (0..200)
        .find_map(|n| {
            there(&["insert", "customers", "--document", &format!(r#"{{"_id":"new-{n}"}}"#)]).ok();
            first.try_recv().ok()
        })
        .expect("it tells of a change");
    let change: Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!((&change["collection"], &change["what"]), (&json!("customers"), &json!("inserted")));
    assert!(change["id"].as_str().is_some_and(|id| id.starts_with("new-")), "{change}");
    watching.kill().expect("it runs");
    watching.wait().expect("it ends");
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn records_and_queries_take_the_same_flags() {
    let folder = folder();
    let run = |arguments: &[&str]| run(folder.path(), arguments);
    for n in 1..=3 {
        run(&["commit", "--aggregate", &format!("order/o-{n}"), "--type", "t"]).ok();
        let snapshot = format!("{{\"version\": 1, \"state\": {{\"n\": {n}}}}}");
        run(&["snapshot", "save", "order", &format!("o-{n}"), &snapshot]).ok();
    }
    let json = r#"{"field": "state.n", "operator": "GTE", "value": 2}"#;
    for condition in
        [["--where", "state.n >= 2"], ["--where", json], ["--condition", "state.n >= 2"], ["--condition", json]]
    {
        let flags = [&condition[..], &["--sort", "-state.n", "--fields", "state.n", "--limit", "1"]].concat();
        let found = run(&[&["record", "find", "order_snapshot"], &flags[..]].concat()).ok().json();
        let queried = run(&[&["query", "order", "snapshots", "list"], &flags[..]].concat()).ok().json();
        assert_eq!((found.len(), queried.len()), (1, 1));
        assert_eq!(
            (&found[0]["document"]["state"]["n"], &queried[0]["state"]["n"]),
            (&3.into(), &3.into()),
            "{found:?} {queried:?}"
        );
    }
}
