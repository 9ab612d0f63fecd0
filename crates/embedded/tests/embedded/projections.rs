//! The suite of projections, on a disk in memory and on a real one; and every place at which a process can die.

use std::sync::Arc;

use annals_core::projections::{ProjectionDefinition, Projections};
use annals_core::{DEFAULT_SCOPE, DEFAULT_TENANT, Data, EventLog, LogQuery, NewCommit, NewEvent, RecordQuery, Store};
use annals_embedded::EmbeddedStore;
use annals_runtime::{Host, HostOptions};
use serde_json::json;

use crate::conformance::Embedded;
use crate::faulty_disk::{Fault, FaultyDisk};
use crate::stores::{block_on, repeatable, roomy_segments};

mod memory {
    use super::*;
    annals_conformance::projections!(Embedded::in_memory(roomy_segments()));
}

mod real_disk {
    use super::*;
    annals_conformance::projections!(Embedded::in_a_folder(roomy_segments()));
}

const FIRST: &str = r#"{"on": {"counted": {"increment": {"count": 1}, "push": {"all": "$data.n"}}}}"#;
const SECOND: &str =
    r#"{"on": {"counted": {"increment": {"count": 1}, "push": {"all": "$data.n"}, "set": {"second": true}}}}"#;
const EVENTS: usize = 8;

/// A store with a host on it.
struct Life {
    log: Arc<dyn EventLog>,
    host: Host,
    disk: Arc<FaultyDisk>,
}

impl Life {
    fn begin(disk: Arc<FaultyDisk>, seed: u64) -> Self {
        let store =
            EmbeddedStore::open(disk.clone(), repeatable(seed)).unwrap_or_else(|error| panic!("{seed}: {error}"));
        let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("always there");
        let host = Host::start(Arc::new(store), HostOptions::default());
        host.start_defined();
        Self { log, host, disk }
    }

    fn projections(&self) -> Arc<dyn Projections> {
        self.host.projections(DEFAULT_TENANT).expect("declared")
    }

    /// Does what is left of the story: events, and a definition that changes in the middle. Returns none where the disk failed.
    async fn go_on(&self) -> Option<()> {
        let head = usize::try_from(self.log.head().await.ok()?).ok()?;
        let projections = self.projections();
        let known = projections.get("counts").await.ok().map(|status| status.definition.to_string());
        if known.is_none() {
            projections.put(ProjectionDefinition::read("counts", FIRST.as_bytes()).ok()?).await.ok()?;
        }
        for n in head..EVENTS {
            let data = Data::from_value(&json!({ "n": n })).ok()?;
            let commit = NewCommit::new("counter", format!("c-{}", n % 2)).event(NewEvent::new("counted", data));
            self.log.commit(commit).await.ok()?;
            self.settled(n as u64 + 1).await?;
            if n == EVENTS / 2 {
                projections.put(ProjectionDefinition::read("counts", SECOND.as_bytes()).ok()?).await.ok()?;
            }
        }
        projections.put(ProjectionDefinition::read("counts", SECOND.as_bytes()).ok()?).await.ok()?;
        self.settled(EVENTS as u64).await
    }

    /// Waits until everything is folded and built; none where the disk failed.
    async fn settled(&self, head: u64) -> Option<()> {
        loop {
            let status = self.projections().get("counts").await.ok()?;
            if status.position >= head && status.building.is_none() {
                return Some(());
            }
            if !self.disk.fired().is_empty() {
                return None;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Compares the records with the events below the projection's position.
    async fn check(&self, what: &str) {
        let projections = self.projections();
        let Ok(before) = projections.get("counts").await else { return };
        let page = projections.find("counts", RecordQuery::new("")).await.expect(what);
        let after = projections.get("counts").await.expect(what);
        let log = self.log.read(LogQuery::default()).await.expect(what);
        let all = |key: &str, to: u64| {
            let events =
                log.events.iter().filter(|event| &*event.commit.aggregate.id == key && event.sequence_number < to);
            events.map(|event| event.data.as_raw().get_i64("n").expect("a number")).collect::<Vec<_>>()
        };
        for record in &page.records {
            let key = record.document.get_str("_id").expect(what);
            let found = record.document.get_array("all").expect(what).into_iter().flatten();
            let found: Vec<i64> = found.filter_map(|n| n.as_i64()).collect();
            assert_eq!(record.document.get_i64("count").ok(), Some(found.len() as i64), "{what}");
            let most = all(key, u64::MAX);
            assert!(most.starts_with(&found), "{what}: {found:?} of {most:?}");
            if before.position == after.position && before.build == after.build {
                assert_eq!(found, all(key, before.position), "{what}");
            }
        }
    }
}

/// At every operation of the disk, by kill -9 and by power loss: every event is folded exactly once, and reads see whole builds.
#[test]
fn every_event_is_folded_exactly_once_wherever_the_process_dies() {
    block_on(async {
        let mut died = 0;
        for operation in 0..160 {
            let disk = FaultyDisk::new(operation);
            let life = Life::begin(disk.clone(), operation);
            disk.plan(operation, if operation % 3 == 0 { Fault::Error } else { Fault::End });
            died += usize::from(life.go_on().await.is_none());
            let disk = if operation % 4 < 2 { disk.after_kill() } else { disk.after_power_loss() };
            drop(life);
            let life = Life::begin(disk, operation);
            let what = format!("died at {operation}");
            life.check(&what).await;
            life.go_on().await.expect(&what);
            life.check(&what).await;
            let page = life.projections().find("counts", RecordQuery::new("")).await.expect(&what);
            assert_eq!(page.records.len(), 2, "{what}");
            assert!(page.records.iter().all(|record| record.document.get_bool("second").is_ok()), "{what}");
            life.host.drain().await;
        }
        assert!(died > 40, "the process died {died} times");
    });
}
