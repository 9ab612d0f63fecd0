//! The program as a person runs it.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

fn microservices(folder: &Path, arguments: &[&str]) -> String {
    let program = env!("CARGO_BIN_EXE_microservices");
    let ran = Command::new(program).current_dir(folder).args(arguments).output().expect("it runs");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).expect("text")
}

fn lines_of<'a>(out: &'a str, event_type: &str) -> Vec<&'a str> {
    out.lines().filter(|line| line.starts_with(event_type)).collect()
}

/// What a line says after the type of its event.
fn order_and_data(line: &str) -> (&str, Value) {
    let mut words = line.splitn(3, ' ').skip(1);
    let mut next = || words.next().expect("a line has three parts");
    (next(), serde_json::from_str(next()).expect("JSON"))
}

/// In order, with stores in memory.
#[test]
fn every_order_is_shipped_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = microservices(folder.path(), &[]);
    assert_eq!(lines_of(&out, "order_placed").len(), 3, "{out}");
    let mut shipped: Vec<_> = lines_of(&out, "order_shipped").into_iter().map(order_and_data).collect();
    shipped.sort_unstable_by_key(|(order, _)| *order);
    let due = ["o-1", "o-2", "o-3"].map(|order| (order, json!({ "order": order, "carrier": "bike" })));
    assert_eq!(shipped, due, "{out}");
}

/// On disk, where the second run continues what the first one began: its servers have other ports.
#[test]
fn services_that_are_started_again_at_other_addresses_continue() {
    let folder = tempfile::tempdir().expect("a folder");
    let stores = ["--orders", "embedded:./orders", "--shipping", "embedded:./shipping"];
    for id in ["o-1", "o-2"] {
        let out = microservices(folder.path(), &[&stores[..], &[id]].concat());
        let shipped = lines_of(&out, "order_shipped");
        assert_eq!(shipped.len(), 1, "{out}");
        assert!(shipped[0].contains(id), "{out}");
    }
}
