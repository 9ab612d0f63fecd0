//! Phrases that the documents for users do not use, because readers know another word for it. Decisions and the changelog are history
//! and stay as they were written.

use super::{Fault, File, fault};

/// What is not written, in small letters, and what is instead.
const PHRASES: [(&str, &str); 12] = [
    ("anew", "again, from scratch, rebuild"),
    ("for good", "durably, forever"),
    ("go on", "continue, resume"),
    ("goes on", "continues, resumes"),
    ("gives numbers", "assigns sequence numbers"),
    ("give numbers", "assign sequence numbers"),
    ("gave numbers", "assigned sequence numbers"),
    ("gives commits their numbers", "assigns sequence numbers"),
    ("read away", "drained"),
    ("stranger", "an unknown caller"),
    ("under way", "in flight, in progress, running"),
    ("whoever", "the caller, the reader, the process that …"),
];

/// The phrases in a document's prose, with their lines. Code blocks are left out.
pub fn faults(file: &File) -> Vec<Fault> {
    let mut faults = Vec::new();
    if !is_for_users(&file.path) {
        return faults;
    }
    let mut in_code = false;
    for (index, line) in file.text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        let small = line.to_lowercase();
        let found = PHRASES.iter().filter(|(phrase, _)| has(&small, phrase));
        faults.extend(found.map(|(phrase, instead)| {
            let message = format!("{phrase:?} is not used in the documents; write: {instead}");
            fault(&file.path, index + 1, "language", message)
        }));
    }
    faults
}

fn is_for_users(path: &str) -> bool {
    let in_root = !path.contains('/') && path != "CHANGELOG.md";
    let guide = path.strip_prefix("docs/").is_some_and(|name| !name.contains('/'));
    path.ends_with(".md") && (in_root || guide)
}

/// Whether a line has a phrase, as whole words.
fn has(line: &str, phrase: &str) -> bool {
    let outside = |c: Option<char>| !c.is_some_and(char::is_alphanumeric);
    line.match_indices(phrase)
        .any(|(at, _)| outside(line[..at].chars().next_back()) && outside(line[at + phrase.len()..].chars().next()))
}
