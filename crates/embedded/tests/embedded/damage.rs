//! Files that are not what was written: whatever is changed, cut, lost or made up, nothing panics and nothing wrong is served. What was
//! stored is read as it was, or an error says where it cannot be; it is never just missing.

use std::sync::Arc;

use annals_conformance::history::read_all;
use annals_core::{
    AggregateIdsQuery, AggregateQuery, Code, CommitError, DEFAULT_TENANT, Data, EventLog, Filter, Identity, LogQuery,
    NewCommit, NewEvent, ReadError, RecordedEvent, Store, StoreError, limits,
};

use annals_embedded::Options;
use annals_embedded::operations::check;

use crate::faulty_disk::FaultyDisk;
use crate::operations::packing::{is_packed, pack_now};
use crate::stores::{Opened, PACK_ALWAYS, block_on, open, repeatable};

const COMMITS: usize = 60;

/// A store of several segments, as its files, and what it holds.
struct Original {
    files: Vec<(String, Vec<u8>)>,
    events: Vec<RecordedEvent>,
    identity: Option<Identity>,
    closed: bool,
}

fn commit(n: usize) -> NewCommit {
    let data = Data::from_value(&serde_json::json!({ "n": n, "text": "x".repeat(n * 7 % 150) })).expect("an object");
    let event = NewEvent::new(["placed", "paid", "shipped"][n % 3], data).tag(format!("tag-{}", n % 4));
    let commit = NewCommit::new("order", format!("{}", n % 5)).event(event.clone()).request_id(format!("r-{n}"));
    if n.is_multiple_of(4) { commit.event(event) } else { commit }
}

/// A store that was closed in an orderly way, or whose process was killed.
fn original(closed: bool) -> Original {
    block_on(async {
        let disk = FaultyDisk::new(1);
        let opened = open(disk.clone(), repeatable(1)).expect("it opens");
        for n in 0..COMMITS {
            opened.log.commit(commit(n)).await.expect("it is accepted");
        }
        let events = read_all(&opened.log).await.expect("the log is read");
        let identity = opened.store.identity(DEFAULT_TENANT);
        let files = if closed {
            opened.store.close().await;
            disk.files()
        } else {
            disk.after_kill().files()
        };
        assert!(files.iter().filter(|(path, _)| path.ends_with(".index")).count() >= 2, "there are closed segments");
        Original { files, events, identity, closed }
    })
}

/// A store whose closed segments are packed.
fn packed() -> Original {
    let original = original(true);
    let disk = disk_with(&original.files);
    pack_now(&disk, &Options { packing: PACK_ALWAYS, ..repeatable(3) }).expect("it is packed");
    assert!(disk.files().iter().filter(|file| is_packed(file)).count() >= 2);
    Original { files: disk.files(), ..original }
}

fn disk_with(files: &[(String, Vec<u8>)]) -> Arc<FaultyDisk> {
    use annals_embedded::disk::{Disk, Open};
    let disk = FaultyDisk::new(1);
    for (path, bytes) in files {
        disk.open(path, Open::Create).expect("it is new").write_at(bytes, 0).expect("it is written");
    }
    disk
}

/// Everything that can be read of a damaged store, compared with the original. Says how it was noticed, or none when nothing is missing.
struct Examination<'a> {
    original: &'a Original,
    opened: Opened,
    damage: Option<String>,
}

impl Examination<'_> {
    async fn run(&mut self) -> Result<Option<String>, String> {
        let status = self.opened.status();
        self.damage = status.refusing.as_ref().map(ToString::to_string);
        let identity = self.opened.store.identity(DEFAULT_TENANT);
        if identity != self.original.identity {
            return Err(format!("it is another store now: {identity:?}"));
        }
        let log = self.opened.log.clone();
        self.read_log(&log, false).await?;
        self.read_log(&log, true).await?;
        self.read_filtered(&log).await?;
        self.read_aggregates(&log).await?;
        self.look_up_requests(&log).await?;
        if let Some(damage) = &self.damage {
            // Nothing is built on a damaged log.
            match log.commit(commit(1_000)).await {
                Err(CommitError::Store(StoreError::Damaged(_))) => {}
                other => return Err(format!("{damage}, but a commit was answered {other:?}")),
            }
        } else if status.head < self.original.events.len() as u64 {
            // Without a checkpoint the end of the log may be taken for a batch that was never acknowledged, if that is said.
            if self.original.closed || status.recovery.is_empty() {
                return Err(format!("events from {} on are missing and nothing says so: {status:?}", status.head));
            }
            return Ok(Some(status.recovery.join("; ")));
        }
        Ok(self.damage.clone())
    }

    /// Notes a refused read; only damage refuses one here.
    fn refused(&mut self, error: &ReadError) -> Result<(), String> {
        if error.code() != Code::StoreDamaged {
            return Err(format!("{error} is not what is wrong"));
        }
        self.damage.get_or_insert_with(|| error.to_string());
        Ok(())
    }

    /// Whether what was found is allowed to be this: the same, or a part of it in a store that says it is damaged.
    fn part<T: PartialEq + std::fmt::Debug>(&self, found: &[T], due: &[T], what: &str) -> Result<(), String> {
        let head = self.opened.status().head as usize;
        let cut = head < self.original.events.len();
        let right = if self.damage.is_some() || cut { found.iter().all(|one| due.contains(one)) } else { found == due };
        if right { Ok(()) } else { Err(format!("{what}: found {found:?}\ninstead of {due:?}")) }
    }

    async fn read_log(&mut self, log: &Arc<dyn EventLog>, backwards: bool) -> Result<(), String> {
        let mut query = LogQuery { limit: 7, backwards, ..LogQuery::default() };
        let mut found = Vec::new();
        loop {
            match log.read(query.clone()).await {
                Ok(page) if page.events.is_empty() => break,
                Ok(page) => {
                    found.extend(page.events);
                    query.from = Some(page.next);
                }
                Err(error) => {
                    self.refused(&error)?;
                    break;
                }
            }
        }
        for event in &found {
            if self.original.events.get(event.sequence_number as usize) != Some(event) {
                return Err(format!("an event that never was: {event:?}"));
            }
        }
        if backwards {
            found.reverse();
        }
        self.part(&found, &self.original.events, "the log")
    }

    async fn read_filtered(&mut self, log: &Arc<dyn EventLog>) -> Result<(), String> {
        let of_type = Filter { types: vec!["paid".into()], ..Filter::default() };
        let of_tag = Filter { tags: vec!["tag-2".into()], ..Filter::default() };
        for filter in [of_type, of_tag] {
            let due: Vec<_> = self.original.events.iter().filter(|event| filter.admits(event)).cloned().collect();
            let query = LogQuery { limit: limits::PAGE_MAX, filter, ..LogQuery::default() };
            match log.read(query.clone()).await {
                Ok(page) => self.part(&page.events, &due, &format!("{query:?}"))?,
                Err(error) => self.refused(&error)?,
            }
        }
        Ok(())
    }

    async fn read_aggregates(&mut self, log: &Arc<dyn EventLog>) -> Result<(), String> {
        for id in 0..5 {
            let aggregate = commit(id).aggregate;
            let of_aggregate = self.original.events.iter().filter(|event| event.commit.aggregate == aggregate);
            let due: Vec<_> = of_aggregate.cloned().collect();
            let query = AggregateQuery { limit: limits::PAGE_MAX, ..AggregateQuery::new(aggregate) };
            match log.read_aggregate(query).await {
                Ok(read) => {
                    let found: Vec<_> = read.commits.into_iter().flat_map(|commit| commit.events).collect();
                    self.part(&found, &due, "an aggregate")?;
                }
                Err(error) => self.refused(&error)?,
            }
        }
        let query = AggregateIdsQuery { name: "order".into(), after: None, limit: 100 };
        match log.aggregate_ids(query).await {
            Ok(known) => {
                let found: Vec<String> = known.iter().map(|known| known.id.to_string()).collect();
                let due: Vec<String> = (0..5).map(|id| id.to_string()).collect();
                self.part(&found, &due, "the ids")
            }
            Err(error) => self.refused(&error),
        }
    }

    async fn look_up_requests(&mut self, log: &Arc<dyn EventLog>) -> Result<(), String> {
        for n in 0..COMMITS {
            let commit = commit(n);
            let first = self.original.events.iter().find(|event| event.commit.request_id == commit.request_id);
            let number = first.expect("it was committed").sequence_number;
            let missing = number >= self.opened.status().head;
            match log.request_exists(&commit.aggregate, &format!("r-{n}")).await {
                Ok(exists) if exists != missing => {}
                Ok(_) => return Err(format!("request r-{n} at {number}: missing is {missing}")),
                Err(error) => self.refused(&error)?,
            }
        }
        Ok(())
    }
}

async fn examine(original: &Original, files: &[(String, Vec<u8>)]) -> Result<Option<String>, String> {
    match open(disk_with(files), repeatable(2)) {
        Ok(opened) => Examination { original, opened, damage: None }.run().await,
        Err(error) => match error.code {
            // A flipped bit may make any number a later one.
            Code::StoreDamaged | Code::NotAStore | Code::NewerFormat => Ok(Some(error.message)),
            _ => Err(format!("{}: {error}", error.code.as_str())),
        },
    }
}

/// Changes a file in every way that comes to mind; says what it did.
fn spoil(random: &mut fastrand::Rng, bytes: &mut Vec<u8>) -> String {
    let length = bytes.len().max(1);
    let at = random.usize(0..length);
    match random.u8(0..7) {
        0..3 if !bytes.is_empty() => {
            let bit = random.u8(0..8);
            bytes[at] ^= 1 << bit;
            format!("bit {bit} of byte {at} flipped")
        }
        3 => {
            let to = (at + random.usize(1..300)).min(bytes.len());
            bytes[at.min(to)..to].fill(0);
            format!("bytes {at}..{to} zeroed")
        }
        4 => {
            let to = (at + random.usize(1..300)).min(bytes.len());
            bytes[at.min(to)..to].iter_mut().for_each(|byte| *byte = random.u8(..));
            format!("bytes {at}..{to} made up")
        }
        5 => {
            bytes.truncate(at);
            format!("cut to {at} bytes")
        }
        _ => {
            bytes.iter_mut().for_each(|byte| *byte = random.u8(..));
            "all bytes made up".to_owned()
        }
    }
}

fn spoil_files(seeds: std::ops::Range<u64>, wanted: impl Fn(&str) -> bool) -> usize {
    let originals = [original(true), original(false), packed()];
    let mut noticed = 0;
    for seed in seeds {
        let mut random = fastrand::Rng::with_seed(seed);
        let original = &originals[random.usize(0..3)];
        let mut files = original.files.clone();
        let candidates: Vec<usize> = (0..files.len()).filter(|index| wanted(&files[*index].0)).collect();
        let (path, bytes) = &mut files[candidates[random.usize(0..candidates.len())]];
        let what = format!("seed {seed}, closed {}: {path}, {}", original.closed, spoil(&mut random, bytes));
        let found = block_on(examine(original, &files)).unwrap_or_else(|wrong| panic!("{what}: {wrong}"));
        noticed += usize::from(found.is_some());
    }
    noticed
}

#[test]
fn an_undamaged_store_is_whole() {
    for original in [original(true), original(false), packed()] {
        assert_eq!(block_on(examine(&original, &original.files)), Ok(None));
    }
}

#[test]
fn a_damaged_segment_is_noticed_and_nothing_wrong_is_served() {
    let noticed = spoil_files(0..400, |path| path.ends_with(".segment"));
    assert!(noticed > 100, "noticed {noticed} times");
}

#[test]
fn a_damaged_index_is_made_again_or_noticed() {
    spoil_files(400..700, |path| path.ends_with(".index"));
}

/// An index says nothing that its segment does not say, so nobody need know.
#[test]
fn a_bit_that_flips_anywhere_in_an_index_changes_no_answer_and_is_mended_and_reported() {
    const ROUNDS: usize = 60;
    for original in [original(true), packed()] {
        let mut random = fastrand::Rng::with_seed(60);
        let indexes: Vec<usize> =
            (0..original.files.len()).filter(|n| original.files[*n].0.ends_with(".index")).collect();
        for round in 0..ROUNDS {
            let mut files = original.files.clone();
            let (path, bytes) = &mut files[indexes[random.usize(0..indexes.len())]];
            let at = (round * bytes.len() + random.usize(0..bytes.len())) / ROUNDS;
            bytes[at] ^= 1 << random.u8(0..8);
            let (path, what) = (path.clone(), format!("byte {at} of {path}"));
            let disk = disk_with(&files);
            block_on(async {
                let opened = open(disk.clone(), repeatable(2)).unwrap_or_else(|error| panic!("{what}: {error}"));
                let mut examination = Examination { original: &original, opened, damage: None };
                assert_eq!(examination.run().await, Ok(None), "{what}");
                let status = examination.opened.status();
                let says = |note: &&String| note.contains(&path) && note.contains("rebuilt from the segment");
                assert_eq!(status.recovery.iter().filter(says).count(), 1, "{what}: {:?}", status.recovery);
                examination.opened.log.commit(commit(1_000)).await.unwrap_or_else(|error| panic!("{what}: {error}"));
                examination.opened.store.close().await;
            });
            let report = check(&*disk, &mut |_, _| {}).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(report.is_sound(), "{what}: {report:#?}");
            let opened = open(disk, repeatable(3)).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(opened.status().recovery.is_empty(), "{what}: {:?}", opened.status().recovery);
        }
    }
}

#[test]
fn an_index_that_cannot_be_made_again_names_the_damage_of_its_segment() {
    let original = original(true);
    let mut files = original.files.clone();
    let mut path = String::new();
    for ending in [".index", "0000000001.segment"] {
        let found = files.iter_mut().find(|(path, _)| path.ends_with(ending)).expect("it is there");
        found.1[200] ^= 1;
        path.clone_from(&found.0);
    }
    block_on(async {
        let opened = open(disk_with(&files), repeatable(2)).expect("its index is trusted");
        let error = opened.log.read(LogQuery::default()).await.expect_err("it cannot be read");
        assert_eq!(error.code(), Code::StoreDamaged);
        assert!(error.to_string().contains(&format!("{path} at offset")), "{error}");
        assert_eq!(opened.status().refusing.map(|why| why.code()), Some(Code::StoreDamaged));
    });
}

#[test]
fn a_damaged_small_file_is_noticed_and_nothing_wrong_is_served() {
    let noticed = spoil_files(700..900, |path| path.ends_with(".json"));
    assert!(noticed > 100, "noticed {noticed} times");
}

#[test]
fn a_lost_file_is_noticed_or_made_again() {
    for closed in [true, false] {
        let original = original(closed);
        for lost in 0..original.files.len() {
            let mut files = original.files.clone();
            let (path, _) = files.remove(lost);
            let last_of_all = original.files.iter().filter(|(path, _)| path.ends_with(".segment")).max();
            let is_last = last_of_all.is_some_and(|(last, _)| *last == path);
            if is_last && !closed {
                // Nothing names the last segment of a store that was killed: it looks like one that was killed a moment earlier.
                continue;
            }
            let found = block_on(examine(&original, &files)).unwrap_or_else(|wrong| panic!("{path} lost: {wrong}"));
            if path.ends_with(".segment") && !is_last {
                assert!(found.is_some(), "{path} lost and nobody noticed");
            }
        }
    }
}

#[test]
fn files_that_do_not_belong_there_do_no_harm() {
    let original = original(true);
    let made_up: Vec<u8> = (0..5_000).map(|_| fastrand::u8(..)).collect();
    for name in
        ["0000000099.segment", "0000000099.index", "0000000001.index.unfinished", "notes.txt", "1.segment", ".segment"]
    {
        let mut files = original.files.clone();
        files.push((format!("tenants/default/default/{name}"), made_up.clone()));
        block_on(examine(&original, &files)).unwrap_or_else(|wrong| panic!("{name}: {wrong}"));
    }
}

/// The sentence names the file and from where on nothing can be read.
#[test]
fn damage_is_named_and_what_is_before_it_is_read() {
    let original = original(true);
    let mut files = original.files.clone();
    files.retain(|(path, _)| !path.ends_with(".index"));
    let second = files.iter_mut().filter(|(path, _)| path.ends_with(".segment")).nth(1).expect("there are segments");
    let middle = second.1.len() / 2;
    second.1[middle] ^= 0xff;
    let path = second.0.clone();
    block_on(async {
        let opened = open(disk_with(&files), repeatable(2)).expect("it opens to be read");
        let status = opened.status();
        let damage = status.refusing.expect("it refuses commits").to_string();
        assert!(damage.contains(&path) && damage.contains("offset"), "{damage}");
        assert!(damage.contains(&format!("sequence number {}", status.head)), "{damage}");
        let query = LogQuery { limit: limits::PAGE_MAX, ..LogQuery::default() };
        let events = opened.log.read(query.clone()).await.expect("what is before is read").events;
        let end = opened
            .log
            .read(LogQuery { from: Some(status.head), ..query })
            .await
            .expect_err("nobody knows what follows");
        assert_eq!(end.code(), Code::StoreDamaged);
        assert!(!events.is_empty() && events.len() as u64 == status.head);
        assert_eq!(events[..], original.events[..events.len()]);
        let error = opened.log.commit(commit(1_000)).await.expect_err("it is refused");
        assert_eq!(error.code(), Code::StoreDamaged);
    });
}

/// A partial copy: no crash makes a segment shorter than it was made, so this is damage also where nothing torn is left to see.
#[test]
fn a_file_that_was_cut_between_two_commits_is_noticed() {
    let original = original(false);
    let mut files = original.files.clone();
    let last = files.iter_mut().filter(|(path, _)| path.ends_with(".segment")).rfind(|(_, bytes)| bytes[64] != 0);
    let (path, bytes) = last.expect("there are segments");
    // Frames begin at multiples of 8 with the same two bytes.
    let starts: Vec<usize> =
        (64..bytes.len() - 1).step_by(8).filter(|at| bytes[*at..at + 2] == bytes[64..66]).collect();
    for start in starts {
        let mut files = original.files.clone();
        let cut = files.iter_mut().find(|(name, _)| name == path).expect("it is there");
        cut.1.truncate(start);
        let found = block_on(examine(&original, &files)).unwrap_or_else(|wrong| panic!("cut to {start}: {wrong}"));
        assert!(found.is_some(), "{path} was cut to {start} bytes and nobody noticed");
    }
}
