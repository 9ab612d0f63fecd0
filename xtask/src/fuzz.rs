//! Coverage-guided fuzzing on the stable toolchain: libFuzzer, with the coverage instrumentation that is part of every rustc.

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use crate::command::{cargo, number, only, output, root, run as run_command, value};
use crate::steps::now;

/// The fuzz targets, each a binary of the package under `fuzz/`. The canary runs before them.
const TARGETS: [&str; 6] = ["commit", "condition", "http", "frames", "index", "payload"];

/// A target that must fail soon; see `fuzz/src/canary.rs`.
const CANARY: &str = "canary";
const CANARY_SECONDS: u64 = 30;

/// The flags that cargo-fuzz passes on nightly, without the sanitizers, which stable does not have.
const INSTRUMENTATION: [&str; 5] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];

/// The crates that read the inputs, beside our own. Others are not instrumented: the fuzzer would learn nothing about our code from an
/// HTTP stack or a scheduler, and instrumenting them takes half of the build.
const READERS: [&str; 5] = ["bson", "percent_encoding", "serde_html_form", "serde_json", "uuid"];

/// The variable that makes this program a wrapper of rustc. See [`compile`].
pub const WRAPPING: &str = "ANNALS_FUZZ_WRAPPING";

/// The time limit for one input, after which the target counts as hanging.
const INPUT_SECONDS_MAX: u64 = 10;
const MEMORY_MIB_MAX: u64 = 2048;

pub fn run(arguments: &[String]) -> Result<(), String> {
    only(arguments, &[], &["--seconds", "--target", "--reproduce"])?;
    let seconds = number(arguments, "--seconds")?.unwrap_or(60);
    let target = value(arguments, "--target")?;
    if let Some(target) = target
        && !TARGETS.contains(&target)
    {
        return Err(format!("there is no fuzz target {target:?}; the targets are {}", TARGETS.join(", ")));
    }
    match (target, value(arguments, "--reproduce")?) {
        (Some(target), Some(input)) => reproduce(target, input),
        (None, Some(_)) => Err("--reproduce needs --target".to_owned()),
        (Some(target), None) => {
            let binaries = build()?;
            fuzz(&binaries, target, &Extent::seconds(seconds))
        }
        (None, None) => all_targets(&build()?, &Extent::seconds((seconds / TARGETS.len() as u64).max(1))),
    }
}

/// Fails unless the targets can be built here. Called before a long run, so that the run does not fail at its end.
pub fn can_build() -> Result<(), String> {
    let compiler = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
    let found = output(Command::new(&compiler).arg("--version"));
    found.map(|_| ()).map_err(|error| {
        format!(
            "fuzzing needs a C++ compiler, because libFuzzer is C++: install g++ or clang++, or leave fuzzing out with \
             --without-fuzz ({error})"
        )
    })
}

/// How long a target is fuzzed.
pub struct Extent(Vec<String>);

impl Extent {
    /// Returns an extent in seconds. Its inputs differ from run to run.
    fn seconds(seconds: u64) -> Self {
        Self(vec![format!("-max_total_time={seconds}")])
    }

    /// Returns an extent in inputs, which are the same for the same code on every machine. A test run must not find on one machine what
    /// it missed on another.
    pub fn repeatable(inputs: u64) -> Self {
        Self(vec![format!("-runs={inputs}"), "-seed=1".to_owned()])
    }

    fn is_repeatable(&self) -> bool {
        self.0.len() > 1
    }
}

/// Fuzzes every target, after the canary has shown that the instrumentation works.
fn all_targets(binaries: &Path, each: &Extent) -> Result<(), String> {
    canary(binaries)?;
    TARGETS.iter().try_for_each(|target| fuzz(binaries, target, each))
}

/// Builds all targets. Returns their folder.
fn build() -> Result<PathBuf, String> {
    can_build()?;
    let host = host()?;
    run_command(&mut builder(cargo(), &host)?)?;
    Ok(binaries(&host))
}

/// Returns the command that builds all targets with this cargo.
fn builder(mut cargo: Command, host: &str) -> Result<Command, String> {
    let wrapper = std::env::current_exe().map_err(|error| format!("the path of this program: {error}"))?;
    // If the host is named as the target, cargo builds what macros and build scripts need apart from what the targets need.
    cargo.args(["build", "--locked", "--manifest-path", "fuzz/Cargo.toml", "--bins", "--target", host]);
    cargo.env("RUSTC_WRAPPER", wrapper).env(WRAPPING, "1").env("CARGO_TARGET_DIR", folder("target"));
    cargo.env("RUSTFLAGS", format!("--cfg annals_fuzz_{:x}", instrumentation()));
    Ok(cargo)
}

fn binaries(host: &str) -> PathBuf {
    folder("target").join(host).join("debug")
}

/// A build of all targets that only takes the time of the cores that nothing else wants: the tests beside it have deadlines.
pub struct Building {
    host: String,
    cargo: Child,
    output: PathBuf,
}

impl Building {
    /// Begins the build.
    ///
    /// # Errors
    /// Why it could not be started.
    pub fn begin() -> Result<Self, String> {
        let host = host()?;
        let output = folder("target").join("build.txt");
        std::fs::create_dir_all(folder("target")).map_err(|error| format!("{}: {error}", output.display()))?;
        let written = File::create(&output).map_err(|error| format!("{}: {error}", output.display()))?;
        let errors = written.try_clone().map_err(|error| format!("{}: {error}", output.display()))?;
        let mut command = builder(when_idle(cargo()), &host)?;
        let begun = command.stdin(Stdio::null()).stdout(written).stderr(errors).spawn();
        let cargo = begun.map_err(|error| format!("the build of the fuzz targets could not be started: {error}"))?;
        Ok(Self { host, cargo, output })
    }

    /// Waits for the end of the build, then fuzzes every target.
    ///
    /// # Errors
    /// What failed.
    pub fn fuzz(mut self, each: &Extent) -> Result<(), String> {
        let built = self.cargo.wait().map_err(|error| format!("the build of the fuzz targets: {error}"))?;
        if !built.success() {
            println!("{}", std::fs::read_to_string(&self.output).unwrap_or_default());
            return Err(format!("the build of the fuzz targets failed ({built})"));
        }
        all_targets(&binaries(&self.host), each)
    }
}

impl Drop for Building {
    /// A run that failed does not wait for it.
    fn drop(&mut self) {
        let _ = self.cargo.kill();
        let _ = self.cargo.wait();
    }
}

/// Returns the command so that it runs when the cores are idle, where the system has a program for that.
fn when_idle(command: Command) -> Command {
    let found = Command::new("chrt").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !found.is_ok_and(|status| status.success()) {
        return command;
    }
    let mut idle = Command::new("chrt");
    idle.args(["--idle", "0"]).arg(command.get_program()).args(command.get_args());
    if let Some(folder) = command.get_current_dir() {
        idle.current_dir(folder);
    }
    let set = command.get_envs().filter_map(|(name, value)| value.map(|value| (name, value)));
    idle.envs(set);
    idle
}

/// Returns a number that differs if other crates are instrumented, or in another way. Cargo does not notice what a wrapper adds, but builds
/// again with other flags.
fn instrumentation() -> u64 {
    let mut hasher = DefaultHasher::new();
    (INSTRUMENTATION, READERS).hash(&mut hasher);
    hasher.finish()
}

fn host() -> Result<String, String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = output(Command::new(rustc).arg("-vV"))?;
    let version = String::from_utf8_lossy(&version);
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| "rustc -vV names no host".to_owned())
}

/// Runs the compiler as cargo asks its wrapper to. Instruments our own crates and [`READERS`], and no macro or build script, which
/// nothing would link to libFuzzer.
///
/// # Errors
/// Why the compiler could not be started.
pub fn compile(command: &[String]) -> Result<ExitStatus, String> {
    let (compiler, arguments) = command.split_first().ok_or("cargo names no compiler")?;
    let after = |flag: &str| arguments.iter().skip_while(|argument| *argument != flag).nth(1).map(String::as_str);
    let reads = |name: &str| name.starts_with("annals") || READERS.contains(&name);
    let is_instrumented = after("--target").is_some() && after("--crate-name").is_some_and(reads);
    let mut rustc = Command::new(compiler);
    rustc.args(arguments).args(INSTRUMENTATION.into_iter().filter(|_| is_instrumented));
    rustc.status().map_err(|error| format!("{compiler}: {error}"))
}

fn folder(name: &str) -> PathBuf {
    root().join("fuzz").join(name)
}

/// Fails unless the canary is found. If it is not, the coverage feedback does not reach the fuzzer.
fn canary(binaries: &Path) -> Result<(), String> {
    let limit = format!("-max_total_time={CANARY_SECONDS}");
    let mut canary = Command::new(binaries.join(CANARY));
    canary.arg(limit).arg("-seed=1").arg(artifact_prefix(CANARY)?);
    let ran = canary.output().map_err(|error| format!("the canary could not be started: {error}"))?;
    if ran.status.success() || !String::from_utf8_lossy(&ran.stderr).contains("the canary was found") {
        return Err(format!(
            "the canary was not found in {CANARY_SECONDS} s: this toolchain does not instrument the code, so fuzzing is blind"
        ));
    }
    println!("the canary was found: feedback from the code reaches the fuzzer");
    Ok(())
}

fn artifact_prefix(target: &str) -> Result<String, String> {
    let artifacts = folder("artifacts").join(target);
    std::fs::create_dir_all(&artifacts).map_err(|error| format!("{}: {error}", artifacts.display()))?;
    Ok(format!("-artifact_prefix={}/", artifacts.display()))
}

fn fuzz(binaries: &Path, target: &str, extent: &Extent) -> Result<(), String> {
    // The corpus that grows in a run stays out of the repository; the committed inputs are only read.
    let grown = folder("target").join("corpus").join(target);
    if extent.is_repeatable() && grown.exists() {
        std::fs::remove_dir_all(&grown).map_err(|error| format!("{}: {error}", grown.display()))?;
    }
    std::fs::create_dir_all(&grown).map_err(|error| format!("{}: {error}", grown.display()))?;
    let mut fuzzer = Command::new(binaries.join(target));
    fuzzer.args(&extent.0).args([
        format!("-timeout={INPUT_SECONDS_MAX}"),
        format!("-rss_limit_mb={MEMORY_MIB_MAX}"),
        "-print_final_stats=1".to_owned(),
        artifact_prefix(target)?,
    ]);
    let dictionary = folder("dictionaries").join(format!("{target}.dict"));
    if dictionary.exists() {
        fuzzer.arg(format!("-dict={}", dictionary.display()));
    }
    let began = now();
    let ran = fuzzer.arg(&grown).arg(folder("corpus").join(target)).output();
    let ran = ran.map_err(|error| format!("the target {target} could not be started: {error}"))?;
    let log = String::from_utf8_lossy(&ran.stderr);
    if ran.status.success() {
        println!(
            "{target}: {} inputs in {:.0} s, {} kept",
            stat(&log, "number_of_executed_units"),
            began.elapsed().as_secs_f64(),
            stat(&log, "new_units_added")
        );
        return Ok(());
    }
    let tail: Vec<&str> = log.lines().rev().take(60).collect();
    tail.iter().rev().for_each(|line| println!("{line}"));
    let artifact =
        log.lines().find_map(|line| line.split_once("Test unit written to ")).map(|(_, path)| path.to_owned());
    let artifact = artifact.unwrap_or_else(|| format!("fuzz/artifacts/{target}/…"));
    Err(format!("{target} failed; again with: cargo xtask fuzz --target {target} --reproduce {artifact}"))
}

/// Returns a number from the statistics that libFuzzer prints at its end.
fn stat(log: &str, name: &str) -> String {
    let found = log.lines().find_map(|line| line.strip_prefix("stat::")?.strip_prefix(name)?.split_once(':'));
    found.map_or_else(|| "?".to_owned(), |(_, value)| value.trim().to_owned())
}

fn reproduce(target: &str, input: &str) -> Result<(), String> {
    let binary = build()?.join(target);
    run_command(Command::new(binary).env("RUST_BACKTRACE", "1").arg(input))
}
