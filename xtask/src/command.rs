//! Running other programs from the repository's root.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The repository's root.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// The cargo that runs this program, at the repository's root.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    if in_ci() {
        // A clone is built once: incremental files would cost time and space for nothing.
        command.env("CARGO_INCREMENTAL", "0");
    }
    command
}

/// Whether this is a run of CI.
pub fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true" || value == "1")
}

/// Shows the command, runs it with its output passed through, and fails with a sentence unless it succeeds.
pub fn run(command: &mut Command) -> Result<(), String> {
    let shown = shown(command);
    println!("$ {shown}");
    let status = command.status().map_err(|error| format!("`{shown}` could not be started: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("`{shown}` failed ({status})")) }
}

/// Runs the command quietly and gives what it wrote to its standard output.
pub fn output(command: &mut Command) -> Result<Vec<u8>, String> {
    let shown = shown(command);
    let output = command.output().map_err(|error| format!("`{shown}` could not be started: {error}"))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(format!("`{shown}` failed ({})\n{}", output.status, String::from_utf8_lossy(&output.stderr)))
}

/// Runs the command with its errors passed through, and gives what it wrote to its standard output.
pub fn standard_output(command: &mut Command) -> Result<String, String> {
    let shown = shown(command);
    println!("$ {shown}");
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("`{shown}` could not be started: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("`{shown}` failed ({})", output.status)),
    }
}

/// The command as one would type it.
fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let mut words = vec![program.to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|word| word.to_string_lossy().into_owned()));
    words.join(" ")
}

/// The value behind `flag` as a number, if the flag is there.
pub fn number(arguments: &[String], flag: &str) -> Result<Option<u64>, String> {
    let Some(text) = value(arguments, flag)? else { return Ok(None) };
    text.parse().map(Some).map_err(|_| format!("{flag} takes a whole number, not {text:?}"))
}

/// The value behind `flag`, if the flag is there.
pub fn value<'a>(arguments: &'a [String], flag: &str) -> Result<Option<&'a str>, String> {
    let Some(at) = arguments.iter().position(|argument| argument == flag) else { return Ok(None) };
    match arguments.get(at + 1) {
        Some(value) => Ok(Some(value)),
        None => Err(format!("{flag} needs a value")),
    }
}

/// Refuses arguments that are neither one of `flags` nor the value of one of `flags_with_value`.
pub fn only(arguments: &[String], flags: &[&str], flags_with_value: &[&str]) -> Result<(), String> {
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        if flags_with_value.contains(&argument.as_str()) {
            rest.next();
        } else if !flags.contains(&argument.as_str()) {
            return Err(format!("{argument:?} is not an option here; `cargo xtask help` lists them"));
        }
    }
    Ok(())
}
