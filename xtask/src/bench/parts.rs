//! The parts of the benchmark that need services. Each is a word of the command line.

use std::process::Command;

use super::build::Built;
use crate::command::run;
use crate::services::{self, Service, Services};

/// A part of the benchmark.
pub struct Part {
    /// Its word on the command line.
    pub name: &'static str,
    /// The services it runs against, each with the option for its address.
    services: &'static [(&'static Service, &'static str)],
    /// Whether it has rows over HTTP, for which it starts the server.
    serves: bool,
    /// The time limit for all its rows when the page of features is filled, in minutes.
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
    /// Returns the part with this word.
    pub fn named(word: &str) -> Option<&'static Self> {
        PARTS.iter().find(|part| part.name == word)
    }

    /// Returns the parts on the page of features.
    pub fn of_features() -> impl Iterator<Item = &'static Self> {
        PARTS.iter().filter(|part| part.minutes_max > 0)
    }

    /// Runs the part on the services that the environment or the options name. Other services are started and stopped.
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

    /// Starts the services that this part needs and `arguments` do not name, and adds their addresses to the command.
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
