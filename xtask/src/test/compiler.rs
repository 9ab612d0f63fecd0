//! The compiler of the test run. This program stands before rustc and rustdoc, as cargo allows, so that the build of the tests also does
//! what would be builds of their own: clippy's lints, and the check of the documentation's links. Each of those would check every
//! dependency again, which takes longer than its own work.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use crate::command::{output, root};

/// The variable that makes this program stand before the compiler.
pub const WRAPPING: &str = "ANNALS_TEST_WRAPPING";

/// Where clippy looks for its arguments, and how it separates them.
const CLIPPY_ARGUMENTS: (&str, &str) = ("CLIPPY_ARGS", "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__");

/// Arguments of rustdoc that only the run of examples has. Each has a value.
const OF_EXAMPLES: [&str; 5] =
    ["--test-run-directory", "--test-args", "--test-runtool", "--test-runtool-arg", "--test-builder"];

/// Has cargo compile our own crates with clippy's lints. A warning is an error.
pub fn lint(cargo: &mut Command) -> Result<(), String> {
    cargo.env("RUSTC_WORKSPACE_WRAPPER", this_program()?).env(WRAPPING, "1");
    cargo.env(CLIPPY_ARGUMENTS.0, CLIPPY_ARGUMENTS.1);
    Ok(())
}

/// Has cargo check the links of the documentation before it runs the examples in it, with what was built with [`lint`].
pub fn document(cargo: &mut Command) -> Result<(), String> {
    lint(cargo)?;
    cargo.env("RUSTDOC", this_program()?);
    Ok(())
}

fn this_program() -> Result<PathBuf, String> {
    std::env::current_exe().map_err(|error| format!("the path of this program: {error}"))
}

/// Runs what cargo asks for: the compiler, which is named first, or rustdoc, which is not.
///
/// # Errors
/// Why a program could not be started.
pub fn run(arguments: &[String]) -> Result<ExitStatus, String> {
    match arguments.split_first() {
        Some((compiler, rest)) if Path::new(compiler).file_stem().is_some_and(|name| name == "rustc") => {
            compile(compiler, rest)
        }
        _ => document_and_test(arguments),
    }
}

/// Compiles with clippy, which is rustc with more lints, but does not optimise as rustc does. A crate that is to be optimised is linted
/// first, and compiled by rustc.
fn compile(compiler: &str, arguments: &[String]) -> Result<ExitStatus, String> {
    let clippy = beside(compiler, "clippy-driver")?;
    let Some(only_linted) = if_optimised(arguments)? else { return status(&clippy, &[compiler], arguments) };
    let linted = status(&clippy, &[compiler], &only_linted)?;
    if linted.success() { status(Path::new(compiler), &[], arguments) } else { Ok(linted) }
}

/// Returns the arguments that only check an optimised crate, without a trace for cargo.
fn if_optimised(arguments: &[String]) -> Result<Option<Vec<String>>, String> {
    let is_optimised = |it: &String| it.starts_with("opt-level=") && it != "opt-level=0";
    if !arguments.iter().any(is_optimised) {
        return Ok(None);
    }
    let folder = root().join("target/linted");
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let (mut kept, mut rest) = (Vec::new(), arguments.iter().peekable());
    while let Some(argument) = rest.next() {
        let is_incremental = argument == "-C" && rest.peek().is_some_and(|next| next.starts_with("incremental="));
        if argument == "--out-dir" || is_incremental {
            rest.next();
        } else if argument.starts_with("--emit=") {
            kept.push("--emit=metadata".to_owned());
        } else if argument.starts_with("--json=") {
            // Cargo would take the announced file for the crate's.
            kept.push(argument.replace(",artifacts", ""));
        } else {
            kept.push(argument.clone());
        }
    }
    kept.extend(["--out-dir".to_owned(), folder.display().to_string()]);
    Ok(Some(kept))
}

/// Writes the documentation of a crate, in which a broken link is an error, then runs its examples.
fn document_and_test(arguments: &[String]) -> Result<ExitStatus, String> {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let rustdoc = beside(&rustc, "rustdoc")?;
    if arguments.iter().any(|argument| argument == "--test") {
        let documented = status(&rustdoc, &[], &documentation(arguments))?;
        if !documented.success() {
            return Ok(documented);
        }
    }
    status(&rustdoc, &[], arguments)
}

/// Returns the arguments that write the documentation of the crate whose examples these run.
fn documentation(arguments: &[String]) -> Vec<String> {
    let (mut kept, mut rest) = (Vec::new(), arguments.iter());
    while let Some(argument) = rest.next() {
        if OF_EXAMPLES.contains(&argument.as_str()) {
            rest.next();
        } else if argument != "--test" {
            kept.push(argument.clone());
        }
    }
    let folder = root().join("target/doc");
    kept.extend(["-D", "warnings", "--out-dir"].map(str::to_owned));
    kept.push(folder.display().to_string());
    kept
}

/// Returns the program of the toolchain that has this compiler.
fn beside(compiler: &str, program: &str) -> Result<PathBuf, String> {
    let sysroot = output(Command::new(compiler).args(["--print", "sysroot"]))?;
    let found = Path::new(String::from_utf8_lossy(&sysroot).trim()).join("bin").join(program);
    Ok(if found.exists() { found } else { PathBuf::from(program) })
}

fn status(program: &Path, before: &[&str], arguments: &[String]) -> Result<ExitStatus, String> {
    let ran = Command::new(program).args(before).args(arguments).status();
    ran.map_err(|error| format!("{}: {error}; `rustup component add clippy` brings it", program.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn an_optimised_crate_is_linted_apart_and_leaves_cargo_nothing() {
        let given = "--crate-name a --json=diagnostic-rendered-ansi,artifacts,future-incompat --emit=dep-info,metadata,link \
                     -C opt-level=1 -C incremental=/t/i -C metadata=1 --out-dir /t/deps a.rs";
        let meant = "--crate-name a --json=diagnostic-rendered-ansi,future-incompat --emit=metadata -C opt-level=1 \
                     -C metadata=1 a.rs --out-dir";
        let linted = if_optimised(&words(given)).expect("a folder").expect("optimised");
        assert_eq!(linted[..linted.len() - 1].join(" "), meant);
        assert!(linted.last().is_some_and(|folder| folder.ends_with("target/linted")));
        assert_eq!(if_optimised(&words("--crate-name a -C opt-level=0 a.rs")).expect("none"), None);
        assert_eq!(if_optimised(&words("-vV")).expect("none"), None);
    }

    #[test]
    fn documentation_is_written_with_what_its_examples_are_run_with() {
        let given = "--crate-type lib --crate-name a --test a.rs --test-run-directory /r --extern b=/t/b.rlib";
        let written = documentation(&words(given)).join(" ");
        assert!(
            written.starts_with("--crate-type lib --crate-name a a.rs --extern b=/t/b.rlib -D warnings --out-dir ")
        );
    }
}
