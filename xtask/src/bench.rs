//! Builds the server and the benchmark, and runs the benchmark beside it.

use crate::command::{cargo, root, run as run_command};

pub fn run(arguments: &[String]) -> Result<(), String> {
    let target = root().join("target");
    let mut bench = cargo();
    bench.args(["run", "--locked", "--release", "--manifest-path", "crates/bench/Cargo.toml", "--target-dir"]);
    bench.arg(&target).arg("--");
    let without_server = ["--help", "-h", "--no-server"].iter().any(|flag| arguments.iter().any(|word| word == flag));
    if !without_server {
        run_command(cargo().args(["build", "--locked", "--release", "--package", "annals-cli"]))?;
        bench.arg("--server").arg(target.join("release/annals"));
    }
    run_command(bench.args(arguments))
}
