//! The worker: a handler of the requests in the log, which runs them.
//!
//! Its position is stored by the engine that hands the requests over: one is settled once its execution has a terminal event. What
//! else there is to know is in the log: an execution that was started and has no terminal event was interrupted.

use std::collections::HashMap;
use std::io::PipeWriter;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use annals::handlers::HandlerDefinition;
use annals::processing::{PartitionBy, ProcessingRetry, Then};
use annals::runtime::{Effects, HandleFailure, Handler};
use annals::{
    AggregateFilter, ByteString, EventLog, Filter, LogQuery, NewEvent, ReadError, RecordedEvent, SequenceNumber, limits,
};
use async_trait::async_trait;
use tokio::sync::{oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};

use crate::events::{self, REQUESTED, Requested, STARTED, Started, TERMINAL};
use crate::language::Interpreters;
use crate::lines::Lines;
use crate::process::{Bounds, EXECUTION_VARIABLE, Finished, Program, SERVICE_VARIABLE, Watchdog, kill_stragglers, run};
use crate::step::{Step, step};
use crate::submission::{Allowed, check};
use crate::verdict;

/// Delays between attempts to commit how an execution began or ended.
const RETRY: ProcessingRetry =
    ProcessingRetry { first_ms: 100, factor: 2.0, max_ms: 5_000, jitter: 0.0, attempts: None, then: Then::Block };

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

/// Defines the worker: requests of different executions are handed over at once, those of one in their order.
pub(crate) fn definition(at_once: usize) -> HandlerDefinition {
    // More than a handler may have in flight is refused, however much more it is.
    let at_once = u32::try_from(at_once).unwrap_or(u32::MAX);
    let definition = HandlerDefinition::new("execution-worker").types([ByteString::from_static(REQUESTED)]);
    HandlerDefinition { retry: RETRY, ..definition.partitioned(PartitionBy::Aggregate, at_once) }
}

/// Runs each request that it is handed to its end.
///
/// INVARIANT: an execution runs in a task of the worker, not of the attempt that handed its request over. An attempt may be dropped
/// and made again, because the engine restarts after a failure of the store; the program runs on, and the next attempt waits for it.
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
    /// By the number of the request.
    executions: HashMap<SequenceNumber, (AbortHandle, watch::Receiver<Option<Outcome>>)>,
}

#[async_trait]
impl Handler for Worker {
    async fn handle(&self, requests: &[RecordedEvent], _: &mut Effects) -> Outcome {
        for request in requests.iter().filter(|request| &*request.commit.aggregate.name == events::AGGREGATE) {
            let Some(mut outcome) = self.begin(request) else {
                // Draining the host ends this attempt without settling it, so the request is handed over at the next start.
                return std::future::pending().await;
            };
            // Without an outcome its task panicked: the next start ends it, because nobody knows how far it came.
            let ended = outcome.wait_for(Option::is_some).await.ok().and_then(|outcome| outcome.clone());
            ended.unwrap_or(Ok(()))?;
        }
        Ok(())
    }
}

impl Worker {
    pub(crate) fn new(workshop: Arc<Workshop>) -> Arc<Self> {
        Arc::new(Self { workshop, stopping: watch::Sender::new(false), running: Mutex::default() })
    }

    /// Starts the task of a request, or finds it where an earlier attempt started it. None once the worker is stopping.
    fn begin(&self, request: &RecordedEvent) -> Option<watch::Receiver<Option<Outcome>>> {
        let mut running = self.running();
        if *self.stopping.borrow() {
            return None;
        }
        while running.tasks.try_join_next().is_some() {}
        running.executions.retain(|_, (task, outcome)| !task.is_finished() && outcome.borrow().is_none());
        if let Some((_, outcome)) = running.executions.get(&request.sequence_number) {
            return Some(outcome.clone());
        }
        let (ended, outcome) = watch::channel(None);
        let (workshop, request, stopping) = (Arc::clone(&self.workshop), request.clone(), self.stopping.subscribe());
        let number = request.sequence_number;
        let task = running.tasks.spawn(async move {
            let outcome = workshop.execute(&request, stopping).await;
            ended.send_replace(Some(outcome.clone()));
            if let Err(failure) = outcome {
                let id = &request.commit.aggregate.id;
                let line = format!("! {id} is not started yet, trying again: {}", failure.reason);
                workshop.lines.print(line).await;
            }
        });
        running.executions.insert(number, (task, outcome.clone()));
        Some(outcome)
    }

    /// Takes no further request, and kills what runs.
    pub(crate) fn stop(&self) {
        let _running = self.running();
        self.stopping.send_replace(true);
    }

    /// Waits until what ran has got its terminal event. Call it after [`stop`](Self::stop).
    pub(crate) async fn stopped(&self) {
        let mut running = std::mem::take(&mut *self.running());
        while running.tasks.join_next().await.is_some() {}
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What to run, once a request has been checked.
struct Job {
    script: String,
    allowed: Allowed,
    interpreter: PathBuf,
}

impl Workshop {
    /// Takes an execution, unless somebody has, and runs it to its end.
    async fn execute(self: &Arc<Self>, request: &RecordedEvent, stopping: watch::Receiver<bool>) -> Outcome {
        let Some(job) = self.take(request).await? else { return Ok(()) };
        let execution = Execution { workshop: Arc::clone(self), request: request.clone(), job };
        execution.run(stopping).await;
        Ok(())
    }

    /// Commits that an execution has started. None when somebody else did, or when its request makes no sense, with which it ends.
    async fn take(&self, request: &RecordedEvent) -> Result<Option<Job>, HandleFailure> {
        let unless = [&[STARTED], &TERMINAL[..]].concat();
        let id = request.commit.aggregate.id.to_string();
        let job = match self.job(request) {
            Ok(job) => job,
            Err(reason) => {
                let event = verdict::of_system_error(&id, reason).map_err(HandleFailure::new)?;
                step(&*self.log, request, event, "terminal", &unless).await?;
                return Ok(None);
            }
        };
        let node_name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned();
        let started = Started { execution_id: id, pod_name: self.service.clone(), node_name };
        let event = events::event(STARTED, &started).map_err(HandleFailure::new)?;
        match step(&*self.log, request, event, "started", &unless).await? {
            Step::Taken => Ok(Some(job)),
            Step::TakenByOther => Ok(None),
        }
    }

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
        let id = &request.commit.aggregate.id;
        let left = |reason: &str| self.lines.print(format!("! the end of {id} is left to the next start: {reason}"));
        let event = match event {
            Ok(event) => event,
            Err(defect) => return left(&defect).await,
        };
        let mut failures = 0;
        loop {
            match step(&*self.log, request, event.clone(), "terminal", &TERMINAL).await {
                Ok(_) => return,
                Err(error) if error.is_closed() => return left(&error.to_string()).await,
                Err(error) => {
                    self.lines.print(format!("! the end of {id} is not committed yet, trying again: {error}")).await;
                }
            }
            failures += 1;
            tokio::time::sleep(Duration::from_millis(RETRY.delay_ms(failures, 0))).await;
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

/// Ends what an earlier run of the service started and left unfinished.
///
/// The worker's position does not tell which these are: a request counts as handled, too, when another service took it, or when its end
/// could not be committed.
///
/// # Errors
/// The log could not be read.
pub(crate) async fn recover(workshop: &Workshop) -> Result<(), ReadError> {
    for request in left_started(&*workshop.log).await? {
        let id = request.commit.aggregate.id.to_string();
        kill_stragglers(EXECUTION_VARIABLE, &id);
        remove_folder(&workshop.folder_of(&request));
        workshop.end(&request, verdict::of_system_error(&id, verdict::INTERRUPTED)).await;
    }
    Ok(())
}

/// Folds the log into the requests of executions that were started and have no terminal event, in their order.
async fn left_started(log: &dyn EventLog) -> Result<Vec<RecordedEvent>, ReadError> {
    let types = [&[REQUESTED, STARTED], &TERMINAL[..]].concat();
    let filter = Filter {
        types: types.into_iter().map(ByteString::from_static).collect(),
        aggregate: Some(AggregateFilter { name: ByteString::from_static(events::AGGREGATE), id: None }),
        ..Filter::default()
    };
    let mut query = LogQuery { from: Some(0), limit: limits::PAGE_MAX, filter, ..LogQuery::default() };
    let mut open = HashMap::new();
    loop {
        let page = log.read(query.clone()).await?;
        if page.events.is_empty() {
            break;
        }
        for event in page.events {
            let id = event.commit.aggregate.id.clone();
            match &*event.event_type {
                REQUESTED => {
                    open.entry(id).or_insert((event, false));
                }
                STARTED => {
                    open.entry(id).and_modify(|(_, started)| *started = true);
                }
                _ => {
                    open.remove(&id);
                }
            }
        }
        query.from = Some(page.next);
    }
    let mut left: Vec<_> = open.into_values().filter_map(|(request, started)| started.then_some(request)).collect();
    left.sort_by_key(|request| request.sequence_number);
    Ok(left)
}

#[cfg(all(test, target_os = "linux"))]
mod tests;
