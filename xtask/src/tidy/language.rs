//! Phrases that documents for users avoid, because readers know another word for them. Decisions and the changelog are history and keep
//! their wording.

use super::{Fault, File, fault};

/// The phrases to avoid, in lower case, and their replacements.
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

/// Returns the faults in a document's prose, with their lines. Code blocks are skipped.
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

/// Returns whether a line contains a phrase as whole words.
fn has(line: &str, phrase: &str) -> bool {
    let outside = |c: Option<char>| !c.is_some_and(char::is_alphanumeric);
    line.match_indices(phrase)
        .any(|(at, _)| outside(line[..at].chars().next_back()) && outside(line[at + phrase.len()..].chars().next()))
}
