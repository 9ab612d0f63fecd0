//! The real services that tests run against, and the browser that shows pages. They are fetched once, started on free ports with data
//! folders of their own, and stopped with the program that started them.

mod chromium;
mod fetch;
mod kafka;
mod keeper;
mod maven;
mod memory;
mod mongod;
mod python;
mod redis;
mod wire;

use std::path::{Path, PathBuf};

use crate::command::{in_ci, root};
use memory::Memory;

pub use kafka::KAFKA;
pub use mongod::MONGODB;
pub use redis::REDIS;

/// The variable for a folder of fetched services other than `target/services`, so that a fresh clone need not fetch them again.
const CACHE: &str = "ANNALS_SERVICES_CACHE";

/// Every service that tests need. Each has a file of its own with the details.
pub const ALL: [&Service; 5] = [&MONGODB, &KAFKA, &REDIS, &chromium::CHROMIUM, &python::PYTHON];

/// A service that tests run against.
pub struct Service {
    /// Its name on the command line.
    name: &'static str,
    /// The variable in which tests look for a running service. If it is set, none is started.
    pub place: &'static str,
    /// The variable in which tests look for the program. They start instances of their own to kill, stop and disconnect.
    program: &'static str,
    /// The values of both, in words.
    meant: &'static str,
    /// The package whose tests need it.
    package: Option<&'static str>,
    /// The prefix of test modules in other packages that need it.
    module: &'static str,
    /// Whether an instance runs beside the tests. If not, each test starts one of its own.
    runs: bool,
    /// Finds the program, or fetches it into this folder.
    fetch: fn(&Path) -> Result<PathBuf, String>,
    /// Starts an instance in this folder, with this program.
    start: fn(&Path, &Path) -> Started,
}

type Started = Result<Box<dyn Running>, String>;

/// A service that was started. It is stopped, and has ended, when this is dropped.
trait Running {
    /// Returns the value for the variable of its place.
    fn place(&self) -> String;

    /// Fails if the service has ended.
    fn check(&mut self) -> Result<(), String>;

    /// Returns the path of its log; `None` for a service that writes none.
    fn log(&self) -> Option<PathBuf> {
        None
    }
}

/// Returns the packages whose tests need a service.
pub fn packages() -> impl Iterator<Item = &'static str> {
    ALL.into_iter().filter_map(|service| service.package)
}

/// Returns the prefixes of test modules in other packages that need a service.
pub fn modules() -> impl Iterator<Item = &'static str> {
    ALL.into_iter().map(|service| service.module)
}

impl Service {
    /// Returns the services that the command line names. If it names none, returns all that run.
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

    /// Returns the program that the environment names, or fetches it.
    fn program(&self) -> Result<PathBuf, String> {
        std::env::var_os(self.program).map_or_else(|| (self.fetch)(&cache()), |path| Ok(path.into()))
    }
}

/// `cargo xtask services`: starts the services and keeps them running until this process ends for any reason.
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

/// The services of a test run. They stop when this is dropped.
#[derive(Default)]
pub struct Services {
    running: Vec<Box<dyn Running>>,
    environment: Vec<(&'static str, String)>,
    /// Where a MongoDB has its data, if it may be in memory. It is removed after the services have stopped.
    memory: Option<Memory>,
}

impl Services {
    /// Uses the services that the environment names, and starts the others.
    ///
    /// # Errors
    /// A sentence that says what to install or to set.
    pub fn start(wanted: &[&Service]) -> Result<Self, String> {
        Self::none().with(wanted)
    }

    /// The same for tests, whose MongoDB has its data in memory if there is enough.
    ///
    /// # Errors
    /// As for [`Self::start`].
    pub fn start_for_tests(wanted: &[&Service]) -> Result<Self, String> {
        Self { memory: Memory::find(), ..Self::none() }.with(wanted)
    }

    fn with(mut self, wanted: &[&Service]) -> Result<Self, String> {
        let leave = if in_ci() { "" } else { ", or leave its tests out with --without-services" };
        for service in wanted {
            let Service { place, program, meant, .. } = service;
            let started = self.start_one(service);
            started.map_err(|why| format!("{why}\nset {program} and {place} to {meant} that tests may use{leave}"))?;
        }
        Ok(self)
    }

    /// Returns no services.
    pub fn none() -> Self {
        Self::default()
    }

    fn start_one(&mut self, service: &Service) -> Result<(), String> {
        let Ok(place) = std::env::var(service.place) else { return self.start_own(service) };
        let program = service.program()?.display().to_string();
        self.environment.extend([(service.place, place), (service.program, program)]);
        Ok(())
    }

    /// Starts a service, whether or not the environment names a running one.
    fn start_own(&mut self, service: &Service) -> Result<(), String> {
        let program = service.program()?;
        let memory = self.memory.as_ref().filter(|_| service.place == MONGODB.place);
        let folder = memory.map_or_else(cache, |memory| memory.folder().to_path_buf());
        let running = (service.start)(&folder, &program)?;
        let program = program.display().to_string();
        self.environment.extend([(service.place, running.place()), (service.program, program)]);
        self.running.push(running);
        Ok(())
    }

    /// Returns the variables of the tests' environment that name the services.
    pub fn environment(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.environment.iter().map(|(name, value)| (*name, value.as_str()))
    }

    /// Returns the value of one of these variables.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.environment().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Fails if one of the services has ended.
    fn check(&mut self) -> Result<(), String> {
        self.running.iter_mut().try_for_each(|running| running.check())
    }

    /// Returns the logs of the started services. They are removed when the services stop.
    pub fn logs(&self) -> impl Iterator<Item = PathBuf> {
        self.running.iter().filter_map(|running| running.log())
    }

    /// Stops the started services, and waits until they have ended.
    pub fn stop(self) {
        drop(self);
    }
}

fn cache() -> PathBuf {
    std::env::var_os(CACHE).map_or_else(|| root().join("target/services"), PathBuf::from)
}
