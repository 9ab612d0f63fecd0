//! Acts of operators: their effects, their records, and when they are refused.

use annals_core::handlers::{Act, ActEntry, Delivery, End, HandlerDefinition, HandlerState, Place, Reason};
use annals_core::processing::{PartitionBy, ProcessingRetry};
use annals_core::{Code, Timestamp};

use crate::Subject;
use crate::handlers::opened::{Opened, positions, seconds};

async fn refused(it: &Opened, act: Act) -> String {
    let error = it.handlers.act("h", act, "try".into()).await.expect_err("refused");
    assert_eq!(error.code(), Code::StateConflict, "{error}");
    error.to_string()
}

async fn act(it: &Opened, act: Act) {
    it.handlers.act("h", act, Reason::from("because").by("ann")).await.expect("allowed");
}

async fn acts(it: &Opened) -> Vec<ActEntry> {
    it.handlers.acts("h", None, 100).await.expect("reads").items
}

async fn position(it: &Opened) -> u64 {
    it.handlers.get("h").await.expect("defined").position
}

fn at(position: u64) -> Place {
    Place::Position(position)
}

/// Handles everything up to a position. Returns each position with whether its delivery was marked.
async fn replayed(it: &Opened, until: u64) -> Vec<(u64, bool)> {
    let mut seen: Vec<(u64, bool)> = Vec::new();
    loop {
        for delivery in it.pull_now("h").await {
            it.done("h", &delivery).await;
            seen.push((delivery.position, delivery.replay.is_some()));
        }
        let status = it.handlers.get("h").await.expect("defined");
        if status.position >= until && status.failing == 0 && status.replay.is_none() {
            seen.sort_unstable();
            return seen;
        }
        crate::between_looks().await;
    }
}

/// The record has who, when and why, and is in the same batch. This also holds for a handler that was deleted.
pub async fn every_act_is_recorded_with_its_reason_and_listed(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    it.by_aggregate("h").await;
    it.commit("placed", &["a", "b"]).await;
    assert!(acts(&it).await.is_empty());
    let first = it.pull_count("h", 2).await;
    let a = first.iter().find(|delivery| delivery.position == 0).expect("came");
    it.fail("h", a).await;
    act(&it, Act::Pause).await;
    assert_eq!(refused(&it, Act::Pause).await, "cannot pause handler \"h\": it is already paused");
    act(&it, Act::Retry("order/a".into())).await;
    act(&it, Act::Resume).await;
    let again = it.pull("h").await;
    it.fail("h", &again[0]).await;
    act(&it, Act::Skip { partition: "order/a".into(), position: Some(0) }).await;
    let it = it.restarted().await;
    let listed = acts(&it).await;
    let names: Vec<_> = listed.iter().map(|act| &*act.act).collect();
    assert_eq!(names, ["skip", "resume", "retry", "pause"], "the newest first, and none that was refused");
    let skip = &listed[0];
    assert_eq!((skip.partition.as_deref(), skip.position), (Some("order/a"), Some(0)));
    assert_eq!((&*skip.reason, skip.by.as_deref(), skip.at), ("because", Some("ann"), it.now_plus(0)));
    let page = it.handlers.acts("h", None, 3).await.expect("reads");
    let rest = it.handlers.acts("h", page.cursor.as_deref(), 3).await.expect("reads");
    assert_eq!((page.items.len(), rest.items, rest.cursor), (3, vec![listed[3].clone()], None));
    it.handlers.delete("h", "done with it".into()).await.expect("deleted");
    assert_eq!((acts(&it).await.len(), &*acts(&it).await[0].act), (5, "delete"));
    assert_eq!(it.handlers.acts("g", None, 3).await.map_err(|error| error.code()), Err(Code::UnknownHandler));
}

/// Without that check, it would skip another event of the partition.
pub async fn a_skip_that_names_an_event_is_refused_once_another_one_is_next(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    it.by_aggregate("h").await;
    it.commit("placed", &["a", "a"]).await;
    let skip = |position| Act::Skip { partition: "order/a".into(), position: Some(position) };
    let first = it.pull("h").await;
    it.fail("h", &first[0]).await;
    let wrong = refused(&it, skip(1)).await;
    assert!(wrong.contains("position 0"), "{wrong}");
    act(&it, skip(0)).await;
    let second = it.pull("h").await;
    assert_eq!(positions(&second), [1]);
    it.fail("h", &second[0]).await;
    assert!(refused(&it, skip(0)).await.contains("position 1"), "a repeated request skips nothing more");
    act(&it, Act::Park { partition: "order/a".into(), position: Some(1) }).await;
    assert!(it.handle_all("h", 2).await.is_empty());
    assert_eq!(it.handlers.get("h").await.expect("defined").parked, 2);
}

/// A replay starts at the beginning, a number or a time, and ends where the handler was. It is in order for each partition.
pub async fn a_replay_delivers_again_what_was_passed_and_marks_it(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    it.by_aggregate("h").await;
    it.commit("placed", &["a", "b", "a"]).await;
    assert_eq!(it.handle_all("h", 3).await.len(), 3);
    act(&it, Act::Replay { from: Place::End(End::Beginning) }).await;
    let status = it.handlers.get("h").await.expect("defined");
    let replay = status.replay.expect("it is not over");
    assert_eq!((status.position, replay.from, replay.to), (0, 0, 3));
    let again = refused(&it, Act::Replay { from: at(0) }).await;
    assert!(again.contains("has not ended"), "{again}");
    it.commit("placed", &["a"]).await;
    let it = it.restarted().await;
    let delivered = it.pull_count("h", 2).await;
    assert_eq!(delivered[0].replay.as_deref(), Some(&*replay.id), "over a restart too");
    assert_eq!((positions(&delivered), delivered[0].attempt), (vec![0, 1], 1));
    for delivery in &delivered {
        it.done("h", delivery).await;
    }
    assert_eq!(replayed(&it, 4).await, [(2, true), (3, false)]);
    let listed = acts(&it).await;
    assert_eq!(
        (&*listed[0].act, &listed[0].id, listed[0].from, listed[0].to),
        ("replay", &replay.id, Some(0), Some(3))
    );
    act(&it, Act::Replay { from: at(3) }).await;
    assert_eq!(replayed(&it, 4).await, [(3, true)]);
    act(&it, Act::Replay { from: Place::Time { time: Timestamp::from_millis(0) } }).await;
    assert_eq!(replayed(&it, 4).await.len(), 4);
    let nothing = refused(&it, Act::Replay { from: at(4) }).await;
    assert!(nothing.contains("position 4"), "{nothing}");
}

/// A failed event is not marked, because it was never handled. Partitions that fail before the replay's start stay.
pub async fn a_replay_does_not_mark_what_had_failed(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    it.by_aggregate("h").await;
    it.commit("placed", &["a", "b", "c", "a", "b", "c"]).await;
    let mut handled = 0;
    while handled < 4 {
        for delivery in it.pull("h").await {
            match delivery.position {
                0 | 4 => it.fail("h", &delivery).await,
                _ => it.done("h", &delivery).await,
            }
            handled += 1;
        }
    }
    while position(&it).await < 6 {
        for delivery in it.pull_now("h").await {
            it.done("h", &delivery).await;
        }
    }
    act(&it, Act::Replay { from: at(1) }).await;
    let failing = it.handlers.partitions("h", None, 10).await.expect("reads").items;
    let failing: Vec<_> = failing.iter().map(|it| (&*it.partition, it.position, it.attempts)).collect();
    assert_eq!(failing, [("order/a", 0, 1)], "the one that fails before stays, the other is forgotten");
    it.advance(60_000);
    assert_eq!(replayed(&it, 6).await, [(0, false), (1, true), (2, true), (3, false), (4, false), (5, true)]);
}

/// Such deliveries can no longer be settled, because their events come again.
pub async fn what_is_in_flight_when_the_position_is_set_is_lost(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    it.by_aggregate("h").await;
    it.commit("placed", &["a", "a"]).await;
    let first = it.pull("h").await;
    it.done("h", &first[0]).await;
    let second = it.pull("h").await;
    act(&it, Act::Replay { from: at(0) }).await;
    let lost = it.settle("h", vec![annals_core::handlers::Settlement::done(second[0].token.clone())]).await;
    assert_eq!(lost[0].error.as_deref(), Some("lease_lost"));
    assert_eq!(replayed(&it, 2).await, [(0, true), (1, false)]);
}

/// Moves go forward and back, up to the head.
pub async fn a_handler_is_moved_to_any_position_up_to_the_head(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    it.by_aggregate("h").await;
    it.commit("placed", &["a", "b", "c", "d"]).await;
    let failed: Vec<Delivery> = it.pull_count("h", 4).await;
    for delivery in failed.iter().filter(|delivery| delivery.position < 2) {
        it.fail("h", delivery).await;
    }
    assert_eq!(position(&it).await, 2);
    let past = refused(&it, Act::Move { to: at(5) }).await;
    assert!(past.contains("ends at position 4"), "{past}");
    assert!(refused(&it, Act::Move { to: at(2) }).await.contains("already"));
    act(&it, Act::Move { to: at(3) }).await;
    let status = it.handlers.get("h").await.expect("defined");
    assert_eq!((status.position, status.failing, status.lag), (3, 0, 1));
    it.advance(60_000);
    assert_eq!(it.handle_all("h", 4).await, [3]);
    act(&it, Act::Move { to: Place::SequenceNumber { sequence_number: 2 } }).await;
    assert_eq!(replayed(&it, 4).await, [(2, false), (3, false)], "a move marks nothing");
    act(&it, Act::Move { to: Place::End(End::Beginning) }).await;
    act(&it, Act::Move { to: Place::End(End::Latest) }).await;
    assert!(it.pull_now("h").await.is_empty());
    let moves: Vec<_> = acts(&it).await.iter().map(|act| (act.from, act.to)).collect();
    assert_eq!(moves, [(Some(0), Some(4)), (Some(4), Some(0)), (Some(4), Some(2)), (Some(2), Some(3))]);
}

/// It comes as a first attempt, and its partition has one entry.
pub async fn a_failing_event_that_the_position_is_set_to_comes_and_fails_as_if_it_were_new(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    it.by_aggregate("h").await;
    it.commit("placed", &["a", "b", "c"]).await;
    let all_but_b = async |deliveries: Vec<Delivery>| {
        for delivery in deliveries {
            match delivery.position {
                1 => it.fail("h", &delivery).await,
                _ => it.done("h", &delivery).await,
            }
        }
    };
    let failing = async || it.handlers.partitions("h", None, 10).await.expect("reads").items;
    all_but_b(it.pull_count("h", 3).await).await;
    it.advance(1_000);
    let retried = it.pull("h").await;
    assert_eq!((positions(&retried), retried[0].attempt), (vec![1], 2));
    all_but_b(retried).await;
    assert_eq!(position(&it).await, 3);
    act(&it, Act::Move { to: at(1) }).await;
    assert_eq!((position(&it).await, failing().await.len()), (1, 0));
    let again = it.pull_count("h", 2).await;
    assert_eq!(positions(&again), [1, 2]);
    let b = again.iter().find(|delivery| delivery.position == 1).expect("came");
    assert_eq!((b.attempt, b.last_reason.as_deref()), (1, None));
    all_but_b(again).await;
    let entries = failing().await;
    let entries: Vec<_> = entries.iter().map(|entry| (&*entry.partition, entry.position, entry.attempts)).collect();
    assert_eq!(entries, [("order/b", 1, 1)]);
    it.advance(1_000);
    assert_eq!(it.handle_all("h", 3).await, [1]);
}

/// The replay ends, and what it had not delivered yet is not marked.
pub async fn a_move_ends_a_replay(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    it.define(HandlerDefinition { retry: seconds(), ..HandlerDefinition::new("h") }).await;
    it.commit("placed", &["a", "b", "c"]).await;
    assert_eq!(it.handle_all("h", 3).await.len(), 3);
    act(&it, Act::Replay { from: at(0) }).await;
    act(&it, Act::Move { to: at(2) }).await;
    assert_eq!(it.handlers.get("h").await.expect("defined").replay, None);
    assert_eq!(replayed(&it, 3).await, [(2, false)]);
}

/// The keys have dots, dollar signs, slashes, and no characters at all.
pub async fn partition_keys_of_any_text_fail_and_are_acted_upon_alone(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    let once = ProcessingRetry { attempts: Some(1), ..seconds() };
    let by_tag = HandlerDefinition::new("h").partitioned(PartitionBy::Data("key".to_owned()), 16);
    it.define(HandlerDefinition { retry: once, ..by_tag }).await;
    let keys = ["", "a.b", "$x", "a.$", "$set.a", "a/b c", "ä", "(empty)", "(none)"];
    for key in keys {
        it.commit_data("order", "o", &serde_json::json!({ "key": key })).await;
    }
    for delivery in it.pull_count("h", keys.len()).await {
        assert_eq!(delivery.partition.as_deref(), Some(keys[delivery.position as usize]));
        it.fail("h", &delivery).await;
    }
    let it = it.restarted().await;
    let page = it.handlers.partitions("h", None, 100).await.expect("reads").items;
    let mut listed: Vec<_> = page.iter().map(|failing| &*failing.partition).collect();
    let mut expected = keys.to_vec();
    listed.sort_unstable();
    expected.sort_unstable();
    assert_eq!(listed, expected);
    for (n, key) in keys.into_iter().enumerate() {
        act(&it, Act::Skip { partition: key.into(), position: Some(n as u64) }).await;
    }
    assert!(it.handle_all("h", keys.len() as u64).await.is_empty());
    let status = it.handlers.get("h").await.expect("defined");
    assert_eq!((status.parked, status.state), (keys.len() as u64, HandlerState::Running));
}
