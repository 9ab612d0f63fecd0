//! Every place at which a process can die while it archives and deletes.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use annals_conformance::ManualClock;
use annals_conformance::model::EPOCH;
use annals_core::archive::{ARCHIVE_FILES, Archive, ArchiveTarget, EVENTS_ARCHIVE, RetentionBody};
use annals_core::browse::{BrowseQuery, EVENTS, ViewBody, ViewSwitch};
use annals_core::bson::Document;
use annals_core::{
    Condition, DEFAULT_SCOPE, DEFAULT_TENANT, Data, EventLog, NewCommit, NewEvent, RecordQuery, Records, Store,
};
use annals_embedded::{EmbeddedStore, Options};
use annals_runtime::{Host, HostOptions};
use serde_json::json;

use crate::faulty_disk::{Fault, FaultyDisk};
use crate::stores::{block_on, repeatable};

/// Three of each type: one is archived into the collection, one into files, and one is kept and deleted by hand.
const TYPES: [&str; 3] = ["collected", "filed", "kept"];
const EACH: u64 = 3;

/// A store with a host on it.
struct Life {
    log: Arc<dyn EventLog>,
    records: Arc<dyn Records>,
    archive: Arc<dyn Archive>,
    host: Host,
    disk: Arc<FaultyDisk>,
    clock: Arc<ManualClock>,
}

impl Life {
    fn begin(disk: Arc<FaultyDisk>, seed: u64, folder: &Path, clock: &Arc<ManualClock>) -> Self {
        let options = Options { clock: clock.clone(), expiry_every: std::time::Duration::MAX, ..repeatable(seed) };
        let store = EmbeddedStore::open(disk.clone(), options).unwrap_or_else(|error| panic!("{seed}: {error}"));
        let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("always there");
        let records = store.records(DEFAULT_TENANT).expect("always there");
        let options = HostOptions { clock: clock.clone(), archive: Some(folder.to_owned()), ..HostOptions::default() };
        let host = Host::start(Arc::new(store), options);
        host.start_defined();
        let archive = host.archive(DEFAULT_TENANT).expect("declared");
        Self { log, records, archive, host, disk, clock: clock.clone() }
    }

    /// Does what is left of the story. None where the disk failed: what waits for it then waits in vain.
    async fn go_on(&self) -> Option<()> {
        tokio::select! {
            biased;
            () = self.until_failed() => None,
            done = self.story() => done,
        }
    }

    /// Time passes meanwhile: events become due, and whatever waits a while goes on.
    async fn until_failed(&self) {
        while self.disk.fired().is_empty() {
            self.clock.advance_millis(10_000);
            tokio::task::yield_now().await;
        }
    }

    /// Ends the process, as far as its disk lets it.
    async fn end(self) {
        let passing = async {
            loop {
                self.clock.advance_millis(100);
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            biased;
            () = self.host.drain() => {}
            () = passing => {}
        }
    }

    async fn story(&self) -> Option<()> {
        let browse = self.host.browse(DEFAULT_TENANT).ok()?;
        let body =
            ViewBody { state: Some(ViewSwitch::On), retention_days: Some(None), reason: "a test".into(), by: None };
        browse.set_view(body).await.ok()?;
        for (name, target) in [("collected", ArchiveTarget::Collection), ("filed", ArchiveTarget::Files)] {
            self.archive.put_rule(name, RetentionBody::new(Some(1), target)).await.ok()?;
        }
        for n in self.log.head().await.ok()?..EACH * 3 {
            let data = Data::from_value(&json!({ "n": n })).ok()?;
            let event = NewEvent::new(TYPES[n as usize % 3], data);
            self.log.commit(NewCommit::new("counter", format!("c-{n}")).event(event)).await.ok()?;
        }
        loop {
            // The view may still be on its way to the event.
            let kept = browse.page(BrowseQuery::default()).await.ok()?;
            if let Some(id) = kept.items.iter().find(|it| it["n"] == 2).and_then(|it| it["event_id"].as_str()) {
                self.archive.delete(id, "a test".into()).await.ok()?;
            }
            let filed = self.archive.files(None, 100).await.ok()?.items.iter().map(|file| file.events).sum::<u64>();
            if self.count(EVENTS_ARCHIVE).await? == EACH + 1 && filed == EACH {
                let archive = self.archive.rules(None, 10).await.ok()?.archive;
                if archive.settled {
                    return Some(());
                }
            }
            tokio::task::yield_now().await;
        }
    }

    async fn count(&self, collection: &str) -> Option<u64> {
        match self.records.count(collection, &Condition::All).await {
            Ok(count) => Some(count),
            Err(annals_core::RecordError::UnknownCollection(_)) => Some(0),
            Err(_) => None,
        }
    }

    async fn documents(&self, collection: &str) -> Vec<Document> {
        match self.records.find(RecordQuery::new(collection).limit(1_000)).await {
            Ok(page) => page.records.iter().map(|it| Document::try_from(&*it.document).expect("a document")).collect(),
            Err(_) => Vec::new(),
        }
    }

    /// Whatever may expire has a copy, and nothing that a person deleted is in both places or in none.
    async fn check(&self, what: &str) {
        let archived = self.documents(EVENTS_ARCHIVE).await;
        let filed: i64 = self.documents(ARCHIVE_FILES).await.iter().filter_map(|it| it.get_i64("events").ok()).sum();
        let id = |document: &Document| document.get_object_id("_id").expect("an id");
        let (mut expiring, mut deleted) = (0, 0);
        for document in self.documents(EVENTS).await {
            let copy = archived.iter().find(|it| id(it) == id(&document));
            match document.get_str("event_type").expect("a type") {
                "collected" => {
                    assert_eq!(copy.is_some(), document.contains_key("ttl_expires_at"), "{what}: {document}")
                }
                "filed" => expiring += i64::from(document.contains_key("ttl_expires_at")),
                _ => {
                    assert!(copy.is_none(), "{what}: {document}");
                    deleted += u64::from(document.get_i64("n").is_ok_and(|n| n == 2));
                }
            }
        }
        assert_eq!(expiring, filed, "{what}: events expire that no file holds");
        assert!(deleted <= 1, "{what}");
    }
}

/// The rows of the files that readers see, by folder, and what is in `.writing`.
fn files(folder: &Path) -> (BTreeMap<String, usize>, usize) {
    let (mut seen, mut writing) = (BTreeMap::new(), 0);
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for path in std::fs::read_dir(&next).into_iter().flatten().map(|entry| entry.expect("an entry").path()) {
            match path.is_dir() {
                true => folders.push(path),
                false if next.ends_with(".writing") => writing += 1,
                false => *seen.entry(next.display().to_string()).or_default() += 1,
            }
        }
    }
    (seen, writing)
}

/// At operations of the disk all over the story, by kill -9 and by power loss.
#[test]
fn an_event_is_archived_once_and_expires_only_then_wherever_the_process_dies() {
    block_on(async {
        let mut died = 0;
        for operation in (0..180).step_by(5) {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let clock = Arc::new(ManualClock::at(EPOCH));
            let disk = FaultyDisk::new(operation);
            let life = Life::begin(disk.clone(), operation, folder.path(), &clock);
            disk.plan(operation, if operation % 2 == 0 { Fault::Error } else { Fault::End });
            died += usize::from(life.go_on().await.is_none());
            let disk = if operation % 4 < 2 { disk.after_kill() } else { disk.after_power_loss() };
            life.end().await;
            let life = Life::begin(disk, operation, folder.path(), &clock);
            let what = format!("died at {operation}");
            life.go_on().await.expect(&what);
            life.check(&what).await;
            let listed = life.archive.files(None, 100).await.expect("listed").items;
            let on_disk = || files(&folder.path().join(DEFAULT_TENANT));
            while on_disk() != (on_disk().0, 0) || on_disk().0.values().sum::<usize>() != listed.len() {
                // A file is renamed after its record is written.
                clock.advance_millis(10_000);
                tokio::task::yield_now().await;
            }
            life.end().await;
        }
        assert!(died > 10, "the process died {died} times");
    });
}
