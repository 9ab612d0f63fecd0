use std::fmt::Write as _;

use annals::{ByteString, DEFAULT_SCOPE, DEFAULT_TENANT, Filter, Follower, LogQuery, Reached, Store, SystemClock};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::*;
use crate::events::{self, COMPLETED, CreatePod, POD_DELETED, REQUESTED, STARTED};

/// Nothing waits for it to pass.
const DEADLINE: Duration = Duration::from_secs(60);

/// A worker whose only program notes that it runs, and ends when it is let go.
struct Bench {
    /// Dropped, it closes.
    _store: Arc<dyn Store>,
    log: Arc<dyn EventLog>,
    worker: Arc<Worker>,
    command: RecordedEvent,
    folder: TempDir,
}

impl Bench {
    async fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let store = annals::open("memory:").await.expect("opens");
        let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("always there");
        let records = store.records(DEFAULT_TENANT).expect("always there");
        crate::records::declare(&records).await.expect("declared");
        let workshop = Workshop {
            log: Arc::clone(&log),
            records,
            clock: Arc::new(SystemClock),
            interpreters: Interpreters::find().await,
            watchdog: Watchdog::start("worker-of-a-test").expect("starts"),
            folder: folder.path().join("work"),
            name: "worker-of-a-test".to_owned(),
            output_bytes: 1_024,
            is_shared: false,
            lease: Duration::from_secs(30),
            lines: Lines::to(Box::new(std::io::sink())).expect("starts"),
        };
        let mut script = String::new();
        let at = folder.path().display();
        writeln!(script, "echo ran >> {at}/runs; until [ -e {at}/go ]; do sleep 0.01; done").expect("fits");
        let data = serde_json::json!({
            "execution_id": "e-1", "script": script, "language": "sh", "timeout_seconds": 60, "memory_limit": "128Mi"
        });
        let event = events::event(REQUESTED, &data).expect("an object");
        let commit = events::first_commit("e-1", "eva", event, "submitted").wait_until(Reached::Logged);
        log.commit(commit).await.expect("is taken");
        let request = first_of(&log, REQUESTED).await;
        let requested = request.data.decode().expect("a request");
        let create = CreatePod { saga_id: "s-1".to_owned(), requested };
        let event = events::event(CREATE_POD, &create).expect("an object");
        log.commit(events::next_commit(&request, vec![event], "create")).await.expect("is taken");
        let command = first_of(&log, CREATE_POD).await;
        Self { _store: store, log, worker: Worker::new(Arc::new(workshop)), command, folder }
    }

    /// An attempt of the engine to have the command handled.
    fn attempt(&self) -> JoinHandle<Outcome> {
        let (worker, command) = (Arc::clone(&self.worker), self.command.clone());
        tokio::spawn(async move { worker.create(command).await })
    }

    fn let_go(&self) {
        std::fs::write(self.folder.path().join("go"), "").expect("can be written");
    }

    fn runs(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("runs")).expect("it ran")
    }

    /// The types of all events behind the command.
    async fn history(&self) -> Vec<String> {
        let page = self.log.read(LogQuery { limit: 1_000, ..LogQuery::default() }).await.expect("can be read");
        page.events.iter().skip(2).map(|event| event.event_type.to_string()).collect()
    }
}

async fn first_of(log: &Arc<dyn EventLog>, event_type: &'static str) -> RecordedEvent {
    let filter = Filter { types: vec![ByteString::from_static(event_type)], ..Filter::default() };
    let mut follower = Follower::new(Arc::clone(log), 0, filter);
    let found = timeout(DEADLINE, follower.next_page()).await.expect("comes in time").expect("can be read");
    found.into_iter().next().expect("at least one")
}

async fn settled(attempt: JoinHandle<Outcome>) {
    let outcome = timeout(DEADLINE, attempt).await.expect("ends in time").expect("does not panic");
    assert_eq!(outcome, Ok(()));
}

const WHOLE: [&str; 8] =
    ["pod_created", "pod_scheduled", "pod_running", STARTED, "pod_succeeded", "pod_terminated", COMPLETED, POD_DELETED];

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_that_is_dropped_leaves_its_program_running_and_the_next_attempt_finds_it() {
    let bench = Bench::new().await;
    let dropped = bench.attempt();
    first_of(&bench.log, STARTED).await;
    dropped.abort();
    let _ = dropped.await;
    settled(bench.attempt()).await;
    bench.let_go();
    first_of(&bench.log, POD_DELETED).await;
    assert_eq!((bench.runs().as_str(), bench.history().await), ("ran\n", WHOLE.map(str::to_owned).to_vec()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_is_delivered_again_after_its_end_runs_nothing() {
    let bench = Bench::new().await;
    bench.let_go();
    settled(bench.attempt()).await;
    first_of(&bench.log, POD_DELETED).await;
    settled(bench.attempt()).await;
    assert_eq!((bench.runs().as_str(), bench.history().await.len()), ("ran\n", WHOLE.len()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_is_deleted_is_killed_and_says_nothing_about_its_execution() {
    let bench = Bench::new().await;
    settled(bench.attempt()).await;
    first_of(&bench.log, STARTED).await;
    let deleted = bench.worker.delete(bench.command.clone(), "no longer wanted".to_owned());
    assert_eq!(timeout(DEADLINE, deleted).await.expect("ends in time"), Ok(()));
    let history = bench.history().await;
    assert_eq!(history[4..], ["pod_terminated", POD_DELETED], "{history:?}");
    // Delivered again, the command starts nothing.
    settled(bench.attempt()).await;
    assert_eq!(bench.history().await, history);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_stopping_settles_no_command_that_it_did_not_begin() {
    let bench = Bench::new().await;
    bench.worker.stop();
    let mut attempt = Box::pin(bench.worker.create(bench.command.clone()));
    let polled = std::future::poll_fn(|context| std::task::Poll::Ready(attempt.as_mut().poll(context).is_pending()));
    assert!(polled.await, "it is not settled");
    bench.worker.stopped().await;
    assert_eq!(bench.log.head().await, Ok(2), "nothing was begun");
}
