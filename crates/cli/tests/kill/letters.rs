//! kill -9 under dead letters: none is lost, none comes twice once it was settled, those of a key come in order, and a bulk act that was
//! cut short is finished.

use std::collections::BTreeMap;

use annals::dead_letters::{
    BulkAct, BulkBody, DEAD_LETTERS, DeadLetter, DeadLetters, LetterOrder, LetterPolicy, LetterQuery, LetterSettings,
    LetterStatus, LetterView,
};
use annals::groups::{GroupDefinition, Groups};
use annals::handlers::{PullBody, Reason, SettleBody, Settlement};
use annals::processing::{ProcessingRetry, Then};
use annals::{Client, Condition, Data, EventLog, NewCommit, NewEvent, RecordError, Records};
use fastrand::Rng;

use crate::process::Server;
use crate::{LIMIT, ShownOnFailure, number};

/// Events, each of which becomes a letter: several pages of a bulk act.
const EVENTS: u64 = 500;
const KEYS: u64 = 20;
/// How often the server is killed while letters are processed.
const CYCLES: usize = 3;
const GROUP: &str = "results";

/// The versions that were settled of each key, in order.
type Settled = BTreeMap<String, Vec<u64>>;

#[test]
fn a_bulk_retry_that_is_killed_loses_no_letter_and_keeps_the_order_of_keys() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let seed = number("ANNALS_KILL_SEED").unwrap_or_else(|| fastrand::u64(..));
        let _seed = ShownOnFailure(seed);
        tokio::time::timeout(LIMIT, run(Rng::with_seed(seed))).await.expect("the run ends in time");
    });
}

async fn run(mut rng: Rng) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut server = start(&folder).await;
    begin(&server.url).await;
    fail_all(&server.url).await;
    server = killed(server, &folder).await;
    assert_eq!(open(&server.url).await, EVENTS, "no letter is lost");
    retry_all_until_some_are_asked(&server.url).await;
    server = killed(server, &folder).await;
    until_all_asked(&server.url).await;
    let mut settled = Settled::new();
    for _ in 0..CYCLES {
        consume(&server.url, rng.usize(50..200), &mut settled).await;
        // Deliveries that nobody settled come again.
        let pull = PullBody { max: 3, worker: "lost".to_owned(), ..PullBody::default() };
        client(&server.url).groups().pull(GROUP, pull).await.expect("pulled");
        server = killed(server, &folder).await;
    }
    consume(&server.url, usize::MAX, &mut settled).await;
    for (key, versions) in &settled {
        assert_eq!(*versions, (1..=EVENTS / KEYS).collect::<Vec<_>>(), "{key}");
    }
    assert_eq!(settled.len() as u64, KEYS);
    assert!(all(&server.url).await.iter().all(|letter| letter.status == LetterStatus::Retried));
    let exit = tokio::task::spawn_blocking(|| server.terminate()).await.expect("it is stopped");
    assert_eq!(exit, Some(0));
}

pub async fn start(folder: &tempfile::TempDir) -> Server {
    let folder = folder.path().to_owned();
    tokio::task::spawn_blocking(move || Server::start(&folder)).await.expect("the server starts")
}

pub async fn killed(server: Server, folder: &tempfile::TempDir) -> Server {
    tokio::task::spawn_blocking(|| server.kill()).await.expect("it is killed");
    start(folder).await
}

pub fn client(url: &str) -> Client {
    Client::new(url, annals::DEFAULT_TENANT, annals::DEFAULT_SCOPE).expect("an address")
}

pub fn because(reason: &str) -> Reason {
    Reason { reason: reason.to_owned(), by: None }
}

/// Defines the group, whose letters wait for a person, and commits its events.
async fn begin(url: &str) {
    let client = client(url);
    client.dead_letters().put_policy("placed".into(), LetterPolicy::manual(), because("a test")).await.expect("stored");
    let retry = ProcessingRetry { attempts: Some(1), then: Then::Park, ..ProcessingRetry::default() };
    let dead_letters = LetterSettings { order: LetterOrder::Pass, breaker: 0 };
    let definition = GroupDefinition { retry, dead_letters, in_flight: 64, ..GroupDefinition::new(GROUP, ["placed"]) };
    client.groups().put(definition).await.expect("defined");
    for n in 0..EVENTS / KEYS {
        for key in 0..KEYS {
            let data = Data::from_value(&serde_json::json!({ "n": n })).expect("data");
            let commit = NewCommit::new("order", format!("o-{key}")).event(NewEvent::new("placed", data));
            client.commit(commit).await.expect("committed");
        }
    }
}

/// Lets every message fail, so that each becomes a letter.
async fn fail_all(url: &str) {
    let groups = client(url).groups();
    let mut failed = 0;
    while failed < EVENTS {
        let pull = PullBody { max: 64, wait_ms: 100, worker: "w".to_owned(), ..PullBody::default() };
        let pulled = groups.pull(GROUP, pull).await.expect("pulled");
        let results: Vec<_> = pulled.into_iter().map(|it| Settlement::failed(it.token, "down")).collect();
        if results.is_empty() {
            continue;
        }
        let settled = groups.settle(GROUP, SettleBody { results }).await.expect("settled");
        failed += settled.iter().filter(|result| result.settled).count() as u64;
    }
    assert_eq!(open(url).await, EVENTS);
}

/// Counts the open letters by their index. The statistics read each letter.
pub async fn open(url: &str) -> u64 {
    match client(url).records().count(DEAD_LETTERS, &DeadLetter::open()).await {
        Err(RecordError::UnknownCollection(_)) => 0,
        count => count.expect("counted"),
    }
}

async fn all(url: &str) -> Vec<LetterView> {
    let letters = client(url).dead_letters();
    let (mut found, mut cursor) = (Vec::new(), None);
    loop {
        let query = LetterQuery { limit: Some(500), cursor, ..LetterQuery::default() };
        let page = letters.list(query).await.expect("listed");
        found.extend(page.items);
        cursor = page.cursor;
        if cursor.is_none() {
            return found;
        }
    }
}

fn asked(letter: &LetterView) -> usize {
    letter.history.iter().filter(|entry| &*entry.what == "retry_asked").count()
}

/// Begins a bulk act, and waits until some of its letters are changed.
async fn retry_all_until_some_are_asked(url: &str) {
    let letters = client(url).dead_letters();
    let body = BulkBody {
        condition: Some(Condition::All),
        ids: None,
        reason: "the database is up".to_owned(),
        by: None,
        dry_run: false,
    };
    let first = format!("group.{GROUP}.0");
    let mut act = tokio::spawn(async move { letters.bulk(BulkAct::Retry, body).await });
    let watched = client(url).dead_letters();
    loop {
        tokio::select! {
            biased;
            ended = &mut act => {
                // A fast machine: the act is over, which leaves nothing to finish.
                ended.expect("it ended").expect("it is done");
                return;
            }
            letter = watched.get(&first) => if asked(&letter.expect("kept")) > 0 { return },
        }
    }
}

/// The process that follows finishes the act: every letter was asked for once.
async fn until_all_asked(url: &str) {
    loop {
        let letters = all(url).await;
        assert!(letters.iter().all(|letter| asked(letter) <= 1), "a letter was asked for twice");
        if letters.len() as u64 == EVENTS && letters.iter().all(|letter| asked(letter) == 1) {
            return;
        }
    }
}

/// Processes so many letters, or all of them.
async fn consume(url: &str, count: usize, settled: &mut Settled) {
    let groups = client(url).groups();
    let mut done = 0;
    while done < count && open(url).await > 0 {
        let pull = PullBody { max: 64, wait_ms: 100, worker: "w".to_owned(), ..PullBody::default() };
        let pulled = groups.pull(GROUP, pull).await.expect("pulled");
        if pulled.is_empty() {
            continue;
        }
        let results = pulled.iter().map(|it| Settlement::done(it.token.clone())).collect();
        let answers = groups.settle(GROUP, SettleBody { results }).await.expect("settled");
        for (delivery, answer) in pulled.into_iter().zip(answers) {
            assert!(answer.settled, "{answer:?}");
            let key = delivery.partition.expect("a key").to_string();
            settled.entry(key).or_default().push(delivery.event.commit.version);
            done += 1;
        }
    }
}
