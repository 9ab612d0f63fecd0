//! Supervision: a task that fails or panics is restarted, later and later, until it ends by itself or the host is drained.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use annals_core::Timestamp;
use futures_util::FutureExt;
use tokio::sync::watch;

use super::{Shared, is_set, locked};

/// The first and the longest pause before a restart.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));
/// A task that ran this long before it failed begins with the first pause again.
const SOUND_AFTER: Duration = Duration::from_secs(60);

/// The state of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskStatus {
    /// Its name, for example `handler/default/billing`.
    pub name: String,
    /// What it is doing.
    pub state: TaskState,
    /// How often it was restarted.
    pub restarts: u64,
    /// What it failed with last.
    pub last_error: Option<String>,
    /// When that was.
    pub last_failed: Option<Timestamp>,
}

/// What a task is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskState {
    /// It runs.
    Running,
    /// It failed, and is restarted after a pause.
    Restarting,
    /// It ended in order.
    Ended,
}

/// How one run of a task ended.
pub(crate) enum Ended {
    /// It has nothing more to do.
    Done,
    /// It is to be restarted, because of this.
    Failed(String),
}

/// A task that is supervised.
pub(crate) trait Supervised: Send + 'static {
    /// Runs until there is nothing more to do, or a failure. Called again after a failure or a panic.
    fn run(&mut self) -> impl Future<Output = Ended> + Send;
}

/// Runs a task under supervision, and keeps its status in the host's registry.
pub(crate) fn supervise(shared: &Arc<Shared>, name: String, task: impl Supervised) {
    let status =
        TaskStatus { name: name.clone(), state: TaskState::Running, restarts: 0, last_error: None, last_failed: None };
    let (status, watched) = watch::channel(status);
    locked(&shared.tasks).insert(name, watched);
    tokio::spawn(attend(Arc::clone(shared), task, status));
}

async fn attend(shared: Arc<Shared>, mut task: impl Supervised, status: watch::Sender<TaskStatus>) {
    let status = OnEnd(status);
    let clock = &shared.options.clock;
    let mut stop = shared.stop.subscribe();
    let mut pause = PAUSES.0;
    loop {
        let began = clock.now();
        let error = match AssertUnwindSafe(task.run()).catch_unwind().await {
            Ok(Ended::Done) => return,
            Ok(Ended::Failed(error)) => error,
            Err(panic) => format!("panicked: {}", message_of(&*panic)),
        };
        if clock.now().since(began) > SOUND_AFTER {
            pause = PAUSES.0;
        }
        status.0.send_modify(|status| {
            tracing::warn!(task = status.name, error, "a task failed and is restarted");
            status.state = TaskState::Restarting;
            status.restarts += 1;
            status.last_failed = Some(clock.now());
            status.last_error = Some(error);
        });
        tokio::select! {
            () = is_set(&mut stop) => return,
            () = clock.sleep(pause) => {}
        }
        pause = (pause * 2).min(PAUSES.1);
        status.0.send_modify(|status| status.state = TaskState::Running);
    }
}

/// However a task ends, whoever waits for it hears of it.
struct OnEnd(watch::Sender<TaskStatus>);

impl Drop for OnEnd {
    fn drop(&mut self) {
        self.0.send_modify(|status| status.state = TaskState::Ended);
    }
}

/// What a panic said.
pub(crate) fn message_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a message")
}
