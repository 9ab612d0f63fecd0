//! The store's own deletion of expired documents, at work while events are archived and replayed.

use std::sync::Arc;
use std::time::Duration;

use annals_conformance::ManualClock;
use annals_conformance::model::EPOCH;
use annals_core::archive::{ArchiveTarget, EVENTS_ARCHIVE, RetentionBody};
use annals_core::browse::{EVENTS, ReplayFilter, ViewBody, ViewSwitch};
use annals_core::replays::{ReplayAct, ReplayBody, ReplayState, ReplayTarget};
use annals_core::{Condition, DEFAULT_SCOPE, DEFAULT_TENANT, Data, NewCommit, NewEvent, Store};
use annals_embedded::disk::MemoryDisk;
use annals_embedded::{EmbeddedStore, Options};
use annals_runtime::{Host, HostOptions};

use crate::stores::{block_on, roomy_segments};

const DAY: i64 = 24 * 60 * 60 * 1_000;
const EVENTS_OF_EACH: u64 = 6;

async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    let reached = async {
        while !is_so().await {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), reached).await.unwrap_or_else(|_| panic!("no {what} in a minute"));
}

/// The archive keeps what is deleted, and events without a rule stay. A replay that runs meanwhile passes over what is gone, and ends.
#[test]
fn the_store_deletes_archived_events_alone_and_a_replay_that_runs_meanwhile_ends() {
    block_on(async {
        let clock = Arc::new(ManualClock::at(EPOCH));
        let options = Options { clock: clock.clone(), expiry_every: Duration::from_millis(10), ..roomy_segments() };
        let disk = Arc::new(MemoryDisk::default());
        let store: Arc<dyn Store> = Arc::new(EmbeddedStore::open(disk, options).expect("it opens"));
        let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("always there");
        let records = store.records(DEFAULT_TENANT).expect("declared");
        let host = Host::start(store, HostOptions { clock: clock.clone(), ..HostOptions::default() });
        host.start_defined();
        let (browse, archive) =
            (host.browse(DEFAULT_TENANT).expect("declared"), host.archive(DEFAULT_TENANT).expect("declared"));
        let replays = host.replays(DEFAULT_TENANT).expect("declared");
        let kept = ViewBody { retention_days: Some(None), ..ViewBody::switched(Some(ViewSwitch::On), "a test") };
        browse.set_view(kept).await.expect("switched");
        for n in 0..EVENTS_OF_EACH {
            for event_type in ["placed", "paid"] {
                let event = NewEvent::new(event_type, Data::empty());
                log.commit(NewCommit::new("order", format!("{event_type}-{n}")).event(event)).await.expect("committed");
            }
        }
        let count = async |place: &str, event_type: &str| {
            records.count(place, &Condition::eq("event_type", event_type)).await.unwrap_or(0)
        };
        until("whole view", async || count(EVENTS, "placed").await + count(EVENTS, "paid").await == 2 * EVENTS_OF_EACH)
            .await;

        let filter = ReplayFilter { event_types: Some(vec!["placed".to_owned()]), ..ReplayFilter::default() };
        let body = ReplayBody { batch_size: 1, rate: Some(1.0), ..ReplayBody::new(filter, ReplayTarget::Test {}) };
        let id = replays.create(body).await.expect("taken").session_id;
        replays.act(&id, ReplayAct::Start, "a test".into()).await.expect("started");
        until("first event of the replay", async || replays.get(&id).await.expect("known").replayed == 1).await;

        archive.put_rule("placed", RetentionBody::new(Some(1), ArchiveTarget::Collection)).await.expect("set");
        clock.advance_millis(2 * DAY);
        until("deletion", async || count(EVENTS, "placed").await == 0).await;
        assert_eq!(count(EVENTS_ARCHIVE, "placed").await, EVENTS_OF_EACH, "all of them were archived before");
        assert_eq!(count(EVENTS, "paid").await, EVENTS_OF_EACH);
        until("end of the replay", async || {
            clock.advance_millis(1_000);
            replays.get(&id).await.expect("known").status.is_terminal()
        })
        .await;
        let over = replays.get(&id).await.expect("known");
        assert_eq!((over.status, over.failed), (ReplayState::Completed, 0));
        assert!((1..=EVENTS_OF_EACH).contains(&over.replayed), "{over:?}");
        host.drain().await;
    });
}
