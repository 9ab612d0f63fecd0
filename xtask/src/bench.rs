//! Builds the server and the benchmark, and runs the benchmark beside it.

use crate::command::{cargo, root, run as run_command};
use crate::rivals;
use crate::services::{self, Service, Services};

/// Tephra and UmaDB are built and measured too.
const RIVALS: &str = "--rivals";

/// The store on MongoDB beside the bare driver, instead of the embedded one beside the disk.
const MONGODB: &str = "mongodb";

/// Handlers, projections and the event horizon beside what does the same without them, on the embedded store and on MongoDB.
const PROCESSING: &str = "processing";

/// The browse view, dead letters, partner events, sagas and work queues beside what does the same without them.
const FEATURES: [&str; 4] = ["browse", "letters", "partners", WORKFLOW];
/// Those that have rows over HTTP.
const WITH_SERVER: [&str; 2] = [PROCESSING, "browse"];
/// Needs a Redis, too.
const WORKFLOW: &str = "workflow";

/// The relay beside a bare producer of Kafka.
const KAFKA: &str = "kafka";

pub fn run(arguments: &[String]) -> Result<(), String> {
    if arguments.first().is_some_and(|word| word == KAFKA) {
        return on_services(KAFKA, KAFKA, &arguments[1..], &[(&services::KAFKA, "--address")]);
    }
    if let Some(part) = [MONGODB, PROCESSING]
        .into_iter()
        .chain(FEATURES)
        .find(|part| arguments.first().is_some_and(|word| word == part))
    {
        let mut needed = vec![(&services::MONGODB, "--url")];
        if part == WORKFLOW {
            needed.push((&services::REDIS, "--redis"));
        }
        return on_services(MONGODB, part, &arguments[1..], &needed);
    }
    let target = root().join("target");
    let has = |flag: &&str| arguments.iter().any(|word| word == flag);
    let help = ["--help", "-h"].iter().any(has);
    let mut bench = cargo();
    bench.args(["run", "--locked", "--release", "--manifest-path", "crates/bench/Cargo.toml", "--target-dir"]);
    bench.arg(&target);
    let rivals = if has(&RIVALS) && !help { Some(rivals::prepare()?) } else { None };
    if let Some(rivals) = &rivals {
        bench.args(["--features", "rivals"]).env("PROTOC", &rivals.protoc);
    }
    bench.arg("--");
    if !help && !has(&"--no-server") {
        run_command(cargo().args(["build", "--locked", "--release", "--package", "annals-cli"]))?;
        bench.arg("--server").arg(target.join("release/annals"));
    }
    if let Some(rivals) = &rivals {
        bench.arg(RIVALS).arg(&rivals.programs);
    }
    run_command(bench.args(arguments.iter().filter(|word| *word != RIVALS)))
}

/// Measures on the services that the environment or the options name, else on some that it starts and stops.
fn on_services(feature: &str, part: &str, arguments: &[String], needed: &[(&Service, &str)]) -> Result<(), String> {
    let has = |words: &[&str]| arguments.iter().any(|argument| words.contains(&argument.as_str()));
    let mut bench = cargo();
    bench.args(["run", "--locked", "--release", "--manifest-path", "crates/bench/Cargo.toml", "--target-dir"]);
    bench.arg(root().join("target")).args(["--features", feature, "--", part]).args(arguments);
    if has(&["--help", "-h"]) {
        return run_command(&mut bench);
    }
    if WITH_SERVER.contains(&part) {
        run_command(cargo().args(["build", "--locked", "--release", "--package", "annals-cli"]))?;
        bench.arg("--server").arg(root().join("target/release/annals"));
    }
    let needed: Vec<_> = needed.iter().filter(|(_, option)| !has(&[option])).collect();
    let services = Services::start(&needed.iter().map(|(service, _)| *service).collect::<Vec<_>>())?;
    for (service, option) in needed {
        if let Some(value) = services.value(service.place) {
            bench.arg(option).arg(value);
        }
    }
    let measured = run_command(&mut bench);
    services.stop();
    measured
}
