//! Processes that write: this test binary started again with a plan in its environment, so that they can be killed.
//!
//! ```text
//! parent ── plan (environment) ─▶ child: callers, each with one request after another, over a store of its own
//!        ◀─ "sent {…}", "told {…}" (standard output) ──
//! ```

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;

use annals_core::bson::rawdoc;
use annals_core::{CommitError, CommitOutcome, EventLog, ExpectedVersion, NewCommit, RecordChange, Reserve, Store};
use annals_mongodb::{MongoStore, Options, Step};
use serde_json::{Value, json};

use crate::receiving_faults::{options_of, receive_for_ever};
use crate::server::{Databases, log_of, order};

/// What a child is to do.
const PLAN: &str = "ANNALS_TEST_WRITER_PLAN";
/// Aggregates that all writers share, so that they are in each other's way.
const AGGREGATES: u64 = 12;

/// The signal that this process sends itself when the sequencer comes to a step for the n-th time.
static SIGNAL: OnceLock<(Step, String, AtomicU32)> = OnceLock::new();

fn signal_at(step: Step) {
    let Some((at, signal, left)) = SIGNAL.get() else { return };
    if *at == step && left.fetch_sub(1, Ordering::SeqCst) == 1 {
        let _ = Command::new("kill").args([&format!("-{signal}"), &std::process::id().to_string()]).status();
        // A kill is on its way; nothing more happens on this task.
        if signal == "KILL" {
            loop {
                std::thread::park();
            }
        }
    }
}

/// A writing process, started by the tests with a plan; run without one it makes up its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writing_process_writes() {
    match std::env::var(PLAN) {
        Ok(plan) => {
            end_with_parent();
            write(serde_json::from_str(&plan).expect("a plan")).await;
        }
        Err(_) => {
            let databases = Databases::new();
            write(json!({ "url": databases.url(), "name": "w", "callers": 2, "count": 5, "open": {} })).await;
            let log = databases.database().await.collection::<mongodb::bson::Document>("event-log");
            assert!(log.count_documents(mongodb::bson::doc! {}).await.expect("counted") > 0);
        }
    }
}

/// Ends this process when its parent has ended, however that ended: the pipe between them closes.
fn end_with_parent() {
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(1);
    });
}

async fn write(plan: Value) {
    let text = |key: &str| plan[key].as_str().unwrap_or_default().to_owned();
    if let Some(step) = Step::ALL.into_iter().find(|step| format!("{step:?}") == text("step")) {
        let times = plan["times"].as_u64().unwrap_or(1) as u32;
        let _ = SIGNAL.set((step, text("signal"), AtomicU32::new(times)));
    }
    let options = options_of(&plan, Options { at_step: signal_at, ..Options::default() });
    let store = loop {
        match MongoStore::open(&text("url"), options.clone()).await {
            Ok(store) => break store,
            // As a service does whose database is without a primary for a moment.
            Err(error) => say("refused", &json!({ "error": error.message })),
        }
    };
    say("opened", &json!({}));
    let log = log_of(&store);
    if let Some(partition) = plan["receive"].as_str() {
        let told = |events, duplicate| say("received", &json!({ "events": events, "duplicate": duplicate }));
        receive_for_ever(&store, partition, told).await;
    }
    if let Some(key) = plan["keyed"].as_str() {
        let keyed = order("keyed", 1).reserve(Reserve::new("user", key, serde_json::from_str("1").expect("a value")));
        let records = store.records("default").expect("declared");
        let record = RecordChange::insert("things", rawdoc! { "_id": 1 });
        let (commit, write) = tokio::join!(log.commit(keyed), records.write(vec![record]));
        let (commit, write) = (commit.map(|commit| commit.version), write.map(|numbers| numbers.len()));
        say("keyed", &json!({ "commit": format!("{commit:?}"), "record": format!("{write:?}") }));
    }
    let callers = (0..plan["callers"].as_u64().unwrap_or(1)).map(|caller| {
        let name = format!("{}.{caller}", text("name"));
        let open = plan["open"][&name].as_str().map(str::to_owned);
        tokio::spawn(call(log.clone(), name, open, plan["count"].as_u64().unwrap_or(u64::MAX)))
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.expect("the caller ends well");
    }
    if plan["idle"] == true {
        std::future::pending::<()>().await;
    }
    store.close().await;
}

fn say(what: &str, value: &Value) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{what} {value}");
    let _ = out.flush();
}

/// The commit of a request: what it holds follows from its id, so that it can be sent again by another process.
fn commit_of(request: &str) -> NewCommit {
    let number = request.bytes().fold(7_u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(u64::from(byte)));
    let mut commit = order(&format!("a{}", number % AGGREGATES), number % 1_000_000).request_id(request);
    commit.events.extend((0..number % 3).map(|n| order("", n).events.remove(0)));
    commit
}

/// One request after another, a third of them such that they are refused or repeats. A request without an answer is repeated until it
/// has one.
async fn call(log: Arc<dyn EventLog>, name: String, open: Option<String>, count: u64) {
    let mut random = fastrand::Rng::new();
    let mut last: Option<String> = None;
    if let Some(request) = open {
        ask(&*log, &name, &request, commit_of(&request)).await;
        last = Some(request);
    }
    for n in 0..count {
        match (random.u8(..10), &last) {
            (0, _) => {
                let request = format!("{name}-{:x}-stale", random.u64(..));
                ask(&*log, &name, &request, commit_of(&request).expect(ExpectedVersion::Exact(1_000_000))).await;
            }
            (1, Some(last)) => ask(&*log, &name, last, commit_of(last)).await,
            (2, Some(last)) => {
                let other = NewCommit { events: order("", u64::MAX >> 12).events, ..commit_of(last) };
                ask(&*log, &name, last, other).await;
            }
            _ => {
                let request = format!("{name}-{n}-{:x}", random.u64(..));
                ask(&*log, &name, &request, commit_of(&request)).await;
                last = Some(request);
            }
        }
    }
}

async fn ask(log: &dyn EventLog, name: &str, request: &str, commit: NewCommit) {
    loop {
        say("sent", &json!({ "caller": name, "request": request }));
        let outcome = log.commit(commit.clone()).await;
        let known = !matches!(&outcome, Err(CommitError::Store(_)));
        say("told", &told(name, request, outcome));
        if known {
            return;
        }
    }
}

fn told(name: &str, request: &str, outcome: Result<CommitOutcome, CommitError>) -> Value {
    match outcome {
        Ok(outcome) => json!({
            "caller": name, "request": request, "commit": outcome.commit_id.to_string(), "version": outcome.version,
            "first": outcome.first_sequence_number, "duplicate": outcome.duplicate,
        }),
        Err(error) => json!({
            "caller": name, "request": request, "code": error.code().as_str(), "store": matches!(error, CommitError::Store(_)),
            "error": error.to_string(),
        }),
    }
}

/// What all writers of a test have said, over all their lives.
#[derive(Clone, Default)]
pub struct Said {
    pub told: Vec<Value>,
    /// The request of each caller that has no answer yet.
    pub open: BTreeMap<String, String>,
    pub opened: u64,
    /// What became of the commit with a key, and of the record.
    pub keyed: Option<Value>,
    /// Batches that were received.
    pub received: Vec<Value>,
}

impl Said {
    fn hear(&mut self, line: &str) {
        let Some((what, value)) = line.split_once(' ') else { return };
        let Ok(value) = serde_json::from_str::<Value>(value) else { return };
        let caller = value["caller"].as_str().unwrap_or_default().to_owned();
        match what {
            "opened" => self.opened += 1,
            "keyed" => self.keyed = Some(value),
            "received" => self.received.push(value),
            "sent" => drop(self.open.insert(caller, value["request"].as_str().unwrap_or_default().to_owned())),
            "told" => {
                if value["store"] != true {
                    self.open.remove(&caller);
                }
                self.told.push(value);
            }
            _ => {}
        }
    }

    /// Successes, duplicates among them.
    pub fn acknowledged(&self) -> impl Iterator<Item = &Value> {
        self.told.iter().filter(|told| told["commit"].is_string())
    }
}

pub type Ear = Arc<Mutex<Said>>;

pub fn lock(ear: &Ear) -> std::sync::MutexGuard<'_, Said> {
    ear.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What was said so far.
pub fn heard(ear: &Ear) -> Said {
    lock(ear).clone()
}

/// A writing process. It is killed when this is dropped.
pub struct Writer {
    child: Child,
    hearing: Option<JoinHandle<()>>,
}

impl Writer {
    /// Starts one; what it says is heard by `ear`, and what that has open for its callers it asks again first.
    pub fn start(mut plan: Value, ear: &Ear) -> Self {
        plan["open"] = json!(lock(ear).open);
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--exact", "writers::a_writing_process_writes", "--nocapture", "--test-threads=1"]);
        command.env(PLAN, plan.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("it starts");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let ear = ear.clone();
        let hearing = std::thread::spawn(move || {
            for line in output.lines() {
                let Ok(line) = line else { return };
                lock(&ear).hear(&line);
            }
        });
        Self { child, hearing: Some(hearing) }
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("it is our child").is_some()
    }

    /// Whether it stands still because of a signal `STOP`.
    pub fn is_stopped(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
        stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('T'))
    }

    /// Ends it by kill -9, and returns when everything that it said is heard.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(hearing) = self.hearing.take() {
            hearing.join().expect("the listener ends well");
        }
    }

    /// Sends it a signal, such as `STOP` or `CONT`.
    pub fn signal(&self, signal: &str) {
        let sent = Command::new("kill").arg(format!("-{signal}")).arg(self.child.id().to_string()).status();
        assert!(sent.is_ok_and(|status| status.success()), "the writer gets {signal}");
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.kill();
    }
}
