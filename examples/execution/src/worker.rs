//! The worker: a consumer of the two commands of pods, which runs each program in a process of its own.
//!
//! ```text
//!  create_pod_command ─▶ claim: a record of the pod ─▶ pod_created, pod_scheduled ─▶ pod_running, execution_started ─▶ process
//!                                                                                                              │
//!  delete_pod_command ─▶ kill ────────────────▶ pod_terminated ─▶ pod_deleted ◀── verdict in the same commit ◀─┘
//! ```
//!
//! A command is settled once its pod runs, so that a `delete_pod_command` of the same execution can be delivered meanwhile. The pods of a
//! dead worker are known by their records: another worker ends them, or runs those whose program had not begun (`keeper`).

mod keeper;
mod pod;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use annals::processing::{ProcessingRetry, Then};
use annals::runtime::{Consumer, HandleFailure, consumer};
use annals::{Clock, EventLog, Expected, RecordedEvent, Records};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::events::{AGGREGATE, CREATE_POD, DELETE_POD, DeletePod};
use crate::language::Interpreters;
use crate::lines::Lines;
use crate::process::Watchdog;
use crate::records::{PodRecord, typed};
use pod::Pod;

/// The group of the worker, as Integr8sCode calls it.
pub const WORKER_GROUP: &str = "k8s-worker";
/// The topics of the worker.
pub const WORKER_TOPICS: [&str; 2] = [CREATE_POD, DELETE_POD];

/// Delays between attempts at what a store did not accept.
pub(crate) const RETRY: ProcessingRetry =
    ProcessingRetry { first_ms: 100, factor: 2.0, max_ms: 5_000, jitter: 0.0, attempts: None, then: Then::Block };

/// The dependencies of every pod of this run of the worker.
pub(crate) struct Workshop {
    pub(crate) log: Arc<dyn EventLog>,
    pub(crate) records: Arc<dyn Records>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) interpreters: Interpreters,
    pub(crate) watchdog: Watchdog,
    /// The folder in which each program gets a folder of its own while it runs.
    pub(crate) folder: PathBuf,
    /// The name of this run of the worker. It is unique to the run.
    pub(crate) name: String,
    /// Bytes kept of each output.
    pub(crate) output_bytes: usize,
    /// Whether other processes may have the store open.
    pub(crate) is_shared: bool,
    /// How long a worker keeps its pods without a sign of life.
    pub(crate) lease: Duration,
    /// Where it prints errors.
    pub(crate) lines: Lines,
}

/// Runs a pod for each command that it receives.
///
/// INVARIANT: a pod runs in a task of the worker, not of the attempt that delivered its command. An attempt may be dropped and repeated,
/// because the engine restarts after a failure of the store. The program continues, and the next attempt finds it.
pub(crate) struct Worker {
    workshop: Arc<Workshop>,
    /// Changed only while `running` is locked.
    stopping: watch::Sender<bool>,
    running: Mutex<Running>,
}

type Outcome = Result<(), HandleFailure>;

#[derive(Default)]
struct Running {
    tasks: JoinSet<()>,
    /// The pods by execution.
    pods: HashMap<String, Handle>,
}

/// What the worker keeps about a pod.
#[derive(Clone)]
struct Handle {
    /// Why the pod must end.
    delete: watch::Sender<Option<String>>,
    /// Set once its program runs, or will not run.
    begun: watch::Receiver<Option<Outcome>>,
    /// Set once nothing of it is left.
    gone: watch::Receiver<bool>,
}

impl Worker {
    pub(crate) fn new(workshop: Arc<Workshop>) -> Arc<Self> {
        Arc::new(Self { workshop, stopping: watch::Sender::new(false), running: Mutex::default() })
    }

    /// Returns the consumer of the two topics. Commands of different executions are delivered concurrently, those of one execution in
    /// order.
    pub(crate) fn consumer(self: &Arc<Self>) -> Consumer {
        const KEYS: u32 = 64;
        let (creates, deletes) = (Arc::clone(self), Arc::clone(self));
        consumer(WORKER_GROUP, WORKER_TOPICS)
            .on(CREATE_POD, move |command, _: Value| {
                let worker = Arc::clone(&creates);
                async move { worker.create(command).await }
            })
            .on(DELETE_POD, move |command, data: DeletePod| {
                let worker = Arc::clone(&deletes);
                async move { worker.delete(command, data.reason).await }
            })
            .in_flight(KEYS)
            .retry(RETRY)
    }

    /// Waits until the pod of a command runs.
    pub(crate) async fn create(&self, command: RecordedEvent) -> Outcome {
        if &*command.commit.aggregate.name != AGGREGATE {
            return Ok(());
        }
        let Some(handle) = self.begin(command, false) else {
            // Draining the host ends this attempt without settling it, so the command is delivered again at the next start.
            return std::future::pending().await;
        };
        let mut begun = handle.begun;
        // Without an outcome its task panicked. The next start ends the pod, because its progress is unknown.
        begun.wait_for(Option::is_some).await.ok().and_then(|begun| begun.clone()).unwrap_or(Ok(()))
    }

    /// Ends the pod of an execution, and waits until it is gone.
    pub(crate) async fn delete(&self, command: RecordedEvent, reason: String) -> Outcome {
        let id = &command.commit.aggregate.id;
        if let Some(handle) = self.handle(id) {
            handle.delete.send_replace(Some(reason));
            let mut gone = handle.gone;
            let _ = gone.wait_for(|gone| *gone).await;
            return Ok(());
        }
        let pods = typed::<PodRecord>(&self.workshop.records);
        let failed = |error: annals::RecordError| HandleFailure::new(error.to_string());
        if let Some(found) = pods.get(&**id).await.map_err(failed)? {
            // Another worker has the pod and checks for this.
            let told = PodRecord { delete: Some(reason), ..found.value };
            pods.replace_if(&told, Expected::Revision(found.revision)).await.map_err(failed)?;
        }
        Ok(())
    }

    /// Starts the task of a pod, or finds the one that an earlier attempt started. Returns `None` once the worker is stopping. With
    /// `claimed`, the record of the pod already belongs to this worker.
    fn begin(&self, command: RecordedEvent, claimed: bool) -> Option<Handle> {
        let mut running = self.running();
        if *self.stopping.borrow() {
            return None;
        }
        while running.tasks.try_join_next().is_some() {}
        running.pods.retain(|_, handle| !*handle.gone.borrow() && handle.gone.has_changed().is_ok());
        let id = command.commit.aggregate.id.to_string();
        if let Some(known) = running.pods.get(&id) {
            return Some(known.clone());
        }
        let delete = watch::Sender::new(None);
        let (begun_by, begun) = watch::channel(None);
        let (gone_by, gone) = watch::channel(false);
        let pod = Pod {
            workshop: Arc::clone(&self.workshop),
            command,
            claimed,
            delete: delete.subscribe(),
            stopping: self.stopping.subscribe(),
        };
        running.tasks.spawn(async move {
            pod.run(&begun_by).await;
            gone_by.send_replace(true);
        });
        let handle = Handle { delete, begun, gone };
        running.pods.insert(id, handle.clone());
        Some(handle)
    }

    fn handle(&self, id: &str) -> Option<Handle> {
        let found = self.running().pods.get(id).cloned();
        found.filter(|handle| !*handle.gone.borrow() && handle.gone.has_changed().is_ok())
    }

    /// Takes no further commands, and kills running programs.
    pub(crate) fn stop(&self) {
        let _running = self.running();
        self.stopping.send_replace(true);
    }

    /// Waits until nothing of the pods is left. Call it after [`stop`](Self::stop).
    pub(crate) async fn stopped(&self) {
        let mut tasks = std::mem::take(&mut self.running().tasks);
        while tasks.join_next().await.is_some() {}
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests;
