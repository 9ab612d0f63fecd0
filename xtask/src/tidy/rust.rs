//! Rules for Rust source.

use std::ops::Range;

use super::code::Code;
use super::{Fault, File, fault};

const FILE_LINES_MAX: usize = 600;
/// The limit for comments. rustfmt keeps code at 120 columns, but does not wrap comments.
const LINE_COLUMNS_MAX: usize = 140;
const FUNCTION_LINES_MAX: usize = 100;

/// What this repository avoids, and the alternative.
const BANNED: [(&str, &str, &str); 5] = [
    ("todo!", "unfinished", "finish it or leave it out"),
    ("unimplemented!", "unfinished", "finish it or leave it out"),
    ("dbg!", "debug", "remove it, or use tracing"),
    ("#[ignore", "ignore", "a test that does not run proves nothing; make it fast or move it to `cargo xtask soak`"),
    ("static mut", "static", "use an atomic or a OnceLock"),
];

/// The runtime's own time functions. Products use `annals_core::Clock` or `annals_system::{Instant, sleep}` instead, so that there is one
/// place where each is read (docs/decisions/0040). A test or a tool may measure.
const TIMES: [&str; 4] =
    ["tokio::time::sleep", "tokio::time::sleep_until", "tokio::time::interval", "tokio::time::Instant"];
const IMPORTED_TIMES: [&str; 4] = ["sleep", "sleep_until", "interval", "Instant"];

/// Ways to sleep that are banned only in tests: products may wait for time to pass, tests wait for what they expect.
const SLEEPS: [&str; 3] = ["thread::sleep", "time::sleep", "time::sleep_until"];

pub fn faults(file: &File) -> Vec<Fault> {
    let code = Code::new(&file.text);
    let mut faults = size_faults(file, &code);
    for (banned, rule, instead) in BANNED {
        faults.extend(
            code.find_all(banned)
                .map(|at| fault(&file.path, code.line(at), rule, format!("`{banned}` is not used here: {instead}"))),
        );
    }
    let tests = test_spans(file, &code);
    for sleep in SLEEPS {
        let in_tests = code.find_all(sleep).filter(|at| tests.iter().any(|span| span.contains(at)));
        faults.extend(in_tests.map(|at| {
            fault(
                &file.path,
                code.line(at),
                "pause",
                "a test waits for a condition with a deadline, not for time to pass",
            )
        }));
    }
    if is_product(&file.path) {
        faults.extend(times(file, &code).filter(|at| !tests.iter().any(|span| span.contains(at))).map(|at| {
            fault(
                &file.path,
                code.line(at),
                "time",
                "products take `annals_core::Clock`, or `annals_system::{Instant, sleep}` for what other processes do",
            )
        }));
    }
    faults.extend(bare_matches(&code).map(|at| {
        fault(&file.path, code.line(at), "matches", "a bare `matches!` asserts nothing; write `assert!(matches!(…))`")
    }));
    faults.retain(|fault| !allowed(&file.text, fault));
    faults
}

/// Returns whether a file is part of a product. Exempt are the crate that reads the time for the others, the tests' frame and the
/// benchmarks.
fn is_product(path: &str) -> bool {
    let crate_of = path.strip_prefix("crates/").and_then(|rest| rest.split_once("/src/")).map(|(name, _)| name);
    crate_of.is_some_and(|name| !["system", "conformance", "bench"].contains(&name))
}

/// Returns where a file uses the runtime's time directly: by path, or by an import.
fn times<'a>(file: &'a File, code: &'a Code) -> impl Iterator<Item = usize> + 'a {
    let by_path = TIMES.iter().flat_map(|time| code.find_all(time));
    let imported = code.find_all("use tokio::time::{").filter(|at| {
        let names = file.text[*at..].split(';').next().unwrap_or_default();
        names.split(|c: char| !c.is_alphanumeric() && c != '_').any(|name| IMPORTED_TIMES.contains(&name))
    });
    by_path.chain(imported)
}

/// Returns whether a comment on the line or the one above sets the rule aside, with a reason.
fn allowed(text: &str, fault: &Fault) -> bool {
    let marker = format!("tidy: allow({}) ", fault.rule);
    let first = fault.line.saturating_sub(2);
    text.lines()
        .skip(first)
        .take(fault.line - first)
        .any(|line| line.split_once(&marker).is_some_and(|(_, reason)| !reason.trim().is_empty()))
}

fn size_faults(file: &File, code: &Code) -> Vec<Fault> {
    let mut faults = Vec::new();
    let lines = file.text.lines().count();
    if lines > FILE_LINES_MAX {
        let message = format!("{lines} lines; a file has at most {FILE_LINES_MAX}, so split it by what it does");
        faults.push(fault(&file.path, lines, "length", message));
    }
    for (index, &columns) in code.columns.iter().enumerate() {
        if columns > LINE_COLUMNS_MAX {
            let message = format!("{columns} columns; a line has at most {LINE_COLUMNS_MAX}");
            faults.push(fault(&file.path, index + 1, "columns", message));
        }
    }
    for (line, lines) in functions(code) {
        if lines > FUNCTION_LINES_MAX {
            let message = format!("a function of {lines} lines; one has at most {FUNCTION_LINES_MAX}");
            faults.push(fault(&file.path, line, "function", message));
        }
    }
    faults
}

/// Returns the line and the length in lines of every function with a body.
fn functions(code: &Code) -> Vec<(usize, usize)> {
    let bytes = code.as_bytes();
    let body = |at: usize| {
        let mut depth = 0usize;
        for (at, byte) in bytes.iter().enumerate().skip(at) {
            match byte {
                b'(' | b'[' => depth += 1,
                b')' | b']' => depth = depth.saturating_sub(1),
                b'{' if depth == 0 => return Some(at),
                b';' if depth == 0 => return None,
                _ => {}
            }
        }
        None
    };
    let lines = |at: usize| {
        let end = code.closing(body(at)?)?;
        Some((code.line(at), code.line(end) - code.line(at) + 1))
    };
    code.find_all("fn").filter_map(lines).collect()
}

/// Returns where tests are: whole files under `tests`, and what follows `#[cfg(test)]` in others.
fn test_spans(file: &File, code: &Code) -> Vec<Range<usize>> {
    let parts: Vec<&str> = file.path.split('/').collect();
    if parts.contains(&"tests") || parts.last() == Some(&"tests.rs") {
        return std::iter::once(0..file.text.len()).collect();
    }
    let span = |at: usize| {
        let bytes = code.as_bytes();
        let open = at + bytes[at..].iter().position(|&byte| byte == b'{')?;
        Some(at..code.closing(open)?)
    };
    code.find_all("#[cfg(test)]").filter_map(span).collect()
}

/// Returns the positions of a `matches!` whose result is unused.
fn bare_matches(code: &Code) -> impl Iterator<Item = usize> + '_ {
    code.find_all("matches!").filter(|&at| {
        let bytes = code.as_bytes();
        let before = bytes[..at].iter().rev().find(|byte| !byte.is_ascii_whitespace());
        let open = bytes[at..].iter().position(|byte| b"([{".contains(byte)).map(|offset| at + offset);
        let end = open.and_then(|open| code.closing(open));
        let behind = end.and_then(|end| bytes[end + 1..].iter().find(|byte| !byte.is_ascii_whitespace()));
        before.is_none_or(|byte| b"{};".contains(byte)) && behind == Some(&b';')
    })
}

/// Returns source files that no other file declares as a module: the compiler never sees them.
pub fn dead_files(files: &[File]) -> Vec<Fault> {
    let rust: Vec<&File> = files.iter().filter(|file| file.path.ends_with(".rs")).collect();
    let dead = rust.iter().filter(|file| {
        let Some((name, parents)) = module(&file.path) else { return false };
        let declared = |text: &str| {
            let code = Code::new(text);
            let forms = [format!("mod {name};"), format!("mod r#{name};")];
            forms.iter().any(|form| code.find_all(form).next().is_some()) || text.contains(&format!("{name}.rs\""))
        };
        !rust.iter().any(|other| parents.contains(&other.path) && declared(&other.text))
    });
    let message = "no file declares it as a module, so nothing of it is compiled";
    dead.map(|file| fault(&file.path, 0, "dead", message)).collect()
}

/// Returns the name of the module in a file, and the files that may declare it; `None` for the roots that cargo finds by itself.
fn module(path: &str) -> Option<(&str, Vec<String>)> {
    let (folder, file) = path.rsplit_once('/')?;
    let stem = file.strip_suffix(".rs")?;
    let (name, folder) =
        if stem == "mod" { (folder.rsplit('/').next()?, folder.rsplit_once('/')?.0) } else { (stem, folder) };
    let kind = folder.rsplit('/').next().unwrap_or_default();
    let roots =
        matches!((kind, name), ("src", "lib" | "main")) || ["bin", "examples", "benches", "targets"].contains(&kind);
    let test_target = kind == "tests" && !folder.contains("/src/");
    if roots || test_target || file == "build.rs" || (stem == "main" && folder.contains("/tests/")) {
        return None;
    }
    let mut parents: Vec<String> = ["lib", "main", "mod"].iter().map(|root| format!("{folder}/{root}.rs")).collect();
    parents.push(format!("{folder}.rs"));
    Some((name, parents))
}
