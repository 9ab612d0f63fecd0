//! `annals demo`, the first command of a new user.

use std::io::{BufRead, BufReader, Lines};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};

use crate::process::{annals, signal};
use crate::run::{folder, run};

/// A running demo on a free port. Dropping it kills it.
pub struct Demo {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Demo {
    pub fn start(folder: &Path, arguments: &[&str]) -> Self {
        Self::configured(folder, arguments, &[])
    }

    /// Starts one with these variables of configuration.
    pub fn configured(folder: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut command = annals(folder);
        command.args(["demo", "--listen", "127.0.0.1:0"]).args(arguments).stdout(Stdio::piped());
        command.envs(variables.iter().copied());
        let mut process = command.spawn().expect("it starts");
        let lines = BufReader::new(process.stdout.take().expect("piped")).lines();
        Self { process, lines }
    }

    /// Reads up to the line that holds this.
    pub fn wait_for(&mut self, part: &str) -> String {
        for line in &mut self.lines {
            let line = line.expect("text");
            if line.contains(part) {
                return line;
            }
        }
        panic!("the demo ended without {part:?}");
    }

    /// Reads up to its address: `http://127.0.0.1:PORT`.
    pub fn address(&mut self) -> String {
        let line = self.wait_for("http://127.0.0.1:");
        let url = line.split_whitespace().find(|word| word.starts_with("http")).expect("an address");
        url.trim_end_matches('/').to_owned()
    }

    /// Sends a signal, and waits for its end in order.
    pub fn stop(mut self, name: &str) {
        signal(name, self.process.id());
        assert_eq!(self.process.wait().expect("it ends").code(), Some(0));
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn it_shows_programs_being_run_and_goes_on_where_it_was() {
    let folder = folder();
    let mut demo = Demo::start(folder.path(), &[]);
    demo.wait_for("holds 0 events");
    demo.wait_for("http://127.0.0.1:");
    // What /proc shows of this process belongs to its effective user.
    if std::fs::metadata("/proc/self").expect("there is /proc").uid() == 0 {
        demo.wait_for("root privileges, because this is not a sandbox");
    }
    demo.wait_for("execution_timeout");
    demo.stop("TERM");
    let log = ["log", "read", "--store", "embedded:./demo-data/store", "--types"];
    let ended = [&log[..], &["execution_completed,execution_failed,execution_timeout"]].concat();
    let requested = [&log[..], &["execution_requested"]].concat();
    assert_eq!(run(folder.path(), &requested).ok().json().len(), 7);
    assert!(!run(folder.path(), &ended).ok().json().is_empty());
    let mut demo = Demo::start(folder.path(), &[]);
    assert!(!demo.wait_for("holds").contains("holds 0 events"));
    demo.stop("INT");
    let mut fresh = Demo::start(folder.path(), &["--fresh"]);
    fresh.wait_for("holds 0 events");
    fresh.stop("INT");
}

#[test]
fn it_leaves_a_folder_alone_that_it_did_not_make() {
    let folder = folder();
    std::fs::create_dir(folder.path().join("demo-data")).expect("made");
    std::fs::write(folder.path().join("demo-data/thesis.txt"), "precious").expect("written");
    run(folder.path(), &["demo", "--fresh"]).refused("not_a_store", 6);
    assert!(folder.path().join("demo-data/thesis.txt").exists());
}

#[test]
fn a_fresh_start_does_not_go_with_a_store_that_is_named() {
    let folder = folder();
    let said = run(folder.path(), &["demo", "--fresh", "--store", "embedded:./mine"]).refused("invalid_config", 2);
    assert!(said.contains("embedded:./mine") && said.contains("./demo-data"), "{said}");
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0);
}

#[test]
fn a_demo_on_a_store_of_its_own_runs_beside_another() {
    let folder = folder();
    let mut usual = Demo::start(folder.path(), &[]);
    usual.wait_for("http://127.0.0.1:");
    let mut own = Demo::start(folder.path(), &["--store", "embedded:./mine"]);
    own.wait_for("http://127.0.0.1:");
    own.stop("INT");
    usual.stop("INT");
    run(folder.path(), &["log", "read", "--store", "embedded:./mine"]).ok();
}

#[test]
fn a_part_of_the_service_as_a_process_of_its_own_needs_a_store_that_processes_share() {
    let folder = folder();
    let said = run(folder.path(), &["demo", "--role", "worker"]).refused("invalid_config", 2);
    assert!(said.contains("mongodb://HOST/DATABASE"), "{said}");
    let said = run(folder.path(), &["demo", "--users", "nobody.json"]).refused("unreadable_input", 2);
    assert!(said.contains("nobody.json"), "{said}");
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0);
}
