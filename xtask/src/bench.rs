//! Builds the server and the benchmark, and runs the benchmark beside it.

mod build;
mod page;
mod parts;

use crate::command::{cargo, root, run as run_command};
use crate::rivals;
use build::Built;
use parts::Part;

/// Also builds and measures Tephra and UmaDB.
const RIVALS: &str = "--rivals";

/// Selects all rows of features, and the page that shows them.
const FEATURES: &str = "features";

pub fn run(arguments: &[String]) -> Result<(), String> {
    let (first, rest) = arguments.split_first().map_or(("", arguments), |(first, rest)| (first.as_str(), rest));
    if first == FEATURES {
        return page::fill(rest);
    }
    if let Some(part) = Part::named(first) {
        return part.run(&Built::build()?, rest);
    }
    let has = |flag: &str| arguments.iter().any(|word| word == flag);
    let help = has("--help") || has("-h");
    if has(RIVALS) && !help {
        return beside_rivals(arguments);
    }
    let built = Built::build()?;
    let mut bench = built.bench();
    if !help && !has("--no-server") {
        bench.arg("--server").arg(&built.server);
    }
    run_command(bench.args(arguments.iter().filter(|word| *word != RIVALS)))
}

/// Runs the benchmark with other event stores, which has a workspace of its own with their crates.
fn beside_rivals(arguments: &[String]) -> Result<(), String> {
    let rivals = rivals::prepare()?;
    let target = root().join("target");
    run_command(cargo().args(["build", "--locked", "--release", "--package", "annals-cli"]))?;
    let mut bench = cargo();
    bench.args(["run", "--locked", "--release", "--manifest-path", "crates/bench/rivals/Cargo.toml", "--target-dir"]);
    bench.arg(&target).args(["--features", "rivals"]).env("PROTOC", &rivals.protoc).arg("--");
    if !arguments.iter().any(|word| word == "--no-server") {
        bench.arg("--server").arg(target.join("release/annals"));
    }
    bench.arg(RIVALS).arg(&rivals.programs);
    run_command(bench.args(arguments.iter().filter(|word| *word != RIVALS)))
}
