//! The faults of `faults` and `with_redis_queue` on MongoDB.

use std::sync::Arc;
use std::time::Duration;

use annals::Store;

use crate::faults::{cancel_meets_completion, slot_is_kept};
use crate::with_mongodb_roles::mongodb;
use crate::with_redis_queue::redis_is_replaced;

async fn opened(name: &str) -> Arc<dyn Store> {
    annals::open(&mongodb(name)).await.expect("opens")
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_cancel_and_a_completion_one_is_the_end_of_the_execution() {
    let store = opened("cancel").await;
    cancel_meets_completion(&store).await;
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_is_kept_for_as_long_as_its_program_runs_and_given_back_if_its_lease_was_lost() {
    let store = opened("slot").await;
    slot_is_kept(&store, Duration::from_secs(4)).await;
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn executions_survive_a_redis_that_is_killed_and_comes_back_empty() {
    let store = opened("redis").await;
    redis_is_replaced(&store).await;
    store.close().await;
}
