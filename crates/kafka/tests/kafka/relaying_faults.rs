//! The relay while its broker is killed, and while it is killed itself.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use annals_core::relay::RelayState;
use annals_core::{Publisher, PublisherIdentity, Store};
use annals_embedded::disk::RealDisk;
use annals_embedded::{EmbeddedStore, Options};
use annals_kafka::KafkaBroker;

use crate::broker_process::Kafka;
use crate::dying::Dying;
use crate::support::{
    address, broker_at, commit, consumed_by_kafka, log_of, memory, relaying, relaying_by, settings, until,
    until_published,
};

/// How often a relay is killed at a random moment: in a run of the tests, and at least in `cargo xtask soak`.
const ROUNDS: (usize, usize) = (8, 100);
/// How many steps a relay has until its third batch is published.
const STEPS: usize = 12;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_broker_is_away_commits_continue_and_the_relay_catches_up_when_it_is_back() {
    let mut kafka = Kafka::start().await;
    let (settings, store) = (settings(), memory());
    let broker = broker_at(&kafka.address(), &settings);
    let log = log_of(&*store);
    let host = relaying(&store, &broker, &settings);
    let mut expected: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    let mut commits = async |count: u64| {
        for n in 0..count {
            let id = format!("o-{}", n % 7);
            let number = commit(&*log, &id, "order_placed", n, 50).await;
            expected.entry(id).or_default().push(number);
        }
    };
    commits(200).await;
    until_published(&host, 100).await;
    for round in 0..2 {
        kafka.kill();
        commits(300).await;
        let retrying = until("the relay notices", async || {
            host.relays().into_iter().find(|relay| relay.state == RelayState::Retrying)
        });
        let status = retrying.await;
        assert!(status.lag > 0 && status.last_error.is_some(), "round {round}: {status:?}");
        kafka.start_again().await;
        commits(100).await;
        until_published(&host, 200 + 400 * (round + 1)).await;
    }
    let found = tokio::task::spawn_blocking(move || consumed_by_kafka(&kafka.address(), &settings, 1_000));
    assert_eq!(found.await.expect("consumed"), expected);
    host.drain().await;
}

/// What this process is to do when it is the relay of a test: the address, the prefix of the topics, and the folder of the store.
const CHILD: &str = "ANNALS_KAFKA_TEST_CHILD";

/// Not a test: the process that tests below kill. It commits to a store, and relays it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_commits_and_relays() {
    let Ok(what) = std::env::var(CHILD) else { return };
    let [address, prefix, folder, commits, dies_at] = what.split('|').collect::<Vec<_>>()[..] else { panic!("{what}") };
    let settings = annals_core::TopicSettings { prefix: prefix.to_owned(), ..Default::default() };
    let store: Arc<dyn Store> =
        Arc::new(EmbeddedStore::open(Arc::new(RealDisk::new(folder)), Options::default()).expect("the store opens"));
    let (broker, log) = (broker_at(address, &settings), log_of(&*store));
    let dying = Arc::new(Dying::at(dies_at.parse().expect("a number"), broker));
    let host = relaying_by(&store, dying, &settings);
    let commits: u64 = commits.parse().expect("a number");
    let committing = async {
        while log.head().await.expect("a head") < commits {
            let n = log.head().await.expect("a head");
            commit(&*log, &format!("o-{}", n % 7), "order_placed", n, 30).await;
        }
    };
    let stopping = async {
        let stopped = loop {
            let relay = host.relays().into_iter().find(|relay| relay.state == RelayState::Stopped);
            if let Some(relay) = relay {
                break relay;
            }
            // tidy: allow(pause) between two looks at the relay
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        std::fs::write(refusal_of(Path::new(folder)), stopped.last_error.unwrap_or_default()).expect("written");
    };
    tokio::join!(committing, stopping);
    std::future::pending::<()>().await;
}

/// Returns the file in which the process of a folder notes why its relay has stopped.
fn refusal_of(folder: &Path) -> PathBuf {
    folder.with_extension("refused")
}

/// A relay in a process of its own.
struct Relay(Child);

impl Relay {
    fn start(prefix: &str, folder: &Path, commits: u64) -> Self {
        Self::that_dies(prefix, folder, commits, usize::MAX)
    }

    /// One that kills itself at a step.
    fn that_dies(prefix: &str, folder: &Path, commits: u64, at: usize) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--exact", "relaying_faults::a_process_that_commits_and_relays", "--nocapture"]);
        command.env(CHILD, format!("{}|{prefix}|{}|{commits}|{at}", address(), folder.display()));
        Self(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts"))
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([&format!("-{signal}"), &self.0.id().to_string()]).status();
        assert!(sent.is_ok_and(|status| status.success()), "it gets {signal}");
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How far the store in a folder is published, and how many events it has.
async fn state_of(broker: &KafkaBroker, folder: &Path) -> (u64, u64, Vec<String>) {
    let store = EmbeddedStore::open(Arc::new(RealDisk::new(folder)), Options::default()).expect("the store opens");
    let identity = store.identity("default").expect("the tenant");
    let identity = PublisherIdentity { tenant: "default".to_owned(), store: identity };
    let mut publisher = annals_core::Broker::publisher(broker, &identity).await.expect("opened").expect("copies");
    let position = Publisher::position(&mut *publisher).await.expect("read").map_or(0, |position| position.next);
    let log = log_of(&store);
    let head = log.head().await.expect("a head");
    let page = annals_core::LogQuery { limit: 1_000, ..Default::default() };
    let mut ids = Vec::new();
    let mut from = 0;
    while from < head {
        let found = log.read(annals_core::LogQuery { from: Some(from), ..page.clone() }).await.expect("a page");
        ids.extend(found.events.iter().map(|event| event.commit.aggregate.id.to_string()));
        from = found.next;
    }
    store.close().await;
    (position, head, ids)
}

fn by_key(ids: &[String]) -> BTreeMap<String, Vec<u64>> {
    let mut expected: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for (number, id) in ids.iter().enumerate() {
        expected.entry(id.clone()).or_default().push(number as u64);
    }
    expected
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_that_is_killed_at_any_moment_publishes_every_event_once_and_in_order() {
    let settings = settings();
    let folder = tempfile::tempdir().expect("a folder");
    let broker = broker_at(&address(), &settings);
    let seconds = std::env::var("ANNALS_SOAK_SECONDS").ok().and_then(|text| text.parse().ok());
    let begun = tokio::time::Instant::now();
    let (mut round, mut goal) = (0, 0);
    let rounds = if seconds.is_some() { ROUNDS.1 } else { ROUNDS.0 };
    while round < rounds || seconds.is_some_and(|seconds| begun.elapsed().as_secs() < seconds) {
        let relay = Relay::start(&settings.prefix, folder.path(), u64::MAX);
        // Somewhere while it starts, opens the publisher, and publishes.
        let moment = Duration::from_millis(fastrand::u64(100..2_500));
        // tidy: allow(pause) the moment of the kill is what the test varies
        tokio::time::sleep(moment).await;
        relay.signal("KILL");
        drop(relay);
        let (position, head, _) = state_of(&broker, folder.path()).await;
        assert!(position <= head && position >= goal, "it never goes back: {goal}, {position}, {head}");
        (round, goal) = (round + 1, position);
    }
    let (_, head, ids) = state_of(&broker, folder.path()).await;
    assert!(head > 0, "it commits");
    let relay = Relay::start(&settings.prefix, folder.path(), 0);
    let topic = settings.topic_of("order_placed");
    until("all is published", async || {
        let messages = crate::support::read_all(&broker, &topic).await;
        (messages.len() as u64 >= head).then_some(())
    })
    .await;
    let found =
        tokio::task::spawn_blocking(move || consumed_by_kafka(&address(), &settings, ids.len()).eq(&by_key(&ids)));
    assert!(found.await.expect("consumed"), "every event once and in order");
    drop(relay);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_that_is_killed_before_and_after_each_of_its_steps_publishes_every_event_once_and_in_order() {
    let settings = settings();
    let folder = tempfile::tempdir().expect("a folder");
    let broker = broker_at(&address(), &settings);
    let mut died = 0;
    for step in 1..=STEPS {
        // Its commits go on meanwhile, so each batch has something to publish.
        let mut relay = Relay::that_dies(&settings.prefix, folder.path(), u64::MAX, step);
        until("it dies at its step", async || relay.0.try_wait().expect("known")).await;
        died += 1;
    }
    let (position, head, ids) = state_of(&broker, folder.path()).await;
    assert!(died == STEPS && position > 0 && position <= head, "{position} of {head}");
    let relay = Relay::start(&settings.prefix, folder.path(), 0);
    let topic = settings.topic_of("order_placed");
    until("all is published", async || {
        (crate::support::read_all(&broker, &topic).await.len() as u64 >= head).then_some(())
    })
    .await;
    let found =
        tokio::task::spawn_blocking(move || consumed_by_kafka(&address(), &settings, ids.len()).eq(&by_key(&ids)));
    assert!(found.await.expect("consumed"), "every event once and in order");
    drop(relay);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_relays_of_one_store_the_one_that_slept_publishes_nothing_when_it_wakes() {
    let settings = settings();
    let folders = tempfile::tempdir().expect("a folder");
    let (one, two) = (folders.path().join("one"), folders.path().join("two"));
    let broker = broker_at(&address(), &settings);
    let topic = settings.topic_of("order_placed");
    let count = async || crate::support::read_all(&broker, &topic).await.len() as u64;
    // It commits for as long as it lives, so it has something to publish when it wakes.
    let sleeping = Relay::start(&settings.prefix, &one, u64::MAX);
    until("it publishes", async || (count().await >= 50).then_some(())).await;
    sleeping.signal("STOP");
    // The other one has the same store: a copy of the machine, or one that a cluster manager started too early.
    let copied = Command::new("cp").arg("-r").arg(&one).arg(&two).status();
    assert!(copied.is_ok_and(|status| status.success()), "copied");
    let copy = EmbeddedStore::open(Arc::new(RealDisk::new(&two)), Options::default()).expect("the store opens");
    let all = log_of(&copy).head().await.expect("a head") + 200;
    copy.close().await;
    drop(copy);
    let awake = Relay::start(&settings.prefix, &two, all);
    until("the other one publishes all", async || (count().await >= all).then_some(())).await;
    sleeping.signal("CONT");
    let why = until("the one that slept tries and is refused", async || {
        std::fs::read_to_string(refusal_of(&one)).ok().filter(|why| !why.is_empty())
    });
    let why = why.await;
    assert!(why.contains("another relay of this store"), "{why}");
    drop(awake);
    // Of what the first one has committed since, nothing is on the topic; a third one continues where the second was.
    let (position, head, ids) = state_of(&broker, &two).await;
    assert_eq!((position, head), (all, all));
    let found =
        tokio::task::spawn_blocking(move || consumed_by_kafka(&address(), &settings, ids.len()).eq(&by_key(&ids)));
    assert!(found.await.expect("consumed"), "every event once and in order");
}
