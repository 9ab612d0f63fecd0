//! Commits that wait for a handler: `handled:NAME`.

use std::pin::{Pin, pin};

use annals_core::handlers::{Act, HandlerDefinition};
use annals_core::{Code, CommitOutcome, DEFAULT_SCOPE, DEFAULT_TENANT, Included, Reached, Verdicts};

use crate::Subject;
use crate::handlers::opened::{Opened, positions};

const STAGE: &str = "handled:h";

/// Runs something meanwhile. The wait must still be pending at its end.
async fn meanwhile<T>(waiting: &mut Pin<&mut impl Future<Output = CommitOutcome>>, does: impl Future<Output = T>) -> T {
    tokio::select! {
        biased;
        outcome = waiting => panic!("it ended: {outcome:?}"),
        done = does => done,
    }
}

fn reached(outcome: &CommitOutcome) -> String {
    outcome.reached().as_str().to_owned()
}

/// The wait is for all of them.
pub async fn a_commit_waits_until_a_handler_has_handled_its_events(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    it.by_aggregate("h").await;
    let mut waiting = pin!(it.commit_until(STAGE, "a", &["placed", "paid"]));
    for position in [0, 1] {
        let delivery = meanwhile(&mut waiting, it.pull("h")).await;
        assert_eq!(positions(&delivery), [position]);
        // No request to the owner ends the wait before the event is settled.
        meanwhile(&mut waiting, it.handlers.get("h")).await.expect("defined");
        let (outcome, ()) = match position {
            0 => {
                meanwhile(&mut waiting, it.done("h", &delivery[0])).await;
                continue;
            }
            _ => tokio::join!(&mut waiting, it.done("h", &delivery[0])),
        };
        assert_eq!((reached(&outcome), outcome.first_sequence_number), (STAGE.to_owned(), Some(0)));
    }
    assert_eq!(it.handlers.get("h").await.expect("defined").position, 2);
}

/// It ends although no worker pulls.
pub async fn a_wait_ends_for_events_that_are_not_the_handlers(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    it.define(HandlerDefinition::new("h").types(["rare"])).await;
    let outcome = it.commit_until(STAGE, "a", &["common", "common"]).await;
    assert_eq!(reached(&outcome), STAGE);
}

/// It ends once the filter has decided.
pub async fn a_wait_ends_for_events_that_a_stream_does_not_have(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    let streams = it.store.streams(DEFAULT_TENANT, DEFAULT_SCOPE).expect("always there");
    it.define(HandlerDefinition::new("h").stream("stream-1")).await;
    let mut waiting = pin!(it.commit_until(STAGE, "a", &["placed", "paid"]));
    let a_second_passes = async || {
        for _ in 0..10 {
            it.advance(100);
            it.handlers.get("h").await.expect("defined");
        }
    };
    let commit_is_logged = async {
        while it.log.head().await.expect("reads") < 2 {
            crate::between_looks().await;
        }
    };
    meanwhile(&mut waiting, commit_is_logged).await;
    meanwhile(&mut waiting, a_second_passes()).await;
    let verdicts = Verdicts::new("stream-1", 0..2).include(Included::new(1));
    meanwhile(&mut waiting, streams.append(verdicts)).await.expect("appended");
    // The first event is not in the stream, and the second is its entry 0.
    let entry = meanwhile(&mut waiting, it.pull("h")).await;
    assert_eq!((positions(&entry), entry[0].event.sequence_number), (vec![0], 1));
    meanwhile(&mut waiting, a_second_passes()).await;
    let settled_and_time_passes = async {
        it.done("h", &entry[0]).await;
        it.let_time_pass("h").await
    };
    tokio::select! {
        outcome = &mut waiting => assert_eq!(reached(&outcome), STAGE),
        never = settled_and_time_passes => match never {},
    }
}

/// Later events of the partition wait as well.
pub async fn a_wait_lasts_while_the_partition_fails_and_ends_once_its_event_is_handled_or_skipped(
    subject: &dyn Subject,
) {
    let it = Opened::of(subject).await;
    it.by_aggregate("h").await;
    let mut handled = pin!(it.commit_until(STAGE, "a", &["placed"]));
    let first = meanwhile(&mut handled, it.pull("h")).await;
    meanwhile(&mut handled, it.fail("h", &first[0])).await;
    assert!(meanwhile(&mut handled, it.pull_now("h")).await.is_empty(), "not due");
    it.advance(1_000);
    let again = meanwhile(&mut handled, it.pull("h")).await;
    assert_eq!((positions(&again), again[0].attempt), (vec![0], 2));
    let (outcome, ()) = tokio::join!(&mut handled, it.done("h", &again[0]));
    assert_eq!(reached(&outcome), STAGE);

    let mut skipped = pin!(it.commit_until(STAGE, "b", &["placed"]));
    let failing = meanwhile(&mut skipped, it.pull("h")).await;
    meanwhile(&mut skipped, it.fail("h", &failing[0])).await;
    let mut following = pin!(it.commit_until(STAGE, "b", &["paid"]));
    assert!(meanwhile(&mut following, it.pull_now("h")).await.is_empty(), "it waits behind the failed one");
    let skip =
        it.handlers.act("h", Act::Skip { partition: "order/b".into(), position: None }, "it cannot be handled".into());
    let (outcome, skip) = tokio::join!(&mut skipped, meanwhile(&mut following, skip));
    skip.expect("allowed");
    assert_eq!(reached(&outcome), STAGE);
    let next = meanwhile(&mut following, it.pull("h")).await;
    let (outcome, ()) = tokio::join!(&mut following, it.done("h", &next[0]));
    assert_eq!(reached(&outcome), STAGE);
}

/// The timeout is not a condition.
pub async fn a_wait_that_lasts_too_long_ends_and_the_commit_stands(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    it.by_aggregate("h").await;
    let mut waiting = pin!(it.commit_until(STAGE, "a", &["placed"]));
    let delivery = meanwhile(&mut waiting, it.pull("h")).await;
    it.advance(49_000);
    meanwhile(&mut waiting, it.handlers.get("h")).await.expect("defined");
    // The wait began when the commit was logged, which may have been after the pull.
    let outcome = loop {
        it.advance(1_000);
        tokio::select! {
            biased;
            outcome = &mut waiting => break outcome,
            () = crate::between_looks() => {}
        }
    };
    assert_eq!((outcome.reached(), outcome.stage), (Reached::Logged, None));
    assert_eq!(positions(&delivery), [0]);
}

/// The answer lacks the stage, and the event is handled later.
pub async fn a_wait_ends_when_the_host_is_drained(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    it.by_aggregate("h").await;
    let mut waiting = pin!(it.commit_until(STAGE, "a", &["placed"]));
    meanwhile(&mut waiting, it.pull("h")).await;
    let (outcome, ()) = tokio::join!(&mut waiting, it.host.drain());
    assert_eq!(reached(&outcome), "logged");
    let after = Opened::on(it.store.clone(), it.clock.clone());
    assert_eq!(after.handle_all("h", 1).await, [0]);
}

/// It is refused before anything is committed.
pub async fn a_stage_that_does_not_exist_is_refused(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    it.by_aggregate("h").await;
    for (stage, code, word) in [
        ("handled:other", Code::UnknownHandler, "other"),
        ("tea", Code::InvalidWait, "\"handled:NAME\""),
        ("handled", Code::InvalidWait, "\"snapshot\""),
        ("snapshot:h", Code::InvalidWait, "\"logged\""),
        ("logged", Code::InvalidWait, "\"logged\""),
        ("te a", Code::InvalidWait, "te a"),
    ] {
        let error = it.host.stage(DEFAULT_TENANT, stage).await.expect_err(stage);
        assert_eq!(error.code(), code, "{stage}: {error}");
        assert!(error.to_string().contains(word), "{error}");
    }
    assert_eq!(it.host.stage("nobody", STAGE).await.expect_err("not declared").code(), Code::UnknownTenant);
}
