//! The worker: a consumer of the two commands of pods, which runs each program in a process of its own.
//!
//! ```text
//!  create_pod_command ─▶ claim: a record of the pod ─▶ pod_created, pod_scheduled ─▶ pod_running, execution_started ─▶ process
//!                                                                                                              │
//!  delete_pod_command ─▶ kill ────────────────▶ pod_terminated ─▶ pod_deleted ◀── verdict in the same commit ◀─┘
//! ```
//!
//! A command is settled once its pod runs, so that `delete_pod_command` of the same execution is delivered meanwhile. What a worker that died
//! left behind is known by its records of pods: another one ends them, or runs those whose program had not begun (`keeper`).

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

/// Delays between attempts of what a store did not take.
pub(crate) const RETRY: ProcessingRetry =
    ProcessingRetry { first_ms: 100, factor: 2.0, max_ms: 5_000, jitter: 0.0, attempts: None, then: Then::Block };

/// What every pod of this run of the worker needs.
pub(crate) struct Workshop {
    pub(crate) log: Arc<dyn EventLog>,
    pub(crate) records: Arc<dyn Records>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) interpreters: Interpreters,
    pub(crate) watchdog: Watchdog,
    /// Where each program gets a folder of its own while it runs.
    pub(crate) folder: PathBuf,
    /// Of this run of the worker; no other has the same.
    pub(crate) name: String,
    /// Bytes kept of each output.
    pub(crate) output_bytes: usize,
    /// Whether other processes may have the store open.
    pub(crate) is_shared: bool,
    /// How long the pods of a worker stay its own without a word from it.
    pub(crate) lease: Duration,
    /// Where it complains.
    pub(crate) lines: Lines,
}

/// Runs a pod for each command that it is handed.
///
/// INVARIANT: a pod runs in a task of the worker, not of the attempt that handed its command over. An attempt may be dropped and made
/// again, because the engine restarts after a failure of the store; the program runs on, and the next attempt finds it.
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
    /// By execution.
    pods: HashMap<String, Handle>,
}

/// What the worker keeps of a pod.
#[derive(Clone)]
struct Handle {
    /// Why it is to end.
    delete: watch::Sender<Option<String>>,
    /// Given once its program runs, or is not going to.
    begun: watch::Receiver<Option<Outcome>>,
    /// Given once nothing is left of it.
    gone: watch::Receiver<bool>,
}

impl Worker {
    pub(crate) fn new(workshop: Arc<Workshop>) -> Arc<Self> {
        Arc::new(Self { workshop, stopping: watch::Sender::new(false), running: Mutex::default() })
    }

    /// The consumer of the two topics. Commands of different executions are handed over at once, those of one in their order.
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
            // Draining the host ends this attempt without settling it, so the command is handed over at the next start.
            return std::future::pending().await;
        };
        let mut begun = handle.begun;
        // Without an outcome its task panicked: the next start ends it, because nobody knows how far it came.
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
            // Another worker has it, which looks for this.
            let told = PodRecord { delete: Some(reason), ..found.value };
            pods.replace_if(&told, Expected::Revision(found.revision)).await.map_err(failed)?;
        }
        Ok(())
    }

    /// Starts the task of a pod, or finds it where an earlier attempt started it. None once the worker is stopping. With `claimed`, the
    /// record of the pod is this worker's already.
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

    /// Takes no further command, and kills what runs.
    pub(crate) fn stop(&self) {
        let _running = self.running();
        self.stopping.send_replace(true);
    }

    /// Waits until nothing is left of what ran. Call it after [`stop`](Self::stop).
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
