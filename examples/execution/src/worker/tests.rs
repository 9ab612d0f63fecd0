use std::fmt::Write as _;

use annals::{DEFAULT_SCOPE, DEFAULT_TENANT, Follower, Reached, Store};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::*;
use crate::events::COMPLETED;

/// Nothing waits for it to pass.
const DEADLINE: Duration = Duration::from_secs(60);

/// A worker whose only program notes that it runs, and ends when it is let go.
struct Bench {
    /// Dropped, it closes.
    _store: Arc<dyn Store>,
    log: Arc<dyn EventLog>,
    worker: Arc<Worker>,
    request: RecordedEvent,
    folder: TempDir,
}

impl Bench {
    async fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let store = annals::open("memory:").await.expect("opens");
        let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("always there");
        let workshop = Workshop {
            log: Arc::clone(&log),
            interpreters: Interpreters::find().await,
            watchdog: Watchdog::start("worker-of-a-test").expect("starts"),
            folder: folder.path().join("work"),
            service: "worker-of-a-test".to_owned(),
            output_bytes: 1_024,
            lines: Lines::to(Box::new(std::io::sink())).expect("starts"),
        };
        let mut script = String::new();
        let at = folder.path().display();
        writeln!(script, "echo ran >> {at}/runs; until [ -e {at}/go ]; do sleep 0.01; done").expect("fits");
        let data = serde_json::json!({
            "execution_id": "e-1", "script": script, "language": "sh", "timeout_seconds": 60, "memory_limit": "128Mi"
        });
        let event = events::event(REQUESTED, &data).expect("an object");
        let commit = events::first_commit("e-1", event, "submitted").wait_until(Reached::Logged);
        log.commit(commit).await.expect("is taken");
        let request = first_of(&log, REQUESTED).await;
        Self { _store: store, log, worker: Worker::new(Arc::new(workshop)), request, folder }
    }

    /// An attempt of the engine to have the request handled.
    fn attempt(&self) -> JoinHandle<Outcome> {
        let (worker, request) = (Arc::clone(&self.worker), self.request.clone());
        tokio::spawn(async move { worker.handle(&[request], &mut Effects::default()).await })
    }

    fn let_go(&self) {
        std::fs::write(self.folder.path().join("go"), "").expect("can be written");
    }

    fn runs(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("runs")).expect("it ran")
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

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_that_is_dropped_leaves_its_program_running_and_the_next_attempt_waits_for_it() {
    let bench = Bench::new().await;
    let dropped = bench.attempt();
    first_of(&bench.log, STARTED).await;
    dropped.abort();
    assert!(dropped.await.is_err_and(|error| error.is_cancelled()));
    let next = bench.attempt();
    bench.let_go();
    settled(next).await;
    first_of(&bench.log, COMPLETED).await;
    assert_eq!((bench.runs().as_str(), bench.log.head().await), ("ran\n", Ok(3)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_handed_over_again_after_its_end_runs_nothing() {
    let bench = Bench::new().await;
    bench.let_go();
    settled(bench.attempt()).await;
    settled(bench.attempt()).await;
    assert_eq!((bench.runs().as_str(), bench.log.head().await), ("ran\n", Ok(3)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_stopping_settles_no_request_that_it_did_not_begin() {
    let bench = Bench::new().await;
    bench.worker.stop();
    let mut effects = Effects::default();
    let mut attempt = bench.worker.handle(std::slice::from_ref(&bench.request), &mut effects);
    let polled = std::future::poll_fn(|context| std::task::Poll::Ready(attempt.as_mut().poll(context).is_pending()));
    assert!(polled.await, "it is not settled");
    bench.worker.stopped().await;
    assert_eq!(bench.log.head().await, Ok(1), "nothing was begun");
}
