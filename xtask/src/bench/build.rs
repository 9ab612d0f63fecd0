//! Builds the server and the benchmark together, once for all rows.

use std::path::PathBuf;
use std::process::Command;

use crate::command::{cargo, root, run};

/// The features of every row, so that no row requires another build.
const FEATURES: &str = "annals-bench/kafka,annals-bench/mongodb";

/// The built programs.
pub struct Built {
    /// The path of the program `annals`.
    pub server: PathBuf,
    bench: PathBuf,
}

impl Built {
    /// Builds both with one call of cargo, so that common dependencies are built once, in the target folder of the product's builds. What
    /// `cargo build --release` has already built there is reused.
    pub fn build() -> Result<Self, String> {
        let target = root().join("target");
        let mut build = cargo();
        build.args(["build", "--locked", "--release", "--package", "annals-cli", "--package", "annals-bench"]);
        run(build.args(["--features", FEATURES, "--target-dir"]).arg(&target))?;
        Ok(Self { server: target.join("release/annals"), bench: target.join("release/annals-bench") })
    }

    /// Returns the command of the benchmark, in the repository's root.
    pub fn bench(&self) -> Command {
        let mut bench = Command::new(&self.bench);
        bench.current_dir(root());
        bench
    }

    /// Returns the command of the benchmark. It is killed with everything that it has started once these minutes are over.
    pub fn limited(&self, minutes: u32) -> Command {
        /// For processes that ignore the signal to end.
        const KILL_AFTER: &str = "--kill-after=30";
        let mut limited = Command::new("timeout");
        limited.arg(KILL_AFTER).arg(format!("{minutes}m")).arg(&self.bench);
        limited
    }
}
