//! Checks formatting, clippy and the documentation's links. Warnings are errors.

use crate::command::{cargo, only, run as run_command};
use crate::steps::Steps;
use crate::test::features;

pub fn run(arguments: &[String]) -> Result<(), String> {
    only(arguments, &[], &[])?;
    let mut steps = Steps::default();
    format(&mut steps)?;
    clippy(&mut steps)?;
    documentation(&mut steps)?;
    steps.summarise();
    Ok(())
}

/// The manifests outside the root workspace.
const OTHER_WORKSPACES: [&str; 2] = ["crates/bench/rivals/Cargo.toml", "fuzz/Cargo.toml"];

pub fn format(steps: &mut Steps) -> Result<(), String> {
    steps.run("rustfmt", || {
        run_command(cargo().args(["fmt", "--all", "--check"])).map_err(advise("cargo fmt --all"))?;
        for manifest in OTHER_WORKSPACES {
            run_command(cargo().args(["fmt", "--check", "--manifest-path", manifest]))
                .map_err(advise(&format!("cargo fmt --manifest-path {manifest}")))?;
        }
        Ok(())
    })
}

fn advise(command: &str) -> impl Fn(String) -> String {
    move |error| format!("{error}; `{command}` puts it right")
}

pub fn clippy(steps: &mut Steps) -> Result<(), String> {
    steps.run("clippy", || {
        let everything = ["clippy", "--locked", "--workspace", "--all-targets", "--features"];
        run_command(cargo().args(everything).arg(features()).args(["--", "-D", "warnings"]))
    })
}

pub fn documentation(steps: &mut Steps) -> Result<(), String> {
    steps.run("documentation", || {
        run_command(cargo().env("RUSTDOCFLAGS", "-D warnings").args(["doc", "--locked", "--workspace", "--no-deps"]))
    })
}
