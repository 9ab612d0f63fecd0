//! kill -9 under very many dead letters: the act that retries them takes no memory for each, none is lost, and a key keeps its order.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use annals::dead_letters::{
    BulkAct, BulkBody, BulkRecord, DeadLetters, INLINE_BYTES_MAX, LetterOrder, LetterPolicy, LetterSettings,
};
use annals::groups::{GroupDefinition, Groups};
use annals::handlers::{PullBody, SettleBody, Settlement};
use annals::processing::{ProcessingRetry, Then};
use annals::{Condition, Data, EventLog, NewCommit, NewEvent, TypedRecords};

use crate::letters::{because, client, killed, open, start};
use crate::number;

/// Keys with letters, and the size of a letter: in a run of the tests, and in `cargo xtask soak`. The data of an event is in its letter if
/// it is not larger than [`INLINE_BYTES_MAX`]. So the letters of either are more than a bulk act may add to the memory.
const EXTENT: Extent = Extent { keys: 450, letter_bytes: 15 * 1024 };
const SOAK: Extent = Extent { keys: 10_000, letter_bytes: 6 * 1024 };
/// Letters of a key.
const EACH: u64 = 10;
/// What a bulk act may add to the memory of the server, in KiB.
const MORE_MAX: u64 = 64 * 1024;
/// It is there to end a run that is stuck.
const LIMIT: Duration = Duration::from_secs(1_800);
const GROUP: &str = "results";

#[derive(Clone, Copy)]
struct Extent {
    keys: u64,
    letter_bytes: usize,
}

/// The places in their commits of the events that were settled, by key and in order.
type Settled = BTreeMap<String, Vec<u32>>;

#[test]
fn many_letters_are_retried_in_constant_memory_and_a_kill_halfway_loses_and_reorders_none() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let extent = if number("ANNALS_SOAK_SECONDS").is_some() { SOAK } else { EXTENT };
        tokio::time::timeout(LIMIT, run(extent)).await.expect("the run ends in time");
    });
}

async fn run(extent: Extent) {
    let keys = extent.keys;
    let bytes = keys * EACH * extent.letter_bytes as u64;
    assert!(extent.letter_bytes < INLINE_BYTES_MAX && bytes > MORE_MAX * 1024, "{bytes} bytes prove nothing");
    let (folder, letters) = (tempfile::tempdir().expect("a temporary folder"), keys * EACH);
    let mut server = start(&folder).await;
    begin(&server.url, extent).await;
    fail_all(&server.url, letters).await;
    retry_half(&server.url, server.id(), letters).await;
    server = killed(server, &folder).await;
    until_retried(&server.url, letters).await;
    let mut settled = Settled::new();
    consume(&server.url, letters / 2, &mut settled).await;
    // Deliveries that nobody settled come again.
    let pull = PullBody { max: 10, worker: "lost".to_owned(), ..PullBody::default() };
    client(&server.url).groups().pull(GROUP, pull).await.expect("pulled");
    server = killed(server, &folder).await;
    consume(&server.url, letters, &mut settled).await;
    assert_eq!(settled.len() as u64, keys);
    for (key, places) in &settled {
        assert!(places.iter().copied().map(u64::from).eq(0..EACH), "{key}: {places:?}");
    }
    let counted = client(&server.url).dead_letters().statistics().await.expect("counted");
    let topic = &counted.topics[0];
    assert_eq!((counted.open, topic.status_breakdown.get("retried").copied()), (0, Some(letters)));
    let exit = tokio::task::spawn_blocking(|| server.terminate()).await.expect("it is stopped");
    assert_eq!(exit, Some(0));
}

/// Defines the group, whose letters wait for a person, and commits its events.
async fn begin(url: &str, Extent { keys, letter_bytes }: Extent) {
    let client = client(url);
    client.dead_letters().put_policy("placed".into(), LetterPolicy::manual(), because("a test")).await.expect("stored");
    let retry = ProcessingRetry { attempts: Some(1), then: Then::Park, ..ProcessingRetry::default() };
    let dead_letters = LetterSettings { order: LetterOrder::Wait, breaker: 0 };
    let definition = GroupDefinition { retry, dead_letters, in_flight: 64, ..GroupDefinition::new(GROUP, ["placed"]) };
    client.groups().put(definition).await.expect("defined");
    for key in 0..keys {
        let placed = |n: u64| {
            let data = serde_json::json!({ "n": n, "text": "x".repeat(letter_bytes) });
            NewEvent::new("placed", Data::from_value(&data).expect("data"))
        };
        let commit = NewCommit::new("order", format!("o-{key}"));
        let commit = (0..EACH).fold(commit, |commit, n| commit.event(placed(n)));
        client.commit(commit).await.expect("committed");
    }
}

/// Lets the first message of each key fail; the others of the key become letters behind it.
async fn fail_all(url: &str, letters: u64) {
    let groups = client(url).groups();
    loop {
        let pull = PullBody { max: 64, wait_ms: 100, worker: "w".to_owned(), ..PullBody::default() };
        let pulled = groups.pull(GROUP, pull).await.expect("pulled");
        let results: Vec<_> = pulled.into_iter().map(|it| Settlement::failed(it.token, "down")).collect();
        if !results.is_empty() {
            groups.settle(GROUP, SettleBody { results }).await.expect("settled");
        } else if open(url).await == letters {
            return;
        }
    }
}

/// Begins a bulk act on all letters, and returns when half of them are changed, before the answer.
async fn retry_half(url: &str, process: u32, letters: u64) {
    let before = resident(process);
    let of_act = client(url).dead_letters();
    let body = BulkBody {
        condition: Some(Condition::All),
        ids: None,
        reason: "the database is up".to_owned(),
        by: None,
        dry_run: false,
    };
    let act = tokio::spawn(async move { of_act.bulk(BulkAct::Retry, body).await });
    let (acts, mut most) = (acts(url), before);
    while !act.is_finished() && changed(&acts).await.is_none_or(|act| act.successful.unsigned_abs() < letters / 2) {
        most = most.max(resident(process));
    }
    let more = most.max(resident(process)).saturating_sub(before);
    assert!(more <= MORE_MAX, "{more} KiB more for {letters} letters ");
    // An act that was over before it was looked at leaves nothing to finish.
    act.abort();
}

/// The process that follows finishes the act, and counts each letter once.
async fn until_retried(url: &str, letters: u64) {
    let acts = acts(url);
    loop {
        if let Some(act) = changed(&acts).await.filter(|act| act.done) {
            assert_eq!((act.successful.unsigned_abs(), act.failed), (letters, 0));
            return;
        }
    }
}

fn acts(url: &str) -> TypedRecords<BulkRecord> {
    TypedRecords::declared(Arc::new(client(url).records()))
}

/// How far the only bulk act is; none before it begins.
async fn changed(acts: &TypedRecords<BulkRecord>) -> Option<BulkRecord> {
    let (found, _) = acts.find(TypedRecords::<BulkRecord>::query().limit(1)).await.ok()?;
    found.into_iter().next().map(|stored| stored.value)
}

/// Processes letters until so many have been in all.
async fn consume(url: &str, count: u64, settled: &mut Settled) {
    let groups = client(url).groups();
    let mut done: u64 = settled.values().map(|places| places.len() as u64).sum();
    while done < count {
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
            settled.entry(key).or_default().push(delivery.event.ordinal);
            done += 1;
        }
    }
}

/// The kilobytes of memory that a process has.
fn resident(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("a process of Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}
