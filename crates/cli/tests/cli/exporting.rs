//! `annals export` and the files that it leaves.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use serde_json::json;

use crate::process::{annals, signal};
use crate::run::{folder, lines, run, run_with};

/// The names in a folder.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8")).collect()
}

#[test]
fn an_export_that_is_interrupted_leaves_no_file_behind() {
    let folder = folder();
    let events: Vec<_> = (0..2_000).map(|n| json!({ "type": "t", "data": { "n": n } })).collect();
    let commit = |n: u32| json!({ "aggregate": { "name": "order", "id": format!("o-{n}") }, "events": events });
    run_with(folder.path(), &["commit"], &lines((0..20).map(commit))).ok();
    let mut command = annals(folder.path());
    let mut process = command.args(["export", "out.jsonl"]).stderr(Stdio::piped()).spawn().expect("it starts");
    // It is at work once its unfinished file is there.
    while !names(folder.path()).iter().any(|name| name.starts_with("out.jsonl")) {
        assert!(process.try_wait().expect("a child").is_none(), "it ended without a file");
    }
    signal("INT", process.id());
    assert_eq!(process.wait().expect("it ends").code(), Some(130));
    assert_eq!(names(folder.path()), ["data"]);
    run(folder.path(), &["export", "out.jsonl"]).ok();
    run(folder.path(), &["export", "out.jsonl"]).refused("folder_not_empty", 2);
    assert_eq!(names(folder.path()).len(), 2);
}

#[test]
fn an_export_is_refused_where_it_would_lack_undeclared_logs() {
    let folder = folder();
    let configuration = folder.path().join("annals.toml");
    fs::write(&configuration, "[tenants]\nnames = [\"default\", \"acme\"]\n").expect("written");
    run(folder.path(), &["commit", "--tenant", "acme", "--aggregate", "order/o-1", "--type", "t"]).ok();
    run(folder.path(), &["export", "all.jsonl"]).ok();
    fs::remove_file(&configuration).expect("removed");
    let said = run(folder.path(), &["export", "-"]);
    assert_eq!(said.out, "");
    let said = said.refused("invalid_config", 2);
    assert!(said.contains("acme/default") && said.contains("--declared-only"), "{said}");
    let part = run(folder.path(), &["export", "part.jsonl", "--declared-only"]).ok();
    assert!(part.err.contains("note: acme/default"), "{}", part.err);
    assert_eq!(part.json()[0]["tenant"], json!("default"));
}

#[test]
fn a_backup_does_not_delete_what_an_earlier_one_alone_has() {
    let folder = folder();
    let configuration = folder.path().join("annals.toml");
    fs::write(&configuration, "[tenants]\nnames = [\"default\", \"acme\"]\n").expect("written");
    run(folder.path(), &["commit", "--tenant", "acme", "--aggregate", "order/o-1", "--type", "t"]).ok();
    run(folder.path(), &["backup", "--to", "kept"]).ok();
    fs::remove_file(&configuration).expect("removed");
    let said = run(folder.path(), &["backup", "--to", "kept"]).refused("folder_not_empty", 2);
    assert!(said.contains("tenants/acme/default") && said.contains("help: Declare"), "{said}");
    let restored = run(folder.path(), &["restore", "--from", "kept", "--store", "embedded:./restored"]).ok().json();
    assert!(restored.iter().any(|log| log["tenant"] == json!("acme") && log["head"] == json!(1)), "{restored:?}");
}

#[test]
fn an_output_that_cannot_be_written_is_no_defect_of_annals() {
    let folder = folder();
    run(folder.path(), &["commit", "--aggregate", "order/o-1", "--type", "t"]).ok();
    for (arguments, code) in [(&["log", "read"][..], "unwritable_output"), (&["export", "-"], "disk_full")] {
        let full = fs::File::options().write(true).open("/dev/full").expect("the device");
        let output = annals(folder.path()).args(arguments).stdout(full).output().expect("it runs");
        let said = String::from_utf8(output.stderr).expect("UTF-8");
        assert_eq!(output.status.code(), Some(6), "{said}");
        assert!(said.contains(&format!("error[{code}]")) && said.contains("help: Make room"), "{said}");
    }
}
