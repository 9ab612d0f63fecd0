//! The real services that tests run against, and the browser that shows pages: fetched once, started on free ports with data folders of
//! their own, and stopped with the program that started them.

mod chromium;
mod fetch;
mod kafka;
mod keeper;
mod maven;
mod mongod;
mod python;
mod redis;
mod wire;

use std::path::{Path, PathBuf};

use crate::command::{in_ci, root};

pub use kafka::KAFKA;
pub use mongod::MONGODB;
pub use redis::REDIS;

/// Where fetched services are kept instead of `target/services`, so that a fresh clone need not fetch them again.
const CACHE: &str = "ANNALS_SERVICES_CACHE";

/// Every service that tests need. Its own file says the rest.
pub const ALL: [&Service; 5] = [&MONGODB, &KAFKA, &REDIS, &chromium::CHROMIUM, &python::PYTHON];

/// A service that tests run against.
pub struct Service {
    /// What the command line calls it.
    name: &'static str,
    /// The variable in which tests look for a running one; who sets it decides, and nothing is started.
    pub place: &'static str,
    /// The variable in which tests look for the program, of which they start some of their own to kill, stop and cut off.
    program: &'static str,
    /// What both are set to, for people.
    meant: &'static str,
    /// The package whose tests need it.
    package: Option<&'static str>,
    /// How the modules of other packages' tests begin that need it.
    module: &'static str,
    /// Whether one runs beside the tests. Of others, each test starts one of its own.
    runs: bool,
    /// Finds the program, or brings it into this folder.
    fetch: fn(&Path) -> Result<PathBuf, String>,
    /// Starts one in this folder, with this program.
    start: fn(&Path, &Path) -> Started,
}

type Started = Result<Box<dyn Running>, String>;

/// A service that was started. It stops when it is dropped, and has ended then.
trait Running {
    /// What the variable of its place is set to.
    fn place(&self) -> String;

    /// Fails when it has ended.
    fn check(&mut self) -> Result<(), String>;

    /// Where its log is; none of a service that writes none.
    fn log(&self) -> Option<PathBuf> {
        None
    }
}

/// The packages whose tests need a service.
pub fn packages() -> impl Iterator<Item = &'static str> {
    ALL.into_iter().filter_map(|service| service.package)
}

/// How the modules of other packages' tests begin that need one.
pub fn modules() -> impl Iterator<Item = &'static str> {
    ALL.into_iter().map(|service| service.module)
}

impl Service {
    /// The services that the command line names; all that run when it names none.
    fn named(words: &[&String], fetch: bool) -> Result<Vec<&'static Self>, String> {
        if words.is_empty() {
            return Ok(ALL.into_iter().filter(|service| fetch || service.runs).collect());
        }
        let known = |word: &&String| {
            let names = || ALL.map(|service| service.name).join(", ");
            let found = ALL.into_iter().find(|service| service.name == word.as_str());
            found.ok_or_else(|| format!("{word:?} is not a service; there are {}", names()))
        };
        words.iter().map(known).collect()
    }

    /// What runs it: the program that the environment names, or one that is fetched.
    fn program(&self) -> Result<PathBuf, String> {
        std::env::var_os(self.program).map_or_else(|| (self.fetch)(&cache()), |path| Ok(path.into()))
    }
}

/// `cargo xtask services`: starts them and keeps them until it ends, however that comes.
pub fn run(arguments: &[String]) -> Result<(), String> {
    let (flags, words): (Vec<_>, Vec<_>) = arguments.iter().partition(|argument| *argument == "--fetch");
    let fetch = !flags.is_empty();
    let named = Service::named(&words, fetch)?;
    if fetch {
        for service in named {
            println!("{}", (service.fetch)(&cache())?.display());
        }
        return Ok(());
    }
    let mut services = Services::none();
    for service in named {
        services.start_own(service)?;
    }
    for (name, value) in services.environment() {
        println!("{name}={value}");
    }
    println!("stops with this program (Ctrl-C, or SIGTERM where that is ignored, as in the background)");
    loop {
        services.check()?;
        keeper::pause();
    }
}

/// The services of a test run. They stop when it is dropped.
#[derive(Default)]
pub struct Services {
    running: Vec<Box<dyn Running>>,
    environment: Vec<(&'static str, String)>,
}

impl Services {
    /// Takes those of these services that the environment names, and starts the others.
    ///
    /// # Errors
    /// A sentence that says what to install or to set.
    pub fn start(wanted: &[&Service]) -> Result<Self, String> {
        let mut services = Self::none();
        let leave = if in_ci() { "" } else { ", or leave its tests out with --without-services" };
        for service in wanted {
            let Service { place, program, meant, .. } = service;
            let started = services.start_one(service);
            started.map_err(|why| format!("{why}\nset {program} and {place} to {meant} that tests may use{leave}"))?;
        }
        Ok(services)
    }

    /// No services.
    pub fn none() -> Self {
        Self::default()
    }

    fn start_one(&mut self, service: &Service) -> Result<(), String> {
        let Ok(place) = std::env::var(service.place) else { return self.start_own(service) };
        let program = service.program()?.display().to_string();
        self.environment.extend([(service.place, place), (service.program, program)]);
        Ok(())
    }

    /// Starts one, whatever the environment says of those that run.
    fn start_own(&mut self, service: &Service) -> Result<(), String> {
        let program = service.program()?;
        let running = (service.start)(&cache(), &program)?;
        let program = program.display().to_string();
        self.environment.extend([(service.place, running.place()), (service.program, program)]);
        self.running.push(running);
        Ok(())
    }

    /// What the tests' environment says about them.
    pub fn environment(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.environment.iter().map(|(name, value)| (*name, value.as_str()))
    }

    /// What the environment says about one of them.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.environment().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Fails when one of them has ended.
    fn check(&mut self) -> Result<(), String> {
        self.running.iter_mut().try_for_each(|running| running.check())
    }

    /// The logs of those that were started. They are removed when those stop.
    pub fn logs(&self) -> impl Iterator<Item = PathBuf> {
        self.running.iter().filter_map(|running| running.log())
    }

    /// Stops what was started, and waits until it has ended.
    pub fn stop(self) {
        drop(self.running);
    }
}

fn cache() -> PathBuf {
    std::env::var_os(CACHE).map_or_else(|| root().join("target/services"), PathBuf::from)
}
