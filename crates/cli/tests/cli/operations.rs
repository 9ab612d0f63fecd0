//! `annals check`, `repair`, `stats`, `backup` and `restore`, on real files.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::process::{Server, annals_at};
use crate::run::{Ran, body, folder, lines, run, run_with};

const SEGMENT: &str = "data/tenants/default/default/0000000001.segment";

/// Commits so many events of a few aggregates.
fn commit(folder: &Path, range: std::ops::Range<u64>, target: &[&str]) {
    let input = lines(range.map(|n| body(&format!("o-{}", n % 7), json!({ "n": n }))));
    run_with(folder, &[&["commit"], target].concat(), &input).ok();
}

fn first(ran: Ran) -> Value {
    ran.ok().json().into_iter().next().expect("a line")
}

fn events(folder: &Path, store: &str) -> Vec<Value> {
    run(folder, &["log", "read", "--store", store]).ok().json()
}

/// Where the frames of the first segment begin.
fn frames(bytes: &[u8]) -> Vec<usize> {
    (64..bytes.len() - 1).step_by(8).filter(|at| bytes[*at..at + 2] == [0x41, 0x4e] && bytes[at + 2] == 1).collect()
}

#[test]
fn packing_says_what_it_did_and_changes_nothing_that_is_read() {
    let folder = folder();
    run(folder.path(), &["pack"]).refused("not_a_store", 6);
    commit(folder.path(), 0..20, &[]);
    let before = events(folder.path(), "embedded:./data");
    let report = first(run(folder.path(), &["pack"]));
    // All of it stands in the segment that is written to.
    assert_eq!((&report["logs"][0]["segments"], &report["logs"][0]["left"]), (&json!(0), &json!(0)));
    assert!(run(folder.path(), &["pack", "--output", "table"]).ok().out.contains("BYTES AFTER"));
    assert_eq!(events(folder.path(), "embedded:./data"), before);
    run(folder.path(), &["pack", "--server", "http://127.0.0.1:1"]).refused("invalid_config", 2);
}

#[test]
fn a_check_says_what_is_wrong_and_a_repair_cuts_it_away() {
    let folder = folder();
    run(folder.path(), &["check"]).refused("not_a_store", 6);
    commit(folder.path(), 0..50, &[]);
    let report = first(run(folder.path(), &["check"]));
    assert_eq!((&report["damage"], &report["logs"][0]["events"]), (&json!([]), &json!(50)));
    assert!(run(folder.path(), &["check", "--output", "table"]).ok().out.contains("No damage."));
    let path = folder.path().join(SEGMENT);
    let mut bytes = fs::read(&path).expect("read");
    let start = frames(&bytes)[20];
    bytes[start + 50] ^= 1;
    fs::write(&path, &bytes).expect("written");
    let ran = run(folder.path(), &["check"]);
    assert_eq!(ran.code, 6);
    let damage = &ran.json()[0]["damage"][0];
    assert_eq!(
        (&damage["kind"], &damage["offset"], &damage["sequence_number"]),
        (&json!("payload"), &json!(start), &json!(20))
    );
    assert!(run(folder.path(), &["check", "--output", "table"]).out.contains("repair --cut-at"));
    run_with(folder.path(), &["commit"], &lines([body("o-1", json!({}))])).code.ne(&0).then_some(()).expect("refused");
    let said = run(folder.path(), &["repair", "--cut-at", "30", "--yes"]).refused("invalid_range", 2);
    assert!(said.contains("is 20"), "{said}");
    let plan = run(folder.path(), &["repair", "--cut-at", "20"]);
    assert!(plan.code == 2 && plan.err.contains("--yes") && plan.json()[0]["done"] == json!(false), "{plan:?}");
    assert_eq!(fs::read(&path).expect("read"), bytes, "nothing was done");
    let done = first(run(folder.path(), &["repair", "--cut-at", "20", "--yes"]));
    let aside = folder.path().join("data").join(done["kept_in"].as_str().expect("a folder"));
    assert_eq!(fs::read(aside.join("0000000001.segment")).expect("it is kept"), bytes);
    run(folder.path(), &["check"]).ok();
    assert_eq!(events(folder.path(), "embedded:./data").len(), 20);
    commit(folder.path(), 100..101, &[]);
    run(folder.path(), &["repair", "--cut-at", "3", "--tenant", "nobody"]).refused("unknown_tenant", 4);
    run(folder.path(), &["check", "--store", "memory:"]).refused("invalid_config", 2);
    run(folder.path(), &["check", "--server", "http://127.0.0.1:1"]).refused("invalid_config", 2);
}

/// The two lines of an error: what happened, and what to do about it.
#[track_caller]
fn said(ran: Ran, code: &str, exit: i32) -> (String, String) {
    let said = ran.refused(code, exit);
    let (what, help) = said.trim_end().split_once("\nhelp: ").unwrap_or_else(|| panic!("no advice: {said}"));
    assert!(!what.contains('\n') && !help.contains('\n'), "{said}");
    (what.to_owned(), help.to_owned())
}

/// Runs a check as a user who may use every file of the store but this one, whoever runs the test: root may read what nobody may.
#[cfg(unix)]
fn check_without(folder: &Path, file: &Path) -> Ran {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
    use std::os::unix::process::CommandExt;
    const NOBODY: u32 = 65_534;
    // The program stands in the folder as well, because its own may lie below one that another user may not enter.
    let program = folder.join("annals");
    fs::copy(env!("CARGO_BIN_EXE_annals"), &program).expect("copied");
    let mut command = annals_at(&program, folder);
    command.arg("check");
    if fs::metadata(folder).expect("it is there").uid() == 0 {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).expect("set");
        let mut below = vec![folder.join("data")];
        while let Some(path) = below.pop() {
            chown(&path, Some(NOBODY), Some(NOBODY)).expect("set");
            if path.is_dir() {
                below.extend(fs::read_dir(&path).expect("a folder").map(|entry| entry.expect("an entry").path()));
            }
        }
        chown(file, Some(0), Some(0)).expect("set");
        command.uid(NOBODY).gid(NOBODY);
    }
    fs::set_permissions(file, fs::Permissions::from_mode(0o000)).expect("set");
    let done = command.output().expect("it runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    Ran { code: done.status.code().expect("a code"), out: text(done.stdout), err: text(done.stderr) }
}

/// The bytes are not damaged, and no backup need be restored: the system does not hand them over.
#[cfg(unix)]
#[test]
fn a_check_of_a_file_that_may_not_be_read_names_it_and_advises_another_user() {
    for file in [SEGMENT, "data/tenants/default/tenant.json"] {
        let folder = folder();
        commit(folder.path(), 0..5, &[]);
        let (what, help) = said(check_without(folder.path(), &folder.path().join(file)), "read_failed", 6);
        let name = file.rsplit('/').next().expect("a name");
        assert!(what.contains(name) && what.contains("Permission denied"), "{what}");
        assert!(help.contains("as a user who may read") && !help.contains("backup"), "{help}");
    }
}

#[test]
fn a_repair_without_yes_advises_to_read_the_plan_and_repeat_the_command() {
    let folder = folder();
    commit(folder.path(), 0..20, &[]);
    for repair in [&["repair", "--cut-at", "10"][..], &["repair", "--indexes"]] {
        let (what, help) = said(run(folder.path(), repair), "invalid_config", 2);
        assert!(what.contains("nothing was changed") && what.contains("--yes"), "{what}");
        assert!(help.contains("plan above") && help.contains("--yes") && !help.contains("annals.toml"), "{help}");
    }
    assert_eq!(events(folder.path(), "embedded:./data").len(), 20);
}

/// None of these files and folders has a permission that belongs to others.
#[cfg(unix)]
fn closed_to_others(folder: &Path, paths: &[&str], of_others: u32) {
    use std::os::unix::fs::MetadataExt;
    for path in paths {
        let mode = fs::metadata(folder.join(path)).expect("it is there").mode();
        assert_eq!(mode & of_others, 0, "{path} has {mode:o}");
    }
}

#[test]
fn a_running_server_is_backed_up_and_the_backup_is_restored_whole_and_in_part() {
    let folder = folder();
    let server = Server::start(folder.path());
    let target = ["--server", &server.url];
    commit(folder.path(), 0..40, &target);
    run(folder.path(), &["check"]).refused("store_locked", 6);
    for to in ["backup.tar", "kept"] {
        let backup = first(run(folder.path(), &[&["backup", "--to", to], &target[..]].concat()));
        assert_eq!(
            (&backup["head"], &backup["tenant"], &backup["scope"]),
            (&json!(40), &json!("default"), &json!("default"))
        );
    }
    closed_to_others(folder.path(), &["data/lock", "data/tenants", "data/tenants/default/tenant.json"], 0o077);
    closed_to_others(folder.path(), &["backup.tar", "kept/tenants", "kept/manifest.json"], 0o027);
    let all = run(folder.path(), &[&["log", "read"], &target[..]].concat()).ok().json();
    commit(folder.path(), 40..60, &target);
    let again = first(run(folder.path(), &[&["backup", "--to", "kept"], &target[..]].concat()));
    assert_eq!(again["head"], json!(60));
    run(folder.path(), &[&["backup", "--to", "backup.tar"], &target[..]].concat()).refused("folder_not_empty", 2);
    let restored = first(run(folder.path(), &["restore", "--from", "backup.tar", "--store", "embedded:./a"]));
    assert_eq!((&restored["head"], &restored["incarnation"]), (&json!(40), &json!(1)));
    assert_eq!(events(folder.path(), "embedded:./a"), all);
    let restore = ["restore", "--from", "kept", "--store", "embedded:./b", "--to-sequence-number", "17"];
    assert_eq!(first(run(folder.path(), &restore))["head"], json!(17));
    assert_eq!(events(folder.path(), "embedded:./b"), all[..17]);
    run(folder.path(), &restore).refused("folder_not_empty", 2);
    run(folder.path(), &["restore", "--from", "nothing", "--store", "embedded:./c"]).refused("unreadable_input", 2);
    let bytes = fs::read(folder.path().join("backup.tar")).expect("read");
    fs::write(folder.path().join("half.tar"), &bytes[..bytes.len() / 2]).expect("written");
    run(folder.path(), &["restore", "--from", "half.tar", "--store", "embedded:./c"]).refused("invalid_backup", 6);
    run(folder.path(), &["restore", "--from", "backup.tar", "--store", "embedded:./c"]).ok();
    // The same without a server.
    assert_eq!(server.terminate(), Some(0));
    let backup = first(run(folder.path(), &["backup", "--to", "closed.tar"]));
    assert_eq!(backup["head"], json!(60));
    run(folder.path(), &["backup", "--to", "x.tar", "--store", "embedded:./nothing"]).refused("not_a_store", 6);
}

#[test]
fn what_a_store_holds_is_counted_the_same_with_and_without_a_server() {
    let folder = folder();
    commit(folder.path(), 0..30, &[]);
    let local = first(run(folder.path(), &["stats"]));
    assert_eq!((&local["events"], &local["commits"], &local["aggregates"]), (&json!(30), &json!(30), &json!(7)));
    assert_eq!(local["events_by_type"], json!({ "order_placed": 30 }));
    assert_eq!(local["aggregates_by_name"], json!({ "order": 7 }));
    assert!(run(folder.path(), &["stats", "--output", "table"]).ok().out.contains("order_placed"));
    let server = Server::start(folder.path());
    assert_eq!(first(run(folder.path(), &["stats", "--server", &server.url])), local);
}

#[test]
fn below_the_floor_of_free_disk_commits_are_refused_and_reads_go_on() {
    let folder = folder();
    commit(folder.path(), 0..3, &[]);
    // More than any disk has.
    fs::write(folder.path().join("annals.toml"), "[store]\nmin_free_disk_bytes = 1000000000000000000\n")
        .expect("written");
    let refused = run_with(folder.path(), &["commit"], &lines([body("o-1", json!({}))]));
    assert!(refused.code == 6 && refused.err.contains("disk_full"), "{refused:?}");
    assert_eq!(events(folder.path(), "embedded:./data").len(), 3);
}

#[test]
fn a_store_is_exported_and_imported_whole() {
    let folder = folder();
    fs::write(
        folder.path().join("annals.toml"),
        "[tenants]\nnames = [\"default\", \"other\"]\nscopes = [\"partner\"]\n",
    )
    .expect("written");
    commit(folder.path(), 0..40, &[]);
    commit(folder.path(), 0..10, &["--tenant", "other"]);
    let exported = run(folder.path(), &["export", "store.jsonl"]).ok().json();
    assert_eq!(exported.len(), 4);
    let whole = fs::read(folder.path().join("store.jsonl")).expect("an export");
    let said = run(folder.path(), &["export", "store.jsonl"]).refused("folder_not_empty", 2);
    assert!(said.contains("was not changed") && said.contains("help: Name a new file"), "{said}");
    assert_eq!(fs::read(folder.path().join("store.jsonl")).expect("an export"), whole);
    let said = run(folder.path(), &["import", "store.jsonl", "--store", "embedded:./lines"]).refused("invalid_body", 2);
    assert!(said.contains("import it with --whole"), "{said}");
    fs::remove_file(folder.path().join("annals.toml")).expect("removed");
    let import = ["import", "--whole", "store.jsonl", "--store", "embedded:./new"];
    let imported = run(folder.path(), &import).ok();
    assert!(imported.err.contains("[tenants]"), "{}", imported.err);
    assert_eq!(imported.json(), exported);
    assert_eq!(run(folder.path(), &import).ok().json(), exported, "once more changes nothing");
    assert_eq!(events(folder.path(), "embedded:./new"), events(folder.path(), "embedded:./data"));
    let hashes = |store: &str| -> Vec<Value> {
        let report = first(run(folder.path(), &["check", "--store", store]));
        report["logs"].as_array().expect("logs").iter().map(|log| log["events_hash"].clone()).collect()
    };
    assert_eq!(hashes("embedded:./new"), hashes("embedded:./data"));
    commit(folder.path(), 0..1, &["--store", "embedded:./other"]);
    run(folder.path(), &["import", "--whole", "store.jsonl", "--store", "embedded:./other"]).refused("other_events", 3);
    let piped = run(folder.path(), &["export", "-", "--declared-only"]).ok();
    run_with(folder.path(), &["import", "--whole", "-", "--store", "embedded:./piped"], &piped.out).ok();
    let newer = piped.out.replacen("\"annals_export\":3", "\"annals_export\":99", 1);
    run_with(folder.path(), &["import", "--whole", "-", "--store", "embedded:./x"], &newer).refused("newer_format", 6);
    run(folder.path(), &["export", "x.jsonl", "--store", "embedded:./nothing"]).refused("not_a_store", 6);
    assert!(!folder.path().join("x.jsonl").exists());
}

/// A store with a record under an index and a stream, made through the library.
fn with_maps(folder: &Path) {
    use annals::bson::{RawDocumentBuf, doc};
    use annals::{Collection, DEFAULT_SCOPE, DEFAULT_TENANT, Included, Index, Verdicts};

    commit(folder, 0..20, &[]);
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let store = annals::open(&format!("embedded:{}/data", folder.display())).await.expect("it opens");
        let records = store.records(DEFAULT_TENANT).expect("a tenant");
        records.declare(Collection::new("things").index(Index::on("name").unique())).await.expect("it is declared");
        let thing = RawDocumentBuf::try_from(&doc! { "_id": 1, "name": "n" }).expect("a document");
        records.insert("things", thing).await.expect("it is inserted");
        let streams = store.streams(DEFAULT_TENANT, DEFAULT_SCOPE).expect("a scope");
        let verdicts = Verdicts::new("s", 0..20).include(Included::new(3)).include(Included::new(17));
        streams.append(verdicts).await.expect("it is appended");
        store.close().await;
    });
}

#[test]
fn records_and_streams_are_checked_backed_up_restored_exported_and_imported() {
    let folder = folder();
    with_maps(folder.path());
    let report = first(run(folder.path(), &["check"]));
    let map = &report["maps"][0];
    assert_eq!((&map["records"], &map["index_entries"], &map["stream_entries"]), (&json!(1), &json!(1), &json!(2)));
    assert!(run(folder.path(), &["check", "--output", "table"]).ok().out.contains("STREAM ENTRIES"));
    let backup = run(folder.path(), &["backup", "--to", "b.tar"]).ok();
    assert!(backup.err.is_empty(), "nothing is left out: {}", backup.err);
    assert!(backup.json()[1]["records_and_streams_bytes"].as_u64().expect("bytes") > 0);
    let table = run(folder.path(), &["restore", "--from", "b.tar", "--store", "embedded:./a", "--output", "table"]);
    assert!(table.ok().out.contains("Records and streams of default"));
    let restored = first(run(folder.path(), &["check", "--store", "embedded:./a"]));
    assert_eq!(restored["maps"][0]["records"], json!(1));
    let moved = run(folder.path(), &["export", "whole.jsonl"]).ok().json();
    assert_eq!((&moved[1]["name"], &moved[1]["records"]), (&json!("things"), &json!(1)));
    assert_eq!((&moved[2]["name"], &moved[2]["entries"], &moved[2]["progress"]), (&json!("s"), &json!(2), &json!(20)));
    let same = run(folder.path(), &["import", "whole.jsonl", "--whole", "--store", "embedded:./c"]).ok().json();
    assert_eq!(same, moved);
    let imported = first(run(folder.path(), &["check", "--store", "embedded:./c"]));
    assert_eq!(imported["maps"][0]["stream_entries"], json!(2));
    // What a repair does to them, and what it does not.
    let plan = run(folder.path(), &["repair", "--cut-at", "10", "--output", "table"]);
    assert!(plan.out.contains("Stream s keeps 1 of 2") && plan.out.contains("Records are not changed"), "{}", plan.out);
    run(folder.path(), &["repair", "--indexes"]).refused("invalid_config", 2);
    let made = first(run(folder.path(), &["repair", "--indexes", "--yes"]));
    assert_eq!((&made["indexes"], &made["done"], &made["wrong"]), (&json!(1), &json!(true), &json!([])));
    assert_eq!(run(folder.path(), &["repair", "--indexes", "--cut-at", "1"]).code, 2, "one of both");
    assert_eq!(run(folder.path(), &["repair"]).code, 2, "one of both");
}

/// A log that lost its end opens for reading, and what is left of it would pass for all of it.
#[test]
fn a_damaged_log_is_not_exported_as_if_it_were_whole() {
    let folder = folder();
    fs::write(folder.path().join("annals.toml"), "[tenants]\nnames = [\"default\", \"other\"]\n").expect("written");
    commit(folder.path(), 0..20, &[]);
    commit(folder.path(), 0..20, &["--tenant", "other"]);
    run(folder.path(), &["export", "whole.jsonl"]).ok();
    let segment = folder.path().join("data/tenants/other/default/0000000001.segment");
    let mut bytes = fs::read(&segment).expect("read");
    let start = frames(&bytes)[10];
    bytes[start + 50] ^= 1;
    fs::write(&segment, &bytes).expect("written");
    for more in [&[][..], &["--without-records"]] {
        let ran = run(folder.path(), &[&["export", "left.jsonl"], more].concat()).refused("store_damaged", 6);
        assert!(ran.contains("other/default"), "{}", ran);
        assert!(!folder.path().join("left.jsonl").exists(), "it looks as if it were whole");
    }
}

#[test]
fn a_store_whose_records_are_lost_says_so_and_its_logs_are_exported_and_backed_up() {
    let folder = folder();
    with_maps(folder.path());
    run(folder.path(), &["backup", "--to", "kept"]).ok();
    let before = events(folder.path(), "embedded:./data");
    fs::remove_dir_all(folder.path().join("data/tenants/default/_engine")).expect("it is removed");
    let check = run(folder.path(), &["check"]);
    assert_eq!(check.code, 6, "{}", check.err);
    let damage = &check.json()[0]["damage"][0];
    assert_eq!(damage["file"], json!("tenants/default/_engine/map.redb"));
    assert!(damage["advice"].as_str().expect("text").contains("--without-records"), "{damage}");
    for (command, left) in [(&["export", "e.jsonl"][..], "e.jsonl"), (&["backup", "--to", "b.tar"], "b.tar")] {
        run(folder.path(), command).refused("store_damaged", 6);
        assert!(!folder.path().join(left).exists(), "{left} looks as if it were whole");
    }
    let exported = run(folder.path(), &["export", "e.jsonl", "--without-records"]).ok();
    assert!(exported.err.contains("left out"), "{}", exported.err);
    run(folder.path(), &["import", "e.jsonl", "--whole", "--store", "embedded:./imported"]).ok();
    assert_eq!(events(folder.path(), "embedded:./imported"), before);
    // The earlier backup has the records still.
    run(folder.path(), &["backup", "--to", "kept", "--without-records"]).refused("folder_not_empty", 2);
    let backup = run(folder.path(), &["backup", "--to", "b.tar", "--without-records"]).ok();
    assert!(backup.err.contains("tenants/default/_engine is not in the backup"), "{}", backup.err);
    run(folder.path(), &["restore", "--from", "b.tar", "--store", "embedded:./restored"]).ok();
    assert_eq!(events(folder.path(), "embedded:./restored"), before);
    assert!(first(run(folder.path(), &["check", "--store", "embedded:./restored"]))["damage"] == json!([]));
}
