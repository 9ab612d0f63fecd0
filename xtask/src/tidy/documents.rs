//! Rules for documents and manifests.

use std::collections::BTreeSet;

use super::{Fault, File, fault};

/// Checks that a manifest of this workspace takes its lints from the shared table.
pub fn manifest_fault(file: &File, paths: &BTreeSet<&str>) -> Option<Fault> {
    let table: toml::Table = match file.text.parse() {
        Ok(table) => table,
        Err(error) => return Some(fault(&file.path, 0, "manifest", format!("is not TOML: {error}"))),
    };
    // A separate workspace has its own table.
    if table.contains_key("workspace") {
        return None;
    }
    let inherits = table.get("lints").and_then(|lints| lints.get("workspace")).and_then(toml::Value::as_bool);
    if inherits != Some(true) {
        return Some(fault(
            &file.path,
            0,
            "manifest",
            "takes no lints from the workspace: add `[lints] workspace = true`",
        ));
    }
    let folder = file.path.strip_suffix("Cargo.toml").unwrap_or_default();
    let empty = !paths.iter().any(|path| path.starts_with(folder) && path.ends_with(".rs"));
    empty.then(|| fault(&file.path, 0, "manifest", "a package without source"))
}

/// Checks that the links between the documents are valid: the file exists, and so does the heading.
pub fn link_faults(files: &[File], paths: &BTreeSet<&str>) -> Vec<Fault> {
    let mut faults = Vec::new();
    for file in files.iter().filter(|file| file.path.ends_with(".md")) {
        for (line, target) in links(&file.text) {
            let (path, heading) = target.split_once('#').unwrap_or((target, ""));
            let path = if path.is_empty() { file.path.clone() } else { resolve(&file.path, path) };
            let is_folder = paths.iter().any(|known| known.starts_with(&format!("{path}/")));
            if !paths.contains(path.as_str()) && !is_folder {
                faults.push(fault(&file.path, line, "link", format!("leads to {path}, which does not exist")));
            } else if !heading.is_empty() && !has_heading(files, &path, heading) {
                faults.push(fault(&file.path, line, "link", format!("{path} has no heading #{heading}")));
            }
        }
    }
    faults
}

/// Returns the links to places inside the repository, with their lines from 1. Code blocks are skipped.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut in_code = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        for (at, _) in line.match_indices("](") {
            let target = line[at + 2..].split([')', ' ']).next().unwrap_or_default();
            if !target.contains("://") && !target.starts_with("mailto:") && !target.is_empty() {
                found.push((index + 1, target));
            }
        }
    }
    found
}

/// Folders whose paths documents mention in backticks.
const MENTIONED: [&str; 6] = ["crates/", "docs/", "examples/", "xtask/", "fuzz/", ".ci/"];

/// Checks that the paths that documents mention as code exist. A mention with a placeholder, such as `docs/*.md`, is not a path.
pub fn mention_faults(files: &[File], paths: &BTreeSet<&str>) -> Vec<Fault> {
    let mut faults = Vec::new();
    for file in files.iter().filter(|file| file.path.ends_with(".md") && file.path != "CHANGELOG.md") {
        for (index, line) in file.text.lines().enumerate() {
            for word in line.split('`').skip(1).step_by(2) {
                let path = word.trim_end_matches('/');
                let is_path = MENTIONED.iter().any(|folder| word.starts_with(folder))
                    && path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte));
                let exists = || paths.contains(path) || paths.iter().any(|p| p.starts_with(&format!("{path}/")));
                if is_path && !exists() {
                    faults.push(fault(&file.path, index + 1, "mention", format!("{path} does not exist")));
                }
            }
        }
    }
    faults
}

/// Checks that the example of the README is the one that is compiled and run as the facade's documentation.
pub fn example_fault(files: &[File]) -> Option<Fault> {
    const README: &str = "README.md";
    const COMPILED: &str = "crates/annals/src/lib.rs";
    let text = |path: &str| files.iter().find(|file| file.path == path).map(|file| file.text.as_str());
    let shown: Vec<&str> = block(text(README)?.lines(), "```rust");
    let documentation = text(COMPILED)?.lines().filter_map(|line| line.strip_prefix("//!"));
    let documentation = documentation.map(|line| line.strip_prefix(' ').unwrap_or(line));
    let compiled = block(documentation.filter(|line| *line != "#" && !line.starts_with("# ")), "```");
    let message = format!("its example is not the one in {COMPILED}, so nothing compiles it; make them the same");
    (shown.is_empty() || shown != compiled).then(|| fault(README, 0, "example", message))
}

/// Returns the lines of the first code block that opens with `fence`.
fn block<'a>(lines: impl Iterator<Item = &'a str>, fence: &str) -> Vec<&'a str> {
    lines.skip_while(|line| *line != fence).skip(1).take_while(|line| *line != "```").collect()
}

/// The file with the order of the pages in the handbook.
const SUMMARY: &str = "docs/SUMMARY.md";

/// Checks that the handbook lists every page below `docs` once, under its own title.
pub fn summary_faults(files: &[File]) -> Vec<Fault> {
    let Some(summary) = files.iter().find(|file| file.path == SUMMARY) else {
        return vec![fault(SUMMARY, 0, "summary", "the order of the pages in the handbook is missing")];
    };
    let mut faults = Vec::new();
    let listed: Vec<(usize, String)> =
        links(&summary.text).into_iter().map(|(line, target)| (line, resolve(SUMMARY, target))).collect();
    for page in files.iter().filter(|file| file.path.starts_with("docs/") && file.path.ends_with(".md")) {
        let lines: Vec<usize> = listed.iter().filter(|(_, path)| *path == page.path).map(|(line, _)| *line).collect();
        let title = page.text.lines().next().and_then(|line| line.strip_prefix("# ")).unwrap_or_default();
        let name = page.path.trim_start_matches("docs/");
        match lines[..] {
            _ if page.path == SUMMARY => {}
            [] => {
                let message = format!("the handbook lacks this page; add `- [{title}]({name})` to {SUMMARY}");
                faults.push(fault(&page.path, 0, "summary", message));
            }
            [line] => {
                let entry = summary.text.lines().nth(line - 1).unwrap_or_default();
                let is_titled = entry.contains(&format!("[{title}](")) || name == "introduction.md";
                let message = format!("its title is {title:?}; write `[{title}]({name})`");
                faults.extend((!is_titled).then(|| fault(SUMMARY, line, "summary", message)));
            }
            [_, second, ..] => faults.push(fault(SUMMARY, second, "summary", format!("{name} is listed twice"))),
        }
    }
    faults
}

/// Returns the path of a relative link, from the repository's root.
fn resolve(from: &str, link: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in link.trim_end_matches('/').split('/') {
        match part {
            "." | "" => {}
            ".." => {
                parts.pop();
            }
            name => parts.push(name),
        }
    }
    parts.join("/")
}

/// Returns whether a document has a heading with this anchor. Only documents have headings; a line of source is not checked.
fn has_heading(files: &[File], path: &str, anchor: &str) -> bool {
    let Some(file) = files.iter().find(|file| file.path == path && path.ends_with(".md")) else { return true };
    let headings = file.text.lines().filter(|line| line.starts_with('#'));
    headings.map(|line| slug(line.trim_start_matches('#').trim())).any(|slug| slug == anchor)
}

/// Returns the anchor that repository viewers give a heading.
fn slug(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}
