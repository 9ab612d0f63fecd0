//! A process that is killed inside transactions: what they hold is free again within seconds. One that was only held up notices nothing.

use std::time::Duration;

use annals_core::bson::{doc, rawdoc};
use annals_core::{Collection, RecordChange, Reserve, Store};
use annals_mongodb::{MongoStore, Options};
use mongodb::bson::Document;
use serde_json::json;

use crate::server::{Databases, Faults, log_of, order, until};
use crate::writers::{Ear, Writer, heard};

/// Before the server would end them. It takes five seconds, and more on a machine with much else to do.
const SOON: Duration = Duration::from_secs(30);
/// Seconds after which the server ends a transaction, as by default. That of the tests does it sooner.
const LIFETIME: i32 = 60;

/// A sequencer, and a process beside it with a commit with a key and a record under way, whose transactions do not come to their end.
struct Stuck {
    databases: Databases,
    store: MongoStore,
    writer: Writer,
    ear: Ear,
    fault: Faults,
    /// The lifetime of transactions before.
    lifetime: i32,
}

impl Stuck {
    async fn start() -> Self {
        let databases = Databases::new();
        let store = databases.store(Options::default()).await;
        let records = store.records("default").expect("declared");
        records.declare(Collection::new("things")).await.expect("declared");
        log_of(&store).commit(order("a", 0)).await.expect("this process is the sequencer");
        let fault = Faults::take().await;
        let admin = databases.client().await.database("admin");
        let lifetime = set_lifetime(&admin, LIFETIME).await;
        let name = format!("departed-{}", databases.name);
        let stuck = doc! {
            "failCommands": ["commitTransaction"], "blockConnection": true, "blockTimeMS": 60_000, "appName": &name,
        };
        fault.set(100, stuck).await;
        let ear = Ear::default();
        let url = format!("{}&appName={name}", databases.url());
        let plan = json!({ "url": url, "name": "w", "callers": 0, "idle": true, "keyed": "eva" });
        let writer = Writer::start(plan, &ear);
        let under_way = doc! { "currentOp": 1, "appName": &name, "command.commitTransaction": 1 };
        until("a commit and a record under way", async || {
            let found = admin.run_command(under_way.clone()).await.expect("asked");
            found.get_array("inprog").is_ok_and(|found| found.len() == 2)
        })
        .await;
        Self { databases, store, writer, ear, fault, lifetime }
    }

    /// Lets transactions end, and sets their lifetime back.
    async fn end(&self) {
        set_lifetime(&self.databases.client().await.database("admin"), self.lifetime).await;
        self.fault.end().await;
    }

    async fn notes(&self) -> u64 {
        let state = self.databases.database().await.collection::<Document>("sequencer-state");
        state.count_documents(doc! { "_id": { "$regex": "^sessions:" } }).await.expect("counted")
    }
}

/// Sets the lifetime of later transactions in seconds, and returns what it was.
async fn set_lifetime(admin: &mongodb::Database, seconds: i32) -> i32 {
    let set = doc! { "setParameter": 1, "transactionLifetimeLimitSeconds": seconds };
    admin.run_command(set).await.expect("set").get_i32("was").expect("a number")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_process_had_under_way_is_given_up_within_seconds() {
    let mut stuck = Stuck::start().await;
    stuck.writer.kill();
    let (log, records) = (log_of(&stuck.store), stuck.store.records("default").expect("declared"));
    let value = || serde_json::from_str("1").expect("a value");
    let commit = log.commit(order("b", 1).reserve(Reserve::new("user", "eva", value())));
    let write = records.write(vec![RecordChange::insert("things", rawdoc! { "_id": 1 })]);
    let (commit, write) = tokio::join!(tokio::time::timeout(SOON, commit), tokio::time::timeout(SOON, write));
    commit.expect("the key is free soon").expect("committed");
    write.expect("records are written soon").expect("written");
    stuck.store.close().await;
    until("no note", async || stuck.notes().await == 0).await;
    stuck.end().await;
}

/// As it would be with a process that is debugged, or a machine that sleeps.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_was_taken_for_gone_finishes_what_it_had_under_way() {
    let stuck = Stuck::start().await;
    stuck.writer.signal("STOP");
    until("its transactions ended", async || stuck.notes().await == 0).await;
    stuck.end().await;
    stuck.writer.signal("CONT");
    until("answers", async || heard(&stuck.ear).keyed.is_some()).await;
    let keyed = json!({ "commit": "Ok(1)", "record": "Ok(1)" });
    assert_eq!(heard(&stuck.ear).keyed, Some(keyed));
    let log = stuck.databases.database().await.collection::<Document>("event-log");
    until("both commits in the log", async || log.count_documents(doc! {}).await.expect("counted") == 2).await;
    stuck.store.close().await;
}
