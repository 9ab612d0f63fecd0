//! Rounds of whatever goes wrong: eight processes that write, some of them killed, the primary made to step down or killed.

use annals_core::Store;
use annals_mongodb::{MongoStore, Options};
use mongodb::bson::{Document, doc};
use serde_json::json;

use crate::server::{log_of, order, until};
use crate::servers::{ReplicaSet, three};
use crate::whole::{Compared, compare};
use crate::writers::{Ear, Writer, lock};

/// Rounds where nothing else is said by `ANNALS_MONGODB_ROUNDS`.
const ROUNDS: u64 = 4;
const WRITERS: usize = 8;
/// Rounds on one database, which is compared whole behind them.
const ROUNDS_OF_ONE: u64 = 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_killed_the_log_holds_every_acknowledged_commit_once() {
    let rounds = std::env::var("ANNALS_MONGODB_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(ROUNDS);
    let mut three = three().await;
    let set = three.as_mut().expect("started");
    let mut left = rounds;
    while left > 0 {
        let some = left.min(ROUNDS_OF_ONE);
        let seed = fastrand::u64(..);
        rounds_on_one(set, seed, some).await;
        left -= some;
    }
}

#[expect(clippy::print_stdout, reason = "who runs many rounds wants to see what happened in them")]
async fn rounds_on_one(set: &mut ReplicaSet, seed: u64, rounds: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let name = format!("annals_test_rounds_{}_{seed:x}", std::process::id());
    let plan = |writer: usize| json!({ "url": set.url(&name), "name": format!("w{writer}"), "callers": 2 });
    let plans: Vec<_> = (0..WRITERS).map(plan).collect();
    let ears: Vec<Ear> = plans.iter().map(|_| Ear::default()).collect();
    let start = |writer: usize| Writer::start(plans[writer].clone(), &ears[writer]);
    let told = || ears.iter().map(|ear| lock(ear).acknowledged().count()).sum::<usize>();
    let until_more = async |more: usize| {
        let before = told();
        until("acknowledged commits", async || told() >= before + more).await;
    };
    let mut writers: Vec<Writer> = (0..WRITERS).map(start).collect();
    until_more(50).await;
    let (mut kills, mut steps_down, mut primaries) = (0, 0, 0);
    for _ in 0..rounds {
        match random.u8(..10) {
            0..5 => {
                for _ in 0..random.usize(1..4) {
                    let writer = random.usize(..WRITERS);
                    writers[writer].kill();
                    writers[writer] = start(writer);
                    kills += 1;
                }
            }
            5..8 => {
                let primary = set.primary().await;
                let down = doc! { "replSetStepDown": 5, "secondaryCatchUpPeriodSecs": 1, "force": true };
                // It may break the connection that asks for it.
                let _ = set.members[primary].admin().await.run_command(down).await;
                steps_down += 1;
            }
            _ => {
                let primary = set.primary().await;
                set.members[primary].signal("KILL");
                until_more(20).await;
                set.members[primary].start_again();
                set.until_well().await;
                primaries += 1;
            }
        }
        until_more(50).await;
    }
    // All at once, so that the last commits are anywhere on their way.
    writers.iter().for_each(|writer| writer.signal("KILL"));
    writers.iter_mut().for_each(Writer::kill);
    set.until_well().await;
    let database = set.client().await.database(&name);
    let store = MongoStore::open(&set.url(&name), Options::default()).await.expect("the store opens");
    log_of(&store).commit(order("last", 1)).await.expect("committed");
    let count = async |name: &str| database.collection::<Document>(name).count_documents(doc! {}).await;
    until("every commit in the log", async || {
        let (commits, entries) = (count("order_event_stream").await, count("event-log-commits").await);
        matches!((commits, entries), (Ok(commits), Ok(entries)) if commits == entries)
    })
    .await;
    let mut all = crate::writers::Said::default();
    for ear in &ears {
        all.told.append(&mut lock(ear).told);
    }
    let compared = compare(&database, &all).await;
    store.close().await;
    database.drop().await.expect("dropped");
    let Compared { commits, events, acknowledged, refused, unknown } = compared;
    println!(
        "seed {seed:x}: {rounds} rounds, {kills} writers and {primaries} primaries killed, {steps_down} stepped down"
    );
    println!("{commits} commits, {events} events; {acknowledged} acknowledged, {refused} refused, {unknown} unknown");
    assert!(acknowledged > 50 && refused > 0, "{compared:?}");
}
