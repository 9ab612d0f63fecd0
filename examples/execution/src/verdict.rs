//! Decides which event ends an execution.

use annals::NewEvent;

use crate::events::{self, COMPLETED, Completed, ErrorType, FAILED, Failed, TIMEOUT, Timeout};
use crate::language::Language;
use crate::process::{Ending, Finished, signal_name};
use crate::submission::Allowed;

/// The reason of an execution whose service ended first.
pub(crate) const INTERRUPTED: &str = "interrupted";

/// The exit code by the convention of shells: 128 plus the number of the signal, here SIGKILL.
const KILLED_EXIT_CODE: i32 = 128 + 9;
/// The same for SIGXFSZ.
const FILE_LIMIT_EXIT_CODE: i32 = 128 + 25;

/// Returns the event for a program that ran.
pub(crate) fn of_finished(id: &str, allowed: Allowed, finished: Finished) -> Result<NewEvent, String> {
    let Finished { ending, stdout, stderr, usage } = finished;
    let execution_id = id.to_owned();
    let (exit_code, error_type, reason) = match ending {
        Ending::Exited(0) => {
            let data = Completed { execution_id, exit_code: 0, resource_usage: usage, stdout, stderr };
            return events::event(COMPLETED, &data);
        }
        Ending::TimedOut => {
            let timeout_seconds = allowed.timeout_seconds;
            let exit_code = KILLED_EXIT_CODE;
            let data = Timeout { execution_id, timeout_seconds, exit_code, resource_usage: usage, stdout, stderr };
            return events::event(TIMEOUT, &data);
        }
        Ending::Exited(code) if ran_out_of_memory(allowed.language, &stderr) => {
            (code, ErrorType::ResourceLimit, format!("it exceeded its memory limit of {} MiB", allowed.memory_mb))
        }
        Ending::Exited(code) => (code, ErrorType::ScriptError, "its exit code is not 0".to_owned()),
        Ending::CpuLimit => {
            (KILLED_EXIT_CODE, ErrorType::ResourceLimit, "it exceeded its limit of processor time".to_owned())
        }
        Ending::MemoryLimit => (
            KILLED_EXIT_CODE,
            ErrorType::ResourceLimit,
            format!("it exceeded its memory limit of {} MiB", allowed.memory_mb),
        ),
        Ending::FileLimit => {
            (FILE_LIMIT_EXIT_CODE, ErrorType::ResourceLimit, "it exceeded the maximum file size".to_owned())
        }
        Ending::Signalled(signal) => {
            let reason = format!("it was ended by signal {signal} ({})", signal_name(signal));
            (128 + signal, ErrorType::ScriptError, reason)
        }
        Ending::Cancelled => (KILLED_EXIT_CODE, ErrorType::SystemError, INTERRUPTED.to_owned()),
    };
    let resource_usage = Some(usage);
    let data = Failed { execution_id, exit_code, error_type, reason, resource_usage, stdout, stderr };
    events::event(FAILED, &data)
}

/// Returns the event for a program that did not run, or whose outcome is unknown.
pub(crate) fn of_system_error(id: &str, reason: impl Into<String>) -> Result<NewEvent, String> {
    not_run(id, ErrorType::SystemError, reason)
}

/// Returns the event for a program that was not run for this reason.
pub(crate) fn not_run(id: &str, error_type: ErrorType, reason: impl Into<String>) -> Result<NewEvent, String> {
    let data = Failed {
        execution_id: id.to_owned(),
        exit_code: 1,
        error_type,
        reason: reason.into(),
        resource_usage: None,
        stdout: String::new(),
        stderr: String::new(),
    };
    events::event(FAILED, &data)
}

/// Returns whether stderr reports a failed allocation. The system does not count those, so only the process itself reports them.
fn ran_out_of_memory(language: Language, stderr: &str) -> bool {
    let last_line = stderr.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    match language {
        Language::Python => last_line.starts_with("MemoryError"),
        Language::Bash | Language::Sh => last_line.ends_with("Out of space") || last_line.contains("cannot allocate"),
        Language::Ruby => last_line.contains("NoMemoryError"),
        Language::Node => stderr.contains("JavaScript heap out of memory"),
        Language::Go => stderr.contains("runtime: out of memory"),
    }
}
