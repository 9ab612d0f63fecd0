//! The suites of the browse view, its archive and replays, on a disk in memory and on a real one; and every place at which a process
//! can die.

use std::path::Path;
use std::sync::Arc;

use annals_core::browse::{BrowseQuery, ReplayFilter, ViewBody, ViewSwitch};
use annals_core::replays::{ReplayAct, ReplayBody, ReplayState, ReplayTarget, Replays};
use annals_core::{DEFAULT_SCOPE, DEFAULT_TENANT, Data, EventLog, NewCommit, NewEvent, Store};
use annals_embedded::EmbeddedStore;
use annals_runtime::{Host, HostOptions};
use serde_json::{Value, json};

use crate::conformance::Embedded;
use crate::faulty_disk::{Fault, FaultyDisk};
use crate::stores::{block_on, repeatable, roomy_segments};

mod memory {
    use super::*;
    annals_conformance::browse!(Embedded::in_memory(roomy_segments()));
    annals_conformance::archive!(Embedded::in_memory(roomy_segments()));
    annals_conformance::replays!(Embedded::in_memory(roomy_segments()));
}

mod real_disk {
    use super::*;
    annals_conformance::browse!(Embedded::in_a_folder(roomy_segments()));
    annals_conformance::archive!(Embedded::in_a_folder(roomy_segments()));
    annals_conformance::replays!(Embedded::in_a_folder(roomy_segments()));
}

const EVENTS: u64 = 7;

/// A store with a host on it.
struct Life {
    log: Arc<dyn EventLog>,
    host: Host,
    disk: Arc<FaultyDisk>,
}

impl Life {
    fn begin(disk: Arc<FaultyDisk>, seed: u64, exports: &Path) -> Self {
        let store =
            EmbeddedStore::open(disk.clone(), repeatable(seed)).unwrap_or_else(|error| panic!("{seed}: {error}"));
        let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("always there");
        let options = HostOptions { exports: Some(exports.to_owned()), ..HostOptions::default() };
        let host = Host::start(Arc::new(store), options);
        host.start_defined();
        Self { log, host, disk }
    }

    fn replays(&self) -> Arc<dyn Replays> {
        self.host.replays(DEFAULT_TENANT).expect("declared")
    }

    async fn commit(&self, n: u64) -> Option<()> {
        let data = Data::from_value(&json!({ "n": n })).ok()?;
        let commit = NewCommit::new("counter", format!("c-{}", n % 3)).event(NewEvent::new("counted", data));
        self.log.commit(commit).await.ok().map(drop)
    }

    /// Does what is left of the story: events, a view that keeps them, and a replay into a file. None where the disk failed.
    async fn go_on(&self) -> Option<()> {
        let browse = self.host.browse(DEFAULT_TENANT).ok()?;
        let body = ViewBody { retention_days: Some(None), ..ViewBody::switched(Some(ViewSwitch::On), "a test") };
        browse.set_view(body).await.ok()?;
        for n in self.log.head().await.ok()?..EVENTS {
            self.commit(n).await?;
        }
        let listed = self.replays().list(None, None, 10).await.ok()?;
        let id = match listed.items.first() {
            Some(replay) => replay.session_id.clone(),
            None => self.replays().create(to_file()).await.ok()?.session_id,
        };
        if self.replays().get(&id).await.ok()?.status == ReplayState::Created {
            self.replays().act(&id, ReplayAct::Start, "a test".into()).await.ok()?;
        }
        loop {
            let status = self.replays().get(&id).await.ok()?;
            if status.status.is_terminal() {
                assert_eq!((status.status, status.replayed), (ReplayState::Completed, EVENTS), "{status:?}");
                return Some(());
            }
            if !self.disk.fired().is_empty() {
                return None;
            }
            tokio::task::yield_now().await;
        }
    }
}

fn to_file() -> ReplayBody {
    let filter = ReplayFilter { event_types: Some(vec!["counted".to_owned()]), ..ReplayFilter::default() };
    ReplayBody { batch_size: 2, ..ReplayBody::new(filter, ReplayTarget::File { name: "events.jsonl".to_owned() }) }
}

fn lines(folder: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(folder.join(DEFAULT_TENANT).join("events.jsonl")).expect("a file");
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

/// At operations of the disk all over the story, by kill -9 and by power loss: every event is in the view once, and in the file once.
#[test]
fn every_event_is_shown_and_replayed_into_a_file_once_wherever_the_process_dies() {
    block_on(async {
        let mut died = 0;
        for operation in (0..160).step_by(3) {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let disk = FaultyDisk::new(operation);
            let life = Life::begin(disk.clone(), operation, folder.path());
            disk.plan(operation, if operation % 2 == 0 { Fault::Error } else { Fault::End });
            died += usize::from(life.go_on().await.is_none());
            let disk = if operation % 4 < 2 { disk.after_kill() } else { disk.after_power_loss() };
            // The file is on another disk, which a power loss of this one does not touch.
            life.host.drain().await;
            drop(life);
            let life = Life::begin(disk, operation, folder.path());
            let what = format!("died at {operation}");
            life.go_on().await.expect(&what);
            let numbers: Vec<_> = lines(folder.path()).iter().map(|line| line["n"].as_u64()).collect();
            assert_eq!(numbers, (0..EVENTS).map(Some).collect::<Vec<_>>(), "{what}");
            let browse = life.host.browse(DEFAULT_TENANT).expect("declared");
            let page = browse.page(BrowseQuery::default()).await.expect(&what);
            assert_eq!((page.total, page.items.len() as u64), (EVENTS, EVENTS), "{what}");
            life.host.drain().await;
        }
        assert!(died > 15, "the process died {died} times");
    });
}
