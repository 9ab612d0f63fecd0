//! The intake against producers of every kind, without a store and without a network.

use super::*;
use crate::{Data, Identity};

fn subscription() -> Subscription {
    let part = |text: &'static str| ByteString::from_static(text);
    Subscription { producer: part("orders"), tenant: part("t"), stream: part("s"), partition: part("p") }
}

fn event(position: u64, sequence_number: u64) -> IncomingEvent {
    IncomingEvent {
        position,
        sequence_number,
        event_type: "placed".into(),
        generation: 1,
        data: Data::empty(),
        time: Timestamp::from_millis(0),
        source: "o-1".into(),
        correlation_id: None,
    }
}

fn page(incarnation: u32, start: u64, events: Vec<IncomingEvent>, next: u64) -> Offered {
    Offered {
        consent: Uuid::from_u128(9),
        microservice: "orders".into(),
        identity: Identity { store_id: Uuid::from_u128(1), incarnation, incarnation_start: start },
        events,
        next,
        head: 10,
    }
}

fn state(position: u64, sequence_number: Option<u64>) -> SubscriptionState {
    SubscriptionState { position, sequence_number }
}

fn connected(at: SubscriptionState) -> Intake {
    let mut intake = Intake::new(Progress::default());
    let known = at.sequence_number.map(|_| Origin { store_id: Uuid::from_u128(1), incarnation: 0 });
    intake.connect(subscription(), at, known.as_ref(), &page(0, 0, Vec::new(), 0)).expect("the same producer");
    intake
}

const NOW: Timestamp = Timestamp::from_millis(1_000);

#[test]
fn pages_are_taken_in_order_and_batches_begin_at_the_stored_position() {
    let mut intake = connected(state(0, None));
    assert_eq!(intake.next(NOW), Next::Take(0));
    let batches = intake.take(0, page(0, 0, vec![event(1, 4), event(3, 6)], 4)).expect("taken");
    assert_eq!((batches.len(), batches[0].from, batches[0].next()), (1, 0, 4));
    intake.stored(batches[0].state(), NOW);
    // Entries of other partitions lie between, so the next batch begins where the stored one ended.
    assert_eq!(intake.take(4, page(0, 0, Vec::new(), 8)), Ok(Vec::new()));
    assert_eq!(intake.next(NOW), Next::Take(8));
    let batches = intake.take(8, page(0, 0, vec![event(9, 12)], 10)).expect("taken");
    assert_eq!((batches[0].from, batches[0].next()), (4, 10));
    assert_eq!(intake.progress().state, IntakeState::Running);
}

#[test]
fn a_page_that_does_not_follow_is_not_stored() {
    let mut intake = connected(state(5, Some(7)));
    for (from, events, next) in [(4, vec![], 9), (5, vec![event(4, 8)], 9), (5, vec![event(9, 8)], 9), (5, vec![], 4)] {
        let refused = intake.take(from, page(0, 0, events, next)).expect_err("it does not follow");
        assert!(matches!(refused, Refusal::Failing(_)), "{refused:?}");
    }
    let refused = intake.take(5, page(0, 0, vec![event(5, 7)], 9)).expect_err("numbers ascend");
    assert!(matches!(refused, Refusal::Blocked(reason) if reason.contains("event 7")));
}

#[test]
fn delays_grow_up_to_a_cap_and_the_first_page_resets_them() {
    let mut intake = Intake::new(Progress::default());
    let mut last = Duration::ZERO;
    for attempt in 1..=12 {
        intake.failed(Refusal::Failing("down".to_owned()), NOW, u64::MAX / 2);
        let Next::Wait(at) = intake.next(NOW) else { panic!("it waits") };
        assert!(at.since(NOW) >= last && at.since(NOW) <= Duration::from_secs(15), "attempt {attempt}");
        last = at.since(NOW);
        assert_eq!(intake.next(at), Next::Connect);
    }
    assert_eq!((last, intake.progress().attempts), (Duration::from_secs(15), 12));
    intake.connect(subscription(), state(0, None), None, &page(0, 0, Vec::new(), 0)).expect("connected");
    assert_eq!(intake.progress().attempts, 12, "a producer that only greets is no success");
    intake.take(0, page(0, 0, Vec::new(), 0)).expect("taken");
    assert_eq!((intake.progress().attempts, intake.progress().last_reason.clone()), (0, None));
    intake.failed(Refusal::Failing("down".to_owned()), NOW, u64::MAX / 2);
    let Next::Wait(at) = intake.next(NOW) else { panic!("it waits") };
    assert!(at.since(NOW) <= Duration::from_millis(240), "it begins with the first delay again");
}

#[test]
fn a_producer_is_the_one_that_the_received_events_came_from() {
    let known = Origin { store_id: Uuid::from_u128(1), incarnation: 2 };
    let at = state(5, Some(7));
    let connect = |offered: &Offered| {
        let mut intake = Intake::new(Progress { microservice: Some("orders".into()), ..Progress::default() });
        let connected = intake.connect(subscription(), at, Some(&known), offered);
        connected.map(|origin| (origin, intake.progress().notice.clone()))
    };
    assert_eq!(connect(&page(2, 0, Vec::new(), 0)), Ok((None, None)));
    // Restored after the last received event: it is noticed, and nothing is lost.
    let (origin, notice) = connect(&page(3, 8, Vec::new(), 0)).expect("nothing received is concerned");
    assert_eq!(origin, Some(Origin { incarnation: 3, ..known.clone() }));
    assert!(notice.is_some_and(|notice| notice.contains("event 8")));
    let other_store = Offered {
        identity: Identity { store_id: Uuid::from_u128(2), ..page(2, 0, Vec::new(), 0).identity },
        ..page(2, 0, Vec::new(), 0)
    };
    for (offered, says) in [
        (page(3, 7, Vec::new(), 0), "restored to event 7, but event 7"),
        (page(1, 0, Vec::new(), 0), "incarnation 1"),
        (other_store, "came from store"),
        (Offered { head: 4, ..page(2, 0, Vec::new(), 0) }, "ends at position 4"),
        (Offered { microservice: "other".into(), ..page(2, 0, Vec::new(), 0) }, "calls itself"),
    ] {
        match connect(&offered) {
            Err(Refusal::Blocked(reason)) => assert!(reason.contains(says), "{reason}"),
            other => panic!("{says}: {other:?}"),
        }
    }
}

#[test]
fn a_producer_that_is_replaced_between_two_pages_is_asked_who_it_is_again() {
    let mut intake = connected(state(0, None));
    let restored = intake.take(0, page(1, 0, vec![event(0, 0)], 1)).expect_err("another incarnation");
    intake.failed(restored, NOW, 0);
    assert_eq!(intake.next(NOW.plus(Duration::from_secs(1))), Next::Connect);
}

#[test]
fn a_large_page_is_split_without_a_gap() {
    let large = Data::from_value(&serde_json::json!({ "text": "x".repeat(2_500_000) })).expect("a document");
    let events: Vec<_> = (0..7).map(|n| IncomingEvent { data: large.clone(), ..event(n * 2, n) }).collect();
    let split = batches(&subscription(), 0, Uuid::nil(), events);
    assert_eq!(split.iter().map(|batch| batch.events.len()).collect::<Vec<_>>(), [2, 2, 2, 1]);
    let mut next = 0;
    for batch in split {
        assert_eq!((batch.from, batch.validate()), (next, Ok(())));
        next = batch.next();
    }
    assert_eq!(next, 13);
}
