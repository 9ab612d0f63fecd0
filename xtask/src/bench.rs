//! Builds the server and the benchmark, and runs the benchmark beside it.

use crate::command::{cargo, root, run as run_command};
use crate::rivals;

/// Tephra and UmaDB are built and measured too.
const RIVALS: &str = "--rivals";

pub fn run(arguments: &[String]) -> Result<(), String> {
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
