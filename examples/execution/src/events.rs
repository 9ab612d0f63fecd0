//! The events of an execution, in the shapes of Integr8sCode, and the commits they travel in.
//!
//! ```text
//!  execution_requested ─▶ execution_queued ─▶ allocate_resources_command ─▶ create_pod_command          API, saga, scheduler
//!      pod_created ─▶ pod_scheduled ─▶ pod_running, execution_started                                   worker
//!      pod_succeeded | pod_failed, pod_terminated, execution_completed | _failed | _timeout ─▶ pod_deleted
//!  execution_cancelled ─▶ delete_pod_command ─▶ pod_terminated ─▶ pod_deleted                           API, saga, worker
//!  result_stored                                                                                        result processor
//! ```
//!
//! All are committed to the aggregate `execution`/ID, so that consumers get them in order. They have all fields of Integr8sCode, and two
//! more: `reason` of `execution_failed` and `exit_code` of `execution_timeout`.

use annals::{ByteString, Data, NewCommit, NewEvent, RecordedEvent};
use serde::{Deserialize, Serialize};

/// The name of the aggregate.
pub const AGGREGATE: &str = "execution";
/// The user has requested a program to run.
pub const REQUESTED: &str = "execution_requested";
/// The execution waits for a slot.
pub const QUEUED: &str = "execution_queued";
/// The scheduler has granted a slot to the execution.
pub const SLOT_GRANTED: &str = "allocate_resources_command";
/// The saga requests a pod.
pub const CREATE_POD: &str = "create_pod_command";
/// The saga requests the end of a pod.
pub const DELETE_POD: &str = "delete_pod_command";
/// The program is about to begin.
pub const STARTED: &str = "execution_started";
/// The program ended with exit code 0.
pub const COMPLETED: &str = "execution_completed";
/// The program ended with another exit code, or could not be run.
pub const FAILED: &str = "execution_failed";
/// The program was killed because its time was up.
pub const TIMEOUT: &str = "execution_timeout";
/// The owner, an administrator or an operator cancelled the execution.
pub const CANCELLED: &str = "execution_cancelled";
/// The types that end an execution. It has exactly one of them.
pub const TERMINAL: [&str; 4] = [COMPLETED, FAILED, TIMEOUT, CANCELLED];
/// The terminal types that a worker reports. They have a result.
pub(crate) const ENDED_BY_ITSELF: [&str; 3] = [COMPLETED, FAILED, TIMEOUT];

/// A worker has taken the execution.
pub const POD_CREATED: &str = "pod_created";
/// The pod has a place to run.
pub const POD_SCHEDULED: &str = "pod_scheduled";
/// The pod's program runs.
pub const POD_RUNNING: &str = "pod_running";
/// The pod's program ended with exit code 0.
pub const POD_SUCCEEDED: &str = "pod_succeeded";
/// The pod's program ended in another way.
pub const POD_FAILED: &str = "pod_failed";
/// Nothing of the pod runs any more.
pub const POD_TERMINATED: &str = "pod_terminated";
/// The pod's folder is deleted.
pub const POD_DELETED: &str = "pod_deleted";
/// The seven events of a pod.
pub const POD: [&str; 7] =
    [POD_CREATED, POD_SCHEDULED, POD_RUNNING, POD_SUCCEEDED, POD_FAILED, POD_TERMINATED, POD_DELETED];

/// The result is stored.
pub const RESULT_STORED: &str = "result_stored";
/// The result cannot be stored.
pub const RESULT_FAILED: &str = "result_failed";
/// A user is notified.
pub const NOTIFICATION_CREATED: &str = "notification_created";

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
    /// Returns the priority. An unknown one counts as normal.
    pub(crate) fn priority(&self) -> annals::queue::QueuePriority {
        annals::queue::QueuePriority::from_name(&self.priority).unwrap_or_default()
    }

    /// Returns the memory limit in MiB.
    pub(crate) fn memory_limit_mb(&self) -> Result<u64, String> {
        let number = self.memory_limit.strip_suffix("Mi").and_then(|number| number.parse().ok());
        number.ok_or_else(|| format!("memory_limit is {:?}; it must be like 128Mi", self.memory_limit))
    }
}

/// The data of `create_pod_command`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct CreatePod {
    pub(crate) saga_id: String,
    #[serde(flatten)]
    pub(crate) requested: Requested,
}

/// The data of `delete_pod_command`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct DeletePod {
    pub(crate) saga_id: String,
    pub(crate) execution_id: String,
    pub(crate) reason: String,
}

/// The data of `execution_started`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Started {
    pub(crate) execution_id: String,
    /// The run of the service that took the execution. It is unique to the run.
    pub(crate) pod_name: String,
    pub(crate) node_name: String,
}

/// The resources that an execution used, measured on its process.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct ResourceUsage {
    /// Wall-clock seconds.
    pub execution_time_wall_seconds: f64,
    /// User and system time, in ticks of `clk_tck_hertz`, of the program and of the descendants it waited for.
    pub cpu_time_jiffies: u64,
    /// Ticks per second.
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
    /// The exit code. As in a shell, it is 128 plus the signal number if a signal ended the program. It is 1 if no program ran to its
    /// end.
    pub(crate) exit_code: i32,
    pub(crate) error_type: ErrorType,
    /// `interrupted`, or a sentence that says what happened.
    pub(crate) reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) resource_usage: Option<ResourceUsage>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// The cause of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ErrorType {
    /// An error of the service or the machine.
    SystemError,
    /// The program exceeded its time limit.
    Timeout,
    /// The program exceeded its limits.
    ResourceLimit,
    /// An error of the program itself.
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

/// Returns an event of this type and data.
pub(crate) fn event(event_type: &'static str, data: &impl Serialize) -> Result<NewEvent, String> {
    Ok(NewEvent::new(ByteString::from_static(event_type), Data::from_value(data)?))
}

/// Returns the commit that begins an execution of a user.
pub(crate) fn first_commit(id: &str, user: &str, event: NewEvent, request_id: &str) -> NewCommit {
    let mut commit = NewCommit::new(ByteString::from_static(AGGREGATE), id).event(event).request_id(request_id);
    commit.header = header(user);
    commit.correlation_id = Some(id.into());
    commit
}

/// Returns a commit that follows from `cause`, an event of the same execution.
pub(crate) fn next_commit(cause: &RecordedEvent, events: Vec<NewEvent>, request_id: &str) -> NewCommit {
    let mut commit = NewCommit::new(cause.commit.aggregate.name.clone(), cause.commit.aggregate.id.clone());
    commit.events = events;
    commit.request_id = Some(request_id.into());
    commit.tenant_id = Some(cause.commit.tenant_id.clone());
    commit.header = header(user_of(cause));
    commit.correlation_id = cause.commit.correlation_id.clone().or_else(|| Some(cause.commit.aggregate.id.clone()));
    commit.causation_id = Some(cause.id.to_string().into());
    commit
}

/// The key of the header that names the user, as in Integr8sCode's metadata.
const USER_ID: &str = "user_id";

/// Returns the header, which Integr8sCode calls metadata.
pub(crate) fn header(user: &str) -> Vec<(ByteString, ByteString)> {
    let mut header: Vec<_> = [
        ("service_name", "annals-execution"),
        ("service_version", env!("CARGO_PKG_VERSION")),
        ("environment", "development"),
    ]
    .map(|(key, value)| (ByteString::from_static(key), ByteString::from_static(value)))
    .into();
    if !user.is_empty() {
        header.push((ByteString::from_static(USER_ID), user.into()));
    }
    header
}

/// Returns the user of an event; empty if it names none.
pub(crate) fn user_of(event: &RecordedEvent) -> &str {
    let named = event.commit.header.iter().find(|(key, _)| &**key == USER_ID);
    named.map_or("", |(_, user)| user)
}

/// Returns the aggregate's id, shortened for a line of output. Ids hold no control characters.
pub(crate) fn short_id(id: &str) -> String {
    const SHOWN: usize = 8;
    match id.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &id[..end]),
        None => id.to_owned(),
    }
}
