//! Every shell snippet of a guide works when it is pasted, in order, into a terminal in an empty folder.
//!
//! A guide's snippets become one script for `bash -euo pipefail`. A line that ends in `# exits with N` must exit with N; every other
//! command must succeed, and so must every request of curl. The guides name the ports 4000 and 4001; the script uses free ones.

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use crate::process::annals;
use crate::run::folder;

/// Longer than any guide takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// Where the guides' servers listen, and the second one of a guide that has two.
const ADDRESSES: [&str; 2] = ["127.0.0.1:4000", "127.0.0.1:4001"];

/// The lines that need a checkout and a toolchain: the built binary stands in for what they build, and other tests run the rest.
const CARGO: [&str; 3] = [
    "cargo build --release && export PATH=\"$PWD/target/release:$PATH\"",
    "cargo run --release -- demo",
    "cargo xtask test",
];

/// Runs before the snippets: trace every command, fail on HTTP errors, leave no process behind.
const PRELUDE: &str =
    "set -x\ncurl() { command curl --fail \"$@\"; }\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n";

/// A fenced block of shell, and the line of its fence, from 1.
struct Snippet {
    line: usize,
    code: String,
}

fn guide(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn snippets(text: &str) -> Vec<Snippet> {
    let mut found = Vec::new();
    let mut open: Option<Snippet> = None;
    for (index, line) in text.lines().enumerate() {
        match open.take() {
            None if line == "```sh" => open = Some(Snippet { line: index + 1, code: String::new() }),
            None => {}
            Some(snippet) if line == "```" => found.push(snippet),
            Some(mut snippet) => {
                snippet.code.push_str(line);
                snippet.code.push('\n');
                open = Some(snippet);
            }
        }
    }
    assert!(open.is_none(), "a snippet has no end");
    found
}

/// The script of a guide: its snippets behind the prelude.
fn script(name: &str, snippets: &[Snippet]) -> String {
    let mut script = PRELUDE.to_owned();
    for snippet in snippets {
        writeln!(script, ": {name}:{}", snippet.line).expect("writes to a string");
        for line in snippet.code.lines() {
            match line.rsplit_once("# exits with ") {
                _ if CARGO.contains(&line) => {}
                _ if line.starts_with("cargo ") => panic!("{name}:{}: what stands in for {line:?}?", snippet.line),
                Some((command, code)) => {
                    let code: i32 = code.parse().expect("an exit code");
                    writeln!(script, "{{ {command}\n}} && code=0 || code=$?\n[ $code -eq {code} ]").expect("writes");
                }
                None => {
                    script.push_str(line);
                    script.push('\n');
                }
            }
        }
    }
    script
}

/// A port that is free now and that the system gives to nobody who asks for any port.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = u16::try_from(std::process::id() % 10_000).expect("below 10,000");
    loop {
        let port = 12_000 + (first + NEXT.fetch_add(1, Ordering::Relaxed)) % 20_000;
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Runs a script in a folder; gives the exit code and everything that was printed.
fn bash(folder: &Path, script: &str) -> (Option<i32>, String) {
    let programs = Path::new(env!("CARGO_BIN_EXE_annals")).parent().expect("a folder").to_owned();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(std::iter::once(programs).chain(std::env::split_paths(&path))).expect("paths");
    // Its environment is the binary's: no configuration of the machine that runs the tests.
    let clean = annals(folder);
    let mut command = Command::new("bash");
    for (name, value) in clean.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let (mut out, write) = std::io::pipe().expect("a pipe");
    if script.contains("python3 ")
        && let Some(modules) = requests()
    {
        command.env("PYTHONPATH", modules);
    }
    command.args(["-euo", "pipefail", "-c", script]).env("PATH", path).current_dir(folder).process_group(0);
    command.stdin(Stdio::null()).stdout(write.try_clone().expect("a pipe")).stderr(write);
    let mut process = command.spawn().expect("bash starts");
    drop(command);
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut printed = Vec::new();
        let _ = out.read_to_end(&mut printed);
        let _ = sender.send(printed);
    });
    // The pipe ends when bash and everything it started have ended.
    let printed = receiver.recv_timeout(PATIENCE);
    if printed.is_err() {
        let group = format!("-{}", process.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
    }
    let code = process.wait().expect("it ends").code();
    let printed = printed.unwrap_or_else(|_| b"it did not end in time".to_vec());
    (code, String::from_utf8_lossy(&printed).into_owned())
}

/// Where Python finds `requests`, if it does not have it already: it is installed beside what was built, and nowhere else.
fn requests() -> Option<PathBuf> {
    let has = |modules: Option<&Path>| {
        let mut python = Command::new("python3");
        python.args(["-c", "import requests"]).stdout(Stdio::null()).stderr(Stdio::null());
        python.envs(modules.map(|modules| ("PYTHONPATH", modules)));
        python.status().is_ok_and(|status| status.success())
    };
    if has(None) {
        return None;
    }
    let modules = Path::new(env!("CARGO_TARGET_TMPDIR")).join("python");
    if !has(Some(&modules)) {
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--target"]).arg(&modules).arg("requests");
        assert!(
            pip.status().is_ok_and(|status| status.success()),
            "the guides' Python needs `requests`: pip cannot fetch it"
        );
    }
    Some(modules)
}

/// Whether curl is there. Without it the guides are not tested, which is no success in CI.
fn has_curl() -> bool {
    let found = Command::new("curl").arg("--version").output().is_ok_and(|output| output.status.success());
    let in_ci = std::env::var("CI").is_ok_and(|value| value == "true");
    assert!(found || !in_ci, "curl is missing: install it");
    if !found {
        let _ = writeln!(std::io::stderr(), "NOT RUN: the snippets of the guides need curl");
    }
    found
}

fn check(name: &str, snippets_min: usize) {
    check_with(name, snippets_min, |script| script);
}

/// Runs the snippets of a guide. `here` puts what this machine has into the script in place of what the guide names.
pub fn check_with(name: &str, snippets_min: usize, here: impl FnOnce(String) -> String) {
    let snippets = snippets(&guide(name));
    assert!(snippets.len() >= snippets_min, "{name}: only {} snippets were found", snippets.len());
    if !has_curl() {
        return;
    }
    let folder = folder();
    let script = ADDRESSES.iter().fold(script(name, &snippets), |script, address| {
        script.replace(address, &format!("127.0.0.1:{}", free_port()))
    });
    let (code, printed) = bash(folder.path(), &here(script));
    assert_eq!(code, Some(0), "{name}: the last command that is shown failed\n{printed}");
}

/// The sources below a folder, one after the other.
fn sources(folder: &Path, text: &mut String) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&std::fs::read_to_string(&path).expect("text"));
        }
    }
}

#[test]
fn every_test_that_the_pages_of_statements_and_promises_name_exists() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crates");
    let mut code = String::new();
    for of in ["annals", "cli", "conformance", "core", "embedded", "mongodb", "server"] {
        sources(&crates.join(of), &mut code);
    }
    let pages =
        [("docs/dolittle-statements.md", 80), ("docs/integr8scode-statements.md", 50), ("docs/promises.md", 12)];
    for (page, tests_min) in pages {
        let text = guide(page);
        let quoted = text.split('`').skip(1).step_by(2);
        let tests: Vec<&str> = quoted.filter(|name| name.matches('_').count() > 2).collect();
        assert!(tests.len() > tests_min, "{page}: only {} tests are named", tests.len());
        for test in tests {
            assert!(code.contains(&format!("fn {test}(")), "{page}: there is no test {test}");
        }
    }
}

/// A guide is not left out because nobody thought of it.
#[test]
fn the_snippets_of_every_guide_are_run_by_a_test() {
    let tests = [include_str!("documents.rs"), include_str!("with_mongodb_documents.rs")].concat();
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let entries = std::fs::read_dir(docs).expect("the guides").map(|entry| entry.expect("an entry").file_name());
    let names = entries.map(|name| format!("docs/{}", name.into_string().expect("UTF-8")));
    let mut run = 0;
    for name in names.filter(|name| name.ends_with(".md")).chain(["README.md".to_owned()]) {
        let text = guide(&name);
        let found = snippets(&text).len();
        let fences = ["```sh", "```bash", "```shell", "```console"].map(|fence| text.matches(fence).count());
        assert_eq!(fences.iter().max(), Some(&found), "{name}: a snippet begins with ```sh at the left margin");
        assert!(found == 0 || tests.contains(&format!("(\"{name}\", ")), "{name}: no test runs its snippets");
        run += found;
    }
    assert!(run > 90, "{run}");
}

#[test]
fn the_snippets_of_the_readme_work_in_order_in_an_empty_folder() {
    check("README.md", 3);
}

#[test]
fn the_snippets_of_the_http_guide_work_in_order_in_an_empty_folder() {
    check("docs/http.md", 13);
}

#[test]
fn the_snippets_of_the_guide_to_security_work_in_order_in_an_empty_folder() {
    check("docs/security.md", 4);
}

#[test]
fn the_snippets_of_the_guide_to_handlers_work_in_order_in_an_empty_folder() {
    check("docs/handlers.md", 8);
}

#[test]
fn the_snippets_of_the_guide_to_projections_work_in_order_in_an_empty_folder() {
    check("docs/projections.md", 6);
}

#[test]
fn the_snippets_of_the_guide_to_sagas_work_in_order_in_an_empty_folder() {
    check("docs/sagas.md", 4);
}

#[test]
fn the_snippets_of_the_guide_to_event_types_work_in_order_in_an_empty_folder() {
    check("docs/types.md", 8);
}

#[test]
fn the_snippets_of_the_guide_to_topics_work_in_order_in_an_empty_folder() {
    check("docs/topics.md", 5);
}

#[test]
fn the_snippets_of_the_guide_to_dead_letters_work_in_order_in_an_empty_folder() {
    check("docs/dead-letters.md", 4);
}

#[test]
fn the_snippets_of_the_guide_to_work_queues_work_in_order_in_an_empty_folder() {
    check("docs/queues.md", 4);
}

#[test]
fn the_snippets_of_the_guide_to_the_execution_service_work_in_order_in_an_empty_folder() {
    check("docs/execution.md", 3);
}

#[test]
fn the_snippets_of_the_guide_to_browsing_work_in_order_in_an_empty_folder() {
    check("docs/browse.md", 2);
}

#[test]
fn the_snippets_of_the_guide_to_the_archive_work_in_order_in_an_empty_folder() {
    check("docs/archive.md", 3);
}

#[test]
fn the_snippets_of_the_guide_to_replays_work_in_order_in_an_empty_folder() {
    check("docs/replay.md", 3);
}

#[test]
fn the_snippets_of_the_guide_to_the_event_horizon_work_in_order_in_an_empty_folder() {
    check("docs/horizon.md", 4);
}

#[test]
fn the_snippets_of_the_guide_to_partners_work_in_order_in_an_empty_folder() {
    check("docs/partners.md", 3);
}

#[test]
fn the_snippets_of_the_guide_to_processing_work_in_order_in_an_empty_folder() {
    check("docs/processing.md", 8);
}

#[test]
fn the_snippets_of_getting_started_work_in_order_in_an_empty_folder() {
    check("docs/getting-started.md", 6);
}

#[test]
fn the_snippets_of_the_guide_to_the_console_work_in_order_in_an_empty_folder() {
    check("docs/console.md", 1);
}

#[test]
fn the_snippets_of_the_guide_to_traces_work_in_order_in_an_empty_folder() {
    check("docs/traces.md", 3);
}

#[test]
fn the_snippets_for_newcomers_from_other_systems_work_in_order_in_an_empty_folder() {
    check("docs/coming-from.md", 5);
}

#[test]
fn a_snippet_that_fails_or_exits_otherwise_than_it_says_is_noticed() {
    let run = |code: &str| {
        let folder = folder();
        let snippet = Snippet { line: 1, code: format!("{code}\n") };
        bash(folder.path(), &script("guide.md", &[snippet])).0
    };
    assert_eq!(run("true"), Some(0));
    assert_ne!(run("false\ntrue"), Some(0));
    assert_eq!(run("(exit 3)    # exits with 3"), Some(0));
    assert_ne!(run("(exit 4)    # exits with 3"), Some(0));
    assert_ne!(run("true    # exits with 3"), Some(0));
    assert_ne!(run("annals log read --store embedded:./nothing"), Some(0), "a store that is not there");
}
