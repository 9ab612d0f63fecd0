//! Stores that cannot be opened as they should be.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::json;

use crate::process::{annals, annals_at, signal};
use crate::run::{Ran, body, folder, lines, run, run_with};

/// Every file below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
        if entry.is_dir() { found.extend(files(&entry)) } else { found.push(entry) }
    }
    found.sort();
    found
}

fn contents(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    files(folder).into_iter().map(|file| (file.clone(), fs::read(file).expect("a file"))).collect()
}

#[test]
fn reading_a_store_that_is_not_there_creates_nothing() {
    let folder = folder();
    let said = run(folder.path(), &["log", "read"]).refused("not_a_store", 6);
    assert!(said.contains("./data"), "{said}");
    assert!(!folder.path().join("data").exists());
}

/// As the folder of a store looks while its disk is not mounted, and a new disk before a store is on it.
#[test]
fn a_folder_that_holds_no_store_is_never_read_as_an_empty_one() {
    let folder = folder();
    let data = folder.path().join("data");
    fs::create_dir(&data).expect("made");
    for other in ["none", "lost+found"] {
        if other != "none" {
            fs::create_dir(data.join(other)).expect("made");
        }
        let before = fs::read_dir(&data).expect("a folder").count();
        for command in [
            &["log", "read"][..],
            &["stats"],
            &["export", "-"],
            &["backup", "--to", "b.tar"],
            &["aggregate", "read", "order", "o-1"],
            &["record", "find", "things"],
            &["events", "list"],
            &["hold", "list"],
            &["retention", "list"],
            &["replay", "list"],
            &["topic", "list"],
            &["check"],
            &["pack"],
        ] {
            let said = run(folder.path(), command).refused("not_a_store", 6);
            assert!(said.contains("store.json"), "{command:?}: {said}");
            let there = fs::read_dir(&data).expect("a folder").count();
            assert_eq!(there, before, "{command:?} beside {other}");
        }
    }
    let said = run(folder.path(), &["log", "read"]).refused("not_a_store", 6);
    assert!(said.contains("./data") && said.contains("mount it there"), "{said}");
    // Without credentials a server could not be used by anybody, so it creates no store either.
    let said = run(folder.path(), &["serve", "--listen", "127.0.0.1:0"]).refused("invalid_config", 2);
    assert!(said.contains("mount it there") && said.contains("annals credential create"), "{said}");
    assert_eq!(fs::read_dir(&data).expect("a folder").count(), 1);
}

#[test]
fn a_commit_says_that_it_created_the_store() {
    let folder = folder();
    fs::create_dir(folder.path().join("data")).expect("made");
    let first = run_with(folder.path(), &["commit"], &lines([body("o-1", json!({}))])).ok();
    assert!(first.err.contains("created a new store") && first.err.contains("./data"), "{}", first.err);
    let second = run_with(folder.path(), &["commit"], &lines([body("o-2", json!({}))])).ok();
    assert!(!second.err.contains("created a new store"), "{}", second.err);
}

#[test]
fn a_folder_with_other_files_is_left_alone() {
    let folder = folder();
    fs::create_dir(folder.path().join("data")).expect("made");
    fs::write(folder.path().join("data/thesis.txt"), "precious").expect("written");
    run_with(folder.path(), &["commit"], &lines([body("o-1", json!({}))])).refused("not_a_store", 6);
    assert_eq!(files(&folder.path().join("data")), [folder.path().join("data/thesis.txt")]);
}

#[test]
fn a_store_of_a_newer_format_is_refused_and_not_touched() {
    let folder = folder();
    run_with(folder.path(), &["commit"], &lines([body("o-1", json!({}))])).ok();
    let root = folder.path().join("data/store.json");
    let mut text: serde_json::Value = serde_json::from_slice(&fs::read(&root).expect("read")).expect("JSON");
    text["format"] = json!(text["format"].as_u64().expect("a number") + 1);
    fs::write(&root, text.to_string()).expect("written");
    let before = contents(&folder.path().join("data"));
    run(folder.path(), &["log", "read"]).refused("newer_format", 6);
    run_with(folder.path(), &["commit"], &lines([body("o-2", json!({}))])).refused("newer_format", 6);
    assert!(contents(&folder.path().join("data")) == before);
}

/// Runs the binary as someone who may not write what belongs to the one who runs the tests.
fn run_without_rights(folder: &Path, arguments: &[&str]) -> Ran {
    const NOBODY: u32 = 65_534;
    // Where the tests were built, somebody else may not even enter.
    let place = tempfile::tempdir().expect("a folder");
    fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).expect("set");
    let program = place.path().join("annals");
    // By another process: a file that this one has open for writing, be it through a fork of another test, cannot be run.
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_annals")).arg(&program).status();
    assert!(copied.expect("cp runs").success());
    let mut command = annals_at(&program, folder);
    if fs::metadata(folder).expect("a folder").uid() == 0 {
        command.uid(NOBODY).gid(NOBODY);
    }
    let output = command.args(arguments).output().expect("it runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    Ran { code: output.status.code().expect("a code"), out: text(output.stdout), err: text(output.stderr) }
}

fn set_mode(folder: &Path, of_folders: u32, of_files: u32) {
    for entry in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
        if entry.is_dir() {
            set_mode(&entry, of_folders, of_files);
        } else {
            fs::set_permissions(&entry, fs::Permissions::from_mode(of_files)).expect("set");
        }
    }
    fs::set_permissions(folder, fs::Permissions::from_mode(of_folders)).expect("set");
}

#[test]
fn a_store_that_cannot_be_written_is_refused_with_what_to_do() {
    let folder = folder();
    run_with(folder.path(), &["commit"], &lines([body("o-1", json!({}))])).ok();
    let before = contents(&folder.path().join("data"));
    set_mode(folder.path(), 0o555, 0o444);
    let commit = ["commit", "--aggregate", "order/o-2", "--type", "t"];
    let refused = run_without_rights(folder.path(), &commit);
    let elsewhere = run_without_rights(folder.path(), &[&commit[..], &["--store", "embedded:./new"]].concat());
    set_mode(folder.path(), 0o755, 0o644);
    refused.refused("store_read_only", 6);
    elsewhere.refused("store_read_only", 6);
    assert!(contents(&folder.path().join("data")) == before);
}

#[test]
fn a_store_that_may_not_be_written_is_read_counted_exported_and_backed_up() {
    let folder = folder();
    let input = lines((0..20).map(|n| body("o-1", json!({ "n": n }))));
    run_with(folder.path(), &["commit"], &input).ok();
    let declare = ["record", "declare", "things"];
    run(folder.path(), &declare).ok();
    run(folder.path(), &["record", "insert", "things", "--document", "{\"_id\": \"a\", \"n\": 7}"]).ok();
    // As a process leaves it that was killed in the middle of a batch.
    let segment = folder.path().join("data/tenants/default/default/0000000001.segment");
    fs::remove_file(folder.path().join("data/tenants/default/default/checkpoint.json")).expect("removed");
    let exported = run(folder.path(), &["export", "-"]).ok().out;
    fs::remove_file(folder.path().join("data/tenants/default/default/checkpoint.json")).expect("removed");
    let before = contents(&folder.path().join("data"));
    let out = tempfile::tempdir().expect("a folder");
    fs::set_permissions(&out, fs::Permissions::from_mode(0o777)).expect("set");
    let backup = out.path().join("b.tar").display().to_string();
    set_mode(folder.path(), 0o555, 0o444);
    let ran: Vec<Ran> = [
        &["log", "read"][..],
        &["stats"],
        &["export", "-"],
        &["record", "find", "things"],
        &["aggregate", "read", "order", "o-1"],
        &["backup", "--to", &backup],
        &["check"],
    ]
    .iter()
    .map(|command| run_without_rights(folder.path(), command))
    .collect();
    set_mode(folder.path(), 0o755, 0o644);
    assert!(contents(&folder.path().join("data")) == before, "nothing was written to {}", segment.display());
    let mut ran = ran.into_iter().map(Ran::ok);
    assert_eq!(ran.next().expect("log read").json().len(), 20);
    assert_eq!(ran.next().expect("stats").json()[0]["events"], 20);
    // The first line says when it was made.
    let content = |export: String| export.split_once('\n').expect("lines").1.to_owned();
    assert_eq!(content(ran.next().expect("export").out), content(exported));
    assert!(ran.next().expect("record find").out.contains("\"n\":7"));
    assert!(ran.all(|ran| !ran.out.is_empty()));
    run(folder.path(), &["restore", "--from", &backup, "--store", "embedded:./restored"]).ok();
    assert_eq!(run(folder.path(), &["log", "read", "--store", "embedded:./restored"]).ok().json().len(), 20);
}

/// A store whose log ends in bytes that are no commit, as after a crash; gives the folder of the log.
fn with_torn_tail(folder: &Path) -> PathBuf {
    run_with(folder, &["commit"], &lines((0..3).map(|n| body("o-1", json!({ "n": n }))))).ok();
    let log = folder.join("data/tenants/default/default");
    let segment = log.join("0000000001.segment");
    let mut bytes = fs::read(&segment).expect("read");
    let end = bytes.iter().rposition(|byte| *byte != 0).expect("commits").next_multiple_of(8) + 64;
    bytes[end..end + 10].copy_from_slice(b"torn bytes");
    fs::write(&segment, bytes).expect("written");
    log
}

#[test]
fn a_torn_tail_that_is_cut_is_said_and_its_bytes_are_kept() {
    let folder = folder();
    let log = with_torn_tail(folder.path());
    let ran = run(folder.path(), &["log", "read"]).ok();
    assert_eq!(ran.json().len(), 3);
    assert!(ran.err.contains("truncated ") && ran.err.contains(".cut"), "{}", ran.err);
    let kept = files(&log).into_iter().find(|file| file.extension().is_some_and(|name| name == "cut"));
    let kept = fs::read(kept.expect("what was cut is kept")).expect("read");
    assert!(kept.windows(10).any(|bytes| bytes == b"torn bytes"), "{kept:?}");
    let again = run(folder.path(), &["log", "read"]).ok();
    assert!(!again.err.contains("truncated "), "{}", again.err);
    run(folder.path(), &["check"]).ok();
}

#[test]
fn packing_says_which_torn_tail_it_cut() {
    let folder = folder();
    with_torn_tail(folder.path());
    let ran = run(folder.path(), &["pack"]).ok();
    assert!(ran.err.contains("recovery of default/default: truncated ") && ran.err.contains(".cut"), "{}", ran.err);
    let again = run(folder.path(), &["pack"]).ok();
    assert!(!again.err.contains("truncated "), "{}", again.err);
}

#[test]
fn the_demo_says_which_torn_tail_it_cut() {
    let folder = folder();
    with_torn_tail(folder.path());
    let mut command = annals(folder.path());
    command.args(["demo", "--listen", "127.0.0.1:0", "--store", "embedded:./data"]);
    let mut demo = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut out = BufReader::new(demo.stdout.take().expect("piped")).lines();
    // It prints its address once the store is open.
    assert!(out.any(|line| line.expect("text").contains("http://127.0.0.1:")), "the demo ended early");
    signal("TERM", demo.id());
    let ended = demo.wait_with_output().expect("it ends");
    let said = String::from_utf8(ended.stderr).expect("UTF-8");
    assert!(said.contains("recovery of default/default: truncated ") && said.contains(".cut"), "{said}");
}

#[test]
fn a_store_damaged_in_the_middle_is_read_up_to_there_and_takes_no_commits() {
    let folder = folder();
    let input = lines((0..200).map(|n| body("o-1", json!({ "n": n, "marker": format!("marker-{n}-") }))));
    run_with(folder.path(), &["commit"], &input).ok();
    let find = |bytes: &[u8], text: &str| bytes.windows(text.len()).position(|window| window == text.as_bytes());
    let segment = files(&folder.path().join("data"))
        .into_iter()
        .find(|file| find(&fs::read(file).expect("read"), "marker-100-").is_some())
        .expect("the file that holds the event");
    let mut bytes = fs::read(&segment).expect("read");
    let at = find(&bytes, "marker-100-").expect("the event");
    bytes[at] ^= 0xff;
    fs::write(&segment, bytes).expect("written");
    let ran = run(folder.path(), &["log", "read"]);
    let shown = ran.json().len();
    assert!(shown <= 100, "{shown} events were shown");
    let said = ran.refused("store_damaged", 6);
    assert!(said.contains("damaged"), "{said}");
    run_with(folder.path(), &["commit"], &lines([body("o-2", json!({}))])).refused("store_damaged", 6);
}

#[test]
fn a_limit_of_the_size_of_files_is_an_error_and_does_not_kill_the_process() {
    let folder = folder();
    let plain = annals(folder.path());
    let mut command = Command::new("sh");
    // The first segment is larger, whether the shell counts in blocks of 512 or of 1,024 bytes.
    command.current_dir(folder.path()).arg("-c").arg("ulimit -f 8000 && exec \"$0\" \"$@\"").arg(plain.get_program());
    command.args(["commit", "--aggregate", "order/o-1", "--type", "placed"]);
    for (name, _) in plain.get_envs() {
        command.env_remove(name);
    }
    let ran = command.output().expect("it runs");
    let said = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.code(), Some(6), "{said}");
    assert!(said.contains("error[read_failed]") && said.contains("File too large"), "{said}");
    run(folder.path(), &["commit", "--aggregate", "order/o-1", "--type", "placed"]).ok();
}
