//! The real services that tests run against, and the browser that shows pages: fetched once, started on free ports with data folders of
//! their own, and stopped with the program that started them.

mod chromium;
mod fetch;
mod kafka;
mod keeper;
mod maven;
mod mongod;
mod redis;
mod wire;

use std::path::PathBuf;

use crate::command::{in_ci, root};
use kafka::Kafka;
use mongod::Mongod;
use redis::Redis;

/// Where tests look for a MongoDB; who sets it decides, and nothing is started.
pub const MONGODB_URL: &str = "ANNALS_TEST_MONGODB";

/// Where tests look for the program, of which they start servers of their own to kill, stop and cut off.
pub const MONGOD: &str = "ANNALS_TEST_MONGOD";

/// Where tests look for a Kafka, as HOST:PORT; who sets it decides, and nothing is started.
pub const KAFKA_ADDRESS: &str = "ANNALS_TEST_KAFKA";

/// Where tests look for the folder of Kafka's jars, from which they start brokers of their own, and consumers that are not ours.
pub const KAFKA_JARS: &str = "ANNALS_TEST_KAFKA_JARS";

/// Where tests look for a Redis; who sets it decides, and nothing is started.
pub const REDIS_URL: &str = "ANNALS_TEST_REDIS";

/// Where tests look for the program, of which they start servers of their own to kill and empty.
pub const REDIS_SERVER: &str = "ANNALS_TEST_REDIS_SERVER";

/// Where tests look for the browser and for the program that drives it.
pub const CHROMIUM: &str = "ANNALS_TEST_CHROMIUM";
pub const CHROMEDRIVER: &str = "ANNALS_TEST_CHROMEDRIVER";

/// Where fetched services are kept instead of `target/services`, so that a fresh clone need not fetch them again.
const CACHE: &str = "ANNALS_SERVICES_CACHE";

/// The packages whose tests need a service.
pub const PACKAGES: [&str; 3] = ["annals-mongodb", "annals-kafka", "annals-redis"];

/// How the modules of other packages' tests begin that need a service.
pub const MODULES: [&str; 4] = ["with_mongodb", "with_kafka", "with_redis", "with_chromium"];

/// A service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    MongoDb,
    Kafka,
    Redis,
    /// No service that runs: each test starts a browser of its own.
    Chromium,
}

impl Kind {
    pub const ALL: [Self; 4] = [Self::MongoDb, Self::Kafka, Self::Redis, Self::Chromium];

    fn name(self) -> &'static str {
        match self {
            Self::MongoDb => "mongodb",
            Self::Kafka => "kafka",
            Self::Redis => "redis",
            Self::Chromium => "chromium",
        }
    }

    /// The services that the command line names; all when it names none.
    fn named(words: &[String]) -> Result<Vec<Self>, String> {
        let known = |word: &String| {
            let found = Self::ALL.into_iter().find(|kind| kind.name() == word.as_str());
            found.ok_or_else(|| format!("{word:?} is not a service; there are mongodb, kafka, redis and chromium"))
        };
        let named = words.iter().filter(|word| *word != "--fetch").map(known).collect::<Result<Vec<_>, _>>()?;
        let fetch = words.iter().any(|word| word == "--fetch");
        // A browser is fetched, and nothing of it is started.
        let all = || Self::ALL.into_iter().filter(|kind| fetch || *kind != Self::Chromium).collect();
        Ok(if named.is_empty() { all() } else { named })
    }
}

/// `cargo xtask services`: starts them and keeps them until it ends, however that comes.
pub fn run(arguments: &[String]) -> Result<(), String> {
    let kinds = Kind::named(arguments)?;
    if arguments.iter().any(|argument| argument == "--fetch") {
        for kind in kinds {
            let fetched = match kind {
                Kind::MongoDb => fetch::mongod(&cache())?,
                Kind::Kafka => maven::kafka(&cache())?,
                Kind::Redis => redis::program(&cache())?,
                Kind::Chromium => chromium::programs()?.driver,
            };
            println!("{}", fetched.display());
        }
        return Ok(());
    }
    let mut services = Services::none();
    for kind in kinds {
        services.start_own(kind)?;
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
pub struct Services {
    mongod: Option<Mongod>,
    kafka: Option<Kafka>,
    redis: Option<Redis>,
    environment: Vec<(&'static str, String)>,
}

impl Services {
    /// Takes the services of these kinds that the environment names, and starts the others.
    ///
    /// # Errors
    /// A sentence that says what to install or to set.
    pub fn start(kinds: &[Kind]) -> Result<Self, String> {
        let mut services = Self::none();
        let leave = if in_ci() { "" } else { ", or leave its tests out with --without-services" };
        for kind in kinds {
            let set = match kind {
                Kind::MongoDb => {
                    format!(
                        "{MONGOD} to the path of a mongod 6.0 or later, and {MONGODB_URL} to the URL of a replica set"
                    )
                }
                Kind::Kafka => {
                    format!(
                        "{KAFKA_JARS} to the folder of the jars of Kafka 4, and {KAFKA_ADDRESS} to HOST:PORT of a broker"
                    )
                }
                Kind::Redis => format!("{REDIS_SERVER} to the path of a redis-server 7, and {REDIS_URL} to its URL"),
                Kind::Chromium => {
                    format!("{CHROMIUM} to the path of a Chromium, and {CHROMEDRIVER} to that of its chromedriver")
                }
            };
            services.start_one(*kind).map_err(|why| format!("{why}\nset {set} that tests may write to{leave}"))?;
        }
        Ok(services)
    }

    /// No services.
    pub fn none() -> Self {
        Self { mongod: None, kafka: None, redis: None, environment: Vec::new() }
    }

    fn start_one(&mut self, kind: Kind) -> Result<(), String> {
        let (program, url) = match kind {
            Kind::MongoDb => (MONGOD, MONGODB_URL),
            Kind::Kafka => (KAFKA_JARS, KAFKA_ADDRESS),
            Kind::Redis => (REDIS_SERVER, REDIS_URL),
            Kind::Chromium => (CHROMIUM, CHROMEDRIVER),
        };
        match (std::env::var(program), std::env::var(url)) {
            (Ok(program_is), Ok(url_is)) => self.environment.extend([(url, url_is), (program, program_is)]),
            (given, Ok(url_is)) => {
                let program_is = given.map_or_else(|_| Self::program(kind), |path| Ok(PathBuf::from(path)))?;
                self.environment.extend([(url, url_is), (program, program_is.display().to_string())]);
            }
            (_, Err(_)) => self.start_own(kind)?,
        }
        Ok(())
    }

    /// What runs a service: the environment's, or one that is fetched.
    fn program(kind: Kind) -> Result<PathBuf, String> {
        let (given, cache) = match kind {
            Kind::MongoDb => (std::env::var_os(MONGOD), cache()),
            Kind::Kafka => (std::env::var_os(KAFKA_JARS), cache()),
            Kind::Redis => (std::env::var_os(REDIS_SERVER), cache()),
            Kind::Chromium => (std::env::var_os(CHROMIUM), cache()),
        };
        match (given, kind) {
            (Some(path), Kind::Kafka) => maven::java().map(|()| PathBuf::from(path)),
            (Some(path), Kind::MongoDb | Kind::Redis | Kind::Chromium) => Ok(PathBuf::from(path)),
            (None, Kind::MongoDb) => fetch::mongod(&cache),
            (None, Kind::Kafka) => maven::kafka(&cache),
            (None, Kind::Redis) => redis::program(&cache),
            (None, Kind::Chromium) => chromium::programs().map(|programs| programs.browser),
        }
    }

    /// Starts one of these, whatever the environment says of those that run.
    fn start_own(&mut self, kind: Kind) -> Result<(), String> {
        let program = Self::program(kind)?;
        let shown = program.display().to_string();
        match kind {
            Kind::MongoDb => {
                let mongod = Mongod::start(&cache(), &program)?;
                self.environment.extend([(MONGODB_URL, mongod.url()), (MONGOD, shown)]);
                self.mongod = Some(mongod);
            }
            Kind::Kafka => {
                let kafka = Kafka::start(&cache(), &program)?;
                self.environment.extend([(KAFKA_ADDRESS, kafka.address()), (KAFKA_JARS, shown)]);
                self.kafka = Some(kafka);
            }
            Kind::Redis => {
                let redis = Redis::start(&cache(), &program)?;
                self.environment.extend([(REDIS_URL, redis.url()), (REDIS_SERVER, shown)]);
                self.redis = Some(redis);
            }
            Kind::Chromium => {
                let driver = chromium::programs()?.driver.display().to_string();
                self.environment.extend([(CHROMEDRIVER, driver), (CHROMIUM, shown)]);
            }
        }
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
        self.mongod.as_mut().map_or(Ok(()), Mongod::check)?;
        self.kafka.as_mut().map_or(Ok(()), Kafka::check)?;
        self.redis.as_mut().map_or(Ok(()), Redis::check)
    }

    /// Stops what was started, and waits until it has ended.
    pub fn stop(self) {
        drop(self.mongod);
        drop(self.kafka);
        drop(self.redis);
    }
}

fn cache() -> PathBuf {
    std::env::var_os(CACHE).map_or_else(|| root().join("target/services"), PathBuf::from)
}
