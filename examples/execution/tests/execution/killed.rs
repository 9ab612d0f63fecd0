//! The real process is killed: nothing it started survives, and started again it goes on.

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use annals::sagas::{SAGA_AGGREGATE, saga_id};
use annals::{AggregateFilter, DEFAULT_TENANT, Filter, Follower, LogQuery, RecordQuery, Store, limits};
use annals_example_execution::{
    CANCELLED, COMPLETED, CREATE_POD, DELETE_POD, FAILED, REQUESTED, SAGA, STARTED, TERMINAL,
};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::machine::{marker, running, until_running};
use crate::service::{ended, history, history_of, log_of, within};

struct Process {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    address: String,
}

impl Process {
    async fn start(folder: &Path) -> Self {
        Self::start_with(folder, |_| {}).await
    }

    async fn start_with(folder: &Path, change: impl FnOnce(&mut Command)) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_execution-service"));
        command.arg(folder).arg("127.0.0.1:0").env("NO_SAMPLES", "1").kill_on_drop(true);
        change(&mut command);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("starts");
        let lines = BufReader::new(child.stdout.take().expect("is piped")).lines();
        let mut process = Self { child, lines, address: String::new() };
        let line = process.line_with("Open http://").await;
        process.address = line.split_whitespace().nth(1).expect("an address").to_owned();
        process
    }

    async fn line_with(&mut self, text: &str) -> String {
        within(&format!("a line with {text:?}"), async {
            loop {
                let line = self.lines.next_line().await.expect("can be read").expect("it goes on");
                if line.contains(text) {
                    return line;
                }
            }
        })
        .await
    }

    async fn submit(&self, language: &str, script: &str) -> String {
        let body = json!({ "language": language, "script": script, "timeout_seconds": 60 });
        let answer = reqwest::Client::new().post(format!("{}executions", self.address)).json(&body).send();
        let answer: Value = within("an answer", answer).await.expect("answers").json().await.expect("JSON");
        answer["execution_id"].as_str().expect("an id").to_owned()
    }

    /// Waits until no saga is under way, which may be after its execution has ended, and returns how many ended how.
    async fn sagas_over(&self) -> Value {
        let mut again = tokio::time::interval(std::time::Duration::from_millis(20));
        within("the end of every saga", async {
            loop {
                again.tick().await;
                let address = format!("{}v1/sagas/statistics?name={SAGA}", self.address);
                let answer = reqwest::get(address).await.expect("answers");
                let counts: Value = answer.json().await.expect("JSON");
                let none = |state: &str| counts["by_state"][state].is_null();
                if counts["total"] != 0 && none("created") && none("running") && none("compensating") {
                    return counts;
                }
            }
        })
        .await
    }

    /// kill -9.
    async fn kill(mut self) {
        self.child.kill().await.expect("can be killed");
    }

    /// Ctrl-C, and waits for its end.
    async fn interrupt(mut self) -> std::process::ExitStatus {
        let pid = self.child.id().expect("still runs").to_string();
        let sent = Command::new("/bin/sh").args(["-c", "kill -INT \"$1\"", "sh", &pid]).status().await;
        assert!(sent.expect("there is a shell").success());
        tokio::time::timeout(std::time::Duration::from_secs(10), self.child.wait())
            .await
            .expect("ends within 10 seconds")
            .expect("can be waited for")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_survives_a_killed_service_and_the_next_start_says_interrupted() {
    let folder = tempfile::tempdir().expect("a folder");
    let process = Process::start(folder.path()).await;
    let marker = marker();
    // A child in the group, one in a session of its own whose parent is gone, and the program itself.
    let script = format!("sh -c 'sleep {marker} & setsid sleep {marker} & wait' & sleep {marker}");
    let id = process.submit("sh", &script).await;
    until_running(&marker, 3).await;
    process.kill().await;
    until_running(&marker, 0).await;
    let mut process = Process::start(folder.path()).await;
    let line = process.line_with(FAILED).await;
    assert!(line.contains(&id[..8]) && line.contains("interrupted"), "{line}");
    assert!(process.interrupt().await.success());
    let store = annals::open(&format!("embedded:{}", folder.path().join("store").display())).await.expect("opens");
    assert_eq!(history(&log_of(&store), &id).await, [REQUESTED, STARTED, FAILED]);
    let left: Vec<_> = std::fs::read_dir(folder.path().join("work")).expect("is there").collect();
    assert!(left.is_empty(), "the program's folder is gone: {left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_ends_the_service_well_and_kills_what_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut process = Process::start(folder.path()).await;
    let marker = marker();
    let id = process.submit("sh", &format!("trap '' INT TERM; sleep {marker} & sleep {marker}")).await;
    // A follower of the log must not hold the end up either.
    let follower = reqwest::get(format!("{}v1/log/follow", process.address)).await.expect("answers");
    until_running(&marker, 2).await;
    process.line_with(STARTED).await;
    assert!(process.interrupt().await.success());
    until_running(&marker, 0).await;
    assert!(follower.text().await.expect("ends whole").contains(REQUESTED));
    let store = annals::open(&format!("embedded:{}", folder.path().join("store").display())).await.expect("opens");
    assert_eq!(ended(&log_of(&store), &id).await.text("reason"), "interrupted");
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_again_and_again_each_execution_still_ends_exactly_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut ids = Vec::new();
    // Each event is a line, so the service dies after each of the steps of an execution.
    for kill_after in 0..14 {
        let mut process = Process::start(folder.path()).await;
        ids.push(process.submit("sh", &format!("echo {kill_after}")).await);
        for _ in 0..kill_after {
            process.line_with("#").await;
        }
        process.kill().await;
    }
    let process = Process::start(folder.path()).await;
    let last = process.submit("sh", "echo last").await;
    ids.push(last.clone());
    // The others were requested before it, and it may overtake one of them.
    for id in &ids {
        let address = format!("{}v1/log/follow?aggregate=execution/{id}&types={}", process.address, TERMINAL.join(","));
        let mut stream = reqwest::get(address).await.expect("answers");
        within("a terminal event", async {
            loop {
                let chunk = stream.chunk().await.expect("can be read").expect("goes on");
                if chunk.windows(5).any(|window| window == b"data:") {
                    return;
                }
            }
        })
        .await;
    }
    let sagas = process.sagas_over().await;
    assert_eq!((&sagas["total"], &sagas["by_state"]), (&json!(ids.len()), &json!({ "completed": ids.len() })));
    assert!(process.interrupt().await.success());
    let store = annals::open(&format!("embedded:{}", folder.path().join("store").display())).await.expect("opens");
    let log = log_of(&store);
    let mut kept = Follower::new(log.clone(), 0, Default::default());
    assert_eq!(kept.next_page().await.expect("can be read")[0].sequence_number, 0);
    for id in &ids {
        let history = history(&log, id).await;
        assert!(history.len() == 3 && history[..2] == [REQUESTED, STARTED], "{id}: {history:?}");
        assert!(TERMINAL.contains(&history[2].as_str()), "{id}: {history:?}");
        let end = ended(&log, id).await;
        assert!(end.event_type == COMPLETED || end.text("reason") == "interrupted", "{end:?}");
    }
    assert_eq!(ended(&log, &last).await.event_type, COMPLETED);
    let query = LogQuery {
        limit: limits::PAGE_MAX,
        filter: Filter { types: vec![CREATE_POD.into()], ..Filter::default() },
        ..LogQuery::default()
    };
    let commands = log.read(query).await.expect("can be read").events;
    let mut of: Vec<_> = commands.iter().map(|event| event.commit.aggregate.id.to_string()).collect();
    of.sort();
    ids.sort();
    assert_eq!(of, ids, "each pod was asked for once");
    all_released(&store, &ids).await;
}

/// Checks that each of these executions, and no other, has an allocation, which is released.
async fn all_released(store: &Arc<dyn Store>, ids: &[String]) {
    let records = store.records(DEFAULT_TENANT).expect("always there");
    let allocations = records.find(RecordQuery::new("resource_allocations").limit(limits::PAGE_MAX)).await;
    let text =
        |document: &annals::bson::RawDocumentBuf, field: &str| document.get_str(field).expect("a text").to_owned();
    let allocations = allocations.expect("can be read").records;
    let of = allocations.iter().map(|it| (text(&it.document, "execution_id"), text(&it.document, "status")));
    let mut of: Vec<_> = of.collect();
    of.sort();
    let mut due: Vec<_> = ids.iter().map(|id| (id.clone(), "released".to_owned())).collect();
    due.sort();
    assert_eq!(of, due, "88: no saga allocated a second time, and each released what it had");
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_while_cancelled_executions_are_compensated_each_is_compensated_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut ids = Vec::new();
    // Each event is a line, so the service dies at the cancellation, inside the compensations, and after them.
    for kill_after in 0..7 {
        let mut process = Process::start(folder.path()).await;
        let id = process.submit("sh", "while :; do sleep 1; done").await;
        process.line_with(&format!("{STARTED} {}", &id[..8])).await;
        let cancel = reqwest::Client::new().post(format!("{}executions/{id}/cancel", process.address)).send();
        assert_eq!(within("an answer", cancel).await.expect("answers").status(), 202);
        for _ in 0..kill_after {
            process.line_with("#").await;
        }
        process.kill().await;
        ids.push(id);
    }
    let process = Process::start(folder.path()).await;
    let sagas = process.sagas_over().await;
    assert_eq!((&sagas["total"], &sagas["by_state"]), (&json!(ids.len()), &json!({ "cancelled": ids.len() })));
    // The last event of a saga is committed after its end is stored.
    let address = format!("{}v1/log?types=saga_cancelled", process.address);
    let mut again = tokio::time::interval(std::time::Duration::from_millis(20));
    within("the last event of every saga", async {
        loop {
            again.tick().await;
            let page: Value = reqwest::get(&address).await.expect("answers").json().await.expect("JSON");
            if page["events"].as_array().expect("events").len() == ids.len() {
                return;
            }
        }
    })
    .await;
    assert!(process.interrupt().await.success());
    let store = annals::open(&format!("embedded:{}", folder.path().join("store").display())).await.expect("opens");
    let log = log_of(&store);
    for id in &ids {
        assert_eq!(history(&log, id).await, [REQUESTED, STARTED, CANCELLED], "{id}");
        assert_eq!(history_of(&log, id, &[CREATE_POD, DELETE_POD]).await, [CREATE_POD, DELETE_POD], "{id}");
        let saga = AggregateFilter { name: SAGA_AGGREGATE.into(), id: Some(saga_id(SAGA, id).into()) };
        let filter = Filter { aggregate: Some(saga), ..Filter::default() };
        let query = LogQuery { limit: limits::PAGE_MAX, filter, ..LogQuery::default() };
        let page = log.read(query).await.expect("can be read");
        let told: Vec<_> = page.events.iter().map(|event| &*event.event_type).collect();
        let due = ["saga_started", "saga_compensating", "saga_compensating", "saga_compensated", "saga_cancelled"];
        assert_eq!(told, due, "{id}");
    }
    all_released(&store, &ids).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watchdog_that_was_killed_is_replaced_before_the_next_program() {
    let folder = tempfile::tempdir().expect("a folder");
    let process = Process::start(folder.path()).await;
    let (before, after) = (marker(), marker());
    process.submit("sh", &format!("sleep {before} & sleep {before}")).await;
    until_running(&before, 2).await;
    let watchdogs = running("annals-demo-watchdog");
    let own = process.child.id().expect("still runs");
    let watchdog = watchdogs.into_iter().find(|pid| parent(*pid) == Some(own)).expect("there is one");
    let killed = Command::new("/bin/sh").args(["-c", "kill -KILL \"$1\"", "sh", &watchdog.to_string()]).status().await;
    assert!(killed.expect("there is a shell").success());
    process.submit("sh", &format!("sleep {after} & sleep {after}")).await;
    until_running(&after, 2).await;
    process.kill().await;
    until_running(&before, 0).await;
    until_running(&after, 0).await;
}

fn parent(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn without_python_its_programs_fail_with_a_sentence_and_those_in_sh_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let nowhere = folder.path().join("nowhere");
    let mut process = Process::start_with(folder.path().join("demo").as_path(), |command| {
        command.env("PATH", &nowhere);
    })
    .await;
    process.line_with("python3 was not found").await;
    process.submit("python", "print(1)").await;
    let line = process.line_with(FAILED).await;
    assert!(line.contains("install Python 3"), "{line}");
    process.submit("sh", "echo fine").await;
    process.line_with(COMPLETED).await;
    assert!(process.interrupt().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_service_ends_when_nobody_reads_its_lines_any_more() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut process = Process::start(folder.path()).await;
    // Whatever it says when it starts, such as a warning for root, comes before this.
    process.submit("sh", "echo").await;
    process.line_with(COMPLETED).await;
    let Process { mut child, lines, address } = process;
    drop(lines);
    // The next line finds the pipe closed. It may be one that follows the completion, and then nobody answers any more.
    let body = json!({ "language": "sh", "script": "echo" });
    if let Ok(answer) = reqwest::Client::new().post(format!("{address}executions")).json(&body).send().await {
        assert_eq!(answer.status(), 201);
    }
    assert!(within("the end", child.wait()).await.expect("can be waited for").success());
}
