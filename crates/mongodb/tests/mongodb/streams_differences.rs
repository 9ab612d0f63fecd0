//! Random runs beside the model: two processes, closed and opened now and then, every answer compared.
//!
//! `ANNALS_STREAMS_SEEDS=n` runs seeds 0 to n - 1 instead of the few that always run.

use std::sync::Arc;

use annals_conformance::streams::StreamsModel;
use annals_core::{ByteString, Included, Partitions, Store, StreamQuery, Streams, StreamsQuery, Verdicts, limits};
use annals_mongodb::{MongoStore, Options};

use crate::server::Databases;
use crate::streams::{streams_of, write};

const STREAMS: [&str; 4] = ["s", "stream-1", "public-stream-323bcdb2-5bbd-4f13-a7c3-b19bc2cc2452", "never"];
const PARTITIONS: [&str; 5] = ["a", "b", "ab", "rare", "日本"];

struct Run {
    random: fastrand::Rng,
    model: StreamsModel,
    log_head: u64,
}

impl Run {
    fn partition(&mut self) -> Option<ByteString> {
        match self.random.u32(0..100) {
            0..30 => None,
            30..60 => Some(PARTITIONS[0].into()),
            60..90 => Some(PARTITIONS[self.random.usize(1..5)].into()),
            _ => Some(format!("only {}", self.random.u32(..)).into()),
        }
    }

    /// Verdicts on a range, by dice.
    fn verdicts(&mut self, stream: &str, from: u64, to: u64) -> Verdicts {
        let odds = self.random.u8(0..=4);
        let numbers: Vec<u64> = (from..to).filter(|_| self.random.u8(0..4) < odds).collect();
        let included = numbers.into_iter().map(|n| Included { sequence_number: n, partition: self.partition() });
        Verdicts { included: included.collect(), ..Verdicts::new(stream, from..to) }
    }

    /// What the stream says of a range, so that it is a repeat where it was judged.
    fn known(&self, stream: &str, from: u64, to: u64) -> Verdicts {
        let all = self.model.read(&StreamQuery { limit: usize::MAX, ..StreamQuery::new(stream) }).entries;
        let within = all.into_iter().filter(|entry| (from..to).contains(&entry.sequence_number));
        let included =
            within.map(|entry| Included { sequence_number: entry.sequence_number, partition: entry.partition });
        Verdicts { included: included.collect(), ..Verdicts::new(stream, from..to) }
    }

    fn next_append(&mut self) -> Verdicts {
        let stream = STREAMS[self.random.usize(0..3)];
        let progress = self.model.stream(stream).progress;
        match self.random.u8(0..10) {
            0..6 => {
                let to = progress + self.random.u64(0..=(self.log_head - progress).min(300));
                self.verdicts(stream, progress, to)
            }
            6..9 => {
                let (a, b) = (self.random.u64(0..=progress), self.random.u64(0..=progress));
                let mut again = self.known(stream, a.min(b), a.max(b));
                if self.random.u8(0..4) == 0 && !again.included.is_empty() {
                    let at = self.random.usize(0..again.included.len());
                    match self.random.bool() {
                        true => drop(again.included.remove(at)),
                        false => again.included[at].partition = self.partition(),
                    }
                }
                again
            }
            _ => {
                let (a, b) = (self.random.u64(0..=self.log_head), self.random.u64(0..=self.log_head + 3));
                self.verdicts(stream, a.min(b), a.max(b))
            }
        }
    }

    fn query(&mut self) -> StreamQuery {
        let stream = STREAMS[self.random.usize(0..4)];
        let head = self.model.stream(stream).head;
        let (a, b) = (self.random.u64(0..head + 5), self.random.u64(0..head + 5));
        let partitions = match self.random.u8(0..3) {
            0 => Partitions::All,
            _ => self.partition().map_or(Partitions::Without, Partitions::One),
        };
        let to = if self.random.bool() { a.max(b) } else { u64::MAX };
        StreamQuery { stream: stream.into(), from: a.min(b), to, limit: self.random.usize(1..=1_000), partitions }
    }

    async fn step(&mut self, store: &MongoStore) {
        let streams = streams_of(store);
        match self.random.u8(0..12) {
            0 => {
                let events = self.random.u64(1..200);
                write(store, events).await;
                self.log_head += events;
            }
            1..6 => {
                let verdicts = self.next_append();
                let expected = self.model.append(&verdicts, self.log_head);
                assert_eq!(streams.append(verdicts.clone()).await, expected, "{verdicts:?}");
            }
            6..9 => {
                let query = self.query();
                assert_eq!(streams.read(query.clone()).await, Ok(self.model.read(&query)), "{query:?}");
                let with_events = streams.read_events(query.clone()).await.expect("a page");
                let there = with_events.events.iter().map(|event| (event.position, event.event.sequence_number));
                let due = self.model.read(&query).entries;
                let due = due.iter().map(|entry| (entry.position, entry.sequence_number));
                assert!(there.eq(due), "{query:?}");
            }
            9 => {
                let all = StreamsQuery { after: None, limit: self.random.usize(1..4) };
                assert_eq!(streams.list(all.clone()).await, Ok(self.model.list(&all)));
            }
            _ => {
                let (stream, number) = (STREAMS[self.random.usize(0..4)], self.random.u64(0..=self.log_head));
                let expected = self.model.position_of(stream, number);
                assert_eq!(streams.position_of(stream, number).await, Ok(expected), "{stream} {number}");
            }
        }
    }

    async fn compare(&self, streams: &Arc<dyn Streams>) {
        for stream in STREAMS {
            assert_eq!(streams.stream(stream).await, Ok(self.model.stream(stream)));
            let mut query = StreamQuery { limit: limits::PAGE_MAX, ..StreamQuery::new(stream) };
            loop {
                let page = self.model.read(&query);
                assert_eq!(streams.read(query.clone()).await, Ok(page.clone()), "{query:?}");
                if page.entries.is_empty() {
                    break;
                }
                query.from = page.next;
            }
        }
    }
}

async fn run(seed: u64) {
    let databases = Databases::new();
    let mut run = Run { random: fastrand::Rng::with_seed(seed), model: StreamsModel::default(), log_head: 0 };
    for _ in 0..run.random.usize(1..4) {
        let stores = [databases.store(Options::default()).await, databases.store(Options::default()).await];
        write(&stores[0], 50).await;
        run.log_head += 50;
        for _ in 0..run.random.usize(20..60) {
            let store = &stores[run.random.usize(0..2)];
            run.step(store).await;
        }
        run.compare(&streams_of(&stores[1])).await;
        for store in stores {
            store.close().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_do_what_the_model_does() {
    let asked = std::env::var("ANNALS_STREAMS_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    for seed in 0..asked.unwrap_or(2) {
        println!("seed {seed}");
        run(seed).await;
    }
}
