//! The resource usage of this process and others, as Linux counts it.

use std::io;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Returns the resident memory of this process, in bytes.
pub fn memory() -> Result<u64, String> {
    memory_of(std::process::id())
}

/// Returns the resident memory of a process, in bytes.
pub fn memory_of(process: u32) -> Result<u64, String> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).map_err(|error| error.to_string())?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("there is no VmRSS")?;
    let kibibytes = line.trim().trim_end_matches("kB").trim().parse::<u64>().map_err(|error| error.to_string())?;
    Ok(kibibytes * 1024)
}

/// Returns the CPU time of all threads of this process, in seconds.
pub fn cpu_seconds() -> Result<f64, String> {
    cpu_seconds_of(std::process::id())
}

/// Returns the CPU time of all threads of a process, in seconds.
pub fn cpu_seconds_of(process: u32) -> Result<f64, String> {
    /// The unit in which Linux reports CPU time to programs.
    const TICKS_PER_SECOND: f64 = 100.0;
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).map_err(|error| error.to_string())?;
    let after_name = stat.rsplit_once(')').ok_or("the name has no end")?.1;
    let ticks = after_name
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(|ticks| ticks.parse::<f64>().map_err(|error| error.to_string()));
    Ok(ticks.sum::<Result<f64, String>>()? / TICKS_PER_SECOND)
}

/// Raises this process's limit of open files to its maximum, for rows with thousands of connections.
pub fn raise_open_files() -> io::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    Ok(())
}

/// The most memory that a process occupies while it is watched.
pub struct Peak {
    over: oneshot::Sender<()>,
    watching: JoinHandle<Result<u64, String>>,
}

impl Peak {
    /// Watches a process from now on.
    pub fn watch(process: u32) -> Self {
        const BETWEEN_LOOKS: Duration = Duration::from_millis(20);
        let (over, mut ended) = oneshot::channel();
        let watching = tokio::spawn(async move {
            let mut most = memory_of(process)?;
            while tokio::time::timeout(BETWEEN_LOOKS, &mut ended).await.is_err() {
                most = most.max(memory_of(process)?);
            }
            Ok(most.max(memory_of(process)?))
        });
        Self { over, watching }
    }

    /// Ends the watch. Returns the most bytes that were seen.
    pub async fn end(self) -> Result<u64, String> {
        let _ = self.over.send(());
        self.watching.await.map_err(|error| error.to_string())?
    }
}
