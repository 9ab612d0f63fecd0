//! Builds the test programs once with cargo, then runs them in lanes, each to its end regardless of the others. The output of a program
//! goes to a file and is printed if the program fails.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;

use super::compiler;
use crate::command::{cargo, root, standard_output};
use crate::steps::now;

/// The package whose program takes longest, because it mostly waits for MongoDB. The others run beside it, one after the other: two of
/// those at once would take both cores, and tests with deadlines would fail.
const LONGEST: &str = "annals-mongodb";
/// Its number of test threads. With as many as there are cores, two cores are idle for three quarters of its run.
const THREADS_WAITING: &str = "--test-threads=5";
/// Those of its modules whose tests use three servers in turn. They have a thread of their own beside the others, of which each of them
/// would keep one waiting.
const IN_TURN: [&str; 2] = ["failover::", "rounds::"];
const ONE_THREAD: &str = "--test-threads=1";
/// The time limit for one program. All of them together take less.
const LIMIT: Duration = Duration::from_secs(40 * 60);
/// Most failed tests of one program that are run again alone. More failures are not a coincidence.
const ALONE_MAX: usize = 5;
/// Lines of a failed program that are printed.
const SHOWN: usize = 400;

/// The suffix of the output file of a program whose failed tests were run again.
pub const BESIDE_OTHERS: &str = "-beside-others.txt";

/// A test program.
pub struct Executable {
    /// Package and target, for people.
    name: String,
    path: PathBuf,
    /// The folder of its package, where cargo runs it.
    folder: PathBuf,
    /// Arguments for a run beside others.
    arguments: Vec<&'static str>,
}

impl Executable {
    /// Divides a program into the tests that run beside each other, and those that run in turn.
    fn divided(self) -> (Self, Self) {
        let beside = [THREADS_WAITING].into_iter().chain(IN_TURN.iter().flat_map(|module| ["--skip", *module]));
        let in_turn = [ONE_THREAD].into_iter().chain(IN_TURN);
        let Self { name, path, folder, .. } = self;
        let other = Self {
            name: format!("{name} in turn"),
            path: path.clone(),
            folder: folder.clone(),
            arguments: in_turn.collect(),
        };
        (Self { name, path, folder, arguments: beside.collect() }, other)
    }
}

/// Returns the folder of the programs' output.
pub fn outputs() -> PathBuf {
    root().join("target/test-output")
}

/// Runs the programs with these arguments and this environment.
///
/// # Errors
/// A sentence that names each program with a failed test.
pub fn run<'a>(
    executables: Vec<Executable>,
    arguments: &[&str],
    environment: impl Iterator<Item = (&'static str, &'a str)>,
) -> Result<(), String> {
    let (longest, others): (Vec<_>, Vec<_>) = executables.into_iter().partition(|it| it.name.starts_with(LONGEST));
    let (beside, in_turn): (Vec<_>, Vec<_>) = longest.into_iter().map(Executable::divided).unzip();
    let outputs = outputs();
    std::fs::create_dir_all(&outputs).map_err(|error| format!("{}: {error}", outputs.display()))?;
    let (environment, failed) = (environment.collect::<Vec<_>>(), Mutex::new(Vec::new()));
    let run_all = |lane: Vec<Executable>| {
        for executable in lane {
            if let Err(tests) = run_one(&executable, &outputs, arguments, &environment) {
                failed.lock().unwrap_or_else(PoisonError::into_inner).push((executable, tests));
            }
        }
    };
    std::thread::scope(|both| {
        both.spawn(|| run_all(beside));
        both.spawn(|| run_all(in_turn));
        run_all(others);
    });
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    let again = failed.iter().filter_map(|(executable, tests)| alone(executable, tests, &outputs, &environment).err());
    let failed: Vec<_> = again.collect();
    if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
}

/// Runs failed tests once more, alone and one after the other. On two cores beside so many others, one of five thousand sometimes misses
/// its deadline. A test that fails again is at fault. A test that passes is named, because it may have met a rare race.
fn alone(
    executable: &Executable,
    tests: &[String],
    outputs: &Path,
    environment: &[(&'static str, &str)],
) -> Result<(), String> {
    let name = &executable.name;
    let kept = outputs.join(format!("{}{BESIDE_OTHERS}", name.replace(' ', "-")));
    let failed = || format!("{name} failed, its output is in {}", kept.display());
    std::fs::rename(output_of(executable, outputs), &kept).map_err(|error| format!("{}: {error}", kept.display()))?;
    if tests.is_empty() || tests.len() > ALONE_MAX {
        return Err(failed());
    }
    let arguments: Vec<_> = ["--exact", ONE_THREAD].into_iter().chain(tests.iter().map(String::as_str)).collect();
    run_one(executable, outputs, &arguments, environment).map_err(|_| failed())?;
    println!("LOOK AT THESE: they failed beside other tests and passed alone: {}", tests.join(", "));
    Ok(())
}

fn output_of(executable: &Executable, outputs: &Path) -> PathBuf {
    outputs.join(format!("{}.txt", executable.name.replace(' ', "-")))
}

/// Returns the tests that a program lists at its end as failed.
fn failed_tests(said: &str) -> Vec<String> {
    let end = said.rsplit_once("\nfailures:\n").map_or("", |(_, end)| end);
    end.lines().map_while(|line| line.strip_prefix("    ")).map(str::to_owned).collect()
}

/// Builds the programs that these arguments of `cargo test` select, with clippy's lints.
pub fn build(selected: &[&str]) -> Result<Vec<Executable>, String> {
    let mut command = cargo();
    compiler::lint(&mut command)?;
    command.args(["test", "--no-run", "--message-format", "json-render-diagnostics"]).args(selected);
    let messages = standard_output(&mut command)?;
    let found = messages.lines().filter_map(|line| executable(&serde_json::from_str(line).ok()?));
    Ok(found.collect())
}

/// Returns the test program that a message of cargo announces.
fn executable(message: &Value) -> Option<Executable> {
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let path = PathBuf::from(message["executable"].as_str()?);
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_path_buf();
    let package = message["package_id"].as_str().map(package_name)?;
    let target = message["target"]["name"].as_str()?;
    let kind = message["target"]["kind"][0].as_str()?;
    Some(Executable { name: format!("{package} {kind} {target}"), path, folder, arguments: Vec::new() })
}

/// Returns the name in `path+file:///…/crates/mongodb#annals-mongodb@0.1.0`, which cargo shortens if the folder has that name.
fn package_name(id: &str) -> String {
    let (place, version) = id.rsplit_once('#').unwrap_or((id, id));
    match version.split_once('@') {
        Some((name, _)) => name.to_owned(),
        None => place.rsplit('/').next().unwrap_or(place).to_owned(),
    }
}

/// Runs a program, and prints its output if it fails.
///
/// # Errors
/// The tests that failed; none if it did not run to its end.
fn run_one(
    executable: &Executable,
    outputs: &Path,
    arguments: &[&str],
    environment: &[(&'static str, &str)],
) -> Result<(), Vec<String>> {
    let Executable { name, path, folder, arguments: own } = executable;
    let place = output_of(executable, outputs);
    let refused = |error: std::io::Error| {
        println!("{name}: {error}");
        Vec::new()
    };
    let written = File::create(&place).map_err(refused)?;
    let mut command = Command::new(path);
    command.args(arguments).current_dir(folder).env("CARGO_MANIFEST_DIR", folder).envs(environment.iter().copied());
    if !arguments.contains(&ONE_THREAD) {
        command.args(own);
    }
    command.stdin(Stdio::null()).stdout(written.try_clone().map_err(refused)?).stderr(written);
    let started = now();
    let status = within(LIMIT, command.spawn().map_err(refused)?).map_err(refused)?;
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
    Err(failed_tests(&said))
}

/// Waits for a program, and ends it if it takes longer than this: a test that waits for ever must not take its output with it.
fn within(limit: Duration, mut program: Child) -> std::io::Result<ExitStatus> {
    let id = program.id().to_string();
    let (ended, end) = channel::<()>();
    std::thread::scope(|both| {
        both.spawn(move || {
            if end.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                println!("a program of tests is ended after {} s", limit.as_secs());
                let _ = Command::new("kill").args(["-KILL", &id]).status();
            }
        });
        let status = program.wait();
        drop(ended);
        status
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_waits_for_ever_is_ended() {
        let waits = Command::new("sleep").arg("600").spawn().expect("a program");
        assert!(!within(Duration::ZERO, waits).expect("its end").success());
        let ends = Command::new("true").spawn().expect("a program");
        assert!(within(LIMIT, ends).expect("its end").success());
    }

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

    #[test]
    fn a_divided_program_runs_every_test_once() {
        let whole =
            Executable { name: "p".to_owned(), path: PathBuf::new(), folder: PathBuf::new(), arguments: Vec::new() };
        let (beside, in_turn) = whole.divided();
        assert_ne!(beside.name, in_turn.name);
        for module in IN_TURN {
            assert!(beside.arguments.windows(2).any(|pair| pair == ["--skip", module]), "{:?}", beside.arguments);
            assert!(in_turn.arguments.contains(&module), "{:?}", in_turn.arguments);
        }
    }

    #[test]
    fn failed_tests_are_those_that_the_end_names() {
        let said = "test a ... FAILED\n\nfailures:\n\n---- a::b stdout ----\n    at x\n\n\nfailures:\n    a::b\n    c\n\ntest result: FAILED.";
        assert_eq!(failed_tests(said), ["a::b", "c"]);
        assert!(failed_tests("it was killed").is_empty());
    }
}
