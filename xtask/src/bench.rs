//! Builds the server and the benchmark, and runs the benchmark beside it.

use crate::command::{cargo, root, run as run_command};

pub fn run(arguments: &[String]) -> Result<(), String> {
    run_command(cargo().args(["build", "--locked", "--release", "--package", "annals-cli"]))?;
    let target = root().join("target");
    let mut bench = cargo();
    bench.args(["run", "--locked", "--release", "--manifest-path", "crates/bench/Cargo.toml", "--target-dir"]);
    bench.arg(&target).arg("--").arg("--server").arg(target.join("release/annals"));
    run_command(bench.args(arguments))
}
