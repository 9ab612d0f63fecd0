//! Everything that CI runs, cheapest first, in an order in which each build reuses the previous one.

pub mod compiler;
mod executables;
mod secrets;

use std::process::Command;

use crate::command::{cargo, in_ci, only, run as run_command};
use crate::services::{self, Services};
use crate::steps::{Step, Steps};
use crate::{deny, fuzz, lint, tidy};

/// Inputs for each fuzz target: about a minute for all of them.
const FUZZ_INPUTS: u64 = 100_000;

/// The features that a first build need not have, and the defects that the tests of the embedded store must catch: each is off unless a
/// test asks for it, so that one build is enough.
const FEATURES: &str = "annals-cli/kafka,annals-cli/redis,annals-cli/s3,annals-bench/kafka,annals-bench/mongodb,\
                        annals-embedded/seeded-bugs";
/// TLS of Kafka by the OpenSSL of the machine. To compile one takes too long here; `cargo xtask soak` does.
const TLS: &str = "annals-kafka/tls";

/// Returns the features that are linted and tested. Each step has the same, so that nothing is built twice.
pub fn features() -> String {
    if has_openssl() { format!("{FEATURES},{TLS}") } else { FEATURES.to_owned() }
}

/// Returns whether programs can be built with the OpenSSL of this machine.
fn has_openssl() -> bool {
    let found = Command::new("pkg-config").args(["--exists", "openssl"]).status();
    found.is_ok_and(|status| status.success())
}

pub fn run(arguments: &[String]) -> Result<(), String> {
    only(arguments, &["--without-fuzz", "--without-services"], &[])?;
    let given = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let without_fuzz = given("--without-fuzz");
    let without_services = given("--without-services");
    if without_services && in_ci() {
        return Err("CI runs the tests of every service; --without-services is for machines that cannot".to_owned());
    }
    if !without_fuzz {
        fuzz::can_build()?;
    }
    let mut steps = Steps::default();
    steps.run("tidy", tidy::check)?;
    lint::format(&mut steps)?;
    steps.run("licences, sources and bans of dependencies", deny::check)?;
    steps.run_if_possible("advisories on dependencies", deny::advisories)?;
    let mut fuzzed = None;
    tests(&mut steps, without_services, || {
        fuzzed = if without_fuzz { None } else { Some(fuzz::Building::begin()?) };
        Ok(())
    })?;
    steps.run_if_possible("fuzz", || match fuzzed {
        None => Ok(Step::NotRun("--without-fuzz was given".to_owned())),
        Some(building) => building.fuzz(&fuzz::Extent::repeatable(FUZZ_INPUTS)).map(|()| Step::Passed),
    })?;
    steps.summarise();
    Ok(())
}

/// Runs the tests. `built` is called when the cores are needed no more to build them.
fn tests(steps: &mut Steps, without_services: bool, built: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    let features = features();
    let mut selected = vec!["--locked", "--workspace", "--features", &*features];
    selected.extend(["--lib", "--bins", "--tests", "--examples"]);
    let mut arguments = Vec::new();
    if without_services {
        selected.extend(services::packages().flat_map(|package| ["--exclude", package]));
        arguments.extend(services::modules().flat_map(|module| ["--skip", module]));
    }
    let mut executables = Vec::new();
    steps.run("clippy and the build of the tests", || {
        executables = executables::build(&selected)?;
        Ok(())
    })?;
    built()?;
    let mut services = Services::none();
    steps.run_if_possible("services for the tests", || match without_services {
        true => Ok(Step::NotRun(format!(
            "--without-services was given, so {} is not tested",
            services::packages().collect::<Vec<_>>().join(", ")
        ))),
        false => Services::start_for_tests(&services::ALL).map(|started| {
            services = started;
            Step::Passed
        }),
    })?;
    steps.run_if_possible("OpenSSL for TLS of Kafka", || match has_openssl() {
        true => Ok(Step::Passed),
        false => {
            let why = "pkg-config finds no openssl, so TLS of Kafka is not tested; install libssl-dev and pkg-config, \
                       or run `cargo xtask soak`, which compiles one";
            Ok(Step::NotRun(why.to_owned()))
        }
    })?;
    let outputs = executables::outputs();
    let tested = steps.run("tests", || {
        let logs = secrets::begin(&outputs)?.display().to_string();
        let environment = services.environment().chain([(secrets::LOGS, &*logs)]);
        executables::run(executables, &arguments, environment)
    });
    let searched = tested
        .and_then(|()| steps.run("no secrets in outputs and logs", || secrets::search(&outputs, services.logs())));
    services.stop();
    searched?;
    steps.run("links and examples in the documentation", || {
        let mut examples = cargo();
        compiler::document(&mut examples)?;
        run_command(examples.args(["test", "--locked", "--workspace", "--features", &*features, "--doc"]))
    })
}
