//! The programs of tests: built once by cargo, then run in two lanes, each program to its end whatever the others find. What a program
//! prints goes to a file and is shown when it fails.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use crate::command::{cargo, root, standard_output};
use crate::steps::now;

/// The package whose program takes longest, because it waits for MongoDB most of the time. The others run beside it, one after the other:
/// two of those at the same time would take both cores, and tests with deadlines would fail.
const LONGEST: &str = "annals-mongodb";
/// Tests at the same time in it: with as many as there are cores, two cores are idle for three quarters of its run.
const THREADS_WAITING: &str = "--test-threads=5";
/// Lines of a failed program that are shown.
const SHOWN: usize = 400;

/// A program of tests.
struct Executable {
    /// Package and target, for people.
    name: String,
    path: PathBuf,
    /// The folder of its package, where cargo runs it.
    folder: PathBuf,
}

/// Builds the programs that these arguments of `cargo test` select, and runs them with these arguments and this environment.
///
/// # Errors
/// A sentence that names each program with a failed test.
pub fn run<'a>(
    selected: &[&str],
    arguments: &[&str],
    environment: impl Iterator<Item = (&'static str, &'a str)>,
) -> Result<(), String> {
    let lanes: (Vec<_>, Vec<_>) = build(selected)?.into_iter().partition(|it| it.name.starts_with(LONGEST));
    let outputs = root().join("target/test-output");
    std::fs::create_dir_all(&outputs).map_err(|error| format!("{}: {error}", outputs.display()))?;
    let (environment, failed) = (environment.collect::<Vec<_>>(), Mutex::new(Vec::new()));
    let run_all = |lane: Vec<Executable>| {
        for executable in lane {
            if let Err(sentence) = run_one(&executable, &outputs, arguments, &environment) {
                failed.lock().unwrap_or_else(PoisonError::into_inner).push(sentence);
            }
        }
    };
    std::thread::scope(|both| {
        both.spawn(|| run_all(lanes.0));
        run_all(lanes.1);
    });
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
}

fn build(selected: &[&str]) -> Result<Vec<Executable>, String> {
    let mut command = cargo();
    command.args(["test", "--no-run", "--message-format", "json-render-diagnostics"]).args(selected);
    let messages = standard_output(&mut command)?;
    let found = messages.lines().filter_map(|line| executable(&serde_json::from_str(line).ok()?));
    Ok(found.collect())
}

/// The program of tests that a message of cargo announces.
fn executable(message: &Value) -> Option<Executable> {
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let path = PathBuf::from(message["executable"].as_str()?);
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_path_buf();
    let package = message["package_id"].as_str().map(package_name)?;
    let target = message["target"]["name"].as_str()?;
    let kind = message["target"]["kind"][0].as_str()?;
    Some(Executable { name: format!("{package} {kind} {target}"), path, folder })
}

/// The name in `path+file:///…/crates/mongodb#annals-mongodb@0.1.0`, which cargo shortens where the folder has that name.
fn package_name(id: &str) -> String {
    let (place, version) = id.rsplit_once('#').unwrap_or((id, id));
    match version.split_once('@') {
        Some((name, _)) => name.to_owned(),
        None => place.rsplit('/').next().unwrap_or(place).to_owned(),
    }
}

fn run_one(
    executable: &Executable,
    outputs: &Path,
    arguments: &[&str],
    environment: &[(&'static str, &str)],
) -> Result<(), String> {
    let Executable { name, path, folder } = executable;
    let place = outputs.join(format!("{}.txt", name.replace(' ', "-")));
    let refused = |error: std::io::Error| format!("{name}: {error}");
    let written = File::create(&place).map_err(refused)?;
    let mut command = Command::new(path);
    command.args(arguments).current_dir(folder).env("CARGO_MANIFEST_DIR", folder).envs(environment.iter().copied());
    if name.starts_with(LONGEST) {
        command.arg(THREADS_WAITING);
    }
    command.stdin(Stdio::null()).stdout(written.try_clone().map_err(refused)?).stderr(written);
    let started = now();
    let status = command.status().map_err(refused)?;
    let took = started.elapsed().as_secs_f64();
    let said = String::from_utf8_lossy(&std::fs::read(&place).map_err(refused)?).into_owned();
    let result = said.lines().rev().find(|line| line.starts_with("test result:")).unwrap_or("no result");
    println!("{took:>8.1} s  {name}: {result}");
    if status.success() {
        return Ok(());
    }
    let shown: Vec<_> = said.lines().skip_while(|line| *line != "failures:").collect();
    let shown = if shown.is_empty() { said.lines().collect() } else { shown };
    let skipped = shown.len().saturating_sub(SHOWN);
    println!("{}", shown[skipped..].join("\n"));
    Err(format!("{name} failed ({status}), its output is in {}", place.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_tests_is_recognised_in_what_cargo_says() {
        let message = |test: bool| {
            serde_json::json!({
                "reason": "compiler-artifact", "package_id": "path+file:///r/crates/mongodb#annals-mongodb@0.1.0",
                "manifest_path": "/r/crates/mongodb/Cargo.toml", "target": {"name": "mongodb", "kind": ["test"]},
                "profile": {"test": test}, "executable": "/r/target/debug/deps/mongodb-1",
            })
        };
        let found = executable(&message(true)).map(|found| (found.name, found.folder));
        assert_eq!(found, Some(("annals-mongodb test mongodb".to_owned(), PathBuf::from("/r/crates/mongodb"))));
        assert!(executable(&message(false)).is_none());
        assert_eq!(package_name("path+file:///r/xtask#0.1.0"), "xtask");
    }
}
