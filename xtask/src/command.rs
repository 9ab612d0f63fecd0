//! Runs other programs in the repository's root.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Returns the repository's root.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// Returns the cargo that runs this program, in the repository's root.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    if in_ci() {
        // A CI checkout is built once, so incremental files would only cost time and space.
        command.env("CARGO_INCREMENTAL", "0");
    }
    command
}

/// Returns whether this is a CI run.
pub fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true" || value == "1")
}

/// Prints the command and runs it with its output passed through. Fails with a sentence unless the command succeeds.
pub fn run(command: &mut Command) -> Result<(), String> {
    let shown = shown(command);
    println!("$ {shown}");
    let status = command.status().map_err(|error| format!("`{shown}` could not be started: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("`{shown}` failed ({status})")) }
}

/// Runs the command quietly. Returns its standard output.
pub fn output(command: &mut Command) -> Result<Vec<u8>, String> {
    let shown = shown(command);
    let output = command.output().map_err(|error| format!("`{shown}` could not be started: {error}"))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(format!("`{shown}` failed ({})\n{}", output.status, String::from_utf8_lossy(&output.stderr)))
}

/// Runs the command with its errors passed through. Returns its standard output.
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

/// Returns the command as one would type it.
fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let mut words = vec![program.to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|word| word.to_string_lossy().into_owned()));
    words.join(" ")
}

/// Returns the value after `flag` as a number, if the flag is present.
pub fn number(arguments: &[String], flag: &str) -> Result<Option<u64>, String> {
    let Some(text) = value(arguments, flag)? else { return Ok(None) };
    text.parse().map(Some).map_err(|_| format!("{flag} takes a whole number, not {text:?}"))
}

/// Returns the value after `flag`, if the flag is present.
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
