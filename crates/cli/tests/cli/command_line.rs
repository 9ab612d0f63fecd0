//! The command line as a whole: its help, its completions, and how it chooses between a server and a store.

use std::fs;
use std::path::Path;

use crate::process::{Server, annals};
use crate::run::{Ran, folder, run};

/// Runs the binary with these variables in its environment.
fn run_in(folder: &Path, variables: &[(&str, &str)], arguments: &[&str]) -> Ran {
    let output = annals(folder).args(arguments).envs(variables.iter().copied()).output().expect("it runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    Ran { code: output.status.code().expect("a code"), out: text(output.stdout), err: text(output.stderr) }
}

/// A folder with a store in ./data of one event, behind a server, and an empty folder beside it.
fn served() -> (tempfile::TempDir, Server, tempfile::TempDir) {
    let (behind, beside) = (folder(), folder());
    run(behind.path(), &["commit", "--aggregate", "order/o-1", "--type", "order_placed"]).ok();
    let server = Server::start(behind.path());
    (behind, server, beside)
}

#[test]
fn a_configured_server_is_used_and_flags_win_over_it() {
    let (_behind, server, beside) = served();
    let (beside, read) = (beside.path(), ["log", "read"]);
    run(beside, &read).refused("not_a_store", 6);
    assert_eq!(run_in(beside, &[("ANNALS_SERVER", &server.url)], &read).ok().json().len(), 1);
    assert_eq!(run_in(beside, &[("ANNALS__SERVER__URL", &server.url)], &read).ok().json().len(), 1);

    fs::write(beside.join("annals.toml"), format!("[server]\nurl = \"{}\"\n", server.url)).expect("written");
    assert_eq!(run(beside, &read).ok().json().len(), 1, "from the file");
    let nowhere = [("ANNALS_SERVER", "http://127.0.0.1:1")];
    run_in(beside, &nowhere, &read).refused("unreachable", 5);
    assert_eq!(run_in(beside, &nowhere, &["log", "read", "--server", &server.url]).ok().json().len(), 1);
    run_in(beside, &nowhere, &["log", "read", "--store", "embedded:./none"]).refused("not_a_store", 6);
    run_in(beside, &[("ANNALS_SERVER", "")], &read).refused("not_a_store", 6);
    let shown = run_in(beside, &nowhere, &["config", "show"]).ok().out;
    assert!(shown.contains("url = \"http://127.0.0.1:1\"  # environment ANNALS_SERVER"), "{shown}");
}

#[test]
fn commands_that_work_on_a_store_refuse_a_server_and_say_that_they_ignore_a_configured_one() {
    let folder = folder();
    run(folder.path(), &["commit", "--aggregate", "order/o-1", "--type", "order_placed"]).ok();
    for command in [&["check"][..], &["pack"], &["export", "-"], &["restore", "--from", "x"], &["serve", "--dev"]] {
        let said = run(folder.path(), &[command, &["--server", "http://127.0.0.1:1"]].concat());
        let said = said.refused("invalid_config", 2);
        assert!(said.contains(command[0]) && said.contains("commit, transact, aggregate"), "{said}");
    }
    let server = [("ANNALS_SERVER", "http://127.0.0.1:1")];
    let checked = run_in(folder.path(), &server, &["check"]).ok();
    assert!(checked.err.contains("note: check does not work through a server"), "{}", checked.err);
    assert!(checked.err.contains("ANNALS_SERVER"), "{}", checked.err);
    assert_eq!(run_in(folder.path(), &server, &["check", "--store", "embedded:./data"]).ok().err, "");
}

#[test]
fn help_has_the_flags_of_every_command_in_a_section_of_their_own() {
    let folder = folder();
    for command in [&["--help"][..], &["log", "read", "--help"]] {
        let help = run(folder.path(), command).ok().out;
        let (own, global) = help.split_once("\nGlobal options:").expect("the section");
        for flag in ["--store", "--server", "--tenant", "--output", "--config"] {
            assert!(!own.contains(flag) && global.contains(flag), "{flag}: {help}");
        }
    }
    let help = run(folder.path(), &["--help"]).ok().out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains("for commit, transact, aggregate, log,") && help.contains("sequencer and held"), "{help}");
}

#[test]
fn completions_are_printed_for_each_shell() {
    let folder = folder();
    for (shell, says) in [("bash", "complete -F"), ("zsh", "#compdef annals"), ("fish", "complete -c annals")] {
        let script = run(folder.path(), &["completions", shell]).ok().out;
        assert!(script.contains(says) && script.contains("sequencer"), "{shell}");
    }
}
