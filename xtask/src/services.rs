//! The real services that tests run against: fetched once, started on free ports with data folders of their own, and stopped with the
//! program that started them.

mod fetch;
mod mongod;
mod wire;

use std::path::PathBuf;

use crate::command::{in_ci, only, root};
use mongod::Mongod;

/// Where tests look for a MongoDB; who sets it decides, and nothing is started.
pub const MONGODB_URL: &str = "ANNALS_TEST_MONGODB";

/// Where fetched services are kept instead of `target/services`, so that a fresh clone need not fetch them again.
const CACHE: &str = "ANNALS_SERVICES_CACHE";

/// The packages whose tests need a service.
pub const PACKAGES: [&str; 1] = ["annals-mongodb"];

/// `cargo xtask services`: starts them and keeps them until it is interrupted.
pub fn run(arguments: &[String]) -> Result<(), String> {
    only(arguments, &["--fetch"], &[])?;
    if arguments.iter().any(|argument| argument == "--fetch") {
        println!("{}", fetch::mongod(&cache())?.display());
        return Ok(());
    }
    let mongod = Mongod::start(&cache())?;
    println!("{MONGODB_URL}={}", mongod.url());
    println!("stops with this program (Ctrl-C)");
    mongod.wait()
}

/// The services of a test run. They stop when it is dropped.
pub struct Services {
    mongod: Option<Mongod>,
    url: Option<String>,
}

impl Services {
    /// Takes the services that the environment names, and starts the others.
    ///
    /// # Errors
    /// A sentence that says what to install or to set.
    pub fn start() -> Result<Self, String> {
        if let Ok(url) = std::env::var(MONGODB_URL) {
            return Ok(Self { mongod: None, url: Some(url) });
        }
        let mongod = Mongod::start(&cache()).map_err(|why| {
            let leave = if in_ci() { "" } else { ", or leave its tests out with --without-services" };
            format!("{why}\nset {MONGODB_URL} to the URL of a replica set that tests may write to{leave}")
        })?;
        Ok(Self { url: Some(mongod.url()), mongod: Some(mongod) })
    }

    /// No services.
    pub fn none() -> Self {
        Self { mongod: None, url: None }
    }

    /// What the tests' environment says about them.
    pub fn environment(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.url.iter().map(|url| (MONGODB_URL, url.as_str()))
    }

    /// Stops what was started, and waits until it has ended.
    pub fn stop(self) {
        drop(self.mongod);
    }
}

fn cache() -> PathBuf {
    std::env::var_os(CACHE).map_or_else(|| root().join("target/services"), PathBuf::from)
}
