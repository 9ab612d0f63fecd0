//! Deliveries that were claimed, and then could not be made or not be settled.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use annals_core::browse::ViewSwitch;
use annals_core::handlers::{HandlerDefinition, PullBody, Start};
use annals_core::processing::PartitionBy;
use annals_core::replays::{INBOX, ReplayStatus};
use annals_core::{
    Code, DEFAULT_TENANT, Expected, RecordChange, RecordError, RecordPage, RecordQuery, RecordedEvent, Records,
    Revision, StoreError,
};
use annals_runtime::{Effects, HandleFailure, Handler};
use async_trait::async_trait;
use tokio::sync::Notify;

use super::{Stuck, to_handler};
use crate::Subject;
use crate::browse::opened::Browsed;
use crate::tap::{TapRecords, TappedStore};

/// Returns whether a batch changes only deliveries of replays. The batch of a replay that sends one also changes the replay.
fn is_of_deliveries(changes: &[RecordChange]) -> bool {
    !changes.is_empty() && changes.iter().all(|change| change.collection() == INBOX)
}

/// Answers the first claim only once a case allows it.
#[derive(Default)]
struct SlowClaim {
    claims: AtomicUsize,
    claimed: Notify,
    answered: Notify,
}

#[async_trait]
impl TapRecords for SlowClaim {
    async fn write(&self, records: &dyn Records, changes: Vec<RecordChange>) -> Result<Vec<Revision>, RecordError> {
        let is_claim = is_of_deliveries(&changes) && matches!(&changes[0], RecordChange::Replace { .. });
        let is_first = is_claim && self.claims.fetch_add(1, Ordering::SeqCst) == 0;
        let written = records.write(changes).await;
        if is_first {
            self.claimed.notify_one();
            self.answered.notified().await;
        }
        written
    }
}

/// Stores the first claim, and fails before it answers.
#[derive(Default)]
struct BrokenClaim(AtomicBool);

#[async_trait]
impl TapRecords for BrokenClaim {
    async fn write(&self, records: &dyn Records, changes: Vec<RecordChange>) -> Result<Vec<Revision>, RecordError> {
        let is_claim = is_of_deliveries(&changes) && matches!(&changes[0], RecordChange::Replace { .. });
        let written = records.write(changes).await;
        match is_claim && !self.0.swap(true, Ordering::SeqCst) {
            true => Err(StoreError::Unreachable("a test".to_owned()).into()),
            false => written,
        }
    }
}

/// Like [`SlowClaim`], but fails the write after the first claim: its withdrawal.
#[derive(Default)]
struct FailedWithdrawal {
    claim: SlowClaim,
    fails: AtomicBool,
}

#[async_trait]
impl TapRecords for FailedWithdrawal {
    async fn write(&self, records: &dyn Records, changes: Vec<RecordChange>) -> Result<Vec<Revision>, RecordError> {
        if is_of_deliveries(&changes) && self.fails.swap(false, Ordering::SeqCst) {
            return Err(StoreError::Unreachable("a test".to_owned()).into());
        }
        self.claim.write(records, changes).await
    }
}

/// Fails the first settlement of a delivery.
#[derive(Default)]
struct LostSettlement(AtomicBool);

#[async_trait]
impl TapRecords for LostSettlement {
    async fn write(&self, records: &dyn Records, changes: Vec<RecordChange>) -> Result<Vec<Revision>, RecordError> {
        let is_settlement = is_of_deliveries(&changes) && matches!(&changes[0], RecordChange::Delete { .. });
        if is_settlement && !self.0.swap(true, Ordering::SeqCst) {
            return Err(StoreError::Unreachable("a test".to_owned()).into());
        }
        records.write(changes).await
    }
}

/// Fails the first look for deliveries, once a case requests it.
#[derive(Default)]
struct FailedLook {
    fails: AtomicBool,
    failed: Notify,
}

#[async_trait]
impl TapRecords for FailedLook {
    async fn write(&self, records: &dyn Records, changes: Vec<RecordChange>) -> Result<Vec<Revision>, RecordError> {
        records.write(changes).await
    }

    async fn find(&self, records: &dyn Records, query: RecordQuery) -> Result<RecordPage, RecordError> {
        if query.collection == INBOX && self.fails.swap(false, Ordering::SeqCst) {
            self.failed.notify_one();
            return Err(StoreError::Io("a test".to_owned()).into());
        }
        records.find(query).await
    }
}

/// Opens a view on a store whose records are behind a tap.
async fn behind(tap: &Arc<impl TapRecords>, subject: &dyn Subject) -> Browsed {
    let store = TappedStore::new(subject.open().await).with_records(tap);
    let it = Browsed::on(Arc::new(store), subject.clock());
    it.switch(Some(ViewSwitch::Auto)).await;
    it
}

/// A handler that takes long for its own events, and no time for those of replays.
#[derive(Default)]
struct Gated {
    began: Notify,
    goes_on: Notify,
}

#[async_trait]
impl Handler for Gated {
    async fn handle(&self, _: &[RecordedEvent], effects: &mut Effects) -> Result<(), HandleFailure> {
        if effects.replay().is_none() {
            self.began.notify_one();
            self.goes_on.notified().await;
        }
        Ok(())
    }
}

/// Starts a handler that has begun an event of its own, and can get events of a replay beside it.
async fn gated(it: &Browsed) -> Arc<Gated> {
    let gated = Arc::new(Gated::default());
    it.commit_many("placed", 1).await;
    let definition = HandlerDefinition::new("again").partitioned(PartitionBy::Aggregate, 2);
    it.it.host.handle(DEFAULT_TENANT, definition, Arc::clone(&gated)).await.expect("defined");
    gated.began.notified().await;
    gated
}

async fn until_handled(it: &Browsed) {
    while it.it.handlers.get("again").await.expect("defined").position < 1 {
        crate::between_looks().await;
    }
}

/// Returns the definition of a handler of events from now on.
fn of_new_events() -> HandlerDefinition {
    HandlerDefinition { start: Start::Latest, ..HandlerDefinition::new("again") }
}

/// Waits until a replay is over, while time passes: much less than the lease of a handler in Rust.
async fn over(it: &Browsed, id: &str) -> ReplayStatus {
    tokio::select! {
        over = it.over(id) => over,
        never = it.it.let_time_pass_by_writes() => match never {},
    }
}

/// The result is the same as without the first worker.
pub async fn a_delivery_whose_worker_leaves_while_it_is_claimed_goes_to_the_next_one(subject: &dyn Subject) {
    let slow = Arc::new(SlowClaim::default());
    let it = behind(&slow, subject).await;
    it.commit_many("placed", 1).await;
    it.handler(PartitionBy::None).await;
    let id = it.begin(to_handler()).await;
    tokio::select! {
        pulled = it.it.pull("again") => panic!("{pulled:?}"),
        () = slow.claimed.notified() => {}
    }
    slow.answered.notify_one();
    let delivery = it.it.pull("again").await.remove(0);
    assert_eq!((delivery.attempt, delivery.replay.is_some()), (1, true));
    it.it.done("again", &delivery).await;
    let over = it.over(&id).await;
    assert_eq!((over.replayed, over.failed), (1, 0));
}

/// The end of an attempt does not cancel the pull.
pub async fn a_delivery_that_a_handler_in_rust_claims_while_an_attempt_ends_is_handled(subject: &dyn Subject) {
    let slow = Arc::new(SlowClaim::default());
    let it = behind(&slow, subject).await;
    let gated = gated(&it).await;
    let id = it.begin(to_handler()).await;
    slow.claimed.notified().await;
    gated.goes_on.notify_one();
    until_handled(&it).await;
    slow.answered.notify_one();
    let over = it.over(&id).await;
    assert_eq!((over.replayed, over.failed), (1, 0));
    assert_eq!(slow.claims.load(Ordering::SeqCst), 1, "it was neither withdrawn nor claimed again");
}

/// This also holds if the handler is restarted because of it.
pub async fn an_attempt_of_a_handler_in_rust_goes_on_when_its_next_pull_fails(subject: &dyn Subject) {
    let look = Arc::new(FailedLook::default());
    let it = behind(&look, subject).await;
    let gated = gated(&it).await;
    look.fails.store(true, Ordering::SeqCst);
    let id = it.begin(to_handler()).await;
    look.failed.notified().await;
    gated.goes_on.notify_one();
    until_handled(&it).await;
    let over = over(&it, &id).await;
    assert_eq!((over.replayed, over.failed), (1, 0));
}

/// It is repeated until it is stored.
pub async fn a_settlement_of_a_handler_in_rust_that_the_store_did_not_get_is_repeated(subject: &dyn Subject) {
    struct Succeeding;
    #[async_trait]
    impl Handler for Succeeding {
        async fn handle(&self, _: &[RecordedEvent], _: &mut Effects) -> Result<(), HandleFailure> {
            Ok(())
        }
    }
    let lost = Arc::new(LostSettlement::default());
    let it = behind(&lost, subject).await;
    it.commit_many("placed", 1).await;
    it.it.host.handle(DEFAULT_TENANT, of_new_events(), Succeeding).await.expect("defined");
    let id = it.begin(to_handler()).await;
    let over = over(&it, &id).await;
    assert_eq!((over.replayed, over.failed), (1, 0));
    assert!(lost.0.load(Ordering::SeqCst), "a settlement was lost");
}

/// This holds although it was its only attempt, and although its lease lasts 12 hours.
pub async fn a_delivery_of_a_handler_in_rust_whose_process_ended_is_made_again(subject: &dyn Subject) {
    let it = Browsed::of(subject).await;
    it.commit_many("placed", 1).await;
    let began = Arc::new(Notify::new());
    it.it.host.handle(DEFAULT_TENANT, of_new_events(), Stuck(Arc::clone(&began))).await.expect("defined");
    let id = it.begin(to_handler()).await;
    began.notified().await;
    let it = it.restarted().await;
    it.it.host.handle(DEFAULT_TENANT, of_new_events(), Gated::default()).await.expect("defined");
    let over = over(&it, &id).await;
    assert_eq!((over.replayed, over.failed), (1, 0));
}

/// The error is that of the store, and none of the effects is applied.
pub async fn a_refused_effect_of_a_handler_in_rust_fails_the_delivery_of_a_replay(subject: &dyn Subject) {
    struct Refused;
    #[async_trait]
    impl Handler for Refused {
        async fn handle(&self, _: &[RecordedEvent], effects: &mut Effects) -> Result<(), HandleFailure> {
            effects.change(RecordChange::delete_if("annals-test-nowhere", "a", Expected::Present));
            Ok(())
        }
    }
    let it = Browsed::of(subject).await;
    it.commit_many("placed", 1).await;
    it.it.host.handle(DEFAULT_TENANT, of_new_events(), Refused).await.expect("defined");
    let id = it.begin(to_handler()).await;
    let over = it.over(&id).await;
    assert_eq!((over.replayed, over.failed), (0, 1));
    assert!(over.errors[0].error.contains("effects were refused"), "{:?}", over.errors);
}

/// It is withdrawn at once, and not when its lease ends: time stands still.
pub async fn a_claim_whose_outcome_is_unknown_is_withdrawn(subject: &dyn Subject) {
    let broken = Arc::new(BrokenClaim::default());
    let it = behind(&broken, subject).await;
    it.commit_many("placed", 1).await;
    it.handler(PartitionBy::None).await;
    let id = it.begin(to_handler()).await;
    let pull = PullBody { wait_ms: 50_000, worker: "w".to_owned(), ..PullBody::default() };
    let refused = it.it.handlers.pull("again", pull).await.expect_err("it has no answer");
    assert_eq!(refused.code(), Code::Unreachable, "{refused}");
    let delivery = it.it.pull("again").await.remove(0);
    assert_eq!((delivery.attempt, delivery.replay.is_some()), (1, true));
    it.it.done("again", &delivery).await;
    let over = it.over(&id).await;
    assert_eq!((over.replayed, over.failed), (1, 0));
}

/// It is repeated until the store can be reached. The lease lasts much longer than the case, and its end would use up the only attempt.
pub async fn a_withdrawal_that_fails_is_repeated(subject: &dyn Subject) {
    let failed = Arc::new(FailedWithdrawal::default());
    let it = behind(&failed, subject).await;
    it.commit_many("placed", 1).await;
    it.handler(PartitionBy::None).await;
    let id = it.begin(to_handler()).await;
    let pull = PullBody { wait_ms: 50_000, lease_ms: 43_200_000, worker: "w".to_owned(), ..PullBody::default() };
    tokio::select! {
        pulled = it.it.handlers.pull("again", pull) => panic!("{pulled:?}"),
        () = failed.claim.claimed.notified() => {}
    }
    failed.fails.store(true, Ordering::SeqCst);
    failed.claim.answered.notify_one();
    let delivery = loop {
        it.it.advance(100);
        if let Some(delivery) = it.it.pull_now("again").await.into_iter().next() {
            break delivery;
        }
        crate::between_looks().await;
    };
    assert_eq!(delivery.attempt, 1);
    assert!(!failed.fails.load(Ordering::SeqCst), "the first withdrawal failed");
    it.it.done("again", &delivery).await;
    let over = it.over(&id).await;
    assert_eq!((over.replayed, over.failed), (1, 0));
}
