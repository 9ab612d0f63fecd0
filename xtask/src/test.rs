//! Everything CI runs, cheapest first, ordered so that each build uses what the one before left.

use crate::command::{cargo, only, run as run_command};
use crate::steps::{Step, Steps};
use crate::{deny, fuzz, lint, tidy};

/// Seconds of fuzzing, shared by all targets.
const FUZZ_SECONDS: u64 = 60;

pub fn run(arguments: &[String]) -> Result<(), String> {
    only(arguments, &["--without-fuzz"], &[])?;
    let without_fuzz = arguments.iter().any(|argument| argument == "--without-fuzz");
    if !without_fuzz {
        fuzz::can_build()?;
    }
    let mut steps = Steps::default();
    steps.run("tidy", tidy::check)?;
    lint::format(&mut steps)?;
    steps.run("licences, sources and bans of dependencies", deny::check)?;
    steps.run_if_possible("advisories on dependencies", deny::advisories)?;
    lint::clippy(&mut steps)?;
    tests(&mut steps)?;
    lint::documentation(&mut steps)?;
    steps.run_if_possible("fuzz", || match without_fuzz {
        true => Ok(Step::NotRun("--without-fuzz was given".to_owned())),
        false => fuzz::all_targets(FUZZ_SECONDS).map(|()| Step::Passed),
    })?;
    steps.summarise();
    Ok(())
}

fn tests(steps: &mut Steps) -> Result<(), String> {
    steps.run("tests", || {
        let kinds = ["--lib", "--bins", "--tests", "--examples"];
        run_command(cargo().args(["test", "--locked", "--workspace"]).args(kinds))
    })?;
    steps.run("seeded bugs are caught", || {
        // The whole workspace is selected, although one test target is meant: so its dependencies keep their features and are
        // not built again.
        let mut bugs = cargo();
        bugs.args(["test", "--locked", "--workspace", "--features", "annals-embedded/seeded-bugs"]);
        run_command(bugs.args(["--test", "embedded", "seeded_bugs"]))
    })?;
    steps.run("examples in the documentation", || {
        run_command(cargo().args(["test", "--locked", "--workspace", "--doc"]))
    })
}
