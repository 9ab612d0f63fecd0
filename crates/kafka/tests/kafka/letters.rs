//! Dead letters of a group on Kafka whose process is killed while it retries them.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use annals_core::dead_letters::{BulkAct, BulkBody, LetterPolicy};
use annals_core::processing::{ProcessingRetry, Then};
use annals_core::{Condition, DEFAULT_TENANT, RecordedEvent, Store, TopicSettings};
use annals_embedded::disk::RealDisk;
use annals_embedded::{EmbeddedStore, Options};
use annals_runtime::{HandleFailure, consumer};

use crate::consuming_faults::{appending, effects_in};
use crate::support::{
    address, broker_at, commit, consuming_host, first_by_key, keys_in_turn, log_of, memory, relaying, settings, until,
    until_published,
};

/// Fewer than open the breaker, which counts the letters of messages that were attempted: the first of each key.
const KEYS: u64 = 9;
const EVENTS: u64 = KEYS * 12;
/// After how many effects the process is killed.
const DIES_AFTER: usize = 40;

/// What this process is to do when it is the consumer of the test: the prefix of the topics, the folder of its store and its effects, and
/// after how many effects it kills itself; `fails` to make a letter of every message instead.
const CHILD: &str = "ANNALS_KAFKA_TEST_LETTERS";

/// Not a test: the process of the test below.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_retries_its_letters() {
    let Ok(what) = std::env::var(CHILD) else { return };
    let [prefix, folder, phase] = what.split('|').collect::<Vec<_>>()[..] else { panic!("{what}") };
    let settings = TopicSettings { prefix: prefix.to_owned(), ..TopicSettings::default() };
    let folder = Path::new(folder);
    let disk = Arc::new(RealDisk::new(folder.join("store")));
    let store: Arc<dyn Store> = Arc::new(EmbeddedStore::open(disk, Options::default()).expect("the store opens"));
    let host = consuming_host(&store, &broker_at(&address(), &settings), &settings);
    let letters = host.dead_letters(DEFAULT_TENANT).expect("the tenant");
    if phase == "fails" {
        let (topic, why) = (settings.topic_of("order_placed"), "a person decides".into());
        letters.put_policy(topic, LetterPolicy::manual(), why).await.expect("put");
        let retry = ProcessingRetry { attempts: Some(1), then: Then::Park, ..ProcessingRetry::default() };
        let failing = consumer("billing", ["order_placed"]).retry(retry);
        let failing = failing.on("order_placed", |_: RecordedEvent, _: serde_json::Value| async {
            Err::<(), _>(HandleFailure::new("the database is down"))
        });
        failing.run(&host, DEFAULT_TENANT).await.expect("it runs");
        until("every message is a letter", async || {
            (letters.statistics().await.expect("counted").open == EVENTS).then_some(())
        })
        .await;
        host.drain().await;
        store.close().await;
        return;
    }
    let body = BulkBody {
        condition: Some(Condition::All),
        ids: None,
        reason: "the database is back".to_owned(),
        by: None,
        dry_run: false,
    };
    letters.bulk(BulkAct::Retry, body).await.expect("retried");
    let effects = folder.join("effects").display().to_string();
    appending(effects, phase.parse().expect("a number")).run(&host, DEFAULT_TENANT).await.expect("it runs");
    std::future::pending::<()>().await;
}

/// A consumer in a process of its own.
struct Retrying(Child);

impl Retrying {
    fn start(settings: &TopicSettings, folder: &Path, phase: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--exact", "letters::a_process_that_retries_its_letters", "--nocapture"]);
        command.env(CHILD, format!("{}|{}|{phase}", settings.prefix, folder.display()));
        Self(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts"))
    }

    async fn ended(mut self) -> bool {
        let ended = until("the process ends", async || self.0.try_wait().expect("known")).await;
        ended.success()
    }
}

impl Drop for Retrying {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn letters_that_are_retried_by_a_process_that_is_killed_are_neither_lost_nor_reordered_within_a_key() {
    let (settings, store) = (settings(), memory());
    let broker = broker_at(&address(), &settings);
    let (log, host) = (log_of(&*store), relaying(&store, &broker, &settings));
    for n in 0..EVENTS {
        commit(&*log, &format!("o-{}", n % KEYS), "order_placed", n, 0).await;
    }
    until_published(&host, EVENTS).await;
    let folder = tempfile::tempdir().expect("a folder");
    let effects = folder.path().join("effects");
    assert!(Retrying::start(&settings, folder.path(), "fails").ended().await, "every message became a letter");
    assert!(!Retrying::start(&settings, folder.path(), &DIES_AFTER.to_string()).ended().await, "it was killed");
    assert_eq!(effects_in(&effects).len(), DIES_AFTER, "in the middle");
    let lives = Retrying::start(&settings, folder.path(), "0");
    until("all are processed", async || {
        let (first, _) = first_by_key(&effects_in(&effects));
        (first.values().map(Vec::len).sum::<usize>() == EVENTS as usize).then_some(())
    })
    .await;
    let (first, again) = first_by_key(&effects_in(&effects));
    assert_eq!(first, keys_in_turn(KEYS, EVENTS), "in order per key");
    assert!(again >= 1, "the one whose success was not stored is processed again");
    drop(lives);
    host.drain().await;
}
