//! The fault battery of streams: filters and readers on a failing disk, life after life.
//!
//! Each filter with a stream of its own is a function of the sequence number, so what a stream must hold follows from its progress.
//! Rivals fill one stream together, and each includes everything, under its own name. Whatever anybody was told in any life, an
//! outcome or an entry or a head, must hold in all later ones.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use annals_core::{
    ByteString, DEFAULT_SCOPE, DEFAULT_TENANT, Data, Included, NewCommit, NewEvent, Partitions, ReadError, Store,
    StoreError, StreamEntry, StreamError, StreamQuery, Streams, Verdicts, limits,
};
use annals_embedded::Options;
use tokio::task::JoinSet;

use crate::faulty_disk::{Fault, FaultyDisk};
use crate::lives::{self, Broken, Lives, run_seeds};
use crate::stores::{Opened, block_on, open, repeatable};

/// The stream that rivals share.
const SHARED: &str = "shared";
const RIVALS: [&str; 3] = ["x", "y", "z"];
const FILTERS: u64 = 3;

/// What anybody was told of a stream.
#[derive(Default, Clone)]
struct Told {
    entries: BTreeMap<u64, StreamEntry>,
    head: u64,
    progress: u64,
}

/// What anybody was told, by stream.
#[derive(Default)]
struct Facts {
    told: Mutex<BTreeMap<String, Told>>,
    broken: Broken,
}

impl Facts {
    fn learn(&self, stream: &str, entries: impl IntoIterator<Item = StreamEntry>, head: u64, progress: u64) {
        let mut all = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let told = all.entry(stream.to_owned()).or_default();
        for entry in entries {
            if let Some(before) = told.entries.insert(entry.position, entry.clone())
                && before != entry
            {
                self.broken.breaks(format!("{stream}: {before:?} was told, and then {entry:?}"));
            }
        }
        told.head = told.head.max(head);
        told.progress = told.progress.max(progress);
    }

    fn told(&self, stream: &str) -> Told {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).get(stream).cloned().unwrap_or_default()
    }
}

fn own_stream(filter: u64) -> String {
    format!("stream-{filter}")
}

/// What a filter with a stream of its own says of an event.
fn judge(filter: u64, number: u64) -> Option<Included> {
    let partition = match number % 7 {
        0 => None,
        1 => Some(format!("only {number}").into()),
        n => Some(ByteString::from(if n < 5 { "common" } else { "other" })),
    };
    number.is_multiple_of(filter + 1).then_some(Included { sequence_number: number, partition })
}

fn streams_of(opened: &Opened) -> Arc<dyn Streams> {
    opened.store.streams(DEFAULT_TENANT, DEFAULT_SCOPE).expect("the default scope exists")
}

/// Appends and learns what it is told. False when the store takes no more.
async fn append(streams: &Arc<dyn Streams>, facts: &Facts, verdicts: Verdicts) -> Result<bool, StreamError> {
    match streams.append(verdicts.clone()).await {
        Ok(outcome) => {
            let included = outcome.positions.clone().zip(verdicts.included);
            let entries = included.map(|(position, Included { sequence_number, partition })| StreamEntry {
                position,
                sequence_number,
                partition,
            });
            facts.learn(&verdicts.stream, entries, outcome.positions.end, verdicts.to);
            Ok(true)
        }
        Err(StreamError::Store(_)) => Ok(false),
        Err(other) => Err(other),
    }
}

/// A filter with a stream of its own: it judges from where it stands and appends some runs twice, as after a lost answer.
async fn filter(filter: u64, streams: Arc<dyn Streams>, facts: Arc<Facts>, events: u64, mut random: fastrand::Rng) {
    let name = own_stream(filter);
    let Ok(info) = streams.stream(&name).await else { return };
    facts.learn(&name, [], info.head, info.progress);
    let mut from = info.progress;
    while from < events {
        let to = (from + random.u64(1..40)).min(events);
        let included = (from..to).filter_map(|number| judge(filter, number)).collect();
        let verdicts = Verdicts { included, ..Verdicts::new(&*name, from..to) };
        for _ in 0..random.usize(1..3) {
            match append(&streams, &facts, verdicts.clone()).await {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => return facts.broken.breaks(format!("{name} {from}..{to}: {error}")),
            }
        }
        from = to;
    }
}

/// One of those who share a stream: each includes everything, under its own name.
async fn rival(
    rival: &'static str,
    streams: Arc<dyn Streams>,
    facts: Arc<Facts>,
    events: u64,
    mut random: fastrand::Rng,
) {
    let mut from = 0;
    while from < events {
        let to = (from + random.u64(1..10)).min(events);
        let included = (from..to).map(|number| Included::of(number, rival)).collect();
        match append(&streams, &facts, Verdicts { included, ..Verdicts::new(SHARED, from..to) }).await {
            Ok(true) => from = to,
            Ok(false) => return,
            Err(StreamError::Moved { progress, .. }) => {
                facts.learn(SHARED, [], 0, progress);
                from = progress;
            }
            Err(StreamError::VerdictsDiffer { .. }) => match streams.stream(SHARED).await {
                Ok(info) => from = info.progress,
                Err(_) => return,
            },
            Err(error) => return facts.broken.breaks(format!("{rival} {from}..{to}: {error}")),
        }
    }
}

/// Reads everything again and again, so that whatever can be seen is told to somebody.
async fn reader(streams: Arc<dyn Streams>, facts: Arc<Facts>) {
    loop {
        for name in (0..FILTERS).map(own_stream).chain([SHARED.to_owned()]) {
            let Ok(info) = streams.stream(&name).await else { return };
            facts.learn(&name, [], info.head, info.progress);
            let from = info.head.saturating_sub(50);
            let query = StreamQuery { from, limit: limits::PAGE_MAX, ..StreamQuery::new(&*name) };
            let Ok(page) = streams.read(query).await else { return };
            facts.learn(&name, page.entries, page.head, 0);
        }
        tokio::task::yield_now().await;
    }
}

/// What the lives of one seed have told.
#[derive(Default)]
pub struct Battery {
    facts: Arc<Facts>,
}

impl lives::Battery for Battery {
    /// Entries of all streams.
    type Checked = u64;

    fn begin(random: &mut fastrand::Rng, change: &dyn Fn(&mut Options)) -> (Self, Options) {
        let mut options = repeatable(random.u64(..));
        options.segment_bytes_first = 20_000;
        options.segment_bytes_max = 20_000;
        change(&mut options);
        (Self::default(), options)
    }

    async fn live(&mut self, lives: &mut Lives, _: usize) -> Result<(), String> {
        let opened = lives.open()?;
        if let Some(refusal) = opened.status().refusing {
            return Err(format!("it was opened damaged: {refusal}"));
        }
        // Events first, without a fault: this battery is about what is built on them.
        let events = (0..lives.random.u64(50..200)).map(|_| NewEvent::new("t", Data::empty())).collect();
        let commit = NewCommit { events, ..NewCommit::new("order", "a") };
        opened.log.commit(commit).await.map_err(|error| error.to_string())?;
        let (operation, power_stays) = (lives.random.u64(0..120), lives.random.bool());
        let fault = lives.any_fault();
        lives.plan(operation, fault);
        let (filters, readers) = self.filters_and_readers(lives, &opened);
        lives.watch(filters, readers).await?;
        lives.close_now_and_then(&opened.store).await?;
        lives.end(power_stays);
        self.facts.broken.unbroken()
    }

    /// Opens the store without faults, and compares every stream with what it must hold and with what was told.
    async fn check(&mut self, lives: &mut Lives) -> Result<u64, String> {
        let opened = lives.open()?;
        let faults = opened.store.check_streams(DEFAULT_TENANT, DEFAULT_SCOPE).map_err(|error| error.to_string())?;
        if let Some(fault) = faults.first() {
            return Err(format!("the check says: {fault}"));
        }
        let streams = streams_of(&opened);
        let mut entries = 0;
        for n in 0..FILTERS {
            let (name, progress, found) = self.whole(&streams, &own_stream(n)).await?;
            let expected: Vec<_> = (0..progress).filter_map(|number| judge(n, number)).collect();
            if found != expected {
                return Err(format!("{name} with progress {progress} holds {found:?}, not {expected:?}"));
            }
            entries += found.len() as u64;
        }
        let (_, progress, found) = self.whole(&streams, SHARED).await?;
        if !found.iter().map(|entry| entry.sequence_number).eq(0..progress) {
            return Err(format!("{SHARED} with progress {progress} has holes or repeats: {found:?}"));
        }
        Ok(entries + progress)
    }

    fn add(sum: &mut u64, seed: u64) {
        *sum += seed;
    }
}

impl Battery {
    fn filters_and_readers(&self, lives: &mut Lives, opened: &Opened) -> (JoinSet<()>, JoinSet<()>) {
        let events = opened.status().head;
        let (mut filters, mut readers) = (JoinSet::new(), JoinSet::new());
        for n in 0..FILTERS {
            filters.spawn(filter(n, streams_of(opened), self.facts.clone(), events, lives.random.fork()));
        }
        for name in RIVALS {
            filters.spawn(rival(name, streams_of(opened), self.facts.clone(), events, lives.random.fork()));
        }
        readers.spawn(reader(streams_of(opened), self.facts.clone()));
        (filters, readers)
    }

    /// A stream's progress and entries, which are those that were told, and the same by partition.
    async fn whole(&self, streams: &Arc<dyn Streams>, name: &str) -> Result<(String, u64, Vec<Included>), String> {
        let failed = |error: ReadError| format!("{name}: {error}");
        let info = streams.stream(name).await.map_err(failed)?;
        let all = pages(streams, name, Partitions::All).await.map_err(failed)?;
        let told = self.facts.told(name);
        if info.head < told.head || info.progress < told.progress || all.len() as u64 != info.head {
            return Err(format!(
                "{name} has head {} and progress {}, but {} and {} were told",
                info.head, info.progress, told.head, told.progress
            ));
        }
        if let Some((_, lost)) = told.entries.iter().find(|(position, told)| all.get(**position as usize) != Some(told))
        {
            return Err(format!("{name}: {lost:?} was told and is not there"));
        }
        let mut by_partition = Vec::new();
        let names = ["common", "other", "x", "y", "z"].map(|name| Partitions::One(name.into()));
        for partition in names.into_iter().chain([Partitions::Without]) {
            by_partition.extend(pages(streams, name, partition).await.map_err(failed)?);
        }
        by_partition.sort_unstable_by_key(|entry| entry.position);
        let listed = |entry: &&StreamEntry| !entry.partition.as_deref().is_some_and(|name| name.starts_with("only"));
        if !all.iter().filter(listed).eq(&by_partition) {
            return Err(format!("{name}: its partitions are not what is in it"));
        }
        let included = all
            .into_iter()
            .map(|StreamEntry { sequence_number, partition, .. }| Included { sequence_number, partition });
        Ok((name.to_owned(), info.progress, included.collect()))
    }
}

async fn pages(streams: &Arc<dyn Streams>, name: &str, partitions: Partitions) -> Result<Vec<StreamEntry>, ReadError> {
    let mut query = StreamQuery { limit: 100, partitions, ..StreamQuery::new(name) };
    let mut entries: Vec<StreamEntry> = Vec::new();
    loop {
        let page = streams.read(query.clone()).await?;
        if page.entries.is_empty() {
            return Ok(entries);
        }
        query.from = page.next;
        entries.extend(page.entries);
    }
}

#[test]
fn whatever_the_disk_does_streams_keep_what_was_told() {
    let done = block_on(run_seeds::<Battery>(0..120, |_| {})).unwrap_or_else(|broken| panic!("{broken}"));
    assert!(done.checked > 20_000 && done.faults > 100, "{done:?}");
}

/// A write that fails is told as one, and after opening the store again the same verdicts settle what came of it.
#[test]
fn verdicts_of_unknown_outcome_are_settled_by_appending_them_again() {
    let mut unknown = 0;
    for seed in 0..40 {
        block_on(async {
            let disk = FaultyDisk::new(seed);
            let opened = open(disk.clone(), repeatable(seed)).expect("it opens");
            let events = (0..20).map(|_| NewEvent::new("t", Data::empty())).collect();
            opened.log.commit(NewCommit { events, ..NewCommit::new("order", "a") }).await.expect("committed");
            let first = Verdicts::new("s", 0..10).include(Included::new(3));
            opened.store.streams(DEFAULT_TENANT, DEFAULT_SCOPE).expect("there").append(first).await.expect("appended");
            disk.plan(seed % 8, Fault::Error);
            let second = Verdicts::new("s", 10..20).include(Included::new(12)).include(Included::of(14, "p"));
            match streams_of(&opened).append(second.clone()).await {
                Err(StreamError::Store(StoreError::Failed(_))) => {
                    unknown += 1;
                    let refused = streams_of(&opened).append(second.clone()).await.expect_err("it refuses");
                    assert!(matches!(refused, StreamError::Store(StoreError::Failed(_))), "{refused:?}");
                }
                other => assert_eq!(other.expect("nothing failed").positions, 1..3),
            }
            let disk = if seed % 2 == 0 { disk.after_kill() } else { disk.after_power_loss() };
            let opened = open(disk, repeatable(seed)).expect("it opens again");
            let settled = streams_of(&opened).append(second).await.expect("it is settled");
            assert_eq!(settled.positions, 1..3);
        });
    }
    assert!(unknown > 5, "only {unknown} outcomes were unknown");
}
