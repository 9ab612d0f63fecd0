//! Three members, and what can happen to them under load. Everything that anybody is told is checked against the log that is left.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use annals_conformance::history::History;
use annals_core::{Code, CommitError, EventLog, ExpectedVersion, Store};
use annals_mongodb::{MongoStore, Options};
use mongodb::Database;
use tokio::task::JoinHandle;

use crate::server::{log_of, order, until};
use crate::servers::{ReplicaSet, three};
use crate::whole::compare;
use crate::writers::Said;

/// Two stores on one database and clients that commit, repeat and are refused, until they are told to stop.
struct Load {
    database: Database,
    stores: [MongoStore; 2],
    history: Arc<History>,
    stop: Arc<AtomicBool>,
    done: Arc<AtomicUsize>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    async fn on(set: &ReplicaSet, name: &str) -> Self {
        let name = format!("annals_test_{name}_{}", std::process::id());
        let url = set.url(&name);
        let options = || Options { outcome_time: Duration::from_secs(3), ..Options::default() };
        let open = async || MongoStore::open(&url, options()).await.expect("the store opens");
        let stores = [open().await, open().await];
        let (history, stop, done) = (History::new(), Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let clients = (0..6_u64).map(|client| {
            let log = history.watch(&format!("client {client}"), log_of(&stores[client as usize % 2]));
            tokio::spawn(work(log, client, stop.clone(), done.clone()))
        });
        let clients = clients.collect();
        let database = set.client().await.database(&name);
        Self { database, stores, history, stop, done, clients }
    }

    /// The log of one of the stores, for one client more.
    fn log(&self, place: usize) -> Arc<dyn EventLog> {
        self.history.watch("the test", log_of(&self.stores[place]))
    }

    /// Waits until so many more requests have got an answer that says what happened.
    async fn until_done(&self, more: usize) {
        let before = self.done.load(Ordering::SeqCst);
        until("answers", async || self.done.load(Ordering::SeqCst) >= before + more).await;
    }

    /// Lets everybody come to an end, and checks all that was told.
    async fn check(mut self) -> annals_conformance::history::Checked {
        self.stop.store(true, Ordering::SeqCst);
        for client in std::mem::take(&mut self.clients) {
            client.await.expect("the client ends well");
        }
        // What was unknown may be stored later than it was answered; a last commit comes behind all of it.
        for place in 0..2 {
            self.log(place).commit(order("last", 1)).await.expect("committed");
        }
        let log = log_of(&self.stores[0]);
        let checked = self.history.check(&log).await.unwrap_or_else(|broken| panic!("{broken}"));
        compare(&self.database, &Said::default()).await;
        for store in self.stores {
            store.close().await;
        }
        self.database.drop().await.expect("dropped");
        checked
    }
}

/// One request after another. One whose outcome is unknown is repeated until it is known.
async fn work(log: Arc<dyn EventLog>, client: u64, stop: Arc<AtomicBool>, done: Arc<AtomicUsize>) {
    let mut random = fastrand::Rng::with_seed(client);
    for n in 0_u64.. {
        if stop.load(Ordering::SeqCst) {
            return;
        }
        let mut commit = order(&format!("a{}", random.u8(..5)), n).request_id(format!("{client}-{n}"));
        if random.u8(..10) < 3 {
            commit = commit.expect(ExpectedVersion::Exact(random.u64(..20)));
        }
        loop {
            match log.commit(commit.clone()).await {
                Err(CommitError::Store(_)) => {}
                _ => break,
            }
            if stop.load(Ordering::SeqCst) {
                return;
            }
        }
        done.fetch_add(1, Ordering::SeqCst);
        if random.u8(..8) == 0 {
            let _ = log.head().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_killed_under_load_loses_nothing_and_makes_no_answer_wrong() {
    let mut three = three().await;
    let set = three.as_mut().expect("started");
    let load = Load::on(set, "killed").await;
    for _ in 0..2 {
        load.until_done(50).await;
        let primary = set.primary().await;
        set.members[primary].signal("KILL");
        load.until_done(50).await;
        set.members[primary].start_again();
        set.until_well().await;
    }
    let checked = load.check().await;
    assert!(checked.acknowledged > 100, "{checked:?}");
}

/// The members that follow are alive and take nothing more: the primary stays and no write of it is ever acknowledged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_a_majority_takes_nothing_answers_are_unknown_and_never_wrong() {
    let mut three = three().await;
    let set = three.as_mut().expect("started");
    let load = Load::on(set, "unreplicated").await;
    load.until_done(50).await;
    set.fail_point("stopReplProducer", "alwaysOn").await;
    let log = load.log(0);
    let error = log.commit(order("b", 1).request_id("r")).await.expect_err("nobody can acknowledge it");
    assert_eq!(error.code(), Code::Unreachable, "{error}");
    let refusal = log.commit(order("c", 1).expect(ExpectedVersion::Exact(7))).await.expect_err("nobody can confirm it");
    assert_eq!(refusal.code(), Code::Unreachable, "{refusal}");
    set.fail_point("stopReplProducer", "off").await;
    let retry = async || log.commit(order("b", 1).request_id("r")).await;
    until("an answer", async || retry().await.is_ok()).await;
    assert_eq!(retry().await.expect("committed").version, 1);
    load.until_done(50).await;
    load.check().await;
}

/// The primary sees nobody and steps down; what it wrote last is rolled back or not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_is_left_alone_answers_nothing_wrong() {
    let mut three = three().await;
    let set = three.as_mut().expect("started");
    let load = Load::on(set, "alone").await;
    load.until_done(50).await;
    let primary = set.primary().await;
    let others: Vec<_> = (0..3).filter(|place| *place != primary).collect();
    others.iter().for_each(|place| set.members[*place].signal("STOP"));
    let log = load.log(1);
    let error = log.commit(order("b", 1).request_id("r")).await.expect_err("nobody can acknowledge it");
    assert!(matches!(error, CommitError::Store(_)), "{error}");
    others.iter().for_each(|place| set.members[*place].signal("CONT"));
    load.until_done(50).await;
    set.until_well().await;
    load.check().await;
}

/// Connections to it stay open and nothing comes back, as when a machine hangs. It wakes up and believes to be primary still.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_hangs_is_left_and_answers_nothing_wrong_when_it_wakes() {
    let mut three = three().await;
    let set = three.as_mut().expect("started");
    let load = Load::on(set, "hangs").await;
    load.until_done(50).await;
    let primary = set.primary().await;
    set.members[primary].signal("STOP");
    load.until_done(50).await;
    set.members[primary].signal("CONT");
    load.until_done(50).await;
    set.until_well().await;
    load.check().await;
}
