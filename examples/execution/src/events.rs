//! The events of an execution, in the shapes of Integr8sCode, and the commits they travel in.
//!
//! ```text
//!  execution_requested ──▶ execution_started ──▶ execution_completed     exit code 0
//!                     │                     ├──▶ execution_failed        other exit code, signal, or `interrupted`
//!                     │                     └──▶ execution_timeout       killed when its time was up
//!                     └──▶ execution_failed                              it could not even be started
//! ```
//!
//! Integr8sCode's fields are all there; `reason` of `execution_failed` and `exit_code` of `execution_timeout` are added.

use annals::{ByteString, Data, NewCommit, NewEvent, RecordedEvent};
use serde::{Deserialize, Serialize};

/// The aggregate's name.
pub const AGGREGATE: &str = "execution";
/// A program is to be run.
pub const REQUESTED: &str = "execution_requested";
/// A worker has taken it.
pub const STARTED: &str = "execution_started";
/// It ended with exit code 0.
pub const COMPLETED: &str = "execution_completed";
/// It ended otherwise, or could not be run.
pub const FAILED: &str = "execution_failed";
/// It was killed because its time was up.
pub const TIMEOUT: &str = "execution_timeout";
/// The types that end an execution; it has exactly one of them.
pub const TERMINAL: [&str; 3] = [COMPLETED, FAILED, TIMEOUT];

/// The data of `execution_requested`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Requested {
    pub(crate) execution_id: String,
    pub(crate) script: String,
    pub(crate) language: String,
    #[serde(default)]
    pub(crate) language_version: String,
    #[serde(default)]
    pub(crate) runtime_image: String,
    #[serde(default)]
    pub(crate) runtime_command: Vec<String>,
    #[serde(default)]
    pub(crate) runtime_filename: String,
    pub(crate) timeout_seconds: u64,
    #[serde(default)]
    pub(crate) cpu_limit: String,
    /// A quantity such as `128Mi`.
    pub(crate) memory_limit: String,
    #[serde(default)]
    pub(crate) cpu_request: String,
    #[serde(default)]
    pub(crate) memory_request: String,
    #[serde(default)]
    pub(crate) priority: String,
}

impl Requested {
    /// The memory limit in MiB.
    pub(crate) fn memory_limit_mb(&self) -> Result<u64, String> {
        let number = self.memory_limit.strip_suffix("Mi").and_then(|number| number.parse().ok());
        number.ok_or_else(|| format!("memory_limit is {:?}; it must be like 128Mi", self.memory_limit))
    }
}

/// The data of `execution_started`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Started {
    pub(crate) execution_id: String,
    /// The run of the service that took it; no two runs have the same.
    pub(crate) pod_name: String,
    pub(crate) node_name: String,
}

/// What an execution used, measured from its process.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct ResourceUsage {
    /// Seconds by the clock.
    pub execution_time_wall_seconds: f64,
    /// User and system time in ticks of `clk_tck_hertz`, of the program and the descendants it waited for.
    pub cpu_time_jiffies: u64,
    /// Ticks of a second.
    pub clk_tck_hertz: u64,
    /// The largest resident size of any of those processes in KiB, which Integr8sCode's field calls kB.
    pub peak_memory_kb: u64,
}

/// The data of `execution_completed`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Completed {
    pub(crate) execution_id: String,
    pub(crate) exit_code: i32,
    pub(crate) resource_usage: ResourceUsage,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// The data of `execution_failed`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Failed {
    pub(crate) execution_id: String,
    /// 128 and the number of the signal where a signal ended it, as a shell has it; 1 where no program ran to its end.
    pub(crate) exit_code: i32,
    pub(crate) error_type: ErrorType,
    /// `interrupted`, or what happened as one sentence.
    pub(crate) reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) resource_usage: Option<ResourceUsage>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Whose fault a failure is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ErrorType {
    /// The service's or the machine's.
    SystemError,
    /// The program needed more than its limits.
    ResourceLimit,
    /// The program's own.
    ScriptError,
}

/// The data of `execution_timeout`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Timeout {
    pub(crate) execution_id: String,
    pub(crate) timeout_seconds: u64,
    pub(crate) exit_code: i32,
    pub(crate) resource_usage: ResourceUsage,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// An event of this type and data.
pub(crate) fn event(event_type: &'static str, data: &impl Serialize) -> Result<NewEvent, String> {
    Ok(NewEvent::new(ByteString::from_static(event_type), Data::from_value(data)?))
}

/// The commit that begins an execution.
pub(crate) fn first_commit(id: &str, event: NewEvent, request_id: &str) -> NewCommit {
    let mut commit = NewCommit::new(ByteString::from_static(AGGREGATE), id).event(event).request_id(request_id);
    commit.header = header();
    commit.correlation_id = Some(id.into());
    commit
}

/// A commit that follows from `request`, an `execution_requested`.
pub(crate) fn next_commit(request: &RecordedEvent, event: NewEvent, request_id: &str) -> NewCommit {
    let mut commit = NewCommit::new(request.commit.aggregate.name.clone(), request.commit.aggregate.id.clone());
    commit.events.push(event);
    commit.request_id = Some(request_id.into());
    commit.tenant_id = Some(request.commit.tenant_id.clone());
    commit.header = header();
    commit.correlation_id = request.commit.correlation_id.clone().or_else(|| Some(request.commit.aggregate.id.clone()));
    commit.causation_id = Some(request.id.to_string().into());
    commit
}

/// What Integr8sCode calls metadata.
fn header() -> Vec<(ByteString, ByteString)> {
    [
        ("service_name", "annals-execution"),
        ("service_version", env!("CARGO_PKG_VERSION")),
        ("environment", "development"),
    ]
    .map(|(key, value)| (ByteString::from_static(key), ByteString::from_static(value)))
    .into()
}

/// The aggregate's id, cut for a line of output. Ids hold no control characters.
pub(crate) fn short_id(id: &str) -> String {
    const SHOWN: usize = 8;
    match id.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &id[..end]),
        None => id.to_owned(),
    }
}
