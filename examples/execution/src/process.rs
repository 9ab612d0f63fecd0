//! Runs a program as a child process: limits it, watches it until it ends, and measures it.
//!
//! # Nothing outlives the service
//! A program leads a process group of its own. The group is killed when the program ends, when its time is up, and when the service ends
//! for any reason:
//!
//! - The program itself dies with the thread that spawned it (`PR_SET_PDEATHSIG`). Each program has a thread of its own, which lives until
//!   the program has been waited for.
//! - The [`Watchdog`], a process that outlives the service by a moment, kills the rest of the group.
//! - Processes that left the group are found by an environment variable that they inherit.
//!
//! # This is not a sandbox
//! A program runs as the service's user and can access that user's files and the network. One that deliberately evades all three measures
//! above survives. Run only programs that you trust.

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

/// A program to run.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    /// The path of the interpreter.
    pub(crate) interpreter: PathBuf,
    /// Its arguments.
    pub(crate) arguments: Vec<String>,
    /// The working directory. It must exist.
    pub(crate) folder: PathBuf,
    /// The whole environment, which includes [`EXECUTION_VARIABLE`] and [`SERVICE_VARIABLE`].
    pub(crate) environment: Vec<(&'static str, OsString)>,
    /// The id that [`EXECUTION_VARIABLE`] holds.
    pub(crate) id: String,
}

/// The limits of a program.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Wall-clock time, after which it is killed.
    pub(crate) wall: Duration,
    /// Bytes of memory. With `address_space`, the limit applies to the address space of each process (`RLIMIT_AS`), and allocations
    /// beyond it fail. Without, it applies to the resident memory of the program, which is killed beyond it.
    pub(crate) memory_bytes: u64,
    /// Whether the memory limit applies to address space.
    pub(crate) address_space: bool,
    /// Bytes of stdout and of stderr that are kept. The rest is read and dropped.
    pub(crate) output_bytes: usize,
}

impl Bounds {
    /// Largest file that a program may write (`RLIMIT_FSIZE`). Beyond it, the program gets SIGXFSZ.
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
        // RLIMIT_NPROC counts all processes of the user, so the limit is the current number and some more. The system does not apply it
        // to root; there, only the time limit ends a program that forks without end.
        if let Some(running) = processes_running() {
            limits.push((libc::RLIMIT_NPROC, running + Self::MORE_PROCESSES));
        }
        limits
    }

    /// Returns the CPU seconds of each process (`RLIMIT_CPU`). A single thread reaches the time limit first; several threads reach this
    /// one.
    fn cpu_seconds(&self) -> u64 {
        self.wall.as_secs() + 1
    }
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It exited with this exit code.
    Exited(i32),
    /// A signal that the service did not send ended it.
    Signalled(i32),
    /// Its CPU limit ended it.
    CpuLimit,
    /// It was killed because it exceeded its memory limit.
    MemoryLimit,
    /// The signal for exceeding the file size limit ended it.
    FileLimit,
    /// It was killed because its time was up.
    TimedOut,
    /// It was killed because the other end of `cancel` was closed.
    Cancelled,
}

/// The results of a program that has ended.
#[derive(Debug, Clone)]
pub(crate) struct Finished {
    pub(crate) ending: Ending,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) usage: ResourceUsage,
}

/// Runs a program to its end. It blocks, and the calling thread must not end before it returns, which no thread can.
///
/// It ends the program early when `cancel` becomes readable or its other end is closed.
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
    // Until it is reaped, the program holds its pid, so the group cannot belong to anyone else.
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

/// Spawns the program. Also returns how much memory the child held before exec.
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
            // The child has been reaped, but the watchdog may know its group.
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

/// Reads the program's output until the program ends or must be ended.
fn watch(child: &mut Child, bounds: Bounds, begun: std::time::Instant, cancel: &io::PipeReader) -> io::Result<Watched> {
    // Check often at first, because most programs are short.
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

/// Returns the peak memory of a program in KiB.
///
/// The system's count for a process includes the copy of the service that it was before exec. A count beyond that copy is the program's
/// own. Otherwise the program needed less, and the high-water mark that was observed while it ran is closer. A program that ended before
/// it could be observed gets the system's count, which it did not exceed.
fn peak(counted_kib: u64, own_kib: u64, seen_kib: Option<u64>) -> u64 {
    /// How far the system's own numbers for the same copy differ, in KiB.
    const UNSHARP_KIB: u64 = 4 * 1024;
    /// No program loads with less, so an observation below this was made before exec.
    const LOADED_KIB: u64 = 512;
    match seen_kib.filter(|seen| *seen >= LOADED_KIB) {
        Some(seen) if counted_kib <= own_kib + UNSHARP_KIB => seen.min(counted_kib),
        _ => counted_kib,
    }
}

/// Returns the high-water mark of a running process's memory, in KiB.
fn peak_kib(pid: i32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// Returns the number of threads of the system, from the fourth field of `/proc/loadavg`, such as `2/345`.
fn processes_running() -> Option<u64> {
    let load = std::fs::read_to_string("/proc/loadavg").ok()?;
    load.split(' ').nth(3)?.split_once('/')?.1.parse().ok()
}

/// Returns the name of a signal.
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
