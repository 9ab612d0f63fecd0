//! The life of one pod.

use std::io::PipeWriter;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use annals::names::uuid_of;
use annals::runtime::HandleFailure;
use annals::{Condition, Expected, NewEvent, RecordedEvent};
use serde_json::json;
use tokio::sync::{oneshot, watch};

use super::{Outcome, RETRY, Workshop};
use crate::events::{
    self, CREATE_POD, CreatePod, DELETE_POD, POD_CREATED, POD_DELETED, POD_FAILED, POD_RUNNING, POD_SCHEDULED,
    POD_SUCCEEDED, POD_TERMINATED, STARTED, TERMINAL,
};
use crate::execution::Execution;
use crate::language::Language;
use crate::process::{Bounds, EXECUTION_VARIABLE, Ending, Finished, Program, SERVICE_VARIABLE, run};
use crate::records::{PodRecord, is_there, typed};
use crate::scheduler::stopped;
use crate::step::{Step, step};
use crate::submission::{Allowed, check};
use crate::verdict;

/// The events that show that a program of this execution has begun, or must not begin any more.
const HAS_BEGUN: [&str; 7] =
    [POD_RUNNING, POD_TERMINATED, POD_DELETED, TERMINAL[0], TERMINAL[1], TERMINAL[2], TERMINAL[3]];

pub(super) struct Pod {
    pub(super) workshop: Arc<Workshop>,
    /// A `create_pod_command`.
    pub(super) command: RecordedEvent,
    pub(super) claimed: bool,
    pub(super) delete: watch::Receiver<Option<String>>,
    pub(super) stopping: watch::Receiver<bool>,
}

/// What to run, after the command has been checked.
struct Job {
    script: String,
    allowed: Allowed,
    interpreter: PathBuf,
}

impl Pod {
    fn id(&self) -> &str {
        &self.command.commit.aggregate.id
    }

    /// Returns the name of the pod, which is the same for every attempt to run it.
    fn name(&self) -> String {
        format!("executor-{}", &place(&self.command)[..13])
    }

    /// Runs the program to its end. Sets `begun` once the program runs, or will not run.
    pub(super) async fn run(mut self, begun: &watch::Sender<Option<Outcome>>) {
        let taken = self.take().await;
        let job = match taken {
            Ok(Some(job)) => job,
            Ok(None) => {
                begun.send_replace(Some(Ok(())));
                return;
            }
            Err(failure) => {
                let line = format!("! the pod of {} could not be started; retrying: {}", self.id(), failure.reason);
                begun.send_replace(Some(Err(failure)));
                return self.workshop.lines.print(line).await;
            }
        };
        let finished = match self.spawn(&job) {
            Ok((cancel, finished)) => {
                begun.send_replace(Some(Ok(())));
                self.outcome(cancel, finished).await
            }
            Err(error) => {
                begun.send_replace(Some(Ok(())));
                Err(error.to_string())
            }
        };
        self.workshop.remove_folder(&self.command);
        let delete = self.delete.borrow().clone();
        match (delete, finished) {
            // The caller that requested the end says how the execution ended.
            (Some(reason), Ok(finished)) if finished.ending == Ending::Cancelled => {
                self.workshop.gone(&self.command, &self.name(), &reason).await
            }
            (_, finished) => self.workshop.ended(&self.command, &self.name(), job.allowed, finished).await,
        }
    }

    /// Claims the pod and commits that its program is about to run. Returns `None` if it must not run here.
    async fn take(&self) -> Result<Option<Job>, HandleFailure> {
        if !self.claimed && !self.claim().await? {
            return Ok(None);
        }
        let created = [
            event(POD_CREATED, &json!({ "execution_id": self.id(), "pod_name": self.name(), "namespace": "local" }))?,
            event(
                POD_SCHEDULED,
                &json!({ "execution_id": self.id(), "pod_name": self.name(), "node_name": node_name() }),
            )?,
        ];
        let unless = [&[POD_CREATED][..], &HAS_BEGUN].concat();
        // A pod that another worker created and did not run is run by this one.
        step(&*self.workshop.log, &self.command, &created, "pod-created", &unless).await?;
        let job = match self.job() {
            Ok(job) => job,
            Err(reason) => {
                let failed = verdict::of_system_error(self.id(), &*reason).map_err(HandleFailure::never);
                self.workshop.end(&self.command, &self.name(), failed?, None, &reason).await;
                return Ok(None);
            }
        };
        let running = [
            event(
                POD_RUNNING,
                &json!({
                    "execution_id": self.id(), "pod_name": self.name(),
                    "container_statuses": [{ "name": self.workshop.name, "ready": true, "restart_count": 0, "state": "running" }],
                }),
            )?,
            event(
                STARTED,
                &json!({
                    "execution_id": self.id(), "pod_name": self.name(), "node_name": node_name(), "container_id": self.workshop.name,
                }),
            )?,
        ];
        match step(&*self.workshop.log, &self.command, &running, "pod-running", &HAS_BEGUN).await? {
            Step::Taken => Ok(Some(job)),
            Step::TakenByOther => {
                self.workshop.forget(self.id()).await;
                Ok(None)
            }
        }
    }

    /// Records that this worker runs the pod, unless another one does. An execution that is over needs no pod.
    async fn claim(&self) -> Result<bool, HandleFailure> {
        let execution = Execution::read(&*self.workshop.log, self.id()).await?;
        // On a broker without a common order of topics, a pod may be deleted before it is created.
        if execution.is_none_or(|execution| execution.status().is_over() || execution.has(DELETE_POD)) {
            return Ok(false);
        }
        let pods = typed::<PodRecord>(&self.workshop.records);
        let record = PodRecord {
            execution_id: self.id().to_owned(),
            pod_name: self.name(),
            worker: self.workshop.name.clone(),
            delete: None,
        };
        let failed = |error: annals::RecordError| HandleFailure::new(error.to_string());
        match pods.insert(&record).await {
            Ok(_) => Ok(true),
            Err(error) if is_there(&error) => {
                let found = pods.get(self.id()).await.map_err(failed)?;
                // Without a record, its worker has just ended it.
                Ok(found.is_some_and(|found| found.value.worker == self.workshop.name))
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Checks the request of a command. The error is a sentence.
    fn job(&self) -> Result<Job, String> {
        let command: CreatePod =
            self.command.data.decode().map_err(|error| format!("the {CREATE_POD} cannot be read: {error}"))?;
        let allowed = check(&command.requested).map_err(|(_, message)| message)?;
        let interpreter = self.workshop.interpreters.of(allowed.language)?.path.clone();
        Ok(Job { script: command.requested.script, allowed, interpreter })
    }

    /// Starts the thread that runs the program; if the thread ended, so would the program. Dropping the returned pipe also ends it.
    fn spawn(&self, job: &Job) -> std::io::Result<(PipeWriter, oneshot::Receiver<Result<Finished, String>>)> {
        let folder = self.workshop.folder_of(&self.command);
        remove_folder(&folder);
        std::fs::create_dir_all(&folder)?;
        let folder = folder.canonicalize()?;
        let language = job.allowed.language;
        std::fs::write(folder.join(language.file_name()), &job.script)?;
        let program = Program {
            interpreter: job.interpreter.clone(),
            arguments: language.command().split_off(1),
            environment: self.environment(language, &folder),
            folder,
            id: self.id().to_owned(),
        };
        let bounds = Bounds {
            wall: Duration::from_secs(job.allowed.timeout_seconds),
            memory_bytes: job.allowed.memory_mb * 1024 * 1024,
            address_space: language.limits_address_space(),
            output_bytes: self.workshop.output_bytes,
        };
        let (cancelled, cancel) = std::io::pipe()?;
        let (answer, finished) = oneshot::channel();
        let workshop = Arc::clone(&self.workshop);
        std::thread::Builder::new().name("execution".to_owned()).spawn(move || {
            let finished = run(&program, bounds, &workshop.watchdog, &cancelled);
            // Nobody waits for it if the worker was dropped.
            let _ = answer.send(finished.map_err(|error| error.to_string()));
        })?;
        Ok((cancel, finished))
    }

    fn environment(&self, language: Language, folder: &Path) -> Vec<(&'static str, std::ffi::OsString)> {
        let mut environment = vec![
            ("PATH", "/usr/local/bin:/usr/bin:/bin".into()),
            ("LANG", "C.UTF-8".into()),
            ("HOME", folder.into()),
            ("TMPDIR", folder.into()),
            (EXECUTION_VARIABLE, self.id().into()),
            (SERVICE_VARIABLE, self.workshop.name.as_str().into()),
        ];
        if language == Language::Go {
            // The compiled standard library is kept between programs. Nothing is downloaded.
            let cache = self.workshop.folder.canonicalize().unwrap_or_else(|_| self.workshop.folder.clone());
            environment.push(("GOCACHE", cache.join("go-cache").into()));
            environment.extend([
                ("GOTOOLCHAIN", "local".into()),
                ("GOPROXY", "off".into()),
                ("GOFLAGS", "-p=2".into()),
            ]);
        }
        environment
    }

    /// Returns the result of the thread. Ends its program when the worker stops or the pod must be deleted.
    async fn outcome(
        &mut self,
        cancel: PipeWriter,
        mut finished: oneshot::Receiver<Result<Finished, String>>,
    ) -> Result<Finished, String> {
        let answer = tokio::select! {
            answer = &mut finished => Some(answer),
            () = stopped(&mut self.stopping) => None,
            () = async { let _ = self.delete.wait_for(Option::is_some).await; } => None,
        };
        drop(cancel);
        let answer = match answer {
            Some(answer) => answer,
            None => finished.await,
        };
        answer.unwrap_or_else(|_| Err("its thread panicked".to_owned()))
    }
}

impl Workshop {
    pub(super) fn folder_of(&self, command: &RecordedEvent) -> PathBuf {
        self.folder.join(format!("execution-{}", place(command)))
    }

    pub(super) fn remove_folder(&self, command: &RecordedEvent) {
        remove_folder(&self.folder_of(command));
    }

    /// Commits how a program ended.
    async fn ended(&self, command: &RecordedEvent, pod: &str, allowed: Allowed, finished: Result<Finished, String>) {
        let id = &*command.commit.aggregate.id;
        let exit_code =
            finished.as_ref().ok().and_then(|it| if let Ending::Exited(code) = it.ending { Some(code) } else { None });
        let (verdict, reason) = match finished {
            Ok(finished) => {
                let reason = reason_of(finished.ending);
                (verdict::of_finished(id, allowed, finished), reason)
            }
            Err(error) => {
                let reason = format!("the program could not be run: {error}");
                (verdict::of_system_error(id, &*reason), "Error")
            }
        };
        match verdict {
            Ok(verdict) => self.end(command, pod, verdict, exit_code, reason).await,
            Err(defect) => self.left(id, &defect).await,
        }
    }

    /// Commits that a pod has ended, with the verdict on its execution. It retries until the commit succeeds. An execution that is
    /// already over keeps its end.
    pub(super) async fn end(
        &self,
        command: &RecordedEvent,
        pod: &str,
        verdict: NewEvent,
        exit_code: Option<i32>,
        reason: &str,
    ) {
        let id = &*command.commit.aggregate.id;
        let succeeded = exit_code == Some(0);
        let exit_code = exit_code.unwrap_or(1);
        let ended = if succeeded {
            event(POD_SUCCEEDED, &json!({ "execution_id": id, "pod_name": pod, "exit_code": exit_code }))
        } else {
            event(POD_FAILED, &json!({ "execution_id": id, "pod_name": pod, "exit_code": exit_code, "reason": reason }))
        };
        let terminated = event(
            POD_TERMINATED,
            &json!({ "execution_id": id, "pod_name": pod, "exit_code": exit_code, "reason": reason }),
        );
        let events = match (ended, terminated) {
            (Ok(ended), Ok(terminated)) => [ended, terminated, verdict],
            (Err(failure), _) | (_, Err(failure)) => return self.left(id, &failure.reason).await,
        };
        match self.persist(command, &events, "terminal", &TERMINAL).await {
            Some(Step::Taken) => self.deleted(command, pod, reason).await,
            Some(Step::TakenByOther) => self.gone(command, pod, reason).await,
            None => {}
        }
    }

    /// Commits that nothing is left of a pod whose execution ended for another reason.
    pub(super) async fn gone(&self, command: &RecordedEvent, pod: &str, reason: &str) {
        let id = &*command.commit.aggregate.id;
        let data = json!({ "execution_id": id, "pod_name": pod, "exit_code": 137, "reason": reason });
        match event(POD_TERMINATED, &data) {
            Ok(terminated) => drop(self.persist(command, &[terminated], "pod-terminated", &[POD_TERMINATED]).await),
            Err(failure) => return self.left(id, &failure.reason).await,
        }
        self.deleted(command, pod, reason).await;
    }

    async fn deleted(&self, command: &RecordedEvent, pod: &str, reason: &str) {
        let id = &*command.commit.aggregate.id;
        match event(POD_DELETED, &json!({ "execution_id": id, "pod_name": pod, "reason": reason })) {
            Ok(deleted) => {
                if self.persist(command, &[deleted], "pod-deleted", &[POD_DELETED]).await.is_some() {
                    self.forget(id).await;
                }
            }
            Err(failure) => self.left(id, &failure.reason).await,
        }
    }

    /// Commits events, and retries until that succeeds. Returns `None` when the store is closed, which leaves them to the next start.
    async fn persist(
        &self,
        command: &RecordedEvent,
        events: &[NewEvent],
        request: &str,
        unless: &[&str],
    ) -> Option<Step> {
        let id = &command.commit.aggregate.id;
        let mut failures = 0;
        loop {
            match step(&*self.log, command, events, request, unless).await {
                Ok(step) => return Some(step),
                Err(error) if error.is_closed() => {
                    self.left(id, &error.to_string()).await;
                    return None;
                }
                Err(error) => {
                    self.lines.print(format!("! the end of {id} could not be committed; retrying: {error}")).await;
                }
            }
            failures += 1;
            self.clock.sleep(Duration::from_millis(RETRY.delay_ms(failures, 0))).await;
        }
    }

    /// Deletes the record of a pod that has ended. If that fails, the next keeper deletes it.
    pub(super) async fn forget(&self, id: &str) {
        let own = Expected::AbsentOr(Condition::eq("worker", &*self.name));
        let _ = typed::<PodRecord>(&self.records).delete_if(id, own).await;
    }

    async fn left(&self, id: &str, reason: &str) {
        self.lines.print(format!("! the end of {id} will be committed after the next start: {reason}")).await;
    }
}

/// Returns the name of the folder of the pod. Ids of aggregates may hold anything, so they are not used.
fn place(command: &RecordedEvent) -> String {
    uuid_of("pod", &command.commit.aggregate.id).to_string()
}

fn event(event_type: &'static str, data: &serde_json::Value) -> Result<NewEvent, HandleFailure> {
    events::event(event_type, data).map_err(HandleFailure::never)
}

/// Returns the reason in the terms of Kubernetes.
fn reason_of(ending: Ending) -> &'static str {
    match ending {
        Ending::Exited(0) => "Completed",
        Ending::Exited(_) | Ending::Signalled(_) | Ending::FileLimit | Ending::CpuLimit => "Error",
        Ending::MemoryLimit => "OOMKilled",
        Ending::TimedOut => "DeadlineExceeded",
        Ending::Cancelled => "Interrupted",
    }
}

fn node_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

fn remove_folder(folder: &Path) {
    // A folder that cannot be removed does no harm: the next execution has another one.
    let _ = std::fs::remove_dir_all(folder);
}
