//! kill -9 of the real server under concurrent load, again and again on one folder: everything that any client was told must be
//! what a correct log could have said.
//!
//! A cycle: the server is started and its log is checked against everything that was told before; then writers, readers and
//! followers work on it over HTTP until it is killed at a random moment; then every client has learnt that its connection died.
//! Commits whose answer was lost are sent again with the same request id in the next cycle.

mod follower;
mod groups;
mod handlers;
mod horizon;
mod letters;
#[cfg(target_os = "linux")]
mod many_letters;
mod meeting;
#[path = "../process/mod.rs"]
mod process;
mod projections;
mod proxy;
mod reader;
mod replays;
mod sagas;
mod writer;

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use annals::{Client, Code, EventLog, RecordedEvent};
use annals_conformance::history::{Checked, History, read_all};
use fastrand::Rng;
use tokio::task::JoinSet;

use crate::follower::Follower;
use crate::meeting::Meeting;
use crate::process::Server;

/// How often the server is killed.
const CYCLES: usize = 24;
const WRITERS: usize = 8;
const READERS: usize = 3;
const FOLLOWERS: usize = 2;
/// A whole run takes a fraction of it.
const LIMIT: Duration = Duration::from_secs(240);

#[test]
fn nothing_that_a_client_was_told_is_lost_or_changed_by_kill_9() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        // One run, or as many as `cargo xtask soak` has time for.
        let end = tokio::time::Instant::now() + Duration::from_secs(number("ANNALS_SOAK_SECONDS").unwrap_or(0));
        loop {
            let seed = number("ANNALS_KILL_SEED").unwrap_or_else(|| fastrand::u64(..));
            let _seed = ShownOnFailure(seed);
            tokio::time::timeout(LIMIT, Run::new(seed).all()).await.expect("the run ends in time");
            if tokio::time::Instant::now() >= end {
                return;
            }
        }
    });
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect(variable))
}

/// Says how to repeat a run that failed. The server's timing is its own, so a repeat is alike and not the same.
struct ShownOnFailure(u64);

impl Drop for ShownOnFailure {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = writeln!(std::io::stderr(), "run again with ANNALS_KILL_SEED={}", self.0);
        }
    }
}

struct Run {
    folder: tempfile::TempDir,
    rng: Rng,
    history: Arc<History>,
    meeting: Meeting,
}

impl Run {
    fn new(seed: u64) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        Self { folder, rng: Rng::with_seed(seed), history: History::new(), meeting: Meeting::default() }
    }

    async fn all(mut self) {
        let mut clients = JoinSet::new();
        for n in 0..WRITERS {
            clients.spawn(writer::run(self.guest(format!("writer-{n}")), self.rng.fork()));
        }
        for n in 0..READERS {
            clients.spawn(reader::run(self.guest(format!("reader-{n}")), self.rng.fork()));
        }
        let mut followers = JoinSet::new();
        for n in 0..FOLLOWERS {
            followers.spawn(Follower::new(n).run(self.guest(format!("follower-{n}"))));
        }
        let count = WRITERS + READERS + FOLLOWERS;
        let server = tokio::select! {
            server = self.cycles(count) => server,
            Some(ended) = clients.join_next() => panic!("a client ended early: {ended:?}"),
            Some(ended) = followers.join_next() => panic!("a follower ended early: {:?}", ended.err()),
        };
        self.meeting.finish(&server.url);
        while let Some(ended) = clients.join_next().await {
            ended.expect("a client ends well");
        }
        let checked = self.check(&server).await;
        let log = self.log(&server).await;
        while let Some(follower) = followers.join_next().await {
            follower.expect("a follower ends well").compare(&log);
        }
        self.compare_with_the_store(server, &log).await;
        assert!(checked.acknowledged > CYCLES * 20, "too little was committed to mean anything: {checked:?}");
        assert!(checked.duplicates > 0 && checked.refusals > CYCLES, "too little was refused: {checked:?}");
    }

    /// Kills one server after the other; the one that it returns lives.
    async fn cycles(&mut self, clients: usize) -> Server {
        for _ in 0..CYCLES {
            self.cycle(clients).await;
        }
        self.start(clients).await
    }

    async fn cycle(&mut self, clients: usize) {
        if self.rng.u8(..) < 50 {
            self.kill_while_it_starts().await;
        }
        let server = self.start(clients).await;
        self.meeting.open(&server.url);
        // The moment is chosen by how much was answered, so that slow machines do as much as fast ones.
        self.meeting.answers(self.rng.u64(1..400)).await;
        tokio::task::spawn_blocking(|| server.kill()).await.expect("it is killed");
        self.meeting.all_know(clients).await;
        self.history.restarted();
    }

    /// Starts the server, and checks what it has kept before anyone changes it.
    async fn start(&self, clients: usize) -> Server {
        self.meeting.all_know(clients).await;
        let folder = self.folder.path().to_owned();
        let server = tokio::task::spawn_blocking(move || Server::start(&folder)).await.expect("the server starts");
        self.check(&server).await;
        server
    }

    /// Kills a server somewhere in its recovery.
    async fn kill_while_it_starts(&mut self) {
        let mut command = process::annals(self.folder.path());
        let command = command.args(["serve", "--dev", "--listen", "127.0.0.1:0"]);
        let mut process = tokio::process::Command::from(std::mem::replace(command, std::process::Command::new("true")))
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("the server's process starts");
        let moment = Duration::from_micros(self.rng.u64(0..30_000));
        let ended = tokio::time::timeout(moment, process.wait()).await;
        assert!(ended.is_err(), "the server ended by itself: {ended:?}");
        process.kill().await.expect("it can be killed");
    }

    async fn check(&self, server: &Server) -> Checked {
        match self.history.check_events(&self.log(server).await) {
            Ok(checked) => checked,
            Err(broken) => panic!("{broken}"),
        }
    }

    async fn log(&self, server: &Server) -> Vec<RecordedEvent> {
        let client = client(&server.url);
        loop {
            match read_all(&client).await {
                // Beside other programs a store opens later than the server tells its address.
                Err(error) if error.code() == Code::Unreachable => {}
                read => return read.expect("the log is read"),
            }
        }
    }

    /// The store itself, opened without a server, holds what the server showed.
    async fn compare_with_the_store(&self, server: Server, shown: &[RecordedEvent]) {
        let exit = tokio::task::spawn_blocking(|| server.terminate()).await.expect("it is stopped");
        assert_eq!(exit, Some(0));
        let stored = read_store(self.folder.path()).await;
        assert_eq!(stored.len(), shown.len());
        for (stored, shown) in stored.iter().zip(shown) {
            assert_eq!(stored, shown);
        }
    }

    fn guest(&self, name: String) -> meeting::Guest {
        self.meeting.guest(name, Arc::clone(&self.history))
    }
}

async fn read_store(folder: &Path) -> Vec<RecordedEvent> {
    let url = format!("embedded:{}", folder.join("data").display());
    let store = annals::open(&url).await.expect("the store opens");
    let log = store.log(annals::DEFAULT_TENANT, annals::DEFAULT_SCOPE).expect("the default log");
    let events = read_all(&log).await.expect("it is read");
    store.close().await;
    events
}

fn client(url: &str) -> Arc<dyn EventLog> {
    let client = Client::new(url, annals::DEFAULT_TENANT, annals::DEFAULT_SCOPE).expect("an address");
    Arc::new(client)
}
