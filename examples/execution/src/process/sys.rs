//! System calls that the standard library lacks, each behind a safe function. This is the only file of the package with `unsafe`.
#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

/// The type of `RLIMIT_…`, which depends on the C library.
#[cfg(target_env = "gnu")]
type Resource = libc::__rlimit_resource_t;
#[cfg(not(target_env = "gnu"))]
type Resource = libc::c_int;

/// A resource and its limit.
pub(super) type Limit = (Resource, u64);

/// The report of a new child before exec: its pid and its own peak memory so far in KiB, which is that of the copy of the service.
pub(super) type Report = [u8; 16];

/// Splits a [`Report`] into pid and KiB.
pub(super) fn read_report(report: Report) -> (i32, u64) {
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
    (number(&report[..8]) as i32, number(&report[8..]))
}

/// Makes the child of `command` the leader of a process group of its own, which dies with the thread that spawns it and keeps the limits.
/// Before exec, it writes a [`Report`] to `report` and `+ <pid>` to `watchdog`.
pub(super) fn confine(command: &mut Command, limits: Vec<Limit>, watchdog: RawFd, report: RawFd) {
    let parent = std::process::id() as libc::pid_t;
    let confine = move || confine_child(parent, &limits, watchdog, report);
    // SAFETY: between fork and exec only async-signal-safe calls are allowed, because another thread may have held any lock at the
    // moment of the fork. `confine_child` makes system calls only: it neither allocates nor locks, and its errors hold a number.
    unsafe { command.pre_exec(confine) };
}

fn confine_child(parent: libc::pid_t, limits: &[Limit], watchdog: RawFd, report: RawFd) -> io::Result<()> {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: plain system calls on numbers, and on memory of this frame that is as large as they expect. A zeroed `rusage` is valid,
    // so it may be read whatever getrusage returns.
    let (pid, peak_kib) = unsafe {
        checked(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))?;
        if libc::getppid() != parent {
            // The parent ended before the call above, so no signal will come.
            libc::_exit(1);
        }
        checked(libc::setpgid(0, 0))?;
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        (libc::getpid(), usage.assume_init().ru_maxrss as u64)
    };
    let mut bytes: Report = [0; 16];
    bytes[..8].copy_from_slice(&(pid as u64).to_le_bytes());
    bytes[8..].copy_from_slice(&peak_kib.to_le_bytes());
    write_all(report, &bytes)?;
    let mut line = [0; 16];
    write_all(watchdog, group_line(b'+', pid, &mut line))?;
    for (resource, limit) in limits {
        // SAFETY: setrlimit reads one `rlimit`, which lives until it returns; getrlimit writes one.
        unsafe {
            let mut current = libc::rlimit { rlim_cur: 0, rlim_max: libc::RLIM_INFINITY };
            checked(libc::getrlimit(*resource, &mut current))?;
            let most = (*limit).min(current.rlim_max);
            checked(libc::setrlimit(*resource, &libc::rlimit { rlim_cur: most, rlim_max: most }))?;
        }
    }
    Ok(())
}

/// Formats `+ 123\n` without allocating.
pub(super) fn group_line(sign: u8, group: i32, line: &mut [u8; 16]) -> &[u8] {
    let mut at = line.len() - 1;
    line[at] = b'\n';
    let mut rest = group.unsigned_abs();
    loop {
        at -= 1;
        line[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    line[at - 1] = b' ';
    line[at - 2] = sign;
    &line[at - 2..]
}

/// Writes to a pipe from a child before exec. A closed pipe is an error, not a signal.
fn write_all(fd: RawFd, bytes: &[u8]) -> io::Result<()> {
    // SAFETY: `bytes` outlives the call, and setting a signal's disposition to ignore or default installs no handler. The pipes accept so
    // few bytes whole or not at all.
    unsafe {
        let before = libc::signal(libc::SIGPIPE, libc::SIG_IGN);
        let written = libc::write(fd, bytes.as_ptr().cast(), bytes.len());
        let result = if written == bytes.len() as isize { Ok(()) } else { Err(io::Error::last_os_error()) };
        libc::signal(libc::SIGPIPE, before);
        result
    }
}

fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Returns a descriptor that becomes readable when this child has ended. The child can still be waited for then.
pub(super) fn open_pidfd(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: a system call on numbers; the descriptor it returns is new, so it has no other owner.
    unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, pid as libc::c_long, 0 as libc::c_long);
        if fd == -1 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd as RawFd)) }
    }
}

/// Waits until one of these can be read or has been closed at the other end, but at most this long, and returns which. An absent one
/// never is.
pub(super) fn wait_readable<const N: usize>(fds: [Option<BorrowedFd<'_>>; N], most: Duration) -> io::Result<[bool; N]> {
    let mut polled = fds.map(|fd| libc::pollfd {
        // A negative descriptor is ignored.
        fd: fd.map_or(-1, |fd| fd.as_raw_fd()),
        events: libc::POLLIN,
        revents: 0,
    });
    let most = libc::timespec { tv_sec: most.as_secs() as _, tv_nsec: most.subsec_nanos() as libc::c_long };
    // SAFETY: `polled` is an array of N `pollfd` that lives until ppoll returns, as does `most`; no signal mask is given.
    match checked(unsafe { libc::ppoll(polled.as_mut_ptr(), N as libc::nfds_t, &most, std::ptr::null()) }) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok([false; N]),
        Err(error) => Err(error),
        Ok(_) => Ok(polled.map(|entry| entry.revents != 0)),
    }
}

/// Makes reads of this descriptor return at once, with `WouldBlock` when there is nothing to read.
pub(super) fn never_block(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: system calls on numbers.
    unsafe {
        let flags = checked(libc::fcntl(fd.as_raw_fd(), libc::F_GETFL))?;
        checked(libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK))?;
    }
    Ok(())
}

/// Kills every process of a group. A missing group is not an error.
pub(super) fn kill_group(group: i32) {
    if group > 1 {
        // SAFETY: a system call on numbers. A group above 1 is never "all processes" or "my own group".
        unsafe { libc::kill(-group, libc::SIGKILL) };
    }
}

/// Kills one process. A missing process is not an error.
pub(super) fn kill_process(pid: i32) {
    if pid > 1 {
        // SAFETY: a system call on numbers. A pid above 1 is never a group.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    }
}

/// The system's counts for a child that has ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counted {
    /// The exit code, or the signal that ended it.
    pub(super) status: Result<i32, i32>,
    /// User and system time of the child and of the descendants it waited for.
    pub(super) cpu: Duration,
    /// The largest resident size of any of them, in KiB.
    pub(super) peak_kib: u64,
}

/// Waits until a child has ended and reaps it, so that its pid is free again.
pub(super) fn reap(pid: i32) -> io::Result<Counted> {
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: wait4 writes one int and one `rusage`, both of this frame; a zeroed `rusage` is valid.
    let usage = unsafe {
        loop {
            match checked(libc::wait4(pid, &mut status, 0, usage.as_mut_ptr())) {
                Ok(_) => break usage.assume_init(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    };
    let duration = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1_000);
    Ok(Counted {
        status: if libc::WIFEXITED(status) { Ok(libc::WEXITSTATUS(status)) } else { Err(libc::WTERMSIG(status)) },
        cpu: duration(usage.ru_utime) + duration(usage.ru_stime),
        peak_kib: usage.ru_maxrss as u64,
    })
}

/// Returns whether this process runs as root, and so every program that it starts.
pub(crate) fn is_root() -> bool {
    // SAFETY: a call without arguments that cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Returns clock ticks per second: the unit of a jiffy in programs.
pub(super) fn ticks_per_second() -> u64 {
    // SAFETY: a call on a number.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    u64::try_from(ticks).unwrap_or(100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_for_the_watchdog_is_a_sign_a_space_and_the_group() {
        let mut line = [0; 16];
        assert_eq!(group_line(b'+', 1, &mut line), b"+ 1\n");
        assert_eq!(group_line(b'-', i32::MAX, &mut line), b"- 2147483647\n");
    }

    #[test]
    fn a_report_is_read_back() {
        let mut report: Report = [0; 16];
        report[..8].copy_from_slice(&4_194_304u64.to_le_bytes());
        report[8..].copy_from_slice(&9_876u64.to_le_bytes());
        assert_eq!(read_report(report), (4_194_304, 9_876));
    }
}
