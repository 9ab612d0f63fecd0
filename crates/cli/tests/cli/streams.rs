//! `annals stream`.

use std::path::Path;

use annals::{DEFAULT_SCOPE, DEFAULT_TENANT, Included, Verdicts};
use serde_json::{Value, json};

use crate::process::Server;
use crate::run::{body, folder, lines, run, run_with};

/// A store of ten events in `folder`, and a stream that holds the even ones, in turn in no partition and in "p".
fn store_with_a_stream(folder: &Path) {
    run_with(folder, &["commit"], &lines((0..10).map(|n| body("o-1", json!({ "n": n }))))).ok();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let url = format!("embedded:{}", folder.join("data").display());
        let store = annals::open(&url).await.expect("it opens");
        let streams = store.streams(DEFAULT_TENANT, DEFAULT_SCOPE).expect("there");
        let all = (0..5).fold(Verdicts::new("even", 0..9), |all, n| {
            all.include(if n % 2 == 0 { Included::new(n * 2) } else { Included::of(n * 2, "p") })
        });
        streams.append(all).await.expect("they are appended");
        streams.append(Verdicts::new("none", 0..3)).await.expect("they are appended");
        store.close().await;
    });
}

fn positions(lines: &[Value]) -> Vec<u64> {
    lines.iter().map(|line| line["position"].as_u64().expect("a number")).collect()
}

#[test]
fn streams_are_listed_and_read() {
    let folder = folder();
    store_with_a_stream(folder.path());
    let list = |arguments: &[&str]| run(folder.path(), &[&["stream", "list"], arguments].concat()).ok();
    let even = json!({"name": "even", "head": 5, "progress": 9, "incarnation_start": 0});
    let none = json!({"name": "none", "head": 0, "progress": 3, "incarnation_start": 0});
    assert_eq!(list(&[]).json(), [even, none.clone()]);
    assert_eq!(list(&["--after", "even"]).json(), [none]);
    let table = list(&["--output", "table"]).out;
    assert!(table.starts_with("NAME") && table.lines().count() == 3, "{table}");

    let read = |arguments: &[&str]| run(folder.path(), &[&["stream", "read", "even"], arguments].concat()).ok();
    let log = run(folder.path(), &["log", "read"]).ok().json();
    let all = read(&[]).json();
    for (line, position) in all.iter().zip(0..) {
        let partition = if position % 2 == 0 { Value::Null } else { "p".into() };
        assert_eq!(*line, json!({"position": position, "partition": partition, "event": log[position * 2]}));
    }
    assert_eq!(all.len(), 5);
    for (arguments, expected) in [
        (&["--from", "3"][..], &[3, 4][..]),
        (&["--from", "1", "--to", "3"], &[1, 2]),
        (&["--limit", "2"], &[0, 1]),
        (&["--partition", "p"], &[1, 3]),
        (&["--without-partition", "--from", "1"], &[2, 4]),
        (&["--from", "9"], &[]),
    ] {
        assert_eq!(positions(&read(arguments).json()), expected, "{arguments:?}");
    }
    let table = read(&["--output", "table"]).out;
    assert!(table.starts_with("  POSITION") && table.lines().count() == 6, "{table}");
}

#[test]
fn what_cannot_be_meant_is_refused() {
    let folder = folder();
    store_with_a_stream(folder.path());
    let refused = |arguments: &[&str], code: &str| {
        run(folder.path(), &[&["stream", "read"], arguments].concat()).refused(code, 2);
    };
    refused(&["a b"], "invalid_name");
    refused(&["even", "--from", "3", "--to", "2"], "invalid_range");
    refused(&["even", "--partition", ""], "invalid_id");
    run(folder.path(), &["stream", "read", "even", "--scope", "nowhere"]).refused("unknown_scope", 4);
    let both = run(folder.path(), &["stream", "read", "even", "--partition", "p", "--without-partition"]);
    assert_eq!(both.code, 2, "{}", both.err);
}

#[test]
fn a_servers_streams_are_what_its_store_holds() {
    let folder = folder();
    store_with_a_stream(folder.path());
    let reads: &[&[&str]] = &[
        &["stream", "list"],
        &["stream", "read", "even"],
        &["stream", "read", "even", "--partition", "p", "--limit", "1"],
        &["stream", "read", "even", "--without-partition", "--from", "1", "--output", "table"],
        &["stream", "read", "never"],
    ];
    let here: Vec<String> = reads.iter().map(|read| run(folder.path(), read).ok().out).collect();
    let server = Server::start(folder.path());
    for (read, here) in reads.iter().zip(here) {
        assert_eq!(run(folder.path(), &[read, &["--server", &server.url][..]].concat()).ok().out, here, "{read:?}");
    }
    assert_eq!(server.terminate(), Some(0));
}
