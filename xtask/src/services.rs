//! The real services that tests run against: fetched once, started on free ports with data folders of their own, and stopped with the
//! program that started them.

mod fetch;
mod mongod;
mod wire;

use std::path::{Path, PathBuf};

use crate::command::{in_ci, only, root};
use mongod::Mongod;

/// Where tests look for a MongoDB; who sets it decides, and nothing is started.
pub const MONGODB_URL: &str = "ANNALS_TEST_MONGODB";

/// Where tests look for the program, of which they start servers of their own to kill, stop and cut off.
pub const MONGOD: &str = "ANNALS_TEST_MONGOD";

/// Where fetched services are kept instead of `target/services`, so that a fresh clone need not fetch them again.
const CACHE: &str = "ANNALS_SERVICES_CACHE";

/// The packages whose tests need a service.
pub const PACKAGES: [&str; 1] = ["annals-mongodb"];

/// `cargo xtask services`: starts them and keeps them until it ends, however that comes.
pub fn run(arguments: &[String]) -> Result<(), String> {
    only(arguments, &["--fetch"], &[])?;
    if arguments.iter().any(|argument| argument == "--fetch") {
        println!("{}", fetch::mongod(&cache())?.display());
        return Ok(());
    }
    let program = fetch::mongod(&cache())?;
    let mongod = Mongod::start(&cache(), &program)?;
    println!("{MONGOD}={}", program.display());
    println!("{MONGODB_URL}={}", mongod.url());
    println!("stops with this program (Ctrl-C, or SIGTERM where that is ignored, as in the background)");
    mongod.wait()
}

/// The services of a test run. They stop when it is dropped.
pub struct Services {
    mongod: Option<Mongod>,
    environment: Vec<(&'static str, String)>,
}

impl Services {
    /// Takes the services that the environment names, and starts the others.
    ///
    /// # Errors
    /// A sentence that says what to install or to set.
    pub fn start() -> Result<Self, String> {
        let cache = cache();
        let leave = if in_ci() { "" } else { ", or leave its tests out with --without-services" };
        let program = match std::env::var_os(MONGOD) {
            Some(program) => PathBuf::from(program),
            None => fetch::mongod(&cache)
                .map_err(|why| format!("{why}\nset {MONGOD} to the path of a mongod 6.0 or later{leave}"))?,
        };
        let (mongod, url) = match std::env::var(MONGODB_URL) {
            Ok(url) => (None, url),
            Err(_) => started(&cache, &program).map_err(|why| {
                format!("{why}\nset {MONGODB_URL} to the URL of a replica set that tests may write to{leave}")
            })?,
        };
        let environment = vec![(MONGODB_URL, url), (MONGOD, program.display().to_string())];
        Ok(Self { mongod, environment })
    }

    /// No services.
    pub fn none() -> Self {
        Self { mongod: None, environment: Vec::new() }
    }

    /// What the tests' environment says about them.
    pub fn environment(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.environment.iter().map(|(name, value)| (*name, value.as_str()))
    }

    /// Stops what was started, and waits until it has ended.
    pub fn stop(self) {
        drop(self.mongod);
    }
}

fn started(cache: &Path, program: &Path) -> Result<(Option<Mongod>, String), String> {
    let mongod = Mongod::start(cache, program)?;
    let url = mongod.url();
    Ok((Some(mongod), url))
}

fn cache() -> PathBuf {
    std::env::var_os(CACHE).map_or_else(|| root().join("target/services"), PathBuf::from)
}
