//! Brings the Python packages here that read what Annals wrote: DuckDB for the files of the archive, and Beanie for the documents of the
//! browse view.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Running, Service};
use crate::command::{output, run};

/// The packages, as pip is asked for them. A changed list gets a folder of its own.
const PACKAGES: [&str; 2] = ["duckdb>=1.1,<3", "beanie>=2,<3"];
/// The folder below the cache.
const FOLDER: &str = "python-1";

/// A Python, and the folder of the packages.
pub const PYTHON: Service = Service {
    name: "python",
    place: "ANNALS_TEST_PYTHON_PACKAGES",
    program: "ANNALS_TEST_PYTHON",
    meant: "a Python 3 and a folder with the packages duckdb and beanie",
    package: None,
    module: "with_python",
    runs: false,
    fetch: |cache| packages(cache).map(|_| PathBuf::from("python3")),
    start: |folder, _| Ok(Box::new(Packages(packages(folder)?))),
};

struct Packages(PathBuf);

impl Running for Packages {
    fn place(&self) -> String {
        self.0.display().to_string()
    }

    fn check(&mut self) -> Result<(), String> {
        Ok(())
    }
}

/// The folder of the packages, which are installed into it once.
fn packages(_folder: &Path) -> Result<PathBuf, String> {
    let cache = super::cache();
    let folder = cache.join(FOLDER);
    if folder.exists() {
        return Ok(folder);
    }
    output(Command::new("python3").args(["-m", "pip", "--version"])).map_err(|_| {
        "what Annals wrote is read by Python, and python3 has no pip here: install it (Debian: apt-get install python3-pip)"
            .to_owned()
    })?;
    // Under a name of its own until it is whole: two runs may fetch at once, and one may be interrupted.
    let part = cache.join(format!("{FOLDER}.part-{}", std::process::id()));
    let mut install = Command::new("python3");
    install.args(["-m", "pip", "install", "--quiet", "--only-binary=:all:", "--target"]).arg(&part).args(PACKAGES);
    let installed = run(&mut install);
    let placed = installed.and_then(|()| match fs::rename(&part, &folder) {
        Err(error) if !folder.exists() => Err(format!("{}: {error}", folder.display())),
        _ => Ok(()),
    });
    let _ = fs::remove_dir_all(&part);
    placed.map(|()| folder)
}
