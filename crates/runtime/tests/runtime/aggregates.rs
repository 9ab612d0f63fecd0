//! How often a command is tried again, and when, on a clock of its own. What else aggregates promise is in the suite `aggregates!`, which
//! every store passes.

use std::sync::Arc;

use annals_conformance::aggregates::{Counter, Racing, add, increased};
use annals_core::{Code, DEFAULT_SCOPE, DEFAULT_TENANT, Store};
use annals_embedded::{EmbeddedStore, Options, disk::MemoryDisk};
use annals_runtime::{Aggregates, Retries};

#[tokio::test(start_paused = true)]
async fn a_conflict_is_tried_again_three_times_later_and_later() {
    let store = EmbeddedStore::open(Arc::new(MemoryDisk::default()), Options::default()).expect("opens in memory");
    let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("always there");
    let racing = Racing::over(log.clone(), 3, increased("c-1", 1));
    let handled = Aggregates::<Counter>::new(racing.clone()).handle("c-1", add(1)).await.expect("the fourth try");
    assert_eq!(handled.aggregate.count, 4);
    let pauses = racing.tap.pauses();
    assert_eq!(pauses.len(), 3);
    for (pause, middle) in pauses.into_iter().zip([500, 1_000, 2_000]) {
        assert!((middle / 2..=middle * 3 / 2 + 1).contains(&pause), "{pause} ms around {middle}");
    }
    let racing = Racing::over(log.clone(), 4, increased("c-1", 1));
    let conflict = Aggregates::<Counter>::new(racing.clone()).handle("c-1", add(1)).await.expect_err("given up");
    assert_eq!(conflict.code(), Some(Code::VersionConflict));
    assert_eq!(racing.tap.pauses().len(), 3);
    let racing = Racing::over(log, 1, increased("c-1", 1));
    let counters = Aggregates::<Counter>::new(racing.clone()).retries(Retries::NONE);
    assert_eq!(counters.handle("c-1", add(1)).await.expect_err("given up").code(), Some(Code::VersionConflict));
}
