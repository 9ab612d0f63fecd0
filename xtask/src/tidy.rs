//! The repository's own rules, checked as a test, so that reviewers need not repeat them.
//!
//! A comment on a line, or on the line above it, sets a rule aside for that line, with a reason: `tidy: allow(pause) reason`.

mod code;
mod documents;
mod language;
mod rust;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::process::Command;

use crate::command::{only, output, root};

pub fn run(arguments: &[String]) -> Result<(), String> {
    only(arguments, &[], &[])?;
    check()
}

/// A broken rule.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Fault {
    path: String,
    /// The line, from 1; 0 if the file as a whole is meant.
    line: usize,
    /// The rule's name, for `tidy: allow(…)`.
    rule: &'static str,
    message: String,
}

/// A text file of the repository.
struct File {
    path: String,
    text: String,
}

/// Checks every file that git tracks or would add.
pub fn check() -> Result<(), String> {
    let listed = output(Command::new("git").current_dir(root()).args(["ls-files", "-z", "-co", "--exclude-standard"]))?;
    let listed = String::from_utf8(listed).map_err(|error| format!("a file name is not UTF-8: {error}"))?;
    // A file that is deleted but not yet committed is listed, but does not exist.
    let paths: BTreeSet<&str> =
        listed.split('\0').filter(|path| !path.is_empty() && root().join(path).exists()).collect();
    let mut faults = Vec::new();
    let mut files = Vec::new();
    for path in &paths {
        let bytes = std::fs::read(root().join(path)).map_err(|error| format!("{path}: {error}"))?;
        faults.extend(size_fault(path, bytes.len()));
        if !is_text(path) {
            continue;
        }
        match String::from_utf8(bytes) {
            Ok(text) => files.push(File { path: (*path).to_owned(), text }),
            Err(_) => faults.push(fault(path, 0, "text", "is not UTF-8")),
        }
    }
    for file in &files {
        faults.extend(file_faults(file, &paths));
    }
    faults.extend(rust::dead_files(&files));
    faults.extend(documents::link_faults(&files, &paths));
    faults.extend(documents::mention_faults(&files, &paths));
    faults.extend(documents::summary_faults(&files));
    faults.extend(documents::example_fault(&files));
    println!("{} files, {} of them text", paths.len(), files.len());
    match faults.is_empty() {
        true => Ok(()),
        false => Err(format!("{} faults\n{}", faults.len(), listing(&faults))),
    }
}

fn file_faults(file: &File, paths: &BTreeSet<&str>) -> Vec<Fault> {
    let mut faults = whitespace_faults(file);
    faults.extend(name_fault(&file.path));
    faults.extend(language::faults(file));
    if file.path.ends_with(".rs") {
        faults.extend(rust::faults(file));
    }
    if file.path.ends_with("Cargo.toml") {
        faults.extend(documents::manifest_fault(file, paths));
    }
    faults
}

fn fault(path: &str, line: usize, rule: &'static str, message: impl Into<String>) -> Fault {
    Fault { path: path.to_owned(), line, rule, message: message.into() }
}

fn listing(faults: &[Fault]) -> String {
    let line = |fault: &Fault| format!("{}:{}: {} [{}]", fault.path, fault.line, fault.message, fault.rule);
    faults.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Returns whether a file is text that people edit. Inputs of the fuzzer and recorded files are exempt.
fn is_text(path: &str) -> bool {
    let kinds = ["rs", "toml", "md", "sh", "py", "yml", "json", "jsonl", "html", "css", "js", "txt", "dict"];
    let recorded = path.starts_with("fuzz/corpus/") || path.contains("/fixtures/");
    let named = path.rsplit_once('.').is_some_and(|(_, kind)| kinds.contains(&kind));
    (named || path == ".ci/run" || path.ends_with(".gitignore") || path.starts_with("LICENSE")) && !recorded
}

/// Larger files belong elsewhere: every clone carries them forever.
const FILE_BYTES_MAX: usize = 256 * 1024;

fn size_fault(path: &str, bytes: usize) -> Option<Fault> {
    let message = || format!("{bytes} bytes; at most {FILE_BYTES_MAX} belong into the repository");
    (bytes > FILE_BYTES_MAX).then(|| fault(path, 0, "size", message()))
}

/// Names that do not describe their content, so that anything ends up there.
const EMPTY_NAMES: [&str; 8] = ["manager", "util", "utils", "common", "helper", "helpers", "misc", "shared"];

fn name_fault(path: &str) -> Option<Fault> {
    let empty = path.split(['/', '.', '_', '-']).find(|word| EMPTY_NAMES.contains(word))?;
    Some(fault(path, 0, "name", format!("{empty:?} says nothing about what is inside; name the thing")))
}

fn whitespace_faults(file: &File) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (index, line) in file.text.split('\n').enumerate() {
        if line.ends_with([' ', '\t']) {
            faults.push(fault(&file.path, index + 1, "space", "white space at the end of the line"));
        }
        if line.ends_with('\r') {
            faults.push(fault(&file.path, index + 1, "space", "a carriage return at the end of the line"));
        }
    }
    if !file.text.is_empty() && (!file.text.ends_with('\n') || file.text.ends_with("\n\n")) {
        faults.push(fault(&file.path, 0, "space", "does not end with one line break"));
    }
    faults
}
