//! A program as a child process: limited, watched to its end, measured.
//!
//! # Nothing outlives the service
//! A program leads a process group of its own, and the group is killed when the program ends, when its time is up, and when the
//! service ends, however that happens:
//!
//! - The program itself dies with the thread that spawned it (`PR_SET_PDEATHSIG`); each runs on a thread of its own that lives until
//!   the program has been waited for.
//! - The rest of the group is killed by the [`Watchdog`], a process that outlives the service by a moment.
//! - Processes that left the group are found by an environment variable that they inherit.
//!
//! # This is no sandbox
//! A program runs as the service's user, sees that user's files and the network, and one that hides from all three of the above on
//! purpose survives. Run programs of people you trust.

mod capture;
mod straggler;
mod sys;
mod watchdog;

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::events::ResourceUsage;
use capture::Capture;
pub(crate) use straggler::{EXECUTION_VARIABLE, SERVICE_VARIABLE, kill_stragglers};
pub(crate) use sys::is_root;
pub(crate) use watchdog::Watchdog;

/// What is to be run.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    /// The path of the interpreter.
    pub(crate) interpreter: PathBuf,
    /// Its arguments.
    pub(crate) arguments: Vec<String>,
    /// The folder it starts in; it must exist.
    pub(crate) folder: PathBuf,
    /// The whole environment, which holds [`EXECUTION_VARIABLE`] and [`SERVICE_VARIABLE`].
    pub(crate) environment: Vec<(&'static str, OsString)>,
    /// The id that [`EXECUTION_VARIABLE`] holds.
    pub(crate) id: String,
}

/// How much it may use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Seconds by the clock; then it is killed.
    pub(crate) wall: Duration,
    /// Bytes of memory. Where `address_space` is set, of address space of each process (`RLIMIT_AS`): beyond, allocating fails. Otherwise
    /// of resident memory of the program: beyond, it is killed.
    pub(crate) memory_bytes: u64,
    /// How memory is limited.
    pub(crate) address_space: bool,
    /// Bytes of stdout and of stderr that are kept; the rest is read and dropped.
    pub(crate) output_bytes: usize,
}

impl Bounds {
    /// Largest file it may write (`RLIMIT_FSIZE`); beyond, it gets SIGXFSZ.
    const FILE_BYTES: u64 = 16 * 1024 * 1024;
    const OPEN_FILES: u64 = 256;
    const MORE_PROCESSES: u64 = 256;

    fn limits(&self) -> Vec<sys::Limit> {
        let mut limits = vec![
            (libc::RLIMIT_CPU, self.cpu_seconds()),
            (libc::RLIMIT_FSIZE, Self::FILE_BYTES),
            (libc::RLIMIT_NOFILE, Self::OPEN_FILES),
            (libc::RLIMIT_CORE, 0),
        ];
        if self.address_space {
            limits.push((libc::RLIMIT_AS, self.memory_bytes));
        }
        // RLIMIT_NPROC counts all processes of the user, so the limit is what runs now and some more. The system does not apply it
        // to root; there the time limit is what ends a program that only forks.
        if let Some(running) = processes_running() {
            limits.push((libc::RLIMIT_NPROC, running + Self::MORE_PROCESSES));
        }
        limits
    }

    /// Seconds on a processor of each process (`RLIMIT_CPU`). One thread meets the time limit first; several threads meet this.
    fn cpu_seconds(&self) -> u64 {
        self.wall.as_secs() + 1
    }
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// By itself, with this exit code.
    Exited(i32),
    /// By this signal, which did not come from here.
    Signalled(i32),
    /// By its CPU limit.
    CpuLimit,
    /// It was killed because it used more memory than it may.
    MemoryLimit,
    /// By the signal for a file larger than it may write.
    FileLimit,
    /// It was killed because its time was up.
    TimedOut,
    /// It was killed because the other end of `cancel` was closed.
    Cancelled,
}

/// What is left of it.
#[derive(Debug, Clone)]
pub(crate) struct Finished {
    pub(crate) ending: Ending,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) usage: ResourceUsage,
}

/// Runs a program to its end. Blocks; the calling thread must not end before it returns, which no thread can.
///
/// It ends the program early when `cancel` can be read or its other end has been closed.
///
/// # Errors
/// The program could not be started or not be watched; nothing of it runs.
pub(crate) fn run(
    program: &Program,
    bounds: Bounds,
    watchdog: &Watchdog,
    cancel: &io::PipeReader,
) -> io::Result<Finished> {
    #[expect(clippy::disallowed_methods, reason = "the duration is measured to be shown")]
    let begun = std::time::Instant::now();
    let (mut child, own_peak_kib) = spawn(program, bounds, watchdog)?;
    let group = child.id() as i32;
    let watched = watch(&mut child, bounds, begun, cancel);
    let wall = begun.elapsed();
    // Until it is reaped, the program holds its pid, so this group cannot be anyone else's.
    sys::kill_group(group);
    kill_stragglers(EXECUTION_VARIABLE, &program.id);
    watchdog.forget(group);
    let counted = sys::reap(group)?;
    let mut watched = watched?;
    watched.stdout.take_rest();
    watched.stderr.take_rest();
    let ending = match (watched.cut_short, counted.status) {
        (Some(ending), _) => ending,
        (None, Ok(code)) => Ending::Exited(code),
        (None, Err(_)) if counted.cpu.as_secs() >= bounds.cpu_seconds() => Ending::CpuLimit,
        (None, Err(libc::SIGXFSZ)) => Ending::FileLimit,
        (None, Err(signal)) => Ending::Signalled(signal),
    };
    let peak_memory_kb = peak(counted.peak_kib, own_peak_kib, watched.seen_peak_kib);
    let usage = ResourceUsage {
        execution_time_wall_seconds: (wall.as_secs_f64() * 1e6).round() / 1e6,
        cpu_time_jiffies: (counted.cpu.as_secs_f64() * sys::ticks_per_second() as f64).round() as u64,
        clk_tck_hertz: sys::ticks_per_second(),
        peak_memory_kb,
    };
    Ok(Finished { ending, stdout: watched.stdout.text(), stderr: watched.stderr.text(), usage })
}

/// Starts it, and says how much memory the child held before it became the program.
fn spawn(program: &Program, bounds: Bounds, watchdog: &Watchdog) -> io::Result<(Child, u64)> {
    let (mut report, report_in) = io::pipe()?;
    let mut command = Command::new(&program.interpreter);
    command.args(&program.arguments).current_dir(&program.folder);
    command.env_clear().envs(program.environment.iter().map(|(name, value)| (name, value)));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let spawned = watchdog.with_pipe(|pipe| {
        sys::confine(&mut command, bounds.limits(), pipe.as_raw_fd(), report_in.as_raw_fd());
        command.spawn()
    })?;
    drop(report_in);
    let mut bytes = sys::Report::default();
    let reported = report.read_exact(&mut bytes).map(|()| sys::read_report(bytes));
    match (spawned, reported) {
        (Ok(child), Ok((pid, own_peak_kib))) => {
            watchdog.remember(pid);
            Ok((child, own_peak_kib))
        }
        (Ok(child), Err(error)) => {
            sys::kill_group(child.id() as i32);
            sys::reap(child.id() as i32)?;
            Err(error)
        }
        (Err(error), reported) => {
            // It has been reaped, but the watchdog may have been told of it.
            if let Ok((pid, _)) = reported {
                watchdog.forget(pid);
            }
            Err(error)
        }
    }
}

struct Watched {
    cut_short: Option<Ending>,
    stdout: Capture,
    stderr: Capture,
    seen_peak_kib: Option<u64>,
}

/// Reads what it writes until it ends or has to end.
fn watch(child: &mut Child, bounds: Bounds, begun: std::time::Instant, cancel: &io::PipeReader) -> io::Result<Watched> {
    // Often at first, because most programs are short.
    const LOOK_MIN: Duration = Duration::from_micros(200);
    const LOOK_MAX: Duration = Duration::from_millis(50);
    let pid = child.id() as i32;
    let ended = sys::open_pidfd(pid)?;
    let mut stdout = Capture::new(child.stdout.take(), bounds.output_bytes)?;
    let mut stderr = Capture::new(child.stderr.take(), bounds.output_bytes)?;
    let mut seen_peak_kib = None;
    let mut look_after = LOOK_MIN;
    let cut_short = loop {
        seen_peak_kib = seen_peak_kib.max(peak_kib(pid));
        let left = bounds.wall.saturating_sub(begun.elapsed());
        let fds = [Some(ended.as_fd()), Some(cancel.as_fd()), stdout.fd(), stderr.fd()];
        let [has_ended, cancelled, out, err] = sys::wait_readable(fds, left.min(look_after))?;
        look_after = (begun.elapsed() / 8).clamp(LOOK_MIN, LOOK_MAX);
        if out {
            stdout.take();
        }
        if err {
            stderr.take();
        }
        if has_ended {
            break None;
        }
        if cancelled {
            break Some(Ending::Cancelled);
        }
        if !bounds.address_space && seen_peak_kib.is_some_and(|peak| peak * 1024 > bounds.memory_bytes) {
            break Some(Ending::MemoryLimit);
        }
        if begun.elapsed() >= bounds.wall {
            break Some(Ending::TimedOut);
        }
    };
    Ok(Watched { cut_short, stdout, stderr, seen_peak_kib })
}

/// The peak memory of a program in KiB.
///
/// What the system counts for a process begins with the copy of the service that it was before it became the program. A count beyond
/// that copy is the program's own. Otherwise the program needed less, and its high-water mark as it was seen while it ran is closer; one
/// that ended before it could be seen has the count, which it did not exceed.
fn peak(counted_kib: u64, own_kib: u64, seen_kib: Option<u64>) -> u64 {
    /// How far the system's own numbers for the same copy are apart.
    const UNSHARP_KIB: u64 = 4 * 1024;
    /// No program is loaded with less, so what was seen was not the program yet.
    const LOADED_KIB: u64 = 512;
    match seen_kib.filter(|seen| *seen >= LOADED_KIB) {
        Some(seen) if counted_kib <= own_kib + UNSHARP_KIB => seen.min(counted_kib),
        _ => counted_kib,
    }
}

/// The high-water mark of a running process's memory.
fn peak_kib(pid: i32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// All threads of this system, from the fourth field of `/proc/loadavg`, such as `2/345`.
fn processes_running() -> Option<u64> {
    let load = std::fs::read_to_string("/proc/loadavg").ok()?;
    load.split(' ').nth(3)?.split_once('/')?.1.parse().ok()
}

/// The name of a signal, for people.
pub(crate) fn signal_name(signal: i32) -> &'static str {
    match signal {
        libc::SIGABRT => "SIGABRT",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGHUP => "SIGHUP",
        libc::SIGILL => "SIGILL",
        libc::SIGINT => "SIGINT",
        libc::SIGKILL => "SIGKILL",
        libc::SIGPIPE => "SIGPIPE",
        libc::SIGQUIT => "SIGQUIT",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGTERM => "SIGTERM",
        libc::SIGXCPU => "SIGXCPU",
        libc::SIGSYS => "SIGSYS",
        libc::SIGTRAP => "SIGTRAP",
        _ => "a signal",
    }
}

#[cfg(test)]
mod tests {
    use super::peak;

    #[test]
    fn the_peak_is_counted_beyond_the_copy_of_the_service_and_seen_below_it() {
        assert_eq!(peak(80_000, 20_000, Some(79_000)), 80_000, "counted");
        assert_eq!(peak(20_300, 20_000, Some(1_700)), 1_700, "seen");
        assert_eq!(peak(20_300, 20_000, None), 20_300, "not seen");
        assert_eq!(peak(20_300, 20_000, Some(16)), 20_300, "seen before it was loaded");
    }
}
