//! Stores for these tests: several segments, two tenants, two scopes, commits of every shape.

use std::sync::Arc;

use annals_core::{
    DEFAULT_SCOPE, DEFAULT_TENANT, Data, EventLog, EventsHash, ExpectedVersion, KeyChanges, KeyValue, NewCommit,
    NewEvent, NewTransaction, Reserve, Store, Timestamp,
};
use annals_embedded::disk::{Disk, Open};
use annals_embedded::{EmbeddedStore, Options};

use crate::faulty_disk::FaultyDisk;
use crate::stores::repeatable;

/// The logs of the sample.
pub const LOGS: [(&str, &str); 4] =
    [(DEFAULT_TENANT, DEFAULT_SCOPE), (DEFAULT_TENANT, "partner"), ("other", DEFAULT_SCOPE), ("other", "partner")];

/// Two tenants with two scopes each.
pub fn options(seed: u64) -> Options {
    Options {
        tenants: vec![DEFAULT_TENANT.to_owned(), "other".to_owned()],
        scopes: vec!["partner".to_owned()],
        ..repeatable(seed)
    }
}

pub fn open_store(disk: &Arc<FaultyDisk>, seed: u64) -> EmbeddedStore {
    EmbeddedStore::open(disk.clone(), options(seed)).unwrap_or_else(|error| panic!("{error}"))
}

/// A commit of every shape, by its number.
pub fn commit(n: usize) -> NewCommit {
    let data = Data::from_value(&serde_json::json!({ "n": n, "text": "x".repeat(n * 7 % 150) })).expect("an object");
    let event = NewEvent::new(["placed", "paid", "shipped"][n % 3], data).tag(format!("tag-{}", n % 4));
    let mut commit = NewCommit::new(["order", "basket"][n % 2], format!("{}", n % 5)).event(event.clone());
    if n.is_multiple_of(3) {
        commit = commit.request_id(format!("r-{n}"));
    }
    if n.is_multiple_of(4) {
        let given = NewEvent { id: Some(annals_core::Uuid::from_u128(n as u128 + 1)), public: true, ..event.clone() };
        commit = commit.event(NewEvent { generation: 3, time: Some(Timestamp::from_millis(n as i64)), ..given });
    }
    if n.is_multiple_of(7) {
        commit.header = vec![("trace".into(), format!("{n}").into())];
        commit.correlation_id = Some("c".into());
        commit.causation_id = Some("d".into());
        commit.command_id = Some("e".into());
        commit.owner_id = Some("f".into());
    }
    commit.expect(ExpectedVersion::Any)
}

/// A transaction of three commits, one of which takes a key.
pub fn transfer(n: usize) -> NewTransaction {
    let part = |id: &str| NewCommit { request_id: None, ..commit(n) }.to(id);
    let mut first = part("a");
    first.keys = KeyChanges {
        reserve: vec![Reserve {
            name: "user_name".into(),
            key: format!("key-{n}").into(),
            value: KeyValue::new(n).expect("a value"),
            ttl_at: None,
        }],
        ..KeyChanges::default()
    };
    NewTransaction::new([first, part("b"), part("c")]).request_id(format!("transfer-{n}"))
}

trait To {
    fn to(self, id: &str) -> Self;
}

impl To for NewCommit {
    fn to(mut self, id: &str) -> Self {
        self.aggregate = annals_core::Aggregate::new("account", id);
        self
    }
}

/// Commits these numbers into every log.
pub async fn fill(store: &dyn Store, numbers: std::ops::Range<usize>) {
    for (tenant, scope) in LOGS {
        let log = store.log(tenant, scope).expect("it is declared");
        for n in numbers.clone() {
            if n % 10 == 5 {
                log.transact(transfer(n)).await.expect("it is accepted");
            } else {
                log.commit(commit(n)).await.expect("it is accepted");
            }
        }
    }
}

/// A filled disk whose store was closed, or whose process was killed.
pub async fn filled(commits: usize, closed: bool) -> Arc<FaultyDisk> {
    let disk = FaultyDisk::new(1);
    let store = open_store(&disk, 1);
    fill(&store, 0..commits).await;
    if closed {
        store.close().await;
        drop(store);
        disk
    } else {
        disk.after_kill()
    }
}

/// The hash of what a log holds below a number, read through the port.
pub async fn hash_to(log: &Arc<dyn EventLog>, to: u64) -> EventsHash {
    let (mut hash, mut next) = (EventsHash::default(), 0);
    while next < to {
        let copies = log.read_copies(next).await.expect("the log is read");
        for copy in copies.iter().take_while(|copy| copy.commit.events[0].sequence_number < to) {
            hash.add_commit(&copy.commit.events, &copy.keys);
            next += copy.commit.events.len() as u64;
        }
    }
    hash
}

/// Where a log can be cut: before the commits that begin no later part of a transaction, and at its end.
pub async fn borders(log: &Arc<dyn EventLog>) -> Vec<u64> {
    let (mut borders, mut next) = (Vec::new(), 0);
    loop {
        let copies = log.read_copies(next).await.expect("the log is read");
        if copies.is_empty() {
            borders.push(next);
            return borders;
        }
        for copy in copies {
            if copy.commit.info.transaction.is_none_or(|it| it.place == 0) {
                borders.push(next);
            }
            next += copy.commit.events.len() as u64;
        }
    }
}

/// A disk with these files.
pub fn disk_with(files: &[(String, Vec<u8>)]) -> Arc<FaultyDisk> {
    let disk = FaultyDisk::new(1);
    for (path, bytes) in files {
        disk.open(path, Open::Create).expect("it is new").write_at(bytes, 0).expect("it is written");
    }
    disk
}

/// Where the frames of a segment begin.
pub fn frames(bytes: &[u8]) -> Vec<usize> {
    // Frames begin at multiples of 8 with the same two bytes.
    (64..bytes.len() - 1).step_by(8).filter(|at| bytes[*at..at + 2] == [0x41, 0x4e] && bytes[at + 2] == 1).collect()
}
