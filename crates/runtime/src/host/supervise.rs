//! Supervision: a task that fails or panics is restarted with increasing pauses, until it ends by itself or the host is drained.

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
/// A task that ran at least this long before it failed is restarted after the first pause again.
const SOUND_AFTER: Duration = Duration::from_secs(60);

/// The status of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskStatus {
    /// Its name, for example `handler/default/billing`.
    pub name: String,
    /// What it is doing.
    pub state: TaskState,
    /// The number of restarts.
    pub restarts: u64,
    /// The error of the last failure.
    pub last_error: Option<String>,
    /// The time of the last failure.
    pub last_failed: Option<Timestamp>,
}

/// What a task is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskState {
    /// It is running.
    Running,
    /// It failed and will be restarted after a pause.
    Restarting,
    /// It ended normally.
    Ended,
}

/// How one run of a task ended.
pub(crate) enum Ended {
    /// There is nothing more to do.
    Done,
    /// The task failed for this reason and is to be restarted.
    Failed(String),
}

/// A task that can be supervised.
pub(crate) trait Supervised: Send + 'static {
    /// Runs until there is nothing more to do, or until a failure. Called again after a failure or a panic.
    fn run(&mut self) -> impl Future<Output = Ended> + Send;
}

/// Runs a task under supervision and keeps its status in the host's registry.
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
            tracing::warn!(task = status.name, error, "a task failed; restarting it");
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

/// Marks a task as ended when dropped, so that waiters are woken however the task ends.
struct OnEnd(watch::Sender<TaskStatus>);

impl Drop for OnEnd {
    fn drop(&mut self) {
        self.0.send_modify(|status| status.state = TaskState::Ended);
    }
}

/// Returns the message of a panic.
pub(crate) fn message_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use annals_conformance::ManualClock;
    use annals_core::Clock;
    use annals_embedded::EmbeddedStore;
    use annals_embedded::disk::MemoryDisk;
    use tokio::sync::mpsc;

    use super::super::{Host, HostOptions};
    use super::*;

    /// No wait of a test takes longer; reaching it is a failure.
    const DEADLINE: Duration = Duration::from_secs(20);
    const NAME: &str = "handler/default/billing";

    /// What a run of a task does.
    enum Step {
        Fail(&'static str),
        Panic(&'static str),
        End,
    }

    /// A task whose runs do what a test sends.
    struct Driven(mpsc::UnboundedReceiver<Step>);

    impl Supervised for Driven {
        async fn run(&mut self) -> Ended {
            match self.0.recv().await {
                Some(Step::Fail(error)) => Ended::Failed(error.to_owned()),
                Some(Step::Panic(message)) => panic!("{message}"),
                Some(Step::End) | None => Ended::Done,
            }
        }
    }

    /// A host on an empty store, its clock, and the way to its only task. Tests run on one thread: once a test sees that a task is to be
    /// restarted, the task waits for the clock.
    struct Supervision {
        host: Host,
        clock: Arc<ManualClock>,
        steps: mpsc::UnboundedSender<Step>,
        status: watch::Receiver<TaskStatus>,
    }

    impl Supervision {
        fn start() -> Self {
            let clock = Arc::new(ManualClock::default());
            let store = EmbeddedStore::open(Arc::new(MemoryDisk::default()), annals_embedded::Options::default());
            let options = HostOptions { clock: clock.clone(), ..HostOptions::default() };
            let host = Host::start(Arc::new(store.expect("a new store")), options);
            let (steps, taken) = mpsc::unbounded_channel();
            supervise(&host.0.shared, NAME.to_owned(), Driven(taken));
            let status = locked(&host.0.shared.tasks)[NAME].clone();
            Self { host, clock, steps, status }
        }

        fn step(&self, step: Step) {
            self.steps.send(step).unwrap_or_else(|_| panic!("the task has ended"));
        }

        /// Waits until the task is in this state after so many failures.
        async fn is(&mut self, state: TaskState, restarts: u64) -> TaskStatus {
            let is_so = |status: &TaskStatus| status.state == state && status.restarts == restarts;
            let found = tokio::time::timeout(DEADLINE, self.status.wait_for(is_so)).await;
            found.expect("it is so in time").expect("the task does not end before").clone()
        }

        /// Checks that the task is restarted after exactly this pause, and not before.
        async fn is_restarted_after(&mut self, pause: Duration, restarts: u64) {
            let millis = i64::try_from(pause.as_millis()).expect("a short pause");
            self.clock.advance_millis(millis - 1);
            settle().await;
            assert_eq!(self.status.borrow().state, TaskState::Restarting, "before {pause:?} are over");
            self.clock.advance_millis(1);
            self.is(TaskState::Running, restarts).await;
        }
    }

    /// Lets every task that is awake run.
    async fn settle() {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_task_that_fails_is_restarted_after_pauses_that_double_up_to_the_longest() {
        let mut supervised = Supervision::start();
        let first = supervised.is(TaskState::Running, 0).await;
        assert_eq!((first.name.as_str(), first.last_error, first.last_failed), (NAME, None, None));
        let pauses = [100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000, 30_000];
        for (restarts, pause) in (1..).zip(pauses.map(Duration::from_millis)) {
            supervised.step(Step::Fail("no luck"));
            let failed = supervised.is(TaskState::Restarting, restarts).await;
            assert_eq!(failed.last_error.as_deref(), Some("no luck"));
            assert_eq!(failed.last_failed, Some(supervised.clock.now()));
            supervised.is_restarted_after(pause, restarts).await;
        }
        // What it failed with last stays known while it runs.
        assert_eq!(supervised.status.borrow().last_error.as_deref(), Some("no luck"));
    }

    #[tokio::test]
    async fn a_task_that_ran_long_before_it_failed_begins_with_the_first_pause_again() {
        let mut supervised = Supervision::start();
        for (restarts, pause) in [(1, PAUSES.0), (2, PAUSES.0 * 2)] {
            supervised.step(Step::Fail("no luck"));
            supervised.is(TaskState::Restarting, restarts).await;
            supervised.is_restarted_after(pause, restarts).await;
        }
        supervised.clock.advance_millis(60_001);
        supervised.step(Step::Fail("no luck"));
        supervised.is(TaskState::Restarting, 3).await;
        supervised.is_restarted_after(PAUSES.0, 3).await;
    }

    #[tokio::test]
    async fn a_panic_is_a_failure_with_its_message() {
        let mut supervised = Supervision::start();
        supervised.step(Step::Panic("index 7 of 3"));
        let failed = supervised.is(TaskState::Restarting, 1).await;
        assert_eq!(failed.last_error.as_deref(), Some("panicked: index 7 of 3"));
        supervised.is_restarted_after(PAUSES.0, 1).await;
        assert_eq!(supervised.host.tasks().len(), 1);
        supervised.step(Step::End);
        supervised.is(TaskState::Ended, 1).await;
        assert!(supervised.host.tasks().is_empty(), "what has ended is not listed");
    }

    #[tokio::test]
    async fn a_task_that_waits_for_its_restart_ends_at_once_when_the_host_is_drained() {
        let mut supervised = Supervision::start();
        supervised.step(Step::Fail("no luck"));
        supervised.is(TaskState::Restarting, 1).await;
        tokio::time::timeout(DEADLINE, supervised.host.drain()).await.expect("without waiting for the clock");
        assert_eq!(supervised.status.borrow().state, TaskState::Ended);
    }

    #[tokio::test]
    async fn draining_waits_for_a_task_and_no_longer_than_its_limit() {
        let supervised = Supervision::start();
        let host = supervised.host.clone();
        let draining = tokio::spawn(async move { host.drain().await });
        let mut stop = supervised.host.0.shared.stop.subscribe();
        tokio::time::timeout(DEADLINE, is_set(&mut stop)).await.expect("draining begins");
        let limit = i64::try_from(HostOptions::default().drain_max.as_millis()).expect("a short time");
        supervised.clock.advance_millis(limit - 1);
        settle().await;
        assert!(!draining.is_finished(), "the task still runs");
        supervised.clock.advance_millis(1);
        tokio::time::timeout(DEADLINE, draining).await.expect("the limit is over").expect("no panic");
        assert_eq!(supervised.status.borrow().state, TaskState::Running);
    }
}
