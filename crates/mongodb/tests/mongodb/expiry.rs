//! MongoDB's own deletion of expired documents, at work while events are archived and replayed.

use std::sync::Arc;

use annals_conformance::archive::cases::expiring;
use annals_conformance::{ManualClock, Subject};
use annals_core::{Clock, Store, Timestamp};
use annals_mongodb::{MongoStore, Options};
use annals_system::SystemClock;
use async_trait::async_trait;

use crate::servers::ReplicaSet;

/// A store on a server of its own, which looks for expired documents every second.
struct Expiring {
    set: ReplicaSet,
    clock: Arc<ManualClock>,
}

#[async_trait]
impl Subject for Expiring {
    async fn open(&self) -> Arc<dyn Store> {
        let options = Options { clock: self.clock.clone(), ..Options::default() };
        Arc::new(MongoStore::open(&self.set.url("expiry"), options).await.expect("opens"))
    }

    fn clock(&self) -> Arc<ManualClock> {
        self.clock.clone()
    }
}

#[test]
fn the_server_deletes_archived_events_alone_and_a_replay_that_runs_meanwhile_ends() {
    const DAY: i64 = 24 * 60 * 60 * 1_000;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let set = runtime.block_on(ReplicaSet::start_with(1, &["--setParameter", "ttlMonitorSleepSecs=1"]));
    // Ten days ago, so that what expires for this clock has expired for the server.
    let clock = Arc::new(ManualClock::at(Timestamp::from_millis(SystemClock.now().as_millis() - 10 * DAY)));
    annals_conformance::run(
        Expiring { set, clock },
        expiring::a_store_deletes_archived_events_alone_and_a_replay_that_runs_meanwhile_ends,
    );
}
