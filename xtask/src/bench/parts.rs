//! The parts of the benchmark that need services, each a word of the command line.

use std::process::Command;

use super::build::Built;
use crate::command::run;
use crate::services::{self, Service, Services};

/// A part of the benchmark.
pub struct Part {
    /// Its word.
    pub name: &'static str,
    /// What it runs against, and the options that say where these are.
    services: &'static [(&'static Service, &'static str)],
    /// Whether it has rows over HTTP, for which it starts the server.
    serves: bool,
    /// How long all its rows take at most when the page of features is filled, in minutes.
    pub minutes_max: u32,
}

const MONGODB: (&Service, &str) = (&services::MONGODB, "--url");
const REDIS: (&Service, &str) = (&services::REDIS, "--redis");
const KAFKA: (&Service, &str) = (&services::KAFKA, "--address");

/// Every part. All but the first are on the page of features, in its order.
static PARTS: [Part; 8] = [
    Part { name: "mongodb", services: &[MONGODB], serves: false, minutes_max: 0 },
    Part { name: "processing", services: &[MONGODB], serves: true, minutes_max: 40 },
    Part { name: "workflow", services: &[MONGODB, REDIS], serves: false, minutes_max: 40 },
    Part { name: "partners", services: &[MONGODB], serves: false, minutes_max: 60 },
    Part { name: "letters", services: &[MONGODB], serves: false, minutes_max: 30 },
    Part { name: "browse", services: &[MONGODB], serves: true, minutes_max: 60 },
    Part { name: "kafka", services: &[KAFKA], serves: false, minutes_max: 20 },
    Part { name: "server", services: &[], serves: true, minutes_max: 30 },
];

impl Part {
    /// The part with this word.
    pub fn named(word: &str) -> Option<&'static Self> {
        PARTS.iter().find(|part| part.name == word)
    }

    /// Those on the page of features.
    pub fn of_features() -> impl Iterator<Item = &'static Self> {
        PARTS.iter().filter(|part| part.minutes_max > 0)
    }

    /// Measures on the services that the environment or the options name, else on some that it starts and stops.
    pub fn run(&self, built: &Built, arguments: &[String]) -> Result<(), String> {
        let mut bench = built.bench();
        bench.arg(self.name).args(arguments);
        if arguments.iter().any(|word| word == "--help" || word == "-h") {
            return run(&mut bench);
        }
        let services = self.prepare(&mut bench, built, arguments)?;
        let measured = run(&mut bench);
        services.stop();
        measured
    }

    /// Starts what this part needs and `arguments` do not name, and adds to the command where it is.
    pub fn prepare(&self, bench: &mut Command, built: &Built, arguments: &[String]) -> Result<Services, String> {
        let given = |option: &str| arguments.iter().any(|word| word == option);
        if self.serves && !given("--server") {
            bench.arg("--server").arg(&built.server);
        }
        let needed: Vec<_> = self.services.iter().filter(|needed| !given(needed.1)).collect();
        let services = Services::start(&needed.iter().map(|needed| needed.0).collect::<Vec<_>>())?;
        for (service, option) in needed {
            if let Some(value) = services.value(service.place) {
                bench.arg(option).arg(value);
            }
        }
        Ok(services)
    }
}
