//! One run of the binary, and what it printed.

use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::process::annals;

/// What a run left behind.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Ran {
    /// Standard output as JSON lines.
    pub fn json(&self) -> Vec<Value> {
        self.out.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
    }

    /// The same, if it went well.
    #[track_caller]
    pub fn ok(self) -> Self {
        assert_eq!(self.code, 0, "{}", self.err);
        self
    }

    /// Checks that it failed with this code of the table, and says what it printed.
    #[track_caller]
    pub fn refused(self, code: &str, exit: i32) -> String {
        assert!(self.err.contains(&format!("error[{code}]: ")), "{code} expected: {}", self.err);
        assert!(self.err.contains("\nhelp: "), "{}", self.err);
        assert_eq!(self.code, exit, "{}", self.err);
        self.err
    }
}

pub fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

/// Runs the binary in `folder`.
pub fn run(folder: &Path, arguments: &[&str]) -> Ran {
    run_with(folder, arguments, "")
}

/// Runs the binary in `folder` with `input` at its standard input.
pub fn run_with(folder: &Path, arguments: &[&str], input: &str) -> Ran {
    let mut command = annals(folder);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().expect("the binary starts");
    let mut stdin = process.stdin.take().expect("piped");
    let input = input.to_owned();
    // Written beside the reading of what comes out, or both could wait for each other.
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = process.wait_with_output().expect("it ends");
    // A command that takes no input may have closed it.
    let _ = writer.join().expect("the writer ends");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    Ran { code: output.status.code().expect("an exit code"), out: text(output.stdout), err: text(output.stderr) }
}

/// The body of a commit of one event.
pub fn body(id: &str, data: Value) -> Value {
    json!({ "aggregate": { "name": "order", "id": id }, "events": [{ "type": "order_placed", "data": data }] })
}

/// JSON lines.
pub fn lines(values: impl IntoIterator<Item = Value>) -> String {
    values.into_iter().map(|value| format!("{value}\n")).collect()
}
