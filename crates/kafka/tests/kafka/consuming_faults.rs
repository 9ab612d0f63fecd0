//! Consumers while their broker is killed, and while they are killed themselves.

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;

use annals_core::{DEFAULT_TENANT, RecordedEvent, TopicSettings};
use annals_runtime::{Consumer, consumer};

use crate::broker_process::Kafka;
use crate::support::{
    Seen, address, broker_at, commit, consuming_host, first_by_key, keys_in_turn, log_of, memory, noting, relaying,
    settings, until, until_published,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_is_killed_and_restarted_during_consumption_loses_nothing_and_keeps_the_order() {
    let mut kafka = Kafka::start().await;
    let (settings, store) = (settings(), memory());
    let broker = broker_at(&kafka.address(), &settings);
    let (log, host) = (log_of(&*store), relaying(&store, &broker, &settings));
    let seen = Seen::default();
    noting("billing", &seen).run(&host, DEFAULT_TENANT).await.expect("it runs");
    let mut count = 0;
    for round in 0..2 {
        for n in count..count + 300 {
            commit(&*log, &format!("o-{}", n % 20), "order_placed", n, 0).await;
        }
        count += 300;
        until("some are processed", async || (seen.lock().expect("no panic").len() > round * 300).then_some(())).await;
        kafka.kill();
        for n in count..count + 100 {
            commit(&*log, &format!("o-{}", n % 20), "order_placed", n, 0).await;
        }
        count += 100;
        kafka.start_again().await;
    }
    until_published(&host, count).await;
    until("all are processed", async || {
        let (first, _) = first_by_key(&seen.lock().expect("no panic"));
        (first.values().map(Vec::len).sum::<usize>() == count as usize).then_some(())
    })
    .await;
    let (first, _) = first_by_key(&seen.lock().expect("no panic"));
    assert_eq!(first, keys_in_turn(20, count));
    host.drain().await;
}

/// What this process is to do when it is the consumer of a test: the prefix of the topics, the file of its effects, and after how many
/// effects it kills itself; 0 for never.
const CHILD: &str = "ANNALS_KAFKA_TEST_CONSUMER";

/// Not a test: the process of the test below. It appends what it processes to a file, and dies between an effect and its offset.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_consumes() {
    let Ok(what) = std::env::var(CHILD) else { return };
    let [prefix, file, dies_after] = what.split('|').collect::<Vec<_>>()[..] else { panic!("{what}") };
    let settings = TopicSettings { prefix: prefix.to_owned(), ..TopicSettings::default() };
    let of_group = appending(file.to_owned(), dies_after.parse().expect("a number"));
    let host = consuming_host(&memory(), &broker_at(&address(), &settings), &settings);
    of_group.run(&host, DEFAULT_TENANT).await.expect("it runs");
    std::future::pending::<()>().await;
}

/// A consumer that appends what it processes to a file, and kills its process after so many effects; 0 for never.
pub fn appending(file: String, dies_after: usize) -> Consumer {
    let effects = Arc::new(std::sync::Mutex::new(0));
    consumer("billing", ["order_placed"]).on("order_placed", move |event: RecordedEvent, _: serde_json::Value| {
        let mut count = effects.lock().expect("no panic");
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(&file).expect("the file opens");
        writeln!(file, "{} {}", event.commit.aggregate.id, event.sequence_number).expect("written");
        *count += 1;
        if *count == dies_after {
            // The effect is there; nothing of this batch is committed, and nothing says goodbye.
            let _ = Command::new("kill").args(["-KILL", &std::process::id().to_string()]).status();
        }
        async { Ok(()) }
    })
}

/// What was appended to such a file: keys and sequence numbers.
pub fn effects_in(file: &std::path::Path) -> Vec<(String, u64)> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let read = |line: &str| {
        let (key, number) = line.split_once(' ')?;
        Some((key.to_owned(), number.parse().ok()?))
    };
    text.lines().filter_map(read).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_that_is_killed_between_effect_and_offset_repeats_that_message_and_loses_none() {
    const EVENTS: u64 = 400;
    let (settings, store) = (settings(), memory());
    let broker = broker_at(&address(), &settings);
    let (log, host) = (log_of(&*store), relaying(&store, &broker, &settings));
    for n in 0..EVENTS {
        commit(&*log, &format!("o-{}", n % 20), "order_placed", n, 0).await;
    }
    until_published(&host, EVENTS).await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("effects");
    let start = |dies_after: usize| {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--exact", "consuming_faults::a_process_that_consumes", "--nocapture"]);
        command.env(CHILD, format!("{}|{}|{dies_after}", settings.prefix, file.display()));
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts")
    };
    for dies_after in [1, 150] {
        let mut dies = start(dies_after);
        until("it dies", async || dies.try_wait().expect("known")).await;
    }
    let mut lives = start(0);
    until("all are processed", async || {
        let (first, _) = first_by_key(&effects_in(&file));
        (first.values().map(Vec::len).sum::<usize>() == EVENTS as usize).then_some(())
    })
    .await;
    let (first, again) = first_by_key(&effects_in(&file));
    assert_eq!(first, keys_in_turn(20, EVENTS), "in order per key");
    assert!(again >= 1, "what was in flight at the kill is processed again");
    lives.kill().expect("killed");
    let _ = lives.wait();
    host.drain().await;
}
