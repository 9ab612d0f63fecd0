//! The suite of work queues, on a disk in memory and on a real one; and how many batches their callers take.

use std::sync::Arc;

use annals_core::queue::{NewItem, QueueDefinition, QueueLedgerRecord, WorkQueue};
use annals_core::{DEFAULT_TENANT, Store, TypedRecords};
use annals_embedded::EmbeddedStore;
use annals_embedded::disk::MemoryDisk;
use annals_runtime::RecordsQueue;

use crate::conformance::Embedded;
use crate::stores::roomy_segments;

mod memory {
    use super::*;
    annals_conformance::queue!(Embedded::in_memory(roomy_segments()));
}

mod real_disk {
    use super::*;
    annals_conformance::queue!(Embedded::in_a_folder(roomy_segments()));
}

/// On one thread, which runs the task first that was woken last: that is the next turn, before the callers that the last one answered.
#[test]
fn callers_that_were_just_answered_take_part_in_the_next_turn() {
    const ITEMS: i64 = 100;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build();
    runtime.expect("a runtime can be built").block_on(async {
        let options = roomy_segments();
        let clock = Arc::clone(&options.clock);
        let store = EmbeddedStore::open(Arc::new(MemoryDisk::default()), options).expect("it opens");
        let records = store.records(DEFAULT_TENANT).expect("always there");
        let queue = Arc::new(RecordsQueue::new(Arc::clone(&records), clock));
        let mut callers = tokio::task::JoinSet::new();
        let both = Arc::new(tokio::sync::Barrier::new(2));
        for caller in 0..2 {
            let (queue, both) = (Arc::clone(&queue), Arc::clone(&both));
            callers.spawn(async move {
                both.wait().await;
                let definition = QueueDefinition::new("work");
                for n in 0..ITEMS {
                    let item = NewItem::new(format!("{caller}-{n}"));
                    queue.enqueue(&definition, &item).await.expect("it is enqueued");
                }
            });
        }
        callers.join_all().await;
        let ledgers = TypedRecords::<QueueLedgerRecord>::declared(records);
        let ledger = ledgers.get("work").await.expect("it is read").expect("it is there");
        assert!(ledger.value.turn < ITEMS * 3 / 2, "{} batches for two callers", ledger.value.turn);
        store.close().await;
    });
}
