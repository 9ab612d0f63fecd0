//! Streams beside the model of `annals-conformance`.

use std::sync::Arc;

use annals_conformance::streams::StreamsModel;
use annals_core::{
    DEFAULT_SCOPE, DEFAULT_TENANT, Data, Included, NewCommit, NewEvent, Partitions, Store, StreamQuery, Streams,
    StreamsQuery, Verdicts,
};
use annals_embedded::Options;

use crate::lives::{Modelled, beside_its_model};
use crate::stores::{Opened, block_on, repeatable};

const STREAMS: [&str; 4] = ["s", "stream-1", "stream-10", "never"];
const PARTITIONS: [&str; 5] = ["a", "b", "ab", "rare", "日本"];

/// What one seed does.
pub struct Run {
    random: fastrand::Rng,
    model: StreamsModel,
    log_head: u64,
}

impl Run {
    async fn commit(&mut self, opened: &Opened) {
        let events = (0..self.random.u64(1..300)).map(|_| NewEvent::new("t", Data::empty())).collect::<Vec<_>>();
        self.log_head += events.len() as u64;
        let commit = NewCommit { events, ..NewCommit::new("order", "a") };
        opened.log.commit(commit).await.expect("it is committed");
    }

    fn any_partition(&mut self) -> Option<annals_core::ByteString> {
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
        let included =
            numbers.into_iter().map(|sequence_number| Included { sequence_number, partition: self.any_partition() });
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
        let any = |random: &mut fastrand::Rng, end: u64| random.u64(0..=end);
        match self.random.u8(0..10) {
            0..6 => {
                let to = progress + any(&mut self.random, (self.log_head - progress).min(700));
                self.verdicts(stream, progress, to)
            }
            6..9 => {
                let (a, b) = (any(&mut self.random, progress), any(&mut self.random, progress));
                let mut again = self.known(stream, a.min(b), a.max(b));
                if self.random.u8(0..4) == 0 && !again.included.is_empty() {
                    let at = self.random.usize(0..again.included.len());
                    match self.random.bool() {
                        true => drop(again.included.remove(at)),
                        false => again.included[at].partition = self.any_partition(),
                    }
                }
                again
            }
            _ => {
                let (a, b) = (any(&mut self.random, self.log_head), any(&mut self.random, self.log_head + 3));
                self.verdicts(stream, a.min(b), a.max(b))
            }
        }
    }

    fn any_query(&mut self) -> StreamQuery {
        let stream = STREAMS[self.random.usize(0..4)];
        let head = self.model.stream(stream).head;
        let (a, b) = (self.random.u64(0..head + 5), self.random.u64(0..head + 5));
        let partitions = match self.random.u8(0..3) {
            0 => Partitions::All,
            _ => self.any_partition().map_or(Partitions::Without, Partitions::One),
        };
        let to = if self.random.bool() { a.max(b) } else { u64::MAX };
        StreamQuery { stream: stream.into(), from: a.min(b), to, limit: self.random.usize(1..=1_000), partitions }
    }
}

impl Modelled for Run {
    fn begin(seed: u64) -> Self {
        Self { random: fastrand::Rng::with_seed(seed), model: StreamsModel::default(), log_head: 0 }
    }

    fn random(&mut self) -> &mut fastrand::Rng {
        &mut self.random
    }

    fn options(&mut self) -> Options {
        Options { segment_bytes_max: 60_000, ..repeatable(self.random.u64(..)) }
    }

    async fn work(&mut self, opened: &Opened) -> Result<(), String> {
        let streams = streams_of(opened);
        for _ in 0..self.random.usize(1..25) {
            match self.random.u8(0..10) {
                0 | 1 => self.commit(opened).await,
                2..7 => {
                    let verdicts = self.next_append();
                    let expected = self.model.append(&verdicts, self.log_head);
                    same(&verdicts, streams.append(verdicts.clone()).await, expected)?;
                }
                7 | 8 => {
                    let query = self.any_query();
                    same(&query, streams.read(query.clone()).await, Ok(self.model.read(&query)))?;
                }
                _ => {
                    let (stream, number) = (STREAMS[self.random.usize(0..4)], self.random.u64(0..=self.log_head));
                    let expected = self.model.position_of(stream, number);
                    same(&(stream, number), streams.position_of(stream, number).await, Ok(expected))?;
                }
            }
        }
        Ok(())
    }

    /// Every stream, whole and by partition, compared with the model's.
    async fn compare(&self, opened: &Opened) -> Result<u64, String> {
        let streams = streams_of(opened);
        let all = StreamsQuery::default();
        same(&"the list", streams.list(all.clone()).await, Ok(self.model.list(&all)))?;
        let faults = opened.store.check_streams(DEFAULT_TENANT, DEFAULT_SCOPE).map_err(|error| error.to_string())?;
        same(&"the check", faults, Vec::new())?;
        let mut entries = 0;
        for stream in STREAMS {
            let partitions = PARTITIONS.map(|name| Partitions::One(name.into())).into_iter();
            for partitions in partitions.chain([Partitions::All, Partitions::Without]) {
                let mut query = StreamQuery { limit: 1_000, partitions, ..StreamQuery::new(stream) };
                loop {
                    let page = self.model.read(&query);
                    same(&query, streams.read(query.clone()).await, Ok(page.clone()))?;
                    if page.entries.is_empty() {
                        break;
                    }
                    query.from = page.next;
                }
            }
            entries += self.model.stream(stream).head;
        }
        Ok(entries)
    }
}

fn streams_of(opened: &Opened) -> Arc<dyn Streams> {
    opened.store.streams(DEFAULT_TENANT, DEFAULT_SCOPE).expect("the default scope exists")
}

fn same<T: PartialEq + std::fmt::Debug>(asked: &impl std::fmt::Debug, answer: T, expected: T) -> Result<(), String> {
    if answer == expected {
        return Ok(());
    }
    let message = format!("{asked:?} was answered {answer:?}, not {expected:?}");
    Err(message.chars().take(4_000).collect())
}

/// The most lives of a seed.
pub const LIVES_MAX: usize = 8;

#[test]
fn streams_that_are_closed_killed_or_lose_power_do_what_the_model_does() {
    let lived = |seed| block_on(beside_its_model::<Run>(seed, LIVES_MAX, |_| {}));
    let entries: u64 = (0..60).map(|seed| lived(seed).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"))).sum();
    assert!(entries > 10_000, "only {entries} entries were appended");
}
