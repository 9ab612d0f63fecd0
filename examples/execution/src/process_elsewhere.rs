//! Replaces `process` on systems other than Linux: the service reports this when it starts, and never runs a program.

use std::ffi::OsString;
use std::io::{self, PipeReader};
use std::path::PathBuf;
use std::time::Duration;

use crate::events::ResourceUsage;

pub(crate) const EXECUTION_VARIABLE: &str = "ANNALS_EXECUTION";
pub(crate) const SERVICE_VARIABLE: &str = "ANNALS_EXECUTION_SERVICE";

/// See `process`.
pub(crate) fn is_root() -> bool {
    false
}

/// See `process`.
#[expect(dead_code, reason = "read on Linux only")]
pub(crate) struct Program {
    pub(crate) interpreter: PathBuf,
    pub(crate) arguments: Vec<String>,
    pub(crate) folder: PathBuf,
    pub(crate) environment: Vec<(&'static str, OsString)>,
    pub(crate) id: String,
}

/// See `process`.
#[expect(dead_code, reason = "read on Linux only")]
pub(crate) struct Bounds {
    pub(crate) wall: Duration,
    pub(crate) memory_bytes: u64,
    pub(crate) address_space: bool,
    pub(crate) output_bytes: usize,
}

/// See `process`.
#[expect(dead_code, reason = "made on Linux only")]
pub(crate) enum Ending {
    Exited(i32),
    Signalled(i32),
    CpuLimit,
    MemoryLimit,
    FileLimit,
    TimedOut,
    Cancelled,
}

/// See `process`.
pub(crate) struct Finished {
    pub(crate) ending: Ending,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) usage: ResourceUsage,
}

/// See `process`.
pub(crate) struct Watchdog;

impl Watchdog {
    /// Refuses to start.
    pub(crate) fn start(_service: &str) -> io::Result<Self> {
        Err(elsewhere())
    }
}

/// Refuses to run.
pub(crate) fn run(_: &Program, _: Bounds, _: &Watchdog, _: &PipeReader) -> io::Result<Finished> {
    Err(elsewhere())
}

pub(crate) fn kill_stragglers(_variable: &str, _value: &str) {}

pub(crate) fn signal_name(_signal: i32) -> &'static str {
    "a signal"
}

fn elsewhere() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "limiting and ending programs requires Linux; run the service there")
}
