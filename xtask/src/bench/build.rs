//! What is built for the benchmark: the server and the benchmark together, once for all rows.

use std::path::PathBuf;
use std::process::Command;

use crate::command::{cargo, root, run};

/// Every row, so that no row asks for another build.
const FEATURES: &str = "annals-bench/kafka,annals-bench/mongodb";

/// The programs.
pub struct Built {
    /// The program `annals`.
    pub server: PathBuf,
    bench: PathBuf,
}

impl Built {
    /// Builds them with one call of cargo, so that what they have in common is built once, in the folder of the product's builds. What
    /// `cargo build --release` has built there before is used as it is.
    pub fn build() -> Result<Self, String> {
        let target = root().join("target");
        let mut build = cargo();
        build.args(["build", "--locked", "--release", "--package", "annals-cli", "--package", "annals-bench"]);
        run(build.args(["--features", FEATURES, "--target-dir"]).arg(&target))?;
        Ok(Self { server: target.join("release/annals"), bench: target.join("release/annals-bench") })
    }

    /// The benchmark, at the repository's root.
    pub fn bench(&self) -> Command {
        let mut bench = Command::new(&self.bench);
        bench.current_dir(root());
        bench
    }

    /// The benchmark, which is ended with everything that it has started once these minutes are over.
    pub fn limited(&self, minutes: u32) -> Command {
        /// For what does not end when it is told to.
        const KILL_AFTER: &str = "--kill-after=30";
        let mut limited = Command::new("timeout");
        limited.arg(KILL_AFTER).arg(format!("{minutes}m")).arg(&self.bench);
        limited
    }
}
