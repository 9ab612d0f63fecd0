//! Installs Chromium and its driver with Debian's package manager. Both come from one source package, so that the driver fits.

use std::path::PathBuf;
use std::process::Command;

use super::{Running, Service};
use crate::command::{output, run};

/// The names of the Debian packages.
const PACKAGES: [&str; 2] = ["chromium", "chromium-driver"];

/// The browser that shows pages, and its driver.
pub const CHROMIUM: Service = Service {
    name: "chromium",
    place: "ANNALS_TEST_CHROMEDRIVER",
    program: "ANNALS_TEST_CHROMIUM",
    meant: "the paths of a Chromium and of its chromedriver",
    package: None,
    module: "with_chromium",
    runs: false,
    fetch: |_| Ok(programs()?.browser),
    start: |_, _| Ok(Box::new(programs()?)),
};

/// The paths of both. Each test starts a driver of its own.
struct Programs {
    browser: PathBuf,
    driver: PathBuf,
}

impl Running for Programs {
    fn place(&self) -> String {
        self.driver.display().to_string()
    }

    fn check(&mut self) -> Result<(), String> {
        Ok(())
    }
}

/// Returns the programs. Installs them if they are not on the path and this user is allowed to.
fn programs() -> Result<Programs, String> {
    if let Some(programs) = on_the_path() {
        return Ok(programs);
    }
    let install = format!("apt-get install --no-install-recommends {}", PACKAGES.join(" "));
    install_both().map_err(|why| format!("pages are tested in Chromium, and there is none here: {install}\n{why}"))?;
    on_the_path().ok_or_else(|| format!("`{install}` installed no chromium and chromedriver that are on the path"))
}

fn on_the_path() -> Option<Programs> {
    let browser = ["chromium", "chromium-browser", "google-chrome"].into_iter().find_map(found)?;
    Some(Programs { browser, driver: found("chromedriver")? })
}

fn found(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|program| program.is_file())
}

fn install_both() -> Result<(), String> {
    let id = output(Command::new("id").arg("-u"))?;
    let root = id.trim_ascii() == b"0";
    let apt = |arguments: &[&str]| {
        let mut command = Command::new(if root { "apt-get" } else { "sudo" });
        if !root {
            // Without a terminal, nobody can enter a password.
            command.args(["-n", "apt-get"]);
        }
        command.env("DEBIAN_FRONTEND", "noninteractive").args(arguments);
        run(&mut command)
    };
    let install = [&["install", "--yes", "--quiet", "--no-install-recommends"][..], &PACKAGES].concat();
    // The package lists may be missing, or older than the packages.
    apt(&install).or_else(|_| apt(&["update", "--quiet"]).and_then(|()| apt(&install)))
}
