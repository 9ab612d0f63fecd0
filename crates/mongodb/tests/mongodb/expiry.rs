//! MongoDB's own deletion of expired documents, at work while events are archived and replayed.

use std::sync::Arc;

use annals_conformance::ManualClock;
use annals_core::archive::{ArchiveTarget, EVENTS_ARCHIVE, RetentionBody};
use annals_core::browse::{EVENTS, ReplayFilter, ViewBody, ViewSwitch};
use annals_core::replays::{ReplayAct, ReplayBody, ReplayState, ReplayTarget};
use annals_core::{Clock, Condition, DEFAULT_TENANT, NewCommit, NewEvent, Reached, Store, Timestamp};
use annals_mongodb::{MongoStore, Options};
use annals_runtime::{Host, HostOptions};
use annals_system::SystemClock;

use crate::server::{log_of, until};
use crate::servers::ReplicaSet;

const DAY: i64 = 24 * 60 * 60 * 1_000;
const EVENTS_OF_EACH: u64 = 6;

/// The server looks every second. What it deletes was archived before; what no rule names stays. A replay that runs meanwhile passes over
/// what is gone, as over what is deleted, and ends.
#[tokio::test(flavor = "multi_thread")]
async fn the_server_deletes_archived_events_alone_and_a_replay_that_runs_meanwhile_ends() {
    let set = ReplicaSet::start_with(1, &["--setParameter", "ttlMonitorSleepSecs=1"]).await;
    // Ten days ago, so that what expires for this clock has expired for the server.
    let clock = Arc::new(ManualClock::at(Timestamp::from_millis(SystemClock.now().as_millis() - 10 * DAY)));
    let options = Options { clock: clock.clone(), ..Options::default() };
    let store = Arc::new(MongoStore::open(&set.url("expiry"), options).await.expect("opens"));
    let options = HostOptions { clock: clock.clone(), ..HostOptions::default() };
    let host = Host::start(Arc::clone(&store) as Arc<dyn Store>, options);
    host.start_defined();
    let (browse, archive) =
        (host.browse(DEFAULT_TENANT).expect("declared"), host.archive(DEFAULT_TENANT).expect("declared"));
    let (replays, records) =
        (host.replays(DEFAULT_TENANT).expect("declared"), store.records(DEFAULT_TENANT).expect("declared"));
    let kept = ViewBody { retention_days: Some(None), ..ViewBody::switched(Some(ViewSwitch::On), "a test") };
    browse.set_view(kept).await.expect("switched");
    for n in 0..EVENTS_OF_EACH {
        for event_type in ["placed", "paid"] {
            let event = NewEvent::new(event_type, annals_core::Data::empty());
            let commit = NewCommit::new("order", format!("{event_type}-{n}")).event(event);
            log_of(&store).commit(commit.wait_until(Reached::Logged)).await.expect("committed");
        }
    }
    let of_type = |event_type: &str| Condition::eq("event_type", event_type);
    let count = async |place: &str, event_type: &str| records.count(place, &of_type(event_type)).await.unwrap_or(0);
    until("the whole view", async || count(EVENTS, "placed").await + count(EVENTS, "paid").await == 2 * EVENTS_OF_EACH)
        .await;

    let filter = ReplayFilter { event_types: Some(vec!["placed".to_owned()]), ..ReplayFilter::default() };
    let body = ReplayBody { batch_size: 1, rate: Some(1.0), ..ReplayBody::new(filter, ReplayTarget::Test {}) };
    let id = replays.create(body).await.expect("taken").session_id;
    replays.act(&id, ReplayAct::Start, "a test".into()).await.expect("started");
    until("the first event of the replay", async || replays.get(&id).await.expect("known").replayed == 1).await;

    archive.put_rule("placed", RetentionBody::new(Some(1), ArchiveTarget::Collection)).await.expect("set");
    clock.advance_millis(2 * DAY);
    until("the server's deletion", async || count(EVENTS, "placed").await == 0).await;
    assert_eq!(count(EVENTS_ARCHIVE, "placed").await, EVENTS_OF_EACH, "all of them were archived before");
    assert_eq!(count(EVENTS, "paid").await, EVENTS_OF_EACH);
    until("the end of the replay", async || {
        clock.advance_millis(1_000);
        replays.get(&id).await.expect("known").status.is_terminal()
    })
    .await;
    let over = replays.get(&id).await.expect("known");
    assert_eq!((over.status, over.failed), (ReplayState::Completed, 0));
    assert!((1..=EVENTS_OF_EACH).contains(&over.replayed), "{over:?}");
    host.drain().await;
    store.close().await;
}
