//! The suite of filters, on a disk in memory and on a real one, and every point at which a process can die while it fills a stream.

use std::sync::Arc;
use std::time::Duration;

use annals_core::filters::FilterDefinition;
use annals_core::processing::PartitionBy;
use annals_core::{
    DEFAULT_SCOPE, DEFAULT_TENANT, Data, EventLog, NewCommit, NewEvent, Store, StreamEntry, StreamQuery, Streams,
};
use annals_runtime::{Host, HostOptions};

use crate::conformance::Embedded;
use crate::faulty_disk::{Fault, FaultyDisk};
use crate::stores::{block_on, open, repeatable, roomy_segments};

mod memory {
    use super::*;
    annals_conformance::filters!(Embedded::in_memory(roomy_segments()));
}

mod real_disk {
    use super::*;
    annals_conformance::filters!(Embedded::in_a_folder(roomy_segments()));
}

/// No wait takes longer.
const DEADLINE: Duration = Duration::from_secs(60);
const STREAM: &str = "orders";

fn definition() -> FilterDefinition {
    FilterDefinition::new(STREAM).types(["placed"]).partitioned(PartitionBy::Aggregate)
}

async fn commit(log: &dyn EventLog, event_type: &str) {
    let event = NewEvent::new(event_type, Data::from_value(&serde_json::json!({})).expect("a document"));
    log.commit(NewCommit::new("order", "a").event(event)).await.expect("committed");
}

fn streams_of(store: &Arc<dyn Store>) -> Arc<dyn Streams> {
    store.streams(DEFAULT_TENANT, DEFAULT_SCOPE).expect("always there")
}

/// Waits until the stream has evaluated so many events, or until `gone` says that the process is.
async fn until(streams: &dyn Streams, progress: u64, gone: impl Fn() -> bool) {
    let there = async {
        while !gone() && streams.stream(STREAM).await.is_ok_and(|info| info.progress < progress) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE, there).await.expect("the stream is filled in time");
}

/// A process defines and runs a filter over seven events, and dies at one operation of its disk. Another defines the same again, and runs
/// it. Returns whether the first one died.
async fn dies_at(operation: u64, power_loss: bool) -> bool {
    let disk = FaultyDisk::new(operation);
    let first = open(disk.clone(), repeatable(1)).expect("it opens");
    for event_type in ["placed", "paid", "placed", "placed", "paid", "paid", "placed"] {
        commit(&*first.log, event_type).await;
    }
    let store: Arc<dyn Store> = Arc::new(first.store);
    disk.plan(operation, Fault::End);
    let host = Host::start(Arc::clone(&store), HostOptions::default());
    let _ = host.filters(DEFAULT_TENANT).expect("declared").put(definition()).await;
    until(&*streams_of(&store), 7, || !disk.fired().is_empty()).await;
    let died = !disk.fired().is_empty();
    let disk = if power_loss { disk.after_power_loss() } else { disk.after_kill() };
    drop((host, store));

    let next = open(disk, repeatable(2)).expect("it opens");
    let store: Arc<dyn Store> = Arc::new(next.store);
    let host = Host::start(Arc::clone(&store), HostOptions::default());
    host.start_defined();
    host.filters(DEFAULT_TENANT).expect("declared").put(definition()).await.expect("defined");
    commit(&*next.log, "placed").await;
    let streams = streams_of(&store);
    until(&*streams, 8, || false).await;
    let entries = streams.read(StreamQuery::new(STREAM)).await.expect("reads").entries;
    let expected = [0, 2, 3, 6, 7].into_iter().zip(0..).map(|(sequence_number, position)| StreamEntry {
        position,
        sequence_number,
        partition: Some("order/a".into()),
    });
    assert_eq!(entries, expected.collect::<Vec<_>>(), "dead at operation {operation}");
    host.drain().await;
    store.close().await;
    died
}

/// Kill -9 and power loss, at every write and sync from the definition to the last entry.
#[test]
fn a_filter_that_dies_at_any_point_skips_no_event_and_includes_none_twice() {
    for power_loss in [false, true] {
        let mut operation = 0;
        while block_on(dies_at(operation, power_loss)) {
            operation += 1;
        }
        assert!(operation > 10, "only {operation} operations were enumerated");
    }
}
