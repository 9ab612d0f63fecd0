//! The worker: follows the requests in the log and runs them.
//!
//! It stores nothing of its own. What is to be done is what the log holds: executions without a terminal event.

use std::collections::HashMap;
use std::io::PipeWriter;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use annals::runtime::{Handler, HandlerError, RetryPolicy};
use annals::{
    AggregateFilter, ByteString, EventLog, Filter, LogQuery, NewEvent, ReadError, RecordedEvent, SequenceNumber, limits,
};
use async_trait::async_trait;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::task::JoinSet;

use crate::events::{self, REQUESTED, Requested, STARTED, Started, TERMINAL};
use crate::language::Interpreters;
use crate::lines::Lines;
use crate::process::{Bounds, EXECUTION_VARIABLE, Finished, Program, SERVICE_VARIABLE, Watchdog, kill_stragglers, run};
use crate::step::{Step, step};
use crate::submission::{Allowed, check};
use crate::verdict;

/// Delays between attempts to commit how an execution ended.
const COMMIT_RETRY: RetryPolicy = RetryPolicy { first: Duration::from_millis(100), max: Duration::from_secs(5) };

/// What every execution of this run of the service needs.
pub(crate) struct Workshop {
    pub(crate) log: Arc<dyn EventLog>,
    pub(crate) interpreters: Interpreters,
    pub(crate) watchdog: Watchdog,
    /// Where each program gets a folder of its own while it runs.
    pub(crate) folder: PathBuf,
    /// Of this run of the service; no other has the same.
    pub(crate) service: String,
    /// Bytes kept of each output.
    pub(crate) output_bytes: usize,
    /// Where it complains.
    pub(crate) lines: Lines,
}

/// Runs the requests that it is handed, a few at a time.
pub(crate) struct Worker {
    workshop: Arc<Workshop>,
    slots: Arc<Semaphore>,
    stopping: watch::Sender<bool>,
    running: Mutex<JoinSet<()>>,
}

/// The events that the worker is to be handed.
pub(crate) fn requests() -> Filter {
    of_types(&[REQUESTED])
}

fn of_types(types: &[&'static str]) -> Filter {
    Filter {
        types: types.iter().map(|event_type| ByteString::from_static(event_type)).collect(),
        aggregate: Some(AggregateFilter { name: ByteString::from_static(events::AGGREGATE), id: None }),
        ..Filter::default()
    }
}

#[async_trait]
impl Handler for Worker {
    /// Waits for a free slot, so that the log itself is the queue.
    async fn handle(&self, request: &RecordedEvent) -> Result<(), HandlerError> {
        let Ok(slot) = Arc::clone(&self.slots).acquire_owned().await else {
            return Err(HandlerError::Stop("the service is stopping".to_owned()));
        };
        self.begin(request, slot).await
    }
}

impl Worker {
    pub(crate) fn new(workshop: Arc<Workshop>, at_once: usize) -> Arc<Self> {
        Arc::new(Self {
            workshop,
            slots: Arc::new(Semaphore::new(at_once)),
            stopping: watch::Sender::new(false),
            running: Mutex::new(JoinSet::new()),
        })
    }

    /// Takes an execution, unless somebody has, and starts running it.
    async fn begin(&self, request: &RecordedEvent, slot: OwnedSemaphorePermit) -> Result<(), HandlerError> {
        let unless = [&[STARTED], &TERMINAL[..]].concat();
        let workshop = &self.workshop;
        let id = request.commit.aggregate.id.to_string();
        let job = match workshop.job(request) {
            Ok(job) => job,
            Err(reason) => {
                let event = verdict::of_system_error(&id, reason).map_err(HandlerError::Retry)?;
                step(&*workshop.log, request, event, "terminal", &unless).await?;
                return Ok(());
            }
        };
        let node_name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned();
        let started = Started { execution_id: id, pod_name: workshop.service.clone(), node_name };
        let event = events::event(STARTED, &started).map_err(HandlerError::Retry)?;
        if step(&*workshop.log, request, event, "started", &unless).await? == Step::TakenByOther {
            return Ok(());
        }
        let execution = Execution { workshop: Arc::clone(workshop), request: request.clone(), job };
        let stopping = self.stopping.subscribe();
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        while running.try_join_next().is_some() {}
        running.spawn(async move {
            execution.run(stopping).await;
            drop(slot);
        });
        Ok(())
    }

    /// Takes no further request, and kills what runs.
    pub(crate) fn stop(&self) {
        self.slots.close();
        self.stopping.send_replace(true);
    }

    /// Waits until what ran has got its terminal event. Call it after [`stop`](Self::stop), when no request is being handed over.
    pub(crate) async fn stopped(&self) {
        let mut running = std::mem::take(&mut *self.running.lock().unwrap_or_else(PoisonError::into_inner));
        while running.join_next().await.is_some() {}
    }
}

/// What to run, once a request has been checked.
struct Job {
    script: String,
    allowed: Allowed,
    interpreter: PathBuf,
}

impl Workshop {
    /// Checks what a request asks for; the error is a sentence.
    fn job(&self, request: &RecordedEvent) -> Result<Job, String> {
        let requested: Requested =
            request.data.decode().map_err(|error| format!("the request cannot be read: {error}"))?;
        let allowed = check(&requested).map_err(|(_, message)| message)?;
        let interpreter = self.interpreters.of(allowed.language)?.path.clone();
        Ok(Job { script: requested.script, allowed, interpreter })
    }

    fn folder_of(&self, request: &RecordedEvent) -> PathBuf {
        // Sequence numbers are safe as names of folders; ids of aggregates are whatever somebody chose.
        self.folder.join(format!("execution-{}", request.sequence_number))
    }

    /// Commits how an execution ended, for as long as it takes. A store that closes leaves it to the next start.
    async fn end(&self, request: &RecordedEvent, event: Result<NewEvent, String>) {
        let mut failures = 0;
        loop {
            let ended = match &event {
                Ok(event) => step(&*self.log, request, event.clone(), "terminal", &TERMINAL).await,
                Err(defect) => Err(HandlerError::Stop(defect.clone())),
            };
            let id = &request.commit.aggregate.id;
            match ended {
                Ok(_) => return,
                Err(HandlerError::Stop(reason)) => {
                    return self.lines.print(format!("! the end of {id} is left to the next start: {reason}")).await;
                }
                Err(HandlerError::Retry(reason)) => {
                    self.lines.print(format!("! the end of {id} is not committed yet, trying again: {reason}")).await;
                }
            }
            failures += 1;
            tokio::time::sleep(COMMIT_RETRY.delay(failures)).await;
        }
    }
}

struct Execution {
    workshop: Arc<Workshop>,
    request: RecordedEvent,
    job: Job,
}

impl Execution {
    /// Runs the program and commits how it ended. Dropping this, or `stopping`, kills the program.
    async fn run(self, mut stopping: watch::Receiver<bool>) {
        let id = self.request.commit.aggregate.id.to_string();
        let allowed = self.job.allowed;
        let finished = match self.spawn(&id) {
            Ok((cancel, finished)) => outcome(cancel, finished, &mut stopping).await,
            Err(error) => Err(error.to_string()),
        };
        remove_folder(&self.workshop.folder_of(&self.request));
        let event = match finished {
            Ok(finished) => verdict::of_finished(&id, allowed, finished),
            Err(reason) => verdict::of_system_error(&id, format!("the program could not be run: {reason}")),
        };
        self.workshop.end(&self.request, event).await;
    }

    /// Starts the thread that runs the program, and whose end would end it. Dropping the returned pipe ends it too.
    fn spawn(&self, id: &str) -> std::io::Result<(PipeWriter, oneshot::Receiver<Result<Finished, String>>)> {
        let folder = self.workshop.folder_of(&self.request);
        remove_folder(&folder);
        std::fs::create_dir_all(&folder)?;
        let folder = folder.canonicalize()?;
        std::fs::write(folder.join(self.job.allowed.language.file_name()), &self.job.script)?;
        let program = Program {
            interpreter: self.job.interpreter.clone(),
            arguments: self.job.allowed.language.arguments(),
            environment: vec![
                ("PATH", "/usr/local/bin:/usr/bin:/bin".into()),
                ("LANG", "C.UTF-8".into()),
                ("HOME", folder.clone().into()),
                ("TMPDIR", folder.clone().into()),
                (EXECUTION_VARIABLE, id.into()),
                (SERVICE_VARIABLE, self.workshop.service.clone().into()),
            ],
            folder,
            id: id.to_owned(),
        };
        let bounds = Bounds {
            wall: Duration::from_secs(self.job.allowed.timeout_seconds),
            memory_bytes: self.job.allowed.memory_mb * 1024 * 1024,
            output_bytes: self.workshop.output_bytes,
        };
        let (cancelled, cancel) = std::io::pipe()?;
        let (answer, finished) = oneshot::channel();
        let workshop = Arc::clone(&self.workshop);
        std::thread::Builder::new().name("execution".to_owned()).spawn(move || {
            let finished = run(&program, bounds, &workshop.watchdog, &cancelled);
            // Nobody waits for it if the service was dropped.
            let _ = answer.send(finished.map_err(|error| error.to_string()));
        })?;
        Ok((cancel, finished))
    }
}

/// What the thread answers; cancels its program when the service stops.
async fn outcome(
    cancel: PipeWriter,
    mut finished: oneshot::Receiver<Result<Finished, String>>,
    stopping: &mut watch::Receiver<bool>,
) -> Result<Finished, String> {
    let answer = tokio::select! {
        answer = &mut finished => Some(answer),
        () = async { let _ = stopping.wait_for(|stopping| *stopping).await; } => None,
    };
    drop(cancel);
    let answer = match answer {
        Some(answer) => answer,
        None => finished.await,
    };
    answer.unwrap_or_else(|_| Err("its thread panicked".to_owned()))
}

fn remove_folder(folder: &Path) {
    // What cannot be removed is in nobody's way: the next execution has another folder.
    let _ = std::fs::remove_dir_all(folder);
}

/// An execution without a terminal event.
struct Open {
    request: RecordedEvent,
    started: bool,
}

/// Ends what an earlier run of the service left unfinished, and says from where requests are to be handed over.
///
/// # Errors
/// The log could not be read.
pub(crate) async fn recover(workshop: &Workshop) -> Result<SequenceNumber, ReadError> {
    let (open, head) = open_executions(&*workshop.log).await?;
    let mut from = head;
    for execution in open {
        if !execution.started {
            from = from.min(execution.request.sequence_number);
            continue;
        }
        let id = execution.request.commit.aggregate.id.to_string();
        kill_stragglers(EXECUTION_VARIABLE, &id);
        remove_folder(&workshop.folder_of(&execution.request));
        workshop.end(&execution.request, verdict::of_system_error(&id, verdict::INTERRUPTED)).await;
    }
    Ok(from)
}

/// Folds the log into the executions that have no terminal event, in the order of their requests.
async fn open_executions(log: &dyn EventLog) -> Result<(Vec<Open>, SequenceNumber), ReadError> {
    let types = [&[REQUESTED, STARTED], &TERMINAL[..]].concat();
    let mut query =
        LogQuery { from: Some(0), limit: limits::PAGE_MAX, filter: of_types(&types), ..LogQuery::default() };
    let mut open = HashMap::new();
    let head = loop {
        let page = log.read(query.clone()).await?;
        if page.events.is_empty() {
            break page.next;
        }
        for event in page.events {
            let id = event.commit.aggregate.id.clone();
            match &*event.event_type {
                REQUESTED => {
                    open.entry(id).or_insert(Open { request: event, started: false });
                }
                STARTED => {
                    open.entry(id).and_modify(|execution| execution.started = true);
                }
                _ => {
                    open.remove(&id);
                }
            }
        }
        query.from = Some(page.next);
    };
    let mut open: Vec<_> = open.into_values().collect();
    open.sort_by_key(|execution| execution.request.sequence_number);
    Ok((open, head))
}
