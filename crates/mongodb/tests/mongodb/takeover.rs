//! A sequencer that is killed or stands still, at any step of its work: another takes over, and the log is what it must be.

use std::time::Duration;

use annals_core::Store;
use annals_mongodb::{Options, Step};
use futures_util::future::join_all;
use mongodb::bson::{Document, doc};
use serde_json::{Value, json};

use crate::server::{Databases, log_of, order, until, wow_commit};
use crate::whole::compare;
use crate::writers::{Ear, Writer, heard, lock};

fn plan(databases: &Databases, more: Value) -> Value {
    let mut plan = json!({ "url": databases.url(), "name": "w", "callers": 3 });
    plan.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    plan
}

/// How often a step is passed before: what comes once is met the first time, what every batch comes to in the middle of the work.
fn times(step: Step) -> u32 {
    match step {
        Step::LeaseTaken | Step::StreamOpened | Step::SessionsNoted | Step::BroughtUp | Step::PositionSaved => 1,
        _ => 5,
    }
}

async fn until_told(ear: &Ear, more: usize) {
    let before = lock(ear).acknowledged().count();
    until("commits of the writer", async || lock(ear).acknowledged().count() >= before + more).await;
}

async fn until_all_is_logged(databases: &Databases) {
    let database = databases.database().await;
    let count = async |name: &str| database.collection::<Document>(name).count_documents(doc! {}).await;
    until("every commit in the log", async || {
        let (commits, entries) = (count("order_event_stream").await, count("event-log-commits").await);
        matches!((commits, entries), (Ok(commits), Ok(entries)) if commits == entries)
    })
    .await;
}

async fn killed_at(step: Step) {
    let databases = Databases::new();
    let database = databases.database().await;
    // From before there was a sequencer: it has something to bring up.
    let commits = database.collection::<Document>("order_event_stream");
    commits.insert_one(wow_commit("before", "before", 1, 7)).await.expect("inserted");
    let ear = Ear::default();
    let count = if step == Step::PositionSaved { json!(5) } else { Value::Null };
    let deadly = json!({
        "step": format!("{step:?}"), "signal": "KILL", "times": times(step), "count": count, "idle": true,
    });
    let mut writer = Writer::start(plan(&databases, deadly), &ear);
    until(&format!("the end at {step:?}"), async || writer.has_ended()).await;
    writer.kill();
    let store = databases.store(Options::default()).await;
    log_of(&store).commit(order("after", 1)).await.unwrap_or_else(|error| panic!("after {step:?}: {error}"));
    until_all_is_logged(&databases).await;
    let compared = compare(&database, &heard(&ear)).await;
    assert!(compared.commits >= 2, "{step:?}: {compared:?}");
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sequencer_killed_at_any_step_is_succeeded_and_nothing_is_lost_or_repeated() {
    join_all(Step::ALL.map(killed_at)).await;
}

/// A process that is killed leaves a transaction open, which holds up the log for a minute unless somebody ends it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_left_open_is_ended_also_when_the_first_successor_is_killed_too() {
    let databases = Databases::new();
    let ear = Ear::default();
    for (step, times) in [(Step::BatchWritten, 3), (Step::LeaseTaken, 1)] {
        let deadly = json!({ "step": format!("{step:?}"), "signal": "KILL", "times": times });
        let mut writer = Writer::start(plan(&databases, deadly), &ear);
        until(&format!("the end at {step:?}"), async || writer.has_ended()).await;
        writer.kill();
    }
    let store = databases.store(Options::default()).await;
    log_of(&store).commit(order("after", 1)).await.expect("committed and numbered before the server ends it by itself");
    until_all_is_logged(&databases).await;
    compare(&databases.database().await, &heard(&ear)).await;
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::disallowed_methods, reason = "how long a takeover lasts is what is tested")]
async fn a_process_that_leads_and_is_killed_is_succeeded_within_five_seconds() {
    let databases = Databases::new();
    let ear = Ear::default();
    let mut writer = Writer::start(plan(&databases, json!({})), &ear);
    until_told(&ear, 10).await;
    let store = databases.store(Options::default()).await;
    let log = log_of(&store);
    log.commit(order("before", 1)).await.expect("numbered by the other process");
    writer.kill();
    let killed = std::time::Instant::now();
    log.commit(order("after", 1)).await.expect("numbered by this one");
    let lasted = killed.elapsed();
    assert!(lasted < Duration::from_secs(5), "the takeover lasted {lasted:?}");
    until_all_is_logged(&databases).await;
    compare(&databases.database().await, &heard(&ear)).await;
    store.close().await;
}

/// It stands still in the middle of its work, another takes over, and it goes on where it stood: the offset has moved.
async fn stopped_at(step: Step) {
    let databases = Databases::new();
    let ear = Ear::default();
    let still = json!({ "step": format!("{step:?}"), "signal": "STOP", "times": times(step) });
    let mut writer = Writer::start(plan(&databases, still), &ear);
    until(&format!("a standstill at {step:?}"), async || writer.is_stopped()).await;
    let store = databases.store(Options::default()).await;
    let log = log_of(&store);
    for n in 0..5 {
        log.commit(order("meanwhile", n)).await.unwrap_or_else(|error| panic!("after {step:?}: {error}"));
    }
    tracing::info!(?step, "another has taken over");
    writer.signal("CONT");
    until_told(&ear, 20).await;
    tracing::info!(?step, "it goes on as one that stands by");
    log.commit(order("after", 1)).await.expect("committed");
    writer.kill();
    until_all_is_logged(&databases).await;
    compare(&databases.database().await, &heard(&ear)).await;
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sequencer_that_stands_still_while_it_is_deposed_writes_nothing_afterwards() {
    let steps = [Step::CommitsTaken, Step::OffsetMoved, Step::BatchWritten, Step::BatchCommitted];
    join_all(steps.map(stopped_at)).await;
}
