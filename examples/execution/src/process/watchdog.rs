//! The process that kills the programs of a service that was killed itself.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{SERVICE_VARIABLE, sys};

/// A shell that reads from a pipe which process groups are running. Only the service holds the other end. So however the service ends,
/// the shell notices, kills what is running, and ends.
///
/// A child announces its group itself before exec, so no program ever runs unknown to the shell. Dropping the watchdog also ends the
/// programs.
pub(crate) struct Watchdog {
    service: String,
    shell: Mutex<Shell>,
}

struct Shell {
    child: Child,
    pipe: Option<ChildStdin>,
    /// The groups that the shell knows, kept to start another one if it is killed.
    groups: BTreeSet<i32>,
}

impl Watchdog {
    /// Starts the watchdog. `service` is the value of [`SERVICE_VARIABLE`] for every program.
    ///
    /// # Errors
    /// The error of the system; it needs `/bin/sh`.
    pub(crate) fn start(service: &str) -> io::Result<Self> {
        let (child, pipe) = start_shell(service)?;
        let shell = Shell { child, pipe: Some(pipe), groups: BTreeSet::new() };
        Ok(Self { service: service.to_owned(), shell: Mutex::new(shell) })
    }

    /// Passes the pipe to `spawn`, whose child writes `+ <group>` into it. The shell is alive at that time.
    ///
    /// # Errors
    /// The shell was killed and cannot be started again.
    pub(super) fn with_pipe<R>(&self, spawn: impl FnOnce(BorrowedFd<'_>) -> R) -> io::Result<R> {
        let mut shell = self.lock();
        if shell.child.try_wait()?.is_some() {
            let (child, mut pipe) = start_shell(&self.service)?;
            for group in &shell.groups {
                pipe.write_all(sys::group_line(b'+', *group, &mut [0; 16]))?;
            }
            (shell.child, shell.pipe) = (child, Some(pipe));
        }
        match &shell.pipe {
            Some(pipe) => Ok(spawn(pipe.as_fd())),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Notes a group that has announced itself.
    pub(super) fn remember(&self, group: i32) {
        self.lock().groups.insert(group);
    }

    /// Reports that a group has been killed. This must come before the leader is reaped, while the number is still taken.
    pub(super) fn forget(&self, group: i32) {
        let mut shell = self.lock();
        shell.groups.remove(&group);
        if let Some(pipe) = &mut shell.pipe {
            // If the shell was killed, this fails; the next shell learns of the remaining groups.
            let _ = pipe.write_all(sys::group_line(b'-', group, &mut [0; 16]));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Shell> {
        // No holder of the lock leaves the set half changed.
        self.shell.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        let mut shell = self.lock();
        shell.pipe = None;
        // The shell ends at once when nothing runs. Waiting leaves no zombie.
        let _ = shell.child.wait();
    }
}

fn start_shell(service: &str) -> io::Result<(Child, ChildStdin)> {
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(include_str!("watchdog.sh")).arg("annals-demo-watchdog");
    command.arg(format!("{SERVICE_VARIABLE}={service}"));
    // A group of its own shields it from Ctrl-C in a terminal.
    command.process_group(0).current_dir("/").env_clear().env("PATH", OsStr::new("/usr/bin:/bin"));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    match child.stdin.take() {
        Some(pipe) => Ok((child, pipe)),
        None => Err(io::ErrorKind::BrokenPipe.into()),
    }
}
