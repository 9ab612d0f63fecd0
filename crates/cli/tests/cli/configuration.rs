//! Where the configuration comes from, and what it refuses.

use std::fs;

use crate::process::annals;
use crate::run::{folder, run};

fn shown(folder: &std::path::Path, variables: &[(&str, &str)], arguments: &[&str]) -> (i32, String) {
    let mut command = annals(folder);
    let output = command.args(arguments).envs(variables.iter().copied()).output().expect("it runs");
    let text = [output.stdout, output.stderr].concat();
    (output.status.code().expect("a code"), String::from_utf8(text).expect("UTF-8"))
}

#[test]
fn defaults_then_file_then_environment_then_flags() {
    let folder = folder();
    let show = |variables: &[(&str, &str)], arguments: &[&str]| {
        let (code, text) = shown(folder.path(), variables, &[&["config", "show"], arguments].concat());
        assert_eq!(code, 0, "{text}");
        text
    };
    assert!(show(&[], &[]).contains("url = \"embedded:./data\"  # default"));
    fs::write(folder.path().join("annals.toml"), "[store]\nurl = \"embedded:./file\"\n[log]\nlevel = \"warn\"\n")
        .expect("written");
    assert!(show(&[], &[]).contains("url = \"embedded:./file\"  # annals.toml"));
    let variable = [("ANNALS__STORE__URL", "embedded:./variable")];
    assert!(show(&variable, &[]).contains("url = \"embedded:./variable\"  # environment ANNALS__STORE__URL"));
    let text = show(&variable, &["--store", "embedded:./flag"]);
    assert!(text.contains("url = \"embedded:./flag\"  # --store"), "{text}");
    assert!(text.contains("level = \"warn\"  # annals.toml"), "{text}");
}

#[test]
fn what_is_shown_is_a_configuration_file_itself() {
    let folder = folder();
    let text = run(folder.path(), &["config", "show"]).ok().out;
    fs::write(folder.path().join("shown.toml"), &text).expect("written");
    let again = run(folder.path(), &["config", "show", "--config", "shown.toml"]).ok().out;
    assert_eq!(again.replace("shown.toml", "default"), text);
}

#[test]
fn unknown_keys_are_errors_that_name_the_key() {
    let folder = folder();
    let log = ["log", "read"];
    let (code, said) = shown(folder.path(), &[("ANNALS__STORE__URLL", "x")], &log);
    assert!(code == 2 && said.contains("error[invalid_config]: ") && said.contains("store.urll"), "{said}");
    fs::write(folder.path().join("annals.toml"), "[store]\nurll = \"x\"\n").expect("written");
    let said = run(folder.path(), &log).refused("invalid_config", 2);
    assert!(said.contains("annals.toml") && said.contains("store.urll"), "{said}");
    fs::write(folder.path().join("annals.toml"), "[strore]\n").expect("written");
    assert!(run(folder.path(), &log).refused("invalid_config", 2).contains("strore"));
    fs::write(folder.path().join("annals.toml"), "[log]\nlevel = 3\n").expect("written");
    assert!(run(folder.path(), &log).refused("invalid_config", 2).contains("log.level"));
    fs::write(folder.path().join("annals.toml"), "[log]\nformat = \"xml\"\n").expect("written");
    assert!(run(folder.path(), &log).refused("invalid_config", 2).contains("log.format"));
    fs::write(folder.path().join("annals.toml"), "[log\n").expect("written");
    assert!(run(folder.path(), &log).refused("invalid_config", 2).contains("annals.toml"));
}

#[test]
fn a_misspelt_log_level_is_refused() {
    let folder = folder();
    let (code, said) = shown(folder.path(), &[("ANNALS__LOG__LEVEL", "inof")], &["config", "show"]);
    assert!(
        code == 2 && said.contains("error[invalid_config]: log.level: \"inof\"") && said.contains("info"),
        "{said}"
    );
}

#[test]
fn a_configuration_file_that_is_named_has_to_be_there() {
    let folder = folder();
    let said = run(folder.path(), &["config", "show", "--config", "nowhere.toml"]).refused("invalid_config", 2);
    assert!(said.contains("nowhere.toml"), "{said}");
}

#[test]
fn tenants_and_scopes_are_declared_by_configuration() {
    let folder = folder();
    fs::write(
        folder.path().join("annals.toml"),
        "[tenants]\nnames = [\"acme\", \"umbrella\"]\nscopes = [\"received\"]\n",
    )
    .expect("written");
    run(folder.path(), &["commit", "--tenant", "acme", "--aggregate", "order/o-1", "--type", "t"]).ok();
    assert_eq!(run(folder.path(), &["log", "read", "--tenant", "acme"]).ok().json().len(), 1);
    assert_eq!(run(folder.path(), &["log", "read", "--tenant", "umbrella"]).ok().out, "");
    assert_eq!(run(folder.path(), &["log", "read", "--tenant", "acme", "--scope", "received"]).ok().out, "");
    run(folder.path(), &["log", "read"]).refused("unknown_tenant", 4);
}
