//! The process that kills the programs of a service that was killed itself.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{SERVICE_VARIABLE, sys};

/// A shell that reads from a pipe which process groups are running. Only the service holds the other end, so however the service
/// ends, the shell notices, kills what is running, and ends.
///
/// A program announces its group itself before it becomes the program, so there is no moment at which it runs and the shell does not
/// know it. Dropping the watchdog ends the programs too.
pub(crate) struct Watchdog {
    service: String,
    shell: Mutex<Shell>,
}

struct Shell {
    child: Child,
    pipe: Option<ChildStdin>,
    /// What the shell knows, to tell it to another one should it be killed.
    groups: BTreeSet<i32>,
}

impl Watchdog {
    /// Starts it. `service` is what [`SERVICE_VARIABLE`] holds for every program.
    ///
    /// # Errors
    /// What the system says; it needs `/bin/sh`.
    pub(crate) fn start(service: &str) -> io::Result<Self> {
        let (child, pipe) = start_shell(service)?;
        let shell = Shell { child, pipe: Some(pipe), groups: BTreeSet::new() };
        Ok(Self { service: service.to_owned(), shell: Mutex::new(shell) })
    }

    /// Gives the pipe to a program that is about to be spawned; its child writes `+ <group>` into it. The shell is alive then.
    ///
    /// # Errors
    /// It was killed and cannot be started again.
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

    /// Tells it that a group has been killed. Must come before the leader is reaped, while the number is still taken.
    pub(super) fn forget(&self, group: i32) {
        let mut shell = self.lock();
        shell.groups.remove(&group);
        if let Some(pipe) = &mut shell.pipe {
            // Should it have been killed, there is nobody to tell; the next one learns of those that are left.
            let _ = pipe.write_all(sys::group_line(b'-', group, &mut [0; 16]));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Shell> {
        // Nothing that holds the lock leaves the set half changed.
        self.shell.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        let mut shell = self.lock();
        shell.pipe = None;
        // It ends at once when nothing runs; waiting leaves no zombie behind.
        let _ = shell.child.wait();
    }
}

fn start_shell(service: &str) -> io::Result<(Child, ChildStdin)> {
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(include_str!("watchdog.sh")).arg("annals-demo-watchdog");
    command.arg(format!("{SERVICE_VARIABLE}={service}"));
    // Its own group keeps it out of Ctrl-C in a terminal.
    command.process_group(0).current_dir("/").env_clear().env("PATH", OsStr::new("/usr/bin:/bin"));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    match child.stdin.take() {
        Some(pipe) => Ok((child, pipe)),
        None => Err(io::ErrorKind::BrokenPipe.into()),
    }
}
